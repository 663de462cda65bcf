//! Lookups and lists: what `get`, `get-many`, `contains`, `locate`, `keys` and `export` write for each of their options.

use std::fs;

use super::{transcript, transcript_with_input};
use crate::common::{Place, foreign, sharddb};

/// A store of three keys: text, JSON and other bytes.
fn values(place: &Place) {
    let lines = [
        r#"{"key": 1, "text": "one"}"#,
        r#"{"key": 2, "value": {"two": [2.50, null]}}"#,
        r#"{"key": 18446744073709551615, "value_b64": "/wA="}"#,
    ];
    let input = place.write("values.ndjson", lines.join("\n"));
    sharddb(["build", &place.text("values"), "--input", &input]).expect(0);
}

#[test]
fn get_writes_to_a_file_or_a_directory() {
    let place = Place::new();
    values(&place);
    transcript(&place, "lookups-get", &["get", "values", "1"]);
    transcript(&place, "lookups-get-absent", &["get", "values", "7"]);
    transcript(&place, "lookups-get-output", &["get", "values", "2", "--output", "two.json"]);
    assert_eq!(fs::read(place.path("two.json")).unwrap(), br#"{"two":[2.50,null]}"#);
    transcript(&place, "lookups-get-output-absent", &["get", "values", "7", "--output", "two.json"]);
    assert!(fs::exists(place.path("two.json")).unwrap(), "a key that is absent replaces nothing");

    let max = u64::MAX.to_string();
    transcript(&place, "lookups-get-several", &["get", "values", "1", &max]);
    transcript(&place, "lookups-get-several-output", &["get", "values", "1", "7", &max, "-o", "several"]);
    assert_eq!(place.names("several"), ["1", &max]);
    assert_eq!(fs::read(place.path("several").join(&max)).unwrap(), [0xff, 0]);
    transcript(&place, "lookups-get-several-again", &["get", "values", "1", "2", "-o", "several"]);
    transcript(&place, "lookups-get-output-in-source", &["get", "values", "1", "-o", "values/current/0.shard"]);
}

#[test]
fn get_takes_preambles_and_positions() {
    let place = Place::new();
    foreign(&place);
    transcript(&place, "lookups-get-preamble", &["get", "foreign", "5", "--preamble", "3"]);
    transcript(&place, "lookups-get-at", &["get", "foreign", "--at", "1,2,3"]);
    for storage in ["mmap", "pread", "heap"] {
        let name = format!("lookups-get-storage-{storage}");
        transcript(&place, &name, &["get", "foreign", "5", "--storage", storage]);
    }
}

#[test]
fn get_many_takes_keys_from_the_command_line_and_from_lists() {
    let place = Place::new();
    values(&place);
    place.write("keys.txt", "2\n0x7\n");
    transcript(&place, "lookups-get-many-keys", &["get-many", "values", "--keys", "keys.txt"]);
    transcript(&place, "lookups-get-many-key", &["get-many", "values", "--key", "1", "--key", "0x7"]);
    let both = ["get-many", "values", "--key", "1", "--keys", "keys.txt", "--values"];
    transcript(&place, "lookups-get-many-values", &both);
    let piped = ["get-many", "values", "--keys", "-"];
    transcript_with_input(&place, "lookups-get-many-pipe", &piped, "1\nfive\n");
    transcript_with_input(&place, "lookups-get-many-mark", &piped, "\u{feff}1\n");
    transcript(&place, "lookups-get-many-nothing", &["get-many", "values"]);
}

#[test]
fn contains_and_locate_say_whether_and_where() {
    let place = Place::new();
    foreign(&place);
    transcript(&place, "lookups-contains", &["contains", "foreign", "5"]);
    transcript(&place, "lookups-contains-absent", &["contains", "foreign", "6"]);
    transcript(&place, "lookups-locate", &["locate", "foreign", "5"]);
    transcript(&place, "lookups-locate-absent", &["locate", "foreign", "6"]);
}

#[test]
fn keys_are_listed_or_counted() {
    let place = Place::new();
    foreign(&place);
    transcript(&place, "lookups-keys", &["keys", "foreign"]);
    transcript(&place, "lookups-keys-shard", &["keys", "foreign", "--shard", "0"]);
    transcript(&place, "lookups-keys-count", &["keys", "foreign", "--count"]);
    transcript(&place, "lookups-keys-shard-count", &["keys", "foreign", "--shard", "1", "--count"]);
}

#[test]
fn keys_and_pairs_of_a_range_are_in_order() {
    let place = Place::new();
    let lines: Vec<_> = (0..40).map(|key| format!(r#"{{"key": {}, "text": "{key}"}}"#, key * 7 % 40 * 10)).collect();
    let input = place.write("pairs.ndjson", lines.join("\n"));
    sharddb(["build", &place.text("plain"), "--input", &input]).expect(0);
    transcript(&place, "lookups-build-ordered", &["build", "ordered", "--input", "pairs.ndjson", "--ordered"]);
    let transcript_of = |name: &str, args: &[&str]| transcript(&place, &format!("lookups-order-{name}"), args);
    transcript_of("keys", &["keys", "plain", "--range", "95..130"]);
    transcript_of("keys-closed", &["keys", "plain", "--range", "0x64..=0x82", "--reverse"]);
    transcript_of("keys-count", &["keys", "plain", "--range", "..100", "--count"]);
    transcript_of("keys-sorted", &["keys", "ordered", "--range", "350..", "--sorted"]);
    transcript_of("keys-memory", &["keys", "plain", "--range", "380..", "--memory", "64MiB", "--temp-dir", "."]);
    transcript_of("keys-no-range", &["keys", "plain", "--range", "7"]);
    transcript_of("keys-reversed-range", &["keys", "plain", "--range", "9..7"]);
    transcript_of("keys-memory-alone", &["keys", "plain", "--memory", "64MiB"]);
    transcript_of("keys-shard", &["keys", "plain", "--shard", "0", "--sorted"]);
    let export =
        |more: &[&'static str]| [&["export", "ordered", "--format", "ndjson", "--as", "text"][..], more].concat();
    transcript_of("export", &export(&["--range", "100..=120"]));
    transcript_of("export-reverse", &export(&["--range", "..30", "--reverse", "--memory", "64MiB", "--temp-dir", "."]));
    transcript_of("export-keys", &export(&["--sorted", "--key", "10"]));
    transcript_of("info", &["info", "ordered"]);

    let keys = |args: &[&str]| sharddb([&["keys"], args].concat()).expect(0).text().to_string();
    let (plain, ordered) = (place.text("plain"), place.text("ordered"));
    let sorted: String = (0..40).map(|key| format!("{}\n", key * 10)).collect();
    assert_eq!(keys(&[&plain, "--sorted"]), sorted);
    assert_eq!(keys(&[&ordered, "--sorted"]), sorted);
    let all = sharddb(["export", &ordered, "--format", "ndjson", "--as", "text", "--sorted"]).expect(0);
    let keys_of: Vec<u64> =
        all.json_lines().iter().map(|line| line["key"].as_str().unwrap().parse().unwrap()).collect();
    assert!(keys_of.is_sorted() && keys_of.len() == 40);
}

#[test]
fn exported_values_are_readable() {
    let place = Place::new();
    values(&place);
    let export = |more: &[&'static str]| [&["export", "values", "--format", "ndjson"][..], more].concat();
    transcript(&place, "lookups-export-base64", &export(&["--as", "base64"]));
    transcript(&place, "lookups-export-text", &export(&["--as", "text"]));
    transcript(&place, "lookups-export-json", &export(&["--as", "json"]));
    transcript(&place, "lookups-export-key", &export(&["--as", "json", "--key", "1", "--key", "9"]));
    place.write("keys.txt", "2\n");
    transcript(
        &place,
        "lookups-export-keys",
        &export(&["--keys", "keys.txt", "--key", "1", "--output", "some.ndjson"]),
    );
    assert_eq!(fs::read_to_string(place.path("some.ndjson")).unwrap().lines().count(), 2);
    transcript(&place, "lookups-export-no-verify", &export(&["--no-verify", "--key", "1"]));
    transcript(&place, "lookups-export-as-of-bin", &["export", "values", "--format", "bin", "--as", "text"]);
}

/// Whatever --as writes, build reads it as the same bytes.
#[test]
fn readable_values_are_built_into_the_same_bytes() {
    let place = Place::new();
    let values: [&[u8]; 12] = [
        b"",
        b"null",
        b" null",
        b"{\"a\": 1}",
        b"{\"a\":1}",
        b"1e400",
        b"\"\\ud800\"",
        b"[1,2",
        "\u{feff}{}".as_bytes(),
        b"line\nline\r\0\x7f",
        b"\xff\xfe",
        b"{\"a\":1}\n",
    ];
    for (key, value) in values.iter().enumerate() {
        place.write(&format!("in/{key}"), value);
    }
    let store = place.text("store");
    sharddb(["build", &store, "--input", &place.text("in")]).expect(0);
    let all = sharddb(["export", &store, "--format", "bin"]).expect(0).stdout;
    for values in ["base64", "text", "json"] {
        let (again, lines) = (place.text(&format!("again-{values}")), place.text(&format!("{values}.ndjson")));
        sharddb(["export", &store, "--format", "ndjson", "--as", values, "-o", &lines]).expect(0);
        sharddb(["build", &again, "--input", &lines]).expect(0);
        assert!(sharddb(["export", &again, "--format", "bin"]).expect(0).stdout == all, "{values}");
    }
}
