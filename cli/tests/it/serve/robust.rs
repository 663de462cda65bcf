//! Swaps under running requests, slow clients, bounds, and the end.

use std::fs;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::client::Client;
use super::{Place, Server, build, value};
use crate::common::{sharddb, until};
use crate::process::{tool, unless_stalled};

/// A flag that is cleared at the end of a scope, also by a panic: the threads that read it end.
struct Cleared<'a>(&'a AtomicBool);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Two prebuilt generations are swapped while clients read. Every answer is of one generation, which its tag names. Each
/// swap is seen before the next one.
#[test]
fn a_swap_never_mixes_generations() {
    let place = Place::new();
    build(&place, "one");
    build(&place, "two");
    let store = place.text("served/numbers");
    let server = Server::start(&[&place.text("served"), "-q"]);
    let files = ["gen-0000000001", "gen-0000000002"].map(|name| {
        let read = |file: &str| fs::read(place.path(&format!("served/numbers/{name}/{file}"))).unwrap();
        (name, read("0.shard"), read("manifest.json"))
    });
    let (swapping, seen) = (AtomicBool::new(true), [AtomicU64::new(0), AtomicU64::new(0)]);
    std::thread::scope(|scope| {
        let swapping = Cleared(&swapping);
        for worker in 0..4u64 {
            let (server, swapping, seen, files) = (&server, swapping.0, &seen, &files);
            scope.spawn(move || {
                let mut client = server.connect();
                let mut key = worker;
                while swapping.load(Ordering::Relaxed) {
                    key = (key + 7) % 200;
                    let path = match key % 3 {
                        0 => "/raw/numbers/0.shard".to_string(),
                        1 => "/raw/numbers/manifest.json".to_string(),
                        _ => format!("/api/numbers/get/{key}"),
                    };
                    let answer = client.get(&path).expect(200);
                    let tag = answer.header("etag").unwrap();
                    let of = files.iter().position(|(name, ..)| tag.contains(name)).unwrap();
                    let expected = match key % 3 {
                        0 => files[of].1.clone(),
                        1 => files[of].2.clone(),
                        _ => value(["one", "two"][of], key),
                    };
                    assert!(answer.body == expected, "{path} {tag}");
                    seen[of].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for swap in 0..20 {
            let seen = &seen[swap % 2];
            let before = seen.load(Ordering::Relaxed);
            sharddb(["rollback", &store, ["1", "2"][swap % 2]]).expect(0);
            until(|| seen.load(Ordering::Relaxed) > before);
        }
    });
    server.stop();
}

/// A file of 64 MiB, which no socket buffers.
fn large(place: &Place) -> u64 {
    fs::create_dir_all(place.path("served")).unwrap();
    fs::File::create(place.path("served/large")).unwrap().set_len(64 << 20).unwrap();
    64 << 20
}

#[test]
fn slow_clients_do_not_block_others() {
    let place = Place::new();
    build(&place, "one");
    large(&place);
    let server = Server::start(&[&place.text("served"), "-q", "--timeout", "600"]);
    let request = format!("GET {}/raw/large HTTP/1.1\r\nhost: x\r\n\r\n", server.base());
    let slow: Vec<_> = (0..300)
        .map(|at| {
            let mut client = server.connect();
            // half of them send an incomplete head, the others read nothing of the answer but its first line
            let text = if at % 2 == 0 { &request.as_bytes()[..20] } else { request.as_bytes() };
            client.stream.get_mut().write_all(text).unwrap();
            if at % 2 == 1 {
                let mut line = String::new();
                client.stream.read_line(&mut line).unwrap();
                assert!(line.contains("200"), "{line}");
            }
            client
        })
        .collect();
    let mut client = server.connect();
    for key in 0..200 {
        assert_eq!(client.get(&format!("/api/numbers/get/{key}")).expect(200).body, value("one", key));
    }
    #[cfg(target_os = "linux")]
    {
        let kib = server.resident_kib();
        assert!(kib < 400 << 10, "{kib} KiB for {} slow clients", slow.len());
    }
    drop(slow);
    server.stop();
}

/// The server takes one connection at a time, so that an answer to another one says that it has closed the first.
#[test]
fn a_connection_without_progress_is_closed() {
    let place = Place::new();
    build(&place, "one");
    large(&place);
    let server = Server::start(&[&place.text("served"), "-q", "--timeout", "1", "--max-connections", "1"]);
    let begin = |path: &str| {
        let mut client = server.connect();
        client.write("GET", &format!("{}{path}", server.base()), &[], b"");
        client
    };
    // a connection that waits 1 s for its request, because this test stalls, is closed too, and has no answer
    let another_is_answered = || until(|| begin("/raw/numbers/info").read(false).is_some_and(|it| it.status == 200));
    // a head that never ends
    let mut silent = server.connect();
    silent.stream.get_mut().write_all(b"GET / HTTP/1.1\r\n").unwrap();
    another_is_answered();
    assert!(!timed_out(silent.stream.read_to_end(&mut Vec::new())), "the connection is closed");
    // an answer that nobody reads
    let mut lazy = unless_stalled(|| {
        let mut client = begin("/raw/large");
        client.stream.fill_buf().is_ok_and(|begun| !begun.is_empty()).then_some(client)
    });
    another_is_answered();
    let mut read = Vec::new();
    assert!(!timed_out(lazy.stream.read_to_end(&mut read)), "the connection is closed");
    assert!(read.len() < 64 << 20, "the rest is not sent");
    server.stop();
}

/// Whether nothing arrived in time, although the connection is open.
fn timed_out<T>(read: std::io::Result<T>) -> bool {
    read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Whether an answer is there, or the end of the connection.
fn is_answered(client: &mut Client) -> bool {
    client.stream.get_ref().set_nonblocking(true).unwrap();
    let is_answered = !timed_out(client.stream.fill_buf());
    client.stream.get_ref().set_nonblocking(false).unwrap();
    is_answered
}

/// Of bodies of 8,000,000 bytes, 67 fit into 512 MiB.
#[test]
fn bodies_beyond_the_memory_are_refused() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q"]);
    let statuses = unless_stalled(|| {
        let statuses = statuses_of_bodies(&server);
        let body = [b"[7]".to_vec(), vec![b' '; 8_000_000 - 3]].concat();
        // the memory is free again
        until(|| server.connect().send("POST", "/api/numbers/get-many", &[], &body).status == 200);
        (!statuses.contains(&408)).then_some(statuses) // a body must be complete within 30 s
    });
    assert_eq!(statuses, [503; 13]);
    server.stop();
}

/// Sends 80 bodies without their ends. Returns the statuses of those that are answered: at least 13, or one that is late.
fn statuses_of_bodies(server: &Server) -> Vec<u16> {
    let path = format!("{}/api/numbers/get-many", server.base());
    let announce = || {
        let mut client = server.connect();
        client.write("POST", &path, &[("content-length", "8000000")], b"");
        client
    };
    let idle: Vec<_> = (0..80).map(|_| announce()).collect(); // has sent nothing, and has no memory
    let but_the_end = vec![b' '; 8_000_000 - 1];
    let mut waiting: Vec<_> = (0..80)
        .map(|_| {
            let mut client = announce();
            client.stream.get_mut().write_all(&but_the_end).unwrap();
            client
        })
        .collect();
    let mut statuses = Vec::new();
    let mut take = || {
        waiting.retain_mut(|client| {
            let is_answered = is_answered(client);
            if is_answered {
                statuses.push(client.read(false).unwrap().status);
            }
            !is_answered
        });
        statuses.len() >= 13 || statuses.contains(&408)
    };
    until(&mut take);
    assert_eq!(server.get("/api/numbers/get/7").expect(200).body, value("one", 7), "small values need no memory");
    take(); // none is refused without need
    drop(idle);
    statuses
}

#[test]
fn connections_beyond_the_limit_wait() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q", "--max-connections", "2"]);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.get("/raw/numbers/info").expect(200);
    second.get("/raw/numbers/info").expect(200);
    let mut third = server.connect();
    let path = format!("{}/raw/numbers/info", server.base());
    third.write("GET", &path, &[], b"");
    // without the limit, the third would be answered while the others are
    for _ in 0..200 {
        first.get("/raw/numbers/info").expect(200);
        second.get("/raw/numbers/info").expect(200);
        assert!(!is_answered(&mut third));
    }
    drop(first);
    third.read(false).unwrap().expect(200);
    drop((second, third));
    server.stop();
}

#[test]
fn a_signal_lets_running_answers_end() {
    let place = Place::new();
    let len = large(&place);
    for signal in ["-TERM", "-INT"] {
        let server = Server::start(&[&place.text("served"), "-q", "--grace", "600"]);
        let mut idle = server.connect();
        idle.get("/api/").expect(200);
        let mut client = server.connect();
        let path = format!("{}/raw/large", server.base());
        client.write("GET", &path, &[], b"");
        client.stream.fill_buf().unwrap(); // the answer has begun
        server.signal(signal);
        // further connections are refused once the listener is closed, unless another process has got the port
        until(|| std::net::TcpStream::connect(server.address()).is_err());
        let answer = client.read(false).unwrap().expect(200);
        assert_eq!(answer.body.len() as u64, len);
        assert!(idle.read(false).is_none(), "an idle connection is closed");
        let (status, log) = server.wait();
        assert!(status.success(), "{status}: {log}");
    }
}

#[test]
fn the_end_does_not_wait_for_ever() {
    let place = Place::new();
    large(&place);
    unless_stalled(|| {
        let server = Server::start(&[&place.text("served"), "-q", "--grace", "0"]);
        let mut client = server.connect();
        let path = format!("{}/raw/large", server.base());
        client.write("GET", &path, &[], b"");
        client.stream.fill_buf().unwrap();
        server.signal("-TERM");
        let (status, log) = server.wait();
        let mut rest = Vec::new();
        assert!(!timed_out(client.stream.read_to_end(&mut rest)), "the connection is closed");
        assert!(rest.len() < 64 << 20, "the answer was cut off");
        assert!(status.success() || status.code() == Some(143), "{status}: {log}");
        status.success().then_some(()) // after 2 s the process ends by the code of the signal
    });
}

/// Without a request after the swap.
#[test]
fn an_old_generation_is_left_to_gc() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q"]);
    server.get("/api/numbers/get/7").expect(200);
    build(&place, "two");
    let old = place.path("served/numbers/gen-0000000001");
    // the server drops its lease within 5 s
    until(|| {
        std::thread::sleep(Duration::from_millis(100)); // only spares the processor
        let _ = sharddb(["gc", &place.text("served/numbers"), "--keep", "1"]);
        !old.exists()
    });
    assert_eq!(server.get("/api/numbers/get/7").expect(200).body, value("two", 7));
    server.stop();
}

#[test]
fn foreign_files_that_are_replaced_are_opened_again() {
    let place = Place::new();
    let path = crate::common::foreign(&place);
    let server = Server::start(&[&path, "-q"]);
    let before = server.get("/api/foreign/get/0").expect(200);
    assert_eq!(before.body, b"abc");
    let mut shard = crate::common::foreign_shard();
    shard[32..35].copy_from_slice(b"ABC");
    place.write("foreign/new", shard);
    fs::rename(place.path("foreign/new"), place.path("foreign/0.shard")).unwrap();
    let after = server.get("/api/foreign/get/0").expect(200);
    assert_eq!(after.body, b"ABC");
    assert_ne!(before.header("etag"), after.header("etag"));
    server.stop();
}

/// An array of 8 bytes in chunks of 4.
fn array(place: &Place, name: &str, codecs: &str) {
    let text = format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [4]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "codecs": {codecs}}}"#
    );
    place.write(&format!("served/{name}/zarr.json"), text);
}

