//! The minishards of two databases, in storage order, in pieces.

use std::iter::Peekable;
use std::sync::Arc;

use crate::byte_range::ByteRange;
use crate::bytes::regular_len;
use crate::diff::change::{BadPlace, Item, Side};
use crate::error::Result;
use crate::format::manifest::ShardRecord;
use crate::format::shard_index::ShardIndexEntry;
use crate::fs::is_one_file;
use crate::ids::{MinishardNumber, ShardNumber, minishard_number};
use crate::read::generation::Generation;
use crate::read::shard::{EntryBlocks, IndexBudget, Shard, ShardReader};

/// A piece has at most this many minishards,
const MOST_MINISHARDS: usize = 512;

/// and ends with the minishard whose index makes it longer than this, in bytes.
const MOST_INDEX_BYTES: u64 = 256 << 10;

/// Minishards of one shard that are compared together.
pub(super) struct Piece {
    pub(super) shards: Arc<Shards>,
    pub(super) work: Vec<Work>,
}

/// What is to be done in a piece.
pub(super) enum Work {
    /// Compare the minishards with this number.
    Minishards(MinishardPair),
    /// Pass this on.
    Pass(Item),
}

/// The places of the indexes of two minishards; `None` for a minishard without keys.
#[derive(Clone, Copy)]
pub(super) struct MinishardPair {
    pub(super) number: MinishardNumber,
    pub(super) old: Option<ByteRange>,
    pub(super) new: Option<ByteRange>,
}

/// The shards of both databases with the same number; `None` for a shard that a database does not have, or that is not
/// walked through. Their files are read ahead until the value is dropped.
pub(super) struct Shards {
    pub(super) old: Option<Shard>,
    pub(super) new: Option<Shard>,
}

impl Shards {
    fn begin(old: Option<Shard>, new: Option<Shard>) -> Shards {
        let shards = Shards { old, new };
        shards.readers().for_each(ShardReader::begin_pass);
        shards
    }

    fn readers(&self) -> impl Iterator<Item = &ShardReader> {
        self.old.iter().chain(&self.new).map(Shard::reader)
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.readers().for_each(ShardReader::end_pass);
    }
}

