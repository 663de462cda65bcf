//! An open array: reads chunks by number.

use sharddb::internal::value_of;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sharddb::Value;
use sharddb::internal::bytes::open_regular;
use sharddb::internal::fs::entry;
use sharddb_format::internal::byte_range::ByteRange;
use sharddb_format::internal::locks::lock;
use sharddb_format::{Error, ErrorKind, Result};

use crate::ContainerOptions;
use crate::zarr::lazy_slots::LazySlots;
use crate::zarr::metadata::{ZARR_JSON, ZarrMetadata};
use crate::zarr::shard::ShardFile;

/// A larger `zarr.json` is refused.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// A Zarr v3 array in a directory, with or without the codec `sharding_indexed`.
///
/// A key is the number of an inner chunk in C order, over the grid of all inner chunks of the array. Without sharding
/// every chunk is an inner chunk; with nested sharding the outermost inner chunks count. `Encoded` returns the bytes of
/// a chunk as stored. `Decoded` returns its elements, in C order of the array's axes and little endian, including
/// elements outside the array. An absent chunk is `None`; [`fill_chunk`](crate::Container::fill_chunk)
/// returns what it represents.
///
/// A shard is opened, and the checksum of its index compared, at its first use. It stays open: an open array does not
/// see a shard that is replaced later.
///
/// ```no_run
/// use sharddb_container::zarr::ZarrArray;
/// use sharddb_container::{Container, Form};
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
    /// The shard that was decoded last, of an array whose shards are compressed as a whole.
    unwrapped: Mutex<Option<(u64, Arc<ShardFile>)>>,
}

/// An open shard: one that the array keeps, or a shared decoded one.
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
    /// Opens the array in a directory for positioned reads.
    ///
    /// Cost: reads `zarr.json`. Shards are opened at their first use.
    ///
    /// # Errors
    ///
    /// `Io`, `TooLarge`, and those of [`ZarrMetadata::from_json`].
    pub fn open(path: impl AsRef<Path>) -> Result<ZarrArray> {
        ZarrArray::open_with(path, &ContainerOptions::new())
    }

    /// Opens the array in a directory with `options`.
    ///
    /// # Errors
    ///
    /// Those of [`open`](ZarrArray::open).
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

    /// Returns whether a directory has the metadata of a Zarr v3 node, which is an array or a group.
    ///
    /// # Errors
    ///
    /// `Io` if the directory cannot be searched.
    pub fn is_at(path: impl AsRef<Path>) -> Result<bool> {
        entry::is_file(&path.as_ref().join(ZARR_JSON))
    }

    /// Returns the directory of the array.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the metadata of the array.
    pub fn metadata(&self) -> &ZarrMetadata {
        &self.metadata
    }

    /// Lists the numbers of the shards that have a file, in ascending order.
    ///
    /// # Errors
    ///
    /// `Io` if a directory cannot be listed.
    pub(super) fn shard_numbers(&self) -> Result<Vec<u64>> {
        let positions = self.metadata.keys.list(&self.path, self.metadata.shape().len())?;
        let mut numbers: Vec<_> =
            positions.iter().filter_map(|position| self.metadata.grid.shard_number(position)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Opens a shard for one pass, without keeping it open.
    pub(super) fn open_shard(&self, number: u64) -> Result<Option<ShardFile>> {
        ShardFile::open(&self.path, &self.metadata, number, &self.options)
    }

    /// Decodes the elements of a chunk.
    pub(super) fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>> {
        let (codecs, shape) = self.metadata.chunk_codecs();
        let (elements, cap) = (&self.metadata.elements, self.options.max_chunk_bytes);
        let decoded = codecs.decode(encoded, shape, elements, cap)?;
        match self.metadata.sharding() {
            // the axes of whole shards are transposed before sharding, and so are those of their chunks
            Some(_) => self.metadata.codecs.transpose.inverse().transpose(decoded, shape, elements.data_type.size()),
            None => Ok(decoded),
        }
    }

    /// Returns whether the stored bytes of a chunk are its elements.
    fn is_plain(&self) -> bool {
        let turned = self.metadata.is_sharded() && !self.metadata.codecs.transpose.is_identity();
        !turned && self.metadata.chunk_codecs().0.is_plain(self.metadata.elements.data_type)
    }

    /// Returns the shard with this number; `None` if it has no file.
    #[inline]
    fn shard(&self, number: u64) -> Result<Option<Opened<'_>>> {
        if self.metadata.is_wrapped() {
            return self.unwrapped_shard(number);
        }
        let shard = self.shards.get_or_make(number, || self.open_shard(number))?;
        Ok(shard.and_then(Option::as_ref).map(Opened::Kept))
    }

    /// Returns a shard that is compressed as a whole. Only the last one is kept, so consecutive reads of a shard decode
    /// it once.
    fn unwrapped_shard(&self, number: u64) -> Result<Option<Opened<'_>>> {
        let last = || lock(&self.unwrapped);
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
            Opened::Passing(shard) => return Ok(Some(Value::from(shard.read(range)?.to_vec()))),
        };
        Ok(Some(value_of(bytes)))
    }

    pub(super) fn decoded(&self, key: u64) -> Result<Option<Value<'_>>> {
        if self.is_plain() {
            return self.encoded(key);
        }
        let Some((shard, range)) = self.find(key)? else { return Ok(None) };
        let decoded = shard.read(range).and_then(|encoded| self.decode(&encoded));
        decoded
            .map(|bytes| Some(Value::from(bytes)))
            .map_err(|error| error.at_offset(range.start).at_path(shard.path()))
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
