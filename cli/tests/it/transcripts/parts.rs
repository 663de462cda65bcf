//! `plan --parts`, `spill`, `build-part`, `publish-parts` and `clean-parts`: what each option does.

use std::fs;

use super::transcript;
use crate::common::{Place, SHARDING, Start, command, sharddb};

/// A place with a plan of two parts, and inputs for two tasks that share key 2.
fn planned() -> Place {
    let place = Place::new();
    place.write("0.ndjson", "{\"key\": 1, \"text\": \"one\"}\n{\"key\": 2, \"text\": \"two\"}\n");
    place.write("1.ndjson", "{\"key\": 2, \"text\": \"zwei\"}\n{\"key\": 3, \"text\": \"drei\"}\n");
    let plan = sharddb(["plan", "--keys", "3", "--bytes", "12B", "--parts", "2", "--sharding", SHARDING]).expect(0);
    place.write("plan", plan.stdout);
    fs::create_dir(place.path("tmp")).unwrap();
    place
}

/// Runs a step in the place, and keeps its receipt in a file.
#[track_caller]
fn keep(place: &Place, receipt: &str, args: &[&str]) {
    let run = command(args).current_dir(place.path("")).run().expect(0);
    place.write(receipt, run.stdout);
}

const SPILL: [&str; 5] = ["spill", "store", "night", "--plan", "plan"];
const PART: [&str; 7] = ["build-part", "store", "night", "--plan", "plan", "--spills", "spills"];
const PUBLISH: [&str; 9] =
    ["publish-parts", "store", "night", "--plan", "plan", "--spills", "spills", "--parts", "parts"];

/// A place with the receipts of two tasks in one file, and those of two parts in another.
fn built() -> Place {
    let place = planned();
    let mut spills = Vec::new();
    for task in ["0", "1"] {
        let input = format!("{task}.ndjson");
        keep(&place, "receipt", &[&SPILL[..], &["--task", task, "--input", &input]].concat());
        spills.extend(fs::read(place.path("receipt")).unwrap());
    }
    place.write("spills", spills);
    let mut parts = Vec::new();
    for part in ["0", "1"] {
        keep(&place, "receipt", &[&PART[..], &["--part", part, "--on-duplicate", "concat"]].concat());
        parts.extend(fs::read(place.path("receipt")).unwrap());
    }
    place.write("parts", parts);
    place
}

#[test]
fn plans() {
    let place = planned();
    let plan = |name: &str, args: &[&str]| transcript(&place, name, &[&["plan", "--parts", "3"][..], args].concat());
    plan("plan-parts", &["--keys", "1e9", "--bytes", "100GB"]);
    plan("plan-parts-gzip", &["--input", "0.ndjson", "--data-encoding", "gzip"]);
    plan("plan-parts-sharding", &["--keys", "3", "--bytes", "12B", "--sharding", SHARDING]);
    plan("plan-parts-json", &["--keys", "3", "--bytes", "12B", "--json"]);
    transcript(&place, "plan-no-parts", &["plan", "--keys", "3", "--bytes", "12B", "--parts", "0"]);
}

#[test]
fn spills() {
    let place = planned();
    let spill = |name: &str, args: &[&str]| transcript(&place, name, &[&SPILL[..], args].concat());
    spill("spill", &["--task", "7", "--input", "0.ndjson", "1.ndjson"]);
    spill("spill-again", &["--task", "7", "--input", "0.ndjson", "1.ndjson"]);
    place.write("people.txt", "{\"id\": 7, \"name\": \"x\"}\n");
    spill("spill-key-field", &["--task", "8", "--input", "people.txt", "--format", "ndjson", "--key-field", "id"]);
    place.write("files/8", "eight");
    place.write("files/9.json", "{}");
    spill("spill-ignore", &["--task", "9", "--input", "files", "--ignore", "*.json"]);
    place.write("tree/00/0011.json", "eleven");
    let names = ["--recursive", "--suffix", ".json", "--name-base", "10"];
    spill("spill-names", &[&["--task", "14", "--input", "tree"], &names[..]].concat());
    place.write("rows.csv", "x,10\ny,11\n");
    let columns = ["--key-column", "2", "--value-column", "1", "--no-header"];
    spill("spill-columns", &[&["--task", "10", "--input", "rows.csv"], &columns[..]].concat());
    spill("spill-dir-memory", &["--task", "11", "--input", "0.ndjson", "--dir", "elsewhere", "--memory", "16MiB"]);
    place.write("empty.ndjson", "");
    spill("spill-no-pairs", &["--task", "12", "--input", "empty.ndjson"]);
    place.write("bad.ndjson", "{\"key\": 1, \"text\": \"one\"}\n{\"key\": \"x\"}\n");
    spill("spill-malformed", &["--task", "13", "--input", "bad.ndjson"]);
    let args = ["spill", "store", "a/b", "--plan", "plan", "--task", "0", "--input", "0.ndjson"];
    transcript(&place, "spill-job", &args);
    let args = ["spill", "store", "night", "--plan", "0.ndjson", "--task", "0", "--input", "0.ndjson"];
    transcript(&place, "spill-no-plan", &args);
    let left = fs::read_dir(place.path("store/parts-night")).unwrap().count();
    assert_eq!(left, 7, "of the attempts that succeeded");
}

