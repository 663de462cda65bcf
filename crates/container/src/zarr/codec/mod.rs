//! The codecs of a chunk. Encoding applies array-to-array, array-to-bytes and bytes-to-bytes codecs, in this order.

mod compressor;
mod sharding;

use serde_json::value::RawValue;
use sharddb_format::internal::{gzip, json};
use sharddb_format::{Error, ErrorKind, Result};

pub(super) use sharding::{Sharding, divide};

use crate::crc32c;
use crate::zarr::data_type::DataType;
use crate::zarr::elements::Elements;
use crate::zarr::endian::{Endian, is_bytes};
use crate::zarr::extension::{Extension, numbers};
use crate::zarr::nd::{Permutation, to_usize};
use compressor::Compressor;

const KNOWN: &str = "transpose, bytes, sharding_indexed, gzip, zstd, blosc, crc32c";

/// The codecs of a chunk.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Codecs {
    /// Array to array: all transposes combined.
    pub(super) transpose: Permutation,
    /// Array to bytes.
    pub(super) serializer: Serializer,
    /// Bytes to bytes, in the order of encoding.
    pub(super) compressors: Vec<Compressor>,
}

/// The array-to-bytes codec.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Serializer {
    Bytes(Endian),
    Sharding(Box<Sharding>),
}

impl Codecs {
    /// Parses the codecs of a chunk of `shape`.
    pub(super) fn parse(value: &RawValue, shape: &[u64], data_type: DataType) -> Result<Codecs> {
        let wrong = |found: &str| Error::invalid_spec(format!("expected \"codecs\" {found}"));
        let list = json::elements(value).ok_or_else(|| wrong("that are an array"))?;
        let (mut transpose, mut serializer, mut compressors) = (Permutation::identity(shape.len()), None, Vec::new());
        for codec in list {
            let codec = Extension::parse(codec, "codec")?;
            if serializer.is_none() {
                match codec.name.as_str() {
                    "transpose" => transpose = transpose.then(&parse_transpose(&codec, shape.len())?),
                    "sharding_indexed" => {
                        let sharding = Sharding::parse(&codec, &transpose.apply(shape), data_type)?;
                        serializer = Some(Serializer::Sharding(Box::new(sharding)));
                    }
                    _ if is_bytes(&codec) => {
                        serializer = Some(Serializer::Bytes(Endian::parse(&codec, data_type.ordered_size())?));
                    }
                    _ if Compressor::parse(&codec).is_ok() => {
                        return Err(wrong(&format!("with bytes or sharding_indexed before \"{}\"", codec.name)));
                    }
                    _ => return Err(codec.unknown(KNOWN)),
                }
            } else if is_bytes(&codec) || matches!(codec.name.as_str(), "transpose" | "sharding_indexed") {
                return Err(wrong(&format!(
                    "with one array-to-bytes codec, and transposes before it, found \"{}\" after it",
                    codec.name
                )));
            } else {
                compressors.push(Compressor::parse(&codec)?);
            }
        }
        match serializer {
            Some(serializer) => Ok(Codecs { transpose, serializer, compressors }),
            None => Err(wrong("with bytes or sharding_indexed among them, found neither")),
        }
    }

    /// Returns the length in bytes of an encoded chunk of `shape`, if it is the same for all chunks.
    pub(super) fn fixed_len(&self, shape: &[u64], elements: &Elements) -> Option<u64> {
        let plain = self.compressors.iter().all(|compressor| *compressor == Compressor::Crc32c);
        match &self.serializer {
            Serializer::Bytes(_) if plain => {
                elements.bytes(shape)?.checked_add((self.compressors.len() * crc32c::LEN) as u64)
            }
            _ => None,
        }
    }

    /// Returns whether an encoded chunk consists of exactly its elements, in C order and little endian.
    pub(super) fn is_plain(&self, data_type: DataType) -> bool {
        let in_order = matches!(self.serializer, Serializer::Bytes(Endian::Little)) || data_type.ordered_size() == 1;
        let raw = matches!(self.serializer, Serializer::Bytes(_));
        raw && in_order && self.transpose.is_identity() && self.compressors.is_empty()
    }

