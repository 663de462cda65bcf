#!/usr/bin/env python3
"""Serves a sharded data set as an unsharded one: one URL per object; the server looks objects up in the shards.

usage: facade_server.py DIR [PORT]

The `info` files are served without their "sharding" members, so the client requests seg/skeletons/<id>,
seg/mesh/<id>.index, seg/mesh/<id> (with Range), image/s0/0-32_0-32_0-32, ann/by_id/<id>, ann/rel/<id> and
ann/sp1/<x>_<y>_<z>. The reader below is independent of ShardDb. FACADE_BUG=next returns the value of the next key, a
fault that the check must detect."""
import gzip, json, math, os, re, struct, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from cloudvolume.datasource.precomputed import mmh3

DIR = sys.argv[1]

def locate(d, spec, key):
    """Returns (path, offset, size) of the value of key, or None."""
    h = key >> spec["preshift_bits"]
    if spec["hash"] == "murmurhash3_x86_128":
        h = mmh3.hash64(struct.pack("<Q", h), x64arch=False)[0] % 2**64
    mini = h & ((1 << spec["minishard_bits"]) - 1)
    shard = (h >> spec["minishard_bits"]) & ((1 << spec["shard_bits"]) - 1)
    path = os.path.join(d, format(shard, "x").zfill(math.ceil(spec["shard_bits"] / 4)) + ".shard")
    if not os.path.exists(path): return None
    base = 16 << spec["minishard_bits"]
    with open(path, "rb") as f:
        f.seek(16 * mini); s, e = struct.unpack("<QQ", f.read(16))
        if s == e: return None
        f.seek(base + s); raw = f.read(e - s)
    if spec.get("minishard_index_encoding", "raw") == "gzip": raw = gzip.decompress(raw)
    n = len(raw) // 24; v = struct.unpack("<%dQ" % (3 * n), raw)
    k = 0; pos = base
    for i in range(n):
        k = (k + v[i]) % 2**64; pos += v[n + i]
        if k == key:
            if os.environ.get("FACADE_BUG") == "next" and i + 1 < n: return path, pos + v[2 * n + i] + v[n + i + 1], v[2 * n + i + 1]
            return path, pos, v[2 * n + i]
        pos += v[2 * n + i]

def get(d, spec, key):
    at = locate(d, spec, key)
    if at is None: return None
    with open(at[0], "rb") as f:
        f.seek(at[1]); b = f.read(at[2])
    return gzip.decompress(b) if spec.get("data_encoding", "raw") == "gzip" else b

def morton(p, grid):
    code = j = 0
    for i in range(32):
        for d in range(len(grid)):
            if 1 << i < grid[d]: code |= (p[d] >> i & 1) << j; j += 1
    return code

def unshard(o):
    if isinstance(o, dict): return {k: unshard(v) for k, v in o.items() if k != "sharding"}
    return [unshard(v) for v in o] if isinstance(o, list) else o

def lookup(path):
    """Returns the body for a URL path, or None."""
    if path.endswith("/info") or path == "/ng_expect.json":
        p = DIR + path
        return json.dumps(unshard(json.load(open(p)))).encode() if os.path.exists(p) else None
    head, name = path.rsplit("/", 1); d = DIR + head
    own = json.load(open(d + "/info")) if os.path.exists(d + "/info") else None
    up = os.path.dirname(d); parent = json.load(open(up + "/info")) if os.path.exists(up + "/info") else {}
    if own and own.get("@type") == "neuroglancer_skeletons": return get(d, own["sharding"], int(name))
    if own and own.get("@type") == "neuroglancer_multilod_draco":
        key = int(name.removesuffix(".index")); man = get(d, own["sharding"], key)
        if man is None or name.endswith(".index"): return man
        lods = struct.unpack_from("<I", man, 24)[0]; p = 28 + 16 * lods
        counts = struct.unpack_from("<%dI" % lods, man, p); p += 4 * lods; total = 0
        for c in counts: total += sum(struct.unpack_from("<%dI" % c, man, p + 12 * c)); p += 16 * c
        f, off, _ = locate(d, own["sharding"], key)
        with open(f, "rb") as fh: fh.seek(off - total); return fh.read(total)
    for s in parent.get("scales", []):
        m = re.fullmatch(r"(\d+)-\d+_(\d+)-\d+_(\d+)-\d+", name)
        if s["key"] == os.path.basename(d) and m:
            c = s["chunk_sizes"][0]; grid = [-(-a // b) for a, b in zip(s["size"], c)]
            return get(d, s["sharding"], morton([(int(v) - o) // b for v, o, b in zip(m.groups(), s["voxel_offset"], c)], grid))
    for e in ([parent["by_id"]] if "by_id" in parent else []) + parent.get("relationships", []):
        if e["key"] == os.path.basename(d): return get(d, e["sharding"], int(name))
    for e in parent.get("spatial", []):
        if e["key"] == os.path.basename(d): return get(d, e["sharding"], morton([int(v) for v in name.split("_")], e["grid_shape"]))

class H(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        try: b = lookup(self.path)
        except (ValueError, KeyError): b = None
        status = 200 if b is not None else 404; extra = {}
        m = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if b is not None and m:
            a, z = int(m[1]), min(int(m[2]), len(b) - 1); extra["Content-Range"] = f"bytes {a}-{z}/{len(b)}"; status = 206; b = b[a:z + 1]
        self.send_response(status); b = b or b""
        for k, v in {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "Content-Range", "Content-Length": len(b), **extra}.items(): self.send_header(k, str(v))
        self.end_headers(); self.wfile.write(b)
    def log_message(self, *a): pass

srv = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), H)
print(f"listening http://127.0.0.1:{srv.server_address[1]}", flush=True)
srv.serve_forever()
