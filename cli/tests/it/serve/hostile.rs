//! Requests that try to leave the served directory, or to end the server.

use std::fs;
use std::io::{ErrorKind, Read, Write};

use super::{Place, Server, build};
use crate::process::WATCHDOG;

const SECRET: &str = "this text is outside of the served directory";

/// A served directory with a store, beside a secret.
fn place() -> Place {
    let place = Place::new();
    build(&place, "one");
    fs::write(place.path("secret"), SECRET).unwrap();
    fs::write(place.path("served/plain"), "plain").unwrap();
    place
}

#[test]
fn only_the_token_opens_anything() {
    let place = place();
    let server = Server::start(&[&place.text("served")]);
    let token = server.base();
    assert_eq!(token.len(), 33);
    let mut client = server.connect();
    let mut bodies = Vec::new();
    let wrong = format!("/{}x", &token[1..32]);
    let mut paths = ["/", "/raw/plain", "/api/", "/page/index.html", "//raw/plain"].map(str::to_string).to_vec();
    paths.extend([
        wrong.clone(),
        format!("{wrong}/raw/plain"),
        format!("/{token}/raw/plain"),
        format!("/a{token}/raw/plain"),
    ]);
    for path in paths {
        client.write("GET", &path, &[], b"");
        let answer = client.read(false).unwrap().expect(404);
        assert_eq!(answer.header("location"), None);
        bodies.push(answer.body);
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]), "all look the same");
    client.get("/raw/plain").expect(200);
    let log = server.stop();
    assert!(log.contains("path=\"/raw/plain\" status=200"), "{log}");
    assert!(!log.contains(&token[1..]), "the log has no token");
}

#[test]
fn large_heads_are_refused() {
    let place = place();
    let server = Server::start(&[&place.text("served"), "-q"]);
    let (long, many) = (vec![("x", "a".repeat(200_000))], vec![("x", "a".to_string()); 120]);
    for headers in [long, many] {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(server.connect().send("GET", "/raw/plain", &headers, b"").status, 431);
    }
    server.get("/raw/plain").expect(200);
    server.stop();
}

#[test]
#[cfg(unix)]
fn no_path_and_no_link_leads_out() {
    use std::os::unix::fs::symlink;

    let place = place();
    symlink("../secret", place.path("served/link")).unwrap();
    symlink(place.path("secret"), place.path("served/absolute")).unwrap();
    symlink("..", place.path("served/up")).unwrap();
    // a data set whose shard is a link
    place.write("outside/0.shard", crate::common::foreign_shard());
    place.write("served/linked/info", format!("{{\"@type\": \"x\", \"sharding\": {}}}", crate::common::SHARDING));
    symlink("../../outside/0.shard", place.path("served/linked/0.shard")).unwrap();
    // volumes whose shards are elsewhere: by a link, and by a key
    let volume = |key: &str| {
        let scale = format!("{{\"key\": \"{key}\", \"sharding\": {}}}", crate::common::SHARDING);
        format!("{{\"scales\": [{scale}]}}")
    };
    place.write("served/volume/info", volume("s0"));
    symlink("../../outside", place.path("served/volume/s0")).unwrap();
    place.write("served/upwards/info", volume("../../outside"));
    let server = Server::start(&[&place.text("served"), "-q"]);
    let mut client = server.connect();
    client.get("/api/volume/s0/get/0").expect_error(404, "not-found");
    client.get("/api/volume/s0/keys").expect_error(404, "not-found");
    client.get("/objects/volume/s0/0.shard").expect_error(404, "not-found");
    let listed = client.get("/api/").expect(200);
    assert!(!String::from_utf8_lossy(&listed.body).contains(".."), "{}", listed.json());
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/plain/../../secret",
        "/numbers/../../secret",
        "/link",
        "/absolute",
        "/up/secret",
        "/%00",
        "/plain%00",
        "//plain",
        "/./plain",
        "/..%5csecret",
        "/numbers/current/../../plain",
        "/linked/0.shard",
        "/numbers/gen-0000000001/../../plain",
    ] {
        for area in ["/raw", "/objects"] {
            let answer = client.get(&format!("{area}{path}")).expect_error(404, "not-found");
            assert!(!String::from_utf8_lossy(&answer.body).contains(SECRET));
        }
    }
    client.get("/api/linked/get/0").expect_error(404, "not-found");
    client.get("/api/up/info").expect_error(404, "not-found");
    client.get("/api/..%2fserved%2fnumbers/info").expect_error(404, "not-found");
    client.get("/raw/plain").expect(200);
    server.stop();
}

