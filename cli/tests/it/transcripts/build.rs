//! `build` and `publish`: what each option does, as the printed report, the files or another verb shows it.

use super::{transcript, transcript_with_input};
use crate::common::{Place, SHARDING, foreign, sharddb};
use serde_json::{Value, json};
use std::fs;

const NUMBERS: &str = "{\"key\": 1, \"text\": \"one\"}\n{\"key\": 2, \"text\": \"two\"}\n";

fn numbers(place: &Place) {
    place.write("numbers.ndjson", NUMBERS);
}

/// The info of a store's current generation.
fn info(place: &Place, store: &str) -> Value {
    serde_json::from_slice(&fs::read(place.path(store).join("current/info")).unwrap()).unwrap()
}

fn get(place: &Place, store: &str, key: &str) -> Vec<u8> {
    sharddb(["get", &place.text(store), key]).expect(0).stdout
}

/// The usage line of each verb with a store or database and an option that takes paths, as printed.
#[test]
fn the_printed_order_of_arguments_works() {
    let place = Place::new();
    numbers(&place);
    place.write("files/1", "one");
    foreign(&place);
    sharddb(["build", &place.text("built"), "--input", &place.text("numbers.ndjson")]).expect(0);
    let words = |usage: &str, values: &[(&str, &str)]| {
        let usage = usage.replace("[OPTIONS] ", "");
        values.iter().fold(usage, |usage, (name, value)| usage.replace(name, value))
    };
    let numbers = place.text("numbers.ndjson");
    let verbs: [(&str, &[(&str, &str)]); 5] = [
        ("build", &[("<STORE>", &place.text("a")), ("<PATH>...", &format!("{numbers} {}", place.text("files2")))]),
        ("plan", &[("<DB>", &place.text("built")), ("<PATH>...", &numbers), ("<N>", "5"), ("<SIZE>", "5B")]),
        ("publish", &[("<STORE>", &place.text("b")), ("<DIR>", &place.text("built/current/"))]),
        ("import", &[("<SOURCE>", &place.text("foreign")), ("<STORE>", &place.text("c"))]),
        ("bench", &[("<DB|--input <DIR>>", &place.text("built"))]),
    ];
    place.write("files2/7", "seven");
    for (verb, values) in verbs {
        let help = sharddb([verb, "--help"]).expect(0);
        let usage = help.text().split_once("Usage: ").unwrap().1.split_once("\n\n").unwrap().0;
        for line in usage.lines() {
            let line = words(line, values);
            let args: Vec<&str> = line.split_whitespace().skip(1).collect();
            let run = sharddb(&args);
            assert_eq!(run.code, Some(0), "{line}: {}", run.stderr);
        }
    }
}

#[test]
fn build_reads_inputs_as_the_options_say() {
    let place = Place::new();
    place.write("people.txt", "{\"id\": 7, \"name\": \"x\"}\n");
    transcript(
        &place,
        "build-format-key-field",
        &["build", "a", "--input", "people.txt", "--format", "ndjson", "--key-field", "id"],
    );
    assert_eq!(get(&place, "a", "7"), b"{\"id\": 7, \"name\": \"x\"}");

    for name in ["7", "info", "README.md", "notes.txt", "old.txt", ".hidden"] {
        place.write(&format!("files/{name}"), name);
    }
    transcript(&place, "build-dir-another-name", &["build", "b", "--input", "files"]);
    transcript(&place, "build-ignore", &["build", "b", "--input", "files", "--ignore", "*.txt", "--ignore", "README*"]);
    assert_eq!(sharddb(["keys", &place.text("b")]).expect(0).text(), "7\n");
    numbers(&place);
    transcript(&place, "build-ignore-without-directory", &["build", "b", "--input", "numbers.ndjson", "--ignore", "x"]);
    transcript(&place, "build-ignore-no-pattern", &["build", "b", "--input", "files", "--ignore", "[x"]);
}

