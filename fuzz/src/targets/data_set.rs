//! Any bytes as an `info` and the first shards beside it: every reading call returns, and so does salvage. For the cost
//! model alone: what a fuzzer could find here, the targets of parts find sooner.

use std::fs;

use sharddb::{OpenOptions, Salvage, VerifyLevel};

use crate::{container, scratch};

/// The most bytes that an index or a value may decode to.
const CAP: u64 = 16 << 20;

/// Runs the target on an input: the files behind a first byte that says nothing, as [`container::join`] has them.
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
    let Ok(db) = options.open_pread(&directory) else { return };
    let snapshot = db.snapshot();
    for key in [0, 1, 5, u64::MAX] {
        let _ = (snapshot.get(key), snapshot.contains(key), snapshot.locate(key));
    }
    let _ = (snapshot.count(), snapshot.keys().count(), snapshot.range(..).count(), snapshot.stats());
    for entry in snapshot.iter().flatten() {
        let _ = (entry.key(), entry.stored_len(), entry.value_location());
    }
    let _ = snapshot.iter().flatten().next().map(|entry| entry.prefix().map(drop));
    for level in [VerifyLevel::Structure, VerifyLevel::Data] {
        let _ = snapshot.verify(level).map(|report| report.to_string());
    }
    let Ok(salvage) = Salvage::open_with(&directory, &options) else { return };
    let Ok(mut loader) = salvage.build_options().threads(1).memory(16 << 20).create(out.join("out")) else { return };
    if salvage.write(&mut loader, |lost| drop(lost.to_string())).is_ok() {
        let _ = loader.finish();
    }
}

/// How many digits the name of a shard has.
fn digits(info: &[u8]) -> usize {
    let info: serde_json::Value = serde_json::from_slice(info).unwrap_or_default();
    let bits = info["sharding"]["shard_bits"].as_u64().unwrap_or(0);
    bits.min(64).div_ceil(4) as usize
}
