//! What the indexes of one shard name, as far as they can be read: looked at before any pair is judged.

use std::collections::{BTreeMap, BTreeSet};

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::gzip;
use crate::format::minishard_index::RawIndex;
use crate::format::shard_index::ShardIndexEntry;
use crate::format::spec::Encoding;
use crate::ids::{Location, MinishardNumber};
use crate::read::shard::{EntryBlocks, IndexBudget, NamedRanges, NamedRangesBuilder, ShardReader};
use crate::salvage::{Outcome, search};
use crate::storage::Bytes;
use crate::verify::FindingKind;

/// A minishard whose entry leads into the file, and where its index is.
type Named = (MinishardNumber, ByteRange);

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
    pub(super) indexes: NamedRanges,
    /// Everything that is named, for the gaps that may be prefixes.
    pub(super) named: NamedRanges,
    /// Entries stand in the first slots whatever minishards they are of, as neuroglancer-scripts writes them.
    pub(super) is_compacted: bool,
}

impl<'a> ReadIndex<'a> {
    pub(super) fn read(shard: &'a ShardReader, range: ByteRange, cap: u64) -> Result<ReadIndex<'a>> {
        let encoded = shard.read_minishard_index(range)?;
        let (decoded, is_zlib) = match shard.spec.minishard_index_encoding() {
            Encoding::Raw => (None, false),
            Encoding::Gzip if gzip::is_zlib(&encoded) => (Some(gzip::decode_zlib(&encoded, cap)?), true),
            Encoding::Gzip => (Some(gzip::decode(&encoded, cap)?), false),
        };
        Ok(ReadIndex { encoded, decoded, is_zlib })
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
    ///
    /// `keys` is how many there should be, if that is known.
    pub(super) fn of(shard: &ShardReader, keys: Option<u64>, cap: u64, outcome: &mut Outcome<'_>) -> Survey {
        let mut surveyor = Surveyor::new(shard, cap);
        let named = surveyor.entries();
        for (number, range) in surveyor.choose(named) {
            surveyor.enter(number, range);
        }
        surveyor.search(keys);
        surveyor.finish(outcome)
    }
}

/// Makes a survey.
struct Surveyor<'a> {
    shard: &'a ShardReader,
    cap: u64,
    minishards: BTreeMap<MinishardNumber, ByteRange>,
    /// Of these, those whose index has the check that it should have, and the keys in them.
    proved: BTreeSet<MinishardNumber>,
    proved_keys: u64,
    indexes: NamedRangesBuilder,
    named: NamedRangesBuilder,
    slots: Slots,
    lost: Vec<(MinishardNumber, FindingKind, Error)>,
}

impl<'a> Surveyor<'a> {
    fn new(shard: &'a ShardReader, cap: u64) -> Surveyor<'a> {
        Surveyor {
            shard,
            cap,
            minishards: BTreeMap::new(),
            proved: BTreeSet::new(),
            proved_keys: 0,
            indexes: shard.named_ranges(),
            named: shard.named_ranges(),
            slots: Slots::default(),
            lost: Vec::new(),
        }
    }

    /// The minishards whose entries lead into the file.
    fn entries(&mut self) -> Vec<Named> {
        let (mut found, mut blocks) = (Vec::new(), EntryBlocks::default());
        loop {
            let (first, block) = match blocks.next(self.shard) {
                Ok(Some(block)) => block,
                Ok(None) => return found,
                Err(error) => {
                    self.lost.push((blocks.position(), FindingKind::ShortShardIndex, error));
                    return found;
                }
            };
            let entries = block.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read);
            for (number, entry) in (first.0..).map(MinishardNumber).zip(entries) {
                match self.shard.resolve_minishard_index(number, entry) {
                    Ok(Some(range)) => found.push((number, range)),
                    Ok(None) => {}
                    Err(error) => self.lost.push((number, FindingKind::BadShardIndexEntry, error)),
                }
            }
        }
    }

