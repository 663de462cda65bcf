//! A rechunked array has the same elements, chunks wherever there were some, and the same codecs.

use std::collections::{BTreeMap, BTreeSet};

use crate::cancelled;
use crate::common::{TempDir, data, directory_bytes, json, name, sets};
use serde_json::Value as Json;
use sharddb::{ErrorKind, Progress, VerifyLevel};
use sharddb_container::zarr::{IndexLocation, ZarrArray, copy, rechunk};
use sharddb_container::{Container, Form};

/// All positions in a box, in C order.
fn positions(shape: &[u64]) -> Vec<Vec<u64>> {
    shape.iter().fold(vec![Vec::new()], |positions, len| {
        positions.into_iter().flat_map(|at| (0..*len).map(move |next| [&at[..], &[next]].concat())).collect()
    })
}

/// All elements in C order, looked up one by one; absent chunks yield the fill value.
fn elements(array: &ZarrArray) -> Vec<u8> {
    let (metadata, size) = (array.metadata(), array.metadata().element_len());
    let mut chunks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut elements = Vec::new();
    for at in positions(metadata.shape()) {
        let axes = || at.iter().zip(metadata.chunk_shape());
        let key = array.key_space().key_at(&axes().map(|(at, len)| at / len).collect::<Vec<_>>()).unwrap();
        let chunk = chunks.entry(key).or_insert_with(|| {
            let chunk = array.get(key, Form::Decoded).unwrap();
            chunk.unwrap_or_else(|| array.fill_chunk(key).unwrap().unwrap()).to_vec()
        });
        let within = axes().fold(0, |number, (at, len)| number * len + at % len) as usize;
        elements.extend_from_slice(&chunk[within * size..][..size]);
    }
    elements
}

/// The keys of the chunks of `array` that touch a chunk of `other`.
fn touched(array: &ZarrArray, other: &ZarrArray) -> BTreeSet<u64> {
    let (ours, theirs) = (array.metadata().chunk_shape(), other.metadata().chunk_shape());
    let shape = array.metadata().shape();
    let there: Vec<_> = other.keys().map(|key| other.key_space().position_of(key.unwrap()).unwrap()).collect();
    let is_touched = |cell: &Vec<u64>| {
        there.iter().any(|other| {
            (0..shape.len()).all(|axis| {
                let start = (cell[axis] * ours[axis]).max(other[axis] * theirs[axis]);
                start < ((cell[axis] + 1) * ours[axis]).min((other[axis] + 1) * theirs[axis]).min(shape[axis])
            })
        })
    };
    let cells = positions(&array.metadata().chunk_grid()).into_iter().filter(is_touched);
    cells.map(|cell| array.key_space().key_at(&cell).unwrap()).collect()
}

/// The codecs between the elements of a chunk and its bytes, including those before sharding.
fn codecs(metadata: &Json) -> Vec<Json> {
    let codecs = metadata["codecs"].as_array().unwrap().iter();
    let inner = |codec: &Json| match codec["name"].as_str() {
        Some("sharding_indexed") => codec["configuration"]["codecs"].as_array().unwrap().clone(),
        _ => vec![codec.clone()],
    };
    codecs.flat_map(inner).collect()
}

#[test]
fn every_array_has_the_same_elements_in_other_chunks() {
    let mut cut = 0;
    for path in sets("zarr/arrays") {
        let source = ZarrArray::open(&path).unwrap();
        let metadata = source.metadata();
        let expected = elements(&source);
        let other = |len: fn(u64) -> u64| metadata.chunk_shape().iter().map(|it| len(*it)).collect::<Vec<_>>();
        let ways = [
            (other(|len| len + 1), 1),
            (other(|len| len.div_ceil(2)), 3),
            (other(|len| len * 2 - 1), 2),
            (other(|_| 7), 2),
            (metadata.shape().iter().map(|len| (*len).max(1)).collect(), 1),
        ];
        for (at, (chunk, chunks)) in ways.into_iter().enumerate() {
            let shard: Vec<_> = chunk.iter().map(|len| len * chunks).collect();
            let location = [None, Some(IndexLocation::Start), Some(IndexLocation::End)][at % 3];
            let target = match metadata.rechunked(&chunk, &shard, location) {
                Ok(target) => target,
                Err(error) => {
                    assert!(error.kind() == ErrorKind::Unsupported && name(&path).contains("nested"), "{error}");
                    continue;
                }
            };
            let scratch = TempDir::new();
            let out = scratch.path().join("out");
            let progress = Progress::new();
            let written = rechunk(&source, &out, &target, &progress).unwrap();

            let place = format!("{} in chunks of {chunk:?}", name(&path));
            let array = ZarrArray::open(&out).unwrap();
            assert_eq!((array.metadata().chunk_shape(), array.metadata().shard_shape()), (&chunk[..], &shard[..]));
            assert!(elements(&array) == expected, "{place}");
            let keys: BTreeSet<u64> = array.keys().map(Result::unwrap).collect();
            assert_eq!(keys, touched(&array, &source), "{place}");
            assert_eq!(keys.len() as u64, written);
            assert_eq!(progress.done(), progress.total());
            assert_eq!(codecs(&json(&out.join("zarr.json"))), codecs(&json(&path.join("zarr.json"))), "{place}");
            let report = array.verify(VerifyLevel::Data).unwrap();
            assert!(report.is_clean(), "{place}: {:?}", report.findings());
            cut += 1;
        }
    }
    assert!(cut > 100, "{cut}");
}

