//! The calls on a shard or a snapshot, and the comparison of their answers with the naive reader.

use sharddb::shard::Shard;
use sharddb::{Result, Snapshot, Value};

use crate::case::ShardCase;
use crate::naive::Broken;

/// Makes every call on a shard and ignores the results. Each walk must end.
pub fn everything(shard: &Shard, keys: &[u64]) {
    for key in keys {
        let _ = (shard.get(*key), shard.contains(*key), shard.locate(*key));
        for n in [0, 1, 16, u64::MAX] {
            let _ = shard.get_preamble(*key, n);
        }
    }
    // twice the bytes of the file are read as indexes, of which each byte may inflate to 43 rows; plus 64 entries
    let most = 86 * shard.file_bytes() as usize + 100;
    let mut steps = 0;
    for entry in shard.iter() {
        steps += 1;
        assert!(steps <= most, "a walk over {} bytes does not end", shard.file_bytes());
        let Ok(entry) = entry else { continue };
        let _ = (entry.value(), entry.preamble(), entry.encoded_value(), entry.value_location());
        let _ = (entry.key(), entry.location(), entry.stored_len());
    }
    let _ = (shard.count(), shard.keys().count(), format!("{shard:?}"));
}

/// Makes every call on a snapshot and ignores the results.
pub fn everything_of(snapshot: &Snapshot, keys: &[u64]) {
    let mut buffer = Vec::new();
    for key in keys {
        let _ = (snapshot.get(*key), snapshot.get_into(*key, &mut buffer), snapshot.contains(*key));
        let _ = (snapshot.locate(*key), snapshot.get_preamble(*key, 3));
    }
    let _ = (snapshot.get_many(keys), snapshot.contains_many(keys), snapshot.locate_many(keys));
    let _ = (snapshot.count(), snapshot.key_count(), snapshot.stats());
    for entry in snapshot.iter().flatten() {
        let _ = (entry.value(), entry.preamble(), entry.encoded_value());
    }
    snapshot.range(..).flatten().for_each(|entry| drop(entry.value()));
    for shard in snapshot.shards().flatten() {
        let _ = shard.count();
    }
}

/// Asserts that the library and the naive reader agree on every key and on the listing.
pub fn agreement(case: &ShardCase) {
    let shard = case.shard();
    for key in case.keys() {
        let naive = case.naive.get(&case.bytes, key);
        assert_eq!(answer(shard.get(key)), naive, "key {key} of {case:?}");
        if let Ok(there) = shard.contains(key) {
            assert!(there || naive == Ok(None), "contains {key} of {case:?}");
        }
    }
    let listing: Vec<_> =
        shard.iter().map(|entry| entry.map(|entry| (entry.key(), entry)).map_err(|_| Broken)).collect();
    let expected = naive_listing(case);
    let keys: Vec<_> =
        listing.iter().map(|item| item.as_ref().map(|(key, _)| *key).map_err(|broken| *broken)).collect();
    let expected_keys: Vec<_> =
        expected.iter().map(|item| item.as_ref().map(|(key, _)| *key).map_err(|it| *it)).collect();
    assert_eq!(keys, expected_keys, "the listing of {case:?}");
    for (found, expected) in listing.iter().zip(&expected) {
        if let (Ok((key, entry)), Ok((_, value))) = (found, expected) {
            assert_eq!(
                answer(entry.value().map(Some)),
                value.clone().map(Some),
                "key {key} of the listing of {case:?}"
            );
        }
    }
}

fn answer(result: Result<Option<Value<'_>>>) -> Result<Option<Vec<u8>>, Broken> {
    result.map(|value| value.map(|value| value.to_vec())).map_err(|_| Broken)
}

type Listed = Result<(u64, Result<Vec<u8>, Broken>), Broken>;

/// All rows in storage order, with an error per bad row or minishard and one for all entries that the shard index
/// lacks.
fn naive_listing(case: &ShardCase) -> Vec<Listed> {
    let (spec, bytes) = (case.naive, &case.bytes[..]);
    let (mut listing, mut spent) = (Vec::new(), 0);
    for minishard in 0..1u64 << spec.minishard_bits {
        if (bytes.len() as u64) < 16 * (minishard + 1) {
            listing.push(Err(Broken));
            break;
        }
        // a walk stops reading indexes once their lengths exceed twice the length of the file, since they then overlap
        let index_len = spec.index(bytes, minishard).map_or(0, |index| index.len());
        if spent + index_len > 2 * bytes.len() {
            listing.push(Err(Broken));
            continue;
        }
        spent += index_len;
        match spec.rows(bytes, minishard) {
            Ok(rows) => listing.extend(
                rows.iter()
                    .map(|row| spec.stored(bytes, row.start, row.end).map(|_| (row.id, spec.value(bytes, *row)))),
            ),
            Err(Broken) => listing.push(Err(Broken)),
        }
    }
    listing
}
