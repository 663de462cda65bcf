//! The chunks of an open container whose files may be replaced.
//!
//! The library keeps files open, and does not see that one is replaced. Before and after a chunk is read, the file that
//! has it is compared with the one that was there when the array was opened or used it first.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde_json::Value;
use sharddb::OwnedValue;
use sharddb::internal::lock;
use sharddb_container::bcolz::BcolzArray;
use sharddb_container::bloscpack::Bloscpack;
use sharddb_container::zarr::ZarrArray;
use sharddb_container::{Container, ContainerOptions, Form, KeySpace};

use crate::budget::{Budget, Share};
use crate::catalog::Kind;
use crate::entity_tag::EntityTag;
use crate::file_tag::file_tag;
use crate::problem::{Problem, Result};

/// Decoding a chunk takes this many times its decoded bytes: codecs have a window, and transposing makes a copy.
const DECODING: u64 = 2;

/// The chunks of a container.
pub(crate) enum Chunks {
    Zarr(LiveArray),
    Bcolz(Box<BcolzArray>),
    Bloscpack(Box<Bloscpack>),
}

/// A chunk in memory.
pub(crate) struct Chunk {
    pub(crate) bytes: OwnedValue,
    pub(crate) share: Share,
    /// That of the file which has the chunk.
    pub(crate) tag: EntityTag,
}

impl Chunks {
    /// Errors: those of the library.
    pub(crate) fn open(kind: Kind, path: &Path, max_chunk_bytes: u64) -> sharddb::Result<Chunks> {
        let mut options = ContainerOptions::new();
        options.max_chunk_bytes(max_chunk_bytes);
        Ok(match kind {
            Kind::Zarr => Chunks::Zarr(LiveArray::open(path, options, max_chunk_bytes)?),
            Kind::Bloscpack => Chunks::Bloscpack(Box::new(Bloscpack::open_with(path, &options)?)),
            _ => Chunks::Bcolz(Box::new(BcolzArray::open_with(path, &options)?)),
        })
    }

    /// Calls `f` with the container as it is open now.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&dyn Container) -> T) -> T {
        match self {
            Chunks::Zarr(live) => f(&live.current().array),
            Chunks::Bcolz(array) => f(&**array),
            Chunks::Bloscpack(file) => f(&**file),
        }
    }

    /// Reads a chunk; `None` if it is absent.
    ///
    /// Errors: those of the library; `busy` if its file is replaced meanwhile, or other requests have the memory.
    pub(crate) fn get(&self, key: u64, form: Form, budget: &Budget) -> Result<Option<Chunk>> {
        let header = match self {
            Chunks::Zarr(live) => return live.get(key, form, budget),
            Chunks::Bcolz(array) => array.chunk_header(key)?,
            Chunks::Bloscpack(file) => file.chunk_header(key)?,
        };
        let decoded = header.filter(|_| form == Form::Decoded).map_or(0, |header| u64::from(header.nbytes()));
        self.with(|container| read(container, (key, form), None, decoded * DECODING, budget))
    }
}

/// Reads a chunk. `file` is the one that has it and its tag before; without it, the file that the container states.
/// `needed` is the memory that it takes besides its stored bytes.
fn read(
    container: &dyn Container,
    (key, form): (u64, Form),
    file: Option<(&Path, EntityTag)>,
    needed: u64,
    budget: &Budget,
) -> Result<Option<Chunk>> {
    let mut share = budget.reserve(needed)?; // first: `locate` decodes a shard that is compressed as a whole
    let location = match container.locate(key) {
        // of a shard that is compressed as a whole
        Err(error) if error.kind() == sharddb::ErrorKind::Unsupported && file.is_some() => None,
        Err(error) => return Err(error.into()),
        Ok(None) => return Ok(None),
        Ok(location) => location,
    };
    let (path, before) = match (file, &location) {
        (Some((path, tag)), _) => (path, Some(tag)),
        (None, Some(location)) => (location.path.as_path(), tag_of(&location.path)?),
        (None, None) => return Ok(None),
    };
    let stored = location.as_ref().map_or(0, |location| location.stored_len());
    budget.grow(&mut share, stored.saturating_add(needed))?;
    let read = container.get(key, form);
    let after = tag_of(path)?;
    let tag = before.filter(|before| after.as_ref() == Some(before)).ok_or_else(Problem::replaced)?.part(key);
    let Some(bytes) = read?.map(|chunk| chunk.into_owned()) else { return Ok(None) };
    share.shrink(bytes.len() as u64);
    Ok(Some(Chunk { bytes, share, tag }))
}

