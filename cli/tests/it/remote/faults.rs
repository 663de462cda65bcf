//! Whatever fails between the client and the server: no wrong value, bounded memory, an error that names URL and range.

use std::time::Duration;

use super::server::{Got, Reply, Server};
use super::{KEYS, command, large_store, large_value, sharddb, store, value_of};
use crate::common::{Place, Run, Start, foreign};
use crate::process::unless_stalled;

/// A server of a native generation, its URL, and the directory.
fn native() -> (Place, Server, String) {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("store/{generation}"));
    (place, server, url)
}

/// A plan that answers reads of shards after the open, and passes everything else on.
fn at_the_lookup(reply: Reply) -> impl Fn(&Got) -> Reply + Send + Sync + 'static {
    move |got| if is_lookup(got) { reply.clone() } else { Reply::File }
}

/// Whether a request reads a minishard: the shard indexes, which are read at open, begin at byte 0.
fn is_lookup(got: &Got) -> bool {
    got.path.ends_with(".shard") && got.header("range").is_some_and(|range| !range.starts_with("bytes=0-"))
}

/// A plan that fails the first read of each shard, and passes the retry on.
fn once(reply: Reply) -> impl Fn(&Got) -> Reply + Send + Sync + 'static {
    let failed = std::sync::atomic::AtomicBool::new(false);
    move |got| {
        if is_lookup(got) && !failed.swap(true, std::sync::atomic::Ordering::SeqCst) {
            reply.clone()
        } else {
            Reply::File
        }
    }
}

fn get(url: &str, retries: u32) -> Run {
    command(&["get", url, "147"], retries).run()
}

/// Like `get`, with the shortest patience, 1 s. A stall of this program looks like a slow server.
fn hasty(url: &str, retries: u32) -> Run {
    command(&["get", url, "147"], retries).env("SHARDDB_REMOTE_TIMEOUT", "1").run()
}

fn status(status: u16) -> Reply {
    Reply::Status(status, vec![("Retry-After", "1".to_string())], "try later".to_string())
}

#[test]
fn what_passes_is_retried_and_the_value_is_right() {
    let (_place, server, url) = native();
    let faults = [
        status(500),
        status(503),
        status(429),
        Reply::Truncated(0),
        Reply::Truncated(100),
        Reply::Reset(0),
        Reply::Reset(100),
    ];
    for fault in faults {
        server.plan(once(fault.clone()));
        let run = get(&url, 2);
        assert_eq!((run.code, run.text()), (Some(0), value_of(147).as_str()), "{fault:?}: {}", run.stderr);
        let lookups = server.take_requests().iter().filter(|got| is_lookup(got)).count();
        assert_eq!(lookups, 2, "{fault:?}");
    }
    unless_stalled(|| {
        server.plan(once(Reply::Nothing));
        let run = hasty(&url, 2);
        let lookups = server.take_requests().iter().filter(|got| is_lookup(got)).count();
        if run.stderr.contains("timed out") || lookups > 2 {
            return None; // another request was late too
        }
        assert_eq!((run.code, run.text()), (Some(0), value_of(147).as_str()), "{}", run.stderr);
        assert_eq!(lookups, 2);
        Some(())
    });
}

#[test]
fn what_does_not_pass_is_an_error_that_names_object_and_range() {
    let (_place, server, url) = native();
    let cases = [
        (status(500), "500 Internal Server Error: try later"),
        (status(503), "503 Service Unavailable: try later"),
        (status(403), "403 Forbidden"),
        (Reply::Truncated(20), ""),
        (Reply::Reset(20), ""),
        (Reply::LaterRange(8), "Requested"),
        (Reply::Status(206, vec![("Content-Range", "bytes 0-18446744073709551615/7".to_string())], String::new()), ""),
        (Reply::Status(206, vec![("Content-Range", "bytes 9-3/7".to_string())], String::new()), ""),
        (Reply::Status(206, vec![], "no range".to_string()), "Content-Range"),
    ];
    for (fault, cause) in cases {
        server.plan(at_the_lookup(fault.clone()));
        assert_fails_at_lookup(&server, &url, get(&url, 1), cause);
    }
    for fault in [Reply::Nothing, Reply::Trickle(Duration::from_millis(300))] {
        unless_stalled(|| {
            server.plan(at_the_lookup(fault.clone()));
            let run = hasty(&url, 1);
            let is_open_late = !run.stderr.contains("cannot read bytes ") && run.stderr.contains("timed out");
            (!is_open_late).then(|| assert_fails_at_lookup(&server, &url, run, "timed out"))
        });
    }
}

