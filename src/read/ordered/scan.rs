//! Finds the keys of a range in the minishard indexes, on several threads.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::format::candidates::Candidates;
use crate::format::key_bounds::KeyBounds;
use crate::format::locks::{into_inner, lock};
use crate::format::spec::ShardingSpec;
use crate::ids::{Location, MinishardNumber, ShardNumber, minishard_number};
use crate::read::generation::Generation;
use crate::read::shard::{FoundKey, IndexBudget, Pass, Rows, Shard, ShardReader};
use crate::threads::{self, for_each};

/// Candidates up to this number are read like lookups do: one by one, through the minishard table and the cache.
/// Otherwise shard indexes are read in blocks.
const FEW_MINISHARDS: u64 = 4096;

/// A database with fewer keys is scanned on one thread, because starting others takes longer.
const FEW_KEYS: u64 = 100_000;

/// Pieces per thread. Threads that take many small pieces end at about the same time.
const PIECES_PER_THREAD: usize = 8;

/// Keys that a thread reads before it passes on those that are in the range.
const BATCH: usize = 16 << 10;

/// Errors that a scan keeps. A damaged file may have one per row.
const MOST_ERRORS: usize = 1000;

/// The shards to scan.
pub(crate) struct ScanShards<'a> {
    pub(crate) spec: ShardingSpec,
    /// In ascending order.
    pub(crate) numbers: Vec<ShardNumber>,
    /// Opens a shard for a pass. Called several times for the same shard.
    pub(crate) open: &'a (dyn Fn(ShardNumber) -> Result<Option<Shard>> + Sync),
}

/// Takes the keys that a scan finds: keys of the range, in any order, each once, and the number of keys that the scan has
/// read for them. An error ends the scan.
pub(crate) type KeySink<'a> = dyn Fn(&[u64], u64) -> Result<()> + Sync + 'a;

/// Passes the keys of a range to `sink`, and returns the errors of bad entries, minishards and shards, in storage order.
///
/// A key that is stored twice in its minishard is passed once, and a key that is stored in the wrong minishard is left
/// out, because lookups do not find it.
///
/// `threads` is what [`threads::count`] takes. Errors: those of `sink`.
pub(crate) fn scan_generation(
    generation: &Generation,
    bounds: KeyBounds,
    threads: usize,
    sink: &KeySink<'_>,
) -> Result<Vec<Error>> {
    let candidates = Candidates::new(*generation.spec(), bounds);
    if candidates.count() <= FEW_MINISHARDS {
        return visit(generation, &candidates, bounds, sink);
    }
    let is_small = generation.manifest().is_some_and(|manifest| manifest.keys < FEW_KEYS);
    let shards = ScanShards {
        spec: *generation.spec(),
        numbers: generation.shard_numbers().collect(),
        open: &|number| generation.shard_for_pass(number),
    };
    scan(&shards, bounds, if is_small { 1 } else { threads }, sink)
}

/// Reads a few minishards like lookups do. Like a walk, reads at most twice the length of a shard in minishard indexes.
fn visit(
    generation: &Generation,
    candidates: &Candidates,
    bounds: KeyBounds,
    sink: &KeySink<'_>,
) -> Result<Vec<Error>> {
    let (mut batch, mut errors) = (Batch::new(bounds, sink), Errors::default());
    let (mut charged, mut budget) = (None, IndexBudget::default());
    for location in candidates.locations() {
        if charged.replace(location.shard) != Some(location.shard) {
            budget = IndexBudget::default();
        }
        let shard = match generation.shard(location.shard) {
            Ok(Some(shard)) => shard.reader(),
            Ok(None) => continue,
            Err(error) => {
                errors.add_of_shard(location.shard, error);
                continue;
            }
        };
        let add = |found: &FoundKey| batch.add(shard, location, found, &mut errors);
        let visited = shard.visit_minishard(location.minishard, &mut budget, add);
        if let Err(error) = visited {
            errors.add(0, error);
        }
        batch.end_minishard()?;
    }
    batch.flush()?;
    Ok(errors.in_order())
}

/// Like [`scan_generation`], over the given shards, always in blocks.
pub(crate) fn scan(
    shards: &ScanShards<'_>,
    bounds: KeyBounds,
    threads: usize,
    sink: &KeySink<'_>,
) -> Result<Vec<Error>> {
    let threads = threads::count(threads);
    let pieces = pieces(shards, &Candidates::new(shards.spec, bounds), threads.get());
    let errors = Mutex::new(Errors::default());
    let scanned = for_each(threads, pieces.into_iter().enumerate(), |(number, piece), _| {
        let mut found = Errors::default();
        let scanned = scan_piece(shards, &piece, bounds, sink, &mut found);
        lock(&errors).append(number, found);
        scanned.map_or_else(|error| ControlFlow::Break(Some(error)), ControlFlow::Continue)
    });
    match scanned {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(into_inner(errors).in_order()),
    }
}

/// A range of minishards of a shard.
struct Piece {
    shard: ShardNumber,
    minishards: Range<MinishardNumber>,
}

