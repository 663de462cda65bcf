//! The general path of lookups: for all shards and storages, and for all errors.
//!
//! ```text
//! minishard  -> range of its index     places.rs
//!            -> index                  in place, or read, decoded and cached; verified unless it is trusted
//!            -> row                    found in the index
//!            -> value                  read, verified and decoded: stored_value.rs
//! ```

use crate::byte_range::ByteRange;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::format::checks::ChecksPlace;
use crate::format::minishard::{self, MinishardIndex};
use crate::format::minishard_index::{
    self, Checkpoints, IndexView, ROW_LEN, Row, SCAN_LIMIT, SearchableIndex, SortedIndex,
};
use crate::format::spec::Encoding;
use crate::ids::MinishardNumber;
use crate::read::shard::fast_path::Probe;
use crate::read::shard::index_cache::{CacheKey, Cached, CachedPart};
use crate::read::shard::one_read::ReadBytes;
use crate::read::shard::reader::ShardReader;
use crate::read::shard::stored_value::FoundKey;
use crate::read::shard::value::Value;
use crate::read::shard::verification::VerifyScope;
use crate::read::shard::walk_budget::IndexBudget;

/// A minishard index that can be searched. The minishard has keys.
pub(super) struct LocatedIndex<'a> {
    /// The index in place. Empty if the index is encoded, or is read by positioned reads. Not searched if `cached` is a
    /// sorted copy.
    raw: IndexView<'a>,
    /// Always `Some` if `raw` is empty, or has more than `SCAN_LIMIT` keys.
    cached: Option<Cached>,
    /// The end of the encoded index in the file.
    index_end: u64,
}

