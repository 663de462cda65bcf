//! A server on loopback with one bucket, `data`, in memory: what S3 does with the requests of the command.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The bucket that exists.
const BUCKET: &str = "data";

/// A request, and the lengths of the bodies of it and of its response.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) method: String,
    /// Without the slash at its beginning and without a query.
    pub(crate) path: String,
    pub(crate) sent: usize,
    pub(crate) received: usize,
}

/// A running server. It ends when it is dropped.
pub(crate) struct BucketServer {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Content and ETag by name.
    objects: Mutex<BTreeMap<String, (Vec<u8>, String)>>,
    log: Mutex<Vec<Logged>>,
    /// A write of this object is refused.
    refused: Mutex<Option<String>>,
    /// Whether all writes are refused.
    is_read_only: AtomicBool,
    listings: Mutex<Listings>,
    /// Bytes of endless bodies that were sent.
    sent: AtomicU64,
    /// The time that the write of a shard takes.
    pause: Mutex<Duration>,
    is_ended: AtomicBool,
}

/// How the server lists objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listings {
    #[default]
    Right,
    /// One page without an end.
    Endless,
    /// The same page again and again, of foreign names.
    Repeated,
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Response {
    status: u16,
    etag: Option<String>,
    range: Option<String>,
    body: Vec<u8>,
}

impl BucketServer {
    pub(crate) fn start() -> BucketServer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_ended.load(Ordering::SeqCst) {
                    break;
                }
                let serving = serving.clone();
                // a client that has gone is no failure of the server
                thread::spawn(move || stream.and_then(|stream| serving.answer(&stream)));
            }
        });
        BucketServer { port, shared }
    }

    /// The endpoint for `AWS_ENDPOINT_URL`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The requests since the last call.
    pub(crate) fn take_log(&self) -> Vec<Logged> {
        std::mem::take(&mut self.shared.log.lock().unwrap())
    }

    /// Refuses writes of an object from now on; of none without a name.
    pub(crate) fn refuse(&self, name: Option<&str>) {
        *self.shared.refused.lock().unwrap() = name.map(str::to_string);
    }

    /// Refuses all writes from now on.
    pub(crate) fn refuse_writes(&self) {
        self.shared.is_read_only.store(true, Ordering::SeqCst);
    }

    /// Decides how objects are listed from now on.
    pub(crate) fn list(&self, listings: Listings) {
        *self.shared.listings.lock().unwrap() = listings;
        self.shared.sent.store(0, Ordering::SeqCst);
    }

    /// Bytes of endless bodies that were sent since `list`.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// Answers writes of shards after this time.
    pub(crate) fn pause_at_shards(&self, pause: Duration) {
        *self.shared.pause.lock().unwrap() = pause;
    }

    /// The names of all objects.
    pub(crate) fn names(&self) -> Vec<String> {
        self.shared.objects.lock().unwrap().keys().cloned().collect()
    }

    /// Flips one bit of an object, which gets another ETag.
    pub(crate) fn damage(&self, name: &str) {
        let mut objects = self.shared.objects.lock().unwrap();
        let (content, etag) = objects.get_mut(name).unwrap();
        content[0] ^= 1;
        *etag = etag_of(content);
    }
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port)); // so that `incoming` returns
    }
}

impl Shared {
    fn answer(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let Some(request) = Request::read(&mut BufReader::new(stream))? else { return Ok(()) };
        if request.method == "PUT" && request.path.ends_with(".shard") {
            thread::sleep(*self.pause.lock().unwrap());
        }
        if request.is_listing() && *self.listings.lock().unwrap() == Listings::Endless {
            return self.send_endless(stream);
        }
        let Response { status, etag, range, body } = self.respond(&request);
        let is_head = request.method == "HEAD";
        self.log.lock().unwrap().push(Logged {
            sent: request.body.len(),
            received: if is_head { 0 } else { body.len() },
            method: request.method,
            path: request.path,
        });
        let mut head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        head += "Last-Modified: Mon, 23 Nov 2026 10:00:00 GMT\r\n";
        etag.iter().for_each(|etag| write!(head, "ETag: {etag}\r\n").unwrap());
        range.iter().for_each(|range| write!(head, "Content-Range: {range}\r\n").unwrap());
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        if is_head { Ok(()) } else { stream.write_all(&body) }
    }

