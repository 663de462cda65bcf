//! The API: lookups and descriptions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Place, Server, build, neuroglancer, value};
use crate::common::{data, foreign, sharddb, until};
#[cfg(target_os = "linux")]
use crate::process::tool;

#[test]
fn all_databases_are_listed() {
    let server = Server::start(&[&neuroglancer(), "-q"]);
    let listed = server.get("/api/").expect(200).json();
    let databases = listed["databases"].as_array().unwrap();
    let paths: Vec<&str> = databases.iter().map(|it| it["path"].as_str().unwrap()).collect();
    let expected = ["ann/by_id", "ann/rel", "ann/sp0", "ann/sp1", "image/s0", "seg/mesh", "seg/s0", "seg/skeletons"];
    assert_eq!(
        {
            let mut sorted = paths.clone();
            sorted.sort_unstable();
            sorted
        },
        expected
    );
    for database in databases {
        assert_eq!((&database["kind"], &database["error"]), (&json!("foreign"), &Value::Null));
        let layer = database["layer"].as_str().unwrap();
        assert!(layer.starts_with(&format!("precomputed://{}/", server.urls[1])), "{layer}");
        assert!(database["neuroglancer"].as_str().unwrap().starts_with("https://"));
        let info = layer.split_once(&server.base()).unwrap().1;
        server.get(&format!("{info}/info")).expect(200);
    }
    server.stop();
}

#[test]
fn a_store_is_described_with_its_generations() {
    let place = Place::new();
    build(&place, "one");
    build(&place, "two");
    let server = Server::start(&[&place.text("served"), "-q"]);
    let info = server.get("/api/numbers/info").expect(200).json();
    assert_eq!(info["kind"], "store");
    assert_eq!(
        (&info["native"], &info["keys"], &info["generation"]),
        (&json!(true), &json!(200), &json!("gen-0000000002"))
    );
    assert_eq!(info["current"], "gen-0000000002");
    let states: Vec<_> =
        info["generations"].as_array().unwrap().iter().map(|it| (&it["number"], &it["state"], &it["keys"])).collect();
    assert_eq!(states, [(&json!(1), &json!("kept"), &json!(200)), (&json!(2), &json!("current"), &json!(200))]);
    let shards = info["shards"].as_array().unwrap();
    let file = shards[0]["file"].as_str().unwrap();
    let bytes = fs::metadata(place.path(&format!("served/numbers/current/{file}"))).unwrap().len();
    assert_eq!(shards[0]["bytes"], bytes);
    assert_eq!(shards.iter().map(|it| it["keys"].as_u64().unwrap()).sum::<u64>(), 200);
    let total: u64 = (0..200).map(|key| value("two", key).len() as u64).sum();
    assert_eq!(info["value_bytes"], total);

    let old = server.get("/api/numbers/info?generation=1").expect(200).json();
    assert_eq!((&old["generation"], &old["kind"]), (&json!("gen-0000000001"), &json!("generation")));
    assert_eq!(server.get("/api/numbers/get/3?generation=1").expect(200).body, value("one", 3));
    assert_eq!(server.get("/api/numbers/get/3").expect(200).body, value("two", 3));
    server.get("/api/numbers/info?generation=9").expect_error(404, "not-found");
    server.get("/api/numbers/info?generation=x").expect_error(400, "invalid-input");
    server.get("/api/other/info").expect_error(404, "not-found");
    let stats = server.get("/api/numbers/stats").expect(200).json();
    assert_eq!((&stats["requests"], &stats["errors"]), (&json!(6), &json!(1)));
    assert_eq!(stats["requests_per_s"].as_array().unwrap().len(), 60);
    // "two 0" to "two 199"
    assert_eq!(stats["value_size"], json!({"edges": [5, 6, 7, 8], "counts": [10, 90, 100]}));
    server.stop();
}

/// 5 to 30 keys per minishard, by the specification: 16 minishards, chosen by the lowest bits of the key.
#[test]
fn small_minishards_are_counted_by_their_number_of_keys() {
    let place = Place::new();
    let fill = [5, 6, 6, 7, 9, 9, 9, 12, 15, 20, 20, 22, 25, 29, 30, 30];
    let keys = fill.iter().zip(0u64..).flat_map(|(keys, minishard)| (0..*keys).map(move |at: u64| at * 16 + minishard));
    let lines: String = keys.map(|key| format!("{{\"key\": {key}, \"text\": \"\"}}\n")).collect();
    let input = place.write("input.ndjson", lines);
    let sharding = r#"{"@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0, "minishard_bits": 4,
        "shard_bits": 0}"#;
    sharddb(["build", &place.text("store"), "--input", &input, "--sharding", sharding]).expect(0);
    let server = Server::start(&[&place.text("store"), "-q"]);
    let found = server.get("/api/store/stats").expect(200).json();
    let counts: Vec<usize> = (5..=30).map(|keys| fill.iter().filter(|fill| **fill == keys).count()).collect();
    assert_eq!(found["minishard_fill"], json!({"edges": (5..=31).collect::<Vec<_>>(), "counts": counts}));
    server.stop();
}

