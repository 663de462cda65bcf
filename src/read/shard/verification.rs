//! When reads verify checksums, and which parts of a shard are verified. The verification itself is in `verify`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::byte_range::RelativeRange;
use crate::read::shard::minishard_map::{Trusted, zeros};

/// When reads verify bytes against the stored checksums.
///
/// In a native data set with checks, a verified read returns the stored value or an error, even if the files are
/// damaged. This includes absent keys. Foreign data sets have no checksums, and all three modes behave the same.
///
/// ```no_run
/// use sharddb::{OpenOptions, VerifyReads};
///
/// let db = OpenOptions::new().verify_reads(VerifyReads::Always).open("store")?;
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VerifyReads {
    /// Never verifies. Damage in raw bytes is detected only if it breaks a rule of the format.
    Never,
    /// Verifies most bytes that are mapped or loaded only once per open shard, at their first use, and all other bytes
    /// at every use.
    ///
    /// Verified once: raw minishard indexes, all raw values of a minishard whose raw index and values together span at
    /// most 4 KiB, and raw values of more than 512 bytes. Damage that appears later is not detected, in a mapped page
    /// that is evicted and read from the disk again, for example. A [refresh](crate::ShardDb::refresh) keeps a shard open,
    /// with what is verified, if the new generation has it as a hard link. Memory: two bits per minishard and, if values of more
    /// than 512 bytes are read, one bit per 512 bytes of the shard.
    ///
    /// Verified at every use: other raw values of at most 512 bytes, gzip values, preambles, and what positioned reads
    /// return. As with [`Always`](Self::Always), the shard index and indexes in the cache are exceptions.
    #[default]
    Once,
    /// Verifies bytes at every use. There are two exceptions: the shard index is verified at its first use per open
    /// shard, and the copy of a minishard index in the cache was verified before it was inserted.
    Always,
}

/// A large value has more bytes than this. Bit number `start / LARGE_VALUE` of its shard states whether it is verified.
///
/// Two large values share a bit only if they begin in the same `LARGE_VALUE` bytes, so that their ranges overlap. The
/// writer does not make such ranges, and the check of the minishard index proves that they are those of the writer.
pub(super) const LARGE_VALUE: u64 = 512;

/// How much of a minishard is verified at its first use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum VerifyScope {
    /// Only the index. Values are not read.
    #[default]
    Index,
    /// The index and, if the minishard is small (index and values together span at most 4 KiB), its values.
    IndexAndValuesIfSmall,
}

/// The verification state of one shard.
pub(crate) struct Verification {
    /// The mode; `Never` if the shard has no checks.
    reads: VerifyReads,
    /// Set when the shard index is verified.
    pub(super) shard_index: AtomicBool,
    /// One bit per `LARGE_VALUE` bytes after the shard index. Allocated when the first large value is verified.
    large_values: OnceLock<Box<[AtomicU64]>>,
}

impl Verification {
    pub(crate) fn new(reads: VerifyReads) -> Verification {
        Verification { reads, shard_index: AtomicBool::new(false), large_values: OnceLock::new() }
    }

    /// Whether reads verify at all.
    pub(crate) fn is_on(&self) -> bool {
        self.reads != VerifyReads::Never
    }

    /// Whether verified bytes are remembered, so that they are not verified again.
    pub(crate) fn remembers(&self) -> bool {
        self.reads == VerifyReads::Once
    }

    /// Returns the parts that need no verification in any minishard of the shard: all of them if the mode is `Never`,
    /// or if it is `Once` and the whole shard is verified.
    ///
    /// A whole shard is verified at the ranges that its shard index states, and lookups use those of the minishard
    /// table. Both are the same: the checksum of a table block covers the CRC-32 of the shard index.
    pub(crate) fn exempt_parts(&self, is_whole_verified: bool) -> Trusted {
        match self.reads {
            VerifyReads::Never => Trusted::ALL,
            VerifyReads::Once if is_whole_verified => Trusted::ALL,
            VerifyReads::Once | VerifyReads::Always => Trusted::NOTHING,
        }
    }

    /// Whether a large value is marked as verified.
    #[inline]
    pub(super) fn is_large_value_verified(&self, value: RelativeRange) -> bool {
        let (word, bit) = large_value_bit(value);
        let words = self.large_values.get().map_or(&[][..], |words| words);
        words.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Marks a large value as verified, in a shard with `body_len` bytes after its shard index.
    pub(super) fn mark_large_value_verified(&self, value: RelativeRange, body_len: u64) {
        let words = self.large_values.get_or_init(|| zeros(body_len.div_ceil(LARGE_VALUE * u64::from(u64::BITS))));
        let (word, bit) = large_value_bit(value);
        if let Some(word) = words.get(word) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

fn large_value_bit(value: RelativeRange) -> (usize, u64) {
    let number = value.start / LARGE_VALUE;
    (usize::try_from(number / 64).unwrap_or(usize::MAX), 1 << (number % 64))
}

/// Whether a whole shard is verified: by a walk, or by the CRC-32 of the file when it was loaded. All readers of the
/// shard share it, so that a second walk verifies nothing.
#[derive(Default)]
pub(crate) struct WholeShardVerified(AtomicBool);

impl WholeShardVerified {
    pub(crate) fn is_verified(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set_verified(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
