//! Inputs of each format and compression: what `build` makes of them, and what it says about those that are wrong.

use std::fs::{self, File};
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{transcript, transcript_with_input};
use crate::common::{Place, sharddb, sharddb_with_input};

const LINES: &str = "{\"key\":1,\"text\":\"one\"}\n{\"key\":2,\"text\":\"two\"}\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn value(place: &Place, store: &str, key: &str) -> String {
    sharddb(["get", &place.text(store), key]).expect(0).text().to_string()
}

#[test]
fn compressed_inputs_are_decompressed() {
    let place = Place::new();
    let (first, second) = LINES.split_at(LINES.len() / 2);
    place.write("members.ndjson.gz", [gzip(first.as_bytes()), gzip(second.as_bytes())].concat());
    transcript(&place, "formats-gzip", &["build", "a", "--input", "members.ndjson.gz"]);
    assert_eq!(value(&place, "a", "2"), "two");
    place.write("lines.jsonl.zst", zstd(LINES.as_bytes()));
    transcript(&place, "formats-zstd", &["build", "b", "--input", "lines.jsonl.zst"]);
    assert_eq!(value(&place, "b", "2"), "two");
    for format in ["bin", "bin2"] {
        let bytes = sharddb(["export", &place.text("a"), "--format", format]).expect(0).stdout;
        for (name, bytes) in [("gz", gzip(&bytes)), ("zst", zstd(&bytes))] {
            let path = place.write(&format!("x.{format}.{name}"), bytes);
            sharddb(["build", &place.text(&format!("{format}-{name}")), "--input", &path]).expect(0);
            assert_eq!(value(&place, &format!("{format}-{name}"), "1"), "one");
        }
    }
    let piped = ["build", &place.text("c"), "--input", "-", "--format", "ndjson.gz"];
    sharddb_with_input(piped, &gzip(LINES.as_bytes())).expect(0);
    assert_eq!(value(&place, "c", "1"), "one");
}

#[test]
fn a_damaged_compressed_input_is_named() {
    let place = Place::new();
    for (name, bytes) in [("gz", gzip(LINES.as_bytes())), ("zst", zstd(LINES.as_bytes()))] {
        place.write(&format!("cut.ndjson.{name}"), &bytes[..bytes.len() - 3]);
        let args = ["build", "store", "--input", &format!("cut.ndjson.{name}")];
        transcript(&place, &format!("formats-{name}-cut"), &args);
        place.write(&format!("plain.ndjson.{name}"), LINES);
        sharddb(["build", &place.text("store"), "--input", &place.text(&format!("plain.ndjson.{name}"))])
            .expect_error(3, &["damaged or cut off", &format!("plain.ndjson.{name}")]);
    }
    assert!(!place.path("store").exists());
}

/// 64 MiB of zeros in one line or record, of which at most a line of 4 MiB is held.
#[test]
fn a_bomb_is_an_error_about_its_first_record() {
    let place = Place::new();
    let zeros = vec![0; 1 << 20];
    for (format, message) in [("ndjson", "longer one"), ("csv", "longer one"), ("bin", "found the end")] {
        let path = place.text(&format!("bomb.{format}.gz"));
        let mut encoder = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
        encoder.write_all(if format == "bin" { &[0xff; 14] } else { b"[" }).unwrap();
        (0..64).for_each(|_| encoder.write_all(&zeros).unwrap());
        encoder.finish().unwrap();
        let store = place.text("store");
        let run = sharddb(["build", &store, "--input", &path, "--memory", "16M"]);
        assert_eq!(run.code, Some(3), "{format}: {}", run.stderr);
        assert!(run.stderr.contains(message), "{format}: {}", run.stderr);
    }
}