#[test]
fn build_names_both_places_of_a_duplicate_key() {
    let place = Place::new();
    place.write("a.ndjson", "{\"key\": 5, \"text\": \"\"}\n\n{\"key\": 7, \"text\": \"first\"}\n");
    place.write("b.ndjson", "{\"key\": 6, \"text\": \"\"}\n{\"key\": 7, \"text\": \"last\"}\n");
    place.write("d/7", "file");
    place.write("e/7.gz", "");
    let record = |key: u64| [key.to_le_bytes(), 1_u64.to_le_bytes()].concat();
    place.write("c.bin", [record(1), vec![0], record(7), vec![0], record(7), vec![0]].concat());
    transcript(&place, "build-duplicate-in-two-files", &["build", "s", "--input", "a.ndjson", "b.ndjson"]);
    transcript(&place, "build-duplicate-in-one-file", &["build", "s", "--input", "c.bin"]);
    transcript(&place, "build-duplicate-in-a-directory", &["build", "s", "--input", "d", "a.ndjson"]);
    let twice = NUMBERS.repeat(2);
    let args = ["build", "s", "--input", "-", "--format", "ndjson"];
    transcript_with_input(&place, "build-duplicate-on-standard-input", &args, &twice);
    for (keep, value) in [("first", "first"), ("last", "last")] {
        let args = ["build", "s", "--input", "a.ndjson", "b.ndjson", "--on-duplicate", keep];
        transcript(&place, &format!("build-on-duplicate-{keep}"), &args);
        assert_eq!(get(&place, "s", "7"), value.as_bytes());
    }
}

#[test]
fn build_stores_values_as_the_options_say() {
    let place = Place::new();
    numbers(&place);
    place.write("spec.json", SHARDING);
    place.write("info", "{\"@type\": \"mine\"}");
    transcript(
        &place,
        "build-sharding-info-encodings",
        &[
            "build",
            "a",
            "--input",
            "numbers.ndjson",
            "--sharding",
            "spec.json",
            "--info",
            "info",
            "--data-encoding",
            "gzip",
            "--index-encoding",
            "gzip",
            "--value-alignment",
            "64",
            "--no-checks",
            "--threads",
            "1",
        ],
    );
    let built = info(&place, "a");
    assert_eq!((&built["@type"], &built["sharding"]["shard_bits"]), (&json!("mine"), &json!(1)));
    assert_eq!(built["sharding"]["data_encoding"], "gzip");
    assert_eq!(built["sharding"]["minishard_index_encoding"], "gzip");
    let layout = &sharddb(["info", &place.text("a"), "--json"]).expect(0).json_lines()[0]["layout"];
    assert_eq!((&layout["value_alignment"], &layout["checks"]), (&json!(64), &json!(false)));

    fs::create_dir(place.path("spill")).unwrap();
    transcript(
        &place,
        "build-memory-temp-dir",
        &[
            "build",
            "a",
            "--input",
            "numbers.ndjson",
            "--memory",
            "16MiB",
            "--temp-dir",
            "spill",
            "--profile",
            "cloudvolume",
        ],
    );
    assert_eq!(info(&place, "a")["sharding"]["hash"], "murmurhash3_x86_128");
    transcript(&place, "build-temp-dir-missing", &["build", "a", "--input", "numbers.ndjson", "--temp-dir", "missing"]);
    transcript(&place, "build-memory-too-small", &["build", "a", "--input", "numbers.ndjson", "--memory", "1MiB"]);
    transcript(&place, "build-keep", &["build", "a", "--input", "numbers.ndjson", "--keep", "1"]);
    assert_eq!(sharddb(["generations", &place.text("a")]).expect(0).text().lines().count(), 1);

    place.write("empty.ndjson", "");
    transcript(&place, "build-empty", &["build", "a", "--input", "empty.ndjson"]);
    transcript(&place, "build-allow-empty", &["build", "a", "--input", "empty.ndjson", "--allow-empty"]);
    assert_eq!(sharddb(["keys", &place.text("a")]).expect(0).text(), "");
    let sparse = SHARDING.replace("\"minishard_bits\": 1", "\"minishard_bits\": 30");
    transcript(&place, "build-sparse", &["build", "b", "--input", "numbers.ndjson", "--sharding", &sparse]);
    transcript(&place, "build-force", &["build", "b", "--input", "numbers.ndjson", "--sharding", &sparse, "--force"]);
    assert_eq!(get(&place, "b", "2"), b"two");
}

/// Two vertices, an edge, and `attributes` bytes per vertex.
fn skeleton(attributes: usize) -> Vec<u8> {
    let words: Vec<u8> = [2_u32, 1].into_iter().flat_map(u32::to_le_bytes).collect();
    [words, vec![0; 2 * 12 + 8 + 2 * attributes]].concat()
}

