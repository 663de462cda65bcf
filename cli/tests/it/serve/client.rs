//! A small HTTP client, and a server that is stopped when the test ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::net::TcpStream;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::common::{Start, command, until};
#[cfg(unix)]
use crate::limits::limited;
use crate::process::{Child, WATCHDOG, kill};

/// The limit of a server, which lives as long as its test. Each of its answers has [`WATCHDOG`].
const SERVER_WATCHDOG: Duration = Duration::from_secs(900);

/// A running `sharddb serve`.
pub(crate) struct Server {
    child: Child,
    /// The page, and the files.
    pub(crate) urls: Vec<String>,
    lines: Mutex<mpsc::Receiver<String>>,
}

impl Server {
    /// Starts a server and reads its URLs. Without `--timeout`, no connection of a test is closed because the test stalls.
    pub(crate) fn start(args: &[&str]) -> Server {
        let timeout = if args.contains(&"--timeout") { &[][..] } else { &["--timeout", "900"] };
        Server::spawn(command([&["serve"], args, timeout].concat()))
    }

    /// Starts a server with variables of its environment.
    #[cfg(target_os = "linux")]
    pub(crate) fn start_with(environment: &[(&str, &str)], args: &[&str]) -> Server {
        let mut command = command([&["serve"], args].concat());
        command.envs(environment.iter().copied());
        Server::spawn(command)
    }

    /// Starts a server that may have a number of open files.
    #[cfg(unix)]
    pub(crate) fn start_with_files(files: u32, args: &[&str]) -> Server {
        Server::spawn(limited(&format!("ulimit -n {files}"), &[&["serve"], args].concat()))
    }

    /// Starts a server for which the modes of files count, also if root runs this test.
    #[cfg(target_os = "linux")]
    pub(crate) fn start_with_modes(args: &[&str]) -> Server {
        let server = command([&["serve"], args].concat());
        if !rustix::process::geteuid().is_root() {
            return Server::spawn(server);
        }
        let mut command = Command::new("setpriv");
        command.arg("--bounding-set=-dac_override,-dac_read_search").arg(server.get_program()).args(server.get_args());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Server::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Server {
        let mut child = command.start_for(SERVER_WATCHDOG);
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        // all URLs are written at once, but the end of the output is the end of the run
        std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        let urls = ["page\t", "raw\t"].map(|label| {
            let line = lines.recv_timeout(WATCHDOG).unwrap();
            let url = line.strip_prefix(label).filter(|url| url.starts_with("http://"));
            url.unwrap_or_else(|| panic!("expected a URL after {label:?}, found {line:?}")).to_string()
        });
        Server { child, urls: urls.to_vec(), lines: Mutex::new(lines) }
    }

    /// The next line of standard output after the first two; `None` at its end.
    pub(crate) fn line(&self) -> Option<String> {
        match self.lines.lock().unwrap().recv_timeout(WATCHDOG) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("expected a line, or the end of the output"),
        }
    }

    /// The address, for a connection.
    pub(crate) fn address(&self) -> &str {
        self.urls[0].strip_prefix("http://").unwrap().split('/').next().unwrap()
    }

    /// The path that the URLs begin with: the token.
    pub(crate) fn base(&self) -> String {
        let path = self.urls[0].strip_prefix(&format!("http://{}", self.address())).unwrap();
        path.strip_suffix('/').unwrap().to_string()
    }

    pub(crate) fn connect(&self) -> Client {
        let address: SocketAddr = self.address().parse().unwrap();
        let stream = TcpStream::connect_timeout(&address, WATCHDOG).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        stream.set_write_timeout(Some(WATCHDOG)).unwrap();
        Client { stream: BufReader::new(stream), base: self.base() }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.connect().get(path)
    }

    /// Repeats a request until the answer fits: the API serves a new generation up to 10 ms after it was published.
    pub(crate) fn get_until(&self, path: &str, fits: impl Fn(&Answer) -> bool) -> Answer {
        let mut answer = self.get(path);
        until(|| {
            answer = self.get(path);
            fits(&answer)
        });
        answer
    }

    /// The memory of the process, in KiB.
    #[cfg(target_os = "linux")]
    pub(crate) fn resident_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    /// The largest memory that the process had, in KiB.
    #[cfg(target_os = "linux")]
    pub(crate) fn peak_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    #[cfg(target_os = "linux")]
    fn memory_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: &str) {
        kill(signal, &self.child);
    }

    /// Waits for the end of the server. Returns its status and its log.
    pub(crate) fn wait(self) -> (ExitStatus, String) {
        let output = self.child.end();
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Stops the server, which must end without an error. Returns its log.
    pub(crate) fn stop(self) -> String {
        self.signal("-TERM");
        let (status, log) = self.wait();
        assert!(status.success(), "{status}: {log}");
        assert!(!log.contains("panicked"), "{log}");
        log
    }
}

/// A connection that is kept for several requests.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
    base: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let path = format!("{}{path}", self.base);
        self.write(method, &path, headers, body);
        self.read(method == "HEAD").unwrap()
    }

    /// Sends a request for a path that is not below the token.
    pub(crate) fn write(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let len = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\n{lines}{len}\r\n");
        self.stream.get_mut().write_all(&[head.as_bytes(), body].concat()).unwrap();
    }

    /// Reads an answer; `None` if the server has closed the connection.
    pub(crate) fn read(&mut self, is_head: bool) -> Option<Answer> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_string());
        }
        let mut answer = Answer { status, headers, body: Vec::new() };
        if is_head || status == 304 {
            return Some(answer);
        }
        match answer.header("content-length").map(|len| len.parse::<usize>().unwrap()) {
            Some(len) => {
                answer.body = vec![0; len];
                self.stream.read_exact(&mut answer.body).unwrap();
            }
            None if answer.header("transfer-encoding") == Some("chunked") => answer.body = self.read_chunks(),
            None => drop(self.stream.read_to_end(&mut answer.body)),
        }
        Some(answer)
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let mut chunk = vec![0; usize::from_str_radix(line.trim_end(), 16).unwrap() + 2];
            self.stream.read_exact(&mut chunk).unwrap();
            chunk.truncate(chunk.len() - 2);
            if chunk.is_empty() {
                return body;
            }
            body.extend(chunk);
        }
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{:?}: {}", self.headers, String::from_utf8_lossy(&self.body));
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// Asserts the status and the kind of an error.
    #[track_caller]
    pub(crate) fn expect_error(self, status: u16, kind: &str) -> Answer {
        let answer = self.expect(status);
        assert_eq!(answer.json()["error"]["kind"], kind);
        answer
    }
}
