//! Figures of a store, for one specification.

use sharddb::ShardingSpec;
use sharddb::internal::poisson;
use sharddb::spec::Encoding;

use super::evidence::{CellKind, Evidence};
use super::gzip_trial;
use super::occupancy::{Occupancy, round};
use super::pair_stats::PairStats;

/// Id, offset and length in a raw minishard index.
const INDEX_ROW_LEN: f64 = 24.0;

/// The entry of a minishard in the shard index.
const SHARD_INDEX_ENTRY_LEN: f64 = 16.0;

/// The checksum of a minishard index, of a preamble or of a value.
const CHECK_LEN: f64 = 4.0;

/// Minishards start at multiples of 8 bytes, which takes 0 to 7 bytes.
const MINISHARD_PADDING: f64 = 3.5;

/// Raw indexes of more keys are not scanned in place.
const SCANNED_ROWS: f64 = 64.0;

const PAGE_LEN: f64 = 4096.0;

/// Predicted figures of a store with checksums and without value alignment.
///
/// Minishards and shards are those with keys. A minishard without keys takes 16 bytes and a shard without keys takes
/// none; no lookup that finds a value reads them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prediction {
    pub(super) spec: ShardingSpec,
    /// The number of shards, and so of shard files.
    pub(super) shard_files: u64,
    /// The bytes of the largest shard divided by the mean; at least 1. Lengths of values are assumed to be independent of
    /// their keys.
    pub(super) skew: f64,
    pub(super) minishards: u64,
    /// Mean, median and maximum of the number of keys in a minishard.
    pub(super) mean_keys: f64,
    pub(super) median_keys: u64,
    pub(super) largest_keys: u64,
    /// Bytes of the shard files that are neither values nor preambles: shard indexes (16 per minishard, also of those
    /// without keys), minishard indexes (24 per key if raw; if gzip, the result of a trial), checksums and padding.
    pub(super) index_bytes_per_key: f64,
    pub(super) local: LocalGet,
    pub(super) http: HttpGet,
}

/// The cost of finding a value in a mapped store, for a reader that starts with the shard index. A minishard table saves
/// one cache miss and one page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LocalGet {
    /// Dependent memory accesses when the store is in memory: 2 if the minishard index is scanned in place, 3 otherwise.
    pub(super) cache_misses: u32,
    /// Pages of 4 KiB read when it is not in memory.
    pub(super) pages: f64,
    /// Bytes of indexes and value.
    pub(super) bytes: f64,
}

/// The cost of finding a value over HTTP without a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HttpGet {
    /// Dependent range requests: shard index entry, minishard index, value.
    pub(super) requests: u32,
    /// Bytes of the three.
    pub(super) bytes: f64,
}

impl Prediction {
    pub(super) fn new(spec: ShardingSpec, evidence: &Evidence<'_>, pairs: &PairStats) -> Prediction {
        let minishards = evidence.occupancy(&spec, CellKind::Minishard);
        let shards = evidence.occupancy(&spec, CellKind::Shard);
        let pair = MeanPair::of(pairs);
        let row = match spec.minishard_index_encoding() {
            Encoding::Raw => INDEX_ROW_LEN,
            Encoding::Gzip => gzip_trial::index_bytes_per_key(evidence, pairs, &spec, minishards.mean),
        };
        let in_minishards = row + pair.checks + per(MINISHARD_PADDING + CHECK_LEN, minishards.mean);
        let shard_index_len = SHARD_INDEX_ENTRY_LEN * spec.minishards() as f64;
        let index_len = row * minishards.of_a_key;
        let index_bytes_per_key = in_minishards + per(shard_index_len, shards.mean);
        Prediction {
            spec,
            shard_files: round(shards.cells),
            skew: skew(shards, shard_index_len, in_minishards, &pair),
            minishards: round(minishards.cells),
            mean_keys: minishards.mean,
            median_keys: round(minishards.median),
            largest_keys: round(minishards.largest),
            index_bytes_per_key: if evidence.keys > 0 { index_bytes_per_key } else { 0.0 },
            local: LocalGet::of(&spec, minishards.of_a_key, index_len, &pair),
            http: HttpGet { requests: 3, bytes: SHARD_INDEX_ENTRY_LEN + index_len + pair.value },
        }
    }
}

/// Bytes of a pair, in the mean.
struct MeanPair {
    value: f64,
    value_and_preamble: f64,
    /// Of `value_and_preamble`.
    variance: f64,
    checks: f64,
}

impl MeanPair {
    fn of(pairs: &PairStats) -> MeanPair {
        let count = pairs.pairs.max(1) as f64;
        let value = pairs.value_bytes as f64 / count;
        let preamble = pairs.preamble_bytes as f64 / count;
        let checks = if preamble > 0.0 { 2.0 * CHECK_LEN } else { CHECK_LEN };
        MeanPair { value, value_and_preamble: value + preamble, variance: pairs.length_variance(), checks }
    }
}

/// The number of keys and the lengths of values make shards uneven independently, so the squares of the two add up.
fn skew(shards: Occupancy, shard_index_len: f64, index_per_key: f64, pair: &MeanPair) -> f64 {
    if shards.cells < 1.5 {
        return 1.0;
    }
    let per_key = index_per_key + pair.value_and_preamble;
    let mean = shard_index_len + shards.mean * per_key;
    let by_keys = (shards.largest - shards.mean) * per_key;
    let unit = pair.variance / pair.value_and_preamble.max(f64::MIN_POSITIVE);
    let by_lengths = if unit > f64::EPSILON {
        let expected = shards.mean * pair.value_and_preamble;
        let others = 1.0 - 1.0 / shards.cells;
        (unit * poisson::largest_of(shards.cells, expected / unit) - expected).max(0.0) * others.sqrt()
    } else {
        0.0
    };
    1.0 + by_keys.hypot(by_lengths) / mean
}

impl LocalGet {
    /// A minishard is its index, the checksums and the values; on average half of the other values precede that of a key.
    /// A gzip index is not next to its values.
    fn of(spec: &ShardingSpec, keys: f64, index_len: f64, pair: &MeanPair) -> LocalGet {
        let others = pair.value_and_preamble * (keys - 1.0).max(0.0) / 2.0;
        let is_in_front = spec.minishard_index_encoding() == Encoding::Raw;
        let apart = pages(index_len) + pages(pair.value);
        let together = pages(index_len + pair.checks * keys + others + pair.value);
        LocalGet {
            cache_misses: if is_in_front && keys <= SCANNED_ROWS { 2 } else { 3 },
            pages: pages(SHARD_INDEX_ENTRY_LEN) + if is_in_front { apart.min(together) } else { apart },
            bytes: SHARD_INDEX_ENTRY_LEN + index_len + pair.value,
        }
    }
}

/// `bytes / keys`, or 0 without keys.
fn per(bytes: f64, keys: f64) -> f64 {
    if keys > 0.0 { bytes / keys } else { 0.0 }
}

/// The mean number of pages that consecutive bytes touch, over all positions.
fn pages(bytes: f64) -> f64 {
    if bytes > 0.0 { 1.0 + (bytes - 1.0).max(0.0) / PAGE_LEN } else { 0.0 }
}
