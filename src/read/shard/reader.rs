//! The state of an open shard: its files, its options, and what lookups remember about it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::gzip::{DEFAULT_MAX_INDEX_BYTES, DEFAULT_MAX_VALUE_BYTES};
use crate::format::layout::Layout;
use crate::format::shard_index::ShardIndexEntry;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::ids::{MinishardNumber, ShardNumber, minishard_number};

use crate::bytes::{Bytes, Storage};
use crate::read::shard::files::ShardFiles;
use crate::read::shard::index_cache::MinishardCache;
use crate::read::shard::minishard_map::MinishardMap;
use crate::read::shard::named_ranges::{NamedRanges, NamedRangesBuilder};
use crate::read::shard::table_file::TableSection;
use crate::read::shard::verification::{Verification, VerifyReads, WholeShardVerified};

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

/// What is known about a shard from outside its file: what the manifest and the minishard table state, and whether a
/// walk or the CRC-32 of the whole file has verified all of it.
#[derive(Default)]
pub(crate) struct KnownShard {
    pub(crate) shard_index_crc32: Option<u32>,
    /// Whether a preamble begins with the first byte of its gap that is not zero. Version 0.1.0, which stated no digests, wrote
    /// preambles with zeros after padding, too.
    pub(crate) preambles_follow_padding: bool,
    pub(crate) table: ArcSwapOption<TableSection>,
    pub(crate) whole_verified: Arc<WholeShardVerified>,
}

