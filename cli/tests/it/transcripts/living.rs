//! `update`, `put`, `delete`, `merge`, `reshard` and `copy`: what each option does, as the printed report shows it.

use super::{transcript, transcript_with_input};
use crate::common::{Place, SHARDING, foreign, sharddb};
use std::fs;

const NUMBERS: &str =
    "{\"key\": 1, \"text\": \"one\"}\n{\"key\": 2, \"text\": \"two\"}\n{\"key\": 3, \"text\": \"three\"}\n";

/// A place with the store `numbers` and an empty directory `spill`.
fn numbers() -> Place {
    let place = Place::new();
    let input = place.write("numbers.ndjson", NUMBERS);
    sharddb(["build", &place.text("numbers"), "--input", &input, "--sharding", SHARDING]).expect(0);
    fs::create_dir(place.path("spill")).unwrap();
    place
}

#[test]
fn updates_put_and_delete() {
    let place = numbers();
    place.write("changed.ndjson", "{\"key\": 2, \"text\": \"zwei\"}\n{\"key\": 5, \"text\": \"five\"}\n");
    place.write("later.csv", "key,name\n5,fuenf\n");
    place.write("gone.txt", "3\n99\n");
    let update = ["update", "numbers", "--input", "changed.ndjson", "later.csv"];
    transcript(&place, "update", &[&update[..], &["--value-column", "name", "--delete", "gone.txt"]].concat());
    transcript(&place, "update-result", &["export", "numbers", "--format", "ndjson", "--as", "text"]);
    transcript(&place, "update-nothing", &["update", "numbers", "--delete", "gone.txt"]);
    transcript(&place, "update-strict", &["update", "numbers", "--delete", "gone.txt", "--strict"]);
    let empty = ["update", "numbers", "--input", "-", "--format", "bin"];
    transcript_with_input(&place, "update-no-pairs", &empty, "");
    transcript(
        &place,
        "update-json-keep",
        &["update", "numbers", "--input", "changed.ndjson", "--json", "--keep", "1"],
    );
    let limits = ["--memory", "16MiB", "--temp-dir", "spill", "--threads", "1"];
    transcript(&place, "update-limits", &[&["update", "numbers", "--input", "changed.ndjson"], &limits[..]].concat());
    place.write("people.ndjson", "{\"id\": 7, \"name\": \"x\"}\n");
    transcript(&place, "update-key-field", &["update", "numbers", "--input", "people.ndjson", "--key-field", "id"]);
    place.write("files/8", "eight");
    place.write("files/9.json", "{}");
    transcript(&place, "update-ignore", &["update", "numbers", "--input", "files", "--ignore", "*.json"]);
    place.write("tree/00/0012.json", "twelve");
    let names = ["--recursive", "--suffix", ".json", "--name-base", "10"];
    transcript(&place, "update-names", &[&["update", "numbers", "--input", "tree"], &names[..]].concat());
    place.write("rows.csv", "x,10\ny,11\n");
    let columns = ["--key-column", "2", "--value-column", "1", "--no-header"];
    transcript(&place, "update-columns", &[&["update", "numbers", "--input", "rows.csv"], &columns[..]].concat());
    transcript(&place, "update-without-changes", &["update", "numbers"]);
    transcript(&place, "update-no-store", &["update", "missing", "--input", "changed.ndjson"]);
}

