//! An array on disk, read by the numbers of its chunks.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::byte_range::ByteRange;
use crate::container::zarr::lazy_slots::LazySlots;
use crate::container::zarr::metadata::{ZARR_JSON, ZarrMetadata};
use crate::container::zarr::shard::ShardFile;
use crate::container::{ContainerOptions, owned};
use crate::error::{Error, ErrorKind, Result};
use crate::read::shard::Value;
use crate::storage::open_regular;

/// A longer `zarr.json` is refused.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// An array, Zarr v3, in a directory; with the codec `sharding_indexed` or without.
///
/// A key is the number of an inner chunk in C order, over the grid of all inner chunks of the array; without sharding
/// every chunk is one, and with nested sharding the outer one counts. `Encoded` gives the bytes of an inner chunk as they lie
/// in the shard, `Decoded` its elements: the whole chunk also where it reaches beyond the array, in C order of the
/// array's axes, little endian. A chunk that is not there is absent, not filled: [`fill_chunk`](Container::fill_chunk)
/// says what it stands for.
///
/// A shard is opened and the checksum of its index compared at its first touch; it stays open, and what is replaced on
/// disk after that is seen by opening the array anew. `Send + Sync`.
///
/// ```no_run
/// use sharddb::container::zarr::ZarrArray;
/// use sharddb::container::{Container, Form};
///
/// let array = ZarrArray::open("volume.zarr")?;
/// let key = array.key_space().key_at(&[2, 0, 1])?;
/// if let Some(chunk) = array.get(key, Form::Decoded)? {
///     println!("{} bytes", chunk.len());
/// }
/// # Ok::<(), sharddb::Error>(())
/// ```
pub struct ZarrArray {
    path: PathBuf,
    metadata: ZarrMetadata,
    pub(super) options: ContainerOptions,
    shards: LazySlots<Option<ShardFile>>,
    /// Of shards that are compressed as a whole, the one that was decoded last.
    unwrapped: Mutex<Option<(u64, Arc<ShardFile>)>>,
}

/// A shard that is kept, or one that others may let go.
pub(super) enum Opened<'a> {
    Kept(&'a ShardFile),
    Passing(Arc<ShardFile>),
}

impl Deref for Opened<'_> {
    type Target = ShardFile;

    #[inline]
    fn deref(&self) -> &ShardFile {
        match self {
            Self::Kept(shard) => shard,
            Self::Passing(shard) => shard,
        }
    }
}

impl ZarrArray {
    /// Opens the array in a directory, for positioned reads.
    ///
    /// Cost: reads `zarr.json`; shards are opened as they are touched.
    ///
    /// Errors: `Io`, and those of [`ZarrMetadata::from_json`].
    pub fn open(path: impl AsRef<Path>) -> Result<ZarrArray> {
        ZarrArray::open_with(path, &ContainerOptions::new())
    }

    /// Opens the array in a directory.
    pub fn open_with(path: impl AsRef<Path>, options: &ContainerOptions) -> Result<ZarrArray> {
        let path = path.as_ref();
        let file = path.join(ZARR_JSON);
        let metadata = read_metadata(&file).map_err(|error| error.at_path(&file))?;
        let shards = LazySlots::new(metadata.grid.shards());
        Ok(ZarrArray {
            path: path.to_path_buf(),
            metadata,
            options: options.clone(),
            shards,
            unwrapped: Mutex::default(),
        })
    }

    /// Whether a directory has the metadata of a Zarr v3 node: an array, or a group of them.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        path.as_ref().join(ZARR_JSON).is_file()
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What `zarr.json` says.
    pub fn metadata(&self) -> &ZarrMetadata {
        &self.metadata
    }

