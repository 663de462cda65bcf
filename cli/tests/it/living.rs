//! `update`, `put`, `delete`, `merge`, `reshard` and `copy` change stores as a map is changed, and no other data.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
#[cfg(unix)]
use std::{thread, time::Duration};

use crate::common::{Place, Start, command, data, foreign, generations, sharddb, sharddb_with_input};
#[cfg(target_os = "linux")]
use crate::limits::limited;
#[cfg(unix)]
use crate::process::{kill, stop, unless_stalled, until_run};

type Map = BTreeMap<u64, Vec<u8>>;

/// Four shards, so that most of them have no change.
const FOUR: &str = r#"{"@type": "neuroglancer_uint64_sharded_v1", "hash": "murmurhash3_x86_128", "preshift_bits": 0, "minishard_bits": 1, "shard_bits": 2}"#;

/// Some pairs; equal seeds make equal keys, and equal names equal values.
fn pairs(keys: std::ops::Range<u64>, name: &str) -> Map {
    keys.map(|key| (key.wrapping_mul(0x9e37_79b9_7f4a_7c15), format!("{name} {key}").into_bytes())).collect()
}

/// Pairs in the format bin, as the text of the format says.
fn bin(pairs: &Map) -> Vec<u8> {
    let record =
        |(key, value): (&u64, &Vec<u8>)| [&key.to_le_bytes()[..], &(value.len() as u64).to_le_bytes(), value].concat();
    pairs.iter().flat_map(record).collect()
}

/// The pairs of a database.
#[track_caller]
fn map(db: &str) -> Map {
    parsed(&sharddb(["export", db, "--format", "bin"]).expect(0).stdout)
}

/// The pairs in the format bin.
#[track_caller]
fn parsed(mut rest: &[u8]) -> Map {
    let mut map = Map::new();
    while let Some((head, after)) = rest.split_at_checked(16) {
        let [key, len] = [0, 8].map(|at| u64::from_le_bytes(head[at..at + 8].try_into().unwrap()));
        let (value, after) = after.split_at(usize::try_from(len).unwrap());
        assert_eq!(map.insert(key, value.to_vec()), None, "key {key} again");
        rest = after;
    }
    map
}

fn build(place: &Place, store: &str, pairs: &Map) -> String {
    let input = place.write(&format!("{store}.bin"), bin(pairs));
    sharddb(["build", &place.text(store), "--input", &input, "--sharding", FOUR]).expect(0);
    place.text(store)
}

#[test]
fn an_update_is_that_of_a_map_and_a_fresh_build_has_the_same_bytes() {
    let place = Place::new();
    let mut expected = pairs(0..300, "old");
    let store = build(&place, "store", &expected);
    for round in 1..4 {
        let new = pairs(round * 90..round * 90 + 100, &format!("new {round}"));
        let gone: Vec<u64> = expected.keys().copied().skip(5).step_by(20).collect();
        expected.extend(new.clone());
        expected.retain(|key, _| !gone.contains(key));
        let list = gone.iter().map(|key| format!("{key:#x}\n")).collect::<String>();
        let (input, list) = (place.write("new.bin", bin(&new)), place.write("gone.txt", list));
        let run = sharddb(["update", &store, "--input", &input, "--delete", &list, "--json"]).expect(0);
        assert_eq!(run.json_lines()[0]["deleted"], gone.len(), "{}", run.text());
        assert!(map(&store) == expected);
        sharddb(["verify", &store]).expect(0);
        build(&place, "fresh", &expected);
        for file in place.names("fresh/current") {
            let read = |store: &str| fs::read(place.path(store).join("current").join(&file)).unwrap();
            assert!(read("store") == read("fresh"), "{file}");
        }
    }
}

#[cfg(unix)]
#[test]
fn shards_without_a_change_are_the_same_files() {
    use std::os::unix::fs::MetadataExt;

    let place = Place::new();
    let mut expected = pairs(0..100, "old");
    let store = build(&place, "store", &expected);
    let inode = |generation: u64, shard: u64| {
        place.path(&format!("store/gen-{generation:010}/{shard}.shard")).metadata().unwrap().ino()
    };
    let key = *expected.keys().next().unwrap();
    sharddb_with_input(["put", &store, &key.to_string()], b"another\0value").expect(0);
    expected.insert(key, b"another\0value".to_vec());
    assert!(map(&store) == expected);
    let kept = (0..4).filter(|shard| inode(1, *shard) == inode(2, *shard)).count();
    assert_eq!(kept, 3);
    sharddb(["gc", &store]).expect(0);
    assert!(map(&store) == expected, "a link stays when its generation is removed");

    sharddb(["delete", &store, &key.to_string()]).expect(0);
    expected.remove(&key);
    assert!(map(&store) == expected);
}

