//! No text from a file or a name reaches the terminal as a control sequence.

use std::fs;

use crate::common::{Place, data, foreign, foreign_shard, sharddb};

/// Sets the window title, then shows the rest from right to left. U+009B starts a sequence as ESC [ does.
const EVIL: &str = "\u{1b}]0;pwned\u{7}\u{9b}31m\u{202e}txt\u{7f}";

/// `EVIL` as it must be shown.
const SHOWN: &str = r"\u{1b}]0;pwned\u{7}\u{9b}31m\u{202e}txt\u{7f}";

#[track_caller]
fn assert_harmless(text: &str) {
    assert_no_controls(text);
    assert!(text.contains(SHOWN), "{text:?}");
}

#[track_caller]
fn assert_no_controls(text: &str) {
    let harmful = |c: &char| (c.is_control() && *c != '\n') || ('\u{202a}'..='\u{202e}').contains(c);
    assert_eq!(text.chars().find(harmful), None, "{text:?}");
}

#[test]
fn contents_of_inputs_are_escaped() {
    let place = Place::new();
    let member = serde_json::to_string(EVIL).unwrap();
    let input = place.write("in.ndjson", format!("{{\"key\":1,\"text\":\"x\",{member}:1}}\n"));
    let run = sharddb(["build", &place.text("store"), "--input", &input]).expect(3);
    assert_harmless(&run.stderr);
}

#[test]
fn names_are_escaped_and_stay_on_their_line() {
    let place = Place::new();
    let missing = place.text(&format!("{EVIL}\nsharddb: all is well"));
    let run = sharddb(["get", &missing, "1"]).expect(4);
    assert_harmless(&run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    let pointer = format!("/{EVIL}");
    assert_harmless(&sharddb(["get", &foreign(&place), "1", "--sharding-at", &pointer]).expect(2).stderr);
}

#[test]
fn arguments_are_escaped_where_they_cannot_be_parsed() {
    for args in [&["get", "db", EVIL][..], &[EVIL], &["get", "db", "1", "--storage", EVIL], &["get", "db", "1", EVIL]] {
        let run = sharddb(args).expect(2);
        assert_harmless(&run.stderr);
        assert!(run.stderr.contains("--help"), "the rest of the message stays: {}", run.stderr);
    }
    // a harmless argument is shown unchanged
    let run = sharddb(["get", "db", "käse"]).expect(2);
    assert!(run.stderr.contains("\"käse\"") && run.stderr.contains("--help"), "{}", run.stderr);
}

#[test]
fn findings_and_tables_are_escaped() {
    let place = Place::new();
    let db = place.text(EVIL);
    fs::rename(foreign(&place), &db).unwrap();
    assert_harmless(sharddb(["info", &db]).expect(0).text());
    let mut shard = foreign_shard();
    shard[0] = 0xff; // minishard 0 starts beyond the end of the file
    place.write(&format!("{EVIL}/0.shard"), shard);
    let run = sharddb(["verify", &db]).expect(3);
    assert_harmless(run.text());
    assert_harmless(&sharddb(["keys", &db]).expect(3).stderr);
}

#[test]
fn what_an_array_says_of_itself_is_escaped() {
    let place = Place::new();
    let source = data("zarr/arrays/zp_1d_u8_raw_end.zarr/zarr.json");
    let mut metadata: serde_json::Value = serde_json::from_slice(&fs::read(source).unwrap()).unwrap();
    metadata["attributes"] = serde_json::json!({ "title": EVIL });
    place.write("evil.zarr/zarr.json", metadata.to_string());
    let text = sharddb(["info", &place.text("evil.zarr")]).expect(0);
    assert!(!text.text().chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{:?}", text.text());
    assert!(text.text().contains("pwned"), "{}", text.text());
    // JSON is data: the same string comes back
    let json = sharddb(["info", &place.text("evil.zarr"), "--json"]).expect(0);
    let json: serde_json::Value = serde_json::from_str(json.text()).unwrap();
    assert!(json.to_string().contains("pwned"), "{json}");
}

#[cfg(unix)]
#[test]
fn arguments_that_are_no_text_are_escaped_too() {
    use std::os::unix::ffi::OsStringExt;

    let evil = std::ffi::OsString::from_vec([b"\xff".as_slice(), EVIL.as_bytes()].concat());
    let run = sharddb([std::ffi::OsStr::new("get"), "db".as_ref(), &evil]).expect(2);
    assert_no_controls(&run.stderr);
    let run = sharddb([std::ffi::OsStr::new("get"), &evil, "1".as_ref()]).expect(4);
    assert_harmless(&run.stderr);
}

/// Values are data and are written unchanged.
#[test]
fn data_is_not_escaped() {
    let place = Place::new();
    place.write("in/1", EVIL);
    let store = place.text("store");
    sharddb(["build", &store, "--input", &place.text("in")]).expect(0);
    assert_eq!(sharddb(["get", &store, "1"]).expect(0).text(), EVIL);
}
