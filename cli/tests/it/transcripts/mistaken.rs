//! First moves that are wrong, and what the message says to do instead. Each piece of advice is followed.

use std::fs;

use super::transcript;
use crate::common::{Place, foreign, sharddb};

const NUMBERS: &str = "{\"key\": 1, \"text\": \"one\"}\n{\"key\": 2, \"text\": \"two\"}\n";

fn numbers(place: &Place) {
    place.write("numbers.ndjson", NUMBERS);
    sharddb(["build", &place.text("numbers"), "--input", &place.text("numbers.ndjson")]).expect(0);
}

#[test]
fn a_value_or_path_without_its_option() {
    let place = Place::new();
    numbers(&place);
    transcript(&place, "build-without-input", &["build", "store", "numbers.ndjson"]);
    transcript(&place, "build-input-first", &["build", "--input", "numbers.ndjson", "store"]);
    transcript(&place, "put-without-value", &["put", "numbers", "8", "x"]);
    transcript(&place, "export-without-output", &["export", "numbers", "out.ndjson"]);
    transcript(&place, "salvage-json", &["salvage", "numbers", "out", "--json"]);
    transcript(&place, "get-many-keys-given", &["get-many", "numbers", "1", "7", "--key", "2"]);
}

#[test]
fn merge_with_the_store_last() {
    let place = Place::new();
    numbers(&place);
    place.write("more.ndjson", "{\"key\": 3, \"text\": \"three\"}\n");
    sharddb(["build", &place.text("more"), "--input", &place.text("more.ndjson")]).expect(0);
    transcript(&place, "merge-store-last", &["merge", "numbers", "more", "all"]);
    fs::create_dir(place.path("empty")).unwrap();
    transcript(&place, "merge-directory-last", &["merge", "numbers", "more", "empty"]);
    transcript(&place, "merge-store-first", &["merge", "all", "numbers", "more"]);
    assert!(!place.path("numbers/gen-0000000002").exists() && !place.path("more/gen-0000000002").exists());
}

#[test]
fn names_say_how_to_write_and_read() {
    let place = Place::new();
    numbers(&place);
    transcript(&place, "export-gz", &["export", "numbers", "--output", "out.ndjson.gz"]);
    assert_eq!(fs::read(place.path("out.ndjson.gz")).unwrap()[..2], [0x1f, 0x8b]);
    sharddb(["build", &place.text("copy"), "--input", &place.text("out.ndjson.gz")]).expect(0);
    sharddb(["diff", &place.text("numbers"), &place.text("copy")]).expect(0);
    transcript(&place, "export-zst", &["export", "numbers", "--output", "out.ndjson.zst"]);
    transcript(&place, "export-no-format", &["export", "numbers", "--output", "out.txt"]);
    transcript(&place, "export-csv", &["export", "numbers", "--output", "out.csv"]);
    place.write("pairs.parquet", "PAR1");
    transcript(&place, "build-parquet", &["build", "store", "--input", "pairs.parquet"]);
}

#[test]
fn a_pointer_without_its_slash() {
    let place = Place::new();
    foreign(&place);
    transcript(&place, "sharding-at-without-slash", &["info", "foreign", "--sharding-at", "scales/0"]);
}

#[test]
fn reshard_adds_a_key_file() {
    let place = Place::new();
    numbers(&place);
    transcript(&place, "reshard-ordered", &["reshard", "numbers", "numbers", "--ordered"]);
    assert!(place.path("numbers/current/keys").exists());
}

#[test]
fn a_database_is_no_tree_of_files() {
    let place = Place::new();
    numbers(&place);
    foreign(&place);
    transcript(&place, "build-input-store", &["build", "store", "--input", "numbers", "--recursive"]);
    transcript(&place, "build-input-data-set", &["build", "store", "--input", "foreign"]);
    fs::remove_file(place.path("numbers/current")).unwrap();
    sharddb(["build", &place.text("store"), "--input", &place.text("numbers")]).expect(2);
    assert!(!place.path("store").exists());
}

#[test]
fn changes_go_where_they_are_named() {
    let place = Place::new();
    numbers(&place);
    place.write("more.ndjson", "{\"key\": 3, \"text\": \"three\"}\n");
    sharddb(["build", &place.text("more"), "--input", &place.text("more.ndjson")]).expect(0);
    transcript(&place, "diff-into-store", &["diff", "numbers", "more", "--output", "numbers/changes"]);
    assert!(!place.path("numbers/changes").exists());
    transcript(&place, "diff-named-ndjson", &["diff", "numbers", "more", "--output", "changes.ndjson.gz"]);
    sharddb(["apply", &place.text("numbers"), &place.text("changes.ndjson.gz")]).expect(0);
    sharddb(["diff", &place.text("numbers"), &place.text("more")]).expect(0);
}

#[test]
fn a_copy_without_its_manifest() {
    let place = Place::new();
    numbers(&place);
    for (name, bytes) in place.files("numbers/current") {
        if name != "manifest.json" {
            place.write(&format!("incoming/{name}"), bytes);
        }
    }
    transcript(&place, "publish-without-manifest", &["publish", "store", "--from", "incoming"]);
    transcript(&place, "import-without-manifest", &["import", "incoming", "store"]);
    transcript(&place, "merge-without-manifest", &["merge", "all", "numbers", "incoming", "--on-duplicate", "first"]);
    transcript(&place, "salvage-without-manifest", &["salvage", "incoming", "whole"]);
}
