//! `salvage` writes every provable pair to a new store, and one line per loss.

use std::fs;

use crate::common::{self, Place, Start, foreign, sharddb};
use serde_json::json;

/// A store of 300 keys with the values `value N`. The last byte of its only shard is changed.
fn damaged(place: &Place) -> String {
    let lines: String = (0..300).map(|key| format!("{{\"key\":{key},\"text\":\"value {key}\"}}\n")).collect();
    let (store, input) = (place.text("store"), place.write("in.ndjson", lines));
    sharddb(["build", &store, "--input", &input]).expect(0);
    let path = place.path("store/gen-0000000001/0.shard");
    let mut shard = fs::read(&path).unwrap();
    *shard.last_mut().unwrap() ^= 1;
    fs::remove_file(&path).unwrap(); // the file is read-only
    fs::write(&path, shard).unwrap();
    store
}

#[test]
fn one_changed_byte_loses_one_pair() {
    let place = Place::new();
    let (store, out) = (damaged(&place), place.text("out"));
    let run = sharddb(["salvage", &store, &out]).expect(3);
    let lines = run.json_lines();
    let [lost] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&lost["shard"], &lost["reason"]), (&json!(0), &json!("value-check")));
    assert!(lost["minishard"].is_u64() && lost["file"].as_str().unwrap().ends_with("0.shard"), "{lost}");
    let key = lost["key"].as_str().unwrap();
    assert!(run.stderr.contains("299 pairs kept, 1 loss, 1 of the manifest's keys missing"), "{}", run.stderr);

    sharddb(["verify", &out]).expect(0);
    sharddb(["get", &out, key]).expect(1);
    let other = if key == "7" { "8" } else { "7" };
    assert_eq!(sharddb(["get", &out, other]).expect(0).text(), format!("value {other}"));
}

#[test]
fn losses_go_to_a_file_and_quiet_says_nothing() {
    let place = Place::new();
    let (store, lost) = (damaged(&place), place.text("lost.ndjson"));
    let run = sharddb(["-q", "salvage", &store, &place.text("out"), "--lost", &lost]).expect(3);
    assert_eq!((run.text(), run.stderr.as_str()), ("", ""));
    assert_eq!(fs::read_to_string(lost).unwrap().lines().count(), 1);
}

#[cfg(unix)]
#[test]
fn the_list_of_losses_is_replaced_when_all_is_written() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new();
    let (store, lost) = (damaged(&place), place.write("lost.ndjson", "before"));
    fs::set_permissions(&lost, fs::Permissions::from_mode(0o600)).unwrap();
    let file = place.write("file", "");
    sharddb(["salvage", &store, &format!("{file}/out"), "--lost", &lost]).expect(4); // no directory
    assert_eq!(fs::read_to_string(&lost).unwrap(), "before");
    assert_eq!(place.names("."), ["file", "in.ndjson", "lost.ndjson", "store"], "nothing else is left");

    std::os::unix::fs::symlink("lost.ndjson", place.path("link")).unwrap();
    sharddb(["salvage", &store, &place.text("out"), "--lost", &place.text("link")]).expect(3);
    assert!(fs::read_to_string(&lost).unwrap().starts_with("{\"shard\":0,"));
    assert_eq!(fs::metadata(&lost).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(place.path("link").is_symlink());
}

#[test]
fn the_list_of_losses_is_no_part_of_the_new_store() {
    let place = Place::new();
    let (store, out) = (damaged(&place), place.text("out"));
    for lost in ["out", "out/lost.ndjson", "out/../out/x"] {
        sharddb(["salvage", &store, &out, "--lost", &place.text(lost)]).expect_error(2, &["outside of OUT"]);
        assert!(!place.path("out").exists());
    }
}