#[test]
fn puts_take_texts_and_any_bytes() {
    let place = Place::new();
    let store = build(&place, "store", &pairs(0..1, "old"));
    let all: Vec<u8> = (0..=255).collect();
    sharddb_with_input(["put", &store, "18446744073709551615"], &all).expect(0);
    sharddb(["put", &store, "0x7", "--value", "-seven"]).expect(0);
    sharddb_with_input(["put", &store, "0"], b"").expect(0);
    assert_eq!(sharddb(["get", &store, "18446744073709551615"]).expect(0).stdout, all);
    assert_eq!(sharddb(["get", &store, "7"]).expect(0).text(), "-seven");
    assert_eq!(sharddb(["get", &store, "0"]).expect(0).text(), "");
}

#[test]
fn an_update_without_a_change_publishes_nothing() {
    let place = Place::new();
    let store = build(&place, "store", &pairs(0..10, "old"));
    let before = place.files("store");
    sharddb(["delete", &store, "5", "6"]).expect(0);
    let run = sharddb_with_input(["update", &store, "--input", "-", "--format", "bin", "--json"], b"").expect(0);
    assert_eq!(run.json_lines()[0]["published"], serde_json::Value::Null);
    assert_eq!(run.json_lines()[0]["generation"], "gen-0000000001");
    assert!(place.files("store") == before);
    // with a base it is a copy of the base
    let other = place.text("other");
    sharddb_with_input(["update", &other, "--base", &store, "--input", "-", "--format", "bin"], b"").expect(0);
    assert!(map(&other) == map(&store));
}

#[test]
fn a_strict_update_publishes_only_if_all_deleted_keys_are_there() {
    let place = Place::new();
    let expected = pairs(0..10, "old");
    let store = build(&place, "store", &expected);
    let key = expected.keys().next_back().unwrap().to_string();
    sharddb(["delete", &store, &key, "5", "--strict"]).expect_error(1, &["key 5", "nothing was published", "--strict"]);
    assert_eq!(generations(&store).lines().count(), 1);
    let run = sharddb_with_input(["update", &store, "--delete", "-", "--strict"], format!("{key}\n").as_bytes());
    run.expect(0);
    assert_eq!(map(&store).len(), 9);
}

/// One segment of a foreign data set of skeletons gets another value; all others stay, and so does the info.
#[test]
fn an_update_of_foreign_data_changes_one_key_in_a_new_store() {
    let place = Place::new();
    let source = data("neuroglancer/seg/skeletons");
    let mut expected = map(&source);
    let key = *expected.keys().nth(7).unwrap();
    place.write(&format!("one/{key}"), "another");
    expected.insert(key, b"another".to_vec());
    let store = place.text("store");
    sharddb(["update", &store, "--base", &source, "--input", &place.text("one")]).expect(0);
    assert!(map(&store) == expected);
    sharddb(["verify", &store, "--level", "data"]).expect(0);
    let info = |path: &Path| serde_json::from_slice::<serde_json::Value>(&fs::read(path).unwrap()).unwrap();
    let (old, new) = (info(&Path::new(&source).join("info")), info(&place.path("store/current/info")));
    for (member, value) in old.as_object().unwrap() {
        assert_eq!(new[member], *value, "{member}");
    }
    sharddb(["update", &source, "--input", &place.text("one")]).expect_error(2, &["--base", "NEW_STORE"]);
    sharddb(["put", &source, "1", "--value", "x"]).expect_error(2, &["--base", "NEW_STORE"]);
}