#[test]
fn a_missing_generation_is_not_a_missing_database() {
    let place = Place::new();
    build(&place, "one");
    foreign(&place);
    let server = Server::start(&[&place.text("served/numbers"), &place.text("foreign"), "-q"]);
    let message = |path: &str| {
        let problem = server.get(path).expect_error(404, "not-found").json();
        problem["error"]["message"].as_str().unwrap().to_string()
    };
    for operation in ["info", "stats", "keys", "get/3", "locate/3"] {
        let found = message(&format!("/api/numbers/{operation}?generation=99"));
        assert_eq!(found, "the store at \"numbers\" has no generation 99", "{operation}");
    }
    assert_eq!(message("/api/other/info?generation=99"), "no database is at \"other\"");
    assert!(message("/api/foreign/info?generation=1").contains("has no generations"));
    assert!(message("/api/numbers/gen-0000000001/info?generation=1").contains("has no generations"));
    server.stop();
}

#[test]
fn a_volume_in_a_store_has_the_generations_of_the_store() {
    let place = Place::new();
    let (volume, input) = (format!("{}/image", neuroglancer()), place.text("image.bin"));
    let pointer = ["--sharding-at", "/scales/0"];
    sharddb([&["export", &volume, "--format", "bin", "--output", &input][..], &pointer].concat()).expect(0);
    let info = format!("{volume}/info");
    for _ in 0..2 {
        let store = place.text("image");
        sharddb([&["build", &store, "--input", &input, "--info", &info][..], &pointer].concat()).expect(0);
    }
    let server = Server::start(&[&place.text("image"), "-q"]);
    let generation =
        |query: &str| server.get(&format!("/api/image/s0/info{query}")).expect(200).json()["generation"].clone();
    assert_eq!(
        ["", "?generation=1", "?generation=2"].map(generation),
        ["gen-0000000002", "gen-0000000001", "gen-0000000002"]
    );
    server.get("/api/image/s0/get/5?generation=1").expect(200);
    let problem = server.get("/api/image/s0/info?generation=3").expect_error(404, "not-found").json();
    assert_eq!(problem["error"]["message"], "the store at \"image/s0\" has no generation 3");
    server.stop();
}

/// What a client needs to read the elements of a chunk. The numbers are those of `zarr.json` and `meta/storage`.
#[test]
fn a_container_is_described_by_its_metadata() {
    let server = Server::start(&[&data("zarr/arrays"), &data("bcolz/b121_f4_bigendian"), "-q"]);
    let info = |name: &str| server.get(&format!("/api/{name}/info")).expect(200).json();
    let zarr = info("arrays/zp_3d_f32_blosc_lz4_shuffle.zarr");
    assert_eq!((&zarr["kind"], &zarr["type"]), (&json!("zarr"), &json!("zarr")));
    let members = ["data_type", "shape", "chunk_shape", "grid"].map(|name| zarr["info"][name].clone());
    assert_eq!(members, [json!("float32"), json!([40, 40, 40]), json!([16, 8, 32]), json!([3, 5, 2])]);
    let bcolz = info("b121_f4_bigendian");
    assert_eq!((&bcolz["kind"], &bcolz["type"]), (&json!("bcolz"), &json!("bcolz")));
    let members = ["dtype", "shape", "chunk_rows", "endianness", "order"].map(|name| bcolz["info"][name].clone());
    assert_eq!(members, [json!(">f4"), json!([3000]), json!(1024), json!("big"), json!("C")]);
    server.stop();
}

