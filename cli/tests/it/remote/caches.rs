//! `--cache-dir`: a later run makes fewer requests for the same bytes, and nothing about the directory changes a result.

use std::fs;

use super::server::{Reply, Server};
use super::{sharddb, store, value_of};
use crate::common::{Place, foreign};
#[cfg(unix)]
use crate::process::tool;

/// Runs `get` with a cache; returns the value and the number of requests that the server got.
fn get(server: &Server, url: &str, options: &[&str]) -> (String, usize) {
    server.take_requests();
    let run = sharddb(&[&["get", url, "147"], options].concat()).expect(0);
    (run.text().to_string(), server.take_requests().len())
}

#[test]
fn a_second_run_reads_blocks_from_the_disk() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("store/{generation}"));
    let cache = place.text("cache");
    let without = get(&server, &url, &[]);
    assert_eq!(get(&server, &url, &["--cache-dir", &cache]), without);
    let (value, requests) = get(&server, &url, &["--cache-dir", &cache, "--cache-size", "64MiB"]);
    assert_eq!(value, value_of(147));
    assert!(requests < without.1, "{requests} of {} requests", without.1);
    let run = sharddb(&["get", &url, "147", "--cache-dir", &cache, "-v"]).expect(0);
    assert!(run.stderr.contains("sharddb: get: 0 requests, 0 bytes, 1 cache hit"), "{}", run.stderr);

    // no minishard can be read now, and the value is there
    server.plan(|got| match got.header("range") {
        Some(range) if !range.starts_with("bytes=0-") => Reply::Status(403, vec![], String::new()),
        _ => Reply::File,
    });
    sharddb(&["get", &url, "147"]).expect(4);
    assert_eq!(get(&server, &url, &["--cache-dir", &cache]).0, value_of(147));
}

#[test]
fn a_cache_without_room_or_permission_changes_no_result() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("store/{generation}"));
    let (_, requests) = get(&server, &url, &[]);
    let full = place.text("full");
    for _ in 0..2 {
        let run = get(&server, &url, &["--cache-dir", &full, "--cache-size", "0"]);
        assert_eq!(run, (value_of(147), requests), "each block is removed at once");
    }
    let read_only = place.path("read-only");
    fs::create_dir(&read_only).unwrap();
    let mut permissions = fs::metadata(&read_only).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&read_only, permissions).unwrap();
    for _ in 0..2 {
        // root may write to it all the same
        assert_eq!(get(&server, &url, &["--cache-dir", &place.text("read-only")]).0, value_of(147));
    }
}

#[test]
fn a_directory_that_is_no_cache_is_refused_and_stays() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("store/{generation}"));
    let get = |cache: &str| sharddb(&["get", &url, "147", "--cache-dir", cache]);
    let before = place.files("store/gen-0000000001");
    get(&place.text("store/gen-0000000001"))
        .expect_error(2, &["found a directory with ", "choose a directory of its own"]);
    assert_eq!(place.files("store/gen-0000000001"), before);
    place.write("file", "text");
    get(&place.text("file")).expect_error(4, &[&place.text("file")]);
    get(&place.text("no/parent")).expect_error(4, &["cannot open the cache", &place.text("no/parent")]);
    sharddb(&["get", &url, "147", "--cache-size", "1GiB"]).expect_error(2, &["--cache-dir"]);
}

#[test]
fn foreign_data_is_kept_by_its_etag() {
    let place = Place::new();
    foreign(&place);
    let server = Server::start(&place.path(""));
    let url = server.url("foreign");
    let cache = place.text("cache");
    let args = ["get", &url, "5", "--cache-dir", &cache];
    assert_eq!(sharddb(&args).expect(0).text(), "xyz");
    let cold = server.take_requests().len();
    assert_eq!(sharddb(&args).expect(0).text(), "xyz");
    let warm = server.take_requests().len();
    assert!(warm < cold, "{warm} of {cold} requests");
}

/// Opening a FIFO would wait for a writer.
#[cfg(unix)]
#[test]
fn a_special_file_in_the_cache_is_a_miss() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("store/{generation}"));
    let cache = ["--cache-dir", &place.text("cache")];
    let expected = get(&server, &url, &cache);
    let directories = fs::read_dir(place.path("cache")).unwrap().map(|entry| entry.unwrap().path());
    for directory in directories.filter(|path| path.is_dir()) {
        for block in fs::read_dir(directory).unwrap() {
            let block = block.unwrap().path();
            fs::remove_file(&block).unwrap();
            tool("mkfifo", [block]);
        }
    }
    assert_eq!(get(&server, &url, &cache), expected);
}
