//! What a gzip minishard index takes: one is made up from the sampled keys, and compressed.
//!
//! A formula would have to know how deflate fares with deltas of ids; the compressor knows.

use zlib_rs::{DeflateConfig, ReturnCode};

use super::evidence::Evidence;
use super::key_stats::KeyStats;
use super::prediction::round;
use crate::format::hash::HashFunction;
use crate::format::spec::ShardingSpec;

/// gzip has a longer frame around the deflated bytes (18) than the trial's zlib (6).
const LONGER_FRAME: f64 = 12.0;

/// Rows of a trial at most; of more the bytes a row do not change.
const MOST_ROWS: usize = 4096;

/// The bytes a key of a compressed minishard index with `keys` keys.
pub(super) fn index_bytes_per_key(evidence: &Evidence<'_>, spec: &ShardingSpec, keys: f64) -> f64 {
    let rows = usize::try_from(round(keys)).unwrap_or(usize::MAX);
    let fits = rows <= MOST_ROWS;
    let ids = evidence.ids_of_a_minishard(spec, rows.min(MOST_ROWS));
    let lengths = lengths(evidence, ids.len());
    let index = index(&ids, &lengths);
    let mut compressed = vec![0; zlib_rs::compress_bound(index.len())];
    let deflated = match zlib_rs::compress_slice(&mut compressed, &index, DeflateConfig::new(6)) {
        (deflated, ReturnCode::Ok) => deflated.len(),
        _ => index.len(), // out of memory: as if nothing were won
    };
    let frame = if fits { LONGER_FRAME } else { 0.0 };
    (deflated as f64 + frame) / ids.len().max(1) as f64
}

/// A minishard index whose values lie in a row: ids as deltas, gaps of zero but the first, lengths.
fn index(ids: &[u64], lengths: &[u64]) -> Vec<u8> {
    let mut index = Vec::new();
    let mut last = 0;
    for id in ids {
        index.extend_from_slice(&id.wrapping_sub(last).to_le_bytes());
        last = *id;
    }
    let somewhere = lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(*length));
    let starts = std::iter::once(somewhere).chain(std::iter::repeat(0)).take(ids.len());
    starts.chain(lengths.iter().copied()).for_each(|number| index.extend_from_slice(&number.to_le_bytes()));
    index
}

/// Lengths drawn from the histogram.
fn lengths(evidence: &Evidence<'_>, count: usize) -> Vec<u64> {
    let random = |number: u64| HashFunction::MurmurHash3X86_128.hash(!number);
    (0..count as u64).map(|number| length(evidence.stats, random(number))).collect()
}

/// The length at a random place of the histogram, any one within its step.
fn length(stats: &KeyStats, random: u64) -> u64 {
    let mut left = random % stats.pairs().max(1);
    let mut from = 0_u64;
    for pairs in stats.value_length_histogram() {
        if left < *pairs {
            break;
        }
        left -= pairs;
        from = from.saturating_mul(2).max(1); // 0, 1, 2, 4, ..
    }
    let (shortest, longest) = stats.length_bounds();
    let to = from.saturating_add(from.saturating_sub(1)).min(longest);
    let from = from.max(shortest);
    from + random.rotate_left(32) % to.saturating_sub(from).saturating_add(1)
}