/// The numbers are those of the bytes in `common::foreign_shard`.
#[test]
fn the_path_of_a_key_has_the_numbers_of_the_file() {
    let place = Place::new();
    foreign(&place);
    let server = Server::start(&[&place.text("foreign"), "-q"]);
    let locate = |key: &str| server.get(&format!("/api/foreign/locate/{key}")).expect(200).json();
    let found = locate("8");
    assert_eq!((&found["shard"], &found["minishard"], &found["file"]), (&json!("0"), &json!(0), &json!("0.shard")));
    assert_eq!(found["hashed"], "0x0000000000000008");
    assert_eq!(found["shard_index_entry"], json!({"start": 0, "end": 16}));
    assert_eq!(found["minishard_index"], json!({"start": 43, "end": 115, "rows": 3, "encoding": "raw"}));
    assert_eq!(found["value"], json!({"start": 35, "end": 37, "encoding": "raw"}));
    assert_eq!((&found["row"], &found["found"], &found["key"]), (&json!(2), &json!(true), &json!("8")));
    let absent = locate("0xc");
    assert_eq!((&absent["found"], &absent["row"], &absent["value"]), (&json!(false), &Value::Null, &Value::Null));
    assert_eq!(absent["minishard_index"]["rows"], 3);
    let empty = locate("2");
    assert_eq!((&empty["file"], &empty["minishard_index"]), (&json!("1.shard"), &Value::Null));
    server.get("/api/foreign/locate/x").expect_error(400, "invalid-input");
    let info = server.get("/api/foreign/info").expect(200).json();
    assert_eq!((&info["kind"], &info["keys"], &info["native"]), (&json!("foreign"), &json!(4), &json!(false)));
    assert_eq!(server.get("/api/foreign/stats").expect(200).json()["damaged"], false);
    assert_eq!(server.get("/api/foreign/get/4").expect(200).body, b"");
    assert_eq!(server.get("/api/foreign/get/0").expect(200).body, b"abc");
    server.get("/api/foreign/get/1").expect_error(404, "not-found");
    server.stop();
}

/// The library has the index in memory. That the file no longer has it is an error, not an empty minishard.
#[test]
fn a_path_that_cannot_be_read_is_an_error() {
    let place = Place::new();
    foreign(&place);
    let server = Server::start(&[&place.text("foreign"), "-q"]);
    server.get("/api/foreign/locate/8").expect(200);
    let file = fs::OpenOptions::new().write(true).open(place.path("foreign/0.shard")).unwrap();
    file.set_len(40).unwrap();
    server.get("/api/foreign/locate/8").expect(500);
    server.stop();
}

#[test]
fn the_name_current_follows_the_store() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q"]);
    for path in ["/api/numbers/current/get/7", "/objects/numbers/current/7"] {
        assert_eq!(server.get(path).expect(200).body, value("one", 7));
    }
    build(&place, "two");
    for path in ["/api/numbers/current/get/7", "/objects/numbers/current/7"] {
        server.get_until(path, |answer| answer.body == value("two", 7));
    }
    assert_eq!(server.get("/api/numbers/current/get/7?generation=1").expect(200).body, value("one", 7));
    assert_eq!(server.get("/api/numbers/gen-0000000001/get/7").expect(200).body, value("one", 7));
    let stats = server.get("/api/numbers/stats?generation=1").expect(200).json();
    assert_eq!(stats["current"], "gen-0000000002");
    server.stop();
}

#[test]
fn pages_of_keys_follow_each_other() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q"]);
    let mut client = server.connect();
    let mut all = |query: &str| {
        let (mut keys, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = client.get(&format!("/api/numbers/keys?limit=30{query}{cursor}")).expect(200).json();
            keys.extend(
                page["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap().parse::<u64>().unwrap()),
            );
            pages += 1;
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return (keys, pages),
            }
        }
    };
    assert_eq!(all("&range=10..170"), ((10..170).collect(), 6));
    assert_eq!(all("&range=10..=39"), ((10..40).collect(), 1));
    assert_eq!(all("&range=300.."), (vec![], 1));
    let (stored, pages) = all("");
    assert_eq!(pages, 7);
    assert_eq!(stored.iter().copied().collect::<BTreeSet<_>>(), (0..200).collect());
    assert_eq!(stored.len(), 200);

    let page = server.get("/api/numbers/keys?limit=5").json();
    build(&place, "two");
    let cursor = page["next"].as_str().unwrap();
    let gone = server.get_until(&format!("/api/numbers/keys?cursor={cursor}"), |answer| answer.status != 200);
    gone.expect_error(410, "generation-gone");
    server.get(&format!("/api/numbers/keys?generation=1&cursor={cursor}")).expect(200);
    for query in [
        "limit=0",
        "limit=99999",
        "range=5",
        "range=9..1",
        "cursor=x",
        "cursor=c5",
        "range=1..9&cursor=k10",
        "shard=g",
        "skip=-1",
        "%zz",
    ] {
        server.get(&format!("/api/numbers/keys?{query}")).expect_error(400, "invalid-input");
    }
    server.stop();
}

