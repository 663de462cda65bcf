//! What the verbs that change a store or describe the command report: as text and as JSON.

use std::fs;

use super::transcript;
use crate::common::{Place, data, sharddb};

fn store_of(place: &Place, generations: u64) {
    for number in 1..=generations {
        let line = format!("{{\"key\": {number}, \"text\": \"x\"}}\n");
        let input = place.write("in.ndjson", line);
        sharddb(["build", &place.text("store"), "--input", &input]).expect(0);
    }
}

#[test]
fn generations_are_described_and_collected() {
    let place = Place::new();
    store_of(&place, 4);
    transcript(&place, "reports-rollback", &["rollback", "store", "gen-2", "--json"]);
    transcript(&place, "reports-rollback-absent", &["rollback", "store", "9"]);
    transcript(&place, "reports-discard-absent", &["discard", "store", "gen-9"]);
    transcript(&place, "reports-generations", &["generations", "store"]);
    transcript(&place, "reports-generations-json", &["generations", "store", "--json"]);
    transcript(&place, "reports-gc-dry-run", &["gc", "store", "--keep", "2", "--dry-run"]);
    assert_eq!(place.names("store").len(), 7, "nothing was removed");
    transcript(&place, "reports-gc-json", &["gc", "store", "--dry-run", "--json"]);
    transcript(&place, "reports-gc", &["gc", "store", "--keep", "3"]);
    transcript(&place, "reports-gc-nothing", &["gc", "store", "--keep", "3", "--json"]);
    transcript(&place, "reports-discard", &["discard", "store", "gen-3"]);
    assert_eq!(place.names("store").iter().filter(|name| name.starts_with("gen-")).count(), 2);
}

/// The other generations are needed for a rollback.
#[test]
fn a_damaged_manifest_does_not_hide_the_others() {
    let place = Place::new();
    store_of(&place, 2);
    let manifest = place.path("store/gen-0000000001/manifest.json");
    fs::remove_file(&manifest).unwrap(); // it is read-only
    fs::write(&manifest, "{}").unwrap();
    transcript(&place, "reports-generations-damaged", &["generations", "store"]);
}

#[test]
fn what_is_published_is_reported_as_json() {
    let place = Place::new();
    place.write("in.ndjson", "{\"key\": 1, \"text\": \"x\"}\n");
    let built = sharddb(["build", &place.text("store"), "--input", &place.text("in.ndjson"), "--json"]).expect(0);
    let mut json: serde_json::Value = serde_json::from_slice(&built.stdout).unwrap();
    assert!(json.as_object_mut().unwrap().remove("seconds").unwrap().is_f64());
    let expected = serde_json::json!({
        "generation": "gen-0000000001", "keys": 1, "keys_before": null, "duplicates_dropped": 0, "value_bytes": 1, "shards": 1,
        "file_bytes": json["file_bytes"], "skipped_files": 0,
    });
    assert_eq!(json, expected);
    transcript(&place, "reports-publish", &["publish", "copy", "--from", "store/gen-0000000001", "--json"]);
}

#[test]
fn a_bench_is_reported_as_json() {
    let place = Place::new();
    store_of(&place, 1);
    let run = sharddb(["bench", &place.text("store"), "--lookups", "1k", "--cold", "no", "--json"]).expect(0);
    let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&json["keys"], &json["looked_up"]), (&1.into(), &1.into()));
    assert_eq!(json["table"]["columns"].as_array().unwrap().len(), 1);
    let rows = json["table"]["rows"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(row("lookup, median")["unit"], "ns");
    assert!(row("lookup, median")["values"][0].as_f64().unwrap() > 0.0);
    assert_eq!((&row("files")["unit"], row("files")["values"][0].is_u64()), (&"count".into(), true));
    transcript(&place, "reports-bench-lookups", &["bench", "store", "--lookups", "5e9"]);
}

#[test]
fn there_is_a_page_for_every_verb() {
    let place = Place::new();
    let run = sharddb(["man", &place.text("man")]).expect(0);
    assert!(run.stderr.contains("pages in "), "{}", run.stderr);
    let names = place.names("man");
    for name in ["sharddb.1", "sharddb-build.1", "sharddb-get-many.1", "sharddb-zarr-pack.1", "sharddb-man.1"] {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
    let page = fs::read_to_string(place.path("man/sharddb-gc.1")).unwrap();
    let title = concat!(".TH sharddb-gc 1  \"sharddb ", env!("CARGO_PKG_VERSION"), "\" \n");
    for part in [title, "dry\\-run", ".nf\nExamples:\n  sharddb gc numbers", "Exit codes"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(page.ends_with(".fi\n"), "{page}");
    transcript(&place, "reports-man-no-directory", &["man", "man/sharddb.1"]);
}

#[test]
fn completions_offer_the_values_of_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = sharddb(["completions", shell]).expect(0);
        assert!(script.text().contains("dry-run"), "{shell}");
    }
    let script = sharddb(["completions", "bash"]).expect(0);
    for values in ["local remote cloudvolume", "1 4 8 16 64 4096", "ndjson.gz"] {
        assert!(script.text().contains(values), "{values}");
    }
    let place = Place::new();
    transcript(&place, "reports-completions-unknown", &["completions", "csh"]);
}

#[test]
fn verbs_of_other_tools_lead_to_those_of_this_one() {
    let place = Place::new();
    for verb in ["ls", "list", "cat", "version", "set", "rm", "cp"] {
        transcript(&place, &format!("reports-tip-{verb}"), &[verb]);
    }
    transcript(&place, "reports-tip-similar", &["bild"]);
}

/// One form for all: one line, sorted, with an absolute path.
#[test]
fn info_has_one_form() {
    let place = Place::new();
    store_of(&place, 1);
    let array = data("bcolz/b121_i4_setitem");
    for path in [place.text("store"), array] {
        let run = sharddb(["info", &path, "--json"]).expect(0);
        let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(run.text(), format!("{json}\n"));
        assert_eq!(json["path"], path.as_str());
    }
}