    fn send_endless(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        stream.write_all(b"HTTP/1.1 200 X\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let object = "<Contents><Key>x</Key></Contents>".repeat(1000);
        let piece = format!("{:x}\r\n{object}\r\n", object.len());
        loop {
            stream.write_all(piece.as_bytes())?;
            self.sent.fetch_add(object.len() as u64, Ordering::SeqCst);
        }
    }

    fn respond(&self, request: &Request) -> Response {
        let (bucket, name) = request.path.split_once('/').unwrap_or((&request.path, ""));
        if bucket != BUCKET {
            return Response::error(404, "NoSuchBucket", "The specified bucket does not exist");
        }
        let mut objects = self.objects.lock().unwrap();
        if self.is_read_only.load(Ordering::SeqCst) && !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Response::error(403, "AccessDenied", "User may only read");
        }
        match (request.method.as_str(), name) {
            ("GET", "") if *self.listings.lock().unwrap() == Listings::Repeated => repeated(&request.prefix()),
            ("GET", "") => list(&objects, &request.prefix()),
            ("POST", "") => {
                let keys = std::str::from_utf8(&request.body).unwrap().split("<Key>").skip(1);
                let keys: Vec<_> = keys.filter_map(|rest| rest.split("</Key>").next()).collect();
                keys.iter().for_each(|key| drop(objects.remove(*key)));
                let deleted: String = keys.iter().map(|key| format!("<Deleted><Key>{key}</Key></Deleted>")).collect();
                Response::ok(format!("<DeleteResult>{deleted}</DeleteResult>").into_bytes())
            }
            ("PUT", _) if self.refused.lock().unwrap().as_deref() == Some(name) => {
                Response::error(403, "AccessDenied", "User is not authorized\n  to perform: s3:PutObject")
            }
            ("PUT", _) => {
                let found = objects.get(name).map(|(_, etag)| etag.as_str());
                let is_created = request.headers.get("if-none-match").is_none_or(|_| found.is_none());
                let is_same = request.headers.get("if-match").is_none_or(|etag| found == Some(etag));
                if !is_created || !is_same {
                    return Response::error(412, "PreconditionFailed", "At least one of the conditions did not hold");
                }
                let source = request.headers.get("x-amz-copy-source").map(|it| it.trim_start_matches('/'));
                let source = source.and_then(|source| source.strip_prefix("data/"));
                let body = source.map_or_else(|| request.body.clone(), |source| objects[source].0.clone());
                let etag = etag_of(&body);
                objects.insert(name.to_string(), (body, etag.clone()));
                let copied =
                    format!("<CopyObjectResult><ETag>{}</ETag></CopyObjectResult>", etag.replace('"', "&quot;"));
                let answer = if source.is_some() { copied.into_bytes() } else { Vec::new() };
                Response { etag: Some(etag), ..Response::ok(answer) }
            }
            ("GET" | "HEAD", _) => match objects.get(name) {
                Some((content, etag)) => Response { etag: Some(etag.clone()), ..request.part_of(content) },
                None => Response::error(404, "NoSuchKey", "The specified key does not exist."),
            },
            (method, _) => Response::error(501, "NotImplemented", method),
        }
    }
}

impl Request {
    fn read(stream: &mut impl BufRead) -> std::io::Result<Option<Request>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_string()),
            }
        }
        let Some((first, headers)) = lines.split_first() else { return Ok(None) };
        let (method, target) = first.split_once(' ').unwrap();
        let target = target.split(' ').next().unwrap().trim_start_matches('/');
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = headers.iter().filter_map(|line| line.split_once(':'));
        let headers: BTreeMap<_, _> =
            headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_string())).collect();
        let mut body = vec![0; headers.get("content-length").map_or(0, |len| len.parse().unwrap())];
        stream.read_exact(&mut body)?;
        Ok(Some(Request { method: method.into(), path: path.into(), query: query.into(), headers, body }))
    }

    fn is_listing(&self) -> bool {
        self.method == "GET" && self.path == BUCKET
    }

    /// The prefix of a listing.
    fn prefix(&self) -> String {
        let prefix = self.query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or_default();
        prefix.replace("%2F", "/")
    }

    /// The requested range of an object, or all of it.
    fn part_of(&self, content: &[u8]) -> Response {
        let range = self.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let Some((first, last)) = range else { return Response::ok(content.to_vec()) };
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        let last = last.min(content.len() - 1);
        let range = Some(format!("bytes {first}-{last}/{}", content.len()));
        Response { status: 206, range, ..Response::ok(content[first..=last].to_vec()) }
    }
}

impl Response {
    fn ok(body: Vec<u8>) -> Response {
        Response { status: 200, etag: None, range: None, body }
    }

    fn error(status: u16, code: &str, message: &str) -> Response {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>\
             <RequestId>7G3A</RequestId><HostId>{}</HostId></Error>",
            "x".repeat(2000)
        );
        Response { status, ..Response::ok(body.into_bytes()) }
    }
}

/// A page of a listing, after which the same one comes.
fn repeated(prefix: &str) -> Response {
    let page = format!(
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken><Contents>\
         <Key>{prefix}foreign</Key><LastModified>2026-11-23T10:00:00.000Z</LastModified><Size>1</Size></Contents>\
         </ListBucketResult>"
    );
    Response::ok(page.into_bytes())
}

fn list(objects: &BTreeMap<String, (Vec<u8>, String)>, prefix: &str) -> Response {
    let mut xml = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_string();
    for (name, (content, etag)) in objects.iter().filter(|(name, _)| name.starts_with(prefix)) {
        let etag = etag.replace('"', "&quot;");
        write!(
            xml,
            "<Contents><Key>{name}</Key><LastModified>2026-11-23T10:00:00.000Z</LastModified><ETag>{etag}</ETag>\
             <Size>{}</Size></Contents>",
            content.len()
        )
        .unwrap();
    }
    Response::ok((xml + "</ListBucketResult>").into_bytes())
}

/// A checksum that is enough for an ETag.
fn etag_of(content: &[u8]) -> String {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    format!("\"{:08x}-{}\"", crc.sum(), content.len())
}
