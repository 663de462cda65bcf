//! Where minishard indexes are, for lookups: from the minishard map, the minishard table, or the shard index.

use crate::byte_range::{ByteRange, RelativeRange};
use crate::bytes::Storage;
use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest;
use crate::format::minishard;
use crate::format::minishard_table::{self, BLOCK_BITS};
use crate::format::shard_index::ShardIndexEntry;
use crate::ids::{MinishardNumber, minishard_number};
use crate::read::shard::index_cache::{CacheKey, CachedPart};
use crate::read::shard::minishard_map::KnownMinishard;
use crate::read::shard::reader::{ShardReader, to_usize};

/// Pages are at least this large.
const PAGE: u64 = 4096;

/// Mask of the bits of a minishard number that select the minishard within its block.
const IN_BLOCK: u64 = (1 << BLOCK_BITS) - 1;

impl ShardReader {
    /// Returns the range in the file of the encoded index of a minishard; `None` if the minishard has no keys.
    ///
    /// Like [`stated_index_range`](Self::stated_index_range), also fills the minishard map and prefetches.
    ///
    /// Errors: `Corrupt` if the range is not within the file, or if the shard index is damaged; `Io`.
    pub(crate) fn locate_index(&self, number: MinishardNumber) -> Result<Option<ByteRange>> {
        let stated = self.stated_index_range(number)?;
        self.resolve_index(number, stated).map_err(|error| self.explain(number, None, error))
    }

    /// Returns the range that the minishard table or the shard index states for the encoded index of a minishard; empty
    /// if the minishard has no keys.
    ///
    /// Also fills the minishard's block of the minishard map, if it is not filled yet, and asks the kernel to prefetch
    /// the minishard before its first use.
    ///
    /// Errors: `Corrupt` if the shard index is damaged; `Io`.
    fn stated_index_range(&self, number: MinishardNumber) -> Result<RelativeRange> {
        self.fill_block(number)?;
        if let Some(known) = self.minishard_map.get(number) {
            // Prefetched before the first use only, which is known in the mode `Once`: then the index becomes trusted.
            // With `Always` it never does, and every lookup would make a system call. With `Never`, and in foreign
            // shards, it is trusted from the start.
            if self.verification.remembers() && !known.trusted.has_index() {
                self.will_need_minishard(number, known);
            }
            return Ok(known.index());
        }
        // Each lookup needs the table block or the shard index entry again if the minishard is not in the map:
        // - indexes are gzip, the shard has more than `MOST_MINISHARDS`, or the file ends within the shard index
        // - the minishard has 255 keys or more, or is too far from the start of its group
        // - the table has a block for it, but does not describe it
        // - its range is invalid: reversed, or not a number of whole rows
        match self.place_in_block(number)? {
            Some(stated) => Ok(stated),
            None => self.index_range_from_entry(number),
        }
    }

    /// Returns the stated range of an index from its block of the minishard table. If a read costs a system call, uses the
    /// block of the shard index where there is no table, and keeps the block in the cache.
    fn place_in_block(&self, number: MinishardNumber) -> Result<Option<RelativeRange>> {
        let at = to_usize(number.get() & IN_BLOCK);
        if self.files.main_file.mapped_or_loaded().is_some() || !self.cache.has_room_for_places() {
            return Ok(self.table_block(number).and_then(|block| *block.get(at)?));
        }
        let key = CacheKey { minishard: minishard_number(number.get() & !IN_BLOCK), ..self.cache_key(number, true) };
        let cached = match self.cache.find(key) {
            Some(cached) => cached,
            None => {
                let places = self.table_block(number).map_or_else(|| self.entries_of_block(number), Ok)?;
                self.cache.insert(key, CachedPart::Places(places.into()))
            }
        };
        let Some(CachedPart::Places(places)) = cached.part() else { return Ok(None) };
        Ok(places.get(at).copied().flatten())
    }

    /// Returns what the minishard map has of a minishard, after its block was filled.
    pub(super) fn known_minishard(&self, number: MinishardNumber) -> Option<KnownMinishard> {
        self.minishard_map.get(number).or_else(|| {
            self.fill_block(number).ok()?;
            self.minishard_map.get(number)
        })
    }

    /// Fills the block of a minishard in the minishard map, unless it is filled or the map has no room for it.
    fn fill_block(&self, number: MinishardNumber) -> Result<()> {
        let is_done = !self.minishard_map.can_fill(number) || self.fill_from_table(number);
        if is_done { Ok(()) } else { self.fill_from_shard_index(number) }
    }

    /// Fills the block of a minishard from the minishard table. Returns false if the table does not have the block, or
    /// the block is damaged.
    #[cold]
    fn fill_from_table(&self, number: MinishardNumber) -> bool {
        let block = number.get() >> BLOCK_BITS;
        self.table_block(number).is_some_and(|indexes| {
            self.minishard_map.fill(block, &indexes, self.exempt_parts());
            true
        })
    }

    /// Fills the block of a minishard from the shard index.
    #[cold]
    fn fill_from_shard_index(&self, number: MinishardNumber) -> Result<()> {
        let indexes = self.entries_of_block(number)?;
        self.minishard_map.fill(number.get() >> BLOCK_BITS, &indexes, self.exempt_parts());
        Ok(())
    }

