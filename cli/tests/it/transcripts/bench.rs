//! `bench`: what each option does. The cells of the table, which are times and sizes, are not part of a transcript.

use crate::common::{Place, SHARDING, Start, command, foreign, foreign_shard, sharddb};
use std::fs;

fn files(place: &Place) {
    for key in 0..40 {
        place.write(&format!("files/{key}"), "x".repeat(key));
    }
    place.write("files/info", "{}");
}

/// A transcript without times, sizes on disk and the machine.
fn table(place: &Place, name: &str, args: &[&str]) {
    let varies = [
        (r"(?m)^(\| [^|]+\|).*$", "$1 [CELLS]"),
        (r"(?m)^\|-.*$", "|-"),
        (r"(?m)^ShardDb 0.*$", "[MACHINE]"),
        (r"(?m)^\{.*\}$", "[ONE LINE OF JSON]"),
        (r"\.sharddb-bench-[0-9a-f]{32}", ".sharddb-bench-[RANDOM]"),
    ];
    let output = command(args).current_dir(place.path("")).start().end();
    super::compare(&varies, name, args, "", &output);
}

#[test]
fn bench_of_a_directory() {
    let place = Place::new();
    files(&place);
    place.write("files/notes.txt", "");
    fs::create_dir(place.path("scratch")).unwrap();
    table(&place, "bench-another-name", &["bench", "--input", "files"]);
    let input = ["bench", "--input", "files", "--ignore", "*.txt"];
    table(&place, "bench-ignore-lookups-cold", &[&input[..], &["--lookups", "7", "--cold", "no"]].concat());
    table(&place, "bench-temp-dir", &[&input[..], &["--temp-dir", "scratch", "--cold", "no"]].concat());
    assert_eq!(place.names("scratch"), [""; 0]);
    table(&place, "bench-temp-dir-missing", &[&input[..], &["--temp-dir", "missing"]].concat());
    table(&place, "bench-json", &[&input[..], &["--json", "--cold", "no"]].concat());
    table(&place, "bench-lookups-none", &[&input[..], &["--lookups", "0"]].concat());
    place.write("tree/00/0xB.json", "eleven");
    place.write("tree/.git/HEAD", "");
    let names = ["--recursive", "--suffix", ".json", "--name-base", "16", "--cold", "no"];
    table(&place, "bench-names", &[&["bench", "--input", "tree"], &names[..]].concat());
    table(&place, "bench-names-store", &["bench", "store", "--recursive"]);
    table(&place, "bench-cold-unknown", &[&input[..], &["--cold", "warm"]].concat());
}

#[test]
fn bench_opens_a_database_as_the_options_say() {
    let place = Place::new();
    foreign(&place);
    place.write("bare/0.shard", foreign_shard());
    place.write("nested/info", format!("{{\"scales\": [{{\"key\": \"s0\", \"sharding\": {SHARDING}}}]}}"));
    place.write("nested/s0/0.shard", foreign_shard());
    let cases: [(&str, &[&str]); 3] = [
        ("bench-storage-verify-reads", &["foreign", "--storage", "heap", "--verify-reads", "never"]),
        ("bench-sharding", &["bare", "--sharding", SHARDING]),
        ("bench-sharding-at", &["nested", "--sharding-at", "/scales/0"]),
    ];
    for (name, args) in cases {
        table(&place, name, &[&["bench"], args, &["--lookups", "2", "--cold", "no"]].concat());
    }
    table(&place, "bench-bare-without-sharding", &["bench", "bare"]);
    place.write("long/1", "x".repeat(5000));
    sharddb(["build", &place.text("gzip"), "--input", &place.text("long"), "--data-encoding", "gzip"]).expect(0);
    table(&place, "bench-max-value", &["bench", "gzip", "--max-value", "4KiB"]);
}
