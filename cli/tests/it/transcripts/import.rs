//! `import`: which data it takes into a store, and what each option does.

use super::transcript;
use crate::common::{Place, SHARDING, foreign, sharddb};
use serde_json::Value;
use std::fs;

fn info(place: &Place, store: &str) -> Value {
    serde_json::from_slice(&fs::read(place.path(store).join("current/info")).unwrap()).unwrap()
}

/// All pairs with their preambles, in one order.
fn pairs(place: &Place, db: &str, options: &[&str]) -> Vec<String> {
    let db = place.text(db);
    let args = [&["export", &db, "--format", "ndjson"], options].concat();
    let mut lines: Vec<String> = sharddb(args).expect(0).text().lines().map(str::to_string).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn import_takes_foreign_data_and_stores() {
    let place = Place::new();
    foreign(&place);
    let before = place.files("foreign");
    transcript(&place, "import-foreign", &["import", "foreign", "s"]);
    assert_eq!(pairs(&place, "s", &[]), pairs(&place, "foreign", &[]));
    let taken = info(&place, "s");
    assert_eq!((&taken["@type"], &taken["sharding"]["hash"]), (&Value::from("x"), &Value::from("identity")));
    sharddb(["verify", &place.text("s")]).expect(0);

    transcript(&place, "import-store", &["import", "s", "t"]);
    assert!(place.files("t/gen-0000000001") == place.files("s/gen-0000000001"), "a copy of every byte");
    transcript(&place, "import-generation", &["import", "s/gen-0000000001", "t", "--keep", "1"]);
    assert_eq!(sharddb(["generations", &place.text("t")]).expect(0).text().lines().count(), 1);
    assert!(place.files("foreign") == before, "the source is not changed");
}

#[test]
fn help_names_the_source() {
    let help = sharddb(["import", "--help"]).expect(0);
    assert!(help.text().contains("How to open SOURCE:") && !help.text().contains("How to open DB"), "{}", help.text());
}

#[test]
fn import_keeps_preambles_and_gzip_of_meshes() {
    let place = Place::new();
    place.copy("neuroglancer/seg/mesh", "mesh");
    place.copy("neuroglancer/seg/skeletons", "skeletons");
    transcript(&place, "import-skeletons", &["import", "skeletons", "s"]);
    assert_eq!(pairs(&place, "s", &[]), pairs(&place, "skeletons", &[]));
    assert_eq!(info(&place, "s")["sharding"]["data_encoding"], "gzip");
    transcript(&place, "import-profile", &["import", "s", "t", "--profile", "local"]);
    assert_eq!(pairs(&place, "t", &[]), pairs(&place, "skeletons", &[]));
    let (old, new) = (info(&place, "s"), info(&place, "t"));
    assert_ne!(old["sharding"], new["sharding"]);
    assert_eq!(new["sharding"]["data_encoding"], "gzip");
    assert_eq!((&new["@type"], &new["transform"]), (&old["@type"], &old["transform"]));
    sharddb(["import", &place.text("mesh"), &place.text("m")]).expect(0);
    let mesh = info(&place, "m");
    assert_eq!(
        (&mesh["@type"], &mesh["vertex_quantization_bits"]),
        (&"neuroglancer_multilod_draco".into(), &16.into())
    );
}

#[test]
fn import_builds_again_with_the_options_of_the_new_store() {
    let place = Place::new();
    foreign(&place);
    fs::create_dir(place.path("spill")).unwrap();
    let sharding = SHARDING.replace("\"shard_bits\": 1", "\"shard_bits\": 0");
    transcript(
        &place,
        "import-sharding-memory-temp-dir",
        &["import", "foreign", "s", "--sharding", &sharding, "--memory", "16MiB", "--temp-dir", "spill"],
    );
    assert_eq!(info(&place, "s")["sharding"]["shard_bits"], 0);
    assert_eq!(info(&place, "s")["@type"], "x");
    assert_eq!(pairs(&place, "s", &[]), pairs(&place, "foreign", &[]));
    transcript(&place, "import-temp-dir-missing", &["import", "foreign", "s", "--temp-dir", "missing"]);
    transcript(
        &place,
        "import-profile-and-sharding",
        &["import", "foreign", "s", "--profile", "local", "--sharding", &sharding],
    );
    place.write("bare/0.shard", fs::read(place.path("foreign/0.shard")).unwrap());
    transcript(&place, "import-without-info", &["import", "bare", "b"]);
    transcript(&place, "import-without-info-sharding", &["import", "bare", "b", "--sharding", SHARDING]);
    assert_eq!(pairs(&place, "b", &[]), pairs(&place, "foreign", &[]));
    place.write("empty/info", format!("{{\"sharding\": {SHARDING}}}"));
    transcript(&place, "import-empty", &["import", "empty", "s"]);
    transcript(&place, "import-allow-empty", &["import", "empty", "s", "--allow-empty"]);
    assert_eq!(pairs(&place, "s", &[]), [""; 0]);
}

#[test]
fn import_takes_a_scale_of_a_volume() {
    let place = Place::new();
    place.copy("neuroglancer/seg", "seg");
    transcript(&place, "import-sharding-at", &["import", "seg", "s", "--sharding-at", "/scales/0"]);
    assert_eq!(pairs(&place, "s", &[]), pairs(&place, "seg", &["--sharding-at", "/scales/0"]));
    let taken = info(&place, "s");
    let given: Value = serde_json::from_slice(&fs::read(place.path("seg/info")).unwrap()).unwrap();
    assert_eq!(taken["scales"][0]["sharding"], given["scales"][0]["sharding"]);
    assert_eq!((&taken["type"], &taken["mesh"]), (&given["type"], &given["mesh"]));
    place.copy("neuroglancer/ann", "ann");
    transcript(
        &place,
        "import-sharding-at-and-profile",
        &["import", "ann", "t", "--sharding-at", "/by_id", "--profile", "remote"],
    );
    assert_eq!(pairs(&place, "t", &[]), pairs(&place, "ann", &["--sharding-at", "/by_id"]));
}

#[test]
fn import_opens_the_source_as_the_options_say() {
    let place = Place::new();
    foreign(&place);
    for storage in ["mmap", "pread", "heap"] {
        transcript(&place, &format!("import-storage-{storage}"), &["import", "foreign", storage, "--storage", storage]);
        assert_eq!(pairs(&place, storage, &[]), pairs(&place, "foreign", &[]));
    }
    place.write("long/1", "x".repeat(5000));
    sharddb(["build", &place.text("gzip"), "--input", &place.text("long"), "--data-encoding", "gzip"]).expect(0);
    let limited = ["import", "gzip", "s", "--profile", "local", "--max-value"];
    transcript(&place, "import-max-value", &[&limited[..], &["4KiB"]].concat());
    transcript(&place, "import-max-value-enough", &[&limited[..], &["5KiB"]].concat());
    assert_eq!(pairs(&place, "s", &[]), pairs(&place, "gzip", &[]));
}

#[test]
fn import_verifies_unless_told_not_to() {
    let place = Place::new();
    place.write("files/1", "value");
    sharddb(["build", &place.text("good"), "--input", &place.text("files")]).expect(0);
    let mut shard = fs::read(place.path("good/current/0.shard")).unwrap();
    let at = shard.windows(5).position(|bytes| bytes == b"value").unwrap();
    shard[at] = b'V';
    place.write("bad/0.shard", &shard);
    for file in ["info", "manifest.json"] {
        place.write(&format!("bad/{file}"), fs::read(place.path("good/current").join(file)).unwrap());
    }
    transcript(&place, "import-damaged-copy", &["import", "bad", "s"]);
    transcript(
        &place,
        "import-damaged-again",
        &["import", "bad", "s", "--profile", "remote", "--verify-reads", "always"],
    );
    assert!(!place.path("s").exists());
    transcript(&place, "import-no-verify", &["import", "bad", "s", "--profile", "remote", "--no-verify"]);
    assert_eq!(sharddb(["get", &place.text("s"), "1"]).expect(0).text(), "Value");
    transcript(&place, "import-no-verify-of-a-copy", &["import", "bad", "t", "--no-verify"]);
    transcript(&place, "import-memory-of-a-copy", &["import", "bad", "t", "--memory", "16MiB"]);
}

#[test]
fn import_says_which_options_have_no_effect_on_arrays() {
    let place = Place::new();
    place.copy("bcolz/b121_ctable", "table");
    let table = ["import", "table", "s"];
    transcript(&place, "import-table", &table);
    let columns = sharddb([&table[..1], &[&place.text("table"), &place.text("s")]].concat()).expect(2).stderr;
    let column = columns.trim().rsplit([' ', ',']).next().unwrap().to_string();
    transcript(&place, "import-column", &[&table[..], &["--column", &column, "--profile", "remote"]].concat());
    transcript(
        &place,
        "import-array-verify-reads",
        &[&table[..], &["--column", &column, "--verify-reads", "never"]].concat(),
    );
    let array = format!("table/{column}");
    transcript(&place, "import-array-sharding-at", &["import", &array, "s", "--sharding-at", "/scales/0"]);
    transcript(&place, "import-into-an-array", &["import", "s", "table"]);
}

/// Neither may be published: lookups find only one pair of the key, or none.
#[test]
fn import_refuses_keys_that_are_twice_or_misplaced() {
    let place = Place::new();
    foreign(&place);
    let mut shard = fs::read(place.path("foreign/0.shard")).unwrap();
    // the deltas of ids in the minishard index at the end of the shard: 0, 4, 4
    let index = shard.len() - 12 * 8;
    shard[index + 16] = 0;
    place.write("twice/0.shard", &shard);
    place.write("misplaced/1.shard", fs::read(place.path("foreign/0.shard")).unwrap());
    for source in ["twice", "misplaced"] {
        place.write(&format!("{source}/info"), fs::read(place.path("foreign/info")).unwrap());
        transcript(&place, &format!("import-{source}"), &["import", source, "s"]);
        assert!(!place.path("s").exists());
    }
}