/// Elements of edge chunks outside of the array do not get into it.
#[test]
fn there_and_back_are_the_same_elements() {
    let source = ZarrArray::open(data("zarr/arrays/ts_3d_u8_raw_end.zarr")).unwrap();
    let metadata = source.metadata();
    let scratch = TempDir::new();
    let (there, back) = (scratch.path().join("there"), scratch.path().join("back"));
    let other = metadata.rechunked(&[5, 7, 3], &[10, 7, 30], None).unwrap();
    rechunk(&source, &there, &other, &Progress::new()).unwrap();
    let again = other.rechunked(metadata.chunk_shape(), metadata.shard_shape(), None).unwrap();
    rechunk(&ZarrArray::open(&there).unwrap(), &back, &again, &Progress::new()).unwrap();
    let back = ZarrArray::open(&back).unwrap();
    assert_eq!(back.metadata().chunk_grid(), metadata.chunk_grid());
    assert!(elements(&back) == elements(&source));
}

/// An array with one file per chunk is rechunked into shards as well.
#[test]
fn chunks_in_files_of_their_own_are_cut_as_well() {
    let path = data("zarr/arrays/zp_3d_u16_inner_transpose_F.zarr");
    let source = ZarrArray::open(&path).unwrap();
    let scratch = TempDir::new();
    let (plain, out) = (scratch.path().join("plain"), scratch.path().join("out"));
    copy(&source, &plain, &source.metadata().unsharded().unwrap(), &Progress::new()).unwrap();
    let plain = ZarrArray::open(&plain).unwrap();
    let chunk: Vec<_> = plain.metadata().chunk_shape().iter().map(|len| len + 1).collect();
    rechunk(&plain, &out, &plain.metadata().rechunked(&chunk, &chunk, None).unwrap(), &Progress::new()).unwrap();
    assert_eq!(elements(&ZarrArray::open(&out).unwrap()), elements(&source));
}

#[test]
fn what_cannot_be_done_is_refused_and_leaves_nothing() {
    let source = ZarrArray::open(data("zarr/arrays/ts_3d_u8_raw_end.zarr")).unwrap();
    let metadata = source.metadata();
    for (chunk, shard) in [
        (&[0, 1, 1][..], &[1, 1, 1][..]),
        (&[1, 1], &[1, 1, 1]),
        (&[1, 1, 1, 1], &[1, 1, 1, 1]),
        (&[2, 2, 2], &[3, 2, 2]),
        (&[2, 2, 2], &[0, 2, 2]),
    ] {
        let error = metadata.rechunked(chunk, shard, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{chunk:?} {shard:?}");
    }
    let nested = ZarrArray::open(data("zarr/arrays/zp_2d_u16_nested.zarr")).unwrap();
    let error = nested.metadata().rechunked(&[1, 1], &[1, 1], None).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("nested sharding"), "{error}");

    let scratch = TempDir::new();
    let out = scratch.path().join("out");
    let other = ZarrArray::open(data("zarr/arrays/zp_1d_u8_raw_end.zarr")).unwrap();
    let refused = rechunk(&source, &out, other.metadata(), &Progress::new()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "another array");
    let target = metadata.rechunked(&[3, 3, 3], &[9, 9, 9], None).unwrap();
    let cancelled = rechunk(&source, &out, &target, &cancelled()).unwrap_err();
    assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
    assert!(directory_bytes(scratch.path()).is_empty());
    let broken = ZarrArray::open(data("zarr/negative/neg_index_bit_flipped.zarr")).unwrap();
    let target = broken.metadata().rechunked(&[50], &[100], None).unwrap();
    assert_eq!(rechunk(&broken, &out, &target, &Progress::new()).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(directory_bytes(scratch.path()).is_empty());
}