impl ShardReader {
    /// Returns the value of a key, by one read or by the general path.
    #[inline(never)]
    pub(crate) fn lookup(&self, number: MinishardNumber, key: u64) -> Result<Option<Value<'_>>> {
        let Some(encoded) = self.stored(number, key)? else { return Ok(None) };
        self.decoded(number, key, encoded).map(Some)
    }

    /// Returns the stored bytes of a value, verified as the mode requires.
    ///
    /// Errors: those of [`find`](Self::find), and of the value.
    pub(crate) fn stored(&self, number: MinishardNumber, key: u64) -> Result<Option<Bytes<'_>>> {
        match self.read_at_once(number, key, |value| self.copy_of(value)) {
            Probe::Found(copy) => return copy.map(Some),
            Probe::Absent => return Ok(None),
            Probe::Undecided => {}
        }
        self.stored_in_parts(number, key)
    }

    /// Like [`stored`](Self::stored), by the general path.
    fn stored_in_parts(&self, number: MinishardNumber, key: u64) -> Result<Option<Bytes<'_>>> {
        let Some(found) = self.find_in_index(number, key)? else { return Ok(None) };
        self.verified_bytes(&found).map(Some).map_err(|error| self.at(number, error).at_key(key))
    }

    /// Like [`lookup`](Self::lookup), but appends the value to a buffer. Returns whether the key exists.
    #[inline(never)]
    pub(crate) fn lookup_into(&self, number: MinishardNumber, key: u64, buffer: &mut Vec<u8>) -> Result<bool> {
        let value = match self.spec.data_encoding() {
            Encoding::Raw => match self.read_at_once(number, key, |value| buffer.extend_from_slice(value)) {
                Probe::Found(()) => return Ok(true),
                Probe::Absent => return Ok(false),
                Probe::Undecided => self.stored_in_parts(number, key)?.map(Value::from_bytes),
            },
            Encoding::Gzip => self.lookup(number, key)?,
        };
        let Some(value) = value else { return Ok(false) };
        buffer.extend_from_slice(&value);
        Ok(true)
    }

    /// Finds the row of a key in the minishard that it hashes to.
    ///
    /// Errors: `Corrupt`, also if the key is not found in an index with invalid ranges; `Io`, `TooLarge`.
    pub(crate) fn find(&self, number: MinishardNumber, key: u64) -> Result<Option<FoundKey>> {
        match self.find_at_once(number, key) {
            Probe::Found(found) => Ok(Some(found)),
            Probe::Absent => Ok(None),
            Probe::Undecided => self.find_in_index(number, key),
        }
    }

    /// Like [`find`](Self::find), by the general path.
    fn find_in_index(&self, number: MinishardNumber, key: u64) -> Result<Option<FoundKey>> {
        let located = self.index_of(number).map_err(|error| self.at(number, error).at_key(key))?;
        let Some(located) = located else { return Ok(None) };
        let index = located.searchable();
        match index.find(key) {
            Some(row) => Ok(Some(located.found(number, row))),
            None if index.miss_proves_absence() => Ok(None),
            None => Err(self.unproved_absence(number, key)),
        }
    }

    /// Calls `f` with each key of a minishard, in no particular order. Finds and verifies the index like a lookup, after
    /// its bytes were charged to the budget.
    ///
    /// Errors: those of [`find`](Self::find) about the index, and of the budget.
    pub(crate) fn visit_minishard(
        &self,
        number: MinishardNumber,
        budget: &mut IndexBudget,
        mut f: impl FnMut(&FoundKey),
    ) -> Result<()> {
        let at = |error| self.at(number, error);
        let Some(range) = self.locate_index(number).map_err(at)? else { return Ok(()) };
        budget.take(self.files().data_len(), number, range).map_err(at)?;
        let Some(located) = self.index_of(number).map_err(at)? else { return Ok(()) };
        located.searchable().for_each(|row| f(&located.found(number, row)));
        Ok(())
    }

    #[cold]
    fn unproved_absence(&self, number: MinishardNumber, key: u64) -> Error {
        self.at(number, minishard_index::unproved_absence().at_key(key))
    }

    /// Returns the index of a minishard; `None` if the minishard has no keys.
    pub(super) fn index_of(&self, number: MinishardNumber) -> Result<Option<LocatedIndex<'_>>> {
        let in_place = self.has_index_in_place();
        if !in_place && let Some(cached) = self.cached_index(number) {
            return Ok(Some(cached));
        }
        let Some(range) = self.locate_index(number)? else { return Ok(None) };
        let located = if in_place { self.index_in_place(number, range) } else { self.read_index(number, range) };
        located.map(Some).map_err(|error| self.explain(number, Some(range), error))
    }

    /// Returns a raw minishard index that is mapped or loaded. Verifies it as the mode requires.
    fn index_in_place(&self, number: MinishardNumber, range: ByteRange) -> Result<LocatedIndex<'_>> {
        let encoded = self.mapped_or_loaded(range).unwrap_or_default();
        let stored = MinishardIndex::of_decoded(encoded, None, range)?;
        let index = stored.view_in_place();
        let kept = (index.len() > SCAN_LIMIT).then(|| self.cache.get(self.cache_key(number, false))).flatten();
        // The entry is of another range if the minishard table of a later generation is wrong: verify what is there now.
        let kept = kept.filter(|kept| kept.part().and_then(CachedPart::range) == Some(range));
        // A cached entry was made from a verified index, so only `Always` verifies the index again.
        if kept.is_none() || !self.verification.remembers() {
            let trusted = self.verify_used_index(number, &stored, VerifyScope::IndexAndValuesIfSmall)?;
            if trusted.has_all() {
                // If a walk verified the whole shard after the block of the map was filled, the map has no mark yet.
                self.mark_trusted(number, stored.checks(), trusted);
            }
        }
        let make = || self.cache_large_index(number, index, range);
        let cached = kept.or_else(|| (index.len() > SCAN_LIMIT).then(make));
        Ok(LocatedIndex { raw: index, cached, index_end: range.end })
    }

    /// Caches checkpoints of a large raw index, or a sorted copy if its ids do not ascend.
    fn cache_large_index(&self, number: MinishardNumber, index: IndexView<'_>, range: ByteRange) -> Cached {
        let new = match Checkpoints::new(index) {
            Some(checkpoints) => CachedPart::Checkpoints(checkpoints, range),
            None => CachedPart::Sorted(SortedIndex::new(index), range, Box::default()),
        };
        self.cache.insert(self.cache_key(number, false), new)
    }

    /// Returns the sorted copy of an index that cannot be searched in place, if it is cached.
    fn cached_index(&self, number: MinishardNumber) -> Option<LocatedIndex<'static>> {
        let cached = self.cache.get(self.cache_key(number, false))?;
        let Some(CachedPart::Sorted(_, range, _)) = cached.part() else { return None };
        Some(LocatedIndex { raw: IndexView::default(), index_end: range.end, cached: Some(cached) })
    }

    /// Reads, verifies and decodes a minishard index, and caches a sorted copy with the checks. One read, or two if a gzip
    /// index has more rows than expected.
    fn read_index(&self, number: MinishardNumber, range: ByteRange) -> Result<LocatedIndex<'static>> {
        let with_checks = range.end.saturating_add(self.checks_len(range)).min(self.files.data_len());
        // the bytes after the checks may be unreadable
        let bytes =
            self.read_encoded_index(range, with_checks).or_else(|_| self.read_encoded_index(range, range.end))?;
        let read = ReadBytes { start: range.start, bytes: &bytes };
        let (encoding, cap) = (self.spec.minishard_index_encoding(), self.options.max_index_bytes);
        let index = MinishardIndex::decode(read.of(range).unwrap_or_default(), range, encoding, cap)?;
        if !self.has_intact_index(number, &index, read) {
            self.compare_index_check(number, &index)?;
        }
        let sorted = CachedPart::Sorted(SortedIndex::new(index.view()), range, self.value_checks(index.checks(), read));
        let cached = self.cache.insert(self.cache_key(number, false), sorted);
        Ok(LocatedIndex { raw: IndexView::default(), index_end: range.end, cached: Some(cached) })
    }

    /// Returns how many bytes after an encoded index to read for its check and those of its values. For a gzip index, whose
    /// rows are not known yet, enough for 1,000 rows, or for one row per two bytes of it up to 16,000.
    pub(super) fn checks_len(&self, index: ByteRange) -> u64 {
        match self.spec.minishard_index_encoding() {
            _ if !self.verifies() => 0,
            Encoding::Raw => 4 * (1 + index.len() / ROW_LEN),
            Encoding::Gzip => index.len().saturating_mul(2).clamp(4 << 10, 64 << 10),
        }
    }

    /// Returns the checks of an index and its values; empty without verification, and if they cannot be read: reads of the
    /// values report it.
    fn value_checks(&self, checks: ChecksPlace, read: ReadBytes<'_>) -> Box<[u8]> {
        let last = usize::try_from(checks.rows).ok().and_then(|rows| checks.place_of_value(rows.checked_sub(1)?));
        let Some(last) = last.filter(|_| self.verifies()) else { return Box::default() };
        let range = ByteRange { start: checks.index_end, end: last.end };
        match read.of(range) {
            Some(checks) => checks.into(),
            None => self.read(range).map(|checks| checks.to_vec().into()).unwrap_or_default(),
        }
    }

    /// Reads and decodes a minishard index. Does not verify it.
    ///
    /// Errors: `Corrupt`; `TooLarge` if it exceeds the cap; `Io`.
    #[inline(always)] // with `decode` 4 % of a walk over small minishards: the index is not copied
    pub(crate) fn read_minishard_index(&self, range: ByteRange) -> Result<MinishardIndex<Bytes<'_>>> {
        let (encoding, cap) = (self.spec.minishard_index_encoding(), self.options.max_index_bytes);
        MinishardIndex::decode(self.read_encoded_index(range, range.end)?, range, encoding, cap)
    }

    /// Reads an encoded minishard index, and the bytes after it up to `end`.
    ///
    /// Errors: `TooLarge` if it has to be read into memory and exceeds the cap; `Io`.
    pub(crate) fn read_encoded_index(&self, range: ByteRange, end: u64) -> Result<Bytes<'_>> {
        let data = self.files().data();
        if data.mapped_or_loaded().is_none() {
            minishard::check_index_len(range, self.options.max_index_bytes)?;
        }
        data.read(ByteRange { end, ..range }, 1)
    }

    #[inline]
    pub(super) fn cache_key(&self, minishard: MinishardNumber, has_places: bool) -> CacheKey {
        CacheKey { shard: self.cache_shard, minishard, has_places }
    }
}

