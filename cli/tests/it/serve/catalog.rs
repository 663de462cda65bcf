//! The list of databases, in trees that others have filled.

use std::fs;

use serde_json::Value;

use super::{Place, Server, build, value};

fn list(server: &Server) -> Vec<Value> {
    let list: Value = serde_json::from_slice(&server.get("/api/").expect(200).body).unwrap();
    list["databases"].as_array().unwrap().clone()
}

/// An `info` near the upper bound on its length, which describes shards in 500,000 directories. What is quadratic in them
/// does not end before the server is stopped.
#[test]
fn an_info_with_many_nested_objects_holds_nobody() {
    let place = Place::new();
    build(&place, "one");
    let objects: Vec<String> = (0..500_000).map(|at| format!(r#"{{"key":"k{at}","sharding":{{}}}}"#)).collect();
    let info = format!(r#"{{"@type":"neuroglancer_multiscale_volume","scales":[{}]}}"#, objects.join(","));
    assert!(info.len() < 16 << 20);
    fs::create_dir(place.path("served/bomb")).unwrap();
    fs::write(place.path("served/bomb/info"), info).unwrap();
    let server = Server::start(&[&place.text("served"), "-q"]);
    let listed = list(&server);
    assert_eq!(listed.len(), 5_000);
    let one = listed.iter().find(|database| database["path"] == "bomb/k0").unwrap();
    assert!(one["layer"].as_str().unwrap().ends_with("/raw/bomb"), "{one}");
    for path in ["/api/numbers/info", "/api/numbers/stats", "/objects/numbers/info"] {
        server.get(path).expect(200);
    }
    assert_eq!(server.get("/api/numbers/get/7").expect(200).body, value("one", 7));
    // what would need more memory than there is
    assert_eq!(server.get("/objects/bomb/info").status, 413);
    server.stop();
}

/// Both the directory and the one inside it describe the shards.
#[test]
fn a_database_is_listed_once() {
    let place = Place::new();
    let sharding = r#"{"@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0,
        "minishard_bits": 0, "shard_bits": 0}"#;
    fs::create_dir_all(place.path("served/a/b/c")).unwrap();
    let scale = |key: &str| format!(r#"{{"key": "{key}", "sharding": {sharding}}}"#);
    let outer = format!(r#"{{"scales": [{}, {}]}}"#, scale("b/c"), scale("b/c"));
    fs::write(place.path("served/a/info"), outer).unwrap();
    fs::write(place.path("served/a/b/info"), format!(r#"{{"scales": [{}]}}"#, scale("c"))).unwrap();
    let server = Server::start(&[&place.text("served"), "-q"]);
    let paths: Vec<_> = list(&server).iter().map(|database| database["path"].clone()).collect();
    assert_eq!(paths, ["a/b/c"]);
    server.stop();
}
