//! The codecs of a chunk: array to array, array to bytes, bytes to bytes, in this order when encoding.

use serde_json::value::RawValue;

use crate::container::blosc::{self, Shuffle};
use crate::container::zarr::data_type::DataType;
use crate::container::zarr::extension::{Extension, numbers};
use crate::container::zarr::nd::{self, Permutation, to_usize};
use crate::container::zarr::sharding::Sharding;
use crate::container::{crc32c, zstd};
use crate::error::{Error, ErrorKind, Result};
use crate::format::gzip::{self, GzipEncoder};
use crate::format::json;

const KNOWN: &str = "transpose, bytes, sharding_indexed, gzip, zstd, blosc, crc32c";

/// The length of a checksum behind what it is of.
const CRC32C_LEN: usize = 4;

/// What chunks consist of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Elements {
    pub(super) data_type: DataType,
    /// One element, little endian.
    pub(super) fill_value: Vec<u8>,
}

/// The codecs of a chunk.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Codecs {
    /// Array to array: all transposes as one.
    pub(super) transpose: Permutation,
    /// Array to bytes.
    pub(super) serializer: Serializer,
    /// Bytes to bytes, in the order of encoding.
    pub(super) compressors: Vec<Compressor>,
}

/// From an array to bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Serializer {
    Bytes(Endian),
    Sharding(Box<Sharding>),
}

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endian {
    Little,
    Big,
}

/// From bytes to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compressor {
    Gzip,
    Zstd,
    Blosc(Shuffle),
    Crc32c,
}

impl Elements {
    /// The bytes of a box of elements; `None` from 2^63 on.
    pub(super) fn bytes(&self, shape: &[u64]) -> Option<u64> {
        let bytes = nd::product(shape)?.checked_mul(self.data_type.size() as u64)?;
        i64::try_from(bytes).is_ok().then_some(bytes)
    }

    /// A box of fill values.
    ///
    /// Errors: `TooLarge` above `cap`.
    pub(super) fn filled(&self, shape: &[u64], cap: u64) -> Result<Vec<u8>> {
        nd::filled(&self.fill_value, self.capped_len(shape, cap)?)
    }

    /// Errors: `TooLarge` above `cap`.
    fn capped_len(&self, shape: &[u64], cap: u64) -> Result<usize> {
        match self.bytes(shape) {
            Some(bytes) if bytes <= cap => Ok(to_usize(bytes)),
            _ => {
                let message =
                    format!("expected chunks of at most {cap} bytes, found the shape {shape:?}: raise the cap");
                Err(Error::new(ErrorKind::TooLarge, message))
            }
        }
    }
}

impl Endian {
    /// The member "endian" of a codec `bytes`; without one, elements of one byte are meant.
    fn parse(codec: &Extension<'_>, ordered_size: usize) -> Result<Endian> {
        codec.allow(&["endian"])?;
        let Some(value) = codec.get("endian")? else {
            return match ordered_size {
                1 => Ok(Endian::Little),
                _ => codec.need("endian").map(|_| Endian::Little),
            };
        };
        match json::string(value).as_deref() {
            Some("little") => Ok(Endian::Little),
            Some("big") => Ok(Endian::Big),
            _ => Err(codec.wrong("endian", value)),
        }
    }
}

/// Whether this is the codec `bytes`, as it is called or as it was called in drafts.
fn is_bytes(codec: &Extension<'_>) -> bool {
    matches!(codec.name.as_str(), "bytes" | "endian")
}

/// The index codecs of shards: `bytes`, and perhaps `crc32c`.
pub(super) fn parse_index_codecs(value: &RawValue) -> Result<(Endian, bool)> {
    let wrong = || {
        let message = format!("expected the index codecs bytes, then crc32c or none, found {}", value.get());
        Error::new(ErrorKind::Unsupported, message)
    };
    let codecs = json::elements(value).ok_or_else(wrong)?;
    let codecs: Vec<_> = codecs.into_iter().map(|codec| Extension::parse(codec, "codec")).collect::<Result<_>>()?;
    match codecs.as_slice() {
        [bytes] if is_bytes(bytes) => Ok((Endian::parse(bytes, 8)?, false)),
        [bytes, crc32c] if is_bytes(bytes) && crc32c.name == "crc32c" => Ok((Endian::parse(bytes, 8)?, true)),
        _ => Err(wrong()),
    }
}

