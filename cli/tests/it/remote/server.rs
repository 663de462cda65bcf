//! A web server on loopback that serves a directory, and fails as a test wants it.

use std::fs;
use std::io::{BufWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    /// The path, without the slash at its beginning and without a query.
    pub(crate) path: String,
    /// The first line and the headers, as they arrived.
    pub(crate) head: String,
    headers: Vec<(String, String)>,
}

impl Got {
    /// The value of a header, whose name is in lowercase.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The bytes of a `Range` header, the end included, as it states them.
    fn range(&self) -> Option<(u64, u64)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().unwrap(), last.parse().unwrap()))
    }
}

/// What the server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Serves the file: ranges, ETag, conditions.
    File,
    /// Serves the file without an ETag.
    FileWithoutEtag,
    /// Serves the file with another ETag, whatever the conditions.
    FileWithEtag(&'static str),
    /// Serves the whole file with status 200, whatever the range.
    WholeFile,
    /// Serves another range than the requested one: this number of bytes later.
    LaterRange(u64),
    /// Serves the file with one bit flipped in every n-th byte of the body, counted from its end.
    WrongBytes(usize),
    /// Ends the connection after this number of bytes of the body.
    Truncated(usize),
    /// Resets the connection after this number of bytes of the body.
    Reset(usize),
    /// Sends a byte of the body at a time, with a pause after each.
    Trickle(Duration),
    /// Sends 80 KiB of the body at a time, with a pause after each.
    Slow(Duration),
    /// Answers nothing until the client closes the connection.
    Nothing,
    /// A status, with headers and a body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// A status, and the head of the request as the body.
    Echo(u16),
    /// Serves the file, and states no length of the object with a range.
    RangeWithoutLength,
    /// A status, and a body that never ends.
    Endless(u16),
}

type Plan = dyn Fn(&Got) -> Reply + Send + Sync;

/// A running server. It ends when it is dropped.
pub(crate) struct Server {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    plan: Mutex<Arc<Plan>>,
    got: Mutex<Vec<Got>>,
    sent: AtomicU64,
    is_ended: AtomicBool,
}

