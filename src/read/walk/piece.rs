//! Pieces of a generation: whole shards, or ranges of the minishards of one. Walks go from piece to piece.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use crate::error::{Error, Result};
use crate::format::locks::lock;
use crate::ids::{MinishardNumber, ShardNumber, minishard_number};
use crate::read::generation::Generation;
use crate::read::shard::{ALL_MINISHARDS, Shard};

/// A range of the minishards of a shard.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) shard: ShardNumber,
    minishards: Range<MinishardNumber>,
    /// `None` for a whole shard.
    divided: Option<(Arc<DividedShard>, usize)>,
}

/// A shard with several pieces, and what their walks agree on: together they return what a walk over the shard returns.
#[derive(Debug)]
pub(super) struct DividedShard {
    /// The piece that returns the error of the whole shard: the first that meets it.
    reporter: OnceLock<usize>,
    /// The piece whose walk is one over the whole shard, because the shard index is truncated; the others have nothing
    /// then. `None` if the shard is divided. Decided by the first walk.
    whole: OnceLock<Option<usize>>,
    /// For each piece whether a walk has verified all of it.
    verified: Mutex<Box<[bool]>>,
    /// Handles that no walk uses. They are kept for later pieces, because each handle verifies the shard index.
    ///
    /// A mapped or loaded shard has one, for all walks. Concurrent walks with positioned reads have one each, because
    /// a handle reads ahead for one walk.
    idle: Mutex<Vec<Shard>>,
}

/// A shard that is open for the walk over a piece.
pub(super) struct OpenPiece {
    pub(super) shard: Shard,
    pub(super) minishards: Range<MinishardNumber>,
    divided: Option<Arc<DividedShard>>,
}

impl Drop for OpenPiece {
    /// Leaves the handle to the next walk.
    fn drop(&mut self) {
        if let Some(divided) = &self.divided {
            divided.give_handle(&self.shard);
        }
    }
}

impl Piece {
    pub(super) fn whole(shard: ShardNumber) -> Piece {
        Piece { shard, minishards: ALL_MINISHARDS, divided: None }
    }

    /// Creates piece `number` of a shard.
    pub(super) fn of(
        shard: ShardNumber,
        divided: &Arc<DividedShard>,
        number: usize,
        minishards: Range<MinishardNumber>,
    ) -> Piece {
        Piece { shard, minishards, divided: Some((divided.clone(), number)) }
    }

    /// Opens the shard for one pass. `None` if another piece returns all that there is: the only error, or the rows of a
    /// truncated shard.
    pub(super) fn open(&self, generation: &Generation) -> Option<Result<OpenPiece>> {
        let open = || generation.shard_for_pass(self.shard)?.ok_or_else(|| self.not_found());
        let divided = self.divided.as_ref().map(|(divided, _)| divided);
        let shard = match divided.and_then(|divided| divided.take_handle()) {
            Some(shard) => Ok(shard),
            None => open(),
        };
        match shard {
            Ok(shard) => {
                let minishards = self.minishards_of(&shard)?;
                Some(minishards.map(|minishards| OpenPiece { shard, minishards, divided: divided.cloned() }))
            }
            Err(error) => self.report(error).map(Err),
        }
    }

    /// Like [`open`](Piece::open), for the shard that lookups use.
    pub(super) fn open_for_lookups<'a>(
        &self,
        generation: &'a Generation,
    ) -> Option<Result<(&'a Shard, Range<MinishardNumber>)>> {
        let shard = generation.shard(self.shard).and_then(|shard| shard.ok_or_else(|| self.not_found()));
        let shard = shard.and_then(|shard| generation.check_before_pass(shard).map(|()| shard));
        match shard {
            Ok(shard) => self.minishards_of(shard).map(|minishards| minishards.map(|minishards| (shard, minishards))),
            Err(error) => self.report(error).map(Err),
        }
    }

    #[cold]
    fn not_found(&self) -> Error {
        Error::internal("a listed shard was not found").at_shard(self.shard)
    }

    /// Returns the minishards to walk over in the open shard.
    fn minishards_of(&self, shard: &Shard) -> Option<Result<Range<MinishardNumber>>> {
        let Some((divided, number)) = &self.divided else { return Some(Ok(self.minishards.clone())) };
        let reader = shard.reader();
        let is_truncated = !reader.files().can_hold_shard_index(&reader.spec);
        match divided.whole.get_or_init(|| is_truncated.then_some(*number)) {
            Some(whole) if whole == number => Some(Ok(ALL_MINISHARDS)),
            Some(_) => None,
            None => match reader.verify_shard_index() {
                Ok(()) => Some(Ok(self.minishards.clone())),
                Err(error) => self.report(reader.at(minishard_number(0), error)).map(Err),
            },
        }
    }

    /// Returns an error of the whole shard, unless another piece does.
    fn report(&self, error: Error) -> Option<Error> {
        match &self.divided {
            Some((divided, number)) => (divided.reporter.get_or_init(|| *number) == number).then_some(error),
            None => Some(error),
        }
    }

    /// Notes that a walk has verified all of the piece, as far as the mode requires.
    pub(super) fn note_verified(&self, shard: &Shard) {
        let Some((divided, number)) = &self.divided else { return }; // the walk has noted it
        let mut verified = lock(&divided.verified);
        if let Some(verified) = verified.get_mut(*number) {
            *verified = true;
        }
        if verified.iter().all(|verified| *verified) {
            shard.reader().note_whole_verified();
        }
    }
}

impl DividedShard {
    pub(super) fn new(pieces: usize) -> Arc<DividedShard> {
        let verified = Mutex::new(vec![false; pieces].into());
        Arc::new(DividedShard { reporter: OnceLock::new(), whole: OnceLock::new(), verified, idle: Mutex::default() })
    }

    fn take_handle(&self) -> Option<Shard> {
        let mut idle = lock(&self.idle);
        match idle.last() {
            Some(shard) if shard.reader().is_mapped_or_loaded() => Some(shard.clone()),
            _ => idle.pop(),
        }
    }

    fn give_handle(&self, shard: &Shard) {
        let mut idle = lock(&self.idle);
        if idle.is_empty() || !shard.reader().is_mapped_or_loaded() {
            idle.push(shard.clone());
        }
    }
}
