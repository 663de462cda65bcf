"""A server on loopback that speaks the part of Google's XML API which a client of objects needs, with its preconditions.

The known emulators ignore preconditions or speak the JSON API alone. Written after the reference of the XML API: objects
have generations, and an upload or a removal with `x-goog-if-generation-match` of another one (0: no object) is 412.
"""

import hashlib
import http.server
import itertools
import re
import threading
import time
import urllib.parse
from email.utils import formatdate
from xml.etree import ElementTree
from xml.sax.saxutils import escape

# Entries in a page of a listing: few, so that a client reads several pages.
PAGE = 3


class GcsServer:
    """Serves one bucket until `close`."""

    def __init__(self, bucket):
        self.objects, self.uploads, self.lock = {}, {}, threading.Lock()
        self.numbers = itertools.count(int(time.time() * 1e6))
        self.bucket = bucket
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Requests,), {"state": self}))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.endpoint, self.close = f"http://127.0.0.1:{server.server_port}", server.shutdown

    def store(self, name, content):
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        self.objects[name] = stored = {"content": content, "ETag": etag, "x-goog-generation": str(next(self.numbers)), "time": time.time()}
        return {"ETag": etag, "x-goog-generation": stored["x-goog-generation"]}


class Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with self.state.lock:
            self.respond(*self.perform(self.rfile.read(int(self.headers.get("Content-Length") or 0))))

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def perform(self, body):
        path, _, query = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        bucket, _, name = urllib.parse.unquote(path).lstrip("/").partition("/")
        if bucket != self.state.bucket:
            return 404, error("NoSuchBucket"), {}
        if not name:
            return 200, self.listing(query), {}
        return getattr(self, self.command.lower())(name, query, body)

    def listing(self, query):
        """One page of objects, by the version 2 of listing."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")

        def group_of(name):
            head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            return prefix + head + found if found else name

        entries = sorted({group_of(name) for name in self.state.objects if name.startswith(prefix)})
        entries = [entry for entry in entries if entry > query.get("continuation-token", "")]
        page, more = entries[:PAGE], len(entries) > PAGE
        xml = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"
        xml += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        for entry in page:
            it = self.state.objects.get(entry)
            if it is None:
                xml += f"<CommonPrefixes><Prefix>{escape(entry)}</Prefix></CommonPrefixes>"
                continue
            modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(it["time"]))
            xml += f"<Contents><Key>{escape(entry)}</Key><LastModified>{modified}</LastModified>"
            xml += f"<ETag>{escape(it['ETag'])}</ETag><Size>{len(it['content'])}</Size></Contents>"
        return (xml + "</ListBucketResult>").encode()

    def get(self, name, query, body):
        it = self.state.objects.get(name)
        if it is None:
            return 404, error("NoSuchKey"), {}
        content, headers = it["content"], {key: it[key] for key in ("ETag", "x-goog-generation")}
        headers["Last-Modified"] = formatdate(it["time"], usegmt=True)
        if self.headers.get("If-Match", it["ETag"]) != it["ETag"]:
            return 412, error("PreconditionFailed"), {}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if not asked:
            return 200, content, headers
        first = int(asked[1]) if asked[1] else max(0, len(content) - int(asked[2]))
        last = min(int(asked[2]), len(content) - 1) if asked[1] and asked[2] else len(content) - 1
        if first >= len(content):
            return 416, error("InvalidRange"), {}
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return 206, content[first : last + 1], headers

    head = get

    def is_refused(self, name):
        """Whether the object has another generation than the request names."""
        found = self.state.objects.get(name, {"x-goog-generation": "0"})["x-goog-generation"]
        return self.headers.get("x-goog-if-generation-match", found) != found

    def put(self, name, query, body):
        if "uploadId" in query:
            self.state.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return 200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}
        if self.is_refused(name):
            return 412, error("PreconditionFailed"), {}
        if "x-goog-copy-source" in self.headers:
            source = urllib.parse.unquote(self.headers["x-goog-copy-source"]).lstrip("/").partition("/")[2]
            if source not in self.state.objects:
                return 404, error("NoSuchKey"), {}
            body = self.state.objects[source]["content"]
        return 200, b"", self.state.store(name, body)

    def post(self, name, query, body):
        if "uploads" in query:
            upload = str(next(self.state.numbers))
            self.state.uploads[upload] = {}
            xml = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return 200, xml.encode(), {}
        if self.is_refused(name):
            return 412, error("PreconditionFailed"), {}
        parts = self.state.uploads.pop(query["uploadId"])
        numbers = [int(it.text) for it in ElementTree.fromstring(body).iter() if it.tag.rpartition("}")[2] == "PartNumber"]
        headers = self.state.store(name, b"".join(parts[number] for number in numbers))
        xml = f"<CompleteMultipartUploadResult><ETag>{escape(headers['ETag'])}</ETag></CompleteMultipartUploadResult>"
        return 200, xml.encode(), headers

    def delete(self, name, query, body):
        if "uploadId" in query:
            return 204 if self.state.uploads.pop(query["uploadId"], None) else 404, b"", {}
        if self.is_refused(name):
            return 412, error("PreconditionFailed"), {}
        return (204, b"", {}) if self.state.objects.pop(name, None) else (404, error("NoSuchKey"), {})

    def respond(self, status, content, headers):
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


def error(code):
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
