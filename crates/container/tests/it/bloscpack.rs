//! Every file that bloscpack wrote is read completely; a changed bit in its header, offsets, metadata or checksums is
//! an error; files written here are read here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{TempDir, data, directory_bytes, json, name, number, sha256, text};
use serde_json::Value as Json;
use sharddb::{Error, ErrorKind, Result, VerifyLevel};
use sharddb_container::bloscpack::{Bloscpack, BloscpackOptions, Checksum, Metadata, Version};
use sharddb_container::{Container, ContainerOptions, Form, KeySpace};

fn vectors() -> Vec<(PathBuf, Json)> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(data("bcolz/bloscpack")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "blp"));
    files.sort();
    assert_eq!(files.len(), 20);
    files
        .into_iter()
        .map(|path| (path.clone(), json(&PathBuf::from(format!("{}.expected.json", path.display())))))
        .collect()
}

fn vector(name: &str) -> Vec<u8> {
    fs::read(data("bcolz/bloscpack").join(name)).unwrap()
}

fn names(scratch: &TempDir) -> Vec<String> {
    directory_bytes(scratch.path()).into_keys().collect()
}

/// Every decoded chunk, or the first error.
fn read_all(file: &Path) -> Result<Vec<Vec<u8>>> {
    let file = Bloscpack::open(file)?;
    let get = |key| Ok(file.get(key, Form::Decoded)?.ok_or_else(|| panic!("no chunk {key}"))?.to_vec());
    file.keys().map(|key| key.and_then(get)).collect()
}

#[test]
fn every_file_reads_back_whole() {
    for (path, expected) in vectors() {
        for loaded in [false, true] {
            let mut options = ContainerOptions::new();
            if loaded {
                options.load();
            }
            let file = Bloscpack::open_with(&path, &options).unwrap();
            assert_eq!(file.nchunks(), number(&expected["n_keys"]), "{}", name(&path));
            assert_eq!(file.key_space(), KeySpace::Linear { grid: vec![file.nchunks()] });
            for chunk in expected["chunks"].as_array().unwrap() {
                let key = number(&chunk["key"]);
                let encoded = file.get(key, Form::Encoded).unwrap().unwrap();
                assert_eq!(sha256(&encoded), text(&chunk["encoded_sha256"]));
                assert_eq!(encoded.is_borrowed(), loaded);
                let decoded = file.get(key, Form::Decoded).unwrap().unwrap();
                assert_eq!(sha256(&decoded), text(&chunk["decoded_sha256"]));
                let location = file.locate(key).unwrap().unwrap();
                assert_eq!(
                    (location.range.start, location.stored_len()),
                    (number(&chunk["offset"]), number(&chunk["nbytes"]))
                );
            }
            assert!(file.get(file.nchunks(), Form::Encoded).unwrap().is_none());
            assert!(file.get(u64::MAX, Form::Decoded).unwrap().is_none());
            assert!(file.locate(u64::MAX).unwrap().is_none());
        }
    }
}

#[test]
fn header_and_metadata_are_those_that_bloscpack_states() {
    for (path, expected) in vectors() {
        let file = Bloscpack::open(&path).unwrap();
        let (header, stated) = (file.header(), &expected["header"]);
        assert_eq!(header.version(), Version::V3);
        assert_eq!(header.checksum().as_str(), text(&stated["checksum"]));
        assert_eq!(u64::from(header.typesize()), number(&stated["typesize"]));
        assert_eq!(header.chunk_size().map(u64::from), Some(number(&stated["chunk_size"])));
        assert_eq!(header.last_chunk().map(u64::from), Some(number(&stated["last_chunk"])));
        assert_eq!(header.nchunks(), Some(number(&stated["nchunks"])));
        assert_eq!(header.max_app_chunks(), number(&stated["max_app_chunks"]));
        match &expected["metadata"] {
            Json::Null => assert_eq!(file.metadata(), None),
            metadata => {
                let found = file.metadata().unwrap();
                assert_eq!(found.format, text(&metadata["magic_format"]));
                assert_eq!(serde_json::from_slice::<Json>(&found.bytes).unwrap(), metadata["json"]);
            }
        }
        let described: Json = serde_json::from_str(&file.describe()).unwrap();
        assert_eq!(described["format"], "bloscpack");
        assert_eq!(described["metadata"], expected["metadata"].get("json").cloned().unwrap_or_default());
    }
}

#[test]
fn verification_finds_nothing_in_what_bloscpack_wrote() {
    for (path, expected) in vectors() {
        let report = Bloscpack::open(&path).unwrap().verify(VerifyLevel::Data).unwrap();
        assert!(report.is_clean() && report.findings().is_empty(), "{}: {:?}", name(&path), report.findings());
        assert_eq!(report.keys, number(&expected["n_keys"]));
    }
}

