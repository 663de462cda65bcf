//! A bcolz array converted to Zarr keeps its values, and the bytes of every chunk that Zarr can store unchanged.

use std::fs;
use std::path::Path;

use crate::cancelled;
use crate::common::{self, TempDir, data, json, name};
use sharddb::{ErrorKind, Result, VerifyLevel};
use sharddb_container::bcolz::{
    BcolzArray, BcolzOptions, BcolzTable, ByteOrder, Converted, Order, RootdirLayout, ToZarrOptions,
};
use sharddb_container::zarr::ZarrArray;
use sharddb_container::{Container, Form};

fn convert(array: &BcolzArray, target: &Path, shard_chunks: Option<u64>) -> Result<Converted> {
    let mut options = ToZarrOptions::new();
    if let Some(chunks) = shard_chunks {
        options.shard_chunks(chunks);
    }
    options.convert(array, target)
}

/// The rows of a Zarr array, little endian, from its decoded chunks.
fn rows_of(zarr: &ZarrArray, row_bytes: u64) -> Vec<u8> {
    let rows = zarr.metadata().shape()[0];
    let mut bytes = Vec::new();
    for key in 0..rows.div_ceil(zarr.metadata().chunk_shape()[0]) {
        bytes.extend_from_slice(&zarr.get(key, Form::Decoded).unwrap().unwrap());
    }
    bytes.truncate((rows * row_bytes) as usize);
    bytes
}

fn in_little_endian(array: &BcolzArray, itemsize: usize) -> Vec<u8> {
    let mut rows = array.read_rows(0..array.rows()).unwrap();
    if array.byte_order() == ByteOrder::Big {
        rows.chunks_exact_mut(itemsize).for_each(<[u8]>::reverse);
    }
    rows
}

fn is_number(array: &BcolzArray) -> bool {
    !["S", "U", "object", "["].iter().any(|sign| array.dtype().contains(sign))
}