#[test]
fn build_writes_the_info_of_skeletons() {
    let place = Place::new();
    place.write("skeletons/1", [0; 8]); // no vertices
    place.write("skeletons/7", skeleton(5));
    transcript(&place, "build-kind-skeletons", &["build", "s", "--input", "skeletons", "--kind", "skeletons"]);
    let mut written = info(&place, "s");
    for member in ["sharding", "sharddb"] {
        written.as_object_mut().unwrap().remove(member);
    }
    assert_eq!(
        written,
        json!({
            "@type": "neuroglancer_skeletons",
            "transform": [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0],
            "vertex_attributes": [
                {"id": "radius", "data_type": "float32", "num_components": 1},
            ],
        })
    );
    place.write("skeletons/9", skeleton(4));
    transcript(
        &place,
        "build-kind-skeletons-that-differ",
        &["build", "s", "--input", "skeletons", "--kind", "skeletons"],
    );
    place.write("odd/7", skeleton(3));
    transcript(&place, "build-kind-skeletons-unknown", &["build", "s", "--input", "odd", "--kind", "skeletons"]);
    let args = ["build", "s", "--input", "-", "--format", "bin", "--kind", "skeletons"];
    transcript_with_input(&place, "build-kind-skeletons-from-a-pipe", &args, "");

    place.write(
        "good",
        "{\"@type\": \"neuroglancer_skeletons\", \"transform\": [1,0,0,0, 0,1,0,0, 0,0,1,0], \
         \"vertex_attributes\": [{\"id\": \"a\", \"data_type\": \"uint8\", \"num_components\": 3}]}",
    );
    transcript(
        &place,
        "build-kind-skeletons-info",
        &["build", "s", "--input", "odd", "--kind", "skeletons", "--info", "good"],
    );
    assert_eq!(info(&place, "s")["vertex_attributes"][0]["num_components"], 3);
    place.write("short/7", skeleton(2));
    transcript(
        &place,
        "build-kind-skeletons-info-short",
        &["build", "s", "--input", "short", "--kind", "skeletons", "--info", "good"],
    );
    place.write("bad", "{\"@type\": \"neuroglancer_skeletons\", \"vertex_attributes\": []}");
    transcript(
        &place,
        "build-kind-skeletons-bad-info",
        &["build", "s", "--input", "odd", "--kind", "skeletons", "--info", "bad"],
    );
    transcript(&place, "build-kind-unknown", &["build", "s", "--input", "odd", "--kind", "volume"]);
}

/// Skeletons of more than 1 MiB are streamed; the check sees their first bytes.
#[test]
fn build_checks_large_skeletons() {
    let place = Place::new();
    let vertices = 80_000_u32;
    let mut large = [vertices.to_le_bytes(), 0_u32.to_le_bytes()].concat();
    large.resize(8 + 17 * 80_000, 1);
    place.write("large/7", &large);
    sharddb(["build", &place.text("s"), "--input", &place.text("large"), "--kind", "skeletons"]).expect(0);
    assert!(get(&place, "s", "7") == large);
    place.write("large/7", &large[..large.len() - 1]);
    place.write("large/6", skeleton(5));
    transcript(&place, "build-kind-skeletons-large", &["build", "s", "--input", "large", "--kind", "skeletons"]);
}