/// Whether a byte does not affect the data: the size of all chunks but the last if there is only one, the name of the
/// metadata format, the compression level of the metadata, and parameters of an unused codec.
fn is_idle(file: &[u8], at: usize) -> bool {
    let has_metadata = file[5] & 2 != 0;
    let of_metadata = has_metadata && ((32..40).contains(&at) || at == 32 + 11 || (32 + 24..32 + 32).contains(&at));
    let of_other_chunks = file[16..24] == 1u64.to_le_bytes() && (8..12).contains(&at);
    of_metadata || of_other_chunks
}

#[test]
fn a_changed_bit_in_header_offsets_metadata_or_checksum_is_reported() {
    let scratch = TempDir::new();
    let path = scratch.path().join("changed.blp");
    for of in
        ["cn_lz4.blp", "maxapp_20.blp", "cs_sha256.blp", "ndarray_i2_F.blp", "meta_sha256_nooffs.blp", "no_offsets.blp"]
    {
        let whole = vector(of);
        fs::write(&path, &whole).unwrap();
        let (file, chunks) = (Bloscpack::open(&path).unwrap(), read_all(&path).unwrap());
        let first = file.locate(0).unwrap().unwrap().range.start as usize;
        let digests = file.keys().flat_map(|key| {
            let chunk = file.locate(key.unwrap()).unwrap().unwrap();
            let end = (chunk.range.end) as usize;
            end..end + file.header().checksum().digest_len() as usize
        });
        // every bit of the header, and one bit of each byte after it
        let bits = (0..32).flat_map(|at| (0..8).map(move |bit| (at, bit)));
        let bits = bits.chain((32..first).chain(digests).map(|at| (at, at % 8)));
        for (at, bit) in bits.filter(|(at, _)| !is_idle(&whole, *at)) {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            fs::write(&path, &changed).unwrap();
            match (Bloscpack::open(&path), read_all(&path)) {
                (Err(error), _) => assert_has_reason(&error),
                (Ok(file), Err(error)) => {
                    assert_has_reason(&error);
                    assert!(!file.verify(VerifyLevel::Data).unwrap().is_clean(), "{of}, byte {at}, bit {bit}");
                }
                // version 2 has the same bytes if nothing may be appended; with checksum "None" the digests are ignored
                (Ok(file), Ok(read)) => {
                    assert_eq!(read, chunks, "{of}, byte {at}, bit {bit}");
                    let is_v2 = (at, bit) == (4, 0);
                    assert!(is_v2 || !file.verify(VerifyLevel::Data).unwrap().is_clean(), "{of}, byte {at}, bit {bit}");
                }
            }
        }
    }
}

fn assert_has_reason(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::TooLarge), "{error}");
    assert!(error.message().contains("expected") && error.path().is_some(), "{error}");
}

#[test]
fn a_changed_bit_in_a_chunk_is_reported_with_its_number() {
    let scratch = TempDir::new();
    let path = scratch.path().join("changed.blp");
    for of in
        ["cn_lz4.blp", "cs_crc32.blp", "cs_md5.blp", "cs_sha1.blp", "cs_sha224.blp", "cs_sha384.blp", "cs_sha512.blp"]
    {
        let mut changed = vector(of);
        fs::write(&path, &changed).unwrap();
        let place = Bloscpack::open(&path).unwrap().locate(3).unwrap().unwrap();
        changed[(place.range.start + place.stored_len() / 2) as usize] ^= 4;
        fs::write(&path, &changed).unwrap();
        let file = Bloscpack::open(&path).unwrap();
        for form in [Form::Encoded, Form::Decoded] {
            let error = file.get(3, form).unwrap_err();
            assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(3)), "{error}");
            assert!(error.message().contains(file.header().checksum().as_str()), "{error}");
            assert!(file.get(2, form).is_ok() && file.get(4, form).is_ok());
        }
        let report = file.verify(VerifyLevel::Data).unwrap();
        assert_eq!((report.errors(), report.findings()[0].key()), (1, Some(3)));
    }
}

#[test]
fn a_file_cut_short_or_with_more_behind_it_is_reported() {
    let scratch = TempDir::new();
    let path = scratch.path().join("cut.blp");
    for of in ["cn_lz4.blp", "no_offsets.blp", "ndarray_f4.blp"] {
        let whole = vector(of);
        for cut in (0..whole.len()).step_by(97).chain(whole.len() - 5..whole.len()) {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_has_reason(&read_all(&path).unwrap_err());
        }
        fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
        let unclean = |file: Bloscpack| !file.verify(VerifyLevel::Data).unwrap().is_clean();
        assert!(Bloscpack::open(&path).map_or(true, unclean), "{of}");
    }
}