/// A chunk of a foreign volume gets another value, then by its position another one, and the store is that volume.
#[test]
fn an_update_of_a_volume_is_a_volume() {
    let place = Place::new();
    let (store, base) = (place.text("store"), data("neuroglancer/seg"));
    let chunk = |byte| vec![byte; 32 * 32 * 32 * 8];
    place.write("one/0", chunk(1));
    let input = place.text("one");
    sharddb(["update", &store, "--base", &base, "--sharding-at", "/scales/0", "--input", &input]).expect(0);
    sharddb_with_input(["put", &store, "--at", "1,0,0"], &chunk(2)).expect(0);
    sharddb(["delete", &store, "--at", "0,1,0"]).expect(0);
    let run = sharddb(["export", &base, "--sharding-at", "/scales/0", "--format", "bin"]).expect(0);
    let mut expected = parsed(&run.stdout);
    expected.extend([(0, chunk(1)), (1, chunk(2))]); // keys are compressed Morton codes: x is the lowest bit, then y
    assert!(expected.remove(&2).is_some());
    assert!(map(&store) == expected);
    let info = |path: &Path| serde_json::from_slice::<serde_json::Value>(&fs::read(path).unwrap()).unwrap();
    let (old, new) = (info(&Path::new(&base).join("info")), info(&place.path("store/current/info")));
    assert_eq!(new["scales"][0]["size"], old["scales"][0]["size"]);
    assert!(place.path("store/current/s0").is_dir() && new["sharding"].is_null(), "{new}");
    sharddb(["verify", &store]).expect(0);
}

#[test]
fn merges_are_those_of_maps() {
    let place = Place::new();
    let (one, two, three) = (pairs(0..100, "one"), pairs(50..150, "two"), pairs(140..200, "three"));
    let inputs = [build(&place, "one", &one), build(&place, "two", &two), data("neuroglancer/seg/skeletons")];
    let foreign = map(&inputs[2]);
    let input = place.write("three.bin", bin(&three));
    sharddb(["build", &place.text("three"), "--input", &input, "--profile", "remote", "--data-encoding", "gzip"])
        .expect(0);
    let out = place.text("out");
    let merge = |on_duplicate: &str| {
        let args = ["merge", &out, &inputs[0], &inputs[1], &inputs[2], &place.text("three")];
        sharddb([&args[..], &["--on-duplicate", on_duplicate, "--profile", "local"]].concat())
    };
    let both = one.keys().find(|key| two.contains_key(key) || foreign.contains_key(key)).unwrap();
    let run = merge("error").expect_error(3, &["nothing was published", "--on-duplicate concat"]);
    assert!(run.stderr.contains("found key"), "{}", run.stderr);
    assert!(one.contains_key(both) && !place.path("out").exists());

    let maps = [&one, &two, &foreign, &three];
    let fold = |join: fn(&mut Vec<u8>, &[u8])| {
        let mut all = Map::new();
        for (key, value) in maps.iter().flat_map(|map| map.iter()) {
            match all.entry(*key) {
                std::collections::btree_map::Entry::Vacant(new) => drop(new.insert(value.clone())),
                std::collections::btree_map::Entry::Occupied(mut there) => join(there.get_mut(), value),
            }
        }
        all
    };
    let expected: [(&str, Map); 3] = [
        ("first", fold(|_, _| {})),
        ("last", fold(|there, value| *there = value.to_vec())),
        ("concat", fold(|there, value| there.extend_from_slice(value))),
    ];
    for (on_duplicate, expected) in expected {
        merge(on_duplicate).expect(0);
        assert!(map(&out) == expected, "{on_duplicate}");
        sharddb(["verify", &out]).expect(0);
    }
}

#[test]
fn an_input_of_a_merge_may_be_the_store_itself() {
    let place = Place::new();
    let (one, two) = (pairs(0..10, "one"), pairs(10..20, "two"));
    let [store, other] = [build(&place, "one", &one), build(&place, "two", &two)];
    sharddb(["merge", &store, &store, &other, "--keep", "1"]).expect(0);
    let all: Map = one.into_iter().chain(two).collect();
    assert!(map(&store) == all);
    assert_eq!(generations(&store), "gen-0000000002  current\n");
    for inside in ["two/new", "two/current/new", "one/new"] {
        sharddb(["merge", &place.text(inside), &store, &other]).expect_error(2, &["outside of the input"]);
    }
    let bare = foreign(&place);
    sharddb(["merge", &bare, &bare, &store]).expect_error(2, &["choose another path"]);
    sharddb(["reshard", &store, &bare, "--profile", "local"]).expect_error(2, &["expected a store"]);
}

