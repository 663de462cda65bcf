//! The length of gzip data by trial: of a minishard index that is made from sampled keys, and of a value.

use flate2::{Compress, Compression, FlushCompress, Status};
use sharddb::ShardingSpec;
use sharddb::spec::HashFunction;

use super::evidence::Evidence;
use super::occupancy::round;
use super::pair_stats::PairStats;

/// A gzip frame (18 bytes) is this much longer than the zlib frame (6 bytes) of the trial.
const LONGER_FRAME: u32 = 12;

/// Upper bound on the rows of a trial. More rows hardly change the bytes per row.
const MAX_ROWS: usize = 4096;

/// The bytes per key of a compressed minishard index with `keys` keys.
pub(super) fn index_bytes_per_key(evidence: &Evidence<'_>, pairs: &PairStats, spec: &ShardingSpec, keys: f64) -> f64 {
    let rows = usize::try_from(round(keys)).unwrap_or(usize::MAX);
    let ids = evidence.ids_of_a_minishard(spec, rows.min(MAX_ROWS));
    let index = index(&ids, &value_lengths(pairs, ids.len()));
    let frame = if rows <= MAX_ROWS { f64::from(LONGER_FRAME) } else { 0.0 };
    (compressed_len(&index) as f64 + frame) / ids.len().max(1) as f64
}

/// The length of a value as gzip.
pub(super) fn gzip_len(value: &[u8]) -> u64 {
    compressed_len(value) + u64::from(LONGER_FRAME)
}

/// The length of the zlib stream; that of `bytes` if compression fails.
fn compressed_len(bytes: &[u8]) -> u64 {
    let mut compressed = vec![0; bytes.len() + bytes.len() / 8 + 64];
    let mut deflate = Compress::new(Compression::new(6), true);
    match deflate.compress(bytes, &mut compressed, FlushCompress::Finish) {
        Ok(Status::StreamEnd) => deflate.total_out(),
        _ => bytes.len() as u64,
    }
}

/// A minishard index of consecutive values: deltas of ids, gaps (only the first is not 0), lengths.
fn index(ids: &[u64], lengths: &[u64]) -> Vec<u8> {
    let mut index = Vec::new();
    let mut last = 0;
    for id in ids {
        index.extend_from_slice(&id.wrapping_sub(last).to_le_bytes());
        last = *id;
    }
    let start = lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(*length));
    let starts = std::iter::once(start).chain(std::iter::repeat(0)).take(ids.len());
    starts.chain(lengths.iter().copied()).for_each(|number| index.extend_from_slice(&number.to_le_bytes()));
    index
}

/// `count` lengths drawn from the histogram, the same ones each time.
fn value_lengths(pairs: &PairStats, count: usize) -> Vec<u64> {
    let random = |number: u64| HashFunction::MurmurHash3X86_128.hash(!number);
    (0..count as u64).map(|number| value_length(pairs, random(number))).collect()
}

/// The length at a random position of the histogram, uniform within its step.
fn value_length(pairs: &PairStats, random: u64) -> u64 {
    let mut left = random % pairs.pairs.max(1);
    let mut from = 0_u64;
    for values in &pairs.values_by_bits {
        if left < *values {
            break;
        }
        left -= values;
        from = from.saturating_mul(2).max(1); // 0, 1, 2, 4 and so on
    }
    let to = from.saturating_add(from.saturating_sub(1)).min(pairs.longest_value);
    let from = from.max(pairs.shortest_value.min(pairs.longest_value));
    from + random.rotate_left(32) % to.saturating_sub(from).saturating_add(1)
}