#[test]
fn the_store_is_written_when_nobody_reads_the_losses() {
    let place = Place::new();
    let (store, out) = (damaged(&place), place.text("out"));
    let mut child = common::command(["salvage", &store, &out]).start();
    drop(child.stdout.take());
    assert_eq!(child.wait().code(), Some(3));
    assert_eq!(sharddb(["keys", &out]).expect(0).text().lines().count(), 299);
}

#[test]
fn an_interrupted_salvage_can_be_repeated() {
    let place = Place::new();
    let (store, out) = (damaged(&place), place.text("out"));
    // the files of a salvage that was killed before it published
    sharddb(["build", &out, "--input", &place.write("bad.ndjson", "{")]).expect(3);
    fs::create_dir_all(&out).unwrap();
    place.write("out/lock", "");
    sharddb(["salvage", &store, &out]).expect(3);
    assert_eq!(sharddb(["keys", &out]).expect(0).text().lines().count(), 299);
    // but not once there is a generation
    sharddb(["salvage", &store, &out]).expect_error(2, &["expected a new store"]);
}

#[test]
fn an_info_that_a_store_cannot_have_is_lost_and_this_is_said() {
    let place = Place::new();
    foreign(&place);
    // the key of the nested object is the directory of the shards, which cannot have this name in a generation
    let nested =
        |key: &str| format!("{{\"type\": \"image\", \"scales\": [{{{key}\"sharding\": {}}}]}}", common::SHARDING);
    for (name, key, shards) in [("none", "", ""), ("reserved", "\"key\": \"lease\", ", "lease/")] {
        place.write(&format!("{name}/info"), nested(key));
        place.write(&format!("{name}/{shards}0.shard"), common::foreign_shard());
        let run = sharddb(["salvage", &place.text(name), &place.text(&format!("{name}-out"))]).expect(0);
        let info = format!("{name}/info");
        assert!(run.stderr.contains("only the sharding of ") && run.stderr.contains(&info), "{}", run.stderr);
    }
    // the info of a volume is kept, without a message
    place.write("volume/info", nested("\"key\": \"s0\", "));
    place.write("volume/s0/0.shard", common::foreign_shard());
    let run = sharddb(["salvage", &place.text("volume"), &place.text("out")]).expect(0);
    assert!(!run.stderr.contains("info"), "{}", run.stderr);
    assert!(
        fs::read_to_string(place.path("out/current/info")).unwrap().starts_with("{\"type\": \"image\", \"scales\": [")
    );
    // so is one with its sharding at the top level
    let run = sharddb(["salvage", &place.text("foreign"), &place.text("kept")]).expect(0);
    assert!(!run.stderr.contains("info"), "{}", run.stderr);
    assert!(fs::read_to_string(place.path("kept/current/info")).unwrap().contains("\"@type\": \"x\""));
}

#[test]
fn a_data_set_of_others_comes_out_whole() {
    let place = Place::new();
    let (db, out) = (foreign(&place), place.text("out"));
    assert_eq!(sharddb(["salvage", &db, &out]).expect(0).text(), "");
    let both = [&db, &out].map(|path| sharddb(["export", path, "--format", "ndjson"]).expect(0).stdout);
    assert_eq!(both[0], both[1]);
    sharddb(["salvage", &place.text("none"), &place.text("out2")]).expect_error(4, &["none"]);
}

#[test]
fn an_empty_directory_is_a_new_store() {
    let place = Place::new();
    let (store, out) = (damaged(&place), place.text("out"));
    fs::create_dir(&out).unwrap();
    sharddb(["salvage", &store, &out]).expect(3);
    assert_eq!(sharddb(["keys", &out]).expect(0).text().lines().count(), 299);
}

#[test]
fn nothing_is_written_over() {
    let place = Place::new();
    let (db, out) = (foreign(&place), place.write("out/file", "x"));
    sharddb(["salvage", &db, &place.text("out")]).expect_error(2, &["expected a new store"]);
    assert_eq!(fs::read_to_string(out).unwrap(), "x");
}
