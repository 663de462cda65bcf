//! gzip, both ways: one member (RFC 1952) for a value or a minishard index.
//!
//! Decoding is strict: a second member, trailing bytes, and a wrong CRC, FHCRC or length are `Corrupt`, and nothing is
//! decoded beyond a cap. flate2 decodes. Encoding uses zlib-rs directly, because the encoded bytes are a promise and another
//! crate of the program can switch the backend of flate2. Encoded bytes depend on the input alone: mtime 0, OS 255, one
//! level, and input in pieces of one size, whether it is in memory or a stream.

use std::fmt;
use std::io::{self, Read};

use flate2::bufread::{GzDecoder, ZlibDecoder};
use zlib_rs::{Deflate, DeflateFlush, Status};

use crate::error::{Error, ErrorKind, Result};

const LEVEL: i32 = 6;
const WINDOW_BITS: u8 = 15;

/// Input is fed to the compressor in pieces of this size.
const PIECE: usize = 64 << 10;

/// ID1 ID2 CM FLG MTIME(4) XFL OS
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// The first buffer, since the data may state any length.
const FIRST_BUFFER: usize = 4096;

/// Deflate cannot expand by more than this.
const MAX_RATIO: usize = 1032;

/// Default cap on a decoded gzip value, and on a raw value that is read into memory. Writers refuse gzip values above it.
pub const DEFAULT_MAX_VALUE_BYTES: u64 = 1 << 30;

/// Default cap on a decoded minishard index. Writers refuse gzip indexes above it.
pub const DEFAULT_MAX_INDEX_BYTES: u64 = 256 << 20;

/// The most bytes that `len` bytes are encoded to: deflate falls back to stored blocks.
pub fn max_encoded_len(len: u64) -> u64 {
    len.saturating_add(len >> 9).saturating_add(64)
}

/// The most stored bytes that readers accept for a value of `len` bytes: the worst case of deflate, and 1 MiB of header
/// fields.
pub fn max_stored_len(len: u64) -> u64 {
    max_encoded_len(len).saturating_add(1 << 20)
}

/// Compresses values one after another; reuses its state.
pub struct GzipEncoder {
    deflate: Deflate,
    piece: Box<[u8]>,
}

impl fmt::Debug for GzipEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GzipEncoder")
    }
}

impl GzipEncoder {
    pub fn new() -> GzipEncoder {
        GzipEncoder { deflate: Deflate::new(LEVEL, false, WINDOW_BITS), piece: vec![0; PIECE].into() }
    }

    /// Appends `bytes` as one gzip member.
    pub fn encode(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) {
        let mut append = |piece: &[u8]| {
            encoded.extend_from_slice(piece);
            Ok(())
        };
        let in_memory = self.encode_reader(&mut &bytes[..], bytes.len() as u64, &mut append, &|error| error);
        debug_assert!(in_memory.is_ok(), "a slice reads to its end and a Vec takes all");
    }

    /// Compresses exactly `len` bytes of `reader` as one gzip member, handing the pieces of it to `sink`. Returns the error of
    /// `sink`, or what `failed` makes of that of the reader.
    pub fn encode_reader<E>(
        &mut self,
        reader: &mut dyn Read,
        len: u64,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
        failed: &dyn Fn(io::Error) -> E,
    ) -> Result<(), E> {
        self.deflate.reset();
        let mut crc = crc32fast::Hasher::new();
        let mut left = len;
        sink(&HEADER)?;
        loop {
            let take = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let piece = &mut self.piece[..take];
            reader.read_exact(piece).map_err(failed)?;
            crc.update(piece);
            left -= take as u64;
            let flush = if left == 0 { DeflateFlush::Finish } else { DeflateFlush::NoFlush };
            deflate_piece(&mut self.deflate, piece, flush, sink, failed)?;
            if left == 0 {
                break;
            }
        }
        sink(&crc.finalize().to_le_bytes())?;
        #[expect(clippy::cast_possible_truncation, reason = "ISIZE is the length modulo 2^32 (RFC 1952)")]
        sink(&(len as u32).to_le_bytes())
    }
}

