//! Replaces chunks of a shard, with the strategies that the specification's proposal (ZEP 2) names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use sharddb::internal::bytes::open_regular;
use sharddb_format::Result;
use sharddb_format::internal::byte_range::ByteRange;

use crate::ContainerOptions;
use crate::new_file::{NewFile, remove_file};
use crate::zarr::array::ZarrArray;
use crate::zarr::metadata::ZarrMetadata;
use crate::zarr::nd::to_usize;
use crate::zarr::shard::ShardFile;
use crate::zarr::shard_index::{IndexEntry, IndexFormat, IndexLocation};
use crate::zarr::writer::{ZarrShardWriter, absent_entries, check_chunk, entry_in_shard, refuse_wrapped};

/// How an update places new chunks in the file of a shard.
///
/// With every strategy the file is a new one that replaces the old by rename.
///
/// See [`ShardUpdate`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UpdateStrategy {
    /// In place of the old chunk if it fits the space up to the next chunk, otherwise after all chunks. Uncompressed
    /// chunks always fit, and the rest of the file does not change.
    Patched,
    /// After the whole old file, including the old index. With the index at the end, each file is a prefix of the next
    /// one.
    Appended,
    /// All chunks are written again, in the order of the index and without gaps.
    Rewritten,
}

impl UpdateStrategy {
    /// All strategies.
    pub const ALL: [UpdateStrategy; 3] = [UpdateStrategy::Patched, UpdateStrategy::Appended, UpdateStrategy::Rewritten];

    /// Returns the name: `patched`, `appended` or `rewritten`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Patched => "patched",
            Self::Appended => "appended",
            Self::Rewritten => "rewritten",
        }
    }
}

/// A set of changes to one shard of an array, which [`finish`](ShardUpdate::finish) applies atomically.
///
/// The caller ensures that nobody else updates the shard at the same time: the later update would win. Open readers
/// keep the shard that they opened.
///
/// ```no_run
/// use sharddb_container::zarr::{ShardUpdate, UpdateStrategy, ZarrArray};
///
/// let array = ZarrArray::open("stack.zarr")?;
/// let mut update = ShardUpdate::new(&array, 0);
/// update.put(17, b"the new bytes of chunk 17")?.remove(3)?;
/// update.finish(UpdateStrategy::Patched)?;
/// # Ok::<(), sharddb::Error>(())
/// ```
pub struct ShardUpdate<'a> {
    array: &'a ZarrArray,
    shard: u64,
    /// By entry of the index: the key, and the new bytes or `None` to remove the chunk.
    changes: BTreeMap<usize, (u64, Option<Vec<u8>>)>,
}

impl fmt::Debug for ShardUpdate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardUpdate").field("shard", &self.shard).finish_non_exhaustive()
    }
}

impl<'a> ShardUpdate<'a> {
    /// Starts an update without changes.
    pub fn new(array: &'a ZarrArray, shard: u64) -> ShardUpdate<'a> {
        ShardUpdate { array, shard, changes: BTreeMap::new() }
    }

    /// Sets the encoded bytes of a chunk. A later call for the same chunk overrides an earlier one.
    ///
    /// # Errors
    ///
    /// `OutOfOrder` if the chunk belongs to another shard; `InvalidInput` if there is no such chunk, or `encoded` is
    /// empty or of the wrong length.
    pub fn put(&mut self, key: u64, encoded: &[u8]) -> Result<&mut ShardUpdate<'a>> {
        let entry = entry_in_shard(self.array.metadata(), self.shard, key)?;
        check_chunk(self.array.metadata(), key, encoded)?;
        self.changes.insert(entry, (key, Some(encoded.to_vec())));
        Ok(self)
    }

    /// Removes a chunk if it exists.
    ///
    /// # Errors
    ///
    /// `OutOfOrder` if the chunk belongs to another shard; `InvalidInput` if there is no such chunk.
    pub fn remove(&mut self, key: u64) -> Result<&mut ShardUpdate<'a>> {
        let entry = entry_in_shard(self.array.metadata(), self.shard, key)?;
        self.changes.insert(entry, (key, None));
        Ok(self)
    }

    /// Replaces the file of the shard. If no chunks are left, the file is removed.
    ///
    /// Cost: reads and writes the shard once.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the shard is corrupt; `Unsupported` for shards that are compressed as a whole; `Io`. The old file
    /// is then unchanged.
    pub fn finish(self, strategy: UpdateStrategy) -> Result<()> {
        let metadata = self.array.metadata();
        refuse_wrapped(metadata)?;
        let old = OldShard::open(self.array, self.shard)?;
        // a chunk that overlaps the index would be damaged by a new index
        let keeps = strategy != UpdateStrategy::Rewritten && !old.overlaps_index();
        match (metadata.sharding().map(|sharding| sharding.index), &old.file) {
            (Some(format), Some(file)) if keeps => {
                let body = match (strategy, format.location()) {
                    (UpdateStrategy::Patched, IndexLocation::End) => file.len() - format.len(),
                    _ => file.len(),
                };
                UpdatedShard::new(old.entries.clone(), body, strategy).write(format, file, self.changes)
            }
            _ => self.rewrite(&old),
        }
    }

    fn rewrite(self, old: &OldShard) -> Result<()> {
        let metadata = self.array.metadata();
        let mut changes = self.changes;
        let mut writer = ZarrShardWriter::create(self.array.path(), metadata, self.shard)?;
        for (number, entry) in old.entries.iter().enumerate() {
            match (changes.remove(&number), &old.file, entry.range(u64::MAX)?) {
                (Some((key, Some(encoded))), ..) => writer.put(key, &encoded)?,
                (Some((_, None)), ..) | (None, None, _) | (None, _, None) => {}
                (None, Some(file), Some(range)) => writer.append(number, &file.read(range)?)?,
            }
        }
        writer.finish()
    }
}