impl Codecs {
    /// The codecs of a chunk of that shape.
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
                return Err(wrong(&format!("that make bytes of an array once, found \"{}\" behind", codec.name)));
            } else {
                compressors.push(Compressor::parse(&codec)?);
            }
        }
        match serializer {
            Some(serializer) => Ok(Codecs { transpose, serializer, compressors }),
            None => Err(wrong("with bytes or sharding_indexed among them, found neither")),
        }
    }

    /// The length of every encoded chunk of that shape, where it is the same for all.
    pub(super) fn fixed_len(&self, shape: &[u64], elements: &Elements) -> Option<u64> {
        let plain = self.compressors.iter().all(|compressor| *compressor == Compressor::Crc32c);
        match &self.serializer {
            Serializer::Bytes(_) if plain => {
                elements.bytes(shape)?.checked_add((self.compressors.len() * CRC32C_LEN) as u64)
            }
            _ => None,
        }
    }

    /// Whether an encoded chunk is its elements in C order and little endian, and nothing else.
    pub(super) fn is_plain(&self, data_type: DataType) -> bool {
        let in_order = matches!(self.serializer, Serializer::Bytes(Endian::Little)) || data_type.ordered_size() == 1;
        let raw = matches!(self.serializer, Serializer::Bytes(_));
        raw && in_order && self.transpose.is_identity() && self.compressors.is_empty()
    }

    /// The elements of a chunk of that shape, in C order and little endian.
    ///
    /// Errors: `Corrupt`; `TooLarge` if it, or what it is wrapped in, has more than `cap` bytes.
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
                // moved, where decompressing made them already
                let bytes = match decompressed {
                    Some(bytes) => bytes,
                    None => serialized.to_vec(),
                };
                endian.to_little(bytes, elements.data_type)
            }
        };
        self.transpose.inverse().transpose(transposed, &transposed_shape, elements.data_type.size())
    }

    /// What the compressors were given, when it is not `encoded` itself; `plain_len` is its length where that is known.
    pub(super) fn decompress(&self, encoded: &[u8], plain_len: Option<usize>, cap: u64) -> Result<Option<Vec<u8>>> {
        let mut decoded: Option<Vec<u8>> = None;
        for (at, compressor) in self.compressors.iter().enumerate().rev() {
            // what comes before adds checksums only: then the length is known
            let before = self.compressors.get(..at).unwrap_or_default();
            let checksums =
                before.iter().all(|before| *before == Compressor::Crc32c).then_some(before.len() * CRC32C_LEN);
            let expected = plain_len.zip(checksums).map(|(len, checksums)| (len + checksums) as u64);
            decoded = Some(compressor.decode(decoded.as_deref().unwrap_or(encoded), expected, cap)?);
        }
        Ok(decoded)
    }

    /// A chunk from its elements in C order and little endian.
    ///
    /// Errors: `Unsupported` for sharding, which has a writer of its own; `InvalidInput` if the length is another.
    pub(super) fn encode(&self, decoded: &[u8], shape: &[u64], elements: &Elements) -> Result<Vec<u8>> {
        if elements.bytes(shape) != Some(decoded.len() as u64) {
            let message = format!("expected the elements of a chunk of shape {shape:?}, found {} bytes", decoded.len());
            return Err(Error::invalid_input(message));
        }
        let Serializer::Bytes(endian) = &self.serializer else {
            let message = "expected a chunk that is no shard itself, found nested sharding";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let transposed = self.transpose.transpose(decoded.to_vec(), shape, elements.data_type.size())?;
        let mut encoded = endian.to_little(transposed, elements.data_type); // turning over twice is nothing
        for compressor in &self.compressors {
            encoded = compressor.encode(encoded, elements.data_type)?;
        }
        Ok(encoded)
    }
}

