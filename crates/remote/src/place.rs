//! Where a minishard is in its shard: by the minishard table, or by the shard index.

use sharddb_format::internal::byte_range::{ByteRange, RelativeRange};
use sharddb_format::internal::ids::Location;
use sharddb_format::internal::minishard;
use sharddb_format::internal::minishard_index::ROW_LEN;
use sharddb_format::internal::minishard_table;
use sharddb_format::internal::shard_index::ShardIndexEntry;
use sharddb_format::{Error, ErrorKind, Result};

use crate::block::{Block, BlockContent, BlockName, BlockRead};
use crate::generation::RemoteGeneration;
use crate::objects::Span;
use crate::table::Described;

/// A foreign shard index of at most this many bytes, 4,096 minishards, is read as a whole.
const WHOLE_SHARD_INDEX: u64 = 64 << 10;

/// Longer ones are read in blocks of this many bytes, 512 minishards: a request for them takes no longer than one for an
/// entry.
const SHARD_INDEX_BLOCK: u64 = 8 << 10;

/// Neighbouring keys share a minishard, up to `2^preshift_bits` of them, and their index may compress to any length. The checks
/// of at most this many are read, which take 16 KiB.
const MOST_NEIGHBOURS: u64 = 4096;

/// The place of a minishard that has keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The encoded index.
    pub(crate) index: ByteRange,
    /// The index with all values, if it is known where these are; without the checks after a gzip index.
    whole: Option<ByteRange>,
}

/// The place of a minishard, or the block that states it.
pub(crate) enum PlaceStep {
    /// `None`: the minishard has no keys.
    Place(Option<Place>),
    Read(BlockRead),
}

impl RemoteGeneration {
    /// Returns the place of a minishard if it is in memory, else the block that states it. The minishard table comes before
    /// the shard index, unless it has no intact statement about the minishard.
    ///
    /// Errors: `Corrupt`.
    pub(crate) fn known_place(&self, location: Location) -> Result<PlaceStep> {
        let described = self.table.as_ref().and_then(|table| {
            let described = table.describe(&self.spec, location.shard, location.minishard)?;
            Some((table, described))
        });
        let Some((table, described)) = described else { return self.known_place_by_shard_index(location) };
        match table.first_with(&described) {
            Some(first) => self.known_place_by_table(location, described, first, 0),
            None => {
                let range = table.group_range(described.group());
                Ok(PlaceStep::Read(BlockRead {
                    block: BlockName::TableGroup(described.group()),
                    span: Span::exact(self.table_object(), range),
                    other_span: None,
                    wanted: BlockContent::TableBlock(location.shard, described),
                }))
            }
        }
    }

    /// Returns the place that the table states; if it states none, what is known by the shard index.
    ///
    /// Errors: `Corrupt` if the stated place is outside of the shard.
    fn known_place_by_table(
        &self,
        location: Location,
        described: Described,
        bytes: &[u8],
        from: u64,
    ) -> Result<PlaceStep> {
        let record = self.record(location.shard);
        let stated = record.and_then(|record| Some((record, described.stated(&self.spec, record, bytes, from)?)));
        let Some((record, stated)) = stated else { return self.known_place_by_shard_index(location) };
        let base = self.spec.shard_index_len();
        let index = minishard::index_range(location.minishard, stated.index, base, record.bytes);
        let Some(index) = index.map_err(|_| self.wrong_table())? else { return Ok(PlaceStep::Place(None)) };
        let before = stated.before.map(|before| base.saturating_add(before));
        let next = base.saturating_add(stated.next).min(record.bytes);
        Ok(PlaceStep::Place(Some(self.place_between(before, index, next))))
    }

    /// Returns the place of an index between the end of the index before it and the beginning of the next one.
    fn place_between(&self, before: Option<u64>, index: ByteRange, next: u64) -> Place {
        let whole = if self.has_raw_indexes() {
            Some(ByteRange { end: next.max(index.end), ..index })
        } else {
            before.map(|before| ByteRange { start: before.min(index.start), ..index })
        };
        Place { index, whole }
    }

    /// Returns the error for a table that is wrong although its checksums match.
    #[cold]
    pub(crate) fn wrong_table(&self) -> Error {
        minishard_table::wrong_place().at_path(&self.objects.path(&self.table_object()))
    }