/// Feeds one piece to the compressor and hands on all that comes out.
fn deflate_piece<E>(
    deflate: &mut Deflate,
    mut piece: &[u8],
    flush: DeflateFlush,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    failed: &dyn Fn(io::Error) -> E,
) -> Result<(), E> {
    let mut output = [0; 16 << 10];
    loop {
        let (before_in, before_out) = (deflate.total_in(), deflate.total_out());
        let status = deflate.compress(piece, &mut output, flush);
        let status = status.map_err(|error| failed(io::Error::other(error.as_str())))?;
        let taken = to_usize(deflate.total_in() - before_in);
        let given = to_usize(deflate.total_out() - before_out);
        piece = piece.get(taken..).unwrap_or_default();
        sink(&output[..given])?;
        match flush {
            DeflateFlush::Finish if status != Status::StreamEnd => {}
            DeflateFlush::NoFlush if !piece.is_empty() || given == output.len() => {}
            _ => return Ok(()),
        }
    }
}

/// Decompresses one gzip member that must fill `encoded`.
///
/// Errors: `Corrupt` if the header, the data, the checksum or the length is wrong, or if bytes follow the member;
/// `TooLarge` if it decodes to more than `cap` bytes.
pub fn decode(encoded: &[u8], cap: u64) -> Result<Vec<u8>> {
    let stated_len = encoded.last_chunk().map_or(0, |isize| u32::from_le_bytes(*isize));
    let mut decoder = GzDecoder::new(encoded);
    let decoded = read_at_most(&mut decoder, likely_len(stated_len, encoded.len()), cap).map_err(|error| {
        let is_zlib = is_zlib(encoded) && error.kind() == ErrorKind::Corrupt;
        if is_zlib { Error::corrupt("expected gzip data, found a zlib stream") } else { error }
    })?;
    match decoder.get_ref().len() {
        0 => Ok(decoded),
        extra => Err(Error::corrupt(format!("expected one gzip member, found {extra} bytes after it"))),
    }
}

/// The length of the gzip member at the beginning of `encoded`, with anything after it.
///
/// Adds the number of bytes that were read and decoded to `work`, also if there is no whole member.
///
/// Errors: those of [`decode`], except for bytes after the member.
pub fn member_len(encoded: &[u8], cap: u64, work: &mut u64) -> Result<usize> {
    let mut decoder = GzDecoder::new(encoded);
    let mut buffer = [0; 8 << 10];
    let mut decoded = 0;
    loop {
        let read = decoder.read(&mut buffer).map_err(corrupt);
        let taken = encoded.len() - decoder.get_ref().len();
        decoded += *read.as_ref().unwrap_or(&0) as u64;
        let is_over = !matches!(read, Ok(1..)) || decoded > cap;
        if is_over {
            *work = work.saturating_add(taken as u64).saturating_add(decoded);
            return if decoded > cap { Err(too_large(cap)) } else { read.map(|_| taken) };
        }
    }
}

/// Decompresses one zlib stream (RFC 1950) that must fill `encoded`: some foreign writers store it for gzip.
///
/// Errors: those of [`decode`].
pub fn decode_zlib(encoded: &[u8], cap: u64) -> Result<Vec<u8>> {
    let mut decoder = ZlibDecoder::new(encoded);
    let decoded = read_at_most(&mut decoder, encoded.len().saturating_mul(4), cap)?;
    match decoder.get_ref().len() {
        0 => Ok(decoded),
        extra => Err(Error::corrupt(format!("expected one zlib stream, found {extra} bytes after it"))),
    }
}

/// Whether bytes begin like a zlib stream (RFC 1950, 2.2).
pub fn is_zlib(encoded: &[u8]) -> bool {
    encoded.first_chunk().is_some_and(|head| head[0] & 0x0f == 8 && u16::from_be_bytes(*head).is_multiple_of(31))
}

/// The length that a trailer states, if deflate can make that many bytes: a hint for the size of the buffer.
fn likely_len(stated_len: u32, encoded_len: usize) -> usize {
    usize::try_from(stated_len).unwrap_or(usize::MAX).min(encoded_len.saturating_mul(MAX_RATIO))
}

