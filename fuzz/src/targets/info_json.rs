//! Arbitrary bytes as an `info` next to one shard, opened with any pointer: refused, or opened inside the directory.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::{ask, scratch};
use sharddb::{OpenOptions, VerifyLevel};

fn directory() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = scratch::directory("info");
        fs::write(directory.join("0.shard"), [0; 32]).unwrap();
        directory
    })
}

/// Runs the target on an input: the pointer up to the first line feed, then the info.
pub fn run(input: &[u8]) {
    let directory = directory();
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (pointer, info) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    fs::write(directory.join("info"), info).unwrap();
    let mut options = OpenOptions::new();
    if let Ok(pointer) = std::str::from_utf8(pointer)
        && !pointer.is_empty()
    {
        options.sharding_at(pointer);
    }
    let Ok(db) = options.open(directory) else { return };
    let snapshot = db.snapshot();
    let below = snapshot.shards_directory().strip_prefix(snapshot.directory()).expect("shards lie below the info");
    assert!(below.components().all(|part| matches!(part, std::path::Component::Normal(_))), "{below:?}");
    if snapshot.spec().minishard_bits() <= 12 {
        ask::everything_of(&snapshot, &[0, 1, u64::MAX]);
        let _ = snapshot.verify(VerifyLevel::Data);
    }
}