#[test]
fn build_checks_meshes() {
    let place = Place::new();
    place.write("meshes/3", [0; 4]);
    transcript(&place, "build-kind-mesh", &["build", "m", "--input", "meshes", "--kind", "mesh"]);
    assert_eq!(info(&place, "m")["@type"], "neuroglancer_legacy_mesh");
    place.write("meshes/4", [1, 0, 0, 0, 9]);
    transcript(&place, "build-kind-mesh-cut", &["build", "m", "--input", "meshes", "--kind", "mesh"]);

    // one level of detail with one fragment of 5 bytes
    let words = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 5_u32];
    place.write("multires/3.index", words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    place.write("multires/3", "DRACO");
    transcript(&place, "build-kind-multires-mesh", &["build", "m", "--input", "multires", "--kind", "multires-mesh"]);
    assert_eq!(info(&place, "m")["vertex_quantization_bits"], 16);
    place.write("multires/3", "DRAC");
    transcript(
        &place,
        "build-kind-multires-mesh-cut",
        &["build", "m", "--input", "multires", "--kind", "multires-mesh"],
    );
    place.write("multires.json", r#"{"@type": "neuroglancer_multilod_draco"}"#);
    place.write("lost.ndjson", "{\"key\": 3, \"text\": \"a manifest\"}\n");
    transcript(
        &place,
        "build-info-multires-mesh-lost",
        &["build", "lost", "--input", "lost.ndjson", "--info", "multires.json"],
    );
}

#[test]
fn build_suggests_gzip_to_remote_readers() {
    let place = Place::new();
    for key in 0..20 {
        place.write(&format!("text/{key}"), "shrinks ".repeat(100));
    }
    transcript(&place, "build-profile-remote", &["build", "s", "--input", "text", "--profile", "remote"]);
    assert_eq!(info(&place, "s")["sharding"]["data_encoding"], "raw");
    let gzip = ["build", "s", "--input", "text", "--profile", "remote", "--data-encoding", "gzip"];
    transcript(&place, "build-profile-remote-gzip", &gzip);
    assert_eq!(info(&place, "s")["sharding"]["data_encoding"], "gzip");
}

#[test]
fn build_and_publish_name_the_command_for_foreign_data() {
    let place = Place::new();
    numbers(&place);
    foreign(&place);
    transcript(&place, "build-into-foreign-data", &["build", "foreign", "--input", "numbers.ndjson"]);
    transcript(&place, "publish-from-foreign-data", &["publish", "s", "--from", "foreign"]);
    transcript(&place, "publish-from-no-data", &["publish", "s", "--from", "numbers.ndjson"]);
    sharddb(["build", &place.text("built"), "--input", &place.text("numbers.ndjson")]).expect(0);
    transcript(&place, "publish-from-a-store", &["publish", "s", "--from", "built"]);
    assert!(!place.path("s").exists());
}

#[test]
fn publish_copies_or_moves_a_generation() {
    let place = Place::new();
    numbers(&place);
    sharddb(["build", &place.text("built"), "--input", &place.text("numbers.ndjson")]).expect(0);
    transcript(&place, "publish-from", &["publish", "s", "--from", "built/current"]);
    assert!(place.files("s/gen-0000000001") == place.files("built/gen-0000000001"));
    fs::rename(place.path("built/gen-0000000001"), place.path("incoming")).unwrap();
    transcript(&place, "publish-move", &["publish", "s", "--from", "incoming", "--move"]);
    assert!(!place.path("incoming").exists());
    assert_eq!(get(&place, "s", "2"), b"two");
}

#[test]
fn quiet_prints_errors_only() {
    let place = Place::new();
    numbers(&place);
    transcript(&place, "build-quiet", &["--quiet", "build", "s", "--input", "numbers.ndjson"]);
    assert_eq!(get(&place, "s", "1"), b"one");
}

#[test]
fn export_names_the_first_absent_keys() {
    let place = Place::new();
    numbers(&place);
    sharddb(["build", &place.text("s"), "--input", &place.text("numbers.ndjson")]).expect(0);
    place.write("one.txt", "1\n7\n");
    place.write("many.txt", (2..=14).map(|key| format!("{key}\n")).collect::<String>());
    for keys in ["one", "many"] {
        let list = format!("{keys}.txt");
        let args = ["export", "s", "--format", "ndjson", "--keys", &list];
        transcript(&place, &format!("export-keys-{keys}-absent"), &args);
    }
}

#[test]
fn a_scale_of_a_volume_is_built() {
    let place = Place::new();
    place.write("in.ndjson", "{\"key\": 1, \"text\": \"one\"}\n{\"key\": 2, \"text\": \"two\"}\n");
    place.write("volume.info", r#"{"scales": [{"key": "8_8_8", "sharding": null}, {"key": "16_16_16"}]}"#);
    let build = ["build", "volume", "--input", "in.ndjson", "--info", "volume.info"];
    transcript(&place, "volume-without-pointer", &build);
    transcript(&place, "volume-pointer-to-nothing", &[&build[..], &["--sharding-at", "/scales/2"]].concat());
    transcript(&place, "volume", &[&build[..], &["--sharding-at", "/scales/0"]].concat());
    transcript(&place, "volume-info", &["info", "volume"]);
    transcript(&place, "volume-locate", &["locate", "volume", "2"]);
    transcript(&place, "volume-other-pointer", &["get", "volume", "1", "--sharding-at", "/scales/1"]);
    place.write("volume.info", r#"{"scales": [{"key": "../8_8_8"}]}"#);
    transcript(&place, "volume-bad-key", &[&build[..], &["--sharding-at", "/scales/0"]].concat());
    let info = place.path("volume/current/info");
    assert!(fs::read_to_string(info).unwrap().ends_with("}, {\"key\": \"16_16_16\"}]}"));
}