#[test]
fn reshard_keeps_pairs_preambles_and_info() {
    let place = Place::new();
    for (set, options) in [
        ("mesh", &["--profile", "remote"][..]),
        ("mesh", &["--data-encoding", "gzip"]),
        ("skeletons", &["--sharding", FOUR]),
        ("skeletons", &["--index-encoding", "raw", "--data-encoding", "raw"]),
        ("skeletons", &["--max-shard-bytes", "16KiB"]),
    ] {
        let (source, out) = (data(&format!("neuroglancer/seg/{set}")), place.text("out"));
        sharddb([&["reshard", &source, &out], options].concat()).expect(0);
        let lines = |db: &str| {
            let run = sharddb(["export", db, "--format", "ndjson"]).expect(0);
            let mut lines: Vec<String> = run.text().lines().map(str::to_string).collect();
            lines.sort_unstable();
            lines
        };
        assert!(lines(&out) == lines(&source), "{set} {options:?}");
        sharddb(["verify", &out, "--level", "data"]).expect(0);
        let info = |path: &Path| serde_json::from_slice::<serde_json::Value>(&fs::read(path).unwrap()).unwrap();
        let (old, new) = (info(&Path::new(&source).join("info")), info(&place.path("out/current/info")));
        for (member, value) in old.as_object().unwrap().iter().filter(|(member, _)| *member != "sharding") {
            assert_eq!(new[member], *value, "{member}");
        }
        assert_ne!(new["sharding"], old["sharding"]);
    }
    sharddb(["reshard", &place.text("out"), &place.text("x")]).expect_error(2, &["--profile", "sharddb import"]);
}

#[test]
fn a_copy_has_the_pairs_that_are_wanted() {
    let place = Place::new();
    let all = pairs(0..200, "old");
    let (store, out) = (build(&place, "store", &all), place.text("out"));
    let keys: Vec<u64> = all.keys().copied().collect();
    let (from, to) = (keys[20], keys[90]);
    for (range, expected) in [
        (format!("{from}..{to}"), all.range(from..to)),
        (format!("{from:#x}..={to}"), all.range(from..=to)),
        (format!("{to}.."), all.range(to..)),
        (format!("..{from}"), all.range(..from)),
        ("..=18446744073709551615".to_string(), all.range(..)),
    ] {
        sharddb(["copy", &store, &out, "--range", &range]).expect(0);
        assert!(map(&out) == expected.map(|(key, value)| (*key, value.clone())).collect::<Map>(), "{range}");
    }
    let list = place.write("keys.txt", format!("{from}\n{to}\n5\n{from}\n6\n"));
    let run = sharddb(["copy", &store, &out, "--keys", &list]).expect(1);
    assert!(run.stderr.contains("2 of the keys are absent"), "{}", run.stderr);
    assert_eq!(map(&out).into_keys().collect::<Vec<_>>(), [from, to]);
    sharddb(["copy", &store, &out, "--key", "5"]).expect_error(3, &["--allow-empty"]);
    sharddb(["copy", &store, &out, "--range", "9..3"]).expect_error(2, &["begins before it ends"]);
    assert_eq!(map(&out).into_keys().collect::<Vec<_>>(), [from, to]);

    let mesh = data("neuroglancer/seg/mesh");
    let key = sharddb(["keys", &mesh]).expect(0).text().lines().next().unwrap().to_string();
    sharddb(["copy", &mesh, &place.text("part"), "--key", &key]).expect(0);
    let export = |db: &str| sharddb(["export", db, "--format", "ndjson", "--key", &key]).expect(0).stdout;
    assert!(export(&place.text("part")) == export(&mesh), "with its preamble");
}

#[test]
fn a_build_joins_the_values_of_a_key() {
    let place = Place::new();
    let lines = "{\"key\":1,\"text\":\"a\"}\n{\"key\":2,\"text\":\"x\"}\n{\"key\":1,\"text\":\"b\"}\n";
    let inputs = [place.write("a.ndjson", lines), place.write("b.ndjson", "{\"key\":1,\"text\":\"c\"}\n")];
    let store = place.text("store");
    sharddb(["build", &store, "--on-duplicate", "concat", "--input", &inputs[0], &inputs[1]]).expect(0);
    assert_eq!(map(&store), Map::from([(1, b"abc".to_vec()), (2, b"x".to_vec())]));
}

