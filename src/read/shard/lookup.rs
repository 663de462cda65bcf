//! The general path of lookups: for all shards and storages, and for all errors.
//!
//! ```text
//! minishard  -> range of its index     by the minishard table in memory (filled block by block), or the shard index
//!            -> index                  in place, or read, decoded and cached; verified at first use
//!            -> row                    found in the index
//!            -> value                  read, verified and decoded: stored_value.rs
//! ```

use crate::byte_range::{ByteRange, RelativeRange};
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::ChecksPlace;
use crate::format::gzip;
use crate::format::minishard_index::{Checkpoints, DecodedIndex, IndexView, SCAN_LIMIT, SearchableIndex};
use crate::format::minishard_table::BLOCK_BITS;
use crate::format::shard_index::ShardIndexEntry;
use crate::format::spec::Encoding;
use crate::ids::{Location, MinishardNumber};
use crate::read::shard::index_cache::{Cached, CachedIndex};
use crate::read::shard::minishards::KnownMinishard;
use crate::read::shard::probe::Probe;
use crate::read::shard::reader::{ShardReader, to_usize};
use crate::read::shard::stored_value::FoundKey;
use crate::read::shard::value::Value;
use crate::read::shard::verification::VerifyScope;
use crate::storage::{Bytes, Storage};

/// Pages are at least this large.
const PAGE: u64 = 4096;

/// Mask of the bits of a minishard number that select the minishard within its block.
const IN_BLOCK: u64 = (1 << BLOCK_BITS) - 1;

/// A searchable minishard index. The minishard has keys.
pub(super) struct Minishard<'a> {
    /// The index in place; empty if `cached` is a sorted copy. Above `SCAN_LIMIT` keys, `cached` is always there.
    raw: IndexView<'a>,
    cached: Option<Cached>,
    /// The end of the encoded index in the file.
    index_end: u64,
}

