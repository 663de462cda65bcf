//! The state of an open shard: its files, its options, and the tables that lookups fill.

use std::sync::{Arc, OnceLock};

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::gzip::{DEFAULT_MAX_INDEX_BYTES, DEFAULT_MAX_VALUE_BYTES};
use crate::format::layout::Layout;
use crate::format::shard_index::ShardIndexEntry;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::ids::{MinishardNumber, ShardNumber};

use crate::read::shard::files::ShardFiles;
use crate::read::shard::index_cache::MinishardCache;
use crate::read::shard::minishards::Minishards;
use crate::read::shard::named_ranges::{NamedRanges, NamedRangesBuilder};
use crate::read::shard::table_file::TableSection;
use crate::read::shard::verification::{Verification, VerifyReads, WholeShardVerified};
use crate::storage::{Bytes, Storage};

/// Block size for reading a whole shard index.
const SHARD_INDEX_BLOCK: u64 = 64 << 10;

/// The caps on reads, and the verification mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOptions {
    pub(crate) max_value_bytes: u64,
    pub(crate) max_index_bytes: u64,
    pub(crate) verify_reads: VerifyReads,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            max_value_bytes: DEFAULT_MAX_VALUE_BYTES,
            max_index_bytes: DEFAULT_MAX_INDEX_BYTES,
            verify_reads: VerifyReads::default(),
        }
    }
}

/// What is known about a shard from outside its file: stated by the manifest and the minishard table, and whether a walk
/// verified all of it.
#[derive(Default)]
pub(crate) struct KnownShard {
    pub(crate) shard_index_crc32: Option<u32>,
    pub(crate) table: Option<TableSection>,
    pub(crate) whole: Arc<WholeShardVerified>,
}

/// An open shard. Its methods are in several files: [`mapped`](super::mapped) has the fast path, and
/// [`lookup`](super::lookup) the general path.
pub(crate) struct ShardReader {
    pub(crate) number: ShardNumber,
    pub(crate) spec: ShardingSpec,
    /// `None` for a foreign shard.
    pub(crate) layout: Option<Layout>,
    files: ShardFiles,
    /// The offset to which relative offsets refer, in the file with the data.
    base: u64,
    pub(super) options: ReadOptions,
    /// Whether lookups may take the fast path: the shard is raw, in one file, and in memory.
    is_raw_in_memory: bool,
    pub(super) minishards: Minishards,
    pub(super) verification: Verification,
    pub(super) stated: KnownShard,
    pub(super) cache: Arc<MinishardCache>,
    /// Contains `None` if there are too many ranges to keep.
    pub(super) named_ranges: OnceLock<Option<NamedRanges>>,
}

impl ShardReader {
    pub(crate) fn new(
        number: ShardNumber,
        spec: ShardingSpec,
        layout: Option<Layout>,
        files: ShardFiles,
        options: ReadOptions,
        cache: Arc<MinishardCache>,
        stated: KnownShard,
    ) -> ShardReader {
        let base = if files.is_pair() { 0 } else { spec.shard_index_len() };
        let has_checks = layout.is_some_and(|layout| layout.checks);
        let verification = Verification::new(if has_checks { options.verify_reads } else { VerifyReads::Never });
        let has_raw_indexes = spec.minishard_index_encoding() == Encoding::Raw;
        let is_raw = has_raw_indexes && spec.data_encoding() == Encoding::Raw;
        let is_raw_in_memory = is_raw && !files.is_pair() && files.data().in_memory().is_some();
        ShardReader {
            number,
            spec,
            layout,
            is_raw_in_memory,
            minishards: match has_raw_indexes && files.has_shard_index(&spec) {
                true => Minishards::new(&spec, files.data_len().saturating_sub(base)),
                false => Minishards::none(),
            },
            files,
            base,
            options,
            verification,
            stated,
            cache,
            named_ranges: OnceLock::new(),
        }
    }

    pub(crate) fn files(&self) -> &ShardFiles {
        &self.files
    }

    /// Returns the offset to which relative offsets refer, in the file with the data.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Returns the bytes after the shard index of a raw shard in memory; `None` if lookups may not take the fast path.
    #[inline]
    pub(crate) fn raw_body(&self) -> Option<&[u8]> {
        match self.is_raw_in_memory {
            true => self.files.index_file.in_memory()?.get(to_usize(self.base)..),
            false => None,
        }
    }

    /// Returns the number of bytes after the shard index.
    pub(crate) fn body_len(&self) -> u64 {
        self.files.data_len().saturating_sub(self.base)
    }

