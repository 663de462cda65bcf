//! What changed between databases, and what applying the changes says.

use std::fs;

use super::{transcript, transcript_with_input};
use crate::common::{Place, SHARDING, foreign, generations, sharddb};

const BEFORE: &str =
    "{\"key\": 1, \"text\": \"one\"}\n{\"key\": 2, \"text\": \"two\"}\n{\"key\": 3, \"text\": \"three\"}\n";
const AFTER: &str = "{\"key\": 1, \"text\": \"one\"}\n{\"key\": 3, \"text\": \"THREE\"}\n\
                     {\"key\": 18446744073709551615, \"value\": [4]}\n";

fn build(place: &Place, store: &str, lines: &str, options: &[&str]) {
    let input = place.write("in.ndjson", lines);
    sharddb([&["build", &place.text(store), "--input", &input], options].concat()).expect(0);
}

/// Stores "old" and "new", of which "old" has gzip values.
fn stores(place: &Place) {
    build(place, "old", BEFORE, &["--data-encoding", "gzip"]);
    build(place, "new", AFTER, &[]);
}

#[test]
fn differences_of_two_stores() {
    let place = Place::new();
    stores(&place);
    transcript(&place, "diff", &["diff", "old", "new"]);
    transcript(&place, "diff-equal", &["diff", "old", "old"]);
    transcript(&place, "diff-count", &["diff", "old", "new", "--count"]);
    sharddb(["import", &place.text("new"), &place.text("copy")]).expect(0);
    transcript(&place, "diff-same-digest", &["diff", "new", "copy"]);
    fs::remove_file(place.path("copy/gen-0000000001/0.shard")).unwrap();
    transcript(&place, "diff-missing-shard", &["diff", "new", "copy"]);
    transcript(&place, "diff-json", &["diff", "old", "new", "--json"]);
    transcript(&place, "diff-ndjson", &["diff", "old", "new", "--format", "ndjson"]);
    let text = ["diff", "old", "new", "--format", "ndjson", "--as", "json", "--output", "changes.ndjson"];
    transcript(&place, "diff-output", &text);
    assert_eq!(
        fs::read_to_string(place.path("changes.ndjson")).unwrap(),
        "{\"key\":\"2\",\"old\":{\"text\":\"two\"},\"new\":null}\n\
         {\"key\":\"3\",\"old\":{\"text\":\"three\"},\"new\":{\"text\":\"THREE\"}}\n\
         {\"key\":\"18446744073709551615\",\"old\":null,\"new\":{\"value\":[4]}}\n",
    );
    transcript(&place, "diff-threads", &["diff", "old", "new", "--threads", "1"]);
    let opening = ["--storage", "heap", "--verify-reads", "always", "--max-value", "1KiB"];
    transcript(&place, "diff-opening", &[&["diff", "old", "new", "--count"], &opening[..]].concat());
}

#[test]
fn differences_of_generations() {
    let place = Place::new();
    build(&place, "numbers", BEFORE, &[]);
    transcript(&place, "diff-one-generation", &["diff", "numbers"]);
    build(&place, "numbers", AFTER, &[]);
    transcript(&place, "diff-generations", &["diff", "numbers"]);
    transcript(&place, "diff-from-to", &["diff", "numbers", "--from", "2", "--to", "gen-1"]);
    transcript(&place, "diff-from-missing", &["diff", "numbers", "--from", "7"]);
    transcript(&place, "diff-from-two-stores", &["diff", "numbers", "numbers", "--from", "1"]);
    sharddb(["rollback", &place.text("numbers")]).expect(0);
    transcript(&place, "diff-rolled-back", &["diff", "numbers", "--to", "2"]);
}

#[test]
fn differences_of_foreign_data() {
    let place = Place::new();
    foreign(&place);
    sharddb(["import", &place.text("foreign"), &place.text("store")]).expect(0);
    transcript(&place, "diff-foreign", &["diff", "foreign", "store"]);
    fs::create_dir(place.path("bare")).unwrap();
    fs::copy(place.path("foreign/0.shard"), place.path("bare/0.shard")).unwrap();
    transcript(&place, "diff-sharding", &["diff", "bare", "store", "--sharding", SHARDING]);
    place.write("volume/info", format!("{{\"scales\": [{{\"key\": \"s0\", \"sharding\": {SHARDING}}}]}}"));
    place.write("volume/s0/0.shard", fs::read(place.path("foreign/0.shard")).unwrap());
    transcript(&place, "diff-sharding-at", &["diff", "volume", "store", "--sharding-at", "/scales/0"]);
    transcript(&place, "diff-of-nothing", &["diff", "foreign", "nothing"]);
    transcript(&place, "diff-without-new", &["diff", "foreign"]);
}