/// The current shard, with all entries validated.
struct OldShard {
    file: Option<ShardFile>,
    entries: Vec<IndexEntry>,
}

impl OldShard {
    fn open(array: &ZarrArray, number: u64) -> Result<OldShard> {
        let metadata: &ZarrMetadata = array.metadata();
        let mut entries = absent_entries(metadata)?;
        let file = ShardFile::open(array.path(), metadata, number, &ContainerOptions::new())?;
        if let Some(file) = &file {
            let mut next = 0;
            loop {
                let read = file.entries(next)?;
                if read.is_empty() {
                    break;
                }
                for entry in read {
                    file.chunk_of(entry).map_err(|error| error.at_path(file.path()))?;
                    if let Some(place) = entries.get_mut(to_usize(next)) {
                        *place = entry;
                    }
                    next += 1;
                }
            }
        }
        Ok(OldShard { file, entries })
    }

    fn overlaps_index(&self) -> bool {
        let Some(index) = self.file.as_ref().and_then(ShardFile::index_range) else { return false };
        let mut ranges = self.entries.iter().filter_map(|entry| entry.range(u64::MAX).ok().flatten());
        ranges.any(|range| range.start < index.end && index.start < range.end)
    }
}

/// The layout of the new file, which starts with bytes of the old one.
struct UpdatedShard {
    entries: Vec<IndexEntry>,
    strategy: UpdateStrategy,
    /// Number of bytes kept from the start of the old file.
    body: u64,
    /// Offset of the next appended chunk.
    end: u64,
    /// Bytes that overwrite old bytes, with their offset.
    patches: Vec<(u64, Vec<u8>)>,
    appended: Vec<Vec<u8>>,
}

impl UpdatedShard {
    fn new(entries: Vec<IndexEntry>, body: u64, strategy: UpdateStrategy) -> UpdatedShard {
        UpdatedShard { entries, strategy, body, end: body, patches: Vec::new(), appended: Vec::new() }
    }

    fn write(
        mut self,
        format: IndexFormat,
        old: &ShardFile,
        changes: BTreeMap<usize, (u64, Option<Vec<u8>>)>,
    ) -> Result<()> {
        let reserved = match format.location() {
            IndexLocation::Start => format.len(),
            IndexLocation::End => 0,
        };
        for (number, (_, encoded)) in changes {
            match encoded {
                Some(encoded) => self.place(number, encoded, reserved),
                None => self.set(number, IndexEntry::ABSENT),
            }
        }
        let path: PathBuf = old.path().to_path_buf();
        if self.entries.iter().all(|entry| *entry == IndexEntry::ABSENT) {
            return remove_file(&path);
        }
        let mut file = NewFile::create(&path)?;
        file.copy(&mut open_regular(&path)?.0, self.body)?;
        for (offset, bytes) in &self.patches {
            file.overwrite(*offset, bytes)?;
        }
        for bytes in &self.appended {
            file.write(bytes)?;
        }
        let index = format.encode(&self.entries);
        match format.location() {
            IndexLocation::Start => file.overwrite(0, &index)?,
            IndexLocation::End => file.write(&index)?,
        }
        file.finish()
    }

    /// Chooses the place of the new bytes of a chunk.
    fn place(&mut self, number: usize, encoded: Vec<u8>, reserved: u64) {
        let nbytes = encoded.len() as u64;
        let old = self.entries.get(number).copied().unwrap_or(IndexEntry::ABSENT);
        if self.strategy == UpdateStrategy::Patched
            && let Ok(Some(range)) = old.range(self.body)
            && range.start >= reserved
            && nbytes <= self.room(number, range)
        {
            self.patches.push((range.start, encoded));
            return self.set(number, IndexEntry { offset: range.start, nbytes });
        }
        self.set(number, IndexEntry { offset: self.end, nbytes });
        self.end += nbytes;
        self.appended.push(encoded);
    }

    /// Returns how many bytes from the start of a chunk belong to no other chunk; 0 if the chunk shares bytes.
    fn room(&self, number: usize, range: ByteRange) -> u64 {
        let others = self.entries.iter().enumerate().filter(|(other, _)| *other != number);
        let others = others.filter_map(|(_, entry)| entry.range(u64::MAX).ok().flatten());
        let next = others.filter(|other| other.end > range.start).map(|other| other.start).min();
        next.unwrap_or(self.body).min(self.body).saturating_sub(range.start)
    }

    fn set(&mut self, number: usize, entry: IndexEntry) {
        if let Some(place) = self.entries.get_mut(number) {
            *place = entry;
        }
    }
}