    /// Whether minishard indexes are searched in place, without a copy.
    pub(crate) fn has_index_in_place(&self) -> bool {
        self.files.data().in_memory().is_some() && self.spec.minishard_index_encoding() == Encoding::Raw
    }

    /// Whether values are borrowed, without a copy.
    pub(crate) fn has_values_in_place(&self) -> bool {
        self.files.data().in_memory().is_some() && self.spec.data_encoding() == Encoding::Raw
    }

    /// Returns the CRC-32 of the shard index that the manifest states.
    pub(crate) fn shard_index_crc32(&self) -> Option<u32> {
        self.stated.shard_index_crc32
    }

    /// Reads bytes of the file with the data, without alignment, cap or verification.
    pub(crate) fn read(&self, range: ByteRange) -> Result<Bytes<'_>> {
        self.files.data().read(range, 1)
    }

    /// Returns the bytes of a range of the file with the data, if the file is in memory.
    pub(crate) fn in_memory(&self, range: ByteRange) -> Option<&[u8]> {
        self.files.data().in_memory().and_then(|bytes| range.of(bytes))
    }

    /// Returns the range in the file of bytes that are borrowed from it.
    pub(crate) fn range_of(&self, bytes: &[u8]) -> Option<ByteRange> {
        let file = self.files.data().in_memory()?;
        let start = u64::try_from(bytes.as_ptr().addr().checked_sub(file.as_ptr().addr())?).ok()?;
        Some(ByteRange { start, end: start + bytes.len() as u64 })
    }

    /// Whether all files are in memory, mapped or loaded.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.files.all().all(|storage| storage.in_memory().is_some())
    }

    /// Reads up to 64 KiB of the shard index, from the entry of minishard `first`. Empty at its end.
    ///
    /// Errors: `Corrupt` if the file ends within the shard index; `Io`.
    pub(crate) fn shard_index_block(&self, first: MinishardNumber) -> Result<Bytes<'_>> {
        let start = ShardIndexEntry::position(first).start;
        let end = (start + SHARD_INDEX_BLOCK).min(self.spec.shard_index_len()).min(self.files.index_file.len());
        if end < self.spec.shard_index_len() && end.saturating_sub(start) < 16 {
            let message = format!(
                "expected a shard index of {} bytes, found a file of {}",
                self.spec.shard_index_len(),
                self.files.index_file.len()
            );
            return Err(self.at(first, Error::corrupt(message).at_offset(start)));
        }
        self.files.index_file.read(ByteRange { start, end: end.max(start) }, 1).map_err(|error| self.at(first, error))
    }

    /// Creates a builder of the ranges that indexes name, with the shard index as the first range.
    pub(crate) fn named_ranges(&self) -> NamedRangesBuilder {
        NamedRangesBuilder::new(self.layout, self.spec.minishard_index_encoding(), self.base)
    }

    /// Begins a pass: the files are read ahead until the last pass ends.
    pub(crate) fn begin_pass(&self) {
        self.files.all().for_each(Storage::begin_pass);
    }

    /// Ends a pass.
    pub(crate) fn end_pass(&self) {
        self.files.all().for_each(Storage::end_pass);
    }

    /// Reads all pages of a mapped shard, until `goes_on` returns false.
    pub(crate) fn populate(&self, goes_on: &dyn Fn() -> bool) {
        self.files.all().for_each(|storage| storage.populate(goes_on));
    }

    /// Asks the kernel to prefetch the shard index, unless there is a minishard table.
    pub(crate) fn will_need_shard_index(&self) {
        if self.stated.table.is_some() {
            return;
        }
        self.files.index_file.will_need(ByteRange { start: 0, end: self.spec.shard_index_len() });
    }

    /// Asks the kernel to prefetch pages of the file with the shard index.
    pub(crate) fn will_need_entries(&self, range: ByteRange) {
        self.files.index_file.will_need(range);
    }

    /// Asks the kernel to prefetch pages of the file with the data.
    pub(crate) fn will_need_data(&self, range: ByteRange) {
        self.files.data().will_need(range);
    }

    #[inline]
    pub(super) fn alignment(&self) -> usize {
        self.layout.map_or(1, |layout| to_usize(layout.value_alignment.get()))
    }

    /// Adds this shard, its file and a minishard as the place of an error.
    #[cold]
    pub(crate) fn at(&self, minishard: MinishardNumber, error: Error) -> Error {
        let error = error.at_shard(self.number).at_minishard(minishard);
        if self.files.path.as_os_str().is_empty() { error } else { error.at_path(&self.files.path) }
    }
}

/// Converts an offset. Offsets of bytes in memory always fit; others saturate.
#[inline]
pub(crate) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