    /// Of entries whose indexes share bytes, those that are read: of several that name one index, the one of the minishard
    /// that its keys hash to; of others the short ones, until twice the length of the file is read. The rest is lost.
    fn choose(&mut self, mut named: Vec<Named>) -> Vec<Named> {
        named.sort_unstable_by_key(|(number, range)| (range.len(), range.start, *number));
        let (mut chosen, mut budget) = (Vec::new(), IndexBudget::default());
        for same in named.chunk_by(|(_, range), (_, next)| range == next) {
            let [first, ..] = same else { continue };
            if let Err(error) = budget.take(self.shard.files().data_len(), first.0, first.1) {
                let message = error.message().to_string();
                same.iter().for_each(|(number, range)| self.lose_shared(*number, *range, &message));
                continue;
            }
            let owner = if same.len() == 1 { *first } else { self.owner(same).unwrap_or(*first) };
            let others = same.iter().filter(|other| **other != owner);
            let message = format!("expected an index of its own, found that of minishard {}", owner.0.0);
            others.for_each(|(number, range)| self.lose_shared(*number, *range, &message));
            chosen.push(owner);
        }
        chosen.sort_unstable_by_key(|(number, _)| *number);
        chosen
    }

    /// Of entries that name one index, the one of the minishard that its keys hash to.
    fn owner(&self, same: &[Named]) -> Option<Named> {
        let (_, range) = same.first()?;
        let place = ReadIndex::read(self.shard, *range, self.cap).ok()?.common_place(self.shard)?;
        same.iter().find(|(number, _)| *number == place.minishard && self.shard.number == place.shard).copied()
    }

    fn lose_shared(&mut self, number: MinishardNumber, range: ByteRange, message: &str) {
        self.slots.broken = true;
        self.lost.push((number, FindingKind::IndexOverlap, Error::corrupt(message).at_offset(range.start)));
    }

    /// Takes a minishard in; an index that fails its check names no bytes, for its rows may be anything.
    fn enter(&mut self, number: MinishardNumber, range: ByteRange) {
        let shard = self.shard;
        let index = ReadIndex::read(shard, range, self.cap);
        let (index, rows) = match index.as_ref().map(|index| (index, index.rows())) {
            Ok((index, Ok(rows))) => (index, rows),
            Ok((_, Err(error))) => return self.lose(number, range, error),
            Err(_) => return index.err().into_iter().for_each(|error| self.lose(number, range, error)),
        };
        let count = rows.len() as u64;
        if let Err(error) = self.named.reserve(count, shard.files().data_len()) {
            return self.lose(number, range, error);
        }
        self.slots.enter(shard, number, index.common_place(shard));
        self.indexes.push_value(range);
        self.minishards.insert(number, range);
        if shard.verify_minishard_index(number, range, &index.encoded, count).is_ok() {
            self.proved.insert(number);
            self.proved_keys += count;
            self.named.push_index(range, count);
            rows.rows().filter_map(|row| shard.value_range(row).ok()).for_each(|value| self.named.push_value(value));
        }
    }

    fn lose(&mut self, number: MinishardNumber, range: ByteRange, error: Error) {
        self.slots.broken = true;
        self.lost.push((number, FindingKind::BadMinishardIndex, error.at_offset(range.start)));
    }

    /// Where keys are missing, the minishards that nothing leads to any more: an index is known by its check.
    fn search(&mut self, keys: Option<u64>) {
        let complete = match keys {
            Some(keys) => self.proved_keys >= keys,
            None => self.lost.is_empty() && self.proved.len() == self.minishards.len(),
        };
        if complete || !self.shard.layout.is_some_and(|layout| layout.checks) {
            return;
        }
        let named = self.named.clone().finish();
        for gap in named.gaps(self.shard.files().len()) {
            for (number, range) in search::minishards(self.shard, gap, self.cap) {
                if !self.proved.contains(&number) {
                    self.enter(number, range);
                }
            }
        }
    }

    fn finish(self, outcome: &mut Outcome<'_>) -> Survey {
        for (number, kind, error) in self.lost {
            if !self.minishards.contains_key(&number) {
                outcome.lose(kind, self.shard.at(number, error));
            }
        }
        Survey {
            minishards: self.minishards.into_iter().collect(),
            indexes: self.indexes.finish(),
            named: self.named.finish(),
            is_compacted: self.slots.are_compacted(),
        }
    }
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
