//! The chunks of a foreign array have the bytes and the elements that its writer states. A broken array returns an
//! error that says what is wrong and where, never other bytes.

use std::fs;
use std::path::PathBuf;

use crate::common::archives::copy_all;
use crate::common::{self, TempDir, data, json, name, number, sets, sha256, text};
use serde_json::Value as Json;
use sharddb::progress::{Phase, Unit};
use sharddb::{ErrorKind, Progress, VerifyLevel, VerifyOptions};
use sharddb_container::zarr::{ZarrArray, ZarrMetadata};
use sharddb_container::{Container, ContainerOptions, Form, KeySpace};

/// The three storages.
fn every_storage() -> [ContainerOptions; 3] {
    let (pread, mut mapped, mut loaded) = (ContainerOptions::new(), ContainerOptions::new(), ContainerOptions::new());
    // SAFETY: fixtures are never written, and tests do not write their own files while they are mapped.
    #[expect(unsafe_code, reason = "mapping needs the promise")]
    unsafe {
        mapped.map()
    };
    loaded.load();
    [pread, mapped, loaded]
}

fn assert_as_expected(array: &ZarrArray, expected: &Json) {
    let directory = array.path().display();
    let grid: Vec<u64> = expected["inner_grid"].as_array().unwrap().iter().map(number).collect();
    assert_eq!(array.key_space(), KeySpace::Linear { grid });
    let mut present = Vec::new();
    for chunk in expected["chunks"].as_array().unwrap() {
        let key = number(&chunk["key"]);
        let coordinates: Vec<u64> = chunk["coords"].as_array().unwrap().iter().map(number).collect();
        assert_eq!(array.key_space().key_at(&coordinates).unwrap(), key);
        let encoded = array.get(key, Form::Encoded).unwrap();
        let decoded = array.get(key, Form::Decoded).unwrap();
        let location = array.locate(key).unwrap();
        let filled = array.fill_chunk(key).unwrap().unwrap();
        if chunk["present"] == Json::Bool(true) {
            present.push(key);
            assert_eq!(sha256(&encoded.unwrap()), text(&chunk["encoded_sha256"]), "{directory} {key}");
            assert_eq!(sha256(&decoded.unwrap()), text(&chunk["decoded_sha256"]), "{directory} {key}");
            let location = location.unwrap();
            assert_eq!(location.path, array.path().join(text(&chunk["shard"])));
            assert_eq!(
                (location.range.start, location.stored_len()),
                (number(&chunk["offset"]), number(&chunk["nbytes"]))
            );
        } else {
            assert!(encoded.is_none() && decoded.is_none() && location.is_none(), "{directory} {key}");
            assert_eq!(sha256(&filled), text(&chunk["decoded_sha256"]), "{directory} {key}");
        }
        assert_eq!(filled.len() as u64, number(&chunk["decoded_nbytes"]));
    }
    let beyond = number(&expected["n_keys"]);
    for key in [beyond, beyond + 1, u64::MAX] {
        assert!(array.get(key, Form::Encoded).unwrap().is_none() && array.fill_chunk(key).unwrap().is_none());
    }
    let mut keys: Vec<u64> = array.keys().map(Result::unwrap).collect();
    keys.sort_unstable();
    assert_eq!(keys, present, "{directory}");
}

#[test]
fn every_chunk_is_as_its_writer_says() {
    let sets = sets("zarr/arrays");
    assert_eq!(sets.len(), 24);
    for directory in sets {
        let expected = json(&directory.join("expected.json"));
        for options in every_storage() {
            assert_as_expected(&ZarrArray::open_with(&directory, &options).unwrap(), &expected);
        }
    }
}

#[test]
fn sound_arrays_verify_clean_at_every_level() {
    for directory in sets("zarr/arrays") {
        let array = ZarrArray::open(&directory).unwrap();
        let present = number(&json(&directory.join("expected.json"))["n_present"]);
        for level in [VerifyLevel::Structure, VerifyLevel::Index, VerifyLevel::Data] {
            let progress = Progress::new();
            let report = array.verify_with(level, VerifyOptions::new().progress(&progress)).unwrap();
            assert_eq!((progress.done(), progress.total()), (report.shards, report.shards));
            assert_eq!((progress.phase(), progress.unit()), (Phase::Verify, Unit::Files));
            assert!(report.is_clean() && report.warnings() == 0, "{} {:?}", name(&directory), report.findings());
            assert_eq!(report.keys, if level == VerifyLevel::Structure { 0 } else { present }, "{}", name(&directory));
        }
    }
}