/// The pieces of a walk, in order. Reads the shard indexes.
pub(super) struct Pieces<'a> {
    old: &'a Generation,
    new: &'a Generation,
    /// The database that is not walked through.
    looked_up: Option<Side>,
    numbers: std::vec::IntoIter<ShardNumber>,
    shard: Option<ShardWalk>,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(old: &'a Generation, new: &'a Generation, looked_up: Option<Side>) -> Pieces<'a> {
        let of_old = old.shard_numbers().filter(|_| looked_up != Some(Side::Old));
        let of_new = new.shard_numbers().filter(|_| looked_up != Some(Side::New));
        let mut numbers: Vec<_> = of_old.chain(of_new).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Pieces { old, new, looked_up, numbers: numbers.into_iter(), shard: None }
    }

    /// Returns the next piece.
    pub(super) fn next(&mut self) -> Option<Piece> {
        loop {
            match &mut self.shard {
                Some(walk) => match walk.next_piece() {
                    Some(piece) => return Some(piece),
                    None => self.shard = None,
                },
                None => {
                    let number = self.numbers.next()?;
                    match self.begin(number) {
                        Ok(walk) => self.shard = Some(walk),
                        Err(items) => return Some(Piece::of_items(items)),
                    }
                }
            }
        }
    }

    /// Begins the walk through the shards of a number. If they are equal, or one cannot be opened, returns the items to
    /// pass on instead.
    fn begin(&self, number: ShardNumber) -> Result<ShardWalk, Vec<Item>> {
        if self.looked_up.is_none()
            && let Some(keys) = self.equal_shard(number)
        {
            return Err(vec![Item::EqualShard { keys }]);
        }
        let open = |side, generation: &Generation| {
            if self.looked_up == Some(side) {
                return Ok(None);
            }
            generation.shard_for_pass(number).map_err(|error| BadPlace { side, error: error.at_shard(number) })
        };
        match (open(Side::Old, self.old), open(Side::New, self.new)) {
            (Ok(old), Ok(new)) => Ok(ShardWalk::begin(Shards::begin(old, new))),
            (old, new) => Err(old.err().into_iter().chain(new.err()).map(Item::BadPlace).collect()),
        }
    }

    /// Returns the number of keys of a shard that is equal in both databases, as a manifest states it, or else 0;
    /// `None` if it has to be compared.
    fn equal_shard(&self, number: ShardNumber) -> Option<u64> {
        let (old, new) = (self.old, self.new);
        if old.spec() != new.spec() || old.layout() != new.layout() || !old.has_shard(number) || !new.has_shard(number)
        {
            return None;
        }
        let record = |generation: &Generation| generation.manifest()?.shard(number).copied();
        let (old_record, new_record) = (record(old), record(new));
        let is_equal = match (old_record, new_record) {
            (Some(old_record), Some(new_record)) => {
                // equal records without a digest may be those of files with equal checksums and other bytes
                let have_equal_digests = old_record == new_record && old_record.digest.is_some();
                self.is_one_file(number) || have_equal_digests
            }
            _ => self.is_one_file(number),
        };
        // a file that is missing or cut off is compared, which returns the error
        let is_there = |generation, record| has_stated_len(generation, number, record);
        let is_equal = is_equal && is_there(old, old_record) && is_there(new, new_record);
        is_equal.then(|| old_record.or(new_record).map_or(0, |record| record.keys))
    }

    fn is_one_file(&self, number: ShardNumber) -> bool {
        let (old, new) = (self.old.shard_path(number), self.new.shard_path(number));
        matches!((old, new), (Some(old), Some(new)) if is_one_file(&old, &new).unwrap_or(false)) // a comparison of the bytes returns the error
    }
}

/// Whether the file of a shard has the length that the manifest states, if there is one.
fn has_stated_len(generation: &Generation, number: ShardNumber, record: Option<ShardRecord>) -> bool {
    let len = || regular_len(&generation.shard_path(number)?).ok();
    record.is_none_or(|record| len() == Some(record.bytes))
}

impl Piece {
    fn of_items(items: Vec<Item>) -> Piece {
        let shards = Arc::new(Shards { old: None, new: None });
        Piece { shards, work: items.into_iter().map(Work::Pass).collect() }
    }
}

/// A walk through the shards of one number.
struct ShardWalk {
    shards: Arc<Shards>,
    old: Peekable<Minishards>,
    new: Peekable<Minishards>,
}

impl ShardWalk {
    fn begin(shards: Shards) -> ShardWalk {
        let minishards = |side, shard: &Option<Shard>| Minishards::of(side, shard.clone()).peekable();
        let (old, new) = (minishards(Side::Old, &shards.old), minishards(Side::New, &shards.new));
        ShardWalk { shards: Arc::new(shards), old, new }
    }

    /// Returns the next piece; `None` at the end of the shards.
    fn next_piece(&mut self) -> Option<Piece> {
        let (mut work, mut index_bytes) = (Vec::new(), 0);
        while work.len() < MOST_MINISHARDS && index_bytes < MOST_INDEX_BYTES {
            let Some(pair) = self.next_pair(&mut work) else { break };
            let lens = pair.old.iter().chain(&pair.new).map(|range| range.len());
            index_bytes = lens.fold(index_bytes, u64::saturating_add);
            work.push(Work::Minishards(pair));
        }
        (!work.is_empty()).then(|| Piece { shards: Arc::clone(&self.shards), work })
    }