#[track_caller]
fn assert_fails_at_lookup(server: &Server, url: &str, run: Run, cause: &str) {
    run.expect_error(4, &["cannot read bytes ", cause, url, ".shard"]);
    let lookups = server.take_requests().iter().filter(|got| is_lookup(got)).count();
    assert!(lookups <= 3, "{cause}: {lookups} requests");
}

/// A body that takes longer than the patience, but makes progress. The tests of `patience` have it in virtual time.
#[test]
fn a_slow_server_is_waited_for() {
    let place = Place::new();
    large_store(&place, "store", 1 << 20);
    let server = Server::start(&place.path(""));
    let url = server.url("store/gen-0000000001");
    let get = |retries| command(&["get", &url, "7"], retries).env("SHARDDB_REMOTE_TIMEOUT", "1").run();
    unless_stalled(|| {
        server.plan(at_the_lookup(Reply::Slow(Duration::from_millis(150)))); // 13 pauses
        let run = get(0);
        let is_late = run.stderr.contains("timed out"); // always, if the whole body had one second
        (!is_late).then(|| assert!(run.expect(0).text() == large_value(1 << 20)))
    });
    server.plan(at_the_lookup(Reply::Nothing));
    get(0).expect_error(4, &["timed out: expected an answer within 1 s; SHARDDB_REMOTE_TIMEOUT sets this time"]);
}

#[test]
fn the_patience_is_a_second_to_a_day() {
    let (_place, _server, url) = native();
    for seconds in ["0", "86401", "18446744073709551615"] {
        let run = command(&["get", &url, "147"], 0).env("SHARDDB_REMOTE_TIMEOUT", seconds).run();
        run.expect_error(2, &["expected SHARDDB_REMOTE_TIMEOUT from 1 to 86400 seconds", seconds]);
    }
}

#[test]
fn a_server_without_ranges_is_named() {
    let (_place, server, url) = native();
    server.plan(|_| Reply::WholeFile);
    let range = ["the server ignores Range requests", "expected bytes ", "status 200", &url];
    sharddb(&["get", &url, "147"]).expect_error(3, &range);
}

/// The whole object, a part of it, and a range that ends after it.
#[test]
fn a_range_of_an_object_of_unknown_length_is_accepted() {
    let (place, server, url) = native();
    server.plan(|_| Reply::RangeWithoutLength);
    for key in [0, 147, 297] {
        assert_eq!(sharddb(&["get", &url, &key.to_string()]).expect(0).text(), value_of(key));
    }
    assert_eq!(sharddb(&["keys", &url, "--count"]).expect(0).text(), format!("{KEYS}\n"));
    foreign(&place);
    assert_eq!(sharddb(&["get", &server.url("foreign"), "5"]).expect(0).text(), "xyz");
    // nothing is concluded from the end of the range: it is no shorter object
    server.plan(|got| if is_lookup(got) { Reply::File } else { Reply::RangeWithoutLength });
    assert_eq!(sharddb(&["get", &url, "147"]).expect(0).text(), value_of(147));
    server.plan(at_the_lookup(Reply::RangeWithoutLength));
    assert_eq!(sharddb(&["get", &url, "147"]).expect(0).text(), value_of(147));
}

