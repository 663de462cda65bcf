//! The memory of `sharddb serve` stays below what docs/serve.md states, whatever clients and files demand, and small values
//! are answered meanwhile. Each line is the peak of the process so far (`VmHWM`), which only grows. Linux.
//!
//! ```text
//! cargo build --release --package sharddb-cli
//! cd benches && SHARDDB=../target/release/sharddb cargo bench --bench serve_memory
//! ```
//!
//! `SHARDDB` is the path of the command to measure, relative to `benches/`, because this package does not build it. The
//! clients read the heads of their answers, and nothing more until the load is over.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench fails by a panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use sharddb::BuildOptions;
use sharddb::spec::Encoding;

/// What docs/serve.md states: the memory for large values, and that of the process with what its allocator keeps.
const STATED_MIB: u64 = 512 + 256;

/// Of each connection, also as docs/serve.md states.
const CONNECTION_MIB: u64 = 1;

/// 200 MiB that are stored in 200 KB.
const BOMB: u64 = 7;
const SMALL: u64 = 1;
const SMALL_VALUE: &[u8] = b"small";

fn main() {
    let Some(command) = std::env::var_os("SHARDDB") else {
        eprintln!(
            "serve_memory: SHARDDB must be the path of the command sharddb, relative to benches/; \
             run `cargo build --release --package sharddb-cli`, then set SHARDDB=../target/release/sharddb"
        );
        std::process::exit(2);
    };
    let directory = tempfile::tempdir().unwrap();
    write_store(&directory.path().join("values"));
    write_sparse_manifest(&directory.path().join("sparse"));
    write_nested_info(&directory.path().join("large"), 600_000);
    write_nested_info(&directory.path().join("medium"), 300_000);
    let server =
        Server::start(Command::new(command).arg("serve").arg(directory.path()).args(["--quiet", "--timeout", "600"]));
    let stop = AtomicBool::new(false);
    let others = thread::scope(|scope| {
        let others = scope.spawn(|| server.answers_others_until(&stop));
        server.load("60 get-many with bodies of 8 MiB", 60, || server.post(&ones()));
        server.load("30 values of 200 MiB in 200 KB", 30, || server.get(&format!("api/values/get/{BOMB}")));
        server.load("14 get-many of 1,000 such values", 14, || {
            server.post(&[b"[7", &b",7".repeat(999)[..], b"]"].concat())
        });
        server.load("8 files beside a manifest of 1 GiB", 8, || server.get("raw/sparse/info"));
        server.load("30 lists beside an info of 16 MiB", 30, || server.get("api/"));
        server.load("30 objects of an info of 8 MiB", 30, || server.get("objects/medium/info"));
        stop.store(true, Relaxed);
        others.join().unwrap()
    });
    println!("other requests answered meanwhile: {others}");
}

/// A body of 8 MiB with as many keys as it can have.
fn ones() -> Vec<u8> {
    [b"[1", &b",1".repeat((4 << 20) - 2)[..], b"]"].concat()
}

fn write_store(path: &Path) {
    let mut loader = BuildOptions::new().data_encoding(Encoding::Gzip).create(path).unwrap();
    loader.insert(SMALL, SMALL_VALUE).unwrap();
    loader.insert(BOMB, vec![0; 200 << 20]).unwrap();
    loader.finish().unwrap();
}

fn write_sparse_manifest(store: &Path) {
    let generation = store.join("gen-0000000001");
    std::fs::create_dir_all(&generation).unwrap();
    std::fs::write(generation.join("info"), "{}").unwrap();
    std::fs::File::create(generation.join("manifest.json")).unwrap().set_len(1 << 30).unwrap();
    std::os::unix::fs::symlink("gen-0000000001", store.join("current")).unwrap();
}

/// An `info` that describes shards in a number of directories.
fn write_nested_info(directory: &Path, objects: usize) {
    let objects: Vec<String> = (0..objects).map(|at| format!(r#"{{"key":"{at}","sharding":{{}}}}"#)).collect();
    std::fs::create_dir(directory).unwrap();
    std::fs::write(directory.join("info"), format!(r#"{{"scales":[{}]}}"#, objects.join(","))).unwrap();
}

/// A server in a process of its own.
struct Server {
    child: Child,
    address: String,
    base: String,
    connections: AtomicU64,
}

impl Server {
    fn start(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.next().unwrap().unwrap();
        thread::spawn(move || lines.for_each(drop));
        let (address, base) = url.strip_prefix("page\thttp://").unwrap().split_once('/').unwrap();
        Server { child, address: address.to_string(), base: base.to_string(), connections: AtomicU64::new(1) }
    }

    /// Runs requests at a time. Their connections stay open until all are answered. Asserts that the peak is as stated.
    fn load(&self, what: &str, requests: u64, request: impl Fn() -> Answer + Sync) {
        self.connections.fetch_max(1 + requests, Relaxed);
        let answers = thread::scope(|scope| {
            let running: Vec<_> = (0..requests).map(|_| scope.spawn(&request)).collect();
            running.into_iter().map(|answer| answer.join().unwrap()).collect::<Vec<_>>()
        });
        let ok = answers.iter().filter(|answer| answer.status == 200).count();
        assert!(ok > 0 && answers.iter().all(|answer| matches!(answer.status, 200 | 503)), "{what}");
        let (peak, stated) = (self.peak_mib(), STATED_MIB + CONNECTION_MIB * self.connections.load(Relaxed));
        println!("{what:36} {ok:>3} of {requests} are 200, peak {peak:>5} MiB of {stated}");
        assert!(peak <= stated, "{what}: {peak} MiB are more than {stated}");
    }

    /// The largest memory that the process had.
    fn peak_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    }

    /// Requests a small value again and again. Returns the number of answers.
    fn answers_others_until(&self, stop: &AtomicBool) -> u64 {
        let mut answers = 0;
        while !stop.load(Relaxed) {
            let mut answer = self.get(&format!("api/values/get/{SMALL}"));
            let mut value = [0; SMALL_VALUE.len()];
            answer.rest.read_exact(&mut value).unwrap();
            assert_eq!((answer.status, &value[..]), (200, SMALL_VALUE));
            answers += 1;
        }
        answers
    }

    fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET /{}{path} HTTP/1.1\r\nhost: x\r\n\r\n", self.base), b"")
    }

    fn post(&self, keys: &[u8]) -> Answer {
        let path = format!("/{}api/values/get-many", self.base);
        self.send(&format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", keys.len()), keys)
    }

    /// Sends a request and reads the head of its answer.
    fn send(&self, head: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut rest = BufReader::with_capacity(1024, stream);
        let mut line = String::new();
        rest.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        while line != "\r\n" {
            line.clear();
            rest.read_line(&mut line).unwrap();
        }
        Answer { status, rest }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// An answer whose head is read.
struct Answer {
    status: u16,
    rest: BufReader<TcpStream>,
}
