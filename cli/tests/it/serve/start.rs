//! What the server says that it serves: its first lines, and the names in the directories below `raw/`.

use std::fs;

use serde_json::json;

use super::{Client, Place, Server, build, neuroglancer, sharddb};

/// The names in a directory; `complete` must be true.
#[track_caller]
fn names(client: &mut Client, path: &str) -> Vec<String> {
    let list = client.get(path).expect(200).json();
    assert_eq!(list["complete"], true, "{path}");
    list["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_string()).collect()
}

/// A name as one of a URL: every byte is encoded.
fn encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// Requests every listed name. Returns the paths and bytes of all files, in order.
fn crawl(client: &mut Client, path: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for name in names(client, &format!("/raw/{path}")) {
        match name.strip_suffix('/') {
            Some(directory) => files.extend(crawl(client, &format!("{path}{}/", encoded(directory)))),
            None => {
                let file = format!("{path}{}", encoded(&name));
                let bytes = client.get(&format!("/raw/{file}")).expect(200).body;
                files.push((file, bytes));
            }
        }
    }
    files
}

#[test]
fn each_line_has_a_label_a_tab_and_a_url_and_the_page_is_the_first() {
    let server = Server::start(&[&neuroglancer(), "-q"]);
    let [page, raw] = [&server.urls[0], &server.urls[1]];
    assert_eq!(*raw, format!("{page}raw"));
    let expected = ["ann", "image", "seg", "seg/mesh", "seg/skeletons"];
    let mut expected = expected.map(|path| format!("layer\tprecomputed://{raw}/{path}")).to_vec();
    let mut lines = [(); 5].map(|()| server.line().unwrap()).to_vec();
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected);
    assert!(server.get("/").expect(200).body.starts_with(b"<!doctype html>"));
    server.signal("-TERM");
    assert_eq!(server.line(), None, "no other line");
    assert!(server.wait().0.success());
}

#[test]
fn directories_without_data_sets_are_named() {
    let place = Place::new();
    build(&place, "one");
    fs::create_dir_all(place.path("nothing/below")).unwrap();
    let plain = place.write("plain", "plain");
    let [served, nothing] = ["served", "nothing"].map(|name| place.text(name));
    let said = |args: &[&str]| {
        let log = Server::start(args).stop();
        log.lines().filter(|line| line.contains("found no data sets")).map(str::to_string).collect::<Vec<_>>()
    };
    let expected = format!("sharddb: found no data sets in {nothing:?}: the page shows them as soon as there are some");
    assert_eq!(said(&[&nothing]), std::slice::from_ref(&expected));
    assert_eq!(said(&[&served, &nothing, &plain]), [expected]);
    assert_eq!(said(&[&served]), [""; 0]);
    assert_eq!(said(&[&place.text("served/numbers")]), [""; 0]);
    assert_eq!(said(&[&nothing, "-q"]), [""; 0]);

    let server = Server::start(&[&nothing, "-q"]);
    assert_eq!(server.get("/api/").json()["databases"], json!([]));
    let input = place.write("input.ndjson", "{\"key\": 1, \"text\": \"x\"}\n");
    sharddb(["build", &place.text("nothing/later"), "--input", &input]).expect(0);
    server.get_until("/api/", |answer| answer.json()["databases"][0]["path"] == "later");
    server.stop();
}