impl ShardReader {
    /// Returns the value of a key from the minishard that it hashes to: by the fast path, else by the general path.
    #[inline]
    pub(crate) fn get(&self, number: MinishardNumber, key: u64) -> Result<Option<Value<'_>>> {
        match self.probe(number, key) {
            Probe::Found(value) => Ok(Some(Value::borrowed_from(value))),
            Probe::Absent => Ok(None),
            Probe::Undecided => self.lookup(number, key),
        }
    }

    /// Returns whether a key exists in the minishard that it hashes to.
    #[inline]
    pub(crate) fn contains(&self, number: MinishardNumber, key: u64) -> Result<bool> {
        match self.probe_key(number, key) {
            Probe::Found(()) => Ok(true),
            Probe::Absent => Ok(false),
            Probe::Undecided => Ok(self.find(number, key)?.is_some()),
        }
    }

    /// Returns the value of a key by the general path.
    #[inline(never)]
    pub(crate) fn lookup(&self, number: MinishardNumber, key: u64) -> Result<Option<Value<'_>>> {
        match self.find(number, key)? {
            Some(stored) => self.value(&stored).map(Some),
            None => Ok(None),
        }
    }

    /// Finds the row of a key in the minishard that it hashes to.
    ///
    /// Errors: `Corrupt`, also if the key is not found in an index with invalid ranges; `Io`, `TooLarge`.
    pub(crate) fn find(&self, number: MinishardNumber, key: u64) -> Result<Option<FoundKey>> {
        let minishard = self.minishard(number).map_err(|error| self.at(number, error).at_key(key))?;
        let Some(minishard) = minishard else { return Ok(None) };
        let index = minishard.index();
        match index.find(key) {
            Some(row) => {
                let checks = ChecksPlace { index_end: minishard.index_end, rows: index.len() as u64 };
                Ok(Some(FoundKey { minishard: number, row, checks }))
            }
            None if index.can_tell_absence() => Ok(None),
            None => Err(self.unproved_absence(number, key)),
        }
    }

    #[cold]
    fn unproved_absence(&self, number: MinishardNumber, key: u64) -> Error {
        let message = "minishard index is corrupt: expected the range of each value to begin before it ends, below 2^63, \
                       found one that does not, so that the key may be missing because of the damage; run `sharddb verify`";
        self.at(number, Error::corrupt(message).at_key(key))
    }

    /// Returns the index of a minishard; `None` if the minishard has no keys.
    pub(super) fn minishard(&self, number: MinishardNumber) -> Result<Option<Minishard<'_>>> {
        let in_place = self.has_index_in_place();
        if !in_place && let Some(cached) = self.cached_minishard(number) {
            return Ok(Some(cached));
        }
        // a range outside the file is final: the checksum of a table block covers the shard index
        let range = self.minishard_index_range(number)?;
        match self.minishard_at(number, range) {
            Err(error) if error.kind() == ErrorKind::Corrupt && self.stated.table.is_some() => {
                self.minishard_by_shard_index(number, range, error)
            }
            minishard => minishard,
        }
    }

    /// Falls back to the shard index after the range that the minishard table states failed with `error`.
    #[cold]
    fn minishard_by_shard_index(
        &self,
        number: MinishardNumber,
        by_table: Option<ByteRange>,
        error: Error,
    ) -> Result<Option<Minishard<'_>>> {
        let range = self.entry_range_of_index(number)?;
        if range == by_table { Err(error) } else { self.minishard_at(number, range) }
    }

    fn minishard_at(&self, number: MinishardNumber, index: Option<ByteRange>) -> Result<Option<Minishard<'_>>> {
        let Some(range) = index else { return Ok(None) };
        match self.has_index_in_place() {
            true => self.minishard_in_place(number, range),
            false => self.read_minishard(number, range),
        }
        .map(Some)
    }

    /// Returns a raw minishard index that is in memory. Verifies it at its first use.
    fn minishard_in_place(&self, number: MinishardNumber, range: ByteRange) -> Result<Minishard<'_>> {
        let encoded = self.in_memory(range).unwrap_or_default();
        let index = IndexView::view(encoded).map_err(|error| error.at_offset(range.start))?;
        let kept = (index.len() > SCAN_LIMIT).then(|| self.cache.get(self.location(number))).flatten();
        // a cached entry was made of a verified index
        if kept.is_none() || !self.verification.remembers() {
            self.verify_used_index(number, range, encoded, index.len() as u64, VerifyScope::IndexAndSmallValues)?;
        }
        let make = || self.large_index_in_place(number, index, range.end);
        let cached = kept.or_else(|| (index.len() > SCAN_LIMIT).then(make));
        Ok(Minishard { raw: index, cached, index_end: range.end })
    }

    /// Caches checkpoints of a large raw index, or a sorted copy if its ids do not ascend.
    fn large_index_in_place(&self, number: MinishardNumber, index: IndexView<'_>, index_end: u64) -> Cached {
        let new = match Checkpoints::new(index) {
            Some(checkpoints) => CachedIndex::Checkpoints(checkpoints),
            None => CachedIndex::Decoded(DecodedIndex::new(index), index_end),
        };
        self.cache.insert(self.location(number), new)
    }

    /// Returns a decoded index from the cache.
    fn cached_minishard(&self, number: MinishardNumber) -> Option<Minishard<'static>> {
        let cached = self.cache.get(self.location(number))?;
        let Some(CachedIndex::Decoded(_, index_end)) = cached.index() else { return None };
        Some(Minishard { raw: IndexView::default(), index_end: *index_end, cached: Some(cached) })
    }

    /// Reads, verifies and decodes a minishard index, and caches it.
    fn read_minishard(&self, number: MinishardNumber, range: ByteRange) -> Result<Minishard<'static>> {
        let encoded = self.read_minishard_index(range)?;
        let decoded = self.decode_minishard_index(&encoded)?;
        let view =
            IndexView::view(decoded.as_deref().unwrap_or(&encoded)).map_err(|error| error.at_offset(range.start))?;
        self.verify_used_index(number, range, &encoded, view.len() as u64, VerifyScope::Index)?;
        let cached = self.cache.insert(self.location(number), CachedIndex::Decoded(DecodedIndex::new(view), range.end));
        Ok(Minishard { raw: IndexView::default(), index_end: range.end, cached: Some(cached) })
    }

    /// Returns the range of the encoded minishard index in the file; `None` if the minishard has no keys.
    pub(crate) fn minishard_index_range(&self, number: MinishardNumber) -> Result<Option<ByteRange>> {
        if !self.minishards.is_settled(number) && !self.fill_from_table(number) {
            self.fill_from_shard_index(number)?;
        }
        if let Some(known) = self.minishards.get(number) {
            if !known.verified.has_index() {
                self.prefetch_minishard(number, known);
            }
            return self.resolve_index(number, known.index());
        }
        // not kept in memory: gzip, 255 keys or more, or no room; reads and verifies a block of the table's file per call
        let block = self.stated.table.as_ref().and_then(|table| table.block(number.0 >> BLOCK_BITS));
        match block.and_then(|block| *block.get(to_usize(number.0 & IN_BLOCK))?) {
            Some(index) => self.resolve_index(number, index),
            None => self.entry_range_of_index(number),
        }
    }

    /// Fills the block of a minishard from the file `minishards`. Returns whether the file has the block, intact.
    #[cold]
    fn fill_from_table(&self, number: MinishardNumber) -> bool {
        let block = number.0 >> BLOCK_BITS;
        let indexes = self.stated.table.as_ref().and_then(|table| table.block(block));
        indexes.is_some_and(|indexes| {
            self.minishards.fill(block, &indexes, self.verification.exempt_parts(&self.stated.whole));
            true
        })
    }

    /// Fills the block of a minishard from the shard index.
    #[cold]
    fn fill_from_shard_index(&self, number: MinishardNumber) -> Result<()> {
        self.verify_shard_index()?;
        let block = number.0 >> BLOCK_BITS;
        let first = ShardIndexEntry::position(MinishardNumber(block << BLOCK_BITS)).start;
        let end = ShardIndexEntry::position(MinishardNumber((block + 1) << BLOCK_BITS)).start;
        let range = ByteRange { start: first, end: end.min(self.spec.shard_index_len()) };
        let bytes = self.files().index_file.read(range, 1)?;
        let entries = bytes.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read);
        let empty = RelativeRange { start: 0, end: 0 };
        let indexes: Vec<_> = entries.map(|entry| Some(entry.minishard_index().unwrap_or(empty))).collect();
        self.minishards.fill(block, &indexes, self.verification.exempt_parts(&self.stated.whole));
        Ok(())
    }

    /// Asks the kernel to prefetch the pages of a minishard that is not verified yet, up to the next index, if they are
    /// several. Page faults would read them one after the other.
    fn prefetch_minishard(&self, number: MinishardNumber, known: KnownMinishard) {
        /// Larger minishards are not prefetched: page faults read the values that are used.
        const MOST: u64 = 64 << 10;
        let Storage::Mapped(_) = self.files().data() else { return };
        let RelativeRange { start, end } = known.index();
        let next = self.minishards.get(MinishardNumber(number.0 + 1)).filter(|next| next.rows > 0);
        let start = self.base().saturating_add(start);
        let end = self.base().saturating_add(next.map_or(end, |next| next.start));
        if end.saturating_sub(start) <= MOST && start / PAGE < end.saturating_sub(1) / PAGE {
            self.will_need_data(ByteRange { start: start - start % PAGE, end });
        }
    }

    /// Returns the range of the shard index entry that a lookup in this minishard will read. `None` if the minishard
    /// table states the position, so that no entry is read.
    pub(crate) fn wanted_entry(&self, number: MinishardNumber) -> Option<ByteRange> {
        if !self.minishards.is_settled(number) {
            self.fill_from_table(number);
        }
        let block = || self.stated.table.as_ref()?.block(number.0 >> BLOCK_BITS);
        let is_known = self.minishards.get(number).is_some() || block().is_some();
        (!is_known).then(|| ShardIndexEntry::position(number))
    }

    /// Returns the range of the encoded minishard index that its shard index entry states.
    fn entry_range_of_index(&self, number: MinishardNumber) -> Result<Option<ByteRange>> {
        self.verify_shard_index()?;
        let entry = self.files().index_file.read(ShardIndexEntry::position(number), 1)?;
        match ShardIndexEntry::read(&entry) {
            Some(entry) => self.resolve_minishard_index(number, entry),
            None => Err(Error::corrupt("expected a shard index entry of 16 bytes, found fewer")),
        }
    }

    #[inline]
    pub(crate) fn resolve_minishard_index(
        &self,
        number: MinishardNumber,
        entry: ShardIndexEntry,
    ) -> Result<Option<ByteRange>> {
        match entry.minishard_index() {
            Some(stated) => self.resolve_index(number, stated),
            None => Ok(None),
        }
    }

    /// Converts a stated range to one of the file; `None` for the empty index of a minishard without keys.
    fn resolve_index(&self, number: MinishardNumber, stated: RelativeRange) -> Result<Option<ByteRange>> {
        if stated.start == stated.end {
            return Ok(None);
        }
        match stated.resolve(self.base(), self.files().data_len()) {
            Some(range) => Ok(Some(range)),
            None => Err(self.bad_shard_index_entry(number, stated)),
        }
    }

    #[cold]
    fn bad_shard_index_entry(&self, number: MinishardNumber, stated: RelativeRange) -> Error {
        let (body, RelativeRange { start, end }) = (self.body_len(), stated);
        Error::corrupt(format!(
            "expected a minishard index within the {body} bytes after the shard index, found {start}..{end}"
        ))
        .at_offset(ShardIndexEntry::position(number).start)
    }

    /// Reads the encoded minishard index.
    ///
    /// Errors: `TooLarge` if it is not in memory and exceeds the cap; `Io`.
    pub(crate) fn read_minishard_index(&self, range: ByteRange) -> Result<Bytes<'_>> {
        let data = self.files().data();
        let cap = self.options.max_index_bytes;
        if data.in_memory().is_none() && range.len() > cap {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "expected a minishard index of at most {cap} bytes, found {}: raise the cap `max_index_bytes`",
                    range.len()
                ),
            ));
        }
        data.read(range, 1)
    }

    /// Decodes a minishard index; `None` if it is raw.
    pub(crate) fn decode_minishard_index(&self, encoded: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.spec.minishard_index_encoding() {
            Encoding::Raw => Ok(None),
            Encoding::Gzip => gzip::decode(encoded, self.options.max_index_bytes).map(Some),
        }
    }

    #[inline]
    fn location(&self, minishard: MinishardNumber) -> Location {
        Location { shard: self.number, minishard }
    }
}

