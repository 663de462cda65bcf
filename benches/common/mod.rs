//! The data of the benchmarks: pairs that are functions of their number, and a temporary directory.

#![allow(dead_code, reason = "each benchmark takes what it needs")]

use std::fs;
use std::path::{Path, PathBuf};

use sharddb::{BulkLoader, Result};

/// Length of a value in bytes.
pub(crate) const VALUE_LEN: usize = 100;

/// A bijection of `u64` without a pattern (splitmix64): spreads keys over the range and makes the head of a value.
pub(crate) fn scramble(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The value of a key: its head, then filler.
pub(crate) fn value(key: u64) -> [u8; VALUE_LEN] {
    let mut value = [0x5a; VALUE_LEN];
    value[..8].copy_from_slice(&scramble(key).to_le_bytes());
    value
}

/// The head of a value: its first 8 bytes as a number.
pub(crate) fn head(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The sum of the heads of all values of these keys.
pub(crate) fn expected_sum(keys: &[u64]) -> u64 {
    keys.iter().fold(0, |sum, key| sum.wrapping_add(scramble(*key)))
}

/// Publishes a generation with these keys.
pub(crate) fn load(store: &Path, keys: &[u64]) -> Result<()> {
    let mut loader = BulkLoader::create(store)?;
    for key in keys {
        loader.insert(*key, value(*key))?;
    }
    loader.finish().map(drop)
}

/// A directory of this benchmark, on the disk of the build; removed on drop.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let scratch = Scratch(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id())));
        scratch.clear();
        scratch
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the content.
    pub(crate) fn clear(&self) {
        // an error means that there was nothing to remove
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.clear();
    }
}