    /// Like [`known_place`](Self::known_place), without the minishard table.
    pub(crate) fn known_place_by_shard_index(&self, location: Location) -> Result<PlaceStep> {
        match self.small_indexes.get(&location.shard) {
            Some(entries) => self.place_by_entries(location, entries.as_slice(), 0).map(PlaceStep::Place),
            None => self.read_of_entries(location).map(PlaceStep::Read),
        }
    }

    /// Returns the place of a minishard that a block states. If that is a block of the minishard table without an intact
    /// statement, returns what is known by the shard index.
    pub(crate) fn place_in(&self, location: Location, read: &BlockRead, block: &Result<Block>) -> Result<PlaceStep> {
        let block = match block {
            Ok(block) => block,
            Err(error) if error.kind() == ErrorKind::Corrupt && matches!(read.block, BlockName::TableGroup(_)) => {
                return self.known_place_by_shard_index(location);
            }
            Err(error) => return Err(error.clone()),
        };
        match (read.wanted, block) {
            (_, Block::NoShard) => Ok(PlaceStep::Place(None)),
            (BlockContent::TableBlock(..), Block::Bytes(bytes)) => {
                // the read may be that of another minishard in the same group
                let table = self.table.as_ref();
                let described = table.and_then(|table| table.describe(&self.spec, location.shard, location.minishard));
                let Some(described) = described else { return self.known_place_by_shard_index(location) };
                let (bytes, from) = (bytes.as_slice(), read.span.range.start);
                let is_intact = |record| described.is_intact(record, bytes, from);
                if !self.record(location.shard).is_some_and(is_intact) {
                    self.shared.cache.lock().remove(self.key_of(read)); // checked for another minishard, it is damaged for this one: the next lookup reads it again
                }
                self.known_place_by_table(location, described, bytes, from)
            }
            (BlockContent::Entries(_), Block::Bytes(bytes)) => {
                self.place_by_entries(location, bytes.as_slice(), read.span.range.start).map(PlaceStep::Place)
            }
            _ => Err(Error::internal("expected a block that states places, found another one")),
        }
    }

    /// Returns the read of a minishard at a place, of which `values` are wanted: with all its values, if they take less than
    /// requests for the wanted ones.
    ///
    /// Errors: `TooLarge` if the index is longer than the cap; `Corrupt` if the shard ends before its checks.
    pub(crate) fn read_of_minishard(&self, location: Location, place: &Place, values: u64) -> Result<BlockRead> {
        minishard::check_index_len(place.index, self.shared.max_index_bytes)?;
        let (cost, without) = (self.request_cost(), self.span_of_minishard(location, place, place.index)?);
        let with = place.whole.filter(|whole| whole.len() <= cost.longest());
        let with = with.map(|whole| self.span_of_minishard(location, place, whole)).transpose()?;
        let (span, other_span) = match with {
            Some(with) if cost.pays_for(with.len() - without.len(), values) => (with, Some(without)),
            with => (without, with),
        };
        let wanted = BlockContent::Minishard(location, place.index);
        Ok(BlockRead { block: BlockName::Minishard(location), span, other_span, wanted })
    }

    /// Returns the span of a minishard that has `range` and the checks.
    fn span_of_minishard(&self, location: Location, place: &Place, range: ByteRange) -> Result<Span> {
        let (format, index_end) = (self.minishard_format(), place.index.end);
        let shard_len = self.shard_len(location.shard).unwrap_or(u64::MAX);
        let (end, needed_end) = if self.has_raw_indexes() {
            let end = range.end.max(index_end.saturating_add(format.checks_len_of_raw(place.index.len())));
            (end, end)
        } else {
            let end = index_end.saturating_add(format.likely_checks_len(self.likely_rows(location, place.index)));
            let end = end.min(shard_len);
            (end, if shard_len == u64::MAX { index_end } else { end })
        };
        if end > shard_len {
            let message =
                format!("expected a minishard within the {shard_len} bytes of the shard, found one that ends at {end}");
            return Err(Error::corrupt(message).at_offset(range.start));
        }
        let needed = needed_end.saturating_sub(range.start);
        Ok(Span { object: self.shard_object(location.shard), range: range.start..end, needed })
    }

