//! An array converted to a precomputed volume has the values that another program's conversion has, and an array that
//! was imported and exported has the same bytes in all chunks.

use std::collections::BTreeMap;
use std::fs;

use crate::common::{TempDir, data, json, name, number, sets, sha256, text};
use sharddb::spec::Encoding;
use sharddb::{BuildOptions, BulkLoader, ErrorKind, Progress, ShardDb, ShardingSpec, Snapshot, VerifyLevel};
use sharddb_container::zarr::{PrecomputedOptions, ZarrArray, export};
use sharddb_container::{Container, Form, KeySpace};

fn pairs(container: &dyn Container, form: Form) -> BTreeMap<u64, Vec<u8>> {
    let pair = |key| (key, container.get(key, form).unwrap().unwrap().to_vec());
    container.keys().map(Result::unwrap).map(pair).collect()
}

fn open(path: &std::path::Path) -> Snapshot {
    ShardDb::open(path).unwrap().snapshot()
}

#[test]
fn volumes_have_the_values_that_another_program_made() {
    let sets = sets("zarr/precomputed");
    assert_eq!(sets.len(), 4);
    for expected in sets {
        let source = ZarrArray::open(data(&format!("zarr/arrays/{}.zarr", name(&expected)))).unwrap();
        let info = json(&expected.join("info"));
        let theirs = ShardingSpec::from_json(&info["scales"][0]["sharding"].to_string()).unwrap();
        for spec in [None, Some(theirs)] {
            let scratch = TempDir::new();
            let target = scratch.path().join("volume");
            let mut options = PrecomputedOptions::new();
            spec.map(|spec| options.spec(spec).resolution([1.0, 1.0, 1.0]));
            options.convert(&source, "zyx", &target).unwrap();

            let volume = open(&target);
            let chunks = json(&expected.join("expected.json"));
            let grid = chunks["grid_xyz"].as_array().unwrap().iter().map(number).collect();
            assert_eq!(volume.key_space(), KeySpace::Morton { grid });
            let mut wanted = BTreeMap::new();
            for chunk in chunks["chunks"].as_array().unwrap() {
                let xyz: Vec<u64> = chunk["xyz"].as_array().unwrap().iter().map(number).collect();
                let key = volume.key_space().key_at(&xyz).unwrap();
                assert_eq!(key, number(&chunk["morton"]));
                wanted.insert(key, text(&chunk["sha256"]).to_string());
            }
            let found: BTreeMap<u64, String> =
                pairs(&volume, Form::Decoded).into_iter().map(|(key, value)| (key, sha256(&value))).collect();
            assert_eq!(found, wanted, "{}", name(&expected));
            assert!(volume.verify(VerifyLevel::Data).unwrap().is_clean());
            if spec.is_some() {
                let (mut ours, mut theirs) = (json(&target.join("info")), info.clone());
                for info in [&mut ours, &mut theirs] {
                    info["scales"][0]["resolution"] = serde_json::json!([1, 1, 1]); // 1 and 1.0
                }
                assert_eq!(ours, theirs);
            }
        }
    }
}

/// 2 channels, 3 x 5, chunks of 2 x 2 x 3.
fn small(data_type: &str, fill: &str, chunk: &str) -> String {
    format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [2, 3, 5], "data_type": "{data_type}", "fill_value": {fill},
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": {chunk}}}}},
            "chunk_key_encoding": {{"name": "v2"}}, "codecs": ["bytes"]}}"#
    )
}

#[test]
fn axes_are_turned_and_what_is_absent_is_filled_unless_it_is_zero() {
    for (fill, chunks) in [(0, 1), (9, 4)] {
        let scratch = TempDir::new();
        fs::write(scratch.path().join("zarr.json"), small("uint8", &fill.to_string(), "[2, 2, 3]")).unwrap();
        fs::write(scratch.path().join("0.1.1"), [1, 2, 0, 0, 0, 0, 11, 12, 0, 0, 0, 0]).unwrap();
        let source = ZarrArray::open(scratch.path()).unwrap();
        let target = scratch.path().join("volume");
        // the axes are channel, x, y
        assert_eq!(PrecomputedOptions::new().convert(&source, "cxy", &target).unwrap(), chunks);
        let volume = open(&target);
        let key = volume.key_space().key_at(&[1, 1, 0]).unwrap();
        assert_eq!(volume.get(key).unwrap().unwrap(), [1, 2, 11, 12], "1 of 2 along x, 2 of 3 along y, 2 channels");
        let info = json(&target.join("info"));
        assert_eq!(info["num_channels"], 2);
        assert_eq!(info["scales"][0]["size"], serde_json::json!([3, 5, 1]));
        assert_eq!(info["scales"][0]["chunk_sizes"], serde_json::json!([[2, 3, 1]]));
        let whole = volume.key_space().key_at(&[0, 0, 0]).unwrap();
        assert_eq!(volume.get(whole).unwrap().map(|value| value.to_vec()), (fill == 9).then(|| vec![9; 12]));
    }
}

