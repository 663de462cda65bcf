//! An iterator over the keys of an array that have a chunk.

use std::vec;

use sharddb_format::Result;

use crate::zarr::array::ZarrArray;
use crate::zarr::grid::ChunkPlace;
use crate::zarr::shard::ShardFile;
use crate::zarr::shard_index::IndexEntry;

/// Iterates over the keys that have a chunk, shard by shard.
pub(super) struct ZarrKeys<'a> {
    array: &'a ZarrArray,
    shards: vec::IntoIter<u64>,
    current: Option<ShardKeys>,
}

impl<'a> ZarrKeys<'a> {
    /// Iterates over the keys of the shards with these numbers.
    pub(super) fn new(array: &'a ZarrArray, shards: Vec<u64>) -> ZarrKeys<'a> {
        ZarrKeys { array, shards: shards.into_iter(), current: None }
    }
}

/// The remaining entries of a shard.
struct ShardKeys {
    number: u64,
    shard: ShardFile,
    read: vec::IntoIter<IndexEntry>,
    next: u64,
}

impl ZarrKeys<'_> {
    /// Returns the next key in a shard; `None` at the end of the shard.
    fn next_of(&self, entries: &mut ShardKeys) -> Option<Result<u64>> {
        loop {
            let Some(entry) = entries.read.next() else {
                match entries.shard.entries(entries.next) {
                    Ok(read) if read.is_empty() => return None,
                    Ok(read) => entries.read = read.into_iter(),
                    Err(error) => {
                        entries.next = u64::MAX; // end the iteration of this shard after the error
                        return Some(Err(error.at_path(entries.shard.path())));
                    }
                }
                continue;
            };
            let place = ChunkPlace { shard: entries.number, entry: entries.next };
            entries.next += 1;
            let Some(key) = self.array.metadata().grid.key(place) else { continue };
            match entries.shard.chunk_of(entry) {
                Ok(None) => {}
                Ok(Some(_)) => return Some(Ok(key)),
                Err(error) => return Some(Err(error.at_path(entries.shard.path()).at_key(key))),
            }
        }
    }
}

impl Iterator for ZarrKeys<'_> {
    type Item = Result<u64>;

    fn next(&mut self) -> Option<Result<u64>> {
        loop {
            if let Some(mut entries) = self.current.take()
                && let Some(key) = self.next_of(&mut entries)
            {
                self.current = Some(entries);
                return Some(key);
            }
            let number = self.shards.next()?;
            match self.array.open_shard(number) {
                Ok(Some(shard)) => {
                    self.current = Some(ShardKeys { number, shard, read: Vec::new().into_iter(), next: 0 });
                }
                Ok(None) => {} // removed after it was listed
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