#[test]
fn pages_of_keys_begin_in_a_shard() {
    let place = Place::new();
    build(&place, "one");
    // not hashed: bits 0 and 1 of a key choose the minishard, bits 2 and 3 the shard
    let spec = json!({"@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0,
        "minishard_bits": 2, "shard_bits": 2});
    let input = place.text("input-one.ndjson");
    sharddb(["build", &place.text("served/spread"), "--input", &input, "--sharding", &spec.to_string()]).expect(0);
    let server = Server::start(&[&place.text("served"), "-q"]);
    let page = |query: &str| server.get(&format!("/api/spread/keys?{query}")).expect(200).json()["keys"].clone();
    assert_eq!(page("shard=1&skip=11&limit=4"), json!(["180", "196", "5", "21"]));
    assert_eq!(page("shard=1&skip=51&limit=2"), json!(["199", "8"]));
    assert_eq!(page("shard=3&skip=45"), json!(["159", "175", "191"]));
    assert_eq!(page("shard=0&limit=2"), page("limit=2"));
    server.stop();
}

#[test]
fn many_keys_are_answered_in_their_order() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q"]);
    let mut client = server.connect();
    for body in ["[7, \"500\", 7]", "7\n\"500\"\n0x7", "7\n500\n7\n"] {
        let answer = client.send("POST", "/api/numbers/get-many", &[], body.as_bytes());
        if body.ends_with("0x7") {
            answer.expect_error(400, "invalid-input"); // not JSON
            continue;
        }
        let answer = answer.expect(200);
        let lines: Vec<Value> = answer
            .body
            .split(|byte| *byte == b'\n')
            .filter(|it| !it.is_empty())
            .map(|it| serde_json::from_slice(it).unwrap())
            .collect();
        let found = json!({"key": "7", "value": STANDARD.encode(value("one", 7))});
        assert_eq!(lines, [found.clone(), json!({"key": "500", "value": null}), found]);
    }
    let keys: Vec<u64> = (0..20_000).map(|at| at % 200).collect();
    let body = serde_json::to_vec(&keys).unwrap();
    let answer = client.send("POST", "/api/numbers/get-many", &[], &body).expect(200);
    assert_eq!(answer.body.iter().filter(|byte| **byte == b'\n').count(), 20_000);
    client.send("GET", "/api/numbers/get-many", &[], b"").expect_error(405, "invalid-input");
    client.send("POST", "/api/", &[], b"[7]").expect_error(405, "invalid-input");
    let mut large = server.connect();
    large.send("POST", "/api/numbers/get-many", &[], &vec![b' '; (8 << 20) + 1]).expect_error(413, "too-large");
    large.send("POST", "/api/numbers/get-many", &[], b"[7]").expect(200); // the connection is still usable
    server.stop();
}

/// A value longer than a piece of the answer. The bytes of the answer are counted while they are sent.
#[test]
fn a_long_value_of_many_keys_is_whole() {
    let place = Place::new();
    let long: String = (0..200_000).map(|number| format!("{number} ")).collect();
    let line = |key: u64, text: &str| format!("{{\"key\": {key}, \"text\": \"{text}\"}}\n");
    let input = place.write("input.ndjson", line(1, &long) + &line(2, "short"));
    sharddb(["build", &place.text("store"), "--input", &input]).expect(0);
    let server = Server::start(&[&place.text("store"), "-q"]);
    let answer = server.connect().send("POST", "/api/store/get-many", &[], b"[1, 3, 2, 1]").expect(200);
    let values = [Some(long.as_str()), None, Some("short"), Some(long.as_str())];
    let lines: String = ["1", "3", "2", "1"]
        .iter()
        .zip(values)
        .map(|(key, value)| format!("{}\n", json!({"key": key, "value": value.map(|text| STANDARD.encode(text))})))
        .collect();
    assert!(answer.body == lines.as_bytes());
    assert_eq!(server.get("/api/store/stats").expect(200).json()["bytes_sent"], lines.len());
    server.stop();
}

/// No byte of the body is sent before the answer is read.
#[test]
fn a_body_is_refused_where_it_has_no_use() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q"]);
    for path in ["/api/numbers/get/7", "/api/numbers/keys", "/api/", "/raw/numbers/info", "/objects/numbers/7"] {
        let mut client = server.connect();
        let path = format!("{}{path}", server.base());
        client.write("POST", &path, &[("content-length", "8000000")], b"");
        client.read(false).unwrap().expect_error(405, "invalid-input");
    }
    server.stop();
}

