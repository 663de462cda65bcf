//! `plan`: what each option does.

use super::transcript;
use crate::common::{Place, SHARDING, foreign, foreign_shard, sharddb};

#[test]
fn plan_of_counts() {
    let place = Place::new();
    transcript(&place, "plan-keys-bytes", &["plan", "--keys", "1000000", "--bytes", "1GB"]);
    transcript(
        &place,
        "plan-profile",
        &["plan", "--keys", "1000000", "--bytes", "1GB", "--profile", "remote", "--json"],
    );
}

#[test]
fn plan_of_inputs() {
    let place = Place::new();
    place.write("people.txt", "{\"id\": 7, \"name\": \"x\"}\n");
    transcript(
        &place,
        "plan-input",
        &["plan", "--input", "people.txt", "--format", "ndjson", "--key-field", "id", "--memory", "64MiB", "--json"],
    );
    for name in ["7", "8", "info", "README.md"] {
        place.write(&format!("files/{name}"), name.repeat(200));
    }
    transcript(
        &place,
        "plan-ignore",
        &["plan", "--input", "files", "--ignore", "*.md", "--json", "--profile", "remote"],
    );
    place.write("tree/00/0xB.json", "eleven");
    let names = ["--recursive", "--suffix", ".json", "--name-base", "16"];
    transcript(&place, "plan-names", &[&["plan", "--input", "tree"], &names[..], &["--json"]].concat());
    place.write("long.ndjson", format!("{{\"key\": 1, \"text\": \"{}\"}}\n", "x".repeat(4 << 20)));
    transcript(&place, "plan-memory", &["plan", "--input", "long.ndjson", "--memory", "16MiB", "--json"]);
}

#[test]
fn plan_of_a_database() {
    let place = Place::new();
    foreign(&place);
    place.write("bare/0.shard", foreign_shard());
    transcript(&place, "plan-db", &["plan", "foreign", "--json", "--storage", "heap"]);
    let run = |args: &[&str]| sharddb([&["plan", "--json"], args].concat()).expect(0).stdout;
    transcript(&place, "plan-sharding", &["plan", "bare", "--json", "--sharding", SHARDING]);
    assert_eq!(run(&[&place.text("bare"), "--sharding", SHARDING]), run(&[&place.text("foreign")]));
    transcript(&place, "plan-ignore-without-input", &["plan", "foreign", "--ignore", "x"]);
    place.write("nested/info", format!("{{\"scales\": [{{\"key\": \"s0\", \"sharding\": {SHARDING}}}]}}"));
    place.write("nested/s0/0.shard", foreign_shard());
    transcript(&place, "plan-sharding-at", &["plan", "nested", "--json", "--sharding-at", "/scales/0"]);
    assert_eq!(run(&[&place.text("nested"), "--sharding-at", "/scales/0"]), run(&[&place.text("foreign")]));

    place.write("long/1", "x".repeat(5000));
    sharddb(["build", &place.text("gzip"), "--input", &place.text("long"), "--data-encoding", "gzip"]).expect(0);
    // a plan reads lengths, not values
    transcript(
        &place,
        "plan-max-value-verify-reads",
        &["plan", "gzip", "--json", "--max-value", "1B", "--verify-reads", "always"],
    );
}
