//! A build stores what its inputs contain, in every format, and publishes nothing unless all inputs are read to the
//! end.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::common::{Place, SHARDING, Start, command, generations, sharddb, sharddb_with_input};
use crate::limits::limited;
#[cfg(unix)]
use crate::process::{stop, unless_stalled, until_run};
use serde_json::json;

const PAIRS: &str = "\
{\"key\": 7, \"text\": \"seven\"}
{\"key\": \"18446744073709551615\", \"value_b64\": \"AP8K\"}
{\"key\": 9007199254740993, \"value\": {\"a\": [1, 2.50]}}
{\"key\": 0, \"text\": \"\"}
{\"key\": 5, \"preamble_b64\": \"cHJl\", \"text\": \"value\"}
";

/// The files of the only generation of a store.
fn generation(place: &Place, store: &str) -> Vec<(String, Vec<u8>)> {
    place.files(&format!("{store}/gen-0000000001"))
}

#[test]
fn values_come_back() {
    let place = Place::new();
    let (store, input) = (place.text("store"), place.write("in.ndjson", PAIRS));
    let run = sharddb(["build", &store, "--input", &input]).expect(0);
    assert!(run.stderr.starts_with("published gen-0000000001: 5 keys"), "{}", run.stderr);
    assert_eq!(run.text(), "");
    let values: [(&str, &[u8]); 5] = [
        ("7", b"seven"),
        ("0xffffffffffffffff", b"\0\xff\n"),
        ("9007199254740993", b"{\"a\":[1,2.50]}"),
        ("0", b""),
        ("5", b"value"),
    ];
    for (key, value) in values {
        assert_eq!(sharddb(["get", &store, key]).expect(0).stdout, value, "{key}");
    }
    sharddb(["get", &store, "9007199254740992"]).expect(1); // would be found if keys passed through doubles
    assert_eq!(sharddb(["get", &store, "5", "--preamble", "3"]).expect(0).text(), "pre");
    let run = sharddb(["-q", "build", &store, "--input", &input]).expect(0);
    assert_eq!((run.text(), run.stderr.as_str()), ("", ""));
}

#[test]
fn every_format_gives_the_same_bytes() {
    let place = Place::new();
    let input = place.write("in.ndjson", PAIRS);
    sharddb(["build", &place.text("first"), "--input", &input]).expect(0);
    let expected = generation(&place, "first");
    for format in ["dir", "ndjson", "bin2"] {
        let exported = place.text(&format!("out.{format}"));
        sharddb(["export", &place.text("first"), "--format", format, "--output", &exported]).expect(0);
        let info = place.text("first/current/info");
        sharddb(["build", &place.text(format), "--input", &exported, "--format", format, "--info", &info]).expect(0);
        assert!(generation(&place, format) == expected, "{format}");
        if format != "dir" {
            let (store, bytes) = (place.text(&format!("{format}-stdin")), fs::read(exported).unwrap());
            sharddb_with_input(["build", &store, "--input", "-", "--format", format, "--info", &info], &bytes)
                .expect(0);
            assert!(generation(&place, &format!("{format}-stdin")) == expected, "{format} from a pipe");
        }
    }
}

#[test]
fn an_export_builds_again_with_every_option() {
    let place = Place::new();
    let lines: String =
        (0..500usize).map(|i| format!("{{\"key\":{},\"text\":\"{}\"}}\n", i * i, "x".repeat(i))).collect();
    let input = place.write("in.ndjson", lines);
    let options: [&[&str]; 5] = [
        &["--data-encoding", "gzip"],
        &["--index-encoding", "gzip", "--no-checks"],
        &["--value-alignment", "64"],
        &["--sharding", SHARDING, "--data-encoding", "gzip"],
        &["--profile", "remote", "-j", "1"],
    ];
    for (at, options) in options.iter().enumerate() {
        let [store, again, exported] = ["store", "again", "out.bin"].map(|name| place.text(&format!("{at}-{name}")));
        sharddb([&["build", &store, "--input", &input], *options].concat()).expect(0);
        sharddb(["export", &store, "--format", "bin", "--output", &exported]).expect(0);
        let info = format!("{store}/current/info");
        sharddb([&["build", &again, "--input", &exported, "--info", &info], *options].concat()).expect(0);
        assert!(
            generation(&place, &format!("{at}-store")) == generation(&place, &format!("{at}-again")),
            "{options:?}"
        );
    }
}

#[test]
fn options_reach_the_files() {
    let place = Place::new();
    let input = place.write("in.ndjson", PAIRS);
    let given = place.write("given", format!("{{\"@type\": \"mesh\", \"scale\": 1.50, \"sharding\": {SHARDING}}}"));
    let info_of = |name: &str, options: &[&str]| {
        let store = place.text(name);
        sharddb([&["build", &store, "--input", &input], options].concat()).expect(0);
        sharddb(["info", &store, "--json"]).expect(0).json_lines().remove(0)
    };
    let info = info_of(
        "a",
        &["--data-encoding", "gzip", "--index-encoding", "gzip", "--no-checks", "--value-alignment", "4096"],
    );
    assert_eq!(
        (&info["sharding"]["data_encoding"], &info["sharding"]["minishard_index_encoding"]),
        (&json!("gzip"), &json!("gzip"))
    );
    assert_eq!(info["layout"], json!({"checks": false, "preambles": true, "value_alignment": 4096}));
    let place_of_7 = &sharddb(["locate", &place.text("a"), "7"]).expect(0).json_lines()[0];
    assert_eq!(place_of_7["offset"].as_u64().unwrap() % 4096, 0);

    let info = info_of("b", &["--info", &given]);
    assert_eq!((&info["sharding"]["hash"], &info["sharding"]["shard_bits"]), (&json!("identity"), &json!(1)));
    let written = fs::read_to_string(place.path("b/current/info")).unwrap();
    assert!(written.contains("\"scale\": 1.50") && written.contains("\"@type\": \"mesh\""), "{written}");

    let info = info_of("c", &["--info", &given, "--profile", "cloudvolume"]);
    assert_eq!(info["sharding"]["hash"], "murmurhash3_x86_128");
    let info = info_of("d", &["--sharding", SHARDING, "--data-encoding", "gzip"]);
    assert_eq!((&info["sharding"]["shard_bits"], &info["sharding"]["data_encoding"]), (&json!(1), &json!("gzip")));
}

#[test]
fn several_inputs_are_one_build() {
    let place = Place::new();
    let a = place.write("a.ndjson", "{\"key\":1,\"text\":\"a\"}\n");
    let b = place.write("b.d/2", "b");
    let b = b.strip_suffix("/2").unwrap();
    place.write("b.d/info", "{}");
    let store = place.text("store");
    // the format of standard input is not known
    sharddb(["build", &store, "--input", &a, b, "-"]).expect_error(2, &["--format"]);
    let run = sharddb(["build", &store, "--input", &a, b]).expect(0);
    assert!(run.stderr.contains("2 keys") && run.stderr.contains("skipped 1 file: 1 info"), "{}", run.stderr);
}

#[test]
fn the_whole_line_may_be_the_value() {
    let place = Place::new();
    let input = place.write("in.jsonl", "{\"name\": \"a\",  \"id\": 3}\r\n{\"id\": \"4\"}");
    let store = place.text("store");
    sharddb(["build", &store, "--input", &input, "--key-field", "id"]).expect(0);
    assert_eq!(sharddb(["get", &store, "3"]).expect(0).text(), "{\"name\": \"a\",  \"id\": 3}");
    assert_eq!(sharddb(["get", &store, "4"]).expect(0).text(), "{\"id\": \"4\"}");
}

#[test]
fn an_empty_input_publishes_an_empty_generation() {
    let place = Place::new();
    fs::create_dir(place.path("in")).unwrap();
    for input in [place.write("in.ndjson", ""), place.write("in.bin", ""), place.text("in")] {
        let store = place.text("store");
        sharddb(["build", &store, "--input", &input]).expect(0);
        assert_eq!(sharddb(["keys", &store]).expect(0).text(), "");
        sharddb(["get", &store, "1"]).expect(1);
    }
    assert_eq!(sharddb(["generations", &place.text("store")]).expect(0).text().lines().count(), 3);
}

/// A pipe whose writer failed, an empty directory, a closed standard input: none of them may replace existing pairs.
#[test]
fn nothing_replaces_something_only_when_allowed() {
    let place = Place::new();
    let (store, input) = (place.text("store"), place.write("in.ndjson", PAIRS));
    fs::create_dir(place.path("none")).unwrap();
    sharddb(["build", &store, "--input", &input]).expect(0);
    let before = place.files("store/gen-0000000001");
    let (empty, none) = (place.write("empty.bin", ""), place.text("none"));
    let cases: [(&[&str], &str); 3] = [
        (&["--input", "-", "--format", "bin"], "standard input"),
        (&["--input", &empty, "-", "--format", "bin2"], "standard input"),
        (&["--input", &none], "none"),
    ];
    for (args, name) in cases {
        let args = [&["build", &store, "--keep", "1"], args].concat();
        sharddb(&args).expect_error(3, &["found none", name, "--allow-empty"]);
        sharddb_with_input(&args, b"").expect_error(3, &["found none", name, "--allow-empty"]);
    }
    assert_eq!(generations(&store), "gen-0000000001  current\n");
    assert!(place.files("store/gen-0000000001") == before);
    assert_eq!(sharddb(["get", &store, "7"]).expect(0).text(), "seven");

    let run = sharddb(["build", &store, "--input", &none, "--allow-empty"]).expect(0);
    assert!(run.stderr.contains("0 keys") && run.stderr.contains("no pairs in"), "{}", run.stderr);
    sharddb(["get", &store, "7"]).expect(1);
    // the current generation has no keys now
    sharddb(["build", &store, "--input", &none]).expect(0);
    assert_eq!(generations(&store).lines().count(), 3);
}

#[test]
fn what_is_closed_is_as_empty() {
    let place = Place::new();
    let (store, input) = (place.text("store"), place.write("in.ndjson", PAIRS));
    sharddb(["build", &store, "--input", &input]).expect(0);
    let run = limited("exec <&-", &["build", &store, "--input", "-", "--format", "bin"]).run();
    assert!(matches!(run.code, Some(3 | 4)), "{run:?}");
    assert_eq!(generations(&store), "gen-0000000001  current\n");
}

/// A generation that cannot be read may have pairs. If only its shards are damaged, the manifest states its keys.
#[test]
fn nothing_does_not_replace_something_damaged() {
    let place = Place::new();
    let (store, input) = (place.text("store"), place.write("in.ndjson", PAIRS));
    sharddb(["build", &store, "--input", &input]).expect(0);
    let info = place.path("store/gen-0000000001/info");
    fs::remove_file(&info).unwrap();
    fs::write(&info, "{").unwrap();
    sharddb(["build", &store, "--input", "-", "--format", "bin"]).expect_error(3, &["--allow-empty"]);
    sharddb(["build", &store, "--input", "-", "--format", "bin", "--allow-empty"]).expect(0);
}

/// The new shards would not be where such an info places them.
#[test]
fn the_info_of_a_volume_is_refused() {
    let place = Place::new();
    let input = place.write("in.ndjson", PAIRS);
    let scale = |key: &str| format!("{{\"key\": \"{key}\", \"sharding\": {SHARDING}}}");
    let one = place.write("one", format!("{{\"type\": \"image\", \"scales\": [{}]}}", scale("s0")));
    let two = place.write("two", format!("{{\"a/b\": {}, \"scales\": [{{}}, {}]}}", scale("s0"), scale("s1")));
    let store = place.text("store");
    for (info, members) in [(&one, &["/scales/0"][..]), (&two, &["/a~1b", "/scales/1"])] {
        for more in [&[][..], &["--sharding", SHARDING], &["--profile", "remote"]] {
            let args = [&["build", &store, "--input", &input, "--info", info], more].concat();
            let run = sharddb(args).expect_error(2, members);
            assert!(run.stderr.contains("volume") && run.stderr.contains("\"sharding\""), "{}", run.stderr);
            assert!(!place.path("store").exists());
        }
    }
}

#[test]
fn a_key_that_comes_twice() {
    let place = Place::new();
    let input = place.write(
        "in.ndjson",
        "{\"key\":1,\"text\":\"first\"}\n{\"key\":2,\"text\":\"\"}\n{\"key\":1,\"text\":\"last\"}\n",
    );
    let store = place.text("store");
    sharddb(["build", &store, "--input", &input]).expect_error(3, &["key 1"]);
    sharddb(["get", &store, "2"]).expect(4);
    for keep in ["first", "last"] {
        let run = sharddb(["build", &store, "--input", &input, "--on-duplicate", keep]).expect(0);
        assert!(run.stderr.contains(", 1 duplicate dropped"), "{}", run.stderr);
        assert_eq!(sharddb(["get", &store, "1"]).expect(0).text(), keep);
    }
}

/// One truncated input per format, and the place that the error must name.
#[test]
fn nothing_is_published_of_a_malformed_input() {
    let place = Place::new();
    let good = "{\"key\":1,\"text\":\"x\"}\n";
    let record = [1u64.to_le_bytes(), 2u64.to_le_bytes()].concat();
    let cases: [(&str, Vec<u8>, &[&str]); 6] = [
        ("a.ndjson", format!("{good}{{\"key\":2").into_bytes(), &["a.ndjson", "line 2"]),
        ("b.ndjson", format!("{good}\n{{\"key\":1e3,\"text\":\"\"}}\n").into_bytes(), &["line 3", "found 1e3"]),
        ("c.bin", [&record[..], b"ab", &record, b"a"].concat(), &["c.bin", "byte 18"]),
        ("d.bin2", [&record[..], b"ab"].concat(), &["d.bin2", "byte 0"]),
        ("e/007", b"x".to_vec(), &["007"]),
        ("f/7.gz", b"no gzip".to_vec(), &["7.gz", "gzip"]),
    ];
    let store = place.text("store");
    for (name, bytes, parts) in &cases {
        place.write(name, bytes);
        let input = place.text(name.split('/').next().unwrap());
        sharddb(["build", &store, "--input", &input]).expect_error(3, parts);
        assert!(!place.path("store").exists(), "{name}: a store that was to be made is not left behind");
    }
    let input = place.write("good.ndjson", good);
    sharddb(["build", &store, "--input", &input]).expect(0);
    sharddb(["build", &store, "--input", &input, &place.text("a.ndjson")]).expect(3);
    assert_eq!(sharddb(["get", &store, "1"]).expect(0).text(), "x");
    assert_eq!(generations(&store), "gen-0000000001  current\n");
}

#[test]
fn a_line_that_is_too_long_for_the_memory_is_named() {
    let place = Place::new();
    let input = place.write("in.ndjson", format!("{{\"key\":1,\"text\":\"{}\"}}\n", "x".repeat(5 << 20)));
    let store = place.text("store");
    sharddb(["build", &store, "--input", &input, "--memory", "16MiB"])
        .expect_error(3, &["line 1", "--memory", "--format bin"]);
    sharddb(["build", &store, "--input", &input, "--memory", "32MiB"]).expect(0);
}

#[test]
fn more_than_fits_into_memory_goes_through_the_temp_dir() {
    let place = Place::new();
    let mut bytes = Vec::new();
    let value = [7u8; 60_000];
    for key in (0..800u64).rev() {
        bytes.extend([key.to_le_bytes(), (value.len() as u64).to_le_bytes()].concat());
        bytes.extend(value);
    }
    let large = vec![9u8; 20 << 20]; // more than the memory budget
    bytes.extend([1_000_000u64.to_le_bytes(), (large.len() as u64).to_le_bytes()].concat());
    bytes.extend(&large);
    let input = place.write("in.bin", bytes);
    let (store, temp) = (place.text("store"), place.text("temp"));
    fs::create_dir(&temp).unwrap();
    sharddb(["build", &store, "--input", &input, "--memory", "16MiB", "--temp-dir", &temp]).expect(0);
    assert_eq!(place.names("temp"), [""; 0]);
    assert_eq!(sharddb(["keys", &store]).expect(0).text().lines().count(), 801);
    assert!(sharddb(["get", &store, "1000000"]).expect(0).stdout == large);
}

#[test]
fn keep_collects_afterwards() {
    let place = Place::new();
    let (store, input) = (place.text("store"), place.write("in.ndjson", PAIRS));
    for _ in 0..3 {
        sharddb(["build", &store, "--input", &input]).expect(0);
    }
    let run = sharddb(["build", &store, "--input", &input, "--keep", "2"]).expect(0);
    assert!(run.stderr.contains("removed gen-0000000001"), "{}", run.stderr);
    assert_eq!(generations(&store), "gen-0000000003\ngen-0000000004  current\n");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let place = Place::new();
    let (store, input) = (place.text("store"), place.write("in.ndjson", PAIRS));
    let text = place.write("in.txt", PAIRS);
    let missing = place.text("missing.ndjson");
    let binary = place.write("in.bin", "");
    let cases: [(&[&str], i32); 13] = [
        (&[], 2),
        (&["--input", &binary, "--key-field", "id"], 2),
        (&["--input", &text], 2),
        (&["--input", "-"], 2),
        (&["--input", &missing], 4),
        (&["--input", &input, "--format", "dir"], 2),
        (&["--input", &input, "--memory", "64X"], 2),
        (&["--input", &input, "--memory", "1MiB"], 2),
        (&["--input", &input, "--value-alignment", "3"], 2),
        (&["--input", &input, "--profile", "fast"], 2),
        (&["--input", &input, "-j", "0"], 2),
        (&["--input", &input, "--sharding", "{}"], 2),
        (&["--input", &input, "--info", &missing], 4),
    ];
    for (args, code) in cases {
        let run = sharddb([&["build", &store], args].concat());
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
        assert!(!place.path("store").exists(), "{args:?}");
    }
    let (file, bare) = (place.write("file", ""), place.write("bare/info", "{}"));
    sharddb(["build", &file, "--input", &input]).expect(2);
    sharddb(["build", bare.strip_suffix("/info").unwrap(), "--input", &input]).expect(2);
}

/// A signal ends a build that waits for its input: the exit code is that of the signal, and the files are removed.
#[cfg(unix)]
#[test]
fn a_signal_removes_what_was_begun() {
    for signal in ["-INT", "-TERM"] {
        unless_stalled(|| {
            let place = Place::new();
            let (store, temp) = (place.text("store"), place.text("temp"));
            fs::create_dir(&temp).unwrap();
            let args = ["build", &store, "--input", "-", "--format", "bin", "--temp-dir", &temp];
            let mut child = command(args).stdin(Stdio::piped()).start();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 0]).unwrap(); // the beginning of a record; the pipe stays open
            until_run(&mut child, || place.path("store").is_dir() && place.names("store").len() > 1);
            sharddb(["build", &store, "--input", &place.write("in.ndjson", PAIRS)]).expect_error(4, &["writer"]);
            stop(signal, child, "sharddb: interrupted: nothing published\n")?;
            assert!(!place.path("store").exists());
            assert_eq!(place.names("temp"), [""; 0]);
            Some(())
        });
    }
}

/// A specification with too many minishard bits would make a file of 64 GiB for three keys.
#[test]
fn shard_indexes_that_outweigh_the_data_need_force() {
    let place = Place::new();
    let (store, input) = (place.text("store"), place.write("in.ndjson", PAIRS));
    let sharding = r#"{"@type":"neuroglancer_uint64_sharded_v1","hash":"identity","preshift_bits":0,"minishard_bits":32,"shard_bits":0}"#;
    let run = sharddb(["build", &store, "--input", &input, "--sharding", sharding]).expect(3);
    assert!(run.stderr.contains("68719476736 bytes per shard") && run.stderr.contains("--force"), "{}", run.stderr);
    assert!(!std::path::Path::new(&store).exists(), "nothing is left of the store");
    sharddb(["build", &store, "--input", &input, "--sharding", sharding, "--force"]).expect(0);
    assert_eq!(sharddb(["get", &store, "7"]).expect(0).stdout, b"seven");
    let mut keys: Vec<String> = sharddb(["keys", &store]).expect(0).text().lines().map(str::to_string).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["0", "18446744073709551615", "5", "7", "9007199254740993"]);
}
