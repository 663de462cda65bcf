//! The options that say how a database is opened: each verb that looks up or lists keys takes them, with the same effect.

use std::fs;

use super::transcript;
use crate::common::{Place, SHARDING, foreign_shard, sharddb};

/// The verbs, with arguments that lead to the value of key 5.
const VERBS: [(&str, &[&str]); 8] = [
    ("get", &["5"]),
    ("get-many", &["--key", "5"]),
    ("contains", &["5"]),
    ("locate", &["5"]),
    ("keys", &[]),
    ("export", &["--format", "ndjson", "--as", "text", "--key", "5"]),
    ("info", &[]),
    ("verify", &[]),
];

fn each_verb(place: &Place, topic: &str, path: &str, options: &[&str]) {
    for (verb, args) in VERBS {
        transcript(place, &format!("opening-{verb}-{topic}"), &[&[verb, path], args, options].concat());
    }
}

#[test]
fn every_storage_gives_the_same_answer() {
    let place = Place::new();
    place.write("foreign/info", format!("{{\"@type\": \"x\", \"sharding\": {SHARDING}}}"));
    place.write("foreign/0.shard", foreign_shard());
    for storage in ["mmap", "pread", "heap"] {
        for (verb, args) in VERBS {
            let path = place.text("foreign");
            let plain = sharddb([&[verb, &*path], args].concat()).expect(0);
            let run = sharddb([&[verb, &*path], args, &["--storage", storage]].concat()).expect(0);
            assert_eq!(run.stdout, plain.stdout, "{verb} {storage}");
        }
    }
    transcript(&place, "opening-storage-unknown", &["get", "foreign", "5", "--storage", "tape"]);
    each_verb(&place, "storage-heap", "foreign", &["--storage", "heap"]);
}

/// A directory without an info opens with a specification, and only with one.
#[test]
fn a_specification_takes_the_place_of_an_info() {
    let place = Place::new();
    place.write("bare/0.shard", foreign_shard());
    place.write("sharding.json", SHARDING);
    each_verb(&place, "sharding", "bare", &["--sharding", "sharding.json"]);
    each_verb(&place, "no-sharding", "bare", &[]);
}

#[test]
fn a_pointer_chooses_one_of_several_data_sets() {
    let place = Place::new();
    let scale = |key: &str| format!("{{\"key\": \"{key}\", \"sharding\": {SHARDING}}}");
    place.write("volume/info", format!("{{\"scales\": [{}, {}]}}", scale("s0"), scale("s1")));
    place.write("volume/s1/0.shard", foreign_shard());
    each_verb(&place, "sharding-at", "volume", &["--sharding-at", "/scales/1"]);
    each_verb(&place, "no-sharding-at", "volume", &[]);
}

/// The value of key 5 decodes to more bytes than --max-value.
#[test]
fn a_value_is_decoded_up_to_a_limit() {
    let place = Place::new();
    let input = place.write("in.ndjson", format!("{{\"key\": 5, \"text\": \"{}\"}}\n", "x".repeat(2000)));
    sharddb(["build", &place.text("store"), "--input", &input, "--data-encoding", "gzip"]).expect(0);
    each_verb(&place, "max-value", "store", &["--max-value", "1K"]);
    each_verb(&place, "max-value-enough", "store", &["--max-value", "2KB"]);
}

/// Builds a store of key 5 and changes bytes of its shard.
fn damaged(place: &Place, name: &str, from: &[u8], to: &[u8]) {
    let input = place.write("in.ndjson", "{\"key\": 5, \"text\": \"values\"}\n");
    sharddb(["build", &place.text(name), "--input", &input, "--sharding", SHARDING]).expect(0);
    let generation = format!("{name}/gen-0000000001");
    let shard = place.names(&generation).into_iter().find(|name| name.ends_with(".shard")).unwrap();
    let path = place.path(&generation).join(shard);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(from.len()).position(|bytes| bytes == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    fs::remove_file(&path).unwrap(); // it is read-only
    fs::write(&path, bytes).unwrap();
}

/// `value` has another value of key 5, `index` has another key in its place.
#[test]
fn reads_verify_what_they_read() {
    let place = Place::new();
    damaged(&place, "value", b"values", b"VALUES");
    damaged(&place, "index", &5_u64.to_le_bytes(), &7_u64.to_le_bytes());
    for when in ["never", "once", "always"] {
        for store in ["value", "index"] {
            each_verb(&place, &format!("{store}-verify-reads-{when}"), store, &["--verify-reads", when]);
        }
    }
}

#[test]
fn chunks_of_arrays_are_decoded_and_filled() {
    let place = Place::new();
    place.copy("zarr/arrays/rs_3d_u32_zstd_sparse.zarr", "array");
    transcript(&place, "opening-get-at", &["get", "array", "--at", "0,0,0", "-o", "stored"]);
    transcript(&place, "opening-get-decoded", &["get", "array", "--at", "0,0,0", "--decoded", "-o", "decoded"]);
    assert!(fs::read(place.path("stored")).unwrap() != fs::read(place.path("decoded")).unwrap());
    transcript(&place, "opening-get-not-filled", &["get", "array", "1", "--decoded", "-o", "filled"]);
    assert!(!place.path("filled").exists());
    transcript(&place, "opening-get-fill", &["get", "array", "1", "--decoded", "--fill", "-o", "filled"]);
    assert_eq!(fs::read(place.path("filled")).unwrap().len(), fs::read(place.path("decoded")).unwrap().len());
    transcript(&place, "opening-get-many-decoded", &["get-many", "array", "--key", "0", "--decoded"]);
    transcript(&place, "opening-get-many-stored", &["get-many", "array", "--key", "0"]);
    let export = ["export", "array", "--format", "dir", "--key", "0", "--output", "chunks", "--decoded"];
    transcript(&place, "opening-export-decoded", &export);
    assert_eq!(fs::read(place.path("chunks/0")).unwrap(), fs::read(place.path("decoded")).unwrap());
}

#[test]
fn a_column_of_a_table_is_opened() {
    let place = Place::new();
    place.copy("bcolz/b121_ctable", "trades");
    let column = ["--column", "price"];
    transcript(&place, "opening-get-column", &[&["get", "trades", "0", "-o", "price"][..], &column].concat());
    assert!(!fs::read(place.path("price")).unwrap().is_empty());
    transcript(&place, "opening-get-many-column", &[&["get-many", "trades", "--key", "0"][..], &column].concat());
    transcript(&place, "opening-keys-column", &[&["keys", "trades"][..], &column].concat());
    let export = ["export", "trades", "--format", "dir", "-o", "prices"];
    transcript(&place, "opening-export-column", &[&export[..], &column].concat());
    assert_eq!(fs::read(place.path("prices/0")).unwrap(), fs::read(place.path("price")).unwrap());
}
