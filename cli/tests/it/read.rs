//! The subcommands that read return the exact content of a foreign data set, and the right exit code.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::common::{Place, SHARDING, Start, command, foreign, foreign_shard, sharddb, sharddb_with_input};
#[cfg(unix)]
use crate::process::kill;
use serde_json::json;

#[test]
fn get_gives_the_bytes_and_nothing_else() {
    let place = Place::new();
    let db = foreign(&place);
    for (key, value) in [("0", "abc"), ("0x5", "xyz"), ("8", "de"), ("4", "")] {
        for storage in ["mmap", "pread", "heap"] {
            let run = sharddb(["get", &db, key, "--storage", storage]).expect(0);
            assert_eq!((run.text(), run.stderr.as_str()), (value, ""), "{key} {storage}");
        }
    }
}

#[test]
fn get_of_an_absent_key_is_1() {
    let place = Place::new();
    let db = foreign(&place);
    sharddb(["get", &db, "12"]).expect_error(1, &["key 12 is absent"]);
    sharddb(["get", &db, "2"]).expect_error(1, &["key 2"]); // its shard has no file
    assert_eq!(sharddb(["-q", "get", &db, "12"]).expect_error(1, &[]).stderr, "");
}

#[test]
fn get_gives_the_bytes_before_a_value() {
    let place = Place::new();
    let db = foreign(&place);
    assert_eq!(sharddb(["get", &db, "5", "--preamble", "3"]).expect(0).text(), "pre");
    assert_eq!(sharddb(["get", &db, "5", "--preamble", "0"]).expect(0).text(), "");
    sharddb(["get", &db, "5", "--preamble", "1000"]).expect_error(2, &["key 5"]);
    sharddb(["get", &db, "7", "--preamble", "3"]).expect(1);
}

#[test]
fn contains_tells_by_its_code() {
    let place = Place::new();
    let db = foreign(&place);
    sharddb(["contains", &db, "4"]).expect_error(0, &[]);
    sharddb(["contains", &db, "6"]).expect_error(1, &[]);
}

#[test]
fn locate_tells_where() {
    let place = Place::new();
    let db = foreign(&place);
    let file = place.text("foreign/0.shard");
    let found = sharddb(["locate", &db, "5"]).expect(0).json_lines();
    // the shard index has 32 bytes; key 5 is 8 bytes after its end
    let expected = json!({"key": "5", "hash": "0x0000000000000005", "shard": 0, "minishard": 1, "file": file, "offset": 40, "stored_len": 3});
    assert_eq!(found, [expected]);
    let absent = sharddb(["locate", &db, "9"]).expect(1).json_lines();
    assert_eq!(absent, [json!({"key": "9", "hash": "0x0000000000000009", "shard": 0, "minishard": 1, "file": file})]);
}

#[test]
fn get_many_answers_every_line_in_order() {
    let place = Place::new();
    let db = foreign(&place);
    let keys = place.write("keys.txt", "5\n12\n\n0x4\r\n5");
    let xyz = "3608bca1e44ea6c4d268eb6db02260269892c0b42b86bbf1e77a6fa16c3c9282"; // sha256sum
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let run = sharddb(["get-many", &db, "--keys", &keys]).expect(0);
    let expected = [
        json!({"key": "5", "len": 3, "sha256": xyz}),
        json!({"key": "12", "absent": true}),
        json!({"key": "4", "len": 0, "sha256": empty}),
        json!({"key": "5", "len": 3, "sha256": xyz}),
    ];
    assert_eq!(run.json_lines(), expected);
    let run = sharddb_with_input(["get-many", &db, "--keys", "-", "--values"], b"5\n").expect(0);
    assert_eq!(run.text(), format!("{{\"key\":\"5\",\"len\":3,\"sha256\":\"{xyz}\",\"value_b64\":\"eHl6\"}}\n"));
}

#[test]
fn get_many_goes_on_after_an_error() {
    let place = Place::new();
    let db = foreign(&place);
    let mut shard = foreign_shard();
    shard[16] = 0xff; // minishard 1 starts after its end
    place.write("foreign/0.shard", shard);
    let run = sharddb_with_input(["get-many", &db, "--keys", "-"], b"0\n5\n8\n").expect(3);
    let lines = run.json_lines();
    assert_eq!((&lines[0]["len"], &lines[2]["len"]), (&json!(3), &json!(2)));
    assert_eq!(lines[1]["key"], "5");
    assert!(lines[1]["error"].as_str().unwrap().starts_with("corrupt: "), "{}", lines[1]);
}

