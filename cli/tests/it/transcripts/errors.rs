//! Paths that are not a database, and options that have no effect: what was found, and what to do.

use std::fs;

use super::{transcript, transcript_with_input};
use crate::common::{Place, SHARDING, foreign, foreign_shard, sharddb};
use crate::process::tool;

fn store(place: &Place, name: &str) {
    let input = place.write("in.ndjson", "{\"key\": 1, \"text\": \"one\"}\n");
    sharddb(["build", &place.text(name), "--input", &input]).expect(0);
}

#[test]
fn what_is_not_a_database_is_named() {
    let place = Place::new();
    store(&place, "numbers");
    place.write("v2.zarr/.zarray", "{}");
    place.write("shards/0.shard", foreign_shard());
    fs::create_dir(place.path("directory")).unwrap();
    for (name, path) in [
        ("nothing", "none"),
        ("file", "in.ndjson"),
        ("shard", "numbers/current/0.shard"),
        ("zarr-v2", "v2.zarr"),
        ("directory", "directory"),
        ("shards", "shards"),
    ] {
        transcript(&place, &format!("not-a-database-{name}"), &["get", path, "1"]);
    }
    transcript(&place, "not-a-database-salvage", &["salvage", "directory", "out"]);
    assert!(!place.path("out").exists());
}

#[test]
fn a_store_without_current_names_the_way_out() {
    let place = Place::new();
    store(&place, "numbers");
    place.write("never/lock", "");
    transcript(&place, "not-a-database-never-built", &["get", "never", "1"]);
    tool("cp", ["-rL", &place.text("numbers"), &place.text("copy")]);
    transcript(&place, "not-a-database-copied", &["get", "copy", "1"]);
    // a generation with a greater number that was rolled back is not named
    sharddb(["put", &place.text("numbers"), "1", "--value", "wrong"]).expect(0);
    sharddb(["rollback", &place.text("numbers")]).expect(0);
    tool("cp", ["-rL", &place.text("numbers"), &place.text("copy of two")]);
    transcript(&place, "not-a-database-rolled-back", &["get", "copy of two", "1"]);
    fs::remove_dir_all(place.path("copy of two/current")).unwrap();
    transcript(&place, "not-a-database-rolled-back-without", &["get", "copy of two", "1"]);
    fs::remove_dir_all(place.path("copy/current")).unwrap();
    transcript(&place, "not-a-database-without-current", &["get", "copy", "1"]);
    transcript(&place, "rollback-repairs", &["rollback", "copy", "1"]);
    transcript(&place, "get-after-repair", &["get", "copy", "1"]);
}

#[test]
fn a_nested_sharding_is_chosen_by_its_pointer() {
    let place = Place::new();
    let scale = |key: &str| format!("{{\"key\": \"{key}\", \"sharding\": {SHARDING}}}");
    place.write("volume/info", format!("{{\"scales\": [{}, {}]}}", scale("fine"), scale("coarse")));
    place.write("volume/coarse/0.shard", foreign_shard());
    transcript(&place, "sharding-at-missing", &["get", "volume", "0"]);
    transcript(&place, "sharding-at-wrong", &["get", "volume", "0", "--sharding-at", "/scales/7"]);
    transcript(&place, "sharding-at", &["get", "volume", "0", "--sharding-at", "/scales/1"]);
}

#[test]
fn an_invalid_specification_names_its_option_or_file() {
    let place = Place::new();
    place.write("shards/0.shard", foreign_shard());
    place.write("spec.json", "{\"@type\": 7}");
    transcript(&place, "sharding-argument-invalid", &["get", "shards", "0", "--sharding", "{}"]);
    transcript(&place, "sharding-file-invalid", &["get", "shards", "0", "--sharding", "spec.json"]);
    transcript(&place, "sharding", &["get", "shards", "0", "--sharding", SHARDING]);
}

#[test]
fn options_without_effect_are_refused() {
    let place = Place::new();
    foreign(&place);
    transcript(&place, "get-decoded-of-database", &["get", "foreign", "0", "--decoded"]);
    let list = ["get-many", "foreign", "--keys", "-", "--decoded"];
    transcript_with_input(&place, "get-many-decoded-of-database", &list, "0\n");
    transcript(&place, "export-decoded-of-database", &["export", "foreign", "--format", "bin", "--decoded"]);
    transcript(&place, "verify-reads-without-checks", &["get", "foreign", "0", "--verify-reads", "always"]);
    transcript(&place, "get-fill-alone", &["get", "foreign", "0", "--fill"]);
    store(&place, "numbers");
    transcript(&place, "verify-reads", &["get", "numbers", "1", "--verify-reads", "always"]);
}

#[test]
fn positions_are_for_grids() {
    let place = Place::new();
    foreign(&place);
    place.copy("neuroglancer/image", "volume");
    transcript(&place, "at-without-grid", &["get", "foreign", "--at", "0,0,0"]);
    transcript(&place, "at-negative", &["get", "volume", "--at", "-1,0,0"]);
    transcript(&place, "at-outside", &["get", "volume", "--at", "99,0,0"]);
    transcript(&place, "contains-at", &["contains", "volume", "--at", "0,0,0"]);
    transcript(&place, "locate-at", &["locate", "volume", "--at", "1,0,0"]);
}

#[test]
fn an_export_needs_what_was_imported() {
    let place = Place::new();
    foreign(&place);
    for format in ["zarr", "bcolz"] {
        let args = ["export", "foreign", "--format", format, "--output", "out"];
        transcript(&place, &format!("export-{format}-of-other-data"), &args);
    }
}
