//! The survey of one shard: reads all of its indexes and collects the byte ranges that they name.
//!
//! It runs before any pair is proved, so that a value that overlaps an index is recognised.

use std::collections::{BTreeMap, BTreeSet};

use crate::byte_range::ByteRange;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::format::gzip;
use crate::format::hash::HashFunction;
use crate::format::minishard::MinishardIndex;
use crate::format::minishard_index::IndexView;
use crate::format::shard_index::ShardIndexEntry;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::ids::{Location, MinishardNumber, ShardNumber, minishard_number};
use crate::read::shard::{EntryBlocks, IndexBudget, NamedRanges, NamedRangesBuilder, Shard, ShardReader};
use crate::salvage::{Outcome, search};
use crate::verify::FindingKind;

/// A minishard whose shard index entry is valid, and the range of its index.
type NamedIndex = (MinishardNumber, ByteRange);

/// The ranges that the indexes of a shard name.
pub(super) struct Survey {
    /// The minishards whose indexes could be read, with the ranges of these, ascending.
    pub(super) minishards: Vec<(MinishardNumber, ByteRange)>,
    /// The ranges of the shard index and the minishard indexes.
    pub(super) indexes: NamedRanges,
    /// The ranges of the shard index, of all proved minishard indexes and of their values; a gap between them may be a
    /// preamble.
    pub(super) named: NamedRanges,
    /// Whether shard index entries are moved to the first slots, as neuroglancer-scripts does.
    pub(super) is_compacted: bool,
    /// The shard to which the keys hash, which may be another one than the file's name says.
    pub(super) home: HomeShard,
}

/// Reads an index. It may be zlib in place of gzip.
pub(super) fn read_index(shard: &ShardReader, range: ByteRange, cap: u64) -> Result<MinishardIndex<Bytes<'_>>> {
    let encoded = shard.read_encoded_index(range, range.end)?;
    if is_zlib(&encoded, shard.spec.minishard_index_encoding()) {
        let decoded = gzip::decode_zlib(&encoded, cap)?;
        MinishardIndex::of_decoded(encoded, Some(decoded), range)
    } else {
        MinishardIndex::decode(encoded, range, shard.spec.minishard_index_encoding(), cap)
    }
}

/// Returns whether bytes that should be gzip are zlib.
pub(super) fn is_zlib(encoded: &[u8], encoding: Encoding) -> bool {
    encoding == Encoding::Gzip && gzip::is_zlib(encoded)
}

impl Survey {
    /// Reads all indexes of a shard, searches for lost ones, and reports those that are not found.
    ///
    /// `keys` is the number of keys that the manifest states, if it is known.
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

/// A survey in progress.
struct Surveyor<'a> {
    shard: &'a ShardReader,
    cap: u64,
    minishards: BTreeMap<MinishardNumber, ByteRange>,
    /// The minishards whose index matches its check, or all in a shard without checks.
    proved: BTreeSet<MinishardNumber>,
    /// The number of keys in the proved minishards.
    proved_keys: u64,
    /// See [`Survey::indexes`].
    indexes: NamedRangesBuilder,
    /// See [`Survey::named`].
    named: NamedRangesBuilder,
    slots: Slots,
    home: HomeShard,
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
            home: HomeShard::default(),
            lost: Vec::new(),
        }
    }

    /// Returns the minishards with valid shard index entries.
    fn entries(&mut self) -> Vec<NamedIndex> {
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
            for (number, entry) in (first.get()..).map(minishard_number).zip(entries) {
                match self.shard.resolve_entry(number, entry) {
                    Ok(Some(range)) => found.push((number, range)),
                    Ok(None) => {}
                    Err(error) => self.lost.push((number, FindingKind::BadShardIndexEntry, error)),
                }
            }
        }
    }

    /// Chooses the indexes to read; the others are lost.
    ///
    /// If several entries name one index, chooses the minishard that its keys hash to, or else the first. Reads short
    /// indexes first, up to twice the length of the file, since valid indexes share no bytes.
    fn choose(&mut self, mut named: Vec<NamedIndex>) -> Vec<NamedIndex> {
        named.sort_unstable_by_key(|(number, range)| (range.len(), range.start, *number));
        let (mut chosen, mut budget) = (Vec::new(), IndexBudget::default());
        for same in named.chunk_by(|(_, range), (_, next)| range == next) {
            let [first, ..] = same else { continue };
            if let Err(error) = budget.take(self.shard.files().data_len(), first.0, first.1) {
                let message = error.message().to_string();
                same.iter().for_each(|place| self.lose(*place, FindingKind::IndexOverlap, Error::corrupt(&*message)));
                continue;
            }
            let home = if same.len() == 1 { *first } else { self.home(same).unwrap_or(*first) };
            let others = same.iter().filter(|other| **other != home);
            let message =
                format!("expected a minishard index of its own, found one that minishard {} has too", home.0.get());
            others.for_each(|place| self.lose(*place, FindingKind::IndexOverlap, Error::corrupt(&*message)));
            chosen.push(home);
        }
        chosen.sort_unstable_by_key(|(number, _)| *number);
        chosen
    }

    /// Returns, of several entries that name one index, the entry of the minishard that its keys hash to.
    fn home(&self, same: &[NamedIndex]) -> Option<NamedIndex> {
        let (_, range) = same.first()?;
        let index = read_index(self.shard, *range, self.cap).ok()?;
        let location = index.common_location(|id| self.shard.spec.route(id))?;
        same.iter().find(|(number, _)| *number == location.minishard && self.shard.number == location.shard).copied()
    }

    /// Adds a minishard to the survey. The rows of an index that fails its check may be wrong, so they name no ranges.
    fn enter(&mut self, number: MinishardNumber, range: ByteRange) {
        let shard = self.shard;
        let index = match read_index(shard, range, self.cap) {
            Ok(index) => index,
            Err(error) => return self.lose((number, range), FindingKind::BadMinishardIndex, error),
        };
        let (rows, count) = (index.view(), index.checks().rows);
        if let Err(error) = self.named.reserve(count, shard.files().data_len()) {
            return self.lose((number, range), FindingKind::BadMinishardIndex, error);
        }
        self.slots.enter(shard, number, index.common_location(|id| shard.spec.route(id)));
        self.home.add(&shard.spec, rows);
        self.indexes.push_value(range); // a plain range, without the checks after the index
        self.minishards.insert(number, range);
        if shard.compare_index_check(number, &index).is_ok() {
            self.proved.insert(number);
            self.proved_keys += count;
            self.named.push_index(range, count);
            rows.rows().filter_map(|row| shard.value_range(row).ok()).for_each(|value| self.named.push_value(value));
        }
    }

    fn lose(&mut self, (number, range): NamedIndex, kind: FindingKind, error: Error) {
        self.slots.broken = true;
        self.lost.push((number, kind, error.at_offset(range.start)));
    }

    /// If keys are missing, searches the gaps between named ranges for lost minishards. Needs checks.
    fn search(&mut self, keys: Option<u64>) {
        let is_complete = match keys {
            Some(keys) => self.proved_keys >= keys,
            None => self.lost.is_empty() && self.proved.len() == self.minishards.len(),
        };
        if is_complete || !self.shard.layout.is_some_and(|layout| layout.checks) {
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
            home: self.home,
        }
    }
}

