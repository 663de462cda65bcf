//! The figures that a specification leads to.

use super::evidence::{Cell, Evidence};
use super::gzip_trial;
use super::occupancy::Occupancy;
use super::poisson;
use crate::format::layout::Layout;
use crate::format::spec::{Encoding, ShardingSpec};

/// Id, offset and length in a raw minishard index.
const INDEX_ROW_LEN: f64 = 24.0;

/// The entry of a minishard in the shard index.
const SHARD_INDEX_ENTRY_LEN: f64 = 16.0;

const CHECK_LEN: f64 = 4.0;

/// Minishards begin at multiples of 8 bytes: 0 to 7 bytes are lost, whatever comes.
const MINISHARD_PADDING: f64 = 3.5;

/// Raw indexes of more keys are not scanned in place.
const SCANNED_ROWS: f64 = 64.0;

const PAGE_LEN: f64 = 4096.0;

/// What a store with a given specification will be like.
///
/// "Minishards" and "shards" are those that hold keys: the empty ones cost 16 bytes, or nothing, and no `get`
/// that finds something comes there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    spec: ShardingSpec,
    minishards: Occupancy,
    shards: Occupancy,
    skew: f64,
    index_bytes_per_key: f64,
    local: LocalGet,
    http: HttpGet,
}

/// A `get` from this machine, for a key that is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalGet {
    /// Memory accesses that wait for the one before, when warm, for a reader that begins with the shard index: 2 where the
    /// minishard index is scanned in front of its values, else 3. With a minishard table one less.
    pub cache_misses: u32,
    /// Pages of 4 KiB read when cold, by such a reader; with a minishard table one less.
    pub pages: f64,
    /// Bytes of indexes and value.
    pub bytes: f64,
}

/// A `get` of a web client that has cached nothing, for a key that is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HttpGet {
    /// Range requests, each waiting for the one before: shard index entry, minishard index, value.
    pub requests: u32,
    /// Bytes of the three.
    pub bytes: f64,
}

impl Prediction {
    pub(super) fn new(spec: ShardingSpec, evidence: &Evidence<'_>, layout: Layout) -> Prediction {
        let minishards = evidence.occupancy(&spec, Cell::Minishard);
        let shards = evidence.occupancy(&spec, Cell::Shard);
        let pair = Pair::of(evidence, layout);
        let row = match spec.minishard_index_encoding() {
            Encoding::Raw => INDEX_ROW_LEN,
            Encoding::Gzip => gzip_trial::index_bytes_per_key(evidence, &spec, minishards.mean),
        };
        let of_minishard = MINISHARD_PADDING + if layout.checks { CHECK_LEN } else { 0.0 };
        let in_minishards = row + pair.checks + pair.padding + per(of_minishard, minishards.mean);
        let shard_index_len = SHARD_INDEX_ENTRY_LEN * spec.minishards() as f64;
        let index_len = row * minishards.of_a_key;
        Prediction {
            spec,
            minishards,
            shards,
            skew: skew(shards, shard_index_len, in_minishards, &pair),
            index_bytes_per_key: if evidence.keys > 0 {
                in_minishards + per(shard_index_len, shards.mean)
            } else {
                0.0
            },
            local: LocalGet::of(&spec, minishards.of_a_key, index_len, &pair),
            http: HttpGet { requests: 3, bytes: SHARD_INDEX_ENTRY_LEN + index_len + pair.value },
        }
    }

    /// The specification that the figures are about.
    pub fn spec(&self) -> ShardingSpec {
        self.spec
    }

    /// Shards that hold keys: the number of shard files.
    pub fn shard_files(&self) -> u64 {
        round(self.shards.cells)
    }

    /// Minishards that hold keys.
    pub fn minishards_with_keys(&self) -> u64 {
        round(self.minishards.cells)
    }

    /// Keys in a minishard with keys, on average.
    pub fn mean_keys_per_minishard(&self) -> f64 {
        self.minishards.mean
    }

