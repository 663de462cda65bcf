//! The five codecs of Blosc streams.

use std::fmt;

use ruzstd::decoding::FrameDecoder;
use sharddb_format::{Error, Result};
use zlib_rs::{Inflate, InflateFlush, Status};

use crate::blosc::blosclz;

/// The largest window of zlib, as a power of two. A decoder accepts any smaller one.
pub(crate) const ZLIB_WINDOW_BITS: u8 = 15;

/// Window size that a zstd frame may declare whatever its content size (RFC 8878, 3.1.1.1.2).
const ZSTD_WINDOW: u64 = 8 << 20;

/// The codec of the streams of a chunk. See [`Header`](super::Header) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// BloscLZ, Blosc's own codec, derived from FastLZ.
    BloscLz,
    /// LZ4. LZ4HC produces the same format.
    Lz4,
    /// Snappy, raw format without framing.
    Snappy,
    /// Deflate in the zlib format.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Codec {
    /// Returns Blosc's name of the codec (`cname`).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BloscLz => "blosclz",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    pub(super) fn from_format(format: u8) -> Result<Codec> {
        match format {
            0 => Ok(Self::BloscLz),
            1 => Ok(Self::Lz4),
            2 => Ok(Self::Snappy),
            3 => Ok(Self::Zlib),
            4 => Ok(Self::Zstd),
            _ => Err(Error::corrupt(format!("expected a Blosc codec from 0 to 4, found codec {format}"))),
        }
    }

    /// Upper bound on the decoded bytes per encoded byte.
    fn max_ratio(self) -> usize {
        match self {
            Self::BloscLz | Self::Lz4 => 256,
            Self::Snappy => 64,
            Self::Zlib => 1032,
            Self::Zstd => 32 << 10,
        }
    }

    /// Refuses a stream that is too short to decode to `decoded_len` bytes.
    pub(super) fn check_ratio(self, encoded_len: usize, decoded_len: usize) -> Result<()> {
        let most = encoded_len.saturating_mul(self.max_ratio()).saturating_add(64);
        if most >= decoded_len {
            Ok(())
        } else {
            Err(Error::corrupt(format!(
                "expected {decoded_len} bytes, found a stream of {encoded_len} bytes, of which {self} cannot make more \
                 than {most}"
            )))
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Decompresses the streams of a chunk. Its state is reused between streams.
pub(super) enum Decoder {
    BloscLz,
    Lz4,
    Snappy(snap::raw::Decoder),
    Zlib(Box<Inflate>),
    Zstd(Box<FrameDecoder>),
}

impl Decoder {
    pub(super) fn new(codec: Codec) -> Decoder {
        match codec {
            Codec::BloscLz => Self::BloscLz,
            Codec::Lz4 => Self::Lz4,
            Codec::Snappy => Self::Snappy(snap::raw::Decoder::new()),
            Codec::Zlib => Self::Zlib(Box::new(Inflate::new(true, ZLIB_WINDOW_BITS))),
            Codec::Zstd => Self::Zstd(Box::new(FrameDecoder::new())),
        }
    }

    /// Decompresses a stream, which must fill `decoded` exactly.
    pub(super) fn decode(&mut self, stream: &[u8], decoded: &mut [u8]) -> Result<()> {
        let expected = decoded.len();
        let found = match self {
            Self::BloscLz => blosclz::decode(stream, decoded).map_err(str::to_string),
            Self::Lz4 => lz4_flex::block::decompress_into(stream, decoded).map_err(|error| error.to_string()),
            Self::Snappy(snappy) => snappy.decompress(stream, decoded).map_err(|error| error.to_string()),
            Self::Zlib(inflate) => inflate_all(inflate, stream, decoded),
            Self::Zstd(zstd) => unzstd(zstd, stream, decoded),
        };
        let name = self.codec();
        match found {
            Ok(found) if found == expected => Ok(()),
            Ok(found) => Err(Error::corrupt(format!("expected {expected} bytes of {name}, found {found}"))),
            Err(reason) => Err(Error::corrupt(format!("expected {expected} bytes of {name}, found: {reason}"))),
        }
    }

    fn codec(&self) -> Codec {
        match self {
            Self::BloscLz => Codec::BloscLz,
            Self::Lz4 => Codec::Lz4,
            Self::Snappy(_) => Codec::Snappy,
            Self::Zlib(_) => Codec::Zlib,
            Self::Zstd(_) => Codec::Zstd,
        }
    }
}

fn inflate_all(inflate: &mut Inflate, stream: &[u8], decoded: &mut [u8]) -> Result<usize, String> {
    inflate.reset(true);
    match inflate.decompress(stream, decoded, InflateFlush::Finish) {
        Ok(Status::StreamEnd) => Ok(usize::try_from(inflate.total_out()).unwrap_or(usize::MAX)),
        Ok(_) => Err("no end of the stream".to_string()),
        Err(error) => Err(error.as_str().to_string()),
    }
}

fn unzstd(zstd: &mut FrameDecoder, stream: &[u8], decoded: &mut [u8]) -> Result<usize, String> {
    zstd.set_max_window_size(ZSTD_WINDOW.max(decoded.len() as u64));
    zstd.decode_all(stream, decoded).map_err(|error| error.to_string())
}