#[test]
fn parts() {
    let place = built();
    let part = |name: &str, args: &[&str]| transcript(&place, name, &[&PART[..], args].concat());
    part("build-part-duplicate", &["--part", "1", "--force"]);
    part("build-part-last", &["--part", "0", "--on-duplicate", "last", "--no-checks", "--value-alignment", "8"]);
    let limits = ["--memory", "16MiB", "--temp-dir", "tmp", "--threads", "1"];
    part("build-part-limits", &[&["--part", "1", "--on-duplicate", "first"], &limits[..]].concat());
    part("build-part-none", &["--part", "2"]);
    part("build-part-dir", &["--part", "0", "--dir", "tmp"]);
    place.write("no receipts", "");
    let args = ["build-part", "store", "night", "--plan", "plan", "--part", "0", "--spills", "no receipts"];
    transcript(&place, "build-part-no-receipts", &args);
}

#[test]
fn publications() {
    let place = built();
    let publish = |name: &str, args: &[&str]| transcript(&place, name, &[&PUBLISH[..], args].concat());
    let parts = fs::read_to_string(place.path("parts")).unwrap();
    place.write("parts", parts.lines().next().unwrap());
    publish("publish-parts-lost", &[]);
    place.write("parts", format!("{parts}x"));
    publish("publish-parts-malformed", &[]);
    place.write("parts", parts);
    publish("publish-parts-dir", &["--dir", "tmp", "--info", "missing"]);
    place.write("info", "{\"scales\": [{\"key\": \"s0\"}]}");
    let ordered = ["--ordered", "--memory", "16MiB", "--temp-dir", "tmp"];
    let volume = ["--info", "info", "--sharding-at", "/scales/0"];
    publish("publish-parts", &[&["--json"], &ordered[..], &volume[..]].concat());
    publish("publish-parts-again", &[&["--json"], &ordered[..], &volume[..]].concat());
    publish("publish-parts-otherwise", &[]);
    transcript(&place, "publish-parts-result", &["export", "store", "--format", "ndjson", "--as", "text"]);
    keep(&place, "receipt", &["spill", "store", "day", "--plan", "plan", "--task", "0", "--input", "0.ndjson"]);
    place.write("store/parts-day/notes", "");
    transcript(&place, "clean-parts", &["clean-parts", "store"]);
    assert!(!place.path("store/parts-night").exists());
    transcript(&place, "clean-parts-again", &["clean-parts", "store"]);
    transcript(&place, "clean-parts-job", &["clean-parts", "store", "day"]);
    let left = fs::read_dir(place.path("store/parts-day")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["notes"]);
    transcript(&place, "clean-parts-none", &["clean-parts", "store", "night"]);
}

#[test]
fn parts_without_a_pair_replace_no_pairs() {
    let place = Place::new();
    place.write("input", "{\"key\": 1, \"text\": \"one\"}\n");
    place.write("nothing", "");
    let step = |args: &[&str]| command(args).current_dir(place.path("")).run();
    place.write("plan", step(&["plan", "--keys", "10", "--bytes", "1MB", "--parts", "1"]).stdout);
    step(&["build", "store", "--input", "input", "--format", "ndjson"]).expect(0);
    let spill =
        ["spill", "store", "night", "--plan", "plan", "--task", "0", "--input", "nothing", "--format", "ndjson"];
    place.write("spill", step(&spill).expect(0).stdout);
    let part = ["build-part", "store", "night", "--plan", "plan", "--spills", "spill", "--part", "0"];
    place.write("parts", step(&part).expect(0).stdout);
    let publish = ["publish-parts", "store", "night", "--plan", "plan", "--spills", "spill", "--parts", "parts"];
    transcript(&place, "publish-parts-empty", &publish);
    assert_eq!(step(&["get", "store", "1"]).expect(0).stdout, b"one");
    transcript(&place, "publish-parts-allow-empty", &[&publish[..], &["--allow-empty"]].concat());
    assert_eq!(step(&["get", "store", "1"]).code, Some(1));
}