#[test]
fn damage_of_a_source_is_named_and_nothing_is_published() {
    let place = Place::new();
    let pairs = pairs(0..50, "old value");
    let store = build(&place, "store", &pairs);
    for shard in ["0", "1", "2", "3"] {
        let path = place.path(&format!("store/current/{shard}.shard"));
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(9).position(|bytes| bytes == b"old value").unwrap();
        bytes[at] = b'O';
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    let key = pairs.keys().next().unwrap().to_string();
    let out = place.text("out");
    for args in [
        &["put", &store, "7", "--value", "x"][..],
        &["delete", &store, &key],
        &["merge", &out, &store],
        &["reshard", &store, &out, "--profile", "local"],
        &["copy", &store, &out, "--range", ".."],
    ] {
        let run = sharddb(args);
        // a deleted pair is not copied; its shard may have no other damage
        if args[0] == "delete" && run.code == Some(0) {
            continue;
        }
        run.expect_error(3, &["key", "sharddb salvage"]);
        assert!(!place.path("out").exists(), "{args:?}");
    }
}

#[test]
fn paths_that_are_no_store_are_named_with_advice() {
    let place = Place::new();
    let input = place.write("in.bin", bin(&pairs(0..1, "new")));
    let [missing, file] = [place.text("missing"), place.write("file", "x")];
    for args in [
        &["update", &missing, "--input", &input][..],
        &["put", &missing, "1", "--value", "x"],
        &["delete", &missing, "1"],
        &["merge", &place.text("out"), &missing],
        &["reshard", &missing, &place.text("out"), "--profile", "local"],
        &["copy", &missing, &place.text("out"), "--range", ".."],
        &["update", &place.text("out"), "--base", &missing, "--input", &input],
    ] {
        sharddb(args).expect_error(4, &["missing", "does not exist"]);
        assert!(!place.path("missing").exists() && !place.path("out").exists(), "{args:?}");
    }
    assert_ne!(sharddb(["put", &file, "1", "--value", "x"]).code, Some(0));
    let store = build(&place, "store", &pairs(0..1, "old"));
    for list in ["x", "1\n-2"] {
        let list = place.write("list", list);
        sharddb(["update", &store, "--delete", &list]).expect_error(3, &["line"]);
        sharddb(["copy", &store, &missing, "--keys", &list]).expect_error(3, &["line"]);
    }
    sharddb(["update", &store]).expect(2);
    sharddb(["update", &store, "--input", "bin:-", "--delete", "-"]).expect_error(2, &["once"]);
    sharddb(["update", &store, "--delete", &input, "--key-field", "id"]).expect(2);
    sharddb(["update", &store, "--input", &input, "--sharding-at", "/x"]).expect_error(2, &["--base"]);
    assert_eq!(generations(&store).lines().count(), 1);
}

/// A store cannot be written while an update waits for its input, and a signal leaves it as it was.
#[cfg(unix)]
#[test]
fn a_signal_leaves_the_store_as_it_was() {
    for args in [&["update", "store", "--input", "-", "--format", "bin"][..], &["put", "store", "7"]] {
        unless_stalled(|| {
            let place = Place::new();
            let store = build(&place, "store", &pairs(0..10, "old"));
            let (before, names) = (place.files("store"), place.names("store"));
            let mut child = command(args).current_dir(place.path("")).stdin(Stdio::piped()).start();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 0]).unwrap(); // the pipe stays open
            until_run(&mut child, || place.names("store").iter().any(|name| !names.contains(name)));
            sharddb(["delete", &store, "1"]).expect_error(4, &["writer"]);
            stop("-INT", child, "sharddb: interrupted: nothing published\n")?;
            assert!(place.files("store") == before, "{args:?}");
            Some(())
        });
    }
}

