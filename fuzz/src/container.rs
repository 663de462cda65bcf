//! Arrays of other formats: inputs of several files, and the properties of every container.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use sharddb::shard::ValueLocation;
use sharddb::{ErrorKind, Result, VerifyLevel};
use sharddb_container::{Container, ContainerOptions, Form};

/// Upper bound on the decoded length of a chunk.
pub const CAP: u64 = 16 << 10;

/// The separator between the files of an input.
const SEAM: &[u8] = b"\n%%\n";

/// Upper bound on the keys and chunks that are checked one by one.
const MANY: usize = 64;

/// The files of an input.
pub fn split(input: &[u8]) -> Vec<&[u8]> {
    let (mut files, mut from) = (Vec::new(), 0);
    for at in 0..input.len() {
        if at >= from && input[at..].starts_with(SEAM) {
            files.push(&input[from..at]);
            from = at + SEAM.len();
        }
    }
    files.push(&input[from..]);
    files
}

/// An input made of some files, after the byte that says how they are read.
pub fn join(how: u8, files: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let files: Vec<&[u8]> = files.iter().map(AsRef::as_ref).collect();
    [&[how], &files.join(SEAM)[..]].concat()
}

/// Options with the cap, for positioned reads or for loading into memory.
pub fn options(in_memory: bool) -> ContainerOptions {
    let mut options = ContainerOptions::new();
    options.max_chunk_bytes(CAP);
    if in_memory {
        options.load();
    }
    options
}

/// Makes every call on a container and compares the answers with each other.
pub fn agrees(container: &dyn Container) {
    serde_json::from_str::<serde_json::Value>(&container.describe()).expect("JSON");
    let keys: Vec<_> = container.keys().collect();
    let found: Vec<u64> = keys.iter().flatten().copied().take(MANY).collect();
    for key in (0..4).chain([1 << 63, u64::MAX]).chain(found.iter().copied()) {
        key_agrees(container, key);
    }
    for level in [VerifyLevel::Structure, VerifyLevel::Index, VerifyLevel::Data] {
        let Ok(report) = container.verify(level) else { continue };
        if level < VerifyLevel::Data || !report.findings().is_empty() {
            continue;
        }
        assert!(keys.iter().all(Result::is_ok), "a sound container has sound keys");
        for key in &found {
            assert!(matches!(container.get(*key, Form::Decoded), Ok(Some(_))), "key {key} of a sound container");
        }
    }
}

fn key_agrees(container: &dyn Container, key: u64) {
    let [encoded, decoded] = [Form::Encoded, Form::Decoded].map(|form| container.get(key, form));
    for error in [&encoded, &decoded].into_iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!(error.key(), Some(key), "{error}");
    }
    match (&encoded, &decoded) {
        (Ok(encoded), Ok(decoded)) => assert_eq!(encoded.is_some(), decoded.is_some(), "key {key} in both forms"),
        (Err(error), Ok(_)) => panic!("key {key}: decoded from bytes that cannot be read: {error}"),
        (_, Err(_)) => {}
    }
    if let Ok(Some(decoded)) = &decoded {
        assert!(decoded.len() as u64 <= CAP, "key {key}: {} bytes", decoded.len());
        if let Ok(Some(fill)) = container.fill_chunk(key) {
            assert_eq!(decoded.len(), fill.len(), "key {key}, there and filled");
        }
    }
    let location = container.locate(key);
    if let Ok(Some(location)) = &location {
        let len = location.path.metadata().expect("a file").len();
        assert!(location.range.end <= len, "key {key} beyond its file");
    }
    let Ok(Some(encoded)) = encoded else { return };
    let space = container.key_space();
    let position = space.position_of(key).expect("what is there has a position");
    assert_eq!(space.key_at(&position).expect("a position that a key has"), key);
    match location {
        Ok(location) => assert_eq!(bytes_at(&location.expect("what is there has a place")), *encoded, "key {key}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
    }
}

fn bytes_at(location: &ValueLocation) -> Vec<u8> {
    let mut file = File::open(&location.path).expect("a file");
    file.seek(SeekFrom::Start(location.range.start)).expect("an offset");
    let mut bytes = Vec::new();
    file.take(location.stored_len()).read_to_end(&mut bytes).expect("bytes");
    bytes
}