#[test]
fn wrong_bytes_are_found_by_their_checks() {
    let (_place, server, url) = native();
    for key in ["0", "147", "297"] {
        let value = value_of(key.parse().unwrap());
        server.plan(at_the_lookup(Reply::WrongBytes(16)));
        sharddb(&["get", &url, key]).expect_error(3, &[&url, ".shard"]);
        // one bit, in the last value of the minishard, which may be another one
        server.plan(at_the_lookup(Reply::WrongBytes(usize::MAX)));
        let run = sharddb(&["get", &url, key]);
        let is_right = run.code == Some(0) && run.text() == value;
        assert!(is_right || run.code == Some(3) && run.text().is_empty(), "{key}: {run:?}");
    }
    for file in ["info", "manifest.json"] {
        server.plan(move |got| if got.path.ends_with(file) { Reply::WrongBytes(16) } else { Reply::File });
        sharddb(&["get", &url, "147"]).expect_error(3, &[file]);
    }
}

#[test]
fn an_object_that_is_replaced_between_two_reads_is_not_mixed() {
    let place = Place::new();
    foreign(&place);
    let server = Server::start(&place.path(""));
    let url = server.url("foreign");
    // the shard index has one ETag, all later reads another: also after the one refresh
    server.plan(|got| match got.header("range") {
        Some(range) if !range.starts_with("bytes=0-") && !range.starts_with("bytes=16-") => {
            Reply::FileWithEtag("\"2\"")
        }
        _ => Reply::FileWithEtag("\"1\""),
    });
    let run = sharddb(&["get", &url, "5"]);
    run.expect_error(4, &["0.shard"]);
    let conditions: Vec<_> =
        server.take_requests().iter().filter_map(|got| got.header("if-match").map(str::to_string)).collect();
    assert!(conditions.contains(&"\"1\"".to_string()), "{conditions:?}");
    // without ETags foreign data is not protected, and read
    server.plan(|_| Reply::FileWithoutEtag);
    assert_eq!(sharddb(&["get", &url, "5"]).expect(0).text(), "xyz");
}

#[test]
fn a_shard_that_a_gc_removed_is_named() {
    let (place, server, url) = native();
    for (name, _) in place.files("store/gen-0000000001") {
        if name.ends_with(".shard") {
            std::fs::remove_file(place.path(&format!("store/gen-0000000001/{name}"))).unwrap();
        }
    }
    server.plan(|_| Reply::File);
    let run = sharddb(&["get", &url, "147"]);
    run.expect_error(4, &[".shard"]);
}

#[test]
fn endless_answers_are_not_read() {
    let (_place, server, url) = native();
    for (code, plan) in [(200, "info"), (404, "info"), (400, "info"), (500, "manifest.json"), (206, ".shard")] {
        server.plan(move |got| if got.path.ends_with(plan) { Reply::Endless(code) } else { Reply::File });
        let run = sharddb(&["get", &url, "147"]);
        assert!(matches!(run.code, Some(3 | 4)), "{code} {plan}: {}", run.stderr);
        assert!(run.stderr.contains(&url) && run.stderr.len() < 2000, "{code} {plan}: {}", run.stderr);
        assert!(server.sent() < 64 << 20, "{code} {plan}: {} bytes", server.sent());
    }
}

/// The server answers 416.
#[test]
fn an_object_that_ends_before_its_values_is_damaged() {
    let (place, _server, url) = native();
    let shard = place.path("store/gen-0000000001/0.shard");
    std::fs::File::options().write(true).open(shard).unwrap().set_len(1024).unwrap();
    sharddb(&["get", &url, "147"]).expect_error(3, &["ends before them", "0.shard"]);
}

/// No other certificates take the place of those that the user names.
#[cfg(all(unix, not(target_vendor = "apple")))]
#[test]
fn certificates_that_cannot_be_read_are_no_reason_to_trust_others() {
    let place = Place::new();
    let mut get = command(&["get", "https://127.0.0.1:1/store", "7"], 0);
    let run = get.env("SSL_CERT_FILE", place.path("none.pem")).env("SSL_CERT_DIR", place.path("none")).run();
    run.expect_error(
        2,
        &["https://127.0.0.1:1/store", "SSL_CERT_FILE and SSL_CERT_DIR name no certificate that can be read"],
    );
}