/// A line of the log is one line, whatever the name of the directory.
#[cfg(unix)]
#[test]
fn the_name_of_a_directory_cannot_write_lines() {
    let place = Place::new();
    let name = "a\nsharddb: \u{1b}[31mb\"";
    fs::create_dir(place.path(name)).unwrap();
    let log = Server::start(&[&place.text(name)]).stop();
    assert!(log.contains(r#"/a\nsharddb: \u{1b}[31mb\"": the page"#), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
}

#[test]
fn what_is_listed_is_served_and_nothing_else_is() {
    let server = Server::start(&[&neuroglancer(), "-q"]);
    let mut client = server.connect();
    for path in ["/raw", "/raw/"] {
        let answer = client.get(path).expect(200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let head = client.send("HEAD", path, &[], b"").expect(200);
        assert_eq!(head.header("content-length"), Some(&*answer.body.len().to_string()));
    }
    assert_eq!(names(&mut client, "/raw/seg/"), ["info", "mesh/", "properties/", "s0/", "skeletons/"]);
    let mut expected = Vec::new();
    let mut directories = vec![(std::path::PathBuf::from(neuroglancer()), String::new())];
    while let Some((directory, path)) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = format!("{path}{}", encoded(entry.file_name().to_str().unwrap()));
            if entry.path().is_dir() {
                directories.push((entry.path(), path + "/"));
            } else {
                expected.push((path, fs::read(entry.path()).unwrap()));
            }
        }
    }
    let mut found = crawl(&mut client, "");
    expected.sort();
    found.sort();
    assert!(found == expected, "every file, with its bytes");
    assert_eq!(client.get("/raw/seg/info/").expect(200).body, fs::read(neuroglancer() + "/seg/info").unwrap());
    client.send("POST", "/raw/", &[], b"x").expect(405);
    for path in ["/raw/seg", "/raw/no/", "/raw//", "/raw/..", "/raw/../", "/raw/%2e%2e/", "/raw/seg//", "/raw/seg%2f"] {
        client.get(path).expect_error(404, "not-found");
    }
    let nothing = client.get("/raw/no").body;
    for path in ["/raw", "/raw/", "/x/raw/"] {
        client.write("GET", path, &[], b"");
        assert_eq!(client.read(false).unwrap().expect(404).body, nothing, "without the token");
    }
    server.stop();
}

#[test]
fn a_store_lists_its_current_generation_and_the_others() {
    let place = Place::new();
    build(&place, "one");
    build(&place, "two");
    let server = Server::start(&[&place.text("served"), "-q"]);
    let mut client = server.connect();
    let files = |generation: &str| {
        let path = place.path(&format!("served/numbers/{generation}"));
        let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let generations = ["gen-0000000001", "gen-0000000002"];
    let mut all = [files(generations[1]), generations.map(|name| format!("{name}/")).to_vec()].concat();
    all.sort();
    assert_eq!(names(&mut client, "/raw/"), ["numbers/"]);
    assert_eq!(names(&mut client, "/raw/numbers/"), all);
    assert_eq!(names(&mut client, "/raw/numbers/current/"), files(generations[1]));
    for generation in generations {
        assert_eq!(names(&mut client, &format!("/raw/numbers/{generation}/")), files(generation));
    }
    assert_eq!(crawl(&mut client, "").len(), files(generations[0]).len() + 2 * files(generations[1]).len());
    client.get("/raw/numbers/gen-0000000003/").expect_error(404, "not-found");
    server.stop();
}

#[test]
fn several_paths_are_listed_by_their_names() {
    let place = Place::new();
    build(&place, "one");
    fs::create_dir(place.path("empty")).unwrap();
    let plain = place.write("plain", "plain");
    let server = Server::start(&[&place.text("served/numbers"), &plain, &place.text("empty"), "-q"]);
    let mut client = server.connect();
    assert_eq!(names(&mut client, "/raw/"), ["empty/", "numbers/", "plain"]);
    assert_eq!(names(&mut client, "/raw/empty/"), [""; 0]);
    crawl(&mut client, "");
    fs::remove_dir(place.path("empty")).unwrap();
    assert_eq!(names(&mut client, "/raw/"), ["numbers/", "plain"]);
    server.stop();
}

#[test]
fn a_long_list_says_that_it_is_not_complete() {
    let place = Place::new();
    fs::create_dir(place.path("served")).unwrap();
    for number in 0..20_001 {
        fs::write(place.path(&format!("served/{number}")), "").unwrap();
    }
    let server = Server::start(&[&place.text("served"), "-q"]);
    let list = server.get("/raw/").expect(200).json();
    let listed: Vec<_> = list["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!((listed.len(), &list["complete"]), (20_000, &json!(false)));
    assert!(listed.is_sorted());
    fs::remove_file(place.path("served/7")).unwrap();
    assert_eq!(names(&mut server.connect(), "/raw/").len(), 20_000);
    server.stop();
}

/// Names that no request may have, and links that no request follows, are not listed.
#[cfg(unix)]
#[test]
fn hostile_names_and_links_are_served_as_listed() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    let place = Place::new();
    let odd = ["<script>alert(1)", "a\"b'&", "%2e%2e", "é \u{202e}#?"];
    for name in odd.into_iter().chain(["line\nbreak", "back\\slash", "plain"]) {
        place.write(&format!("served/{name}"), name);
    }
    place.write("secret/file", "secret");
    let served = place.path("served");
    fs::write(served.join(OsStr::from_bytes(b"\xff")), "").unwrap();
    fs::create_dir(served.join("directory")).unwrap();
    let absolute = place.text("served/plain");
    for (name, target) in [
        ("link", "plain"),
        ("up", ".."),
        ("out", "../secret"),
        ("file", "../secret/file"),
        ("loop", "loop"),
        ("nowhere", "x"),
        ("absolute", absolute.as_str()),
        ("to-directory", "directory"),
        ("directory/out", "../../secret/file"),
        ("directory/link", "../plain"),
    ] {
        symlink(target, served.join(name)).unwrap();
    }
    let _socket = std::os::unix::net::UnixListener::bind(served.join("socket")).unwrap();
    let server = Server::start(&[&place.text("served"), "-q"]);
    let mut client = server.connect();
    let mut expected = [&odd[..], &["plain", "directory/", "link"]].concat();
    expected.sort();
    let mut found = names(&mut client, "/raw/");
    if cfg!(not(target_os = "linux")) {
        found.retain(|name| name != "absolute");
    }
    assert_eq!(found, expected);
    assert_eq!(names(&mut client, "/raw/directory/"), ["link"]);
    for path in ["up/", "out/", "up/secret/", "loop/", "socket/", "line%0abreak/", "directory/../"] {
        client.get(&format!("/raw/{path}")).expect_error(404, "not-found");
    }
    let files = crawl(&mut client, "");
    assert!(files.iter().all(|(_, bytes)| bytes != b"secret"));
    assert_eq!(files.len(), odd.len() + 3);
    server.stop();
}