#[test]
fn gaps_are_noted() {
    let report = ZarrArray::open(data("zarr/arrays/hm_gaps_start.zarr")).unwrap().verify(VerifyLevel::Index).unwrap();
    assert!(report.notes() > 0 && report.findings().iter().all(|finding| finding.kind().as_str() == "unnamed-bytes"));
}

#[test]
fn what_describes_an_array_is_json_with_its_shapes() {
    let array = ZarrArray::open(data("zarr/arrays/zp_api_defaults.zarr")).unwrap();
    let description: Json = serde_json::from_str(&array.describe()).unwrap();
    assert_eq!(description["format"], "zarr_v3");
    assert_eq!(description["chunk_shape"], serde_json::json!([16, 16]));
    assert_eq!(description["shard_shape"], serde_json::json!([64, 64]));
    assert_eq!(description["attributes"]["unit"], "nm");
    assert_eq!(description["codecs"][0]["name"], "sharding_indexed");
}

// ---- broken arrays ----

/// The reason to refuse each broken array, as part of the message of its first chunk's error.
const REASONS: [(&str, &str); 12] = [
    ("neg_empty_file", "expected a shard with an index of 68 bytes, found 0 bytes"),
    ("neg_half_sentinel_nbytes", "found it for the length at 0"),
    ("neg_half_sentinel_offset", "found it for the offset and 64 bytes"),
    ("neg_index_bit_flipped", "CRC-32C"),
    ("neg_index_crc_flipped", "CRC-32C"),
    ("neg_length_past_end", "expected a chunk"),
    ("neg_offset_past_end", "expected a chunk within the shard of 324 bytes"),
    ("neg_raw_chunk_wrong_size", "expected a chunk of 64 bytes, found 63"),
    ("neg_shorter_than_index", "expected a shard with an index of 68 bytes, found 20 bytes"),
    ("neg_sum_overflows", "expected a chunk within the shard of 324 bytes"),
    ("neg_truncated_tail", "CRC-32C"),
    ("neg_zero_nbytes", "found 0 bytes"),
];

#[test]
fn every_broken_array_is_refused_with_file_chunk_and_reason() {
    let sets = sets("zarr/negative");
    assert_eq!(sets.len(), REASONS.len() + 1);
    for (set, reason) in REASONS {
        let directory = data(&format!("zarr/negative/{set}.zarr"));
        for options in every_storage() {
            let array = ZarrArray::open_with(&directory, &options).unwrap();
            for form in [Form::Encoded, Form::Decoded] {
                let error = array.get(0, form).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{set}: {error}");
                assert!(error.message().contains(reason), "{set}: {error}");
                assert_eq!((error.key(), error.path()), (Some(0), Some(&*directory.join("c/0"))), "{set}");
            }
            let errors: Vec<_> = array.keys().filter_map(Result::err).collect();
            assert!(!errors.is_empty() && errors.iter().all(|error| error.path().is_some()), "{set}");
            let report = array.verify(VerifyLevel::Index).unwrap();
            assert!(!report.is_clean(), "{set}");
        }
    }
}

#[test]
fn a_chunk_over_the_index_is_read_and_reported() {
    let array = ZarrArray::open(data("zarr/negative/odd_overlaps_index.zarr")).unwrap();
    assert_eq!(array.get(0, Form::Decoded).unwrap().unwrap().len(), 64);
    let report = array.verify(VerifyLevel::Data).unwrap();
    assert!(report.is_clean());
    assert!(report.findings().iter().any(|finding| finding.kind().as_str() == "overlap"));
}

/// A copy of an array that may be changed.
fn copy_of(set: &str) -> (TempDir, PathBuf) {
    let scratch = TempDir::new();
    let target = scratch.path().join(set);
    copy_all(&data("zarr").join(set), &target);
    (scratch, target)
}