    /// Decodes a chunk of `shape` to its elements, in C order and little endian.
    ///
    /// # Errors
    ///
    /// `Corrupt`; `TooLarge` if the chunk, or an intermediate result, has more than `cap` bytes.
    pub(super) fn decode(&self, encoded: &[u8], shape: &[u64], elements: &Elements, cap: u64) -> Result<Vec<u8>> {
        let len = elements.capped_len(shape, cap)?;
        let plain_len = matches!(self.serializer, Serializer::Bytes(_)).then_some(len);
        let decompressed = self.decompress(encoded, plain_len, cap)?;
        let serialized = decompressed.as_deref().unwrap_or(encoded);
        let transposed_shape = self.transpose.apply(shape);
        let transposed = match &self.serializer {
            Serializer::Sharding(sharding) => sharding.decode(serialized, &transposed_shape, elements, cap)?,
            Serializer::Bytes(endian) => {
                if serialized.len() != len {
                    let message = format!("expected a chunk of {len} bytes, found {}", serialized.len());
                    return Err(Error::corrupt(message));
                }
                // moved instead of copied if decompression allocated them
                let bytes = match decompressed {
                    Some(bytes) => bytes,
                    None => serialized.to_vec(),
                };
                endian.to_little(bytes, elements.data_type)
            }
        };
        self.transpose.inverse().transpose(transposed, &transposed_shape, elements.data_type.size())
    }

    /// Undoes the compressors; returns `None` if there are none. `plain_len` is the length of the result if it is
    /// known.
    pub(super) fn decompress(&self, encoded: &[u8], plain_len: Option<usize>, cap: u64) -> Result<Option<Vec<u8>>> {
        let mut decoded: Option<Vec<u8>> = None;
        for (at, compressor) in self.compressors.iter().enumerate().rev() {
            // if the earlier codecs only append checksums, the length is known
            let before = self.compressors.get(..at).unwrap_or_default();
            let checksums =
                before.iter().all(|before| *before == Compressor::Crc32c).then_some(before.len() * crc32c::LEN);
            let expected = plain_len.zip(checksums).map(|(len, checksums)| (len + checksums) as u64);
            // what the earlier codecs make of the chunk is not much longer than the chunk
            let most = plain_len.map_or(cap, |len| before.iter().fold(len as u64, |len, _| gzip::max_stored_len(len)));
            decoded = Some(compressor.decode(decoded.as_deref().unwrap_or(encoded), expected, cap.min(most))?);
        }
        Ok(decoded)
    }

    /// Encodes a chunk from its elements, in C order and little endian.
    ///
    /// # Errors
    ///
    /// `Unsupported` for sharding, which has its own writer; `InvalidInput` if the length is wrong.
    pub(super) fn encode(&self, decoded: &[u8], shape: &[u64], elements: &Elements) -> Result<Vec<u8>> {
        if elements.bytes(shape) != Some(decoded.len() as u64) {
            let message = format!("expected the elements of a chunk of shape {shape:?}, found {} bytes", decoded.len());
            return Err(Error::invalid_input(message));
        }
        let Serializer::Bytes(endian) = &self.serializer else {
            let message = "expected a chunk that is not a shard itself, found nested sharding";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let transposed = self.transpose.transpose(decoded.to_vec(), shape, elements.data_type.size())?;
        let mut encoded = endian.to_little(transposed, elements.data_type); // the conversion is its own inverse
        for compressor in &self.compressors {
            encoded = compressor.encode(encoded, elements.data_type)?;
        }
        Ok(encoded)
    }
}

fn parse_transpose(codec: &Extension<'_>, dimensions: usize) -> Result<Permutation> {
    codec.allow(&["order"])?;
    let value = codec.need("order")?;
    let order = match json::string(value).as_deref() {
        Some("C") => Some((0..dimensions).collect()), // names in drafts
        Some("F") => Some((0..dimensions).rev().collect()),
        _ => numbers(value).map(|order| order.into_iter().map(to_usize).collect::<Vec<_>>()),
    };
    let permutation = order.filter(|order| order.len() == dimensions).and_then(Permutation::new);
    permutation.ok_or_else(|| codec.wrong("order", value))
}
