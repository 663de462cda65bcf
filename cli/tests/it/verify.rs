//! A newly built store verifies without findings; a changed byte is found and located.

use std::fs;

use crate::common::{Place, foreign, foreign_shard, sharddb};
use serde_json::json;

fn store(place: &Place) -> String {
    let lines: String = (0..300).map(|key| format!("{{\"key\":{key},\"text\":\"value {key}\"}}\n")).collect();
    let (store, input) = (place.text("store"), place.write("in.ndjson", lines));
    sharddb(["build", &store, "--input", &input]).expect(0);
    store
}

/// Changes the last byte of the only shard. Removes the file first, because files of a generation are read-only.
fn damage(place: &Place) -> String {
    let path = place.path("store/gen-0000000001/0.shard");
    let mut shard = fs::read(&path).unwrap();
    *shard.last_mut().unwrap() ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(&path, shard).unwrap();
    path.file_name().unwrap().to_str().unwrap().to_string()
}

#[test]
fn what_was_built_is_clean() {
    let place = Place::new();
    let store = store(&place);
    for level in ["structure", "index", "data"] {
        for storage in ["mmap", "pread", "heap"] {
            let run = sharddb(["verify", &store, "--level", level, "--storage", storage]).expect(0);
            assert_eq!(run.text(), "", "{level} {storage}");
            assert!(run.stderr.contains("0 errors, 0 warnings, 0 notes"), "{}", run.stderr);
        }
    }
    assert_eq!(sharddb(["-q", "verify", &store]).expect(0).stderr, "");
    let report = &sharddb(["verify", &store, "--json"]).expect(0).json_lines()[0];
    assert_eq!((&report["level"], &report["keys"], &report["findings"]), (&json!("data"), &json!(300), &json!([])));
}

#[test]
fn one_changed_byte_is_found() {
    let place = Place::new();
    let store = store(&place);
    let file = damage(&place);
    sharddb(["verify", &store, "--level", "structure"]).expect(0); // reads no values
    let run = sharddb(["verify", &store]).expect(3);
    assert!(run.text().lines().all(|line| line.starts_with("error: ") && line.contains(&file)), "{}", run.text());
    assert!(run.text().contains("minishard ") && run.text().contains("key "), "{}", run.text());

    let report = &sharddb(["verify", &store, "--json"]).expect(3).json_lines()[0];
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(report["errors"], findings.len());
    let value = findings.iter().find(|finding| finding["kind"] == "value-check").unwrap();
    assert_eq!((&value["severity"], &value["shard"]), (&json!("error"), &json!(0)));
    assert!(
        value["file"].as_str().unwrap().ends_with(&file) && value["key"].is_string() && value["minishard"].is_u64()
    );
}

#[test]
fn a_data_set_of_others_may_be_odd() {
    let place = Place::new();
    let db = foreign(&place);
    let run = sharddb(["verify", &db]).expect(0);
    assert!(run.text().lines().all(|line| line.starts_with("note: ")), "{}", run.text());
    let mut shard = foreign_shard();
    shard[16] = 0xff; // minishard 1 starts after its end
    place.write("foreign/0.shard", shard);
    let run = sharddb(["verify", &db]).expect(3);
    assert!(run.text().contains("minishard 1"), "{}", run.text());
}

#[test]
fn what_cannot_be_opened_is_no_finding() {
    let place = Place::new();
    sharddb(["verify", &place.text("missing")]).expect_error(4, &["missing"]);
    let info = place.write("db/info", "{}");
    sharddb(["verify", info.strip_suffix("/info").unwrap()]).expect_error(3, &["sharding"]);
}
