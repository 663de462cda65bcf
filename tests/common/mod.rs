//! Shared by the tests against foreign writers: fixtures, ways to open them, and comparable answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a fixture that is not as it should be fails the test")]
#![allow(clippy::cast_possible_truncation, reason = "cut numbers are pseudo-random ones")]

pub(crate) mod archives;
pub(crate) mod children;
pub(crate) mod cluster;
pub(crate) mod generations;
pub(crate) mod naive;
mod temp_dir;
pub(crate) mod verify_both;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use sharddb::{Error, OpenOptions, Result, ShardDb, ShardingSpec};

pub(crate) use archives::data;
pub(crate) use temp_dir::TempDir;

/// Creates the directory of the data sets of one kind for other readers, and removes those of an earlier run. It
/// is in `$SHARDDB_INTEROP_DIR`, or else in cargo's directory for integration tests.
pub(crate) fn new_directory(kind: &str) -> PathBuf {
    let root = std::env::var_os("SHARDDB_INTEROP_DIR").map(PathBuf::from);
    let root = root.or_else(|| Some(Path::new(option_env!("CARGO_TARGET_TMPDIR")?).join("interop")));
    let directory = root.unwrap().join(kind);
    _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// The directories in a directory of `tests/data`, by name.
pub(crate) fn sets(path: &str) -> Vec<PathBuf> {
    let mut sets: Vec<_> = fs::read_dir(data(path)).unwrap().map(|entry| entry.unwrap().path()).collect();
    sets.retain(|path| path.is_dir());
    sets.sort();
    sets
}

pub(crate) fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

pub(crate) fn json(path: &Path) -> Json {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

pub(crate) fn json_lines(path: &Path) -> Vec<Json> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A number that a fixture stores as a string, or as a number if small.
pub(crate) fn number(value: &Json) -> u64 {
    match value {
        Json::String(text) => text.parse().unwrap(),
        number => number.as_u64().unwrap(),
    }
}

pub(crate) fn text(value: &Json) -> &str {
    value.as_str().unwrap()
}

/// The member "sharding" of a directory's `info`.
pub(crate) fn sharding(directory: &Path) -> Json {
    json(&directory.join("info"))["sharding"].take()
}

pub(crate) fn spec(directory: &Path) -> ShardingSpec {
    ShardingSpec::from_json(&sharding(directory).to_string()).unwrap()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// The answer of a reader for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A value with this SHA-256.
    Value(String),
    Absent,
    Error,
}

impl Answer {
    pub(crate) fn of_value(bytes: &[u8]) -> Answer {
        Answer::Value(sha256(bytes))
    }

    pub(crate) fn of<T: AsRef<[u8]>>(result: Result<Option<T>>) -> Answer {
        match result {
            Ok(Some(value)) => Answer::of_value(value.as_ref()),
            Ok(None) => Answer::Absent,
            Err(_) => Answer::Error,
        }
    }
}

/// The lines of an `expected.jsonl`: keys with the SHA-256 of their values, and keys that are absent.
pub(crate) fn expected(directory: &Path) -> Vec<(u64, Answer)> {
    let answer = |line: &Json| match line.get("absent") {
        Some(_) => Answer::Absent,
        None => Answer::Value(text(&line["sha256"]).to_string()),
    };
    json_lines(&directory.join("expected.jsonl")).iter().map(|line| (number(&line["key"]), answer(line))).collect()
}

/// The three storages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Mapped,
    Positioned,
    Loaded,
}

impl Storage {
    pub(crate) const ALL: [Storage; 3] = [Storage::Mapped, Storage::Positioned, Storage::Loaded];

    #[expect(unsafe_code, reason = "mapping needs the promise")]
    pub(crate) fn open(self, options: &OpenOptions, directory: &Path) -> Result<ShardDb> {
        match self {
            // SAFETY: fixtures are never written, and tests do not write their own files while they are mapped.
            Storage::Mapped => unsafe { options.open_mapped(directory) },
            Storage::Positioned => options.open(directory),
            Storage::Loaded => options.load(directory),
        }
    }
}

/// Asserts that an error has a message and a place: a file, a shard or a key.
pub(crate) fn assert_has_place(error: &Error) {
    assert!(!error.message().is_empty());
    assert!(error.path().is_some() || error.location().shard.is_some() || error.key().is_some(), "{error}");
}

/// Makes a FIFO without running a program: a child would hold the file locks of other test threads until its `exec`.
#[cfg(unix)]
#[expect(unsafe_code, reason = "std has no mkfifo")]
pub(crate) fn mkfifo(path: &Path) {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the pointer is to a string that ends with a zero byte and lives until the call returns.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0, "{}", std::io::Error::last_os_error());
}

/// The content of every file in a directory, by name.
pub(crate) fn directory_bytes(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// Bytes that end with their own CRC-32. A CRC-32 of a text around them depends only on their length.
pub(crate) fn with_own_crc32(bytes: &[u8]) -> Vec<u8> {
    [bytes, &crc32fast::hash(bytes).to_le_bytes()].concat()
}

/// Pseudo-random numbers (xorshift64*).
pub(crate) fn xorshift(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// The items in a pseudo-random order.
pub(crate) fn shuffled<T>(mut items: Vec<T>, seed: u64) -> Vec<T> {
    let mut random = xorshift(seed);
    for at in (1..items.len()).rev() {
        items.swap(at, (random() % (at as u64 + 1)) as usize);
    }
    items
}