/// All bytes of a decoder, in a buffer that grows to `likely` bytes once some are decoded, and then up to the cap.
fn read_at_most(decoder: &mut impl Read, likely: usize, cap: u64) -> Result<Vec<u8>> {
    let cap = usize::try_from(cap).unwrap_or(usize::MAX);
    let mut decoded = Vec::new();
    let mut made = 0;
    grow(&mut decoded, likely.min(FIRST_BUFFER).min(cap))?;
    loop {
        // with the buffer full, one more byte tells the end of the data from more of it
        let mut one_more = [0];
        let room = decoded.get_mut(made..).filter(|room| !room.is_empty());
        let is_full = room.is_none();
        match (decoder.read(room.unwrap_or(&mut one_more)).map_err(corrupt)?, is_full) {
            (0, _) => {
                decoded.truncate(made);
                return Ok(decoded);
            }
            (read, false) => made += read,
            (_, true) if made >= cap => return Err(too_large(cap as u64)),
            (_, true) => {
                grow(&mut decoded, made.saturating_mul(2).max(likely).max(FIRST_BUFFER).min(cap))?;
                if let Some(next) = decoded.get_mut(made) {
                    [*next] = one_more;
                }
                made += 1;
            }
        }
    }
}

/// Grows the buffer to `len` bytes.
fn grow(decoded: &mut Vec<u8>, len: usize) -> Result<()> {
    decoded.try_reserve_exact(len - decoded.len()).map_err(|_| {
        Error::new(ErrorKind::TooLarge, format!("no memory for {len} bytes of decoded data: lower the cap"))
    })?;
    decoded.resize(len, 0);
    Ok(())
}

#[cold]
fn too_large(cap: u64) -> Error {
    let message = format!("expected at most {cap} bytes of decoded data, found more: raise the cap");
    Error::new(ErrorKind::TooLarge, message)
}

/// What a decoder says of bytes in memory, where only their content can be wrong.
#[cold]
fn corrupt(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::corrupt("expected gzip data to its end, found it cut short"),
        _ => Error::corrupt(format!("expected gzip data: {error}")),
    }
}