/// A signal while a run that has published waits for the reader of its output: it says so, and does not fail.
#[cfg(unix)]
#[test]
fn a_signal_after_the_publication_is_no_failure() {
    for (signal, more) in [("-INT", &[][..]), ("-TERM", &["--keep", "1"])] {
        unless_stalled(|| {
            let place = Place::new();
            let store = build(&place, "store", &pairs(0..10, "old"));
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            let output = writer.try_clone().unwrap();
            let filler = thread::spawn(move || writer.write_all(&vec![0; 1 << 20])); // the pipe is full until it is read
            let mut put = command(["put", &store, "7", "--value", "new", "--json"]);
            let mut child = put.args(more).stdin(Stdio::null()).stdout(output).start();
            drop(put); // which has the pipe
            until_run(&mut child, || place.path("store/current").read_link().unwrap().ends_with("gen-0000000002"));
            kill(signal, &child);
            thread::sleep(Duration::from_millis(100)); // until it is handled
            let mut printed = Vec::new();
            reader.read_to_end(&mut printed).unwrap();
            filler.join().unwrap().unwrap();
            let run = child.finish();
            assert_eq!(run.code, Some(0), "{}", run.stderr);
            let is_said = run.stderr.ends_with("sharddb: interrupted after the publication, which stays\n");
            let has_json = printed.windows(11).any(|text| text == b"\"published\"");
            is_said.then(|| assert!(has_json, "{}", run.stderr))
        });
    }
}

/// A file that cannot grow, as on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_failed_write_leaves_the_store_as_it_was() {
    let place = Place::new();
    let store = build(&place, "store", &Map::from([(7, vec![b'x'; 100_000])]));
    let before = place.files("store");
    let (input, out) = (place.write("new/7", vec![b'y'; 90_000]), place.text("out"));
    let input = input.strip_suffix("/7").unwrap();
    for args in [
        &["update", &store, "--input", input][..],
        &["merge", &store, &store],
        &["reshard", &store, &store, "--data-encoding", "raw"],
        &["copy", &store, &out, "--key", "7"],
    ] {
        limited("ulimit -f 4", args).run().expect_error(4, &["File too large"]);
        assert!(place.files("store") == before && !place.path("out").exists(), "{args:?}");
    }
}

/// The bytes of all files below a directory; one with several names counts once. Links are not followed.
#[cfg(unix)]
fn bytes_below(directory: &Path, seen: &mut std::collections::BTreeSet<u64>) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let bytes = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        metadata if metadata.is_dir() => bytes_below(&entry.path(), seen),
        metadata if metadata.is_file() && seen.insert(metadata.ino()) => metadata.len(),
        _ => 0,
    };
    entries.map(bytes).sum()
}

/// A shard that a later generation shares is not freed.
#[cfg(unix)]
#[test]
fn gc_counts_the_bytes_that_are_freed() {
    let place = Place::new();
    let store = build(&place, "store", &pairs(0..3000, "old"));
    for key in ["1", "2", "3"] {
        sharddb_with_input(["put", &store, key], b"new").expect(0);
    }
    let used = || bytes_below(&place.path("store"), &mut std::collections::BTreeSet::new());
    for keep in ["3", "2", "1"] {
        let before = used();
        let predicted = &sharddb(["gc", &store, "--keep", keep, "--dry-run", "--json"]).expect(0).json_lines()[0];
        let collected = &sharddb(["gc", &store, "--keep", keep, "--json"]).expect(0).json_lines()[0];
        assert_eq!(predicted["freed_bytes"], collected["freed_bytes"]);
        assert_eq!(collected["freed_bytes"], before - used(), "{collected}");
    }
    assert_eq!(generations(&store).lines().count(), 1);
}

#[test]
fn a_damaged_generation_that_is_removed_or_skipped_is_named() {
    for args in [&["gc", "--keep", "2", "--dry-run"][..], &["gc", "--keep", "2"], &["rollback"]] {
        let place = Place::new();
        let store = build(&place, "store", &pairs(0..9, "old"));
        for key in ["1", "2"] {
            sharddb_with_input(["put", &store, key], b"new").expect(0);
        }
        let manifest = place.path("store/gen-0000000002/manifest.json");
        fs::remove_file(&manifest).unwrap(); // the file is read-only
        fs::write(&manifest, "{").unwrap();
        let run = sharddb([&args[..1], &[&store, "--json"], &args[1..]].concat()).expect(0);
        let named: Vec<&str> = run.stderr.lines().filter(|line| line.contains("cannot be opened")).collect();
        assert!(named.len() == 1 && named[0].contains("gen-0000000002/manifest.json"), "{args:?}: {}", run.stderr);
        let answer = &run.json_lines()[0];
        match args {
            ["rollback"] => assert_eq!(answer["current"], "gen-0000000001"),
            _ => assert!(answer["removed"][0]["damage"].as_str().unwrap().contains("manifest.json"), "{answer}"),
        }
    }
}