    /// The numbers of the shards that have a file, ascending.
    ///
    /// Errors: `Io` if a directory cannot be listed.
    pub(super) fn shard_numbers(&self) -> Result<Vec<u64>> {
        let positions = self.metadata.keys.list(&self.path, self.metadata.shape().len())?;
        let mut numbers: Vec<_> =
            positions.iter().filter_map(|position| self.metadata.grid.shard_number(position)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Opens a shard for one pass over it, apart from those that lookups keep.
    pub(super) fn open_shard(&self, number: u64) -> Result<Option<ShardFile>> {
        ShardFile::open(&self.path, &self.metadata, number, &self.options)
    }

    /// The elements of a chunk from its bytes.
    pub(super) fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>> {
        let (codecs, shape) = self.metadata.chunk_codecs();
        let (elements, cap) = (&self.metadata.elements, self.options.max_chunk_bytes);
        let decoded = codecs.decode(encoded, shape, elements, cap)?;
        match self.metadata.sharding() {
            // the axes of whole shards are turned before sharding: so are those of their chunks
            Some(_) => self.metadata.codecs.transpose.inverse().transpose(decoded, shape, elements.data_type.size()),
            None => Ok(decoded),
        }
    }

    /// Whether a chunk's bytes are its elements.
    fn is_plain(&self) -> bool {
        let turned = self.metadata.is_sharded() && !self.metadata.codecs.transpose.is_identity();
        !turned && self.metadata.chunk_codecs().0.is_plain(self.metadata.elements.data_type)
    }

    /// The shard of this number; `None` if it has no file.
    #[inline]
    fn shard(&self, number: u64) -> Result<Option<Opened<'_>>> {
        if self.metadata.is_wrapped() {
            return self.unwrapped_shard(number);
        }
        let shard = self.shards.get_or_make(number, || self.open_shard(number))?;
        Ok(shard.and_then(Option::as_ref).map(Opened::Kept))
    }

    /// A shard that is compressed as a whole: decoded once for reads that follow each other, and not kept.
    fn unwrapped_shard(&self, number: u64) -> Result<Option<Opened<'_>>> {
        let last = || self.unwrapped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((unwrapped, shard)) = &*last()
            && *unwrapped == number
        {
            return Ok(Some(Opened::Passing(shard.clone())));
        }
        let Some(shard) = self.open_shard(number)?.map(Arc::new) else { return Ok(None) };
        *last() = Some((number, shard.clone()));
        Ok(Some(Opened::Passing(shard)))
    }

    #[inline]
    pub(super) fn find(&self, key: u64) -> Result<Option<(Opened<'_>, ByteRange)>> {
        let Some(place) = self.metadata.grid.place(key) else { return Ok(None) };
        let Some(shard) = self.shard(place.shard)? else { return Ok(None) };
        let Some(range) = shard.chunk(place.entry).map_err(|error| error.at_path(shard.path()))? else {
            return Ok(None);
        };
        Ok(Some((shard, range)))
    }

    #[inline]
    pub(super) fn encoded(&self, key: u64) -> Result<Option<Value<'_>>> {
        let Some((shard, range)) = self.find(key)? else { return Ok(None) };
        let bytes = match shard {
            Opened::Kept(shard) => shard.read(range).map_err(|error| error.at_path(shard.path()))?,
            Opened::Passing(shard) => return Ok(Some(owned(shard.read(range)?.to_vec()))),
        };
        Ok(Some(Value::from_bytes(bytes)))
    }

    pub(super) fn decoded(&self, key: u64) -> Result<Option<Value<'_>>> {
        if self.is_plain() {
            return self.encoded(key);
        }
        let Some((shard, range)) = self.find(key)? else { return Ok(None) };
        let decoded = shard.read(range).and_then(|encoded| self.decode(&encoded));
        decoded.map(|bytes| Some(owned(bytes))).map_err(|error| error.at_offset(range.start).at_path(shard.path()))
    }
}

fn read_metadata(path: &Path) -> Result<ZarrMetadata> {
    let (file, len) = open_regular(path)?;
    if len > MAX_JSON_BYTES {
        let message = format!("expected at most {MAX_JSON_BYTES} bytes of metadata, found {len}");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let mut bytes = Vec::new();
    File::take(file, MAX_JSON_BYTES).read_to_end(&mut bytes).map_err(|error| Error::io("read", path, error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        Error::invalid_spec("expected JSON in UTF-8, found other bytes")
            .at_offset(error.utf8_error().valid_up_to() as u64)
    })?;
    ZarrMetadata::from_json(&text)
}

impl fmt::Debug for ZarrArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZarrArray").field("path", &self.path).field("shape", &self.metadata.shape()).finish()
    }
}
