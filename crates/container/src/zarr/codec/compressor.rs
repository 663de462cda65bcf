//! The bytes-to-bytes codecs: compressors and the checksum.

use sharddb_format::internal::gzip::{self, GzipEncoder};
use sharddb_format::internal::json;
use sharddb_format::{Error, ErrorKind, Result};

use crate::blosc::{self, Shuffle};
use crate::zarr::codec::KNOWN;
use crate::zarr::data_type::DataType;
use crate::zarr::extension::Extension;
use crate::{crc32c, zstd};

/// A bytes-to-bytes codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::zarr) enum Compressor {
    Gzip,
    Zstd,
    Blosc(Shuffle),
    Crc32c,
}

impl Compressor {
    pub(super) fn parse(codec: &Extension<'_>) -> Result<Compressor> {
        // the compressed bytes are self-describing, so other parameters are not needed
        match codec.name.as_str() {
            "gzip" => Ok(Self::Gzip),
            "zstd" => Ok(Self::Zstd),
            "blosc" => Ok(Self::Blosc(shuffle_of(codec)?)),
            "crc32c" => codec.allow(&[]).map(|()| Self::Crc32c),
            _ => Err(codec.unknown(KNOWN)),
        }
    }

    /// Decodes to at most `cap` bytes. `expected` is the decoded length if it is known.
    pub(super) fn decode(self, encoded: &[u8], expected: Option<u64>, cap: u64) -> Result<Vec<u8>> {
        let bound = expected.unwrap_or(cap);
        let decoded = match self {
            Self::Gzip => gzip::decode(encoded, bound),
            Self::Zstd => zstd::decode(encoded, bound),
            Self::Blosc(_) => blosc::decode(encoded, bound),
            Self::Crc32c => without_crc32c(encoded).map(<[u8]>::to_vec),
        };
        let decoded = decoded.map_err(|error| match (error.kind(), expected) {
            // the limit was the expected length, so the chunk is corrupt
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

    pub(super) fn encode(self, mut bytes: Vec<u8>, data_type: DataType) -> Result<Vec<u8>> {
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

/// Returns the shuffle for new Blosc chunks. When reading, the header of the chunk states it.
fn shuffle_of(codec: &Extension<'_>) -> Result<Shuffle> {
    Ok(match codec.get("shuffle")?.and_then(json::string).as_deref() {
        Some("noshuffle") => Shuffle::None,
        Some("bitshuffle") => Shuffle::Bits,
        _ => Shuffle::Bytes,
    })
}

/// Returns the bytes before the checksum, which is compared.
fn without_crc32c(encoded: &[u8]) -> Result<&[u8]> {
    let Some((bytes, stated)) = encoded.split_last_chunk::<{ crc32c::LEN }>() else {
        let message = format!("expected a checksum of {} bytes, found {} bytes", crc32c::LEN, encoded.len());
        return Err(Error::corrupt(message));
    };
    let (stated, found) = (u32::from_le_bytes(*stated), crc32c::of(bytes));
    if stated != found {
        return Err(Error::corrupt(format!("expected bytes with CRC-32C {stated:08x}, found {found:08x}")));
    }
    Ok(bytes)
}
