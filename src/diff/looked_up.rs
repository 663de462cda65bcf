//! The database in which the keys of the other one are looked up.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;

use crate::bytes::StorageKind;
use crate::diff::item::{BadPlace, Side};
use crate::diff::stored::Stored;
use crate::error::Result;
use crate::format::locks::lock;
use crate::ids::ShardNumber;
use crate::read::generation::Generation;
use crate::read::shard::Shard;

/// The number of shards that stay open for further lookups, if they are read by positioned reads. Only few of the files
/// of a process keep their descriptors, and the shards that are walked through need some too.
const MOST_OPEN: usize = 64;

/// A database in which keys are looked up.
pub(super) struct LookedUp<'a> {
    side: Side,
    generation: &'a Generation,
    /// The shards that cannot be read, and are reported already.
    bad_shards: BTreeSet<ShardNumber>,
    /// The shards that were used last, the newest first. Empty if lookups share the shards of the generation.
    recent: Mutex<VecDeque<Shard>>,
}

impl<'a> LookedUp<'a> {
    pub(super) fn new(side: Side, generation: &'a Generation, bad_shards: BTreeSet<ShardNumber>) -> LookedUp<'a> {
        LookedUp { side, generation, bad_shards, recent: Mutex::default() }
    }

    /// Finds a key.
    ///
    /// Errors: the damage that hides whether the key is there; `None` if it is reported already.
    pub(super) fn find(&self, key: u64) -> Result<Option<Stored>, Option<BadPlace>> {
        let location = self.generation.spec().route(key);
        if self.bad_shards.contains(&location.shard) {
            return Err(None);
        }
        let find = || {
            let Some(shard) = self.shard(location.shard).map_err(|error| error.at_key(key))? else { return Ok(None) };
            let found = shard.reader().find(location.minishard, key)?;
            Ok(found.map(|found| Stored::new(shard, found)))
        };
        find().map_err(|error| Some(BadPlace { side: self.side, error }))
    }

    /// Returns an open shard; `None` if the generation does not have it.
    pub(super) fn shard(&self, number: ShardNumber) -> Result<Option<Shard>> {
        if !self.opens_apart() {
            return Ok(self.generation.shard(number)?.cloned());
        }
        if let Some(shard) = self.take_recent(number) {
            return Ok(Some(shard));
        }
        let opened = self.generation.open_shard_apart(number).map_err(|error| error.at_shard(number))?;
        if let Some(shard) = &opened {
            let mut recent = lock(&self.recent);
            recent.truncate(MOST_OPEN - 1);
            recent.push_front(shard.clone());
        }
        Ok(opened)
    }

    /// Returns a shard that was used recently, and notes its use.
    fn take_recent(&self, number: ShardNumber) -> Option<Shard> {
        let mut recent = lock(&self.recent);
        let at = recent.iter().position(|shard| shard.number() == number)?;
        let shard = recent.remove(at)?;
        recent.push_front(shard.clone());
        Some(shard)
    }

    /// Whether shards are opened separately from those of lookups in the generation, which stay open. Not for foreign
    /// shards: once opened again, they would read all their indexes again to find preambles.
    fn opens_apart(&self) -> bool {
        matches!(self.generation.options().storage, StorageKind::Positioned) && self.generation.layout().is_some()
    }
}