#[test]
fn get_many_answers_who_waits_for_an_answer() {
    let place = Place::new();
    let mut child = command(["get-many", &foreign(&place), "--keys", "-"]).stdin(Stdio::piped()).start();
    let (mut stdin, mut lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    for (key, part) in [("8", "\"len\":2"), ("9", "\"absent\":true")] {
        writeln!(stdin, "{key}").unwrap();
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(part), "{line}");
    }
    drop(stdin);
    assert!(child.wait().success());
}

/// Each line is answered, in order; an error is reported in place of the answer.
#[test]
fn a_line_that_is_no_key_is_answered_in_its_place() {
    let place = Place::new();
    let long = "1".repeat(5000);
    let list = format!("\u{feff}5\nfive\n\n8\n-1\n{long}\n0\n9");
    let keys = place.write("keys.txt", &list);
    let db = foreign(&place);
    let from_file = sharddb(["get-many", &db, "--keys", &keys]).expect(3);
    assert_eq!(from_file.stderr, "");
    let answers = from_file.json_lines();
    let keys: Vec<&str> = answers.iter().map(|answer| answer["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["5", "five", "8", "-1", &long[..4096], "0", "9"]);
    let error = |at: usize| answers[at]["error"].as_str().unwrap_or("").to_string();
    assert!(error(1).starts_with("malformed: expected a key") && error(1).contains("keys.txt, line 2"), "{}", error(1));
    assert!(error(3).contains("found \"-1\"") && error(3).contains("line 5"), "{}", error(3));
    assert!(error(4).contains("4096 bytes") && error(4).contains("line 6"), "{}", error(4));
    let lens: Vec<_> = answers.iter().map(|answer| answer["len"].as_u64()).collect();
    assert_eq!(lens, [Some(3), None, Some(2), None, None, Some(3), None]);
    assert_eq!(answers[6]["absent"], true);

    let from_pipe = sharddb_with_input(["get-many", &db, "--keys", "-"], list.as_bytes()).expect(3);
    assert_eq!(from_pipe.text().lines().count(), 7);
}

#[test]
fn an_export_of_a_list_that_is_no_list_of_keys_is_refused() {
    let place = Place::new();
    let keys = place.write("keys.txt", "5\nfive\n");
    sharddb(["export", &foreign(&place), "--format", "ndjson", "--keys", &keys])
        .expect_error(3, &["found \"five\"", "keys.txt, line 2"]);
}

#[test]
fn keys_come_in_storage_order() {
    let place = Place::new();
    let db = foreign(&place);
    assert_eq!(sharddb(["keys", &db]).expect(0).text(), "0\n4\n8\n5\n");
    assert_eq!(sharddb(["keys", &db, "--shard", "0"]).expect(0).text(), "0\n4\n8\n5\n");
    assert_eq!(sharddb(["keys", &db, "--shard", "1"]).expect(0).text(), "");
    sharddb(["keys", &db, "--shard", "2"]).expect_error(2, &["from 0 to 1"]);
}

#[test]
fn a_bad_minishard_does_not_hide_the_others() {
    let place = Place::new();
    let db = foreign(&place);
    let mut shard = foreign_shard();
    shard[0] = 0xff; // minishard 0 starts after its end
    place.write("foreign/0.shard", shard);
    let run = sharddb(["keys", &db]).expect(3);
    assert_eq!(run.text(), "5\n");
    assert!(run.stderr.contains("minishard 0"), "{}", run.stderr);
    let run = sharddb(["export", &db, "--format", "ndjson"]).expect(3);
    assert_eq!(run.json_lines().len(), 1);
}

#[test]
fn export_writes_every_format() {
    let place = Place::new();
    let db = foreign(&place);
    let run = sharddb(["export", &db, "--format", "ndjson"]).expect(0);
    let line = |key: u64, value: &str| format!("{{\"key\":\"{key}\",\"value_b64\":\"{value}\"}}\n");
    let with_preamble = "{\"key\":\"5\",\"preamble_b64\":\"cHJl\",\"value_b64\":\"eHl6\"}\n";
    assert_eq!(run.text(), line(0, "YWJj") + &line(4, "") + &line(8, "ZGU=") + with_preamble);

    sharddb(["export", &db, "--format", "dir", "--output", &place.text("out")]).expect_error(0, &[]);
    let file = |name: &str, bytes: &[u8]| (name.to_string(), bytes.to_vec());
    let files = [file("0", b"abc"), file("4", b""), file("5", b"pre"), file("5.index", b"xyz"), file("8", b"de")];
    assert_eq!(place.files("out"), files);

    sharddb(["export", &db, "--format", "bin", "--output", &place.text("out.bin")]).expect_error(2, &["key 5", "bin2"]);
    assert!(!place.path("out.bin").exists());
    sharddb(["export", &db, "--format", "dir"]).expect_error(2, &["--output"]);
    sharddb(["export", &db, "--format", "dir", "--output", &place.text("out")]).expect_error(2, &["new or empty"]);
}

/// A build of an export would compute new checks for damaged bytes.
#[test]
fn export_compares_checks() {
    let place = Place::new();
    let lines: String = (0..300).map(|key| format!("{{\"key\":{key},\"text\":\"value {key}\"}}\n")).collect();
    let (store, input) = (place.text("store"), place.write("in.ndjson", lines));
    sharddb(["build", &store, "--input", &input]).expect(0);
    let path = place.path("store/gen-0000000001/0.shard");
    let shard = fs::read(&path).unwrap();
    let at = shard.windows(9).position(|bytes| bytes == b"value 123").unwrap();
    let mut damaged = shard;
    damaged[at] ^= 1;
    fs::remove_file(&path).unwrap(); // the file is read-only
    fs::write(&path, damaged).unwrap();

    let list = place.write("keys.txt", "5\n123\n");
    for (more, left) in [(&[][..], 299), (&["--storage", "mmap"], 299), (&["--keys", &list], 1)] {
        let run = sharddb([&["export", &store, "--format", "ndjson"], more].concat()).expect(3);
        assert_eq!(run.json_lines().len(), left, "{more:?}");
        assert!(run.json_lines().iter().all(|line| line["key"] != "123"));
        assert!(run.stderr.contains("key 123") && run.stderr.contains("sharddb salvage"), "{}", run.stderr);
    }
    let run = sharddb(["export", &store, "--format", "ndjson", "--no-verify"]).expect(0);
    assert_eq!((run.json_lines().len(), run.stderr.as_str()), (300, ""));
    sharddb(["export", &store, "--format", "ndjson", "--no-verify", "--verify-reads", "once"]).expect(2);
}

/// A bad sector in a mapped file kills the process.
#[test]
fn all_verbs_use_positioned_reads_by_default() {
    for verb in ["verify", "export", "keys", "info", "plan", "import", "diff", "get", "get-many", "locate", "bench"] {
        let help = sharddb([verb, "--help"]).expect(0);
        let storage = help.text().split("--storage").nth(1).unwrap().split("--sharding").next().unwrap();
        assert!(storage.contains("[default: pread]") && storage.contains("SIGBUS"), "{verb}: {storage}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_export_maps_no_shard_by_default() {
    let place = Place::new();
    let store = place.text("store");
    // more than the export reads ahead of a full pipe
    (0..100).for_each(|key| drop(place.write(&format!("in/{key}"), vec![b'x'; 1 << 20])));
    sharddb(["build", &store, "--input", &place.text("in")]).expect(0);
    for (more, mapped) in [(&[][..], false), (&["--storage", "mmap"], true)] {
        let mut child = command([&["export", &store, "--format", "bin"], more].concat()).start();
        let mut stdout = child.stdout.take().unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(&mut stdout, &mut byte).unwrap(); // now it blocks on the full pipe
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        assert_eq!(maps.contains("0.shard"), mapped, "{more:?}");
        drop(stdout);
        child.wait();
    }
}

#[test]
fn export_of_some_keys_says_what_is_not_there() {
    let place = Place::new();
    let db = foreign(&place);
    let keys = place.write("keys.txt", "8\n0\n8\n");
    let run = sharddb(["export", &db, "--format", "bin", "--keys", &keys]).expect(0);
    let record = |key: u64, value: &[u8]| [&key.to_le_bytes()[..], &(value.len() as u64).to_le_bytes(), value].concat();
    assert_eq!(run.stdout, [record(0, b"abc"), record(8, b"de")].concat());
    let run = sharddb_with_input(["export", &db, "--format", "bin", "--keys", "-"], b"8\n6\n12\n").expect(1);
    assert_eq!(run.stdout, record(8, b"de"));
    assert!(run.stderr.contains("2 of the keys are absent"), "{}", run.stderr);
}

#[test]
fn info_counts() {
    let place = Place::new();
    let db = foreign(&place);
    let svg = place.text("out.svg");
    let info = &sharddb(["info", &db, "--json", "--plot", &svg]).expect(0).json_lines()[0];
    assert_eq!(info["keys"], 4);
    assert_eq!((&info["value_bytes"], &info["file_bytes"]), (&json!(8), &json!(foreign_shard().len())));
    assert_eq!((&info["shards"], &info["minishards"], &info["empty_minishards"]), (&json!(1), &json!(2), &json!(0)));
    let bucket = |from: u64, to: u64, count: u64| json!({"from": from, "to": to, "count": count});
    assert_eq!(info["minishard_fill"], json!([bucket(1, 1, 1), bucket(2, 3, 1)]));
    assert_eq!(info["value_size"], json!([bucket(0, 0, 1), bucket(1, 1, 0), bucket(2, 3, 3)]));
    assert_eq!((&info["generation"], &info["layout"]), (&json!(null), &json!(null)));
    assert_eq!(info["sharding"]["shard_bits"], 1);
    assert!(fs::read_to_string(svg).unwrap().starts_with("<svg "));
    let text = sharddb(["info", &db]).expect(0);
    assert!(text.text().contains("keys       4\n"), "{}", text.text());
}

#[test]
fn a_directory_without_an_info_takes_a_specification() {
    let place = Place::new();
    let shard = place.write("bare/0.shard", foreign_shard());
    let db = place.text("bare");
    sharddb(["get", &db, "0"]).expect(4);
    let file = place.write("spec.json", SHARDING);
    let info = place.write("other-info", format!("{{\"a\": 1, \"sharding\": {SHARDING}}}"));
    for sharding in [SHARDING, &file, &info] {
        assert_eq!(sharddb(["get", &db, "0", "--sharding", sharding]).expect(0).text(), "abc");
    }
    sharddb(["get", &db, "0", "--sharding", "{}"]).expect_error(2, &["--sharding", "@type"]);
    sharddb(["get", &db, "0", "--sharding", "no/such/file"]).expect_error(4, &["no/such/file"]);
    assert!(fs::exists(shard).unwrap());
}

#[test]
fn a_nested_data_set_is_named_by_a_pointer() {
    let place = Place::new();
    let scale = |key: &str| format!("{{\"key\": \"{key}\", \"sharding\": {SHARDING}}}");
    place.write("volume/info", format!("{{\"scales\": [{}, {}]}}", scale("s0"), scale("s1")));
    place.write("volume/s1/0.shard", foreign_shard());
    let db = place.text("volume");
    sharddb(["get", &db, "0"]).expect_error(2, &["/scales/0", "/scales/1", "--sharding-at"]);
    assert_eq!(sharddb(["get", &db, "0", "--sharding-at", "/scales/1"]).expect(0).text(), "abc");
    sharddb(["get", &db, "0", "--sharding-at", "/scales/0"]).expect_error(4, &["s0"]); // no such directory
    sharddb(["get", &db, "0", "--sharding-at", "/scales/2"]).expect_error(2, &["/scales/2", "--sharding-at"]);
}

#[test]
fn every_kind_of_failure_has_its_code() {
    let place = Place::new();
    let db = foreign(&place);
    let missing = place.text("no-such");
    let cases: [(&[&str], i32); 10] = [
        (&["get", &missing, "1"], 4),
        (&["keys", &missing], 4),
        (&["info", &missing], 4),
        (&["get", &db, "one"], 2),
        (&["get", &db, "-1"], 2),
        (&["get", &db], 2),
        (&["get", &db, "1", "--storage", "floppy"], 2),
        (&["frobnicate"], 2),
        (&["get-many", &db, "--keys", &missing], 4),
        (&["export", &db, "--format", "xml"], 2),
    ];
    for (args, code) in cases {
        assert_eq!(sharddb(args).code, Some(code), "{args:?}");
    }
    place.write("foreign/0.shard", "");
    sharddb(["get", &db, "0"]).expect_error(3, &["0.shard"]);
}

#[test]
fn help_and_version_are_data() {
    for args in [&["--help"][..], &["--version"], &["get", "--help"], &["completions", "bash"]] {
        let run = sharddb(args).expect(0);
        assert!(!run.stdout.is_empty() && run.stderr.is_empty(), "{args:?}");
    }
    assert!(sharddb(["get", "--help"]).text().contains("Examples:"));
    assert_eq!(sharddb(["--version"]).text(), concat!("sharddb ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_broken_pipe_is_a_quiet_0() {
    let place = Place::new();
    let db = foreign(&place);
    // more than a pipe buffers, so that a write fails at the closed end
    let keys = place.write("keys.txt", "0\n".repeat(100_000));
    let mut child = command(["get-many", &db, "--keys", &keys]).start();
    let mut line = String::new();
    BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"key\":\"0\""));
    let run = child.finish();
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_4() {
    let place = Place::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = command(["get", &foreign(&place), "0"]).stdout(full).run().expect(4);
    assert!(run.stderr.contains("standard output"), "{}", run.stderr);
}

#[cfg(unix)]
#[test]
fn a_signal_ends_with_its_code() {
    let place = Place::new();
    let db = foreign(&place);
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut child = command(["get-many", &db, "--keys", "-"]).stdin(Stdio::piped()).start();
        let (mut stdin, mut lines) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        writeln!(stdin, "8").unwrap();
        lines.next().unwrap().unwrap(); // it has started and waits for input
        kill(signal, &child);
        assert_eq!(child.wait().code(), Some(code), "{signal}");
    }
}