#[test]
fn a_flipped_bit_in_an_index_is_reported() {
    for (set, shard) in [
        ("arrays/zp_1d_u8_raw_end.zarr", "c/0"),
        ("arrays/zp_2d_u32_bigendian_index_big_start.zarr", "c/0/0"),
        ("arrays/zp_2d_u16_nested.zarr", "c/0/0"),
    ] {
        let (_scratch, directory) = copy_of(set);
        let sharding = &json(&directory.join("zarr.json"))["codecs"][0]["configuration"];
        let path = directory.join(shard);
        let bytes = fs::read(&path).unwrap();
        let len = 4 * 16 + 4;
        let first = if sharding["index_location"] == "start" { 0 } else { bytes.len() - len };
        for at in first..first + len {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, flipped).unwrap();
            let array = ZarrArray::open(&directory).unwrap();
            assert_eq!(array.get(0, Form::Encoded).unwrap_err().kind(), ErrorKind::Corrupt, "{set} {at}");
            assert!(!array.verify(VerifyLevel::Structure).unwrap().is_clean(), "{set} {at}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_nested_index_is_reported() {
    let (_scratch, directory) = copy_of("arrays/zp_2d_u16_nested.zarr");
    let path = directory.join("c/0/0");
    let location = ZarrArray::open(&directory).unwrap().locate(0).unwrap().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[location.range.start as usize + 3] ^= 1; // the index of the nested shard is at its start
    fs::write(&path, bytes).unwrap();
    let array = ZarrArray::open(&directory).unwrap();
    assert!(array.get(0, Form::Encoded).is_ok(), "encoded, the nested shard is just bytes");
    let error = array.get(0, Form::Decoded).unwrap_err();
    assert!(error.message().contains("CRC-32C") && error.location().offset.is_some(), "{error}");
    let report = array.verify(VerifyLevel::Data).unwrap();
    assert_eq!(report.findings()[0].kind().as_str(), "bad-value");
}

/// An array of 2 x 1 shards of 2 chunks of 4 bytes each, with codecs inside and around sharding.
fn small_array(inner: &str, behind: &str) -> String {
    format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [16], "data_type": "uint8", "fill_value": 9,
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [8]}}}},
            "chunk_key_encoding": {{"name": "v2"}},
            "codecs": [{{"name": "sharding_indexed", "configuration": {{"chunk_shape": [4], "codecs": ["bytes"{inner}],
                "index_codecs": [{{"name": "endian", "configuration": {{"endian": "little"}}}}]}}}}{behind}]}}"#
    )
}

fn index(entries: &[(u64, u64)]) -> Vec<u8> {
    entries.iter().flat_map(|(offset, nbytes)| [offset.to_le_bytes(), nbytes.to_le_bytes()]).flatten().collect()
}

/// CRC-32C of 1 2 3 4, computed by another program.
const CRC_OF_1234: [u8; 4] = 0x29308cf4u32.to_le_bytes();