    /// Returns the next pair of minishards. Adds bad ones to `work`, and leaves out their counterparts, whose keys
    /// cannot be compared. A shard index that cannot be read ends the walk.
    fn next_pair(&mut self, work: &mut Vec<Work>) -> Option<MinishardPair> {
        loop {
            let number = match (self.old.peek(), self.new.peek()) {
                (None, None) => return None,
                (Some(old), Some(new)) => old.number.min(new.number),
                (Some(one), None) | (None, Some(one)) => one.number,
            };
            let old = self.old.next_if(|next| next.number == number);
            let new = self.new.next_if(|next| next.number == number);
            let (mut ranges, mut is_bad) = ([None, None], false);
            for (range, next) in ranges.iter_mut().zip([old, new]) {
                let Some(Next { index, is_broken, .. }) = next else { continue };
                match index {
                    Ok(at) => *range = Some(at),
                    Err(bad) => {
                        is_bad = true;
                        work.push(Work::Pass(Item::BadPlace(bad)));
                    }
                }
                if is_broken {
                    self.old = Minishards::of(Side::Old, None).peekable();
                    self.new = Minishards::of(Side::New, None).peekable();
                    return None;
                }
            }
            let [old, new] = ranges;
            if !is_bad {
                return Some(MinishardPair { number, old, new });
            }
        }
    }
}

/// The next minishard of a shard that has keys.
struct Next {
    number: MinishardNumber,
    /// The place of its index, or the damage if it is not where it should be.
    index: Result<ByteRange, BadPlace>,
    /// Whether the shard index cannot be read from this minishard on.
    is_broken: bool,
}

/// The minishards of a shard that have keys, in ascending order.
struct Minishards {
    side: Side,
    shard: Option<Shard>,
    blocks: EntryBlocks,
    block: std::vec::IntoIter<(MinishardNumber, ShardIndexEntry)>,
    budget: IndexBudget,
}

impl Minishards {
    fn of(side: Side, shard: Option<Shard>) -> Minishards {
        Minishards {
            side,
            shard,
            blocks: EntryBlocks::default(),
            block: Vec::new().into_iter(),
            budget: IndexBudget::default(),
        }
    }

    /// Moves to the next block of entries. Returns whether there is one.
    fn next_block(&mut self) -> Result<bool> {
        let Some(reader) = self.shard.as_ref().map(Shard::reader).filter(|_| !self.blocks.is_over()) else {
            return Ok(false);
        };
        // a damaged shard index may hide minishards that have keys, so none of its entries are used
        reader.verify_shard_index_in_place()?;
        let Some((first, block)) = self.blocks.next(reader)? else { return Ok(false) };
        let entries = block.chunks_exact(size_of::<ShardIndexEntry>()).filter_map(ShardIndexEntry::read);
        let numbers = (first.get()..).map(minishard_number);
        let with_keys = numbers.zip(entries).filter(|(_, entry)| entry.minishard_index().is_some());
        self.block = with_keys.collect::<Vec<_>>().into_iter();
        Ok(true)
    }

    /// Returns the minishard of an entry; `None` if it has no keys.
    fn resolve(&mut self, number: MinishardNumber, entry: ShardIndexEntry) -> Option<Next> {
        let reader = self.shard.as_ref()?.reader();
        let resolved = reader.resolve_entry(number, entry).and_then(|range| match range {
            Some(range) => self.budget.take(reader.files().data_len(), number, range).map(|()| Some(range)),
            None => Ok(None),
        });
        let index = resolved.map_err(|error| BadPlace { side: self.side, error: reader.at(number, error) });
        index.transpose().map(|index| Next { number, index, is_broken: false })
    }
}

impl Iterator for Minishards {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        loop {
            if let Some((number, entry)) = self.block.next() {
                match self.resolve(number, entry) {
                    Some(next) => return Some(next),
                    None => continue,
                }
            }
            match self.next_block() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.blocks.end();
                    let index = Err(BadPlace { side: self.side, error });
                    return Some(Next { number: self.blocks.position(), index, is_broken: true });
                }
            }
        }
    }
}