#[test]
fn updates_have_any_base() {
    let place = numbers();
    foreign(&place);
    place.write("new.ndjson", "{\"key\": 4, \"text\": \"four\"}\n");
    transcript(&place, "update-foreign", &["update", "foreign", "--input", "new.ndjson"]);
    transcript(&place, "update-base", &["update", "store", "--base", "foreign", "--input", "new.ndjson"]);
    transcript(&place, "update-base-result", &["export", "store", "--format", "ndjson", "--as", "text"]);
    place.write("bare/0.shard", fs::read(place.path("foreign/0.shard")).unwrap());
    let bare = ["update", "store", "--base", "bare", "--input", "new.ndjson", "--sharding", SHARDING];
    transcript(&place, "update-base-sharding", &bare);
    place.write("nested/info", format!("{{\"by_id\": {{\"key\": \"ids\", \"sharding\": {SHARDING}}}}}"));
    place.write("nested/ids/0.shard", fs::read(place.path("foreign/0.shard")).unwrap());
    let nested = ["update", "store", "--base", "nested", "--input", "new.ndjson", "--sharding-at", "/by_id"];
    transcript(&place, "update-base-sharding-at", &nested);
    place.write("long/1", "x".repeat(5000));
    sharddb(["build", &place.text("gzip"), "--input", &place.text("long"), "--data-encoding", "gzip"]).expect(0);
    fs::create_dir(place.path("data")).unwrap();
    for file in ["0.shard", "info"] {
        fs::copy(place.path("gzip/current").join(file), place.path("data").join(file)).unwrap();
    }
    let limited = ["update", "store", "--base", "data", "--input", "new.ndjson", "--max-value", "4KiB"];
    transcript(&place, "update-base-max-value", &limited);
}

#[test]
fn single_keys_are_put_and_deleted() {
    let place = numbers();
    transcript_with_input(&place, "put", &["put", "numbers", "4"], "four");
    transcript(&place, "put-value-json-keep", &["put", "numbers", "0x5", "--value", "five", "--json", "--keep", "1"]);
    transcript(&place, "put-at", &["put", "numbers", "--at", "1,2,3", "--value", "x"]);
    transcript(&place, "put-no-store", &["put", "missing", "1", "--value", "x"]);
    transcript(&place, "delete", &["delete", "numbers", "4", "0x5", "99"]);
    transcript(&place, "delete-absent", &["delete", "numbers", "99"]);
    transcript(&place, "delete-strict", &["delete", "numbers", "1", "99", "--strict"]);
    transcript(&place, "delete-json-keep", &["delete", "numbers", "1", "--json", "--keep", "1"]);
    transcript(&place, "delete-at", &["delete", "numbers", "--at", "1,2,3"]);
}