/// Totals of one stream in memory fit.
fn to_usize(total: u64) -> usize {
    usize::try_from(total).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: u64 = 1 << 20;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        GzipEncoder::new().encode(bytes, &mut out);
        out
    }

    /// Written by Python: gzip.compress(b"hello hello hello", 9, mtime=0).
    const PYTHON: [u8; 28] = [
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, // header
        0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0xc8, 0x40, 0x90, 0x00, // deflated
        0x80, 0x88, 0xf9, 0xe5, 0x11, 0x00, 0x00, 0x00, // CRC32, ISIZE
    ];

    #[test]
    fn round_trips_in_memory_and_as_a_stream_with_the_same_bytes() {
        let noise: Vec<u8> =
            (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0] % 23).collect();
        let mut encoder = GzipEncoder::new();
        for len in [0, 1, 17, PIECE - 1, PIECE, PIECE + 1, 300_000] {
            let mut streamed = Vec::new();
            let mut sink = |piece: &[u8]| {
                streamed.extend_from_slice(piece);
                Ok(())
            };
            encoder.encode_reader(&mut &noise[..len], len as u64, &mut sink, &|error| error).unwrap();
            assert_eq!(streamed, encoded(&noise[..len]), "length {len}");
            assert_eq!(streamed[..10], HEADER);
            assert_eq!(decode(&streamed, CAP).unwrap(), &noise[..len]);
            assert!(streamed.len() as u64 <= max_encoded_len(len as u64));
        }
    }

    #[test]
    fn reads_every_optional_header_field() {
        let deflated = &encoded(b"payload")[10..];
        let mut fancy = vec![0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 1, 2, 3, 4, 0, 3];
        fancy.extend_from_slice(b"\x03\0abcname\0comment\0");
        let crc = crc32fast::hash(&fancy).to_le_bytes();
        fancy.extend_from_slice(&crc[..2]);
        let header_len = fancy.len();
        fancy.extend_from_slice(deflated);
        assert_eq!(decode(&fancy, CAP).unwrap(), b"payload");
        for cut in 0..header_len {
            assert_eq!(decode(&fancy[..cut], CAP).unwrap_err().kind(), ErrorKind::Corrupt, "cut at {cut}");
        }
        fancy[header_len - 1] ^= 1;
        assert_eq!(decode(&fancy, CAP).unwrap_err().kind(), ErrorKind::Corrupt, "FHCRC");
    }

    #[test]
    fn every_cut_and_every_flip_of_a_checked_byte_is_corrupt() {
        let whole = encoded(b"some bytes that are worth a checksum, some bytes");
        for cut in 0..whole.len() {
            assert_eq!(decode(&whole[..cut], CAP).unwrap_err().kind(), ErrorKind::Corrupt, "cut at {cut}");
        }
        for at in (0..4).chain(10..whole.len()) {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                match decode(&flipped, CAP) {
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at} bit {bit}"),
                    // the one flip that leaves the content alone: padding behind the last deflate block
                    Ok(decoded) => assert_eq!(decoded, decode(&whole, CAP).unwrap(), "byte {at} bit {bit}"),
                }
            }
        }
    }

    #[test]
    fn second_member_and_trailing_bytes_are_corrupt() {
        for behind in [encoded(b"two"), vec![0], vec![0; 512], b"garbage".to_vec()] {
            let bytes = [encoded(b"one"), behind].concat();
            assert_eq!(decode(&bytes, CAP).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn the_first_member_is_told_from_what_follows() {
        let one = encoded(b"one");
        assert_eq!(member_len(&[&one[..], b"more"].concat(), CAP, &mut 0).unwrap(), one.len());
        assert!(member_len(&one[..one.len() - 9], CAP, &mut 0).is_err());
    }

    #[test]
    fn stops_at_the_cap_and_not_before() {
        let whole = encoded(&vec![7; 100_000]);
        assert_eq!(decode(&whole, 100_000).unwrap().len(), 100_000);
        assert_eq!(decode(&whole, 99_999).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(decode(&whole, 0).unwrap_err().kind(), ErrorKind::TooLarge);
        let mut lying = whole;
        let isize_at = lying.len() - 4;
        lying[isize_at..].copy_from_slice(&10u32.to_le_bytes());
        for cap in [CAP, 100_000] {
            assert_eq!(decode(&lying, cap).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let mut lying = encoded(&[7; 50]);
        let isize_at = lying.len() - 4;
        lying[isize_at..].copy_from_slice(&10u32.to_le_bytes());
        for cap in 50..60 {
            assert_eq!(decode(&lying, cap).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert_eq!(decode(&lying, 49).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(decode(&encoded(b""), 0).unwrap(), b"");
    }

    #[test]
    fn reads_what_python_wrote() {
        assert_eq!(decode(&PYTHON, CAP).unwrap(), b"hello hello hello");
        assert!(decode(b"\x78\x9c\x03\0\0\0\0\x01 more bytes", CAP).unwrap_err().message().contains("zlib"));
    }

    /// Written by Python: zlib.compress(b"hello hello hello").
    #[test]
    fn reads_zlib_where_it_is_asked_for() {
        let zlib = b"\x78\x9c\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x00\x3a\x2e\x06\x7d";
        assert!(is_zlib(zlib) && !is_zlib(&PYTHON) && !is_zlib(b"x"));
        assert_eq!(decode_zlib(zlib, CAP).unwrap(), b"hello hello hello");
        assert_eq!(decode_zlib(zlib, 16).unwrap_err().kind(), ErrorKind::TooLarge);
        assert!(decode_zlib(&PYTHON, CAP).is_err());
        assert!(decode_zlib(&[&zlib[..], b"x"].concat(), CAP).is_err());
        for at in 0..zlib.len() {
            assert!(decode_zlib(&zlib[..at], CAP).is_err(), "cut at {at}");
            let mut changed = *zlib;
            changed[at] ^= 1;
            assert!(decode_zlib(&changed, CAP).is_err(), "byte {at}");
        }
    }
}