impl Server {
    /// Serves the files below a directory.
    pub(crate) fn start(root: &Path) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            root: root.to_path_buf(),
            plan: Mutex::new(Arc::new(|_: &Got| Reply::File)),
            got: Mutex::default(),
            sent: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
        });
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_ended.load(Ordering::SeqCst) {
                    break;
                }
                let serving = serving.clone();
                // a client that has gone is no failure of the server
                thread::spawn(move || stream.and_then(|stream| serving.answer(stream)));
            }
        });
        Server { port, shared }
    }

    /// Decides what happens to the requests from now on, and forgets those before.
    pub(crate) fn plan(&self, plan: impl Fn(&Got) -> Reply + Send + Sync + 'static) {
        *self.shared.plan.lock().unwrap() = Arc::new(plan);
        self.take_requests();
        self.shared.sent.store(0, Ordering::SeqCst);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<Got> {
        std::mem::take(&mut self.shared.got.lock().unwrap())
    }

    /// Bytes of endless bodies that were sent since the last plan.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port)); // so that `incoming` returns
    }
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let Some(got) = self.read(&mut stream)? else { return Ok(()) };
        let plan = self.plan.lock().unwrap().clone();
        let reply = plan(&got);
        if let Reply::Reset(_) = reply {
            self.send(&stream, &got, &reply)?;
            return Ok(()); // the last byte of the request was not read: closing resets the connection
        }
        stream.read_exact(&mut [0])?;
        match reply {
            Reply::Nothing => drop(stream.read(&mut [0])?),
            Reply::Endless(status) => self.send_endless(&stream, status)?,
            _ => self.send(&stream, &got, &reply)?,
        }
        stream.shutdown(Shutdown::Both)
    }

    /// Reads a request up to its last byte, a line feed.
    fn read(&self, stream: &mut TcpStream) -> std::io::Result<Option<Got>> {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r") {
            let mut byte = [0];
            if stream.read(&mut byte)? == 0 {
                return Ok(None);
            }
            text.push(byte[0]);
        }
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.lines();
        let target = lines.next().unwrap().split(' ').nth(1).unwrap();
        let path = target.split('?').next().unwrap().trim_start_matches('/').to_string();
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_string())).collect();
        let mut all = self.got.lock().unwrap();
        let got = Got { path, head: text.trim_end().to_string(), headers };
        all.push(got.clone());
        Ok(Some(got))
    }

    fn send(&self, stream: &TcpStream, got: &Got, reply: &Reply) -> std::io::Result<()> {
        let Response { status, headers, body } = self.response(got, reply);
        let mut out = BufWriter::new(stream);
        write!(out, "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n", body.len())?;
        headers.iter().try_for_each(|(name, value)| write!(out, "{name}: {value}\r\n"))?;
        out.write_all(b"\r\n")?;
        let mut body = body;
        if let Reply::WrongBytes(step) = *reply {
            body.iter_mut().rev().step_by(step).for_each(|byte| *byte ^= 1);
        }
        let body = match *reply {
            Reply::Truncated(most) | Reply::Reset(most) => &body[..most.min(body.len())],
            _ => &body,
        };
        if let Reply::Trickle(pause) | Reply::Slow(pause) = *reply {
            let piece = if let Reply::Slow(_) = reply { 80 << 10 } else { 1 };
            for piece in body.chunks(piece) {
                out.write_all(piece)?;
                out.flush()?;
                thread::sleep(pause);
            }
            return Ok(());
        }
        out.write_all(body)?;
        out.flush()?;
        if let Reply::Reset(_) = reply {
            thread::sleep(Duration::from_millis(50)); // the reset would overtake the body
        }
        Ok(())
    }

    fn send_endless(&self, mut stream: &TcpStream, status: u16) -> std::io::Result<()> {
        write!(stream, "HTTP/1.1 {status} X\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let piece = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
        loop {
            stream.write_all(&piece)?;
            self.sent.fetch_add(0x1000, Ordering::SeqCst);
        }
    }

    fn response(&self, got: &Got, reply: &Reply) -> Response {
        if let Reply::Status(status, headers, body) = reply {
            return Response { status: *status, headers: headers.clone(), body: body.clone().into_bytes() };
        }
        if let Reply::Echo(status) = reply {
            return Response { status: *status, headers: Vec::new(), body: got.head.clone().into_bytes() };
        }
        let Ok(file) = fs::read(self.root.join(&got.path)) else { return Response::of(404) };
        let len = file.len() as u64;
        let etag = match reply {
            Reply::FileWithEtag(etag) => Some(etag.to_string()),
            Reply::FileWithoutEtag => None,
            _ => Some(format!("\"{:08x}\"", crc(&file))),
        };
        let is_other = |header| got.header(header).is_some_and(|given| Some(given) != etag.as_deref());
        let is_same = |header| got.header(header).is_some_and(|given| Some(given) == etag.as_deref());
        let mut headers: Vec<_> = etag.iter().map(|etag| ("ETag", etag.clone())).collect();
        match (got.range(), reply) {
            (_, Reply::File) if is_other("if-match") => Response::of(412),
            (_, Reply::File) if is_same("if-none-match") => Response::of(304),
            (None, _) | (_, Reply::WholeFile) => Response { status: 200, headers, body: file },
            (Some((first, _)), _) if first >= len => Response::of(416),
            (Some((first, last)), _) => {
                let later = if let Reply::LaterRange(bytes) = reply { *bytes } else { 0 };
                let (first, last) = (first + later, (last + later).min(len - 1));
                let of = if let Reply::RangeWithoutLength = reply { "*".to_string() } else { len.to_string() };
                headers.push(("Content-Range", format!("bytes {first}-{last}/{of}")));
                let offset = |at: u64| usize::try_from(at).unwrap();
                let body = file[offset(first)..=offset(last)].to_vec();
                Response { status: 206, headers, body }
            }
        }
    }
}

struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Response {
    fn of(status: u16) -> Response {
        Response { status, headers: Vec::new(), body: Vec::new() }
    }
}

/// A checksum that is enough for an ETag.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
