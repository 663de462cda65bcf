//! bloscpack: a file of Blosc chunks with offsets and checksums.
//!
//! ```text
//! | header | metadata, if any | offsets, if any: i64le each | chunk, digest, reserve | chunk, digest, reserve | ...
//! ```
//!
//! The header versions 1 (written by bcolz), 2 (bcolz's RFC) and 3 (bloscpack) are read. Version 3 is written, and
//! version 1 by the bcolz writers. A file with offsets may store its chunks in any order; the first chunk starts where
//! the offsets end, and the bytes between a chunk and the next one are a reserve of zeros. In a file without offsets
//! each chunk starts where the one before ends.
//!
//! Every read of a chunk compares its digest.

mod checksum;
mod header;
mod metadata;
mod superchunk;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};

use sharddb::Value;
use sharddb::internal::{progress_of, report_of_files, value_location, value_of};
use sharddb::progress::{Phase, Unit};
use sharddb::shard::ValueLocation;
use sharddb::verify::{VerifyLevel, VerifyReport};
use sharddb_format::Result;
use sharddb_format::internal::json;

pub use checksum::Checksum;
pub use header::{Header, Version};
pub use metadata::Metadata;
pub(crate) use superchunk::Superchunk;
pub use writer::{BloscpackOptions, BloscpackWriter, Replaced};
pub(crate) use writer::{encode_one_chunk, replace_chunk, rewrite};

use crate::{Container, ContainerOptions, Form, KeySpace, VerifyOptions, sealed};

/// The member of a store's `info` that keeps what an export needs besides the chunks of an imported file.
pub(crate) const FILE_MEMBER: &str = "bloscpack";

/// An open bloscpack file. A key is the number of a chunk.
///
/// Decoded chunks are the bytes that were compressed, in the byte order of their writer.
///
/// See [`BloscpackOptions`] for an example.
pub struct Bloscpack {
    superchunk: Superchunk,
    max_chunk_bytes: u64,
}

impl fmt::Debug for Bloscpack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bloscpack").field("max_chunk_bytes", &self.max_chunk_bytes).finish_non_exhaustive()
    }
}

impl Bloscpack {
    /// Opens a file for positioned reads.
    ///
    /// Cost: reads the header, the metadata and the offsets; without offsets, the header of every chunk.
    ///
    /// # Errors
    ///
    /// `Io`; `Corrupt` if the header, the metadata or the offsets are invalid; `Unsupported` for a later version;
    /// `TooLarge` for metadata above 64 MiB.
    pub fn open(path: impl AsRef<Path>) -> Result<Bloscpack> {
        Bloscpack::open_with(path, &ContainerOptions::new())
    }

    /// Opens a file with `options`.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Bloscpack::open).
    pub fn open_with(path: impl AsRef<Path>, options: &ContainerOptions) -> Result<Bloscpack> {
        let superchunk = Superchunk::open(path.as_ref(), options.storage)?;
        Ok(Bloscpack { superchunk, max_chunk_bytes: options.max_chunk_bytes })
    }

    /// Returns whether the file at `path` starts with the magic bytes of bloscpack.
    ///
    /// # Errors
    ///
    /// `Io` if the file cannot be read.
    pub fn is_at(path: impl AsRef<Path>) -> Result<bool> {
        header::is_at(path.as_ref())
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.superchunk.path()
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &Header {
        self.superchunk.header()
    }

    /// Returns the metadata section, if the file has one.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.superchunk.metadata()
    }

    /// Returns the number of chunks.
    pub fn nchunks(&self) -> u64 {
        self.superchunk.len()
    }

    /// Returns the Blosc header of a chunk; `None` if there is no such chunk.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Io`.
    pub fn chunk_header(&self, key: u64) -> Result<Option<crate::blosc::Header>> {
        let located = self.superchunk.find_chunk(key).map_err(|error| error.at_key(key))?;
        Ok(located.map(|(_, header)| header))
    }
}

impl sealed::Sealed for Bloscpack {}

impl Container for Bloscpack {
    fn get(&self, key: u64, form: Form) -> Result<Option<Value<'_>>> {
        let value = match form {
            Form::Encoded => self.superchunk.stored(key).map(|stored| stored.map(|chunk| value_of(chunk.bytes))),
            Form::Decoded => self.superchunk.decoded(key, self.max_chunk_bytes).map(|decoded| decoded.map(Value::from)),
        };
        value.map_err(|error| error.at_key(key))
    }

    fn locate(&self, key: u64) -> Result<Option<ValueLocation>> {
        let located = self.superchunk.find_chunk(key).map_err(|error| error.at_key(key))?;
        Ok(located.map(|(range, _)| value_location(PathBuf::from(self.path()), range)))
    }

    fn keys(&self) -> Box<dyn Iterator<Item = Result<u64>> + '_> {
        Box::new((0..self.nchunks()).map(Ok))
    }

    fn key_space(&self) -> KeySpace {
        KeySpace::Linear { grid: vec![self.nchunks()] }
    }

    fn describe(&self) -> String {
        let header = self.header();
        let stated = |value: Option<u32>| value.map_or("null".to_string(), |value| value.to_string());
        let metadata = self.metadata().map_or("null".to_string(), |metadata| {
            // verbatim if it is valid JSON
            let text = json::parse(&metadata.bytes).map(|value| value.get().to_string());
            text.unwrap_or_else(|_| json::quote(&String::from_utf8_lossy(&metadata.bytes)))
        });
        format!(
            "{{\"format\": \"bloscpack\", \"version\": {}, \"keys\": {}, \"key_space\": {}, \"checksum\": {}, \
             \"offsets\": {}, \"typesize\": {}, \"chunk_size\": {}, \"last_chunk\": {}, \"max_app_chunks\": {}, \
             \"metadata\": {metadata}}}",
            header.version(),
            self.nchunks(),
            json::quote(&self.key_space().to_string()),
            json::quote(header.checksum().as_str()),
            header.has_offsets(),
            header.typesize(),
            stated(header.chunk_size()),
            stated(header.last_chunk()),
            header.max_app_chunks(),
        )
    }

    fn verify_with(&self, level: VerifyLevel, options: &VerifyOptions) -> Result<VerifyReport> {
        let progress = progress_of(options);
        let mut report = report_of_files(level);
        progress.begin_counting(Phase::Verify, Unit::Files, 1);
        self.superchunk.verify(0, self.max_chunk_bytes, &mut report);
        progress.add(1);
        Ok(report)
    }

    fn preserved(&self) -> Result<Option<(&'static str, String)>> {
        let metadata = self.metadata().and_then(|metadata| {
            let text = std::str::from_utf8(&metadata.bytes).ok()?; // metadata that is not UTF-8 is left out
            Some(serde_json::json!({"format": metadata.format, "text": text}))
        });
        let (checksum, max_app_chunks) = (self.header().checksum().as_str(), self.header().max_app_chunks());
        let kept = serde_json::json!({"checksum": checksum, "max_app_chunks": max_app_chunks, "metadata": metadata});
        Ok(Some((FILE_MEMBER, kept.to_string())))
    }
}