#[test]
fn rows_of_csv_are_values() {
    let place = Place::new();
    place.write("cities.csv", "id,name,people\n7,Oslo,709037\n8,\"Bergen, the \"\"second\"\"\",291940\n");
    transcript(&place, "formats-csv", &["build", "objects", "--input", "cities.csv"]);
    assert_eq!(value(&place, "objects", "8"), r#"{"name":"Bergen, the \"second\"","people":"291940"}"#);
    let columns = ["build", "people", "--input", "cities.csv", "--key-column", "people", "--value-column", "2"];
    transcript(&place, "formats-csv-columns", &columns);
    assert_eq!(value(&place, "people", "709037"), "Oslo");
    transcript(&place, "formats-csv-no-column", &["build", "x", "--input", "cities.csv", "--key-column", "key"]);
    place.write("open.csv", "key,v\n1,x\n2,\"y\n3,z\n");
    transcript(&place, "formats-csv-open-quote", &["build", "x", "--input", "open.csv"]);
    place.write("rows.csv", "1,x\n2,y\n");
    transcript(&place, "formats-csv-first-row", &["build", "rows", "--input", "rows.csv"]);
    let rows = ["build", "rows", "--input", "rows.csv", "--no-header", "--value-column", "2"];
    transcript(&place, "formats-csv-no-header", &rows);
    assert_eq!(value(&place, "rows", "1"), "x");
    place.write("ragged.csv", "key,v\n1,x,y\n");
    transcript(&place, "formats-csv-ragged", &["build", "x", "--input", "ragged.csv"]);
    transcript(
        &place,
        "formats-csv-columns-of-ndjson",
        &["build", "x", "--input", "-", "--format", "bin", "--key-column", "1"],
    );
}

#[test]
fn each_input_has_a_format_of_its_own() {
    let place = Place::new();
    place.write("table.txt", "key,v\n1,x\n");
    place.write("csv:2.ndjson", "{\"key\":2,\"text\":\"two\"}\n");
    let args = ["build", "store", "--input", "csv:table.txt", "./csv:2.ndjson", "ndjson:-"];
    transcript_with_input(&place, "formats-preambles", &args, "{\"key\":3,\"text\":\"three\"}\n");
    assert_eq!((value(&place, "store", "2"), value(&place, "store", "3")), ("two".to_string(), "three".to_string()));
    transcript(&place, "formats-prefix-without-path", &["build", "x", "--input", "csv:"]);
    transcript(&place, "formats-unknown", &["build", "x", "--input", "table.txt", "--format", "tsv"]);
}

#[test]
fn a_key_field_may_be_nested() {
    let place = Place::new();
    place.write("in.jsonl", "{\"a\": {\"b.c\": 7}, \"x\": 1}\n{\"a.b.c\": 8}\n");
    transcript(&place, "formats-key-field", &["build", "store", "--input", "in.jsonl", "--key-field", "a.b.c"]);
    assert_eq!(value(&place, "store", "7"), "{\"a\": {\"b.c\": 7}, \"x\": 1}");
    place.write("twice.jsonl", "{\"a\":{\"b\":7},\"a.b\":8}\n");
    transcript(&place, "formats-key-field-twice", &["build", "x", "--input", "twice.jsonl", "--key-field", "a.b"]);
    place.write("none.jsonl", "{\"a\":[{\"b\":7}]}\n");
    transcript(&place, "formats-key-field-none", &["build", "x", "--input", "none.jsonl", "--key-field", "a.b"]);
    place.write("id.jsonl", "{\"id\":7}\n");
    transcript(&place, "formats-unknown-field", &["build", "x", "--input", "id.jsonl"]);
}

#[test]
fn a_byte_order_mark_is_named() {
    let place = Place::new();
    place.write("mark.ndjson", format!("\u{feff}{LINES}"));
    transcript(&place, "formats-mark", &["build", "store", "--input", "mark.ndjson"]);
    place.write("gzip.ndjson", gzip(LINES.as_bytes()));
    transcript(&place, "formats-gzip-without-name", &["build", "store", "--input", "gzip.ndjson"]);
    place.write("utf-16.csv", b"\xff\xfek\0e\0y\0");
    transcript(&place, "formats-mark-of-utf-16", &["build", "store", "--input", "utf-16.csv"]);
    place.write("mark.csv", "\u{feff}key,v\n1,x\n");
    sharddb(["build", &place.text("store"), "--input", &place.text("mark.csv"), "--key-column", "key"]).expect(0);
}

#[test]
fn sizes_and_counts_have_units() {
    let place = Place::new();
    place.write("in.ndjson", LINES);
    transcript(&place, "formats-memory", &["build", "store", "--input", "in.ndjson", "--memory", "0.5G"]);
    transcript(&place, "formats-memory-too-small", &["build", "store", "--input", "in.ndjson", "--memory", "1MB"]);
    transcript(&place, "formats-memory-unknown", &["build", "store", "--input", "in.ndjson", "--memory", "1X"]);
    transcript(&place, "formats-count", &["plan", "--keys", "1_000", "--bytes", "1.5K"]);
    transcript(&place, "formats-count-unknown", &["plan", "--keys", "1.5", "--bytes", "1K"]);
    assert!(fs::exists(place.path("store")).unwrap());
}