/// An open shard. Its methods are in several files: [`fast_path`](super::fast_path) has the fast path, and
/// [`lookup`](super::lookup) the general path.
pub(crate) struct ShardReader {
    pub(crate) number: ShardNumber,
    pub(crate) spec: ShardingSpec,
    /// `None` for a foreign shard.
    pub(crate) layout: Option<Layout>,
    pub(super) files: ShardFiles,
    /// The offset in the file with the data to which relative ranges refer: the end of the shard index, or 0 in the
    /// `.data` file of the obsolete pair.
    pub(super) base: u64,
    pub(super) options: ReadOptions,
    /// Whether lookups may take the fast path: indexes and values are raw, in one file that is mapped or loaded.
    pub(super) has_fast_path: bool,
    pub(super) minishard_map: MinishardMap,
    pub(super) verification: Verification,
    pub(super) known: KnownShard,
    pub(super) cache: Arc<MinishardCache>,
    /// The number of this shard in the cache.
    pub(super) cache_shard: u64,
    /// Filled by the first read of a preamble that needs it; then `None` if there are too many ranges to keep.
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
        known: KnownShard,
    ) -> ShardReader {
        let base = if files.is_pair() { 0 } else { spec.shard_index_len() };
        let has_checks = layout.is_some_and(|layout| layout.checks);
        let verification = Verification::new(if has_checks { options.verify_reads } else { VerifyReads::Never });
        let has_raw_indexes = spec.minishard_index_encoding() == Encoding::Raw;
        let is_raw = has_raw_indexes && spec.data_encoding() == Encoding::Raw;
        let has_fast_path = is_raw && !files.is_pair() && files.data().mapped_or_loaded().is_some();
        ShardReader {
            number,
            spec,
            layout,
            has_fast_path,
            minishard_map: if has_raw_indexes && files.can_hold_shard_index(&spec) {
                MinishardMap::new(&spec, files.data_len().saturating_sub(base))
            } else {
                MinishardMap::none()
            },
            files,
            base,
            options,
            verification,
            known,
            cache_shard: cache.add_shard(),
            cache,
            named_ranges: OnceLock::new(),
        }
    }

    pub(crate) fn files(&self) -> &ShardFiles {
        &self.files
    }

    /// Returns the offset in the file with the data to which relative ranges refer.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Returns the length of the body: the bytes after the shard index, or the `.data` file of the obsolete pair.
    pub(crate) fn body_len(&self) -> u64 {
        self.files.data_len().saturating_sub(self.base)
    }

    /// Whether minishard indexes are raw, and mapped or loaded.
    pub(crate) fn has_index_in_place(&self) -> bool {
        self.files.data().mapped_or_loaded().is_some() && self.spec.minishard_index_encoding() == Encoding::Raw
    }

    /// Whether values are raw, and mapped or loaded, so that they are borrowed without a copy.
    pub(crate) fn has_values_in_place(&self) -> bool {
        self.files.data().mapped_or_loaded().is_some() && self.spec.data_encoding() == Encoding::Raw
    }

    /// Whether a later generation may take this open shard if it has the shard file at `path`: its bytes are mapped, or
    /// loaded and verified, and it is that file.
    pub(crate) fn can_move_to(&self, path: &Path) -> bool {
        let is_kept = match self.files.main_file {
            Storage::Mapped(_) => true,
            Storage::Heap(_) | Storage::Huge(_) => self.known.whole_verified.is_verified(),
            Storage::File(_) => false,
        };
        is_kept && self.files.is_file_at(path)
    }

    /// Uses the path and the minishard table of another generation that has this shard file.
    pub(crate) fn move_to(&self, path: PathBuf, table: Option<TableSection>) {
        self.files.set_path(path);
        self.known.table.store(table.map(Arc::new));
    }

    /// Returns the CRC-32 of the shard index that the manifest states; `None` without a manifest.
    pub(crate) fn shard_index_crc32(&self) -> Option<u32> {
        self.known.shard_index_crc32
    }

    /// Reads bytes of the file with the data, without alignment, cap or verification.
    pub(crate) fn read(&self, range: ByteRange) -> Result<Bytes<'_>> {
        self.files.data().read(range, 1)
    }

    /// Returns the bytes of a range of the file with the data, if the file is mapped or loaded.
    pub(crate) fn mapped_or_loaded(&self, range: ByteRange) -> Option<&[u8]> {
        self.files.data().mapped_or_loaded().and_then(|bytes| range.of(bytes))
    }

    /// Returns the range in the file of bytes that are borrowed from it.
    pub(crate) fn range_of(&self, bytes: &[u8]) -> Option<ByteRange> {
        let file = self.files.data().mapped_or_loaded()?;
        let start = u64::try_from(bytes.as_ptr().addr().checked_sub(file.as_ptr().addr())?).ok()?;
        Some(ByteRange { start, end: start + bytes.len() as u64 })
    }

    /// Whether all files are mapped or loaded.
    pub(crate) fn is_mapped_or_loaded(&self) -> bool {
        self.files.all().all(|storage| storage.mapped_or_loaded().is_some())
    }

    /// Reads up to 64 KiB of the shard index: entries of `minishards`, from the first one. At least one entry, unless
    /// there is no such minishard.
    ///
    /// Errors: `Corrupt` if the file ends within the shard index; `Io`.
    pub(crate) fn shard_index_block(&self, minishards: Range<MinishardNumber>) -> Result<Bytes<'_>> {
        let Range { start: first, end } = minishards;
        let start = ShardIndexEntry::position(first).start;
        let wanted = ShardIndexEntry::position(minishard_number(end.get().min(self.spec.minishards()))).start;
        let end = (start + SHARD_INDEX_BLOCK).min(wanted).min(self.files.main_file.len());
        if end < wanted && end.saturating_sub(start) < 16 {
            let message = format!(
                "expected a shard index of {} bytes, found a file of {}",
                self.spec.shard_index_len(),
                self.files.main_file.len()
            );
            return Err(self.at(first, Error::corrupt(message).at_offset(start)));
        }
        self.files.main_file.read(ByteRange { start, end: end.max(start) }, 1).map_err(|error| self.at(first, error))
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

    /// Reads all pages of the files, until `goes_on` returns false.
    pub(crate) fn populate(&self, goes_on: &dyn Fn() -> bool) {
        self.files.all().for_each(|storage| storage.populate(goes_on));
    }

    /// Asks the kernel to prefetch the shard index, unless there is a minishard table.
    pub(crate) fn will_need_shard_index(&self) {
        if self.known.table.load().is_some() {
            return;
        }
        self.files.main_file.will_need(ByteRange { start: 0, end: self.spec.shard_index_len() });
    }

    /// Asks the kernel to prefetch pages of the file with the shard index.
    pub(crate) fn will_need_entries(&self, range: ByteRange) {
        self.files.main_file.will_need(range);
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
        let path = self.files.path();
        if path.as_os_str().is_empty() { error } else { error.at_path(&path) }
    }
}

/// Converts an offset. Offsets of bytes in memory always fit; others saturate.
#[inline]
pub(crate) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