#[test]
fn a_checksum_behind_a_chunk_is_compared() {
    let scratch = TempDir::new();
    fs::write(scratch.path().join("zarr.json"), small_array(r#", "crc32c""#, "")).unwrap();
    let chunk = [&[1, 2, 3, 4][..], &CRC_OF_1234].concat();
    let shard = [chunk.clone(), index(&[(0, 8), (u64::MAX, u64::MAX)])].concat();
    fs::write(scratch.path().join("0"), &shard).unwrap();
    let array = ZarrArray::open(scratch.path()).unwrap();
    assert_eq!(array.get(0, Form::Encoded).unwrap().unwrap(), chunk);
    assert_eq!(array.get(0, Form::Decoded).unwrap().unwrap(), [1, 2, 3, 4]);
    assert_eq!(array.fill_chunk(1).unwrap().unwrap(), [9; 4]);
    for bit in 0..64 {
        let mut flipped = shard.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(scratch.path().join("1"), flipped).unwrap();
        let error = ZarrArray::open(scratch.path()).unwrap().get(2, Form::Decoded).unwrap_err();
        assert!(error.message().contains("CRC-32C"), "{error}");
    }
}

/// The chunks below a directory are not absent if a link in its place leads nowhere, as to a disk that is not mounted, or if
/// a file is there.
#[cfg(unix)]
#[test]
fn a_directory_of_chunks_that_leads_nowhere_is_an_error() {
    type Make = fn(&std::path::Path);
    let makes: [Make; 2] =
        [|path| std::os::unix::fs::symlink("/nonexistent/disk", path).unwrap(), |path| fs::write(path, "").unwrap()];
    for (place, make) in ["c", "c/1"].into_iter().flat_map(|place| makes.map(|make| (place, make))) {
        let scratch = TempDir::new();
        let json = small_array("", "").replace("\"shape\": [16]", "\"shape\": [16, 2]");
        let json = json.replace("[8]", "[8, 1]").replace("[4]", "[4, 1]").replace("v2", "default");
        fs::write(scratch.path().join("zarr.json"), json).unwrap();
        let open = || ZarrArray::open(scratch.path());
        assert_eq!(open().unwrap().get(7, Form::Decoded).unwrap(), None, "nothing is there");
        assert_eq!(open().unwrap().keys().count(), 0);
        let path = scratch.path().join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        make(&path);
        let got = open().and_then(|array| array.get(7, Form::Decoded).map(drop));
        let listed = open().and_then(|array| array.keys().collect::<Result<Vec<_>, _>>().map(drop));
        for error in [got.unwrap_err(), listed.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Io, "{place}: {error}");
        }
    }
}

#[test]
fn shards_compressed_as_a_whole_are_read_within_the_cap() {
    use std::io::Write;
    let scratch = TempDir::new();
    fs::write(scratch.path().join("zarr.json"), small_array("", r#", "gzip""#)).unwrap();
    for (name, first) in [("0", 1u8), ("1", 101)] {
        let shard = [(first..first + 8).collect(), index(&[(4, 4), (0, 4)])].concat();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&shard).unwrap();
        fs::write(scratch.path().join(name), gzip.finish().unwrap()).unwrap();
    }
    let array = ZarrArray::open(scratch.path()).unwrap();
    for (key, chunk) in [(0, [5, 6, 7, 8]), (1, [1, 2, 3, 4]), (2, [105, 106, 107, 108]), (0, [5, 6, 7, 8])] {
        assert_eq!(array.get(key, Form::Encoded).unwrap().unwrap(), chunk);
        assert_eq!(array.get(key, Form::Decoded).unwrap().unwrap(), chunk);
    }
    assert_eq!(array.locate(0).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(array.keys().map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(array.verify(VerifyLevel::Data).unwrap().is_clean());

    let capped = ZarrArray::open_with(scratch.path(), ContainerOptions::new().max_chunk_bytes(39)).unwrap();
    assert_eq!(capped.get(0, Form::Encoded).unwrap_err().kind(), ErrorKind::TooLarge);
    let enough = ZarrArray::open_with(scratch.path(), ContainerOptions::new().max_chunk_bytes(40)).unwrap();
    assert!(enough.get(0, Form::Encoded).is_ok());
}

/// The result between two codecs is not much longer than the chunk.
#[test]
fn a_bomb_between_two_codecs_is_not_decoded() {
    use std::io::Write;
    let scratch = TempDir::new();
    let gzip = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    };
    fs::write(scratch.path().join("zarr.json"), small_array(r#", "gzip", "gzip""#, "")).unwrap();
    let chunks = [gzip(&gzip(&[1, 2, 3, 4])), gzip(&vec![0; 4 << 20])];
    let [sound, bomb] = [chunks[0].len() as u64, chunks[1].len() as u64];
    let shard = [chunks.concat(), index(&[(0, sound), (sound, bomb)])].concat();
    fs::write(scratch.path().join("0"), shard).unwrap();
    let array = ZarrArray::open(scratch.path()).unwrap();
    assert_eq!(array.get(0, Form::Decoded).unwrap().unwrap(), [1, 2, 3, 4]);
    assert_eq!(array.get(1, Form::Decoded).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn chunks_above_the_cap_are_refused_and_read_encoded() {
    let mut options = ContainerOptions::new();
    options.max_chunk_bytes(16 * 16 * 16 * 4 - 1);
    let array = ZarrArray::open_with(data("zarr/arrays/zp_3d_u32_zstd_sparse_edge.zarr"), &options).unwrap();
    assert_eq!(array.get(0, Form::Decoded).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(array.fill_chunk(1).unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(array.get(0, Form::Encoded).unwrap().is_some());
    let report = array.verify(VerifyLevel::Data).unwrap();
    assert!(report.findings().iter().any(|finding| finding.kind().as_str() == "over-cap"));
}

#[test]
fn what_is_no_file_is_an_error_and_no_empty_shard() {
    let (_scratch, directory) = copy_of("arrays/zp_1d_u8_raw_end.zarr");
    fs::remove_file(directory.join("c/0")).unwrap();
    fs::create_dir(directory.join("c/0")).unwrap();
    fs::remove_file(directory.join("c/1")).unwrap();
    let array = ZarrArray::open(&directory).unwrap();
    assert_eq!(array.get(0, Form::Encoded).unwrap_err().kind(), ErrorKind::Io, "a directory");
    assert!(array.get(4, Form::Encoded).unwrap().is_none(), "no file: all of the shard is empty");
    assert!(array.get(8, Form::Encoded).unwrap().is_some());
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nowhere", directory.join("c/1")).unwrap();
        let array = ZarrArray::open(&directory).unwrap();
        assert_eq!(array.get(4, Form::Encoded).unwrap_err().kind(), ErrorKind::Io, "a dangling link");
    }
    let errors = array.keys().filter(Result::is_err).count();
    assert!(errors >= 1 && array.keys().filter(Result::is_ok).count() == 8);
}

#[test]
fn huge_grids_cost_nothing() {
    let scratch = TempDir::new();
    let text = small_array("", "").replace("[16]", "[18446744073709551615]");
    fs::write(scratch.path().join("zarr.json"), text).unwrap();
    let last = u64::MAX / 8;
    fs::write(scratch.path().join(last.to_string()), [vec![7; 8], index(&[(0, 4), (4, 4)])].concat()).unwrap();
    let array = ZarrArray::open(scratch.path()).unwrap();
    assert_eq!(array.keys().map(Result::unwrap).collect::<Vec<_>>(), [last * 2, last * 2 + 1]);
    assert_eq!(array.get(last * 2, Form::Decoded).unwrap().unwrap(), [7; 4]);
    assert!(array.get(0, Form::Decoded).unwrap().is_none());
    // an index larger than any file is not allocated either
    let huge = small_array("", "").replace("[16]", "[576460752303423488]").replace("[8]", "[576460752303423488]");
    fs::write(scratch.path().join("zarr.json"), huge).unwrap();
    fs::write(scratch.path().join("0"), [0; 100]).unwrap();
    let error = ZarrArray::open(scratch.path()).unwrap().get(0, Form::Decoded).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn an_unknown_codec_is_refused_at_open_by_name() {
    let scratch = TempDir::new();
    fs::write(scratch.path().join("zarr.json"), small_array(r#", "pcodec""#, "")).unwrap();
    let error = ZarrArray::open(scratch.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("\"pcodec\"") && error.path().is_some(), "{error}");
    assert!(ZarrMetadata::from_json("{}").is_err());
}

/// Reads everything in an array; returns a sum that depends on all of it, so that no read is optimised away.
fn read_everything(array: &ZarrArray) -> usize {
    let mut read = array.describe().len();
    for key in array.keys().take(1000).flatten() {
        for form in [Form::Encoded, Form::Decoded] {
            read += array.get(key, form).map_or(0, |chunk| chunk.map_or(0, |chunk| chunk.len()));
        }
        read += array.locate(key).map_or(0, |location| location.is_some().into());
    }
    read += array.fill_chunk(0).map_or(0, |chunk| chunk.map_or(0, |chunk| chunk.len()));
    read + array.verify(VerifyLevel::Data).map_or(0, |report| report.findings().len())
}

#[test]
fn whatever_the_bytes_there_is_an_answer_and_no_panic() {
    let mut random = common::xorshift(5);
    let mut options = ContainerOptions::new();
    options.max_chunk_bytes(1 << 20);
    for directory in sets("zarr/arrays") {
        let (_scratch, copy) = copy_of(&format!("arrays/{}", name(&directory)));
        let keys: Vec<u64> = ZarrArray::open(&copy).unwrap().keys().map(Result::unwrap).collect();
        let shard = ZarrArray::open(&copy).unwrap().locate(keys[0]).unwrap().unwrap().path;
        for path in [shard, copy.join("zarr.json")] {
            let sound = fs::read(&path).unwrap();
            for _ in 0..25 {
                let mut damaged = sound.clone();
                for _ in 0..=random() % 4 {
                    let at = random() as usize % damaged.len();
                    match random() % 4 {
                        0 => damaged[at] ^= 1 << (random() % 8),
                        1 => damaged[at] = [0, 0xff, b'0', b'9'][random() as usize % 4],
                        2 => drop(damaged.splice(at.., [])),
                        _ => drop(damaged.splice(at..at, random().to_le_bytes())),
                    }
                    if damaged.is_empty() {
                        break;
                    }
                }
                fs::write(&path, damaged).unwrap();
                if let Ok(array) = ZarrArray::open_with(&copy, &options) {
                    read_everything(&array);
                }
            }
            fs::write(&path, sound).unwrap();
        }
    }
}