    /// Returns the read of the entry of a minishard: of the whole shard index, if it is short or has a checksum.
    fn read_of_entries(&self, location: Location) -> Result<BlockRead> {
        let len = self.spec.shard_index_len();
        let entry = ShardIndexEntry::position(location.minishard);
        let is_whole = self.record(location.shard).is_some() || len <= WHOLE_SHARD_INDEX;
        if is_whole && len > self.shared.max_index_bytes {
            let message =
                format!("expected a shard index of at most {} bytes, found {len}", self.shared.max_index_bytes);
            let error = Error::new(ErrorKind::TooLarge, message + ": raise the cap `max_index_bytes`");
            return Err(error);
        }
        let block = if is_whole { 0 } else { entry.start / SHARD_INDEX_BLOCK };
        let range =
            if is_whole { 0..len } else { block * SHARD_INDEX_BLOCK..((block + 1) * SHARD_INDEX_BLOCK).min(len) };
        let needed = if self.record(location.shard).is_some() { len } else { entry.end - range.start };
        let span = Span { object: self.shard_object(location.shard), range, needed };
        Ok(BlockRead {
            block: BlockName::ShardIndex { shard: location.shard, block },
            span,
            other_span: None,
            wanted: BlockContent::Entries(location.shard),
        })
    }

    /// Returns the place that an entry states, from bytes of the shard index that begin at offset `from`.
    fn place_by_entries(&self, location: Location, bytes: &[u8], from: u64) -> Result<Option<Place>> {
        let entry = ShardIndexEntry::position(location.minishard);
        let offset = entry.start.checked_sub(from).and_then(|offset| usize::try_from(offset).ok());
        let stored = offset.and_then(|offset| bytes.get(offset..)).and_then(ShardIndexEntry::read);
        let stored = stored.ok_or_else(|| {
            Error::corrupt("expected a shard index entry of 16 bytes, found fewer").at_offset(entry.start)
        })?;
        let (stated, base, shard_len) =
            (stored.stated_range(), self.spec.shard_index_len(), self.shard_len(location.shard));
        let index = minishard::index_range(location.minishard, stated, base, shard_len.unwrap_or(u64::MAX))?;
        let Some(index) = index else { return Ok(None) };
        let Some(len) = shard_len.filter(|_| self.small_indexes.contains_key(&location.shard)) else {
            return Ok(Some(Place { index, whole: None })); // a long shard index is not searched for its neighbours
        };
        let (before, next) = neighbours(bytes, stated);
        let next = next.map_or(len, |next| base.saturating_add(next).min(len));
        Ok(Some(self.place_between(Some(base.saturating_add(before)), index, next)))
    }

    /// Estimates the rows of a gzip index: by its share of the bytes of all indexes, of which padding and preambles are taken
    /// to be a part; at least the average, and what neighbouring keys may be.
    fn likely_rows(&self, location: Location, index: ByteRange) -> u64 {
        let (Some(manifest), Some(record)) = (&self.manifest, self.record(location.shard)) else { return 0 };
        let share = u128::from(manifest.keys) * u128::from(index.len()) / u128::from(self.index_bytes.max(1));
        let average = record.keys.div_ceil(self.spec.minishards());
        let neighbours = 1_u64.checked_shl(self.spec.preshift_bits().into()).unwrap_or(u64::MAX).min(MOST_NEIGHBOURS);
        let rows = u64::try_from(share).unwrap_or(u64::MAX).max(average).max(neighbours);
        rows.min(record.keys).min(self.shared.max_index_bytes / ROW_LEN)
    }
}

/// Returns where the index before another one ends and the next one begins, from the whole shard index.
fn neighbours(entries: &[u8], index: RelativeRange) -> (u64, Option<u64>) {
    let entries = entries.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read);
    let (mut before, mut next) = (0, None);
    for other in entries.filter_map(|entry| entry.minishard_index()) {
        if other.end <= index.start {
            before = other.end.max(before);
        } else if other.start >= index.end {
            next = Some(next.map_or(other.start, |next: u64| next.min(other.start)));
        }
    }
    (before, next)
}