/// Divides the candidates into enough pieces for the threads.
fn pieces(shards: &ScanShards<'_>, candidates: &Candidates, threads: usize) -> Vec<Piece> {
    let wanted = if threads > 1 { threads.saturating_mul(PIECES_PER_THREAD) } else { 1 };
    let parts = wanted.div_ceil(shards.numbers.len().max(1)) as u64;
    let mut pieces = Vec::new();
    for shard in &shards.numbers {
        for all in candidates.of_shard(*shard) {
            let (start, end) = (all.start.get(), all.end.get());
            let len = end.saturating_sub(start).div_ceil(parts).max(1);
            let mut next = start;
            while next < end {
                let minishards = minishard_number(next)..minishard_number(end.min(next + len));
                next = minishards.end.get();
                pieces.push(Piece { shard: *shard, minishards });
            }
        }
    }
    pieces
}

fn scan_piece(
    shards: &ScanShards<'_>,
    piece: &Piece,
    bounds: KeyBounds,
    sink: &KeySink<'_>,
    errors: &mut Errors,
) -> Result<()> {
    let shard = match (shards.open)(piece.shard) {
        Ok(Some(shard)) => shard,
        Ok(None) => return Ok(()),
        Err(error) => {
            errors.add_of_shard(piece.shard, error);
            return Ok(());
        }
    };
    let (_pass, reader) = (Pass::new(&shard), shard.reader());
    let (mut rows, mut batch) = (Rows::over(piece.minishards.clone()), Batch::new(bounds, sink));
    loop {
        match rows.next_minishard(reader) {
            Ok(Some(minishard)) => {
                rows.prefetch(reader);
                let location = Location { shard: piece.shard, minishard: minishard.number };
                rows.for_each_row(reader, |found| batch.add(reader, location, found, errors));
                batch.end_minishard()?;
            }
            Ok(None) => return batch.flush(),
            // the shard index is damaged or too short
            Err(error) if rows.is_over() => errors.add_of_shard(piece.shard, error),
            Err(error) => errors.add(0, error),
        }
    }
}

/// Collects the keys of some minishards until there are enough to pass on.
struct Batch<'a> {
    bounds: KeyBounds,
    sink: &'a KeySink<'a>,
    keys: Vec<u64>,
    /// The position in `keys` of the first key of the current minishard.
    minishard: usize,
    read: u64,
}

impl<'a> Batch<'a> {
    fn new(bounds: KeyBounds, sink: &'a KeySink<'a>) -> Batch<'a> {
        Batch { bounds, sink, keys: Vec::new(), minishard: 0, read: 0 }
    }

    /// Adds a key of the current minishard, which is at `here`, if it is in the range and in the right place.
    #[inline]
    fn add(&mut self, shard: &ShardReader, here: Location, found: &FoundKey, errors: &mut Errors) {
        let key = found.row.id;
        self.read += 1;
        match shard.check_range(found) {
            Ok(()) if self.bounds.contains(key) && shard.spec.route(key) == here => self.keys.push(key),
            Ok(()) => {}
            Err(error) => errors.add(0, error),
        }
    }

    /// Ends the current minishard: removes keys that it has twice. Those of a native shard ascend.
    fn end_minishard(&mut self) -> Result<()> {
        let of_minishard = self.keys.get_mut(self.minishard..).unwrap_or_default();
        if !of_minishard.is_sorted_by(|one, next| one < next) {
            let mut again = self.keys.split_off(self.minishard);
            again.sort_unstable();
            again.dedup();
            self.keys.append(&mut again);
        }
        self.minishard = self.keys.len();
        if self.read >= BATCH as u64 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        (self.sink)(&self.keys, self.read)?;
        self.keys.clear();
        (self.minishard, self.read) = (0, 0);
        Ok(())
    }
}

/// The errors of a scan, with the number of their piece.
#[derive(Default)]
struct Errors {
    kept: Vec<(usize, Error)>,
    more: usize,
    /// The shards that cannot be read at all, with the error, which each of their pieces meets.
    of_shards: BTreeMap<ShardNumber, (usize, Error)>,
}

impl Errors {
    #[cold]
    fn add(&mut self, piece: usize, error: Error) {
        if self.kept.len() < MOST_ERRORS {
            self.kept.push((piece, error));
        } else {
            self.more += 1;
        }
    }

    /// Adds an error of a whole shard, unless the shard has one.
    #[cold]
    fn add_of_shard(&mut self, shard: ShardNumber, error: Error) {
        self.of_shards.entry(shard).or_insert((0, error));
    }

    fn append(&mut self, piece: usize, other: Errors) {
        other.kept.into_iter().for_each(|(_, error)| self.add(piece, error));
        self.more += other.more;
        for (shard, (_, error)) in other.of_shards {
            self.of_shards.entry(shard).or_insert((piece, error));
        }
    }

    fn in_order(mut self) -> Vec<Error> {
        std::mem::take(&mut self.of_shards).into_values().for_each(|(piece, error)| self.add(piece, error));
        self.kept.sort_by_key(|(piece, _)| *piece); // stable
        let mut errors: Vec<Error> = self.kept.into_iter().map(|(_, error)| error).collect();
        if self.more > 0 {
            let message = format!("expected no damage, found {} more damaged entries: run `sharddb verify`", self.more);
            errors.push(Error::corrupt(message));
        }
        errors
    }
}