impl LocatedIndex<'_> {
    #[inline]
    pub(super) fn searchable(&self) -> SearchableIndex<'_> {
        match self.cached.as_ref().and_then(Cached::part) {
            Some(CachedPart::Checkpoints(checkpoints, _)) => SearchableIndex::Checkpointed(self.raw, checkpoints),
            Some(CachedPart::Sorted(sorted, ..)) => SearchableIndex::Sorted(sorted),
            Some(CachedPart::Places(_)) | None => SearchableIndex::Scanned(self.raw),
        }
    }

    fn found(&self, number: MinishardNumber, row: Row) -> FoundKey {
        let checks = ChecksPlace { index_end: self.index_end, rows: self.searchable().len() as u64 };
        let value_check = match self.cached.as_ref().and_then(Cached::part) {
            Some(CachedPart::Sorted(_, range, bytes)) => {
                ReadBytes { start: range.end, bytes }.value_check(checks, row.number)
            }
            _ => None,
        };
        FoundKey { minishard: number, row, checks, value_check }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_range::RelativeRange;
    use crate::bytes::StorageKind;
    use crate::common::TempDir;
    use crate::error::ErrorKind;
    use crate::format::checksum::Checksum;
    use crate::format::hash::HashFunction;
    use crate::format::layout::{Layout, ValueAlignment};
    use crate::format::manifest::{self, AuxiliaryRecord};
    use crate::format::minishard_table::{self, BlockPlace, BlockToWrite, PackingBuilder, Section};
    use crate::format::shard_index::ShardIndexEntry;
    use crate::format::spec::ShardingSpec;
    use crate::ids::{minishard_number, shard_number};
    use crate::read::shard::fast_path::Probe;
    use crate::read::shard::files::ShardFiles;
    use crate::read::shard::index_cache::MinishardCache;
    use crate::read::shard::reader::{KnownShard, ReadOptions};
    use crate::read::shard::rows::Rows;
    use crate::read::shard::table_file::{TableFile, TableSection};
    use crate::read::shard::verification::VerifyReads;
    use crate::write::ShardWriter;

    /// A shard of four minishards: keys 4i in minishard 0 and 4i + 1 in minishard 1, for i < n; the others are empty.
    /// The value of a key is the bytes of the key.
    fn shard(n: u64, encoding: Encoding, verify_reads: VerifyReads, damage: impl FnOnce(&mut Vec<u8>)) -> ShardReader {
        let (spec, mut bytes) = written(n, encoding);
        damage(&mut bytes);
        open(spec, bytes, verify_reads, KnownShard::default())
    }

    fn written(n: u64, encoding: Encoding) -> (ShardingSpec, Vec<u8>) {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 2, 0).unwrap().with_minishard_index_encoding(encoding);
        let mut writer = ShardWriter::in_memory(spec, shard_number(0), layout()).unwrap();
        for minishard in 0..2 {
            (0..n).for_each(|row| writer.insert(4 * row + minishard, (4 * row + minishard).to_le_bytes()).unwrap());
        }
        (spec, writer.finish_in_memory().unwrap().1)
    }

    fn layout() -> Layout {
        Layout::new(true, false, ValueAlignment::One)
    }

    fn open(spec: ShardingSpec, bytes: Vec<u8>, verify_reads: VerifyReads, known: KnownShard) -> ShardReader {
        let options = ReadOptions { verify_reads, ..ReadOptions::default() };
        let cache = MinishardCache::new(1 << 20).into();
        let files = ShardFiles::from_bytes(bytes);
        ShardReader::new(shard_number(0), spec, Some(layout()), files, options, cache, known)
    }

    fn whole(n: u64, encoding: Encoding, verify_reads: VerifyReads) -> ShardReader {
        shard(n, encoding, verify_reads, |_| {})
    }

    const MINISHARD: MinishardNumber = minishard_number(0);

    fn probed(shard: &ShardReader, key: u64) -> &'static str {
        match shard.probe(minishard_number(key % 4), key) {
            Probe::Found(value) if value == key.to_le_bytes() => "found",
            Probe::Found(_) => "wrong",
            Probe::Absent => "absent",
            Probe::Undecided => "undecided",
        }
    }

    fn check_all(shard: &ShardReader, n: u64) {
        for key in 0..4 * n + 8 {
            let number = minishard_number(key % 4);
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
        assert_eq!(probed(&shard, 4), "undecided", "its block is not filled");
        assert_eq!(shard.get(MINISHARD, 4).unwrap().unwrap(), 4u64.to_le_bytes());
        assert_eq!((probed(&shard, 4), probed(&shard, 44)), ("found", "absent"), "verified now");
        assert_eq!(probed(&shard, 5), "undecided", "known, and not verified");
        assert_eq!(probed(&shard, 6), "absent", "an empty minishard has nothing to verify");

        let shard = whole(5, Encoding::Raw, VerifyReads::Never);
        shard.get(MINISHARD, 4).unwrap();
        assert_eq!((probed(&shard, 4), probed(&shard, 5)), ("found", "found"));

        for slow in [whole(5, Encoding::Raw, VerifyReads::Always), whole(5, Encoding::Gzip, VerifyReads::Never)] {
            slow.get(MINISHARD, 4).unwrap();
            assert_eq!(probed(&slow, 4), "undecided");
        }
    }

    /// What a wrong minishard table states.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Wrong {
        /// The index of minishard 1 for minishard 0.
        OfAnother,
        /// A range outside the file for minishard 0.
        OutsideTheFile,
        /// The index of minishard 1 for minishard 2, which has no keys.
        OfNone,
    }

    /// Returns the section of a minishard table that is wrong for a shard of `written`, and whose checksums match.
    fn wrong_table(n: u64, encoding: Encoding, wrong: Wrong) -> TableSection {
        let (spec, bytes) = written(n, encoding);
        let entry = |minishard: usize| ShardIndexEntry::read(&bytes[16 * minishard..]).unwrap().minishard_index();
        let (first, index) = (entry(0).unwrap(), entry(1).unwrap());
        let end = bytes.len() as u64;
        let length = |index: RelativeRange| (index.end - index.start) / minishard_table::length_unit(encoding);
        let (starts, lengths) = match wrong {
            Wrong::OfAnother => ([index.start, index.start, end, end, end], [length(index), length(index), 0, 0]),
            Wrong::OutsideTheFile => ([0, index.start, end, end, end], [24 * end, length(index), 0, 0]),
            Wrong::OfNone => {
                ([first.start, index.start, index.start, end, end], [length(first), length(index), length(index), 0])
            }
        };
        let place = BlockPlace { shard: shard_number(0), number: 0, shard_index_crc32: crc32fast::hash(&bytes[..64]) };
        let block = BlockToWrite { starts: &starts, lengths: &lengths };
        let mut packing = PackingBuilder::new(0);
        packing.add(&block);
        let packing = packing.finish().unwrap();
        let offset = minishard_table::head_len(1) as u64;
        let mut table = minishard_table::encode_head(&[Section { shard: shard_number(0), offset, packing }]);
        table.extend(block.encode(place, packing).unwrap());

        let directory = TempDir::new();
        std::fs::write(directory.path().join(manifest::MINISHARDS), &table).unwrap();
        let record = AuxiliaryRecord { name: String::new(), checksum: Checksum::of(&table) };
        let table = TableFile::open(directory.path(), &record, 1, StorageKind::Positioned).unwrap();
        TableFile::section(&table.into(), &spec, shard_number(0), place.shard_index_crc32).unwrap()
    }

    /// Opens a shard of `written` with a wrong minishard table.
    fn with_wrong_table(n: u64, encoding: Encoding, verify_reads: VerifyReads, wrong: Wrong) -> ShardReader {
        let (spec, bytes) = written(n, encoding);
        let table = Some(std::sync::Arc::new(wrong_table(n, encoding, wrong)));
        let shard_index_crc32 = Some(crc32fast::hash(&bytes[..64]));
        open(spec, bytes, verify_reads, KnownShard { shard_index_crc32, table: table.into(), ..KnownShard::default() })
    }

    fn assert_names_the_table(error: &Error) {
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some("minishards".as_ref())), "{error}");
    }

    /// Present and absent keys of the minishard are errors, also of a second lookup. Those of other minishards are read.
    #[test]
    fn a_wrong_table_whose_checksums_match_is_an_error_of_the_table() {
        for wrong in [Wrong::OfAnother, Wrong::OutsideTheFile, Wrong::OfNone] {
            for encoding in [Encoding::Raw, Encoding::Gzip] {
                for mode in [VerifyReads::Never, VerifyReads::Once, VerifyReads::Always] {
                    if mode == VerifyReads::Never && wrong != Wrong::OutsideTheFile {
                        continue; // not noticed
                    }
                    let wrong_minishard = if wrong == Wrong::OfNone { 2 } else { 0 };
                    for n in [1, 5, 65, 300] {
                        let shard = with_wrong_table(n, encoding, mode, wrong);
                        for key in (0..4 * n + 8).chain(0..4 * n + 8) {
                            let number = minishard_number(key % 4);
                            let (value, contains) = (shard.get(number, key), shard.contains(number, key));
                            if key % 4 == wrong_minishard {
                                assert_names_the_table(&value.unwrap_err());
                                assert_names_the_table(&contains.unwrap_err());
                            } else {
                                let is_there = key % 4 < 2 && key < 4 * n;
                                let expected = is_there.then(|| key.to_le_bytes().to_vec());
                                assert_eq!(value.unwrap().map(|value| value.to_vec()), expected, "key {key}");
                                assert_eq!(contains.unwrap(), is_there, "key {key}");
                            }
                        }
                        let mut budget = IndexBudget::default();
                        let visited = shard.visit_minishard(minishard_number(wrong_minishard), &mut budget, |_| ());
                        assert_names_the_table(&visited.unwrap_err());
                    }
                }
            }
        }
    }

    /// A walk verifies the index that the shard index states, and not the one at the place that lookups use.
    #[test]
    fn a_walk_over_a_minishard_does_not_make_a_wrong_place_trusted() {
        let shard = with_wrong_table(5, Encoding::Raw, VerifyReads::Once, Wrong::OfAnother);
        assert!(shard.get(MINISHARD, 4).is_err());
        let mut rows = Rows::over(MINISHARD..minishard_number(1));
        assert!(rows.next_minishard(&shard).unwrap().is_some());
        for key in [4, 44] {
            assert_names_the_table(&shard.get(MINISHARD, key).unwrap_err());
        }
    }

    /// A shard that a refresh keeps has cached an index of 300 keys before the table of the next generation is wrong.
    #[test]
    fn a_cached_index_does_not_make_the_wrong_place_of_a_later_table_trusted() {
        let (spec, bytes) = written(300, Encoding::Raw);
        let shard_index_crc32 = Some(crc32fast::hash(&bytes[..64]));
        let known = KnownShard { shard_index_crc32, ..KnownShard::default() };
        let shard = open(spec, bytes, VerifyReads::Once, known);
        check_all(&shard, 300);
        shard.move_to("".into(), Some(wrong_table(300, Encoding::Raw, Wrong::OfAnother)));
        for key in [0, 4, 1204] {
            assert_names_the_table(&shard.get(MINISHARD, key).unwrap_err());
        }
    }

    /// A block may be filled before a walk through another handle verifies the whole shard.
    #[test]
    fn lookups_in_a_verified_shard_take_the_fast_path() {
        let shard = whole(5, Encoding::Raw, VerifyReads::Once);
        shard.get(minishard_number(1), 5).unwrap();
        shard.note_whole_verified();
        assert_eq!(probed(&shard, 4), "undecided", "known, and not trusted");
        shard.get(MINISHARD, 4).unwrap();
        assert_eq!(probed(&shard, 4), "found");
    }

    /// A walk may have mapped the shard and verified all of it: that says nothing about what a read returns later.
    #[test]
    fn what_positioned_reads_return_is_verified_in_a_verified_shard() {
        for n in [5, 1000] {
            let (spec, mut bytes) = written(n, Encoding::Raw);
            *bytes.last_mut().unwrap() ^= 1; // of the value of the last key
            let directory = TempDir::new();
            let path = directory.path().join("0.shard");
            std::fs::write(&path, &bytes).unwrap();
            let known = KnownShard::default();
            known.whole_verified.set_verified();
            let files = ShardFiles::open(&path, StorageKind::Positioned).unwrap();
            let cache = MinishardCache::new(1 << 20).into();
            let shard =
                ShardReader::new(shard_number(0), spec, Some(layout()), files, ReadOptions::default(), cache, known);
            assert_eq!(shard.get(minishard_number(1), 1).unwrap().unwrap(), 1u64.to_le_bytes());
            let last = 4 * (n - 1) + 1;
            for _ in 0..2 {
                let error = shard.get(minishard_number(1), last).unwrap_err();
                assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(last)));
            }
        }
    }

    #[test]
    fn a_damaged_value_is_an_error_of_its_key_alone() {
        let last = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1; // of the value of key 17
        let shard = shard(5, Encoding::Raw, VerifyReads::Once, last);
        let error = shard.get(minishard_number(1), 17).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(17)));
        for _ in 0..2 {
            assert_eq!(shard.get(minishard_number(1), 13).unwrap().unwrap(), 13u64.to_le_bytes());
            assert!(shard.get(minishard_number(1), 17).is_err(), "again");
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
        assert_eq!(shard.get(minishard_number(1), 5).unwrap().unwrap(), 5u64.to_le_bytes(), "another minishard");
    }
}