/// The shard to which all keys of a file hash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HomeShard {
    /// The shard of the first key.
    shard: Option<ShardNumber>,
    is_mixed: bool,
    keys: u64,
    minishards: u64,
}

impl HomeShard {
    /// Number of keys that a murmur hash leads to one shard only if they belong to it. Damage moves each key elsewhere.
    const ENOUGH_KEYS: u64 = 8;

    /// Number of minishards that agree only if their keys belong to the shard. With the identity hash, one changed bit
    /// may move all keys of a minishard, because ids are stored as differences.
    const ENOUGH_MINISHARDS: u64 = 2;

    /// Returns the shard to which all keys of a file hash; `None` if they hash to several, or a key cannot be read.
    pub(super) fn of_file(file: &Shard) -> Option<ShardNumber> {
        let mut home = HomeShard::default();
        for key in file.keys() {
            home.add_key(file.reader().spec.route(key.ok()?).shard);
        }
        home.shard()
    }

    /// Adds the keys of a minishard.
    pub(super) fn add(&mut self, spec: &ShardingSpec, index: IndexView<'_>) {
        self.minishards += u64::from(index.len() > 0);
        index.rows().for_each(|row| self.add_key(spec.route(row.id).shard));
    }

    fn add_key(&mut self, shard: ShardNumber) {
        self.is_mixed |= *self.shard.get_or_insert(shard) != shard;
        self.keys += 1;
    }

    /// Returns the shard to which all keys hash; `None` if they hash to several, or there are none.
    pub(super) fn shard(&self) -> Option<ShardNumber> {
        self.shard.filter(|_| !self.is_mixed)
    }

    /// Returns whether enough keys agree to rule out one damaged place as the reason.
    pub(super) fn is_certain(&self, hash: HashFunction) -> bool {
        match hash {
            HashFunction::Identity => self.minishards >= HomeShard::ENOUGH_MINISHARDS,
            HashFunction::MurmurHash3X86_128 => self.keys >= HomeShard::ENOUGH_KEYS,
        }
    }
}

/// Detects a shard whose shard index entries neuroglancer-scripts has moved to the first slots.
///
/// That program writes the entries of the minishards that have keys one after another, beginning with slot 0. All
/// entries must match this pattern: a single id that hashes to another location is damage.
#[derive(Default)]
struct Slots {
    entered: u64,
    /// The minishard that the keys of the last entered slot hash to.
    last: Option<u64>,
    /// Whether keys are in the slot of another minishard.
    displaced: bool,
    /// Whether a slot does not match the pattern.
    broken: bool,
}

impl Slots {
    /// Adds the next slot with the location of all its keys, if they have one.
    fn enter(&mut self, shard: &ShardReader, slot: MinishardNumber, location: Option<Location>) {
        let number =
            location.filter(|location| location.shard == shard.number).map(|location| location.minishard.get());
        match number {
            Some(number) if slot.get() == self.entered && self.last < Some(number) => {
                self.displaced |= number != slot.get()
            }
            _ => self.broken = true,
        }
        self.last = number;
        self.entered += 1;
    }

    fn are_compacted(&self) -> bool {
        self.displaced && !self.broken
    }
}

/// Returns the error of a key that hashes to another location.
pub(super) fn misplaced(location: Location) -> Error {
    Error::corrupt(format!(
        "expected a key whose hash leads to this minishard, found one of shard {:x}, minishard {}",
        location.shard.get(),
        location.minishard.get()
    ))
}
