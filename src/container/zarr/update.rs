//! Replacing chunks of a shard, by the strategies that the format's proposal names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::byte_range::ByteRange;
use crate::container::ContainerOptions;
use crate::container::new_file::{NewFile, remove_file};
use crate::container::zarr::array::ZarrArray;
use crate::container::zarr::metadata::ZarrMetadata;
use crate::container::zarr::nd::to_usize;
use crate::container::zarr::shard::ShardFile;
use crate::container::zarr::shard_index::{IndexEntry, IndexFormat, IndexLocation};
use crate::container::zarr::writer::{ZarrShardWriter, absent_entries, check_chunk, entry_in_shard, refuse_wrapped};
use crate::error::Result;
use crate::storage::open_regular;

/// Where new chunks lie in the file of a shard that is updated.
///
/// Whatever the strategy, the file is a new one that replaces the old by rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdateStrategy {
    /// In the place of the old chunk where it fits, up to what lies behind; else behind all chunks. Plain chunks always
    /// fit, and the rest of the file stays as it is.
    Patched,
    /// Behind everything that was there, the old index too: each file is the beginning of the next one (with the index
    /// at the end).
    Appended,
    /// All chunks in the order of the index, without gaps.
    Rewritten,
}

impl UpdateStrategy {
    /// All of them.
    pub const ALL: [UpdateStrategy; 3] = [UpdateStrategy::Patched, UpdateStrategy::Appended, UpdateStrategy::Rewritten];

    /// The strategy as one lowercase word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Patched => "patched",
            Self::Appended => "appended",
            Self::Rewritten => "rewritten",
        }
    }
}

/// Changes to one shard of an array, made at once by [`finish`](ShardUpdate::finish).
///
/// Nobody else may update the same shard meanwhile: the later of two would win. Readers that have the array open keep the
/// shard that they opened.
///
/// ```no_run
/// use sharddb::container::zarr::{ShardUpdate, UpdateStrategy, ZarrArray};
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
    /// By entry: the key and the new bytes, `None` to remove.
    changes: BTreeMap<usize, (u64, Option<Vec<u8>>)>,
}

impl<'a> ShardUpdate<'a> {
    /// Nothing to change yet.
    pub fn new(array: &'a ZarrArray, shard: u64) -> ShardUpdate<'a> {
        ShardUpdate { array, shard, changes: BTreeMap::new() }
    }

    /// Sets the encoded bytes of a chunk; of two for the same chunk the later.
    ///
    /// Errors: as [`ZarrShardWriter::put`].
    pub fn put(&mut self, key: u64, encoded: &[u8]) -> Result<&mut ShardUpdate<'a>> {
        let entry = entry_in_shard(self.array.metadata(), self.shard, key)?;
        check_chunk(self.array.metadata(), key, encoded)?;
        self.changes.insert(entry, (key, Some(encoded.to_vec())));
        Ok(self)
    }

    /// Takes a chunk out; fine if it is not there.
    pub fn remove(&mut self, key: u64) -> Result<&mut ShardUpdate<'a>> {
        let entry = entry_in_shard(self.array.metadata(), self.shard, key)?;
        self.changes.insert(entry, (key, None));
        Ok(self)
    }

    /// Writes the new file of the shard in the place of the old. A shard without chunks has no file.
    ///
    /// Cost: reads and writes the shard once.
    ///
    /// Errors: `Corrupt` if the shard is broken; `Unsupported` for one that is compressed as a whole; `Io`. Then the
    /// old file is there as it was.
    pub fn finish(self, strategy: UpdateStrategy) -> Result<()> {
        let metadata = self.array.metadata();
        refuse_wrapped(metadata)?;
        let old = OldShard::open(self.array, self.shard)?;
        // a chunk that reaches into the index does not survive a new index
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

/// A shard as it is, all of its entries sound.
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

/// Where everything lies in the new file, whose beginning is that of the old one.
struct UpdatedShard {
    entries: Vec<IndexEntry>,
    strategy: UpdateStrategy,
    /// What is kept of the old file.
    body: u64,
    /// Where the next chunk is appended.
    end: u64,
    /// What is written over the old bytes.
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

    /// Finds a place for the new bytes of a chunk.
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

    /// The bytes from a chunk's first on that no other chunk has; none if it shares its own with another.
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
