//! A log that cannot be written, or that nobody reads, stops no request.

use std::fs::OpenOptions;

use super::{Place, Server, build, value};
use crate::limits::limited;
use crate::process::tool;

/// The lines that the server has lost.
fn lost_lines(server: &Server) -> u64 {
    let stats: serde_json::Value = serde_json::from_slice(&server.get("/api/numbers/stats").expect(200).body).unwrap();
    stats["lost_log_lines"].as_u64().unwrap()
}

fn start(place: &Place, redirection: &str) -> Server {
    build(place, "one");
    Server::spawn(limited(redirection, &["serve", &place.text("served"), "--timeout", "900"]))
}

fn assert_answers(server: &Server) {
    for path in ["/", "/raw/numbers/info", "/api/", "/api/numbers/info", "/objects/numbers/info"] {
        server.get(path).expect(200);
    }
    assert_eq!(server.get("/api/numbers/get/7").expect(200).body, value("one", 7));
    assert_eq!(server.get("/api/numbers/get/700").status, 404);
}

#[test]
fn a_full_disk_below_the_log_stops_no_request() {
    let place = Place::new();
    let server = start(&place, "exec 2>/dev/full");
    assert_answers(&server);
    crate::common::until(|| lost_lines(&server) >= 7);
    server.stop();
}

#[test]
fn a_log_whose_reader_has_gone_stops_no_request() {
    let place = Place::new();
    let log = place.text("log");
    tool("mkfifo", [&log]);
    let reader = OpenOptions::new().read(true).write(true).open(&log).unwrap();
    let server = start(&place, &format!("exec 2>'{log}'"));
    drop(reader);
    assert_answers(&server);
    crate::common::until(|| lost_lines(&server) >= 7);
    server.stop();
}

/// The answers and the end do not wait for the reader. More lines are logged than fit: 64 KiB into the pipe, 1 MiB each
/// into what is being written and into what waits.
#[test]
fn a_log_that_nobody_reads_stops_no_request() {
    let place = Place::new();
    let log = place.text("log");
    tool("mkfifo", [&log]);
    let _reader = OpenOptions::new().read(true).write(true).open(&log).unwrap();
    let server = start(&place, &format!("exec 2>'{log}'"));
    let mut client = server.connect();
    let absent = format!("/raw/{}", "x".repeat(8 << 10));
    for _ in 0..400 {
        assert_eq!(client.get(&absent).status, 404);
    }
    assert!(lost_lines(&server) > 0);
    assert_answers(&server);
    server.stop();
}
