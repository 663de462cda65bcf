//! Directories whose files are named by more than their keys: each error advises the options that read them.

use std::fs;

use super::transcript;
use crate::common::{Place, sharddb};

fn values(place: &Place, store: &str) -> String {
    let args = ["export", &place.text(store), "--format", "ndjson", "--as", "text", "--sorted"];
    sharddb(args).expect(0).text().to_string()
}

/// A cache as programs keep it: subdirectories by the end of the key, leading zeros, and a suffix.
#[test]
fn a_tree_is_read_step_by_step() {
    let place = Place::new();
    for (path, value) in [("07/0007.json", "seven"), ("07/0107.json", "one hundred and seven"), ("12/0012.json", "")] {
        place.write(&format!("tree/{path}"), value);
    }
    place.write("tree/README.md", "how to read it");
    place.write("tree/.git/HEAD", "");
    let build = ["build", "s", "--input", "tree"];
    let with = |options: &[&'static str]| [&build[..], options].concat();
    transcript(&place, "build-names-directory", &build);
    transcript(&place, "build-names-suffix", &with(&["--recursive"]));
    let all = ["--recursive", "--suffix", ".json", "--name-base", "10"];
    transcript(&place, "build-names-readme", &with(&all));
    transcript(&place, "build-names", &with(&[&all[..], &["--ignore", "README*", "--json"]].concat()));
    assert_eq!(
        values(&place, "s"),
        "{\"key\":\"7\",\"text\":\"seven\"}\n{\"key\":\"12\",\"text\":\"\"}\n{\"key\":\"107\",\"text\":\"one hundred and seven\"}\n"
    );
}

#[test]
fn names_in_other_bases_are_advised() {
    let place = Place::new();
    place.write("padded/0007", "7");
    place.write("hex/0x1F.json", "31");
    place.write("hex/2a.json", "42");
    transcript(&place, "build-names-padded", &["build", "s", "--input", "padded"]);
    transcript(&place, "build-names-hex", &["build", "s", "--input", "hex"]);
    let hex = ["build", "s", "--input", "hex", "--suffix", ".json", "--name-base", "16"];
    transcript(&place, "build-names-base-16", &hex);
    assert_eq!(values(&place, "s"), "{\"key\":\"31\",\"text\":\"31\"}\n{\"key\":\"42\",\"text\":\"42\"}\n");
    let padded = ["build", "s", "--input", "padded", "hex", "--name-base", "10"];
    transcript(&place, "build-names-two-directories", &padded);
}

#[test]
fn names_of_one_key_are_both_shown() {
    let place = Place::new();
    for path in ["tree/00/7", "tree/01/7", "padded/7", "padded/0007"] {
        place.write(path, "");
    }
    let both = ["build", "s", "--input", "tree", "--recursive", "--on-duplicate", "first"];
    transcript(&place, "build-names-twice", &both);
    transcript(&place, "build-names-twice-padded", &["build", "s", "--input", "padded", "--name-base", "10"]);
    let apart = ["build", "s", "--input", "tree/00", "tree/01", "--on-duplicate", "first"];
    transcript(&place, "build-names-twice-apart", &apart);
}

/// The files of igneous: manifests `KEY:0`, which are JSON, and the fragments that they name.
#[test]
fn manifests_of_meshes_are_values_and_fragments_are_skipped() {
    let place = Place::new();
    let manifest = "{\"fragments\": [\"7:0:0-64_0-64_0-64\"]}";
    place.write("mesh/info", "{\"@type\": \"neuroglancer_legacy_mesh\"}");
    place.write("mesh/7:0", manifest);
    place.write("mesh/7:0:0-64_0-64_0-64.gz", "");
    place.write("mesh/7:0:64-128_0-64_0-64.gz", "");
    transcript(&place, "build-names-meshes", &["build", "s", "--input", "mesh"]);
    assert_eq!(sharddb(["get", &place.text("s"), "7"]).expect(0).text(), manifest);
    fs::remove_file(place.path("mesh/7:0")).unwrap();
    transcript(&place, "build-names-fragments-only", &["build", "t", "--input", "mesh"]);
}

#[test]
fn all_files_skipped_is_an_error() {
    let place = Place::new();
    for name in ["7.json", "8.json", ".lock"] {
        place.write(&format!("files/{name}"), "");
    }
    let ignore = ["build", "s", "--input", "files", "--ignore", "*.json"];
    transcript(&place, "build-names-all-ignored", &ignore);
    sharddb(["generations", &place.text("s")]).expect(4);
    place.write("mixed/9", "nine");
    place.write("mixed/9.json", "");
    transcript(&place, "build-names-mixed", &["build", "s", "--input", "mixed"]);
    transcript(&place, "build-names-one-of-two", &["build", "s", "--input", "mixed", "files", "--ignore", "*.json"]);
}

#[test]
fn options_of_names_need_a_directory_and_sense() {
    let place = Place::new();
    place.write("in.ndjson", "{\"key\": 1, \"text\": \"one\"}\n");
    let file = ["build", "s", "--input", "in.ndjson"];
    for (name, options) in [
        ("suffix", &["--suffix", ".json"][..]),
        ("recursive", &["--recursive"]),
        ("base", &["--name-base", "16"]),
        ("suffix-empty", &["--suffix", ""]),
        ("suffix-gz", &["--suffix", ".json.gz"]),
        ("base-8", &["--name-base", "8"]),
    ] {
        transcript(&place, &format!("build-names-file-{name}"), &[&file[..], options].concat());
    }
}
