//! When reads are verified, and what of a shard has been verified already.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::byte_range::RelativeRange;
use crate::read::shard::minishards::{Verified, zeros};

/// When reads verify bytes against the stored checks.
///
/// In a native data set with checks, a verified read returns the stored value or an error, absent keys included, whatever
/// happened to the files. Foreign data sets have no checks; there all three modes are the same.
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
    /// Never: damage inside raw bytes is noticed only where it breaks a rule of the format.
    Never,
    /// Each byte when this process first uses it.
    ///
    /// What is compared is remembered for bytes in memory: two bits for each minishard, one for each 512 bytes of larger
    /// values. Values of up to 512 bytes in minishards of more than 4 KiB, values that are decoded, and what positioned reads
    /// give are compared each time. A mapped page that was compared, evicted, and read again damaged is not noticed.
    #[default]
    Once,
    /// At every read.
    Always,
}

/// Values of more bytes are remembered by the multiple of this that they begin in: only one such value can begin there.
pub(super) const LARGE_VALUE: u64 = 512;

/// How much of a minishard is compared when it is first used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compare {
    /// The index alone: values are not read.
    #[default]
    Index,
    /// The values of a small one too.
    Values,
}

/// What is compared in one shard, and what was.
pub(crate) struct Verification {
    /// `Never` where there is nothing to compare with.
    reads: VerifyReads,
    pub(super) shard_index: OnceLock<()>,
    /// A bit for every `LARGE_VALUE` bytes behind the shard index.
    large_values: OnceLock<Box<[AtomicU64]>>,
}

impl Verification {
    pub(crate) fn new(reads: VerifyReads) -> Verification {
        Verification { reads, shard_index: OnceLock::new(), large_values: OnceLock::new() }
    }

    /// Whether reads compare at all.
    pub(crate) fn is_on(&self) -> bool {
        self.reads != VerifyReads::Never
    }

    /// Whether what was compared is remembered.
    pub(crate) fn remembers(&self) -> bool {
        self.reads == VerifyReads::Once
    }

    /// What need not be compared of minishards that are met for the first time.
    pub(crate) fn initial(&self, whole: &WholeShard) -> Verified {
        match self.reads {
            VerifyReads::Never => Verified::ALL,
            VerifyReads::Once if whole.is_verified() => Verified::ALL,
            VerifyReads::Once | VerifyReads::Always => Verified::NOTHING,
        }
    }

    /// Whether a value of more than `LARGE_VALUE` bytes is remembered.
    #[inline]
    pub(super) fn has_large_value(&self, value: RelativeRange) -> bool {
        let (word, bit) = large_value_bit(value);
        let words = self.large_values.get().map_or(&[][..], |words| words);
        words.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    pub(super) fn mark_large_value(&self, value: RelativeRange, behind_len: u64) {
        let words = self.large_values.get_or_init(|| zeros(behind_len.div_ceil(LARGE_VALUE * u64::from(u64::BITS))));
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

/// Whether a whole shard was compared: shared by all that open its file, so that a second walk need not compare again.
#[derive(Default)]
pub(crate) struct WholeShard(AtomicBool);

impl WholeShard {
    pub(crate) fn is_verified(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set_verified(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