#[test]
fn arrays_of_bcolz_keep_values_and_bytes() {
    let scratch = TempDir::new();
    let mut count = 0;
    for path in common::sets("bcolz") {
        if name(&path).starts_with("rfc_nested") || path.join("__rootdirs__").exists() || name(&path) == "bloscpack" {
            continue;
        }
        let array = BcolzArray::open(&path).unwrap();
        let target = scratch.path().join(name(&path));
        if !is_number(&array) {
            let error = convert(&array, &target, None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{}: {error}", name(&path));
            assert!(!target.exists());
            continue;
        }
        for shard_chunks in [None, Some(2)] {
            let target = scratch.path().join(format!("{}-{shard_chunks:?}", name(&path)));
            let converted = convert(&array, &target, shard_chunks).unwrap();
            let whole = array.rows() / array.chunk_rows();
            let is_snappy = name(&path).contains("snappy");
            assert_eq!(converted.chunks, array.nchunks());
            assert_eq!(converted.verbatim, if is_snappy { 0 } else { whole }, "{}", name(&path));
            let zarr = ZarrArray::open(&target).unwrap();
            assert_eq!(zarr.metadata().shape(), array.shape());
            for key in 0..converted.verbatim {
                assert_eq!(
                    zarr.get(key, Form::Encoded).unwrap().unwrap(),
                    *array.get(key, Form::Encoded).unwrap().unwrap()
                );
            }
            let row_bytes = array.row_bytes();
            assert_eq!(rows_of(&zarr, row_bytes), in_little_endian(&array, row_bytes as usize), "{}", name(&path));
            assert!(zarr.verify(VerifyLevel::Data).unwrap().is_clean());
        }
        count += 1;
    }
    assert!(count > 40, "{count} arrays");
}

/// Metadata of the script that made the vectors, which zarr-python, TensorStore and zarrs read.
#[test]
fn the_metadata_is_that_of_the_vectors() {
    let scratch = TempDir::new();
    for (of, from) in [
        ("bz_i8_appended", "bz_i8_appended"),
        ("bz_f4_bigendian", "bz_f4_bigendian"),
        ("bz_bool", "bz_bool"),
        ("bz_i4_chunklen1000_blosclz", "bz_i4_chunklen1000_blosclz"),
    ] {
        let array = BcolzArray::open(data("bcolz").join(from)).unwrap();
        let target = scratch.path().join(of);
        convert(&array, &target, Some(8)).unwrap();
        let expected = data("bcolz_to_zarr").join(format!("{of}.zarr"));
        assert_eq!(json(&target.join("zarr.json")), json(&expected.join("zarr.json")), "{of}");
        let expected = ZarrArray::open(&expected).unwrap();
        let found = ZarrArray::open(&target).unwrap();
        assert_eq!(rows_of(&found, array.row_bytes()), rows_of(&expected, array.row_bytes()));
        for key in 0..array.rows() / array.chunk_rows() {
            assert_eq!(
                found.get(key, Form::Encoded).unwrap().unwrap(),
                *expected.get(key, Form::Encoded).unwrap().unwrap()
            );
        }
    }
}

#[test]
fn columns_attributes_and_fill_values_come_along() {
    let scratch = TempDir::new();
    let price = BcolzTable::open(data("bcolz/b121_ctable")).unwrap().into_column("price").unwrap();
    convert(&price, &scratch.path().join("price"), None).unwrap();
    let array = BcolzArray::open(data("bcolz/rfc_flat_i4")).unwrap();
    let converted = convert(&array, &scratch.path().join("rfc"), None).unwrap();
    assert_eq!((converted.chunks, converted.verbatim), (6, 5));
    let metadata = json(&scratch.path().join("rfc/zarr.json"));
    assert_eq!(metadata["attributes"]["ids"]["value"], serde_json::json!([1, 3, 6, 10]));
    let array = BcolzArray::open(data("bcolz/bz_i4_dflt7_expectedlen")).unwrap();
    convert(&array, &scratch.path().join("dflt"), None).unwrap();
    assert_eq!(json(&scratch.path().join("dflt/zarr.json"))["fill_value"], 7);
}

/// The JSON of Python may contain NaN; Zarr represents it as a string.
#[test]
fn not_a_number_is_a_fill_value() {
    let scratch = TempDir::new();
    let root = scratch.path().join("array");
    let mut writer = BcolzOptions::new().create_array(&root, "float64", &[]).unwrap();
    writer.append(&[0; 80]).unwrap();
    let storage = fs::read_to_string(root.join("meta/storage")).unwrap();
    fs::write(root.join("meta/storage"), storage.replace("\"dflt\":0.0", "\"dflt\": NaN")).unwrap();
    convert(&BcolzArray::open(&root).unwrap(), &scratch.path().join("zarr"), None).unwrap();
    assert_eq!(json(&scratch.path().join("zarr/zarr.json"))["fill_value"], "NaN");
}

#[test]
fn chunks_in_fortran_order_are_turned() {
    let scratch = TempDir::new();
    let root = scratch.path().join("array");
    let mut options = BcolzOptions::new();
    options.layout(RootdirLayout::Superchunks).order(Order::F).chunk_rows(4);
    let rows: Vec<u8> = (0..60).collect();
    options.create_array(&root, "uint8", &[2, 3]).unwrap().append(&rows).unwrap();
    let array = BcolzArray::open(&root).unwrap();
    let converted = convert(&array, &scratch.path().join("zarr"), None).unwrap();
    assert_eq!((converted.chunks, converted.verbatim), (3, 0));
    assert_eq!(rows_of(&ZarrArray::open(scratch.path().join("zarr")).unwrap(), 6), rows);
}

#[test]
fn a_broken_chunk_or_a_cancellation_leaves_nothing() {
    let scratch = TempDir::new();
    let root = scratch.path().join("array");
    let rows: Vec<u8> = (0..3000u32).flat_map(u32::to_le_bytes).collect();
    BcolzOptions::new().chunk_rows(1000).create_array(&root, "int32", &[]).unwrap().append(&rows).unwrap();
    let array = BcolzArray::open(&root).unwrap();
    let target = scratch.path().join("zarr");
    let stopped = ToZarrOptions::new().progress(&cancelled()).convert(&array, &target);
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
    let chunk = root.join("data/__1.blp");
    let mut broken = fs::read(&chunk).unwrap();
    broken.truncate(60);
    fs::write(&chunk, broken).unwrap();
    let array = BcolzArray::open(&root).unwrap();
    let error = convert(&array, &target, None).unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(1)), "{error}");
    let names: Vec<_> = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["array"]);
}