/// Replaces a file as writers should: by a rename.
fn replace(place: &Place, name: &str, bytes: &[u8]) {
    place.write("new", bytes);
    fs::create_dir_all(place.path(name).parent().unwrap()).unwrap();
    fs::rename(place.path("new"), place.path(name)).unwrap();
}

#[test]
fn chunks_that_appear_or_are_replaced_are_served() {
    let place = Place::new();
    array(&place, "plain", r#"[{"name": "bytes"}]"#);
    let server = Server::start(&[&place.text("served"), "-q"]);
    let mut client = server.connect();
    for path in ["/objects/plain/c/1", "/api/plain/get/1"] {
        let _ = fs::remove_file(place.path("served/plain/c/1"));
        client.get(path).expect_error(404, "not-found");
        let mut tags = Vec::new();
        for bytes in [b"abcd", b"efgh", b"ijkl"] {
            replace(&place, "served/plain/c/1", bytes);
            let tag = tags.last().map_or("\"x\"", String::as_str).to_string();
            let answer = client.send("GET", path, &[("if-none-match", &tag)], b"").expect(200);
            assert_eq!(answer.body, bytes, "{path}");
            tags.push(answer.header("etag").unwrap().to_string());
            client.send("GET", path, &[("if-none-match", tags.last().unwrap())], b"").expect(304);
        }
        assert!(tags[0] != tags[1] && tags[1] != tags[2], "{tags:?}");
    }
    server.stop();
}

#[cfg(target_os = "linux")]
#[test]
fn what_may_not_be_read_is_not_absent() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new();
    build(&place, "one");
    array(&place, "plain", r#"[{"name": "bytes"}]"#);
    place.write("served/plain/c/1", b"abcd");
    let forbid = |name: &str, mode| fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
    forbid("served/numbers/gen-0000000001/0.shard", 0o000);
    forbid("served/plain/c", 0o000);
    let server = Server::start_with_modes(&[&place.text("served"), "-q"]);
    server.get("/api/numbers/get/3").expect_error(500, "io");
    assert_eq!(server.get("/api/numbers/info").expect(200).json()["keys"], 200, "the manifest states it");
    assert_eq!(server.get("/api/numbers/stats").expect(200).json()["damaged"], true);
    for path in ["/objects/plain/c/1", "/api/plain/get/1"] {
        server.get(path).expect_error(500, "io");
    }
    forbid("served/plain/c", 0o700); // so that the directory can be removed
    server.stop();
}

/// A shard that is compressed as a whole: its chunks are no ranges of the file.
#[test]
fn chunks_of_replaced_compressed_shards_have_another_tag() {
    let place = Place::new();
    let inner = r#"{"name": "sharding_indexed", "configuration": {"chunk_shape": [2], "codecs": [{"name": "bytes"}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}"#;
    array(&place, "packed", &format!(r#"[{inner}, {{"name": "gzip", "configuration": {{"level": 1}}}}]"#));
    // two chunks of two bytes, then the index: offset and length of each
    let shard = |bytes: &[u8; 4]| {
        let index: Vec<u8> = [0u64, 2, 2, 2].into_iter().flat_map(u64::to_le_bytes).collect();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&[&bytes[..], &index].concat()).unwrap();
        encoder.finish().unwrap()
    };
    replace(&place, "served/packed/c/0", &shard(b"abcd"));
    let server = Server::start(&[&place.text("served"), "-q"]);
    let mut client = server.connect();
    let before = client.get("/api/packed/get/1").expect(200);
    assert_eq!(before.body, b"cd");
    let tag = before.header("etag").unwrap().to_string();
    client.send("GET", "/api/packed/get/1", &[("if-none-match", &tag)], b"").expect(304);
    replace(&place, "served/packed/c/0", &shard(b"efgh"));
    let after = client.send("GET", "/api/packed/get/1", &[("if-none-match", &tag)], b"").expect(200);
    assert_eq!(after.body, b"gh");
    server.stop();
}

/// A store that was removed and built again is another one, also if its generations have the same numbers.
#[test]
fn a_store_that_is_replaced_is_served() {
    let place = Place::new();
    for (text, generations) in [("one", 1), ("two", 1), ("three", 2), ("four", 1)] {
        let _ = fs::remove_dir_all(place.path("served/numbers"));
        (0..generations).for_each(|_| build(&place, text));
        if text == "one" {
            continue;
        }
        let server = Server::start(&[&place.text("served"), "-q"]);
        let before = server.get("/api/numbers/get/3").expect(200);
        assert_eq!(before.body, value(text, 3));
        let page = server.get("/api/numbers/keys?limit=5").expect(200).json();
        fs::remove_dir_all(place.path("served/numbers")).unwrap();
        let gone = server.get_until("/api/numbers/get/3", |answer| answer.status != 200);
        gone.expect_error(404, "not-found");
        build(&place, "again");
        for _ in 0..3 {
            let after = server.get("/api/numbers/get/3").expect(200);
            assert_eq!(after.body, value("again", 3));
            assert_ne!(after.header("etag"), before.header("etag"));
        }
        let next = page["next"].as_str().unwrap();
        server.get(&format!("/api/numbers/keys?cursor={next}")).expect_error(410, "generation-gone");
        server.stop();
    }
}

/// A generation that is refused does not stop the server from serving the next one.
#[cfg(unix)]
#[test]
fn the_generation_after_a_refused_one_is_served() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q"]);
    server.get("/api/numbers/get/3").expect(200);
    build(&place, "two");
    let outside = place.write("outside", "secret");
    std::os::unix::fs::symlink(outside, place.path("served/numbers/gen-0000000002/link")).unwrap();
    sharddb(["rollback", &place.text("served/numbers"), "1"]).expect(0);
    sharddb(["rollback", &place.text("served/numbers"), "2"]).expect(0);
    let refused = server.get_until("/api/numbers/get/3", |answer| answer.status != 200);
    refused.expect_error(404, "not-found");
    build(&place, "three");
    assert_eq!(server.get("/api/numbers/get/3").expect(200).body, value("three", 3));
    server.stop();
}

/// `rm -r` removes the shards before it removes their directory.
#[test]
fn a_store_that_is_being_removed_has_no_empty_pages() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q"]);
    server.get("/api/numbers/keys").expect(200);
    for file in ["manifest.json", "0.shard"] {
        fs::remove_file(place.path(&format!("served/numbers/gen-0000000001/{file}"))).unwrap();
    }
    server.get("/api/numbers/keys").expect_error(404, "not-found");
    server.stop();
}

