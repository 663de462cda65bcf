//! A plan does not depend on how the pairs are given, and a build without a specification uses it.

use std::fs;

use crate::common::{Place, foreign, sharddb, sharddb_with_input};
use serde_json::Value;

fn lines() -> String {
    (0..5000u64).map(|i| format!("{{\"key\":{},\"text\":\"{i}\"}}\n", i.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

fn sharding_of(args: &[&str]) -> Value {
    sharddb([&["plan", "--json"], args].concat()).expect(0).json_lines()[0]["sharding"].take()
}

#[test]
fn a_plan_of_inputs_is_that_of_the_database_and_of_the_build() {
    let place = Place::new();
    let (store, input) = (place.text("store"), place.write("in.ndjson", lines()));
    sharddb(["build", &store, "--input", &input]).expect(0);
    let built = &sharddb(["info", &store, "--json"]).expect(0).json_lines()[0]["sharding"];
    assert_eq!(&sharding_of(&["--input", &input]), built);
    assert_eq!(&sharding_of(&[&store]), built);
    assert_eq!(&sharding_of(&[&store, "--storage", "pread"]), built);
    let piped = sharddb_with_input(["plan", "--json", "--input", "-", "--format", "ndjson"], lines().as_bytes());
    assert_eq!(&piped.expect(0).json_lines()[0]["sharding"], built);
    assert_ne!(&sharding_of(&[&store, "--profile", "remote"]), built);
}

#[test]
fn a_plan_of_a_database_keeps_the_encoding_of_values() {
    let place = Place::new();
    let (store, input) = (place.text("store"), place.write("in.ndjson", lines()));
    sharddb(["build", &store, "--input", &input, "--data-encoding", "gzip"]).expect(0);
    assert_eq!(sharding_of(&[&store])["data_encoding"], "gzip");
}

#[test]
fn a_plan_is_what_build_takes() {
    let place = Place::new();
    let input = place.write("in.ndjson", lines());
    let run = sharddb(["plan", "--keys", "1000000", "--bytes", "1GB", "--profile", "cloudvolume", "--json"]).expect(0);
    let plan = place.write("plan.json", run.stdout);
    let store = place.text("store");
    sharddb(["build", &store, "--input", &input, "--sharding", &plan]).expect(0);
    let info = &sharddb(["info", &store, "--json"]).expect(0).json_lines()[0];
    // the result of cloud-volume for 1,000,000 keys: 1 shard bit, 9 minishard bits
    assert_eq!(
        (info["sharding"]["shard_bits"].as_u64(), info["sharding"]["minishard_bits"].as_u64()),
        (Some(1), Some(9))
    );
}

#[test]
fn a_plan_explains_itself() {
    let run = sharddb(["plan", "--keys", "1000", "--bytes", "100000"]).expect(0);
    let (first, rest) = run.text().split_once('\n').unwrap();
    assert!(serde_json::from_str::<Value>(first).unwrap()["minishard_bits"].is_u64());
    assert!(rest.contains("keys per minishard"), "{rest}");
}

#[test]
fn what_cannot_be_planned_is_told() {
    let place = Place::new();
    let db = foreign(&place);
    let bad = place.write("bad.bin", [0; 17]);
    let missing = place.text("missing");
    let cases: [(&[&str], i32); 10] = [
        (&[], 2),
        (&["--keys", "5"], 2),
        (&["--bytes", "5"], 2),
        (&["--keys", "-5", "--bytes", "5"], 2),
        (&["--keys", "5", "--bytes", "5", "--input", &bad], 2),
        (&[&db, "--keys", "5", "--bytes", "5"], 2),
        (&[&db, "--profile", "fast"], 2),
        (&["--input", &bad], 3),
        (&["--input", &missing], 4),
        (&[&missing], 4),
    ];
    for (args, code) in cases {
        let run = sharddb([&["plan"], args].concat());
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
        assert_eq!(run.text(), "", "{args:?}");
    }
    assert!(fs::exists(db).unwrap());
}
