//! When reads verify checksums, and which parts of a shard are verified. The verification itself is in `verify`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::byte_range::RelativeRange;
use crate::read::shard::minishards::{Verified, zeros};

/// When reads verify bytes against the stored checksums.
///
/// In a native data set with checks, a verified read returns the stored value or an error, even if the files are
/// damaged. This includes absent keys. Foreign data sets have no checksums, and all three modes behave the same.
///
/// ```no_run
/// use sharddb::{OpenOptions, VerifyReads};
///
/// let db = OpenOptions::new().verify_reads(VerifyReads::Always).open_pread("store")?;
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VerifyReads {
    /// Never verifies. Damage in raw bytes is detected only if it breaks a rule of the format.
    Never,
    /// Verifies each byte when this process first uses it.
    ///
    /// For bytes in memory, the result is remembered: two bits per minishard, and one bit per 512 bytes of larger
    /// values. Verified at each read are: values of at most 512 bytes in minishards of more than 4 KiB, decoded values,
    /// and positioned reads. A mapped page that is verified, evicted, and then read back with damage is not detected.
    #[default]
    Once,
    /// Verifies at every read of the file. Decoded indexes in the cache, and a shard index, are verified once.
    Always,
}

/// Values longer than this are marked by the bit `start / LARGE_VALUE`. Two of them share a bit only if their ranges
/// overlap, which the writer never makes, and which the check of the index proves.
pub(super) const LARGE_VALUE: u64 = 512;

/// How much of a minishard is verified at its first use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum VerifyScope {
    /// Only the index. Values are not read.
    #[default]
    Index,
    /// The index and, if the minishard is small, its values.
    IndexAndSmallValues,
}

/// The verification state of one shard.
pub(crate) struct Verification {
    /// `Never` if the shard has no checks.
    reads: VerifyReads,
    pub(super) shard_index: OnceLock<()>,
    /// One bit per `LARGE_VALUE` bytes after the shard index.
    large_values: OnceLock<Box<[AtomicU64]>>,
}

impl Verification {
    pub(crate) fn new(reads: VerifyReads) -> Verification {
        Verification { reads, shard_index: OnceLock::new(), large_values: OnceLock::new() }
    }

    /// Whether reads verify at all.
    pub(crate) fn is_on(&self) -> bool {
        self.reads != VerifyReads::Never
    }

    /// Whether verified bytes are remembered, so that they are not verified again.
    pub(crate) fn remembers(&self) -> bool {
        self.reads == VerifyReads::Once
    }

    /// Returns the parts of every minishard that need no verification, because of the mode or of a walk over the shard.
    pub(crate) fn exempt_parts(&self, whole: &WholeShardVerified) -> Verified {
        match self.reads {
            VerifyReads::Never => Verified::ALL,
            VerifyReads::Once if whole.is_verified() => Verified::ALL,
            VerifyReads::Once | VerifyReads::Always => Verified::NOTHING,
        }
    }

    /// Whether a value of more than `LARGE_VALUE` bytes is verified already.
    #[inline]
    pub(super) fn has_large_value(&self, value: RelativeRange) -> bool {
        let (word, bit) = large_value_bit(value);
        let words = self.large_values.get().map_or(&[][..], |words| words);
        words.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    pub(super) fn mark_large_value(&self, value: RelativeRange, body_len: u64) {
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

/// Whether a whole shard is verified. All readers of the shard share it, so that a second walk verifies nothing.
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
