//! bcolz arrays, columns and bloscpack files answer the same verbs as databases, and move without a byte changed.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::path::Path;

use common::{Place, sharddb};
use serde_json::{Value as Json, json};

fn data(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/bcolz").join(path);
    path.to_str().unwrap().to_string()
}

#[test]
fn they_answer_the_verbs_of_a_database() {
    for (path, format, keys) in [
        ("b121_i4_setitem", "bcolz", 12),
        ("b121_ctable/price", "bcolz", 1),
        ("rfc_flat_i4", "bcolz", 6),
        ("rfc_nested_cols/col2", "bcolz", 6),
        ("bloscpack/maxapp_20.blp", "bloscpack", 6),
    ] {
        let path = data(path);
        assert_eq!(sharddb(["keys", &path]).expect(0).text().lines().count(), keys, "{path}");
        let info: Json = serde_json::from_str(sharddb(["info", &path, "--json"]).expect(0).text()).unwrap();
        assert_eq!((&info["format"], &info["keys"]), (&json!(format), &json!(keys)), "{path}");
        let encoded = sharddb(["get", &path, "0"]).expect(0).stdout;
        let decoded = sharddb(["get", &path, "0", "--decoded"]).expect(0).stdout;
        assert!(encoded.len() < decoded.len(), "{path}");
        sharddb(["get", &path, "99"]).expect(1);
    }
    sharddb(["verify", &data("b121_i4_setitem")]).expect(0);
    sharddb(["verify", &data("bloscpack/cs_md5.blp")]).expect(0);
    sharddb(["info", &data("b121_ctable")]).expect_error(2, &["found a table"]);
}

#[test]
fn an_import_is_given_back_byte_for_byte() {
    let place = Place::new();
    for path in ["b121_i4_setitem", "rfc_flat_i4"] {
        let (source, store, again) = (data(path), place.text(&format!("{path}-store")), place.text(path));
        sharddb(["import", &source, &store]).expect(0);
        sharddb(["export", &store, "--format", "bcolz", "--output", &again]).expect(0);
        for entry in fs::read_dir(Path::new(&source).join("data")).unwrap().map(|entry| entry.unwrap().path()) {
            let same = Path::new(&again).join("data").join(entry.file_name().unwrap());
            assert!(fs::read(&entry).unwrap() == fs::read(same).unwrap(), "{}", entry.display());
        }
        let shape = |path: &str| -> Json {
            let text = sharddb(["info", path, "--json"]).expect(0).stdout;
            serde_json::from_slice::<Json>(&text).unwrap()["shape"].clone()
        };
        assert_eq!(shape(&source), shape(&again));
        sharddb(["export", &store, "--format", "bcolz", "--output", &again]).expect_error(2, &["nothing here yet"]);
        sharddb(["export", &store, "--format", "zarr", "--output", &place.text("zarr")]).expect(2);
    }
    let (store, again) = (place.text("file-store"), place.text("again.blp"));
    sharddb(["import", &data("bloscpack/maxapp_20.blp"), &store]).expect(0);
    sharddb(["export", &store, "--format", "bcolz", "--output", &again]).expect(0);
    assert!(fs::read(data("bloscpack/maxapp_20.blp")).unwrap() == fs::read(&again).unwrap());
}

#[test]
fn a_column_becomes_a_zarr_array() {
    let place = Place::new();
    let out = place.text("price.zarr");
    let args = ["convert", "bcolz-zarr", &data("rfc_flat_i4"), &out, "--shard-chunks", "2"];
    assert!(sharddb(args).expect(0).stderr.contains("6 chunks"));
    assert_eq!(sharddb(["keys", &out]).expect(0).text().lines().count(), 6);
    sharddb(args).expect(2);
}
