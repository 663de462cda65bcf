//! One open directory of shards: its metadata, its shard files, and the shards that are opened so far.
//!
//! ```text
//! mod        what it is made of; lookups
//! slots      its shards: opened at first use, for a pass, apart, and taken from the generation before
//! opening    from a directory, a damaged one, or the bytes of one shard
//! ```
//!
//! How a generation becomes the current one is in `store`.

mod opening;
mod slots;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use crate::bytes::StorageKind;
use crate::error::Result;
use crate::format::layout::Layout;
use crate::format::manifest::Manifest;
use crate::format::spec::ShardingSpec;
use crate::fs::entry;
use crate::ids::{MinishardNumber, ShardNumber};
use crate::read::options::OpenOptions;
use crate::read::shard::{
    FoundKey, MinishardCache, Shard, ShardReader, TableFile, Value, ValueLocation, WholeShardVerified,
};
use crate::read::sorted_keys::key_file::KeyFile;
use crate::store::{GenerationId, Lease};

/// The lease that protects a generation from removal, with the id of the generation and how it was opened.
pub(crate) struct Leased {
    /// The id of the generation; `None` outside of a store.
    pub(crate) id: Option<GenerationId>,
    /// Whether it was opened through `current`, and not by its own directory.
    pub(crate) follows: bool,
    pub(crate) lease: Lease,
}

/// One open directory of shards.
pub(crate) struct Generation {
    directory: PathBuf,
    shards_directory: PathBuf,
    /// The JSON pointer of the object in `info` that has "sharding"; empty for the top level.
    pointer: String,
    spec: ShardingSpec,
    layout: Option<Layout>,
    manifest: Option<Manifest>,
    /// In ascending order of shard numbers.
    slots: Box<[ShardSlot]>,
    table: Option<Arc<TableFile>>,
    key_file: Option<Arc<KeyFile>>,
    options: OpenOptions,
    cache: Arc<MinishardCache>,
    leased: Option<Leased>,
}

/// A shard of the generation, opened at first use. The generation has the shards that the manifest lists or, without a
/// manifest, those that had a file when the generation was opened.
struct ShardSlot {
    number: ShardNumber,
    obsolete_pair: bool,
    whole_verified: Arc<WholeShardVerified>,
    /// Set when the file was compared with the manifest.
    compared: AtomicBool,
    shard: OnceLock<Shard>,
}

impl Generation {
    #[inline]
    pub(crate) fn spec(&self) -> &ShardingSpec {
        &self.spec
    }

    pub(crate) fn layout(&self) -> Option<Layout> {
        self.layout
    }

    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// Returns the key file, if the generation has one that could be opened.
    pub(crate) fn key_file(&self) -> Option<&Arc<KeyFile>> {
        self.key_file.as_ref()
    }

    /// Opens the key file as it is on disk now; `None` if the manifest states none.
    pub(crate) fn open_key_file_apart(&self) -> Option<Result<KeyFile>> {
        KeyFile::open(&self.directory, self.manifest.as_ref()?, StorageKind::Positioned)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn shards_directory(&self) -> &Path {
        &self.shards_directory
    }

    pub(crate) fn pointer(&self) -> &str {
        &self.pointer
    }

    pub(crate) fn id(&self) -> Option<GenerationId> {
        self.leased.as_ref().and_then(|leased| leased.id)
    }

    /// Whether it was opened through `current`, so that a refresh may find another generation.
    pub(crate) fn follows(&self) -> bool {
        self.leased.as_ref().is_some_and(|leased| leased.follows)
    }

    /// Whether this is still generation `id` of the store at this path, leased by this process. Also true if the
    /// directory of the generation was removed and none took its place.
    pub(crate) fn is_still(&self, id: GenerationId, store: &Path) -> bool {
        let directory = store.join(id.to_string());
        // false if that cannot be determined: the caller opens the generation anew, which returns the error
        let is_of = |lease: &Lease| {
            lease.is_own() && lease.is_of(&directory).unwrap_or(false) || matches!(entry::exists(&directory), Ok(false))
        };
        self.id() == Some(id) && self.lease().is_some_and(is_of)
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.leased.as_ref().map(|leased| &leased.lease)
    }

    pub(crate) fn cache(&self) -> &Arc<MinishardCache> {
        &self.cache
    }

    pub(crate) fn options(&self) -> &OpenOptions {
        &self.options
    }

    /// Returns the shard and the minishard that a key hashes to; `None` if the generation does not have that shard.
    /// Opens the shard at its first use.
    ///
    /// Errors: those of opening the shard, with the key.
    #[inline(always)]
    pub(crate) fn shard_of_key(&self, key: u64) -> Result<Option<(&Shard, MinishardNumber)>> {
        let location = self.spec.route(key);
        match self.shard(location.shard) {
            Ok(Some(shard)) => Ok(Some((shard, location.minishard))),
            Ok(None) => Ok(None),
            Err(error) => Err(error.at_key(key)),
        }
    }

    /// Returns the value of a key. This is the hot path.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Result<Option<Value<'_>>> {
        let Some((shard, minishard)) = self.shard_of_key(key)? else { return Ok(None) };
        shard.reader().get(minishard, key)
    }

    /// Returns whether a key exists.
    #[inline]
    pub(crate) fn contains(&self, key: u64) -> Result<bool> {
        let Some((shard, minishard)) = self.shard_of_key(key)? else { return Ok(false) };
        shard.reader().contains(minishard, key)
    }

    /// Finds the row of a key.
    pub(crate) fn find(&self, key: u64) -> Result<Option<Found<'_>>> {
        let Some((shard, minishard)) = self.shard_of_key(key)? else { return Ok(None) };
        let found = shard.reader().find(minishard, key)?;
        Ok(found.map(|key| Found { shard, key }))
    }

    /// Returns the numbers of all shards of the generation, in ascending order: those that the manifest lists or,
    /// without a manifest, those that had a file when the generation was opened.
    pub(crate) fn shard_numbers(&self) -> impl ExactSizeIterator<Item = ShardNumber> + '_ {
        self.slots.iter().map(|slot| slot.number)
    }

    /// Whether the generation has the shard of this number.
    pub(crate) fn has_shard(&self, number: ShardNumber) -> bool {
        self.slot(number).is_some()
    }

    /// Returns the shard of this number, opening it at first use; `None` if the generation does not have it.
    #[inline]
    pub(crate) fn shard(&self, number: ShardNumber) -> Result<Option<&Shard>> {
        match self.slot(number) {
            Some(slot) => match slot.shard.get() {
                Some(shard) => Ok(Some(shard)),
                None => self.open_at_first_use(slot).map(Some),
            },
            None => Ok(None),
        }
    }

    /// Returns the slot of a shard. Tries the shard number as the position first, which is right if the generation has
    /// every shard; otherwise searches by binary search.
    #[inline]
    fn slot(&self, number: ShardNumber) -> Option<&ShardSlot> {
        let guess = usize::try_from(number.get()).ok().and_then(|at| self.slots.get(at));
        match guess {
            Some(slot) if slot.number == number => guess,
            _ => self.search_slot(number),
        }
    }
}

/// A key that was found: its shard, and its row in the shard.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) key: FoundKey,
}

impl<'a> Found<'a> {
    #[inline]
    pub(crate) fn reader(&self) -> &'a ShardReader {
        self.shard.reader()
    }

    pub(crate) fn value_location(&self) -> Result<ValueLocation> {
        self.reader().value_location(self.key.minishard, self.key.row)
    }
}