    /// Keys in the median minishard with keys.
    pub fn median_keys_per_minishard(&self) -> u64 {
        round(self.minishards.median)
    }

    /// Keys in the fullest minishard.
    pub fn largest_keys_per_minishard(&self) -> u64 {
        round(self.minishards.largest)
    }

    /// Bytes of the largest shard in multiples of the mean over the shards that hold keys; at least 1.
    ///
    /// Takes the lengths of values to be independent of their keys.
    pub fn skew(&self) -> f64 {
        self.skew
    }

    /// Bytes of the shard files that are neither values nor prefixes, for each key: shard indexes (16 a
    /// minishard, empty ones included), minishard indexes (24 a key when raw; when gzip, what a minishard index
    /// made up from sampled keys compresses to), checks and padding.
    pub fn index_bytes_per_key(&self) -> f64 {
        self.index_bytes_per_key
    }

    /// What a `get` on this machine costs.
    pub fn local_get(&self) -> LocalGet {
        self.local
    }

    /// What a `get` over HTTP costs.
    pub fn http_get(&self) -> HttpGet {
        self.http
    }
}

/// Bytes of an average pair.
struct Pair {
    value: f64,
    value_and_prefix: f64,
    variance: f64,
    checks: f64,
    /// For the alignment of the value.
    padding: f64,
}

impl Pair {
    fn of(evidence: &Evidence<'_>, layout: Layout) -> Pair {
        let stats = evidence.stats;
        let pairs = stats.pairs().max(1) as f64;
        let value = stats.value_bytes() as f64 / pairs;
        let prefix = stats.prefix_bytes() as f64 / pairs;
        let checks = match layout.checks {
            true if prefix > 0.0 => 2.0 * CHECK_LEN,
            true => CHECK_LEN,
            false => 0.0,
        };
        let padding = (layout.value_alignment.get() as f64 - 1.0) / 2.0;
        Pair { value, value_and_prefix: value + prefix, variance: stats.length_variance(), checks, padding }
    }
}

/// Two things make shards uneven, the number of keys and the lengths of their values; independent as they are,
/// their squares add up.
fn skew(shards: Occupancy, shard_index_len: f64, index_per_key: f64, pair: &Pair) -> f64 {
    if shards.cells < 1.5 {
        return 1.0;
    }
    let per_key = index_per_key + pair.value_and_prefix;
    let mean = shard_index_len + shards.mean * per_key;
    let by_keys = (shards.largest - shards.mean) * per_key;
    let unit = pair.variance / pair.value_and_prefix.max(f64::MIN_POSITIVE);
    let by_lengths = match unit > f64::EPSILON {
        true => {
            let expected = shards.mean * pair.value_and_prefix;
            let others = 1.0 - 1.0 / shards.cells;
            (unit * poisson::largest_of(shards.cells, expected / unit) - expected).max(0.0) * others.sqrt()
        }
        false => 0.0,
    };
    1.0 + by_keys.hypot(by_lengths) / mean
}

impl LocalGet {
    /// A minishard is its index, the checks, and the values; a key's value lies half way through, on average. A
    /// gzip index stands apart.
    fn of(spec: &ShardingSpec, keys: f64, index_len: f64, pair: &Pair) -> LocalGet {
        let others = pair.value_and_prefix * (keys - 1.0).max(0.0) / 2.0;
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

/// `bytes` spread over so many keys, none over none.
fn per(bytes: f64, keys: f64) -> f64 {
    if keys > 0.0 { bytes / keys } else { 0.0 }
}

/// The pages that a number of consecutive bytes touches, on average over where it begins.
fn pages(bytes: f64) -> f64 {
    if bytes > 0.0 { 1.0 + (bytes - 1.0).max(0.0) / PAGE_LEN } else { 0.0 }
}

/// The nearest integer of a number that counts something.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, as it should")]
pub(super) fn round(number: f64) -> u64 {
    number.round() as u64
}
