//! Files as clients of the format request them.

use std::fs;

use super::{Place, Server, build, neuroglancer, value};

#[test]
fn a_range_is_the_bytes_of_the_file() {
    let server = Server::start(&[&neuroglancer(), "-q"]);
    let shard = fs::read(format!("{}/image/s0/0.shard", neuroglancer())).unwrap();
    let mut client = server.connect();
    let path = "/raw/image/s0/0.shard";
    for (range, from, to) in
        [("bytes=0-15", 0, 16), ("bytes=100-", 100, shard.len()), ("bytes=-7", shard.len() - 7, shard.len())]
    {
        let part = client.send("GET", path, &[("range", range), ("accept-encoding", "gzip, br")], b"").expect(206);
        assert_eq!(part.body, shard[from..to], "{range}");
        assert_eq!(part.header("content-range"), Some(&*format!("bytes {from}-{}/{}", to - 1, shard.len())));
        assert_eq!(part.header("content-encoding"), None);
        assert_eq!(part.header("access-control-allow-origin"), Some("*"));
    }
    let whole = client.get(path).expect(200);
    assert_eq!(whole.body, shard);
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    let exposed = whole.header("access-control-expose-headers").unwrap();
    assert!(["content-range", "content-length", "etag"].iter().all(|name| exposed.contains(name)), "{exposed}");

    let beyond = client.send("GET", path, &[("range", "bytes=99999999-")], b"").expect(416);
    assert_eq!(beyond.header("content-range"), Some(&*format!("bytes */{}", shard.len())));
    let several = client.send("GET", path, &[("range", "bytes=0-1,4-5")], b"").expect(200);
    assert_eq!(several.body, shard);
    for headers in [&[("range", "bytes=0-15")][..], &[]] {
        let head = client.send("HEAD", path, headers, b"").expect(200); // RFC 9110: a range applies to GET only
        assert_eq!((head.header("content-length"), head.body.len()), (Some(&*shard.len().to_string()), 0));
        assert_eq!(head.header("content-range"), None);
    }
    client.send("POST", path, &[], b"x").expect(405);
    let info = client.get("/raw/image/info").expect(200);
    assert_eq!(info.header("content-type"), Some("application/json"));
    assert_eq!(info.body, fs::read(format!("{}/image/info", neuroglancer())).unwrap());
    for path in ["/raw/image/s0/9.shard", "/raw/image/s0", "/raw/image/s0/0.shard/x", "/other"] {
        client.get(path).expect_error(404, "not-found");
    }
    server.stop();
}

#[test]
fn a_browser_may_ask_from_a_public_page() {
    let server = Server::start(&[&neuroglancer(), "-q"]);
    let headers = [
        ("origin", "https://neuroglancer-demo.appspot.com"),
        ("access-control-request-method", "GET"),
        ("access-control-request-headers", "range"),
        ("access-control-request-private-network", "true"),
    ];
    let answer = server.connect().send("OPTIONS", "/raw/image/info", &headers, b"").expect(200);
    assert_eq!(answer.header("access-control-allow-private-network"), Some("true"));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("*"));
    assert!(answer.header("access-control-allow-methods").unwrap().contains("GET"));
    server.stop();
}

#[test]
fn bytes_that_the_client_has_are_not_sent_again() {
    let place = Place::new();
    build(&place, "one");
    fs::write(place.path("served/plain"), "plain").unwrap();
    let server = Server::start(&[&place.text("served"), "-q"]);
    let mut client = server.connect();
    for path in ["/raw/numbers/info", "/raw/plain", "/api/numbers/get/7", "/objects/numbers/7", "/objects/numbers/info"]
    {
        let tag = client.get(path).expect(200).header("etag").unwrap().to_string();
        let send = |client: &mut super::Client, headers: &[(&str, &str)]| client.send("GET", path, headers, b"").status;
        assert_eq!(send(&mut client, &[("if-none-match", &tag)]), 304, "{path}");
        assert_eq!(send(&mut client, &[("if-none-match", "\"x\"")]), 200, "{path}");
        assert_eq!(send(&mut client, &[("if-match", &tag)]), 200, "{path}");
        assert_eq!(send(&mut client, &[("if-match", "\"x\"")]), 412, "{path}");
        assert_eq!(send(&mut client, &[("range", "bytes=0-1"), ("if-range", &tag)]), 206, "{path}");
        assert_eq!(send(&mut client, &[("range", "bytes=0-1"), ("if-range", "\"x\"")]), 200, "{path}");
    }
    let before = client.get("/raw/numbers/info").header("etag").unwrap().to_string();
    assert!(before.starts_with("\"gen-0000000001-"), "{before}");
    build(&place, "two");
    let after = client.get("/raw/numbers/info").header("etag").unwrap().to_string();
    assert!(after.starts_with("\"gen-0000000002-"), "{after}");
    server.get_until("/api/numbers/get/7", |answer| answer.body == value("two", 7));
    client.send("GET", "/api/numbers/get/7", &[("if-match", &before)], b"").expect(412);
    server.stop();
}

#[test]
fn a_store_is_its_current_generation() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q"]);
    let mut client = server.connect();
    let file = |generation: &str| fs::read(place.path(&format!("served/numbers/{generation}/manifest.json"))).unwrap();
    assert_eq!(client.get("/raw/numbers/manifest.json").expect(200).body, file("gen-0000000001"));
    build(&place, "two");
    assert_eq!(client.get("/raw/numbers/manifest.json").expect(200).body, file("gen-0000000002"));
    assert_eq!(client.get("/raw/numbers/current/manifest.json").expect(200).body, file("gen-0000000002"));
    assert_eq!(client.get("/raw/numbers/gen-0000000001/manifest.json").expect(200).body, file("gen-0000000001"));
    for path in ["/raw/numbers/lock", "/raw/numbers/history", "/raw/numbers/gen-0000000003/info"] {
        client.get(path).expect_error(404, "not-found");
    }
    server.stop();
}

#[test]
fn a_database_by_itself_has_its_name() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served/numbers"), "-q"]);
    assert_eq!(server.get("/api/").json()["databases"][0]["path"], "numbers");
    server.get("/raw/numbers/info").expect(200);
    server.stop();
}