#[test]
fn what_a_volume_cannot_be_is_refused() {
    let cases = [
        ("uint8", "0", "[2, 2, 3]", "zyx", None),
        ("uint8", "0", "[2, 2, 3]", "yx", Some(ErrorKind::InvalidInput)),
        ("uint8", "0", "[2, 2, 3]", "zyy", Some(ErrorKind::InvalidInput)),
        ("uint8", "0", "[2, 2, 3]", "tyx", Some(ErrorKind::InvalidInput)),
        ("uint8", "0", "[1, 2, 3]", "cyx", Some(ErrorKind::Unsupported)),
        ("bool", "false", "[2, 2, 3]", "zyx", Some(ErrorKind::Unsupported)),
    ];
    for (data_type, fill, chunk, axes, error) in cases {
        let scratch = TempDir::new();
        fs::write(scratch.path().join("zarr.json"), small(data_type, fill, chunk)).unwrap();
        let source = ZarrArray::open(scratch.path()).unwrap();
        let converted = PrecomputedOptions::new().convert(&source, axes, scratch.path().join("volume"));
        assert_eq!(converted.err().map(|error| error.kind()), error, "{data_type} {chunk} {axes}");
        assert_eq!(scratch.path().join("volume").exists(), error.is_none());
    }
}

/// Imports a container as `sharddb import` does.
fn import(source: &dyn Container, store: &std::path::Path) -> Snapshot {
    let (member, metadata) = source.preserved().unwrap().unwrap();
    let mut options = BuildOptions::new();
    options.data_encoding(Encoding::Raw).info(format!("{{\"{member}\": {metadata}}}"));
    let mut loader = options.create(store).unwrap();
    for (key, encoded) in pairs(source, Form::Encoded) {
        loader.insert(key, &encoded).unwrap();
    }
    loader.finish().unwrap();
    open(store)
}

#[test]
fn an_imported_array_comes_back_with_every_byte_of_its_chunks() {
    for directory in sets("zarr/arrays").into_iter().chain(sets("zarr_pack")).chain([data("zarr/unsharded.zarr")]) {
        let source = ZarrArray::open(&directory).unwrap();
        let scratch = TempDir::new();
        let store = import(&source, &scratch.path().join("store"));
        assert_eq!(pairs(&store, Form::Decoded), pairs(&source, Form::Encoded));
        let target = scratch.path().join("back.zarr");
        export(&store, &target, &Progress::new()).unwrap();
        let back = ZarrArray::open(&target).unwrap();
        assert_eq!(back.metadata(), source.metadata());
        assert_eq!(pairs(&back, Form::Encoded), pairs(&source, Form::Encoded), "{}", name(&directory));
    }
}

#[test]
fn a_store_without_an_array_is_not_exported() {
    let scratch = TempDir::new();
    let path = scratch.path().join("store");
    let mut loader = BulkLoader::create(&path).unwrap();
    loader.insert(1, b"one").unwrap();
    loader.finish().unwrap();
    let error = export(&open(&path), scratch.path().join("x"), &Progress::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("\"zarr\""), "{error}");
}

#[test]
fn a_store_is_a_container() {
    let store = open(&data("zarr/precomputed/zp_3d_u32_zstd_sparse_edge"));
    let container: &dyn Container = &store;
    let (encoded, decoded) = (pairs(container, Form::Encoded), pairs(container, Form::Decoded));
    assert_eq!(encoded.len(), 4);
    for (key, gzip) in encoded {
        let mut inflated = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&gzip[..]), &mut inflated).unwrap();
        assert_eq!(inflated, decoded[&key]);
        assert_eq!(container.locate(key).unwrap().unwrap().stored_len(), gzip.len() as u64);
    }
    let description: serde_json::Value = serde_json::from_str(&container.describe()).unwrap();
    assert_eq!(description["format"], "neuroglancer_uint64_sharded_v1");
    assert_eq!(container.key_space(), KeySpace::Morton { grid: vec![4, 4, 5] });
    assert!(container.verify(VerifyLevel::Data).unwrap().is_clean());
}