#[test]
fn damage_is_no_difference() {
    let place = Place::new();
    let lines =
        |word: &str| (0..9).map(|key| format!("{{\"key\": {key}, \"text\": \"{word} {key}\"}}\n")).collect::<String>();
    build(&place, "old", &lines("old"), &["--sharding", SHARDING]);
    build(&place, "new", &lines("new"), &["--sharding", SHARDING]);
    let shard = place.path("old/current/0.shard");
    let mut bytes = fs::read(&shard).unwrap();
    let at = bytes.windows(5).position(|text| text == b"old 4").unwrap();
    bytes[at] ^= 1;
    fs::remove_file(&shard).unwrap();
    fs::write(&shard, bytes).unwrap();
    transcript(&place, "diff-damage", &["diff", "old", "new", "--count"]);
    transcript(&place, "diff-damage-ndjson", &["diff", "old", "new", "--format", "ndjson", "--as", "text"]);
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let place = Place::new();
    stores(&place);
    transcript(&place, "diff-as-without-ndjson", &["diff", "old", "new", "--as", "text"]);
    transcript(&place, "diff-output-in-old", &["diff", "old", "new", "--output", "old/current/x"]);
}

#[test]
fn changes_are_applied() {
    let place = Place::new();
    stores(&place);
    let patch = sharddb(["diff", &place.text("old"), &place.text("new"), "--format", "ndjson"]).expect(1);
    place.write("changes.ndjson", &patch.stdout);
    transcript(&place, "apply", &["apply", "old", "changes.ndjson"]);
    sharddb(["diff", &place.text("old"), &place.text("new")]).expect(0);
    transcript(&place, "apply-again", &["apply", "old", "changes.ndjson"]);
    transcript(&place, "apply-force", &["apply", "old", "changes.ndjson", "--force"]);
    sharddb(["diff", &place.text("old"), &place.text("new")]).expect(0);
    assert_eq!(generations(&place.text("old")), "gen-0000000001\ngen-0000000002  current\n");
    let again =
        ["apply", "old", "-", "--json", "--memory", "16MiB", "--temp-dir", ".", "--threads", "1", "--keep", "1"];
    let line = "{\"key\": 7, \"old\": null, \"new\": {\"text\": \"seven\"}}\n";
    transcript_with_input(&place, "apply-options", &again, line);
    transcript_with_input(&place, "apply-nothing", &["apply", "old", "-"], "");
}

/// The store stays as it is, whatever is wrong with a line.
#[test]
fn what_does_not_fit_is_not_applied() {
    let place = Place::new();
    build(&place, "numbers", BEFORE, &[]);
    let good = "{\"key\": 9, \"old\": null, \"new\": {\"text\": \"nine\"}}\n";
    let cases = [
        ("absent", "{\"key\": 8, \"old\": {\"text\": \"eight\"}, \"new\": null}\n"),
        ("present", "{\"key\": 1, \"old\": null, \"new\": {\"text\": \"ONE\"}}\n"),
        ("other-value", "{\"key\": 1, \"old\": {\"text\": \"ones\"}, \"new\": {\"text\": \"ONE\"}}\n"),
        ("other-preamble", "{\"key\": 1, \"old\": {\"preamble_b64\": \"cA==\", \"text\": \"one\"}, \"new\": null}\n"),
        ("malformed", "{\"key\": 1, \"old\": null}\n"),
        ("record", "{\"key\": 1, \"text\": \"one\"}\n"),
    ];
    for (name, line) in cases {
        transcript_with_input(&place, &format!("apply-{name}"), &["apply", "numbers", "-"], &format!("{good}{line}"));
    }
    transcript(&place, "apply-no-store", &["apply", "nothing", "in.ndjson"]);
    transcript(&place, "apply-no-patch", &["apply", "numbers", "nothing"]);
    assert_eq!(generations(&place.text("numbers")), "gen-0000000001  current\n");
    assert_eq!(place.names("numbers").iter().filter(|name| name.starts_with("tmp")).count(), 0);
}