impl Endian {
    /// From this order to little endian, or from there to this one.
    pub(super) fn to_little(self, mut bytes: Vec<u8>, data_type: DataType) -> Vec<u8> {
        let size = data_type.ordered_size();
        if self == Endian::Big && size > 1 {
            bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        bytes
    }
}

fn parse_transpose(codec: &Extension<'_>, dimensions: usize) -> Result<Permutation> {
    codec.allow(&["order"])?;
    let value = codec.need("order")?;
    let order = match json::string(value).as_deref() {
        Some("C") => Some((0..dimensions).collect()), // names of drafts
        Some("F") => Some((0..dimensions).rev().collect()),
        _ => numbers(value).map(|order| order.into_iter().map(to_usize).collect::<Vec<_>>()),
    };
    let permutation = order.filter(|order| order.len() == dimensions).and_then(Permutation::new);
    permutation.ok_or_else(|| codec.wrong("order", value))
}

impl Compressor {
    fn parse(codec: &Extension<'_>) -> Result<Compressor> {
        // how something was compressed is told by the bytes themselves
        match codec.name.as_str() {
            "gzip" => Ok(Self::Gzip),
            "zstd" => Ok(Self::Zstd),
            "blosc" => Ok(Self::Blosc(shuffle_of(codec)?)),
            "crc32c" => codec.allow(&[]).map(|()| Self::Crc32c),
            _ => Err(codec.unknown(KNOWN)),
        }
    }

    /// What was encoded, at most `cap` bytes; `expected` is its length where that is known.
    fn decode(self, encoded: &[u8], expected: Option<u64>, cap: u64) -> Result<Vec<u8>> {
        let bound = expected.unwrap_or(cap);
        let decoded = match self {
            Self::Gzip => gzip::decode(encoded, bound),
            Self::Zstd => zstd::decode(encoded, bound),
            Self::Blosc(_) => blosc::decode(encoded, bound),
            Self::Crc32c => without_crc32c(encoded).map(<[u8]>::to_vec),
        };
        let decoded = decoded.map_err(|error| match (error.kind(), expected) {
            // not the cap is too low: the chunk is wrong
            (ErrorKind::TooLarge, Some(expected)) => {
                Error::corrupt(format!("expected a chunk of {expected} bytes, found one that decodes to more"))
            }
            _ => error,
        })?;
        match expected {
            Some(expected) if decoded.len() as u64 != expected => {
                Err(Error::corrupt(format!("expected a chunk of {expected} bytes, found {}", decoded.len())))
            }
            _ => Ok(decoded),
        }
    }

    fn encode(self, mut bytes: Vec<u8>, data_type: DataType) -> Result<Vec<u8>> {
        match self {
            Self::Gzip => {
                let mut encoded = Vec::new();
                GzipEncoder::new().encode(&bytes, &mut encoded);
                Ok(encoded)
            }
            Self::Zstd => Ok(zstd::encode(&bytes)),
            Self::Blosc(shuffle) => blosc::Encoder::new().typesize(data_type.size()).shuffle(shuffle).encode(&bytes),
            Self::Crc32c => {
                bytes.extend_from_slice(&crc32c::of(&bytes).to_le_bytes());
                Ok(bytes)
            }
        }
    }
}

/// How chunks are to be shuffled before Blosc compresses them; those that are read tell it themselves.
fn shuffle_of(codec: &Extension<'_>) -> Result<Shuffle> {
    Ok(match codec.get("shuffle")?.and_then(json::string).as_deref() {
        Some("noshuffle") => Shuffle::None,
        Some("bitshuffle") => Shuffle::Bits,
        _ => Shuffle::Bytes,
    })
}

/// The bytes before a checksum, which must match.
pub(super) fn without_crc32c(encoded: &[u8]) -> Result<&[u8]> {
    let Some((bytes, stated)) = encoded.split_last_chunk::<CRC32C_LEN>() else {
        let message = format!("expected a checksum of {CRC32C_LEN} bytes, found {} bytes", encoded.len());
        return Err(Error::corrupt(message));
    };
    let (stated, found) = (u32::from_le_bytes(*stated), crc32c::of(bytes));
    if stated != found {
        return Err(Error::corrupt(format!("expected bytes with CRC-32C {stated:08x}, found {found:08x}")));
    }
    Ok(bytes)
}
