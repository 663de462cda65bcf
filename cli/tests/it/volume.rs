//! A volume is built, imported, published, read, collected and discarded like any other data set, and stays a volume.

use std::fs;

use serde_json::Value;

use crate::common::{Place, data, sharddb};
use crate::process::tool;

const POINTER: &str = "/scales/1";

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// The info of a volume that TensorStore wrote, with another scale before its only one.
fn given() -> Value {
    let mut info = json(&fs::read(data("neuroglancer/image/info")).unwrap());
    let scale = info["scales"][0].clone();
    info["scales"] = Value::from(vec![serde_json::json!({"key": "other", "sharding": scale["sharding"]}), scale]);
    info
}

/// Makes `chunks`, a directory of the foreign chunks, and `info`.
fn chunks_and_info(place: &Place) {
    let exported = ["export", &data("neuroglancer/image"), "--format", "dir", "--output", &place.text("chunks")];
    sharddb(exported).expect(0);
    place.write("info", given().to_string());
}

fn build(place: &Place, options: &[&str]) -> crate::common::Run {
    let (store, input, info) = (place.text("s"), place.text("chunks"), place.text("info"));
    sharddb([&["build", &store, "--input", &input, "--info", &info, "--sharding-at", POINTER], options].concat())
}

/// All pairs, in one order.
fn pairs(db: &str, options: &[&str]) -> Vec<String> {
    let run = sharddb([&["export", db, "--format", "ndjson"], options].concat()).expect(0);
    let mut lines: Vec<String> = run.text().lines().map(str::to_string).collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 64);
    lines
}

/// The info of a generation, without the member that ShardDb adds.
fn info_of(place: &Place, generation: &str) -> Value {
    let mut info = json(&fs::read(place.path(generation).join("info")).unwrap());
    info["scales"][1].as_object_mut().unwrap().remove("sharddb").unwrap();
    info
}

#[test]
fn a_built_volume_goes_through_every_verb_of_a_store() {
    let place = Place::new();
    chunks_and_info(&place);
    let (store, source) = (place.text("s"), data("neuroglancer/image"));
    build(&place, &[]).expect(0);
    assert_eq!(info_of(&place, "s/current"), given(), "the specification of the scale, and all other members");
    assert_eq!(pairs(&store, &[]), pairs(&source, &[]));
    for at in ["0,0,0", "3,2,1"] {
        let chunk = |db: &str| sharddb(["get", db, "--at", at]).expect(0).stdout;
        assert_eq!((chunk(&store).len(), chunk(&store)), (32 * 32 * 32, chunk(&source)));
    }
    sharddb(["get", &store, "--at", "4,0,0"]).expect(2);
    sharddb(["get", &store, "0", "--sharding-at", POINTER]).expect(0);
    sharddb(["get", &store, "0", "--sharding-at", "/scales/0"]).expect_error(2, &[POINTER, "/scales/0"]);
    sharddb(["verify", &store]).expect(0);
    let described = sharddb(["info", &store, "--json"]).expect(0).json_lines().remove(0);
    assert_eq!((&described["sharding_at"], &described["keys"]), (&POINTER.into(), &64.into()));

    // a generation is copied and published, then moved
    tool("cp", ["-rL", &place.text("s/current"), &place.text("incoming")]);
    let other = place.text("t");
    sharddb(["publish", &other, "--from", &place.text("incoming")]).expect(0);
    sharddb(["publish", &other, "--from", &place.text("incoming"), "--move"]).expect(0);
    sharddb(["import", &store, &other]).expect(0);
    assert!(!place.path("incoming").exists());
    assert_eq!(pairs(&other, &[]), pairs(&source, &[]));
    assert_eq!(sharddb(["generations", &other]).expect(0).text().lines().count(), 3);
    sharddb(["discard", &other, "2"]).expect(0);
    sharddb(["rollback", &other, "1"]).expect(0);
    sharddb(["verify", &other]).expect(0);
    sharddb(["gc", &other, "--keep", "1"]).expect(0);
    let listed = sharddb(["generations", &other, "--json"]).expect(0).json_lines().remove(0);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["keys"]), (1, &64.into()));
}

#[test]
fn the_specification_of_a_volume_is_given_kept_or_planned() {
    let place = Place::new();
    chunks_and_info(&place);
    let sharding = |options: &[&str]| {
        build(&place, options).expect(0);
        assert_eq!(pairs(&place.text("s"), &[]), pairs(&data("neuroglancer/image"), &[]));
        info_of(&place, "s/current")["scales"][1]["sharding"].take()
    };
    let mut expected = given()["scales"][1]["sharding"].take();
    assert_eq!(sharding(&[]), expected);
    expected["data_encoding"] = "gzip".into();
    assert_eq!(sharding(&["--data-encoding", "gzip"]), expected);
    expected["shard_bits"] = 0.into();
    assert_eq!(sharding(&["--sharding", &expected.to_string()]), expected);
    let planned = sharding(&["--profile", "remote"]);
    assert_ne!(planned, given()["scales"][1]["sharding"]);
    let (store, input) = (place.text("s"), place.text("chunks"));
    sharddb(["build", &store, "--input", &input, "--sharding-at", POINTER]).expect_error(2, &["--info"]);
    build(&place, &["--kind", "mesh"]).expect_error(2, &["--kind"]);
    place.write("info", given().to_string().replace("\"s0\"", "\"../s0\""));
    build(&place, &[]).expect_error(3, &["../s0"]);
    place.write("info", given().to_string().replace("scales", "levels"));
    build(&place, &[]).expect_error(2, &[POINTER]);
}

#[test]
fn an_imported_or_salvaged_volume_is_a_volume() {
    let place = Place::new();
    place.copy("neuroglancer/image", "foreign");
    place.write("foreign/info", given().to_string());
    let foreign = place.text("foreign");
    let at = ["--sharding-at", POINTER];
    for (verb, store) in [("import", "s"), ("salvage", "t")] {
        sharddb([verb, &foreign, &place.text(store), at[0], at[1]]).expect(0);
        assert_eq!(info_of(&place, &format!("{store}/current")), given());
        assert_eq!(pairs(&place.text(store), &[]), pairs(&foreign, &at));
        assert_eq!(place.path(store).join("current/s0").read_dir().unwrap().count(), 8);
        sharddb(["verify", &place.text(store)]).expect(0);
    }
    sharddb(["import", &place.text("s"), &place.text("u"), "--profile", "remote"]).expect(0);
    assert_eq!(pairs(&place.text("u"), &[]), pairs(&foreign, &at));
    assert_eq!(info_of(&place, "u/current")["scales"][0], given()["scales"][0]);
    // an object without a "key" has its shards next to the info; a generation keeps such an info as a member
    fs::create_dir(place.path("keyless")).unwrap();
    let scale = given()["scales"][1]["sharding"].take();
    place.write("keyless/info", serde_json::json!({"by_id": {"sharding": scale}}).to_string());
    fs::copy(place.path("foreign/s0/0.shard"), place.path("keyless/0.shard")).unwrap();
    sharddb(["import", &place.text("keyless"), &place.text("v")]).expect_error(0, &["imported"]);
    let info = json(&fs::read(place.path("v/current/info")).unwrap());
    assert_eq!((&info["sharding"], &info["imported"]["by_id"]["sharding"]), (&scale, &scale));
}