/// No byte of the body is sent before the answer is read.
#[test]
fn a_body_that_is_too_large_is_refused_by_its_stated_length() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q"]);
    let path = format!("{}/api/numbers/get-many", server.base());
    for (len, expect) in [((8u64 << 20) + 1, ""), (1 << 40, "100-continue")] {
        let mut client = server.connect();
        let headers = [("content-length", &*len.to_string()), ("expect", expect)];
        let given = if expect.is_empty() { &headers[..1] } else { &headers[..] };
        client.write("POST", &path, given, b"");
        client.read(false).unwrap().expect_error(413, "too-large");
    }
    server.stop();
}

#[test]
fn damage_is_an_error_of_its_key() {
    let place = Place::new();
    build(&place, "one");
    let file = place.path("served/numbers/current/0.shard").canonicalize().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let text = value("one", 199);
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
    bytes[at] ^= 1;
    #[allow(clippy::permissions_set_readonly_false, reason = "the copy is removed with its directory")]
    {
        let mut permissions = fs::metadata(&file).unwrap().permissions();
        permissions.set_readonly(false);
        fs::set_permissions(&file, permissions).unwrap();
    }
    fs::write(&file, bytes).unwrap();
    let server = Server::start(&[&place.text("served"), "-q"]);
    let problem = server.get("/api/numbers/get/199").expect_error(500, "corrupt").json();
    let message = problem["error"]["message"].as_str().unwrap();
    assert!(message.contains("key 199") && message.contains("0.shard"), "{message}");
    assert!(!message.contains(&place.text("served")), "{message}");
    let lines = server.connect().send("POST", "/api/numbers/get-many", &[], b"[199]").expect(200);
    assert_eq!(lines.json()["error"]["kind"], "corrupt");
    assert!(server.stop().contains("key 199"), "the log has the whole error");
}

#[test]
fn the_page_and_the_arguments() {
    let place = Place::new();
    build(&place, "one");
    let server = Server::start(&[&place.text("served"), "-q", "--base-url", "http://127.0.0.1:9/x/"]);
    assert!(server.urls[0].starts_with("http://127.0.0.1:9/x/"), "{:?}", server.urls);
    server.signal("-INT");
    assert!(server.wait().0.success());

    let server = Server::start(&[&place.text("served"), "-q", "--no-token"]);
    assert_eq!(server.base(), "");
    let page = server.get("/").expect(200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert!(page.body.starts_with(b"<!doctype html>"));
    server.get("/page/other").expect_error(404, "not-found");
    server.stop();

    let server = Server::start(&[&place.text("served"), "--bind", "0.0.0.0"]);
    assert!(server.urls[0].starts_with("http://127.0.0.1:"), "{:?}", server.urls);
    assert!(server.stop().contains("--base-url"));

    sharddb(["serve", &place.text("missing")]).expect_error(4, &["cannot open"]);
    sharddb(["serve"]).expect_error(2, &["PATH"]);
    sharddb(["serve", "s3://bucket/x"]).expect_error(2, &["expected a local path", "s3://bucket/x", "sharddb pull"]);
    #[cfg(unix)]
    sharddb(["serve", "/dev/null"]).expect_error(2, &["expected a directory or a regular file at /dev/null"]);
    sharddb(["serve", &place.text("served"), "--base-url", "x"]).expect_error(2, &["expected a URL"]);
}

/// All users see the arguments of a process.
#[cfg(target_os = "linux")]
#[test]
fn a_browser_is_opened_without_the_token_in_its_arguments() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new();
    build(&place, "one");
    let text = place.write("text", "#!/bin/sh\necho \"$@\" > \"$OUT.part\"\nmv \"$OUT.part\" \"$OUT\"\n");
    fs::create_dir(place.path("bin")).unwrap();
    // by another process: a child of another test may still have the descriptor, and a file that is being written does
    // not run
    tool("install", ["-m", "700", &text, &place.text("bin/xdg-open")]);
    let path = format!("{}:{}", place.text("bin"), std::env::var("PATH").unwrap());
    let server = Server::start_with(
        &[("PATH", &path), ("OUT", &place.text("out")), ("TMPDIR", &place.text("bin"))],
        &[&place.text("served"), "-q", "--open"],
    );
    until(|| place.path("out").exists());
    let argument = fs::read_to_string(place.path("out")).unwrap();
    assert!(!argument.contains(&server.base()[1..]), "{argument}");
    let file = Path::new(argument.trim_end()).to_path_buf();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&file).unwrap().contains(&format!("url={}\"", server.urls[0])));
    server.stop();
    assert!(!file.exists());
}