/// A header that states more than the file can hold allocates nothing.
#[test]
fn nothing_is_allocated_for_what_is_only_stated() {
    let scratch = TempDir::new();
    let path = scratch.path().join("lying.blp");
    let mut lying = vector("cn_lz4.blp");
    lying[16..24].copy_from_slice(&(i64::MAX - 1).to_le_bytes());
    fs::write(&path, &lying).unwrap();
    assert_eq!(Bloscpack::open(&path).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    let whole = vector("cn_lz4.blp");
    fs::write(&path, &whole).unwrap();
    let mut options = ContainerOptions::new();
    options.max_chunk_bytes(8191);
    let file = Bloscpack::open_with(&path, &options).unwrap();
    let error = file.get(0, Form::Decoded).unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::TooLarge, Some(0)));
    assert!(file.get(5, Form::Decoded).is_ok(), "7040 bytes are below the cap");
}

/// A file as in the RFC: no metadata, no room for more chunks, the last 8 bytes of the header reserved.
#[test]
fn version_2_reads_like_version_3() {
    let scratch = TempDir::new();
    let path = scratch.path().join("v2.bin");
    let mut bytes = vector("cn_lz4.blp");
    bytes[4] = 2;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(Bloscpack::open(&path).unwrap().header().version(), Version::V2);
    assert_eq!(read_all(&path).unwrap(), read_all(&data("bcolz/bloscpack/cn_lz4.blp")).unwrap());
    bytes[24] = 1;
    fs::write(&path, &bytes).unwrap();
    assert!(Bloscpack::open(&path).map(drop).unwrap_err().message().contains("reserved"));
}

#[test]
fn what_is_written_is_read() {
    let scratch = TempDir::new();
    let path = scratch.path().join("written.blp");
    let chunks: Vec<Vec<u8>> = (0..5u32).map(|of| (0..1000).flat_map(|i| (of * i).to_le_bytes()).collect()).collect();
    let metadata = Metadata { format: "JSON".to_string(), bytes: b"{\"dtype\": \"int32\"}".to_vec() };
    for checksum in Checksum::ALL {
        for (reserve, more, metadata) in [(0, 0, None), (0, 7, Some(&metadata)), (50, 0, Some(&metadata))] {
            let mut options = BloscpackOptions::new();
            options.typesize(4).checksum(checksum).reserve_percent(reserve).max_app_chunks(more);
            if let Some(metadata) = metadata {
                options.metadata(metadata.clone());
            }
            let mut writer = options.create(&path, 6).unwrap();
            for chunk in &chunks {
                writer.push(chunk).unwrap();
            }
            writer.push(&chunks[1][..400]).unwrap();
            writer.finish().unwrap();
            let read = read_all(&path).unwrap();
            assert_eq!(read[..5], chunks);
            assert_eq!(read[5], &chunks[1][..400]);
            let file = Bloscpack::open(&path).unwrap();
            assert_eq!(file.metadata(), metadata);
            assert_eq!((file.header().max_app_chunks(), file.header().checksum()), (more, checksum));
            assert!(file.verify(VerifyLevel::Data).unwrap().findings().is_empty());
        }
    }
    assert_eq!(names(&scratch), ["written.blp"], "nothing else is left");
}

#[test]
fn a_writer_refuses_what_the_header_could_not_say_and_leaves_the_old_file() {
    let scratch = TempDir::new();
    let path = scratch.path().join("written.blp");
    fs::write(&path, "old").unwrap();
    let kind = |result: Result<()>| result.unwrap_err().kind();
    let mut writer = BloscpackOptions::new().create(&path, 3).unwrap();
    writer.push(&[1; 100]).unwrap();
    assert_eq!(kind(writer.push(&[1; 101])), ErrorKind::InvalidInput, "longer than the first");
    assert_eq!(kind(writer.push_encoded(&[1; 101])), ErrorKind::Corrupt, "no chunk");
    writer.push(&[1; 50]).unwrap();
    assert_eq!(kind(writer.push(&[1; 50])), ErrorKind::InvalidInput, "behind a shorter one");
    assert_eq!(kind(writer.finish()), ErrorKind::InvalidInput, "one is missing");
    let mut writer = BloscpackOptions::new().create(&path, 1).unwrap();
    writer.push(&[1; 100]).unwrap();
    assert_eq!(kind(writer.push(&[1; 100])), ErrorKind::InvalidInput, "one too many");
    drop(writer);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(&scratch), ["written.blp"]);
}
