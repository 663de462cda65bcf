//! Conversion of a bcolz array to a sharded Zarr v3 array. Chunks keep their bytes where possible.

use std::path::Path;

use serde_json::{Value as Json, json};
use sharddb::Progress;
use sharddb::progress::Phase;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bcolz::array::BcolzArray;
use crate::bcolz::attributes::Attributes;
use crate::bcolz::chunks::Chunks;
use crate::bcolz::dtype::Kind;
use crate::bcolz::meta::Order;
use crate::blosc::{self, Codec, Encoder, Shuffle};
use crate::zarr::{ZarrMetadata, ZarrShardWriter, ZarrWriter};
use crate::{Container, Form};

/// Default length in bytes of a decoded shard.
const SHARD_BYTES: u64 = 64 << 20;

/// Options for converting a bcolz array to a Zarr array.
///
/// ```no_run
/// use sharddb_container::bcolz::{BcolzArray, ToZarrOptions};
///
/// let array = BcolzArray::open("prices")?;
/// let converted = ToZarrOptions::new().convert(&array, "prices.zarr")?;
/// println!("{} of {} chunks keep their bytes", converted.verbatim, converted.chunks);
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToZarrOptions {
    shard_chunks: Option<u64>,
    progress: Progress,
}

/// The result of a conversion. See [`ToZarrOptions`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Converted {
    /// Number of chunks of the new array.
    pub chunks: u64,
    /// Number of chunks that were copied byte for byte.
    pub verbatim: u64,
}

impl ToZarrOptions {
    /// Creates the defaults: shards of 64 MiB when decoded.
    pub fn new() -> ToZarrOptions {
        ToZarrOptions::default()
    }

    /// Sets the number of chunks per shard (default: as many as fit 64 MiB when decoded, but not more than the array
    /// has).
    pub fn shard_chunks(&mut self, chunks: u64) -> &mut ToZarrOptions {
        self.shard_chunks = Some(chunks.max(1));
        self
    }

    /// Sets the progress that the conversion reports in chunks, and that cancels it. Default: none.
    pub fn progress(&mut self, progress: &Progress) -> &mut ToZarrOptions {
        self.progress = progress.clone();
        self
    }

    /// Writes the array to `target`, which must not exist. The array appears only when it is complete.
    ///
    /// Chunks keep their bytes, with three exceptions that are compressed again with LZ4: a short last chunk, since
    /// Zarr's chunks are all of one length; chunks in Snappy, which readers of Zarr do not support; and chunks with
    /// several dimensions in Fortran order. Attributes are copied.
    ///
    /// Memory: one chunk, and 16 bytes per chunk of a shard.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a type that Zarr does not have (strings, dates, objects, records), or chunks that cut rows;
    /// `InvalidInput` if `target` exists; `Cancelled`; the error of the first chunk that cannot be decoded.
    pub fn convert(&self, array: &BcolzArray, target: impl AsRef<Path>) -> Result<Converted> {
        let progress = &self.progress;
        let conversion = Conversion::new(array)?;
        let chunks = array.rows.div_ceil(array.chunk_rows);
        let shard_chunks = self.shard_chunks.unwrap_or((SHARD_BYTES / conversion.chunk_len).min(chunks)).max(1);
        let writer = ZarrWriter::create(target, &conversion.metadata(shard_chunks)?)?;
        let mut converted = Converted { chunks, verbatim: 0 };
        progress.begin(Phase::Convert, chunks);
        for shard in 0..chunks.div_ceil(shard_chunks) {
            let mut file = writer.shard(shard)?;
            for key in shard * shard_chunks..chunks.min((shard + 1) * shard_chunks) {
                converted.verbatim += u64::from(conversion.put(&mut file, key)?);
                progress.add(1);
                progress.check()?;
            }
            file.finish()?;
        }
        writer.finish()?;
        Ok(converted)
    }
}

struct Conversion<'a> {
    array: &'a BcolzArray,
    data_type: String,
    itemsize: u64,
    chunk_len: u64,
    /// The shuffle of the first chunk of the source; byte shuffle if there is none.
    shuffle: Shuffle,
}