/// Each open database has a lease, which is an open file.
#[cfg(unix)]
#[test]
fn more_stores_than_open_files_are_served() {
    let place = Place::new();
    let stores: Vec<_> = (0..24).map(|store| format!("store-{store}")).collect();
    for store in &stores {
        build(&place, store);
        fs::rename(place.path("served/numbers"), place.path(&format!("served/{store}"))).unwrap();
    }
    let server = Server::start_with_files(32, &[&place.text("served"), "-q"]);
    let mut client = server.connect();
    for store in stores.iter().chain(&stores) {
        assert_eq!(client.get(&format!("/api/{store}/get/7")).expect(200).body, value(store, 7));
    }
    server.stop();
}

/// Opening a FIFO would wait for a writer.
#[cfg(unix)]
#[test]
fn special_files_hold_no_request() {
    let place = Place::new();
    place.write("served/store/gen-0000000001/info", "{}");
    std::os::unix::fs::symlink("gen-0000000001", place.path("served/store/current")).unwrap();
    let manifest = place.text("served/store/gen-0000000001/manifest.json");
    tool("mkfifo", [manifest]);
    let server = Server::start(&[&place.text("served"), "-q"]);
    assert_eq!(server.get("/raw/store/info").expect(200).body, b"{}");
    server.get("/raw/store/manifest.json").expect_error(404, "not-found");
    server.stop();
}

#[cfg(unix)]
#[test]
fn stores_that_no_request_can_name_are_not_listed() {
    let place = Place::new();
    for name in ["line\nbreak", "back\\slash", "space and %"] {
        build(&place, "one");
        fs::rename(place.path("served/numbers"), place.path("served").join(name)).unwrap();
    }
    let server = Server::start(&[&place.text("served"), "-q"]);
    let listed = server.get("/api/").expect(200).json();
    let paths: Vec<_> = listed["databases"].as_array().unwrap().iter().map(|database| &database["path"]).collect();
    assert_eq!(paths, ["space and %"]);
    server.get("/api/space%20and%20%25/get/7").expect(200);
    server.stop();
}
