//! Compares `get` of `sharddb serve` over 64 kept connections with an axum handler that returns a constant, in the same run:
//! alone, while two generations are swapped (every second, and every 10 ms), and beside 1,000 clients that read nothing.
//! Also prints the memory that these take. The goal is half the rate of the constant, also during swaps.
//!
//! ```text
//! cargo build --release --package sharddb-cli
//! cd benches && SHARDDB=../target/release/sharddb cargo bench --bench serve
//! ```
//!
//! `SHARDDB` is the path of the command to measure, relative to `benches/`, because this package does not build it.
//! Every answer is compared with the value of the generation that its tag names. Both servers are processes of their own,
//! and share the processors with the clients.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench fails by a panic")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service;

const CONNECTIONS: u64 = 64;
const SLOW_CLIENTS: usize = 1_000;
const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 100;
const TIME: Duration = Duration::from_secs(5);

fn main() {
    if std::env::args().any(|argument| argument == "--constant") {
        runtime().block_on(serve_a_constant());
        return;
    }
    let Some(command) = std::env::var_os("SHARDDB") else {
        eprintln!(
            "serve: SHARDDB must be the path of the command sharddb, relative to benches/; \
             run `cargo build --release --package sharddb-cli`, then set SHARDDB=../target/release/sharddb"
        );
        std::process::exit(2);
    };
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("numbers");
    for generation in 1..=2 {
        let mut loader = sharddb::BulkLoader::create(&store).unwrap();
        (0..KEYS).for_each(|key| loader.insert(key, value(generation, key)).unwrap());
        loader.finish().unwrap();
    }
    let constant = Server::start(Command::new(std::env::current_exe().unwrap()).arg("--constant"));
    let sharddb = ["serve", store.to_str().unwrap(), "--quiet", "--timeout", "600"];
    let sharddb = Server::start(Command::new(command).args(sharddb));
    let runtime = runtime();
    println!("{:34} {:>12} {:>10} {:>10} {:>10}", "", "requests/s", "p50 us", "p99 us", "max us");
    let baseline = runtime.block_on(measure(&constant, |_, _| value(1, 1)));
    baseline.print("axum, a constant");
    let get = runtime.block_on(measure(&sharddb, stated));
    get.print("get");
    let swapped = |pause: Duration| while_swapping(&store, pause, || runtime.block_on(measure(&sharddb, stated)));
    let (each_second, often) = (swapped(Duration::from_secs(1)), swapped(Duration::from_millis(10)));
    each_second.print("get, a swap every second");
    often.print("get, a swap every 10 ms");
    let before = sharddb.resident_kib();
    let slow = runtime.block_on(slow_clients(&sharddb));
    let beside = runtime.block_on(measure(&sharddb, stated));
    beside.print("get, beside 1,000 slow clients");
    let after = sharddb.resident_kib();
    println!("resident: {before} KiB, with slow clients {after} KiB");
    drop(slow);
    for (what, rate) in [("alone", get), ("a swap every second", each_second), ("a swap every 10 ms", often)] {
        println!("get, {what}: {:.2} of the constant", rate.rate / baseline.rate);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

fn value(generation: u64, key: u64) -> Vec<u8> {
    format!("generation {generation}, key {key} ").into_bytes().into_iter().cycle().take(VALUE_BYTES).collect()
}

/// The value of a key in the generation that the tag of an answer names.
fn stated(head: &str, key: u64) -> Vec<u8> {
    value(if head.contains("\"gen-0000000001") { 1 } else { 2 }, key)
}

/// The handler to compare with: the same number of bytes, without a lookup.
async fn serve_a_constant() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("http://{}/", listener.local_addr().unwrap());
    let bytes = axum::body::Bytes::from(value(1, 1));
    let router: Router = Router::new().fallback(move || std::future::ready(bytes.clone()));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let router = router.clone();
        let service = service_fn(move |request| router.clone().call(request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// A server in a process of its own.
struct Server {
    child: Child,
    address: String,
    base: String,
}

impl Server {
    fn start(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.next().unwrap().unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        let (_, page) = url.split_once("http://").unwrap();
        let (address, base) = page.split_once('/').unwrap();
        Server { child, address: address.to_string(), base: base.to_string() }
    }

    fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

struct Rate {
    rate: f64,
    p50: u64,
    p99: u64,
    max: u64,
}

impl Rate {
    fn print(&self, what: &str) {
        println!("{what:34} {:>12.0} {:>10} {:>10} {:>10}", self.rate, self.p50, self.p99, self.max);
    }
}

/// Requests keys on all connections for a time.
async fn measure(server: &Server, expected: fn(&str, u64) -> Vec<u8>) -> Rate {
    let begun = Instant::now();
    let clients = (0..CONNECTIONS).map(|seed| {
        let (address, base) = (server.address.clone(), server.base.clone());
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut latencies, mut key) = (Vec::new(), seed);
            while begun.elapsed() < TIME {
                key = (key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)) % KEYS;
                let sent = Instant::now();
                let request = format!("GET /{base}api/numbers/get/{key} HTTP/1.1\r\nhost: x\r\n\r\n");
                stream.write_all(request.as_bytes()).await.unwrap();
                let (head, body) = read(&mut stream).await;
                assert!(head.starts_with("HTTP/1.1 200"), "{head}");
                assert!(body == expected(&head, key), "a mixed answer: {head}");
                latencies.push(u64::try_from(sent.elapsed().as_micros()).unwrap());
            }
            latencies
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await.unwrap());
    }
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    Rate { rate: latencies.len() as f64 / begun.elapsed().as_secs_f64(), p50: at(50), p99: at(99), max: at(100) }
}

/// Reads one answer, whose length the head states.
async fn read(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "the server closed the connection");
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let len =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse::<usize>().unwrap();
        while bytes.len() < end + 4 + len {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "the server closed the connection");
        }
        return (head, bytes.split_off(end + 4));
    }
}

/// Swaps the two generations again and again while `measure` runs.
fn while_swapping(store: &std::path::Path, pause: Duration, measure: impl FnOnce() -> Rate) -> Rate {
    let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let swapper = {
        let (stop, swaps) = (Arc::clone(&stop), Arc::clone(&swaps));
        let writer = sharddb::Store::open(store).unwrap().writer().unwrap();
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                let to = sharddb::GenerationId::new(1 + swaps.fetch_add(1, Relaxed) % 2).unwrap();
                writer.rollback(Some(to)).unwrap();
                std::thread::sleep(pause);
            }
        })
    };
    let rate = measure();
    stop.store(true, Relaxed);
    swapper.join().unwrap();
    rate
}

/// Clients that have requested the largest file and read nothing. Returns when the buffers of their connections are full.
async fn slow_clients(server: &Server) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..SLOW_CLIENTS {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        let request = format!("GET /{}raw/numbers/0.shard HTTP/1.1\r\nhost: x\r\n\r\n", server.base);
        stream.write_all(request.as_bytes()).await.unwrap();
        clients.push(stream);
    }
    for client in &clients {
        client.readable().await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    clients
}