/// A generator of pseudo-random numbers (splitmix64), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn of<'a>(&mut self, parts: &[&'a str]) -> &'a str {
        parts[self.below(parts.len())]
    }
}

/// A request that is malformed in most cases: parts in a random order, then some bytes changed.
fn malformed(random: &mut Random, base: &str) -> Vec<u8> {
    let method = random.of(&["GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "PUT", "get", "", "G\0T", "DELETE"]);
    let names = [
        "raw",
        "objects",
        "api",
        "page",
        "numbers",
        "plain",
        "..",
        "%2e%2e",
        ".",
        "",
        "secret",
        "get",
        "locate",
        "keys",
        "info",
        "stats",
        "get-many",
        "7",
        "99999999999999999999",
        "-1",
        "0x",
        "gen-0000000001",
        "current",
        "%00",
        "%ff",
        "%2f",
        "\\",
        "0-32_0-32_0-32",
        "7.index",
        "etc",
        "passwd",
        "index.html",
        "%",
        "%zz",
        "é",
        "0.shard",
        "manifest.json",
        "C:",
        "CON",
        "lock",
        "c",
        "0",
    ];
    let mut path = if random.below(8) == 0 { String::new() } else { base.to_string() };
    for _ in 0..random.below(7) {
        path.push('/');
        path.push_str(random.of(&names));
    }
    let query = random.of(&[
        "",
        "",
        "?",
        "?limit=3",
        "?range=1..",
        "?range=a",
        "?cursor=s1-0-0",
        "?generation=1",
        "?%zz",
        "?generation=99999999999",
    ]);
    let version = random.of(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "", "HTTP/2"]);
    let mut request = format!("{method} {path}{query} {version}\r\nhost: x\r\n");
    let headers = [
        "range: bytes=0-",
        "range: bytes=5-2",
        "range: bytes=-0",
        "range: bytes=99999999999999999999-",
        "range: bytes=0-0,2-3",
        "if-match: \"",
        "if-none-match: *",
        "if-range: W/\"x\"",
        "content-length: 5",
        "content-length: -1",
        "content-length: 99999999999999",
        "transfer-encoding: chunked",
        "transfer-encoding: x",
        "connection: close",
        "expect: 100-continue",
        "a",
        ": b",
        "upgrade: h2c",
        "origin: null",
    ];
    for _ in 0..random.below(4) {
        request.push_str(random.of(&headers));
        request.push_str("\r\n");
    }
    request.push_str(random.of(&[
        "\r\n",
        "\r\n",
        "\r\n",
        "\n",
        "",
        "\r\n[1,2",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        "\r\n\0\0",
    ]));
    let mut bytes = request.into_bytes();
    for _ in 0..random.below(4).saturating_sub(1) {
        let at = random.below(bytes.len());
        match random.below(3) {
            0 => bytes[at] = random.next().to_le_bytes()[0],
            1 => drop(bytes.remove(at)),
            _ => bytes.insert(at, random.next().to_le_bytes()[0]),
        }
    }
    bytes
}

/// No panic, and no byte of a file outside of the served directory. Every other answer is allowed.
#[test]
fn malformed_requests_are_survived() {
    let place = place();
    let server = Server::start(&[&place.text("served"), "-q", "--timeout", "5"]);
    let (address, base) = (server.address().to_string(), server.base());
    std::thread::scope(|scope| {
        for worker in 0..10 {
            let (address, base) = (&address, &base);
            scope.spawn(move || {
                let mut random = Random(worker);
                for _ in 0..1000 {
                    let request = malformed(&mut random, base);
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
                    // the server may have closed the connection already
                    let _ = stream.write_all(&request);
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    let mut answer = Vec::new();
                    let read = stream.read_to_end(&mut answer);
                    let timed_out =
                        read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
                    assert!(!timed_out, "{:?}", String::from_utf8_lossy(&request));
                    let answer = String::from_utf8_lossy(&answer);
                    assert!(!answer.contains(SECRET), "{:?}", String::from_utf8_lossy(&request));
                    assert!(!answer.contains("root:"), "{:?}", String::from_utf8_lossy(&request));
                    assert!(!answer.contains("500 Internal"), "{:?}: {answer}", String::from_utf8_lossy(&request));
                }
            });
        }
    });
    server.get("/raw/plain").expect(200);
    server.stop(); // asserts that nothing panicked
}