/// The tag of a file; `None` if there is none. One without permission is not absent: readers would fill in its chunks.
///
/// Errors: `io`.
fn tag_of(path: &Path) -> Result<Option<EntityTag>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(file_tag(&metadata))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Problem::io("read", path, &error)),
    }
}

/// A Zarr array that is opened again when the file of a shard is another one.
pub(crate) struct LiveArray {
    path: PathBuf,
    options: ContainerOptions,
    max_chunk_bytes: u64,
    open: RwLock<Arc<OpenArray>>,
}

/// A Zarr array, with the tags of the files of its shards at their first use.
pub(crate) struct OpenArray {
    array: ZarrArray,
    keys: ChunkKeys,
    shards: KeySpace,
    used: Mutex<HashMap<u64, EntityTag>>,
}

impl LiveArray {
    fn open(path: &Path, options: ContainerOptions, max_chunk_bytes: u64) -> sharddb::Result<LiveArray> {
        let open = RwLock::new(Arc::new(OpenArray::open(path, &options)?));
        Ok(LiveArray { path: path.to_path_buf(), options, max_chunk_bytes, open })
    }

    fn current(&self) -> Arc<OpenArray> {
        Arc::clone(&self.open.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of the chunk that a chunk key names: `c/0/1` in the encoding "default", `0.1` in "v2".
    pub(crate) fn key_of(&self, names: &[String]) -> Option<u64> {
        let open = self.current();
        let position = open.keys.position(&names.join("/"))?;
        open.array.key_space().key_at(&position).ok()
    }

    fn get(&self, key: u64, form: Form, budget: &Budget) -> Result<Option<Chunk>> {
        let open = self.current();
        let Some((shard, file)) = open.file_of(key) else { return Ok(None) };
        let Some(tag) = tag_of(&file)? else { return Ok(None) };
        let open = if open.reads(shard, &tag) { open } else { self.open_again(shard, &tag)? };
        let chunk = if form == Form::Decoded { open.decoded_len().saturating_mul(DECODING) } else { 0 };
        let shard = if open.array.metadata().is_wrapped() {
            fs::metadata(&file).map_or(0, |metadata| metadata.len()).saturating_add(self.max_chunk_bytes)
        } else {
            0
        };
        read(&open.array, (key, form), Some((&file, tag)), chunk.saturating_add(shard), budget)
    }

    fn open_again(&self, shard: u64, tag: &EntityTag) -> Result<Arc<OpenArray>> {
        let open = Arc::new(OpenArray::open(&self.path, &self.options)?);
        open.reads(shard, tag);
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&open);
        Ok(open)
    }
}

impl OpenArray {
    fn open(path: &Path, options: &ContainerOptions) -> sharddb::Result<OpenArray> {
        let array = ZarrArray::open_with(path, options)?;
        let metadata = array.metadata();
        let lengths = metadata.shape().iter().zip(metadata.shard_shape());
        let grid = lengths.map(|(len, shard)| len.div_ceil((*shard).max(1))).collect();
        let keys = ChunkKeys::of(metadata.to_json(), metadata.shape().len());
        Ok(OpenArray { array, keys, shards: KeySpace::Linear { grid }, used: Mutex::default() })
    }

    /// The number and the file of the shard that has a chunk; `None` beyond the array.
    fn file_of(&self, key: u64) -> Option<(u64, PathBuf)> {
        let shard = self.array.metadata().shard_of(key)?;
        let position = self.shards.position_of(shard)?;
        Some((shard, self.array.path().join(self.keys.path(&position))))
    }

