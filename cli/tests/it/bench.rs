//! `bench` prints a table about the user's own data, compares the values of both sources, and leaves no files behind.

use std::fs;
use std::io::Write;

use crate::common::{self, Place, Run, sharddb};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A directory with one file per key: plain, compressed, and with preambles.
fn files(place: &Place) -> String {
    for key in 0..300_usize {
        place.write(&format!("files/{}", key * 7), key.to_string().repeat(key % 40));
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"compressed").unwrap();
    place.write("files/9000.gz", encoder.finish().unwrap());
    place.write("files/9001", b"fragments");
    place.write("files/9001.index", b"manifest");
    place.write("files/info", b"{}");
    place.text("files")
}

/// The rows of the printed table: a name, then cells.
fn rows(run: &Run) -> Vec<Vec<String>> {
    let lines = run.text().lines().filter(|line| line.starts_with("| "));
    lines.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()).collect()
}

#[track_caller]
fn row(run: &Run, name: &str) -> Vec<String> {
    let found = rows(run).into_iter().find(|row| row[0] == name);
    found.unwrap_or_else(|| panic!("expected a row {name:?} in {}", run.text()))[1..].to_vec()
}

#[test]
fn a_directory_is_measured_beside_a_store_that_is_made_from_it() {
    let place = Place::new();
    let run = sharddb(["bench", "--input", &files(&place), "--lookups", "200"]).expect(0);
    assert_eq!(rows(&run)[0], ["", "one file per key", "ShardDb", "times"]);
    for name in ["lookup, median", "lookup, p99", "absent key, median", "all values, each"] {
        assert!(row(&run, name).iter().all(|cell| cell != "-"), "{name}: {:?}", row(&run, name));
    }
    for name in ["batch of 256, per key", "build, synced"] {
        let cells = row(&run, name);
        assert!(cells[0] == "-" && cells[1] != "-" && cells[2] == "-", "{name}: {cells:?}");
    }
    assert_eq!(row(&run, "files")[0], "304", "302 keys, one of them with two files, and the info");
    assert_eq!(row(&run, "inodes")[0], "305");
    assert!(run.text().contains("302 keys"), "{}", run.text());
    assert!(run.text().contains("200 of them looked up"), "{}", run.text());
    assert_eq!(place.names(""), ["files"], "what was built is gone");
}

#[test]
fn a_store_is_measured_by_itself() {
    let place = Place::new();
    let (files, store) = (files(&place), place.text("store"));
    sharddb(["build", &store, "--input", &files]).expect(0);
    let run = sharddb(["bench", &store, "--cold", "no"]).expect(0);
    assert_eq!(rows(&run)[0], ["", "ShardDb"]);
    for name in
        ["lookup, median", "absent key, p99", "batch of 256, per key", "all values, each", "bytes on disk, apparent"]
    {
        assert_ne!(row(&run, name), ["-"], "{name}");
    }
    assert!(run.text().contains("Cold: not measured."), "{}", run.text());
    assert!(!run.text().contains("cold lookup"), "{}", run.text());
    assert_eq!(place.names(""), ["files", "store"]);
}

#[test]
fn a_store_and_its_directory_are_compared() {
    let place = Place::new();
    let (files, store) = (files(&place), place.text("store"));
    sharddb(["build", &store, "--input", &files]).expect(0);
    let run = sharddb(["bench", &store, "--input", &files]).expect(0);
    assert_eq!(rows(&run)[0].len(), 4);
    assert!(!run.text().contains("build, synced"));

    place.write("files/7", b"changed");
    sharddb(["bench", &store, "--input", &files]).expect_error(3, &["the same value for key 7,"]);
    place.write("files/7", b"1");
    place.write("files/1000000", b"new");
    sharddb(["bench", &store, "--input", &files]).expect_error(3, &["key 1000000,"]);
}

#[test]
fn any_way_to_open_is_measured() {
    let place = Place::new();
    let foreign = common::foreign(&place);
    for storage in ["mmap", "pread", "heap"] {
        let run = sharddb(["bench", &foreign, "--storage", storage]).expect(0);
        assert_ne!(row(&run, "lookup, median"), ["-"], "{storage}");
    }
}

#[test]
fn what_cannot_be_measured_says_why_and_leaves_nothing() {
    let place = Place::new();
    sharddb(["bench"]).expect_error(2, &["--input <DIR>", "DB"]);
    sharddb(["bench", "--input", &place.text("missing")]).expect_error(4, &["missing"]);
    sharddb(["bench", &place.text("missing")]).expect_error(4, &["missing"]);
    place.write("empty/info", b"{}");
    sharddb(["bench", "--input", &place.text("empty")]).expect_error(3, &["found none and skipped 1 file: 1 info"]);
    fs::create_dir(place.path("none")).unwrap();
    sharddb(["bench", "--input", &place.text("none")]).expect_error(2, &["at least one key"]);
    place.write("other/seven", b"");
    sharddb(["bench", "--input", &place.text("other")]).expect_error(3, &["seven"]);
    sharddb(["bench", "--input", &place.text("other"), "--lookups", "0"]).expect_error(2, &["--lookups"]);
    let elsewhere = place.text("missing");
    sharddb(["bench", "--input", &files(&place), "--temp-dir", &elsewhere]).expect_error(4, &["make", "missing"]);
    assert_eq!(place.names(""), ["empty", "files", "none", "other"]);
}

#[test]
fn help_teaches() {
    let run = sharddb(["bench", "--help"]).expect(0);
    for words in ["sharddb bench --input meshes/", "Markdown", "--cold", "byte by byte"] {
        assert!(run.text().contains(words), "{words}");
    }
}
