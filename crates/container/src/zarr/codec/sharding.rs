//! The codec `sharding_indexed`: a chunk is stored as smaller chunks with an index.

use sharddb_format::internal::json;
use sharddb_format::{Error, Result};

use crate::zarr::codec::Codecs;
use crate::zarr::data_type::DataType;
use crate::zarr::elements::Elements;
use crate::zarr::extension::{Extension, numbers};
use crate::zarr::nd::{self, ElementBox};
use crate::zarr::shard_index::{IndexFormat, IndexLocation, ShardIndex, parse_index_codecs};

/// The configuration of the codec `sharding_indexed`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::zarr) struct Sharding {
    /// The shape of an inner chunk.
    pub(in crate::zarr) chunk_shape: Vec<u64>,
    /// Inner chunks along each axis of a shard.
    chunks_per_shard: Vec<u64>,
    /// The codecs of an inner chunk.
    pub(in crate::zarr) codecs: Codecs,
    pub(in crate::zarr) index: IndexFormat,
}

impl Sharding {
    pub(super) fn parse(codec: &Extension<'_>, shard_shape: &[u64], data_type: DataType) -> Result<Sharding> {
        codec.allow(&["chunk_shape", "codecs", "index_codecs", "index_location"])?;
        let value = codec.need("chunk_shape")?;
        let wrong = || codec.wrong("chunk_shape", value);
        let chunk_shape = numbers(value).filter(|shape| shape.len() == shard_shape.len()).ok_or_else(wrong)?;
        let chunks_per_shard = divide(shard_shape, &chunk_shape).ok_or_else(|| {
            Error::invalid_spec(format!(
                "expected inner chunks that divide a shard of shape {shard_shape:?} evenly, found {chunk_shape:?}"
            ))
        })?;
        let (endian, crc32c) = parse_index_codecs(codec.need("index_codecs")?)?;
        let location = match codec.get("index_location")? {
            None => IndexLocation::End,
            Some(value) => match json::string(value).as_deref() {
                Some("start") => IndexLocation::Start,
                Some("end") => IndexLocation::End,
                _ => return Err(codec.wrong("index_location", value)),
            },
        };
        let index = IndexFormat::new(&chunks_per_shard, endian, crc32c, location).ok_or_else(wrong)?;
        let codecs = Codecs::parse(codec.need("codecs")?, &chunk_shape, data_type)?;
        Ok(Sharding { chunk_shape, chunks_per_shard, codecs, index })
    }

    /// Decodes a whole shard of `shape`. Absent chunks have the fill value.
    pub(super) fn decode(&self, shard: &[u8], shape: &[u64], elements: &Elements, cap: u64) -> Result<Vec<u8>> {
        let index = ShardIndex::read(self.index, shard)?;
        let mut decoded = elements.filled(shape, cap)?;
        let mut position = vec![0; shape.len()];
        for entry in 0..self.index.chunks() {
            if let Some(range) = index.chunk(entry)?.range(shard.len() as u64)? {
                let encoded = range.of(shard).unwrap_or_default();
                let chunk = self.codecs.decode(encoded, &self.chunk_shape, elements, cap)?;
                let origin: Vec<_> = position.iter().zip(&self.chunk_shape).map(|(at, cells)| at * cells).collect();
                let chunk = ElementBox { elements: &chunk, shape: &self.chunk_shape };
                let zeros = vec![0; shape.len()];
                let size = elements.data_type.size();
                nd::copy_part(&chunk, &zeros, &mut decoded, shape, &origin, &self.chunk_shape, size);
            }
            advance(&mut position, &self.chunks_per_shard);
        }
        Ok(decoded)
    }
}

/// Returns the number of chunks along each axis; `None` if they do not divide the shard evenly.
pub(in crate::zarr) fn divide(shard_shape: &[u64], chunk_shape: &[u64]) -> Option<Vec<u64>> {
    let axes = shard_shape.iter().zip(chunk_shape);
    axes.map(|(shard, chunk)| shard.checked_rem(*chunk).filter(|rest| *rest == 0).map(|_| shard / chunk)).collect()
}

/// Advances to the next position in C order.
fn advance(position: &mut [u64], grid: &[u64]) {
    for (at, &cells) in position.iter_mut().zip(grid).rev() {
        *at += 1;
        if *at < cells {
            return;
        }
        *at = 0;
    }
}
