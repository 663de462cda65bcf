//! A bcolz array as a Zarr v3 array with shards: the chunks byte for byte where that is possible.

use std::ops::ControlFlow;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::container::bcolz::array::BcolzArray;
use crate::container::bcolz::chunks::Chunks;
use crate::container::bcolz::dtype::Kind;
use crate::container::bcolz::meta::Order;
use crate::container::blosc::{self, Codec, Encoder, Shuffle};
use crate::container::zarr::{ZarrMetadata, ZarrShardWriter, ZarrWriter};
use crate::container::{Container, Form};
use crate::error::{Error, ErrorKind, Result};

/// A shard of about this length, decoded, suits most stores.
const SHARD_BYTES: u64 = 64 << 20;

/// How a bcolz array becomes a Zarr array.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use sharddb::container::bcolz::{BcolzArray, ToZarrOptions};
///
/// let array = BcolzArray::open("prices")?;
/// let converted = ToZarrOptions::new().convert(&array, "prices.zarr", |_, _| ControlFlow::Continue(()))?;
/// println!("{} of {} chunks are as they were", converted.verbatim, converted.chunks);
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ToZarrOptions {
    shard_chunks: Option<u64>,
}

/// What a conversion did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Converted {
    /// The chunks of the new array.
    pub chunks: u64,
    /// Those of them that have the bytes of a chunk of the old one.
    pub verbatim: u64,
}

impl ToZarrOptions {
    /// The defaults: shards of 64 MiB when decoded.
    pub fn new() -> ToZarrOptions {
        ToZarrOptions::default()
    }

    /// The chunks of a shard (default: as many as have 64 MiB when decoded, and no more than there are).
    pub fn shard_chunks(&mut self, chunks: u64) -> &mut ToZarrOptions {
        self.shard_chunks = Some(chunks.max(1));
        self
    }

    /// Writes the array at `target`, where nothing may be yet; it appears when it is whole.
    ///
    /// Chunks keep their bytes. Compressed anew, with LZ4, are a last one that is shorter than the others, since Zarr has
    /// no shorter ones; those that are in Snappy, which readers of Zarr do not know; and those of several dimensions in
    /// Fortran order. Attributes come along. `progress` is told after every chunk how many are done, and of how many.
    ///
    /// Memory: one chunk, and 16 bytes for each chunk of a shard.
    ///
    /// Errors: `Unsupported` for a type that Zarr does not have: strings, dates, objects, records, or chunks of parts of rows; `InvalidInput` if
    /// something is at `target`; `Cancelled`; the first chunk that cannot be decoded.
    pub fn convert(
        &self,
        array: &BcolzArray,
        target: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Converted> {
        let conversion = Conversion::new(array)?;
        let chunks = array.rows.div_ceil(array.chunk_rows);
        let shard_chunks = self.shard_chunks.unwrap_or((SHARD_BYTES / conversion.chunk_len).min(chunks)).max(1);
        let writer = ZarrWriter::create(target, &conversion.metadata(shard_chunks)?)?;
        let mut converted = Converted { chunks, verbatim: 0 };
        for shard in 0..chunks.div_ceil(shard_chunks) {
            let mut file = writer.shard(shard)?;
            for key in shard * shard_chunks..chunks.min((shard + 1) * shard_chunks) {
                converted.verbatim += u64::from(conversion.put(&mut file, key)?);
                if progress(key + 1, chunks).is_break() {
                    return Err(Error::new(ErrorKind::Cancelled, "the conversion was cancelled"));
                }
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
    /// As the chunks of the source are compressed, as far as it can be told.
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
            return Err(Error::invalid_input(format!("expected fewer chunks a shard, found {shard_chunks}")));
        };
        let endian = match self.itemsize {
            1 => json!({"name": "bytes"}),
            _ => json!({"name": "bytes", "configuration": {"endian": array.byte_order.as_str()}}),
        };
        let attributes: Json = serde_json::from_str(&array.attributes()?.to_json()).unwrap_or_else(|_| json!({}));
        let metadata = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": array.shape(),
            "data_type": self.data_type,
            "fill_value": self.fill_value(),
            "attributes": attributes,
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

    /// What the source fills with, if that is a value of the type.
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

    /// The compressor that the source states, or LZ4 where Zarr does not have it.
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

    /// Writes a chunk; whether it has the bytes of one of the source.
    fn put(&self, shard: &mut ZarrShardWriter, key: u64) -> Result<bool> {
        let first = key * self.array.chunk_rows;
        if let Some(source) = self.whole_chunk(first)? {
            let Some(chunk) = self.array.get(source, Form::Encoded)? else {
                return Err(Error::corrupt("expected a chunk, found none").at_key(source));
            };
            // bcolz has no checksums: that it decodes is what can be known of it
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

    /// The chunk of the source that begins with a row, has as many rows as every chunk, and can stay as it is.
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

/// Zarr's name of the type, and its width.
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
