//! What a shard is read with: its files, what is known of them, and the bytes behind the shard index.

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
use crate::read::shard::verification::{Verification, VerifyReads, WholeShard};
use crate::storage::{Bytes, Storage};

/// The shard index is read in blocks of this size where all of it is read.
const SHARD_INDEX_BLOCK: u64 = 64 << 10;

/// What bounds a read and how far it is verified.
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

/// What manifest and minishard table state of a shard; nothing of a foreign one.
#[derive(Default)]
pub(crate) struct Stated {
    pub(crate) shard_index_crc32: Option<u32>,
    pub(crate) table: Option<TableSection>,
    pub(crate) whole: Arc<WholeShard>,
}

/// One shard, opened. Its methods are in the files of their subjects: [`mapped`](super::mapped) has the short path,
/// [`lookup`](super::lookup) the general one.
pub(crate) struct ShardReader {
    pub(crate) number: ShardNumber,
    pub(crate) spec: ShardingSpec,
    /// `None`: written by somebody else.
    pub(crate) layout: Option<Layout>,
    files: ShardFiles,
    /// Where relative offsets count from, in the file with the data.
    base: u64,
    pub(super) options: ReadOptions,
    /// Raw, in one file, and in memory: lookups may take the short path.
    is_raw_in_memory: bool,
    pub(super) minishards: Minishards,
    pub(super) verification: Verification,
    pub(super) stated: Stated,
    pub(super) cache: Arc<MinishardCache>,
    /// `None` inside: there are too many to be kept.
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
        stated: Stated,
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

    /// Where relative offsets count from, in the file with the data.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The bytes behind the shard index, of a raw shard that is in memory.
    #[inline]
    pub(crate) fn raw_behind(&self) -> Option<&[u8]> {
        match self.is_raw_in_memory {
            true => self.files.shard_index.in_memory()?.get(to_usize(self.base)..),
            false => None,
        }
    }

    /// How many bytes there are behind the shard index.
    pub(crate) fn behind_len(&self) -> u64 {
        self.files.data_len().saturating_sub(self.base)
    }

    /// Whether minishard indexes are searched where they lie.
    pub(crate) fn has_index_in_place(&self) -> bool {
        self.files.data().in_memory().is_some() && self.spec.minishard_index_encoding() == Encoding::Raw
    }

    /// Whether values are given as they lie.
    pub(crate) fn has_values_in_place(&self) -> bool {
        self.files.data().in_memory().is_some() && self.spec.data_encoding() == Encoding::Raw
    }

    /// The CRC-32 of the shard index that the manifest states.
    pub(crate) fn shard_index_crc32(&self) -> Option<u32> {
        self.stated.shard_index_crc32
    }

    /// Bytes of the file with the data, whatever they are.
    pub(crate) fn read(&self, range: ByteRange) -> Result<Bytes<'_>> {
        self.files.data().read(range, 1)
    }

    /// The bytes of a range, if they can be had without reading.
    pub(crate) fn in_memory(&self, range: ByteRange) -> Option<&[u8]> {
        self.files.data().in_memory().and_then(|bytes| range.of(bytes))
    }

    /// Where in the file bytes lie that were borrowed from it.
    pub(crate) fn range_of(&self, bytes: &[u8]) -> Option<ByteRange> {
        let file = self.files.data().in_memory()?;
        let start = u64::try_from(bytes.as_ptr().addr().checked_sub(file.as_ptr().addr())?).ok()?;
        Some(ByteRange { start, end: start + bytes.len() as u64 })
    }

    /// Whether all bytes can be had without reading.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.files.all().all(|storage| storage.in_memory().is_some())
    }

    /// The bytes of the shard index from an entry on, up to a block of them; empty at the end.
    pub(crate) fn shard_index_block(&self, first: MinishardNumber) -> Result<Bytes<'_>> {
        let start = ShardIndexEntry::position(first).start;
        let end = (start + SHARD_INDEX_BLOCK).min(self.spec.shard_index_len()).min(self.files.shard_index.len());
        if end < self.spec.shard_index_len() && end.saturating_sub(start) < 16 {
            let message = format!(
                "expected a shard index of {} bytes, found a file of {}",
                self.spec.shard_index_len(),
                self.files.shard_index.len()
            );
            return Err(self.at(first, Error::corrupt(message).at_offset(start)));
        }
        self.files.shard_index.read(ByteRange { start, end: end.max(start) }, 1).map_err(|error| self.at(first, error))
    }

    /// The byte ranges that indexes name, so far the shard index alone.
    pub(crate) fn named_ranges(&self) -> NamedRangesBuilder {
        NamedRangesBuilder::new(self.layout, self.spec.minishard_index_encoding(), self.base)
    }

    /// A pass over the shard begins: what is mapped is read ahead from now on.
    pub(crate) fn begin_pass(&self) {
        self.files.all().for_each(Storage::begin_pass);
    }

    /// A pass over the shard is over.
    pub(crate) fn end_pass(&self) {
        self.files.all().for_each(Storage::end_pass);
    }

    /// Reads all pages of a mapped shard, while `goes_on` says so.
    pub(crate) fn populate(&self, goes_on: &dyn Fn() -> bool) {
        self.files.all().for_each(|storage| storage.populate(goes_on));
    }

    /// Asks the system for the whole shard index, where lookups read it.
    pub(crate) fn will_need_shard_index(&self) {
        if self.stated.table.is_some() {
            return;
        }
        self.files.shard_index.will_need(ByteRange { start: 0, end: self.spec.shard_index_len() });
    }

    /// Asks the system for pages of the file with the shard index.
    pub(crate) fn will_need_entries(&self, range: ByteRange) {
        self.files.shard_index.will_need(range);
    }

    /// Asks the system for pages of the file with the data.
    pub(crate) fn will_need_data(&self, range: ByteRange) {
        self.files.data().will_need(range);
    }

    #[inline]
    pub(super) fn alignment(&self) -> usize {
        self.layout.map_or(1, |layout| to_usize(layout.value_alignment.get()))
    }

    /// Adds this shard as the place of an error.
    #[cold]
    pub(crate) fn at(&self, minishard: MinishardNumber, error: Error) -> Error {
        let error = error.at_shard(self.number).at_minishard(minishard);
        if self.files.path.as_os_str().is_empty() { error } else { error.at_path(&self.files.path) }
    }
}

/// Ranges of what is in memory fit.
#[inline]
pub(crate) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
