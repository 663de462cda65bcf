//! Arbitrary bytes as an `info` and the first shards next to it: every reading call returns, and so does salvage. Only
//! the cost model uses it: a fuzzer finds bugs sooner with the targets of the parts.

use std::fs;

use sharddb::{OpenOptions, Salvage, VerifyLevel};

use crate::{container, scratch};

/// Upper bound on the decoded length of an index or a value.
const CAP: u64 = 16 << 20;

/// Runs the target on an input: an unused first byte, then files in the form of [`container::join`].
pub fn run(input: &[u8]) {
    let Some((_, files)) = input.split_first() else { return };
    let files = container::split(files);
    let Some((info, shards)) = files.split_first() else { return };
    let (directory, out) = (scratch::directory("data_set"), scratch::directory("data_set_out"));
    fs::write(directory.join("info"), info).unwrap();
    let digits = digits(info);
    for (number, shard) in shards.iter().enumerate() {
        fs::write(directory.join(format!("{number:0digits$x}.shard")), shard).unwrap();
    }
    let mut options = OpenOptions::new();
    options.max_value_bytes(CAP).max_index_bytes(CAP);
    let Ok(db) = options.open(&directory) else { return };
    let snapshot = db.snapshot();
    for key in [0, 1, 5, u64::MAX] {
        let _ = (snapshot.get(key), snapshot.contains(key), snapshot.locate(key));
    }
    let _ = (snapshot.count(), snapshot.keys().count(), snapshot.range(..).count(), snapshot.stats());
    for entry in snapshot.iter().flatten() {
        let _ = (entry.key(), entry.stored_len(), entry.value_location());
    }
    let _ = snapshot.iter().flatten().next().map(|entry| entry.preamble().map(drop));
    for level in [VerifyLevel::Structure, VerifyLevel::Data] {
        let _ = snapshot.verify(level).map(|report| report.to_string());
    }
    let Ok(salvage) = Salvage::open_with(&directory, &options) else { return };
    let Ok(mut loader) = salvage.build_options().threads(1).memory(16 << 20).create(out.join("out")) else { return };
    if salvage.write(&mut loader, |lost| drop(lost.to_string())).is_ok() {
        let _ = loader.finish();
    }
}

/// The number of digits in the file name of a shard.
fn digits(info: &[u8]) -> usize {
    let info: serde_json::Value = serde_json::from_slice(info).unwrap_or_default();
    let bits = info["sharding"]["shard_bits"].as_u64().unwrap_or(0);
    bits.min(64).div_ceil(4) as usize
}