    /// Whether the array reads the file with this tag: it had this one when the shard was used first.
    fn reads(&self, shard: u64, tag: &EntityTag) -> bool {
        let mut used = lock(&self.used);
        used.entry(shard).or_insert_with(|| tag.clone()) == tag
    }

    /// The length of each decoded chunk.
    fn decoded_len(&self) -> u64 {
        let metadata = self.array.metadata();
        metadata.chunk_shape().iter().fold(metadata.element_len() as u64, |len, cells| len.saturating_mul(*cells))
    }
}

/// How chunks are named: the member `chunk_key_encoding` of `zarr.json`.
struct ChunkKeys {
    is_v2: bool,
    separator: String,
    dimensions: usize,
}

impl ChunkKeys {
    /// Reads the metadata of an array that the library opened.
    fn of(metadata: &str, dimensions: usize) -> ChunkKeys {
        let metadata: Value = serde_json::from_str(metadata).unwrap_or_default();
        let member = |pointer: &str| metadata.pointer(pointer).and_then(Value::as_str);
        let is_v2 = member("/chunk_key_encoding/name") == Some("v2");
        let separator = member("/chunk_key_encoding/configuration/separator");
        ChunkKeys { is_v2, separator: separator.unwrap_or(if is_v2 { "." } else { "/" }).to_string(), dimensions }
    }

    /// The chunk key of a position.
    fn path(&self, position: &[u64]) -> String {
        let cells = position.iter().map(u64::to_string);
        let parts: Vec<String> = match self.is_v2 {
            true if position.is_empty() => vec!["0".to_string()],
            true => cells.collect(),
            false => std::iter::once("c".to_string()).chain(cells).collect(),
        };
        parts.join(&self.separator)
    }

    /// The position that a chunk key names; `None` for another text.
    fn position(&self, key: &str) -> Option<Vec<u64>> {
        let cells = key.split(&self.separator).skip(usize::from(!self.is_v2));
        let position: Vec<u64> = cells.take(self.dimensions).map(|cell| cell.parse().ok()).collect::<Option<_>>()?;
        (position.len() == self.dimensions && self.path(&position) == key).then_some(position)
    }
}

#[cfg(test)]
mod tests {
    use sharddb_container::bloscpack::BloscpackOptions;

    use super::*;

    /// If the chunk were read first, its wrong checksum would be the answer.
    #[test]
    fn memory_for_a_chunk_is_reserved_before_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("zeros.blp");
        let mut writer = BloscpackOptions::new().create(&path, 1).unwrap();
        writer.push(&vec![0; 1 << 20]).unwrap();
        writer.finish().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        let chunks = Chunks::open(Kind::Bloscpack, &path, 1 << 20).unwrap();
        let status = |form, kib| chunks.get(0, form, &Budget::with_kib(kib)).err().unwrap().status.as_u16();
        assert_eq!([1, 2047, 2100].map(|kib| status(Form::Decoded, kib)), [503, 503, 500]);
        assert_eq!(status(Form::Encoded, 1), 500, "the stored bytes are few");
    }

    /// The examples of the specification of chunk key encodings, and other texts.
    #[test]
    fn chunk_keys_name_positions() {
        for (encoding, position, key) in [
            (r#"{"name": "default"}"#, &[1, 23, 45][..], "c/1/23/45"),
            (r#"{"name": "default"}"#, &[], "c"),
            (r#"{"name": "default", "configuration": {"separator": "."}}"#, &[0, 7], "c.0.7"),
            (r#"{"name": "v2"}"#, &[1, 23, 45], "1.23.45"),
            (r#"{"name": "v2"}"#, &[], "0"),
            (r#"{"name": "v2", "configuration": {"separator": "/"}}"#, &[3, 4], "3/4"),
        ] {
            let keys = ChunkKeys::of(&format!("{{\"chunk_key_encoding\": {encoding}}}"), position.len());
            assert_eq!(keys.path(position), key);
            assert_eq!(keys.position(key).as_deref(), Some(position), "{key}");
            for other in ["", "x", "c/01/2/3", "c/1", "1.2.3.4", "c/1/2/3/4", "c/+1/2/3", "c/"] {
                assert_eq!(keys.position(other), None, "{encoding} {other}");
            }
        }
    }
}