impl Minishard<'_> {
    #[inline]
    pub(super) fn index(&self) -> SearchableIndex<'_> {
        match self.cached.as_ref().and_then(Cached::index) {
            Some(CachedIndex::Checkpoints(checkpoints)) => SearchableIndex::Checkpointed(self.raw, checkpoints),
            Some(CachedIndex::Decoded(decoded, _)) => SearchableIndex::Decoded(decoded),
            None => SearchableIndex::Scanned(self.raw),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::ShardWriter;
    use crate::format::hash::HashFunction;
    use crate::format::layout::Layout;
    use crate::format::spec::ShardingSpec;
    use crate::ids::ShardNumber;
    use crate::read::shard::files::ShardFiles;
    use crate::read::shard::index_cache::MinishardCache;
    use crate::read::shard::reader::{KnownShard, ReadOptions};
    use crate::read::shard::verification::VerifyReads;

    /// A shard of four minishards: keys 4i in minishard 0 and 4i + 1 in minishard 1, for i < n; the others are empty.
    /// The value of a key is the bytes of the key.
    fn shard(n: u64, encoding: Encoding, verify_reads: VerifyReads, damage: impl FnOnce(&mut Vec<u8>)) -> ShardReader {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 2, 0).unwrap().with_minishard_index_encoding(encoding);
        let layout = Layout { checks: true, ..Layout::default() };
        let mut writer = ShardWriter::in_memory(spec, ShardNumber(0), layout).unwrap();
        for minishard in 0..2 {
            (0..n).for_each(|row| writer.insert(4 * row + minishard, (4 * row + minishard).to_le_bytes()).unwrap());
        }
        let (_, mut bytes) = writer.finish_in_memory().unwrap();
        damage(&mut bytes);
        let options = ReadOptions { verify_reads, ..ReadOptions::default() };
        let cache = MinishardCache::with_capacity(1 << 20).into();
        let files = ShardFiles::from_bytes(bytes);
        ShardReader::new(ShardNumber(0), spec, Some(layout), files, options, cache, KnownShard::default())
    }

    fn whole(n: u64, encoding: Encoding, verify_reads: VerifyReads) -> ShardReader {
        shard(n, encoding, verify_reads, |_| {})
    }

    const MINISHARD: MinishardNumber = MinishardNumber(0);

    fn probed(shard: &ShardReader, key: u64) -> &'static str {
        match shard.probe(MinishardNumber(key % 4), key) {
            Probe::Found(value) if value == key.to_le_bytes() => "found",
            Probe::Found(_) => "wrong",
            Probe::Absent => "absent",
            Probe::Undecided => "unusual",
        }
    }

    fn check_all(shard: &ShardReader, n: u64) {
        for key in 0..4 * n + 8 {
            let number = MinishardNumber(key % 4);
            let value = shard.get(number, key).unwrap();
            let is_there = key % 4 < 2 && key < 4 * n;
            assert_eq!(value.map(|value| value.to_vec()), is_there.then(|| key.to_le_bytes().to_vec()), "key {key}");
            assert_eq!(shard.contains(number, key).unwrap(), is_there, "key {key}");
        }
    }

    /// Row counts on both sides of the limits of the branch-free search, the linear scan, and checkpoints.
    #[test]
    fn every_number_of_rows_is_searched_right() {
        for encoding in [Encoding::Raw, Encoding::Gzip] {
            for mode in [VerifyReads::Never, VerifyReads::Once, VerifyReads::Always] {
                for n in [0, 1, 7, 8, 9, 16, 17, 64, 65, 300] {
                    check_all(&whole(n, encoding, mode), n);
                }
            }
        }
    }

    #[test]
    fn the_fast_path_takes_what_is_known_and_verified() {
        let shard = whole(5, Encoding::Raw, VerifyReads::Once);
        assert_eq!(probed(&shard, 4), "unusual", "its block is not filled");
        assert_eq!(shard.get(MINISHARD, 4).unwrap().unwrap(), 4u64.to_le_bytes());
        assert_eq!((probed(&shard, 4), probed(&shard, 44)), ("found", "absent"), "verified now");
        assert_eq!(probed(&shard, 5), "unusual", "known, and not verified");
        assert_eq!(probed(&shard, 6), "absent", "an empty minishard has nothing to verify");

        let shard = whole(5, Encoding::Raw, VerifyReads::Never);
        shard.get(MINISHARD, 4).unwrap();
        assert_eq!((probed(&shard, 4), probed(&shard, 5)), ("found", "found"));

        for slow in [whole(5, Encoding::Raw, VerifyReads::Always), whole(5, Encoding::Gzip, VerifyReads::Never)] {
            slow.get(MINISHARD, 4).unwrap();
            assert_eq!(probed(&slow, 4), "unusual");
        }
    }

    #[test]
    fn a_damaged_value_is_an_error_of_its_key_alone() {
        let last = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1; // of the value of key 17
        let shard = shard(5, Encoding::Raw, VerifyReads::Once, last);
        let error = shard.get(MinishardNumber(1), 17).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(17)));
        for _ in 0..2 {
            assert_eq!(shard.get(MinishardNumber(1), 13).unwrap().unwrap(), 13u64.to_le_bytes());
            assert!(shard.get(MinishardNumber(1), 17).is_err(), "again");
        }
    }

    /// Also of absent keys, since a damaged index does not prove absence.
    #[test]
    fn a_damaged_index_is_an_error_of_all_its_keys() {
        let id = |bytes: &mut Vec<u8>| bytes[4 * 16] ^= 4; // of the first row of minishard 0
        let shard = shard(5, Encoding::Raw, VerifyReads::Once, id);
        for key in [0, 4, 44] {
            let error = shard.get(MINISHARD, key).unwrap_err();
            assert_eq!((error.kind(), error.location().minishard), (ErrorKind::Corrupt, Some(MINISHARD)));
        }
        assert_eq!(shard.get(MinishardNumber(1), 5).unwrap().unwrap(), 5u64.to_le_bytes(), "another minishard");
    }
}