impl<'a> Conversion<'a> {
    fn new(array: &'a BcolzArray) -> Result<Conversion<'a>> {
        array.need_whole_rows()?;
        let (data_type, itemsize) = data_type(array)?;
        let first = if array.nchunks() > 0 { array.chunk_header(0)? } else { None };
        Ok(Conversion {
            array,
            data_type,
            itemsize,
            chunk_len: (array.chunk_rows * array.row_len).max(1),
            shuffle: first.map_or(Shuffle::Bytes, blosc::Header::shuffle),
        })
    }

    fn metadata(&self, shard_chunks: u64) -> Result<ZarrMetadata> {
        let array = self.array;
        let chunk_shape = |rows: u64| [&[rows][..], &array.row_shape].concat();
        let Some(shard_rows) = array.chunk_rows.checked_mul(shard_chunks) else {
            return Err(Error::invalid_input(format!("expected fewer chunks per shard, found {shard_chunks}")));
        };
        let endian = match self.itemsize {
            1 => json!({"name": "bytes"}),
            _ => json!({"name": "bytes", "configuration": {"endian": array.byte_order.as_str()}}),
        };
        let metadata = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": array.shape(),
            "data_type": self.data_type,
            "fill_value": self.fill_value(),
            "attributes": Attributes::read_exactly(array.attributes_path())?.to_value(),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape(shard_rows)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": [{"name": "sharding_indexed", "configuration": {
                "chunk_shape": chunk_shape(array.chunk_rows),
                "index_location": "end",
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
                "codecs": [endian, {"name": "blosc", "configuration": {
                    "cname": self.cname(), "clevel": self.clevel(), "shuffle": self.shuffle.as_str(),
                    "typesize": self.itemsize, "blocksize": 0,
                }}],
            }}],
        });
        ZarrMetadata::from_json(&metadata.to_string())
    }

    /// Returns the fill value of the source if it is a value of the type, otherwise zero.
    fn fill_value(&self) -> Json {
        let stated = self.array.storage.get("dflt");
        let is_natural = |value: &&Json| value.is_u64();
        match self.array.dtype.kind() {
            Kind::Bool => Json::Bool(stated.and_then(Json::as_bool).unwrap_or_default()),
            Kind::Float if stated.and_then(Json::as_str) == Some("NaN") => Json::from("NaN"),
            Kind::Float => Json::from(stated.and_then(Json::as_f64).unwrap_or_default()),
            Kind::Int => Json::from(stated.and_then(Json::as_i64).unwrap_or_default()),
            Kind::Complex => json!([0.0, 0.0]),
            _ => stated.filter(is_natural).cloned().unwrap_or(Json::from(0)),
        }
    }

    /// Returns the compressor that the source states, or LZ4 if Zarr does not have it.
    fn cname(&self) -> &str {
        let storage = &self.array.storage;
        let stated = storage.get("cparams").and_then(|parameters| parameters.get("cname"));
        let stated = stated.or_else(|| storage.get("compression").and_then(|parameters| parameters.get("library")));
        let stated = stated.and_then(Json::as_str).unwrap_or_default();
        if ["blosclz", "lz4", "lz4hc", "zlib", "zstd"].contains(&stated) { stated } else { "lz4" }
    }

    fn clevel(&self) -> u64 {
        let storage = &self.array.storage;
        let stated = storage.get("cparams").and_then(|parameters| parameters.get("clevel"));
        let stated = stated.or_else(|| storage.get("compression").and_then(|parameters| parameters.get("level")));
        stated.and_then(Json::as_u64).unwrap_or(5).min(9)
    }

    /// Writes a chunk; returns whether it was copied byte for byte.
    fn put(&self, shard: &mut ZarrShardWriter, key: u64) -> Result<bool> {
        let first = key * self.array.chunk_rows;
        if let Some(source) = self.whole_chunk(first)? {
            let Some(chunk) = self.array.get(source, Form::Encoded)? else {
                return Err(Error::corrupt("expected a chunk, found none").at_key(source));
            };
            // bcolz has no checksums, so decoding is the only check
            self.array.get(source, Form::Decoded)?;
            shard.put(key, &chunk)?;
            return Ok(true);
        }
        let mut rows = self.array.read_rows(first..self.array.rows.min(first + self.array.chunk_rows))?;
        rows.resize(usize::try_from(self.chunk_len).unwrap_or(usize::MAX), 0);
        let mut encoder = Encoder::new();
        encoder.typesize(usize::try_from(self.itemsize).unwrap_or(1)).shuffle(self.shuffle);
        shard.put(key, &encoder.encode(&rows)?)?;
        Ok(false)
    }

    /// Returns the chunk of the source that starts at `row`, is full and can be copied byte for byte.
    fn whole_chunk(&self, row: u64) -> Result<Option<u64>> {
        let key = match &self.array.chunks {
            Chunks::Shipped(_) => row / self.array.chunk_rows,
            Chunks::Superchunks(superchunks) => match superchunks.chunk_of_row(row) {
                Some((key, first)) if first == row => key,
                _ => return Ok(None),
            },
        };
        let is_reordered = self.array.order == Order::F && !self.array.row_shape.is_empty();
        if is_reordered || self.array.rows_of(key) != self.array.chunk_rows {
            return Ok(None);
        }
        let header = self.array.chunk_header(key)?;
        let stays = |header: &blosc::Header| {
            u64::from(header.nbytes()) == self.chunk_len && (header.is_memcpyed() || header.codec() != Codec::Snappy)
        };
        Ok(header.filter(stays).map(|_| key))
    }
}

/// Returns Zarr's name of the type, and its width in bytes.
fn data_type(array: &BcolzArray) -> Result<(String, u64)> {
    let prefix = match array.dtype.kind() {
        Kind::Bool => Some("bool"),
        Kind::Int => Some("int"),
        Kind::Uint => Some("uint"),
        Kind::Float => Some("float"),
        Kind::Complex => Some("complex"),
        Kind::Opaque | Kind::Object | Kind::Record => None,
    };
    let limit = if prefix == Some("complex") { 16 } else { 8 };
    match (prefix, array.dtype.itemsize()) {
        (Some("bool"), Some(_)) => Ok(("bool".to_string(), 1)),
        (Some(prefix), Some(itemsize)) if itemsize <= limit => Ok((format!("{prefix}{}", itemsize * 8), itemsize)),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            format!("expected numbers, which Zarr has a type for, found the type {}", array.dtype),
        )
        .at_path(&array.root)),
    }
}