#[test]
fn merges_join_databases() {
    let place = numbers();
    foreign(&place);
    place.write("more.ndjson", "{\"key\": 3, \"text\": \"drei\"}\n{\"key\": 6, \"text\": \"six\"}\n");
    sharddb(["build", &place.text("more"), "--input", &place.text("more.ndjson")]).expect(0);
    let merge = ["merge", "all", "numbers", "more"];
    let with = |options: &[&'static str]| [&merge[..], options].concat();
    transcript(&place, "merge-duplicate", &merge);
    transcript(&place, "merge-concat", &with(&["--on-duplicate", "concat"]));
    transcript(&place, "merge-result", &["export", "all", "--format", "ndjson", "--as", "text"]);
    let planned = ["--profile", "remote", "--max-shard-bytes", "1MiB", "--index-encoding", "raw"];
    transcript(&place, "merge-planned", &[&with(&["--on-duplicate", "first"])[..], &planned].concat());
    let limits = ["--memory", "16MiB", "--temp-dir", "spill", "--threads", "1", "--ordered", "--json", "--keep", "1"];
    transcript(&place, "merge-limits", &[&with(&["--on-duplicate", "last"])[..], &limits].concat());
    transcript(&place, "merge-foreign", &["merge", "all", "numbers", "foreign", "--data-encoding", "gzip"]);
    place.write("info", "{\"@type\": \"y\"}");
    let info = ["merge", "all", "numbers", "foreign", "--info", "info", "--sharding", SHARDING];
    transcript(&place, "merge-info-sharding", &info);
    place.write("empty/info", format!("{{\"sharding\": {SHARDING}}}"));
    transcript(&place, "merge-empty", &["merge", "all", "empty"]);
    transcript(&place, "merge-allow-empty", &["merge", "all", "empty", "--allow-empty"]);
    place.write("nested/info", format!("{{\"by_id\": {{\"key\": \"ids\", \"sharding\": {SHARDING}}}}}"));
    place.write("nested/ids/0.shard", fs::read(place.path("foreign/0.shard")).unwrap());
    let nested = ["merge", "all", "nested", "--sharding-at", "/by_id", "--max-value", "1KiB"];
    transcript(&place, "merge-sharding-at-max-value", &nested);
    transcript(&place, "merge-inside", &["merge", "more/new", "numbers", "more"]);
}

#[test]
fn reshard_changes_the_specification() {
    let place = numbers();
    foreign(&place);
    let reshard = ["reshard", "numbers", "new"];
    let with = |options: &[&'static str]| [&reshard[..], options].concat();
    transcript(&place, "reshard-nothing", &reshard);
    transcript(&place, "reshard-profile", &with(&["--profile", "remote", "--max-shard-bytes", "1MiB"]));
    transcript(&place, "reshard-encodings", &with(&["--data-encoding", "gzip", "--index-encoding", "gzip"]));
    transcript(&place, "reshard-sharding", &["reshard", "foreign", "new", "--sharding", SHARDING]);
    let limits = ["--memory", "16MiB", "--temp-dir", "spill", "--threads", "1", "--ordered", "--json", "--keep", "1"];
    transcript(&place, "reshard-limits", &[&with(&["--profile", "local"])[..], &limits].concat());
    place.write("nested/info", format!("{{\"by_id\": {{\"key\": \"ids\", \"sharding\": {SHARDING}}}}}"));
    place.write("nested/ids/0.shard", fs::read(place.path("foreign/0.shard")).unwrap());
    let nested = ["reshard", "nested", "new", "--sharding-at", "/by_id", "--max-value", "1KiB", "--profile", "local"];
    transcript(&place, "reshard-sharding-at-max-value", &nested);
    place.write("empty/info", format!("{{\"sharding\": {SHARDING}}}"));
    transcript(&place, "reshard-empty", &["reshard", "empty", "new", "--profile", "local"]);
    transcript(&place, "reshard-allow-empty", &["reshard", "empty", "new", "--profile", "local", "--allow-empty"]);
}

#[test]
fn copies_take_some_pairs() {
    let place = numbers();
    foreign(&place);
    place.write("some.txt", "1\n99\n");
    transcript(&place, "copy-keys", &["copy", "numbers", "some", "--keys", "some.txt", "--key", "0x2"]);
    transcript(&place, "copy-range", &["copy", "numbers", "some", "--range", "2..=3"]);
    transcript(&place, "copy-result", &["export", "some", "--format", "ndjson", "--as", "text"]);
    transcript(&place, "copy-nothing-stated", &["copy", "numbers", "some"]);
    transcript(&place, "copy-empty-range", &["copy", "numbers", "some", "--range", "50.."]);
    transcript(&place, "copy-allow-empty", &["copy", "numbers", "some", "--range", "50..", "--allow-empty"]);
    let planned = ["--profile", "remote", "--max-shard-bytes", "1MiB", "--index-encoding", "raw"];
    let all = ["copy", "numbers", "some", "--range", ".."];
    transcript(&place, "copy-planned", &[&all[..], &["--data-encoding", "gzip"], &planned].concat());
    let limits = ["--memory", "16MiB", "--temp-dir", "spill", "--threads", "1", "--ordered", "--json", "--keep", "1"];
    transcript(&place, "copy-limits", &[&all[..], &limits].concat());
    transcript(&place, "copy-sharding", &["copy", "foreign", "some", "--range", "4..", "--sharding", SHARDING]);
    place.write("nested/info", format!("{{\"by_id\": {{\"key\": \"ids\", \"sharding\": {SHARDING}}}}}"));
    place.write("nested/ids/0.shard", fs::read(place.path("foreign/0.shard")).unwrap());
    let nested = ["copy", "nested", "some", "--range", "..5", "--sharding-at", "/by_id", "--max-value", "1KiB"];
    transcript(&place, "copy-sharding-at-max-value", &nested);
}

#[test]
fn builds_join_values_and_limit_shards() {
    let place = Place::new();
    place.write("a.ndjson", NUMBERS);
    let build = ["build", "s", "--input", "a.ndjson", "a.ndjson", "--on-duplicate", "concat"];
    transcript(&place, "build-concat", &[&build[..], &["--max-shard-bytes", "1MiB"]].concat());
    transcript(&place, "build-concat-result", &["get", "s", "3"]);
}
