//! Verifies the key file: that it has exactly the keys of the shards, in ascending order.

use crate::error::{Error, Result};
use crate::format::manifest;
use crate::read::generation::Generation;
use crate::read::sorted_keys::key_file::KeyFile;
use crate::verify::VerifyLevel;
use crate::verify::finding::FindingKind;
use crate::verify::key_sum::KeySum;
use crate::verify::report::VerifyReport;

/// Compares the keys of the key file with those of the shards, which the report has summed. If some of those are unknown,
/// because an index is damaged, verifies only that the key file can be read.
pub(super) fn verify(generation: &Generation, report: &mut VerifyReport) {
    if report.level < VerifyLevel::Index {
        return;
    }
    let Some(opened) = generation.open_key_file_apart() else { return };
    let path = generation.directory().join(manifest::KEYS);
    let is_reported = |kind| report.findings().iter().any(|it| it.kind() == kind && it.path() == Some(&*path));
    match opened.and_then(|file| sum_of_ascending(&file)) {
        Ok(Some(keys)) if keys == report.key_sum => {}
        Ok(_) if !report.is_clean() => {}
        Ok(_) => {
            let message = "expected the key file to have the keys of the shards in ascending order, found others: ordered \
                           reads return wrong results; build the generation again";
            report.add(FindingKind::KeyFile, Error::corrupt(message).at_path(&path));
        }
        // the checksum of the file does not match either, unless a wrong file was written
        Err(_) if is_reported(FindingKind::AuxiliaryFile) => {}
        Err(error) => report.add(FindingKind::AuxiliaryFile, error.at_path(&path)),
    }
}

/// Returns the sum of the keys; `None` if they do not ascend.
fn sum_of_ascending(file: &KeyFile) -> Result<Option<KeySum>> {
    let (mut sum, mut next, mut ascends) = (KeySum::default(), 0, true);
    file.for_each(|key| {
        ascends &= u128::from(key) >= next;
        next = u128::from(key) + 1;
        sum.add(key);
    })?;
    Ok(ascends.then_some(sum))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::common::TempDir;
    use crate::format::key_file::{DirectoryBuilder, Group, Shape, Tag, Tail, encode_block};
    use crate::verify::finding::Finding;
    use crate::{BulkLoader, OpenOptions};

    /// Replaces the key file of the store by one with the right tag and other blocks.
    fn replace(store: &Path, blocks: &[Vec<u64>]) {
        let db = OpenOptions::new().open(store).unwrap();
        let snapshot = db.snapshot();
        let shards = &snapshot.generation.manifest().unwrap().shards;
        let tag = Tag::of_shards(shards.iter().map(|shard| (shard.number, shard.keys, shard.crc32)));
        let (mut bytes, mut directory) = (Vec::new(), DirectoryBuilder::default());
        for (number, keys) in (0..).zip(blocks) {
            let block = encode_block(tag, number, keys);
            directory.push(keys[0], block.len()).unwrap();
            bytes.extend(block);
        }
        let group = Group { first_key: blocks[0][0], directory: bytes.len() as u64 };
        bytes.extend(directory.take(tag, 0).unwrap().1);
        let keys = blocks.iter().map(Vec::len).sum::<usize>() as u64;
        bytes.extend(Tail { shape: Shape { keys }, tag, groups: [group].into() }.to_bytes());
        let path = snapshot.directory().join(manifest::KEYS);
        std::fs::remove_file(&path).unwrap(); // it is read-only
        std::fs::write(path, bytes).unwrap();
    }

    fn kinds(store: &Path, level: VerifyLevel) -> Vec<FindingKind> {
        let report = OpenOptions::new().open(store).unwrap().snapshot().verify(level).unwrap();
        report.findings().iter().map(Finding::kind).collect()
    }

    /// Every checksum of the file matches, and its keys are not those of the shards. It has the length of the right file,
    /// so that it is used: only the comparison finds it, and the CRC-32 in the manifest.
    #[test]
    fn a_key_file_with_other_keys_is_found() {
        let store = TempDir::new();
        let mut loader = BulkLoader::options().ordered(true).durable(false).create(store.path()).unwrap();
        (0..1500u64).for_each(|key| loader.insert(2 * key, b"").unwrap());
        loader.finish().unwrap();
        let right: Vec<u64> = (0..1500).map(|key| 2 * key).collect();
        let in_blocks = |keys: &[u64]| keys.chunks(1024).map(<[u64]>::to_vec).collect::<Vec<_>>();

        replace(store.path(), &in_blocks(&right));
        assert_eq!(kinds(store.path(), VerifyLevel::Data), []);

        let shifted: Vec<u64> = right.iter().map(|key| key + 1).collect();
        replace(store.path(), &in_blocks(&shifted));
        let both = [FindingKind::AuxiliaryFile, FindingKind::KeyFile];
        assert_eq!(kinds(store.path(), VerifyLevel::Structure), both[..1]);
        assert_eq!(kinds(store.path(), VerifyLevel::Index), both);
        let snapshot = OpenOptions::new().open(store.path()).unwrap().snapshot();
        assert!(snapshot.is_ordered());
        let errors = snapshot.range(..10).map(|pair| pair.unwrap_err().key()).collect::<Vec<_>>();
        assert_eq!(errors, [1, 3, 5, 7, 9].map(Some), "a pair is never invented");

        // blocks that overlap: the second begins before the first ends
        let overlapping = [(0..1024).map(|key| 2 * key).collect(), (0..476).map(|key| 2000 + 2 * key).collect()];
        replace(store.path(), &overlapping);
        assert_eq!(kinds(store.path(), VerifyLevel::Data), both);
        let keys: Vec<u64> = snapshot_keys(store.path());
        assert!(keys.is_sorted_by(|one, next| one < next), "never out of order");
    }

    fn snapshot_keys(store: &Path) -> Vec<u64> {
        let snapshot = OpenOptions::new().open(store).unwrap().snapshot();
        snapshot.key_range(..).map(Result::unwrap).collect()
    }
}
