//! What the indexes of one shard name, as far as they can be read: looked at before any pair is judged.

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::encoding;
use crate::format::minishard_index::RawIndex;
use crate::format::shard_index::ShardIndexEntry;
use crate::salvage::Outcome;
use crate::shard::{Extents, ExtentsBuilder, ShardReader};
use crate::spec::{Encoding, Location, MinishardNumber};
use crate::storage::Bytes;
use crate::verify::FindingKind;

/// A minishard index that was read, however it was wrapped.
pub(super) struct ReadIndex<'a> {
    pub(super) encoded: Bytes<'a>,
    decoded: Option<Vec<u8>>,
    pub(super) is_zlib: bool,
}

/// What the indexes of a shard name.
pub(super) struct Survey {
    /// The minishards whose indexes lie in the file, with their places, in order.
    pub(super) minishards: Vec<(MinishardNumber, ByteRange)>,
    /// The minishard indexes.
    pub(super) indexes: Extents,
    /// Everything that is named, for the gaps that may be prefixes.
    pub(super) named: Extents,
    /// Entries stand in the first slots whatever minishards they are of, as neuroglancer-scripts writes them.
    pub(super) is_compacted: bool,
}

impl<'a> ReadIndex<'a> {
    pub(super) fn read(shard: &'a ShardReader, range: ByteRange, cap: u64) -> Result<ReadIndex<'a>> {
        let encoded = shard.read_minishard_index(range)?;
        let (decoded, is_zlib) = match shard.spec.minishard_index_encoding() {
            Encoding::Raw => (None, false),
            Encoding::Gzip if encoding::is_zlib(&encoded) => (Some(encoding::decode_zlib(&encoded, cap)?), true),
            Encoding::Gzip => (Some(encoding::decode(&encoded, cap)?), false),
        };
        let index = ReadIndex { encoded, decoded, is_zlib };
        index.rows()?;
        Ok(index)
    }

    pub(super) fn rows(&self) -> Result<RawIndex<'_>> {
        RawIndex::view(self.decoded.as_deref().unwrap_or(&self.encoded))
    }

    /// Where all ids belong, if that is one place.
    pub(super) fn common_place(&self, shard: &ShardReader) -> Option<Location> {
        let mut places = self.rows().ok()?.rows().map(|row| shard.spec.locate(row.id));
        let first = places.next()?;
        places.all(|place| place == first).then_some(first)
    }
}

impl Survey {
    /// Reads all indexes of a shard; tells those that are lost.
    pub(super) fn of(shard: &ShardReader, cap: u64, outcome: &mut Outcome<'_>) -> Survey {
        let minishards = entries(shard, outcome);
        let (mut indexes, mut named) = (ExtentsBuilder::new(shard), ExtentsBuilder::new(shard));
        let mut slots = Slots::default();
        let mut readable = Vec::with_capacity(minishards.len());
        for (number, range) in minishards {
            let index = match ReadIndex::read(shard, range, cap) {
                Ok(index) => index,
                Err(error) => {
                    slots.broken = true;
                    outcome.lose(FindingKind::BadMinishardIndex, shard.at(number, error).at_offset(range.start));
                    continue;
                }
            };
            slots.enter(shard, number, index.common_place(shard));
            indexes.push_value(range);
            name(shard, number, range, &index, &mut named);
            readable.push((number, range));
        }
        Survey {
            minishards: readable,
            indexes: indexes.finish(),
            named: named.finish(),
            is_compacted: slots.are_compacted(),
        }
    }
}

/// The minishards whose entries lead into the file.
fn entries(shard: &ShardReader, outcome: &mut Outcome<'_>) -> Vec<(MinishardNumber, ByteRange)> {
    let mut found = Vec::new();
    let mut next = MinishardNumber(0);
    while next.0 < shard.spec.minishards() {
        let block = match shard.shard_index_block(next) {
            Ok(block) => block,
            Err(error) => {
                outcome.lose(FindingKind::ShortShardIndex, error);
                break;
            }
        };
        for entry in block.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read) {
            match shard.resolve_minishard_index(next, entry) {
                Ok(Some(range)) => found.push((next, range)),
                Ok(None) => {}
                Err(error) => outcome.lose(FindingKind::BadShardIndexEntry, shard.at(next, error)),
            }
            next.0 += 1;
        }
    }
    found
}

/// Notes what an index names; one that fails its check names nothing, for its rows may be anything.
fn name(
    shard: &ShardReader,
    number: MinishardNumber,
    range: ByteRange,
    index: &ReadIndex<'_>,
    to: &mut ExtentsBuilder,
) {
    let Ok(rows) = index.rows() else { return };
    let count = rows.len() as u64;
    if shard.verify_minishard_index(number, range, &index.encoded, count).is_err() {
        return;
    }
    to.push_index(range, count);
    rows.rows().filter_map(|row| shard.value_range(row).ok()).for_each(|value| to.push_value(value));
}

/// Whether the slots of a shard look as neuroglancer-scripts leaves them.
///
/// It writes the entries of the minishards that have keys one behind the other from slot 0 on. To take a shard for one of
/// these, all of it must fit: a single id that hashes elsewhere is damage.
#[derive(Default)]
struct Slots {
    entered: u64,
    last: Option<u64>,
    displaced: bool,
    broken: bool,
}

impl Slots {
    fn enter(&mut self, shard: &ShardReader, slot: MinishardNumber, place: Option<Location>) {
        let place = place.filter(|place| place.shard == shard.number).map(|place| place.minishard.0);
        match place {
            Some(place) if slot.0 == self.entered && self.last < Some(place) => self.displaced |= place != slot.0,
            _ => self.broken = true,
        }
        self.last = place;
        self.entered += 1;
    }

    fn are_compacted(&self) -> bool {
        self.displaced && !self.broken
    }
}

/// The error of a pair that hashes elsewhere.
pub(super) fn misplaced(place: Location) -> Error {
    Error::corrupt(format!(
        "expected keys whose hash leads here, found one of shard {:x}, minishard {}",
        place.shard.0, place.minishard.0
    ))
}
