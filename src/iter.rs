//! Walking through a whole generation in storage order.

use crate::error::Result;
use crate::shard::{Entry, Shard, ShardEntries};
use crate::snapshot::Snapshot;
use crate::spec::ShardNumber;

/// All pairs of a generation; see [`Snapshot::iter`].
pub struct Iter {
    shards: Shards,
    entries: Option<ShardEntries>,
}

impl Iter {
    pub(crate) fn new(snapshot: Snapshot) -> Iter {
        Iter { shards: Shards::new(snapshot), entries: None }
    }
}

impl Iterator for Iter {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        loop {
            if let Some(entry) = self.entries.as_mut().and_then(Iterator::next) {
                return Some(entry);
            }
            match self.shards.next()? {
                Ok(shard) => self.entries = Some(shard.iter()),
                Err(error) => {
                    self.entries = None;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The shards of a generation that have a file; see [`Snapshot::shards`].
pub struct Shards {
    snapshot: Snapshot,
    numbers: std::vec::IntoIter<ShardNumber>,
}

impl Shards {
    pub(crate) fn new(snapshot: Snapshot) -> Shards {
        let numbers: Vec<_> = snapshot.generation.shard_numbers().collect();
        Shards { snapshot, numbers: numbers.into_iter() }
    }
}

impl Iterator for Shards {
    type Item = Result<Shard>;

    fn next(&mut self) -> Option<Result<Shard>> {
        let number = self.numbers.next()?;
        self.snapshot.generation.open_shard_sequential(number).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.numbers.size_hint()
    }
}