    /// Returns the ranges that the shard index states for the block of a minishard, as far as the file has them.
    fn entries_of_block(&self, number: MinishardNumber) -> Result<Vec<Option<RelativeRange>>> {
        self.verify_shard_index()?;
        let block = number.get() >> BLOCK_BITS;
        let end_of_file = self.spec.shard_index_len().min(self.files.main_file.len());
        let start = ShardIndexEntry::position(minishard_number(block << BLOCK_BITS)).start.min(end_of_file);
        let end = ShardIndexEntry::position(minishard_number((block + 1) << BLOCK_BITS)).start.min(end_of_file);
        let bytes = self.files.main_file.read(ByteRange { start, end }, 1)?;
        let entries = bytes.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read);
        Ok(entries.map(|entry| Some(entry.stated_range())).collect())
    }

    /// Whether the next lookup in a minishard fills its block of the minishard map.
    pub(crate) fn can_fill_map(&self, number: MinishardNumber) -> bool {
        self.minishard_map.can_fill(number)
    }

    /// Fills the minishard map, until `goes_on` returns false or the shard index cannot be read, which lookups report.
    pub(crate) fn fill_minishard_map(&self, goes_on: &dyn Fn() -> bool) {
        let blocks = self.spec.minishards().div_ceil(1 << BLOCK_BITS);
        for number in (0..blocks).map(|block| minishard_number(block << BLOCK_BITS)) {
            if !goes_on() {
                return;
            }
            let has_room = self.minishard_map.can_fill(number); // false also if the block is filled
            if has_room && !self.fill_from_table(number) && self.fill_from_shard_index(number).is_err() {
                return;
            }
        }
    }

    /// Returns what the minishard table states about the block of a minishard; `None` if there is no table, or if the
    /// block cannot be read or is damaged.
    pub(super) fn table_block(&self, number: MinishardNumber) -> Option<Vec<Option<RelativeRange>>> {
        self.known.table.load().as_ref()?.block(number.get() >> BLOCK_BITS)
    }

    /// Asks the kernel to prefetch the pages of a minishard if it has more than one: page faults would read them one
    /// after the other.
    ///
    /// The minishard is assumed to end where the index of the next one begins. If the next one has no keys, or is not in
    /// the map, only the pages of the index are prefetched.
    fn will_need_minishard(&self, number: MinishardNumber, known: KnownMinishard) {
        /// Longer minishards, in bytes, are not prefetched: page faults read only the values that are used.
        const MOST: u64 = 64 << 10;
        let Storage::Mapped(_) = self.files().data() else { return };
        let RelativeRange { start, end } = known.index();
        let next = self.minishard_map.get(minishard_number(number.get() + 1)).filter(|next| next.rows > 0);
        let start = self.base().saturating_add(start);
        let end = self.base().saturating_add(next.map_or(end, |next| next.start));
        if end.saturating_sub(start) <= MOST && start / PAGE < end.saturating_sub(1) / PAGE {
            self.will_need_data(ByteRange { start: start - start % PAGE, end });
        }
    }

    /// Returns the range of the shard index entry that a lookup in this minishard will read. `None` if the minishard
    /// map or the minishard table has the position, so that no entry is read.
    pub(crate) fn wanted_entry(&self, number: MinishardNumber) -> Option<ByteRange> {
        if self.minishard_map.can_fill(number) {
            self.fill_from_table(number);
        }
        let is_known = self.minishard_map.get(number).is_some() || self.table_block(number).is_some();
        (!is_known).then(|| ShardIndexEntry::position(number))
    }

    /// Returns the range that the shard index entry of a minishard states for its encoded index; empty if the minishard
    /// has no keys. Verifies the shard index at its first use.
    fn index_range_from_entry(&self, number: MinishardNumber) -> Result<RelativeRange> {
        self.verify_shard_index()?;
        let entry = self.files().main_file.read(ShardIndexEntry::position(number), 1)?;
        match ShardIndexEntry::read(&entry) {
            Some(entry) => Ok(entry.stated_range()),
            None => Err(Error::corrupt("expected a shard index entry of 16 bytes, found fewer")),
        }
    }

    /// Converts the range that a shard index entry states to one of the file; `None` for a minishard without keys.
    #[inline]
    pub(crate) fn resolve_entry(&self, number: MinishardNumber, entry: ShardIndexEntry) -> Result<Option<ByteRange>> {
        match entry.minishard_index() {
            Some(stated) => self.resolve_index(number, stated),
            None => Ok(None),
        }
    }

    /// Converts a stated range to one of the file; `None` for the empty index of a minishard without keys.
    fn resolve_index(&self, number: MinishardNumber, stated: RelativeRange) -> Result<Option<ByteRange>> {
        minishard::index_range(number, stated, self.base(), self.files().data_len())
    }

    /// Returns the error for an index that is invalid at its stated range; `range` is `None` if that is not within the
    /// file. The error is `error`, unless the shard index is damaged, or states another range: then the minishard table
    /// is wrong although its checksums match.
    #[cold]
    pub(super) fn explain(&self, number: MinishardNumber, range: Option<ByteRange>, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt || self.known.table.load().is_none() {
            return error;
        }
        match self.index_range_from_entry(number).and_then(|stated| self.resolve_index(number, stated)) {
            Ok(Some(stated)) if range == Some(stated) => error,
            Ok(_) => minishard_table::wrong_place().at_path(&self.files().path().with_file_name(manifest::MINISHARDS)),
            Err(damage) => damage,
        }
    }
}
