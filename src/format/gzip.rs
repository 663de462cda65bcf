//! gzip, both ways: one member (RFC 1952) for a value or a minishard index.
//!
//! Strict where other readers of the format are not: a second member, trailing bytes, a wrong CRC, FHCRC or
//! length are `Corrupt`, and nothing is inflated past a cap. What is written depends on the bytes alone: mtime 0,
//! OS 255, one level, and input fed in pieces of one size whether it is in memory or a stream.

use std::io::{self, Read};

use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateFlush, Status};

use crate::error::{Error, ErrorKind, Result};

const LEVEL: i32 = 6;
const WINDOW_BITS: u8 = 15;

/// Input is fed to the compressor in pieces of this size.
const PIECE: usize = 64 << 10;

/// ID1 ID2 CM FLG MTIME(4) XFL OS
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// CRC32 ISIZE
const TRAILER_LEN: usize = 8;

/// Deflate cannot expand by more than this.
const MAX_RATIO: usize = 1032;

/// The most bytes that readers decode a gzip value to by default; writers store none of more.
pub(crate) const DEFAULT_MAX_VALUE_BYTES: u64 = 1 << 30;

/// The most bytes that readers decode a gzip minishard index to by default; writers store none of more.
pub(crate) const DEFAULT_MAX_INDEX_BYTES: u64 = 256 << 20;

/// The most that `len` bytes are encoded to: deflate falls back to stored blocks.
pub(crate) fn max_encoded_len(len: u64) -> u64 {
    len.saturating_add(len >> 9).saturating_add(64)
}

/// The most that a value of `len` bytes is stored in, whoever encoded it: with room for the names and comments that a
/// header may have.
pub(crate) fn max_stored_len(len: u64) -> u64 {
    max_encoded_len(len).saturating_add(1 << 20)
}

/// Compresses values one after another; reuses its state.
pub(crate) struct GzipEncoder {
    deflate: Deflate,
    piece: Box<[u8]>,
}

impl GzipEncoder {
    pub(crate) fn new() -> GzipEncoder {
        GzipEncoder { deflate: Deflate::new(LEVEL, false, WINDOW_BITS), piece: vec![0; PIECE].into() }
    }

    /// Appends `bytes` as one gzip member.
    pub(crate) fn encode(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) {
        let in_memory = self.encode_reader(&mut &bytes[..], bytes.len() as u64, &mut |piece| {
            encoded.extend_from_slice(piece);
            Ok(())
        });
        debug_assert!(in_memory.is_ok(), "a slice reads to its end and a Vec takes all");
    }

    /// Compresses exactly `len` bytes of `reader` as one gzip member, handing the pieces of it to `sink`.
    pub(crate) fn encode_reader(
        &mut self,
        reader: &mut dyn Read,
        len: u64,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.deflate.reset();
        let mut crc = crc32fast::Hasher::new();
        let mut left = len;
        sink(&HEADER)?;
        loop {
            let take = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let piece = &mut self.piece[..take];
            reader.read_exact(piece)?;
            crc.update(piece);
            left -= take as u64;
            let flush = if left == 0 { DeflateFlush::Finish } else { DeflateFlush::NoFlush };
            deflate_piece(&mut self.deflate, piece, flush, sink)?;
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
fn deflate_piece(
    deflate: &mut Deflate,
    mut piece: &[u8],
    flush: DeflateFlush,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut output = [0; 16 << 10];
    loop {
        let (before_in, before_out) = (deflate.total_in(), deflate.total_out());
        let status = deflate.compress(piece, &mut output, flush).map_err(|error| io::Error::other(error.as_str()))?;
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
/// Errors: `Corrupt` if anything in or behind it is wrong, `TooLarge` if it holds more than `cap` bytes.
pub(crate) fn decode(encoded: &[u8], cap: u64) -> Result<Vec<u8>> {
    let deflated = encoded.get(header_len(encoded)?..).unwrap_or_default();
    let Some((_, trailer)) = deflated.split_last_chunk::<TRAILER_LEN>() else {
        return Err(cut_short());
    };
    let [c0, c1, c2, c3, l0, l1, l2, l3] = *trailer;
    let stated_len = u32::from_le_bytes([l0, l1, l2, l3]);

    let cap = usize::try_from(cap).unwrap_or(usize::MAX);
    // what the trailer states is a hint only: never more than deflate could make of these bytes
    let likely = (stated_len as usize).min(deflated.len().saturating_mul(MAX_RATIO)).min(cap);
    let (decoded, taken) = inflate(&mut Inflate::new(false, WINDOW_BITS), deflated, likely, cap)?;

    let behind = deflated.len() - taken;
    if behind < TRAILER_LEN {
        return Err(cut_short());
    }
    if behind > TRAILER_LEN {
        let extra = behind - TRAILER_LEN;
        return Err(Error::corrupt(format!("expected one gzip member, found {extra} bytes behind it")));
    }
    let (stated_crc, crc) = (u32::from_le_bytes([c0, c1, c2, c3]), crc32fast::hash(&decoded));
    if stated_crc != crc {
        let message = format!("expected gzip data with CRC-32 {stated_crc:08x}, found {crc:08x}");
        return Err(Error::corrupt(message));
    }
    #[expect(clippy::cast_possible_truncation, reason = "ISIZE is the length modulo 2^32 (RFC 1952)")]
    if stated_len != decoded.len() as u32 {
        let message = format!("expected gzip data of length {stated_len}, found {}", decoded.len());
        return Err(Error::corrupt(message));
    }
    Ok(decoded)
}

/// The length of the gzip member that `encoded` begins with, whatever follows; its sums are not compared.
///
/// Adds to `work` how many bytes were inflated and made, also where that ends with an error.
pub(crate) fn member_len(encoded: &[u8], cap: u64, work: &mut u64) -> Result<usize> {
    let header = header_len(encoded)?;
    let cap = usize::try_from(cap).unwrap_or(usize::MAX);
    let mut state = Inflate::new(false, WINDOW_BITS);
    let inflated = inflate(&mut state, encoded.get(header..).unwrap_or_default(), 0, cap);
    *work = work.saturating_add(state.total_in()).saturating_add(state.total_out());
    let (_, taken) = inflated?;
    Ok(header + taken + TRAILER_LEN)
}

/// Decompresses one zlib stream (RFC 1950) that must fill `encoded`: what a writer that is not of ours puts for gzip.
///
/// Errors: as of [`decode`].
pub(crate) fn decode_zlib(encoded: &[u8], cap: u64) -> Result<Vec<u8>> {
    let cap = usize::try_from(cap).unwrap_or(usize::MAX);
    let likely = encoded.len().saturating_mul(4).min(cap);
    let (decoded, taken) = inflate(&mut Inflate::new(true, WINDOW_BITS), encoded, likely, cap)?; // compares the Adler-32
    match encoded.len() - taken {
        0 => Ok(decoded),
        extra => Err(Error::corrupt(format!("expected one zlib stream, found {extra} bytes behind it"))),
    }
}

/// Whether bytes begin as a zlib stream does (RFC 1950, 2.2).
pub(crate) fn is_zlib(encoded: &[u8]) -> bool {
    encoded.first_chunk().is_some_and(|head| head[0] & 0x0f == 8 && u16::from_be_bytes(*head).is_multiple_of(31))
}

/// Inflates a deflate stream; gives the bytes and how much of the input they took.
fn inflate(inflate: &mut Inflate, deflated: &[u8], likely: usize, cap: usize) -> Result<(Vec<u8>, usize)> {
    let mut decoded = zeroed(likely)?;
    loop {
        let (taken, made) = (to_usize(inflate.total_in()), to_usize(inflate.total_out()));
        let mut one_more = [0];
        // with the buffer full at the cap, a byte of room tells the end of the stream from too much of it
        let output = match decoded.get_mut(made..) {
            Some(output) if !output.is_empty() => output,
            _ => &mut one_more[..],
        };
        let input = deflated.get(taken..).unwrap_or_default();
        let status = inflate
            .decompress(input, output, InflateFlush::NoFlush)
            .map_err(|error| Error::corrupt(format!("expected deflated data, found: {}", error.as_str())))?;
        let (now_taken, now_made) = (to_usize(inflate.total_in()), to_usize(inflate.total_out()));
        if now_made > decoded.len() {
            if now_made > cap {
                let message = format!("expected at most {cap} bytes of decoded data, found more: raise the cap");
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            let [byte] = one_more;
            grow(&mut decoded, cap)?;
            if let Some(place) = decoded.get_mut(made) {
                *place = byte;
            }
        }
        if status == Status::StreamEnd {
            decoded.truncate(now_made);
            return Ok((decoded, now_taken));
        }
        if (now_taken, now_made) == (taken, made) {
            return Err(cut_short());
        }
    }
}

fn zeroed(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| {
        Error::new(ErrorKind::TooLarge, format!("no memory for {len} bytes of decoded data: lower the cap"))
    })?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Doubles the buffer, up to the cap.
fn grow(decoded: &mut Vec<u8>, cap: usize) -> Result<()> {
    let len = decoded.len().saturating_mul(2).max(4096).min(cap);
    let more = len.saturating_sub(decoded.len());
    decoded.try_reserve_exact(more).map_err(|_| {
        Error::new(ErrorKind::TooLarge, format!("no memory for {len} bytes of decoded data: lower the cap"))
    })?;
    decoded.resize(len.max(decoded.len()), 0);
    Ok(())
}

/// The length of a member's header (RFC 1952, 2.3).
fn header_len(encoded: &[u8]) -> Result<usize> {
    const FHCRC: u8 = 2;
    const FEXTRA: u8 = 4;
    const FNAME: u8 = 8;
    const FCOMMENT: u8 = 16;
    const RESERVED: u8 = 0xe0;

    let Some((&[id1, id2, method, flags, ..], _)) = encoded.split_first_chunk::<10>() else {
        return Err(cut_short());
    };
    if [id1, id2] != [0x1f, 0x8b] {
        let zlib = if is_zlib(encoded) { " (a zlib stream?)" } else { "" };
        return Err(Error::corrupt(format!("expected gzip data, 1f 8b, found {id1:02x} {id2:02x}{zlib}")));
    }
    if method != 8 {
        return Err(Error::corrupt(format!("expected gzip compression method 8, found {method}")));
    }
    if flags & RESERVED != 0 {
        return Err(Error::corrupt(format!("expected gzip flags without reserved bits, found {flags:#04x}")));
    }
    let mut len = HEADER.len();
    let rest = |len: usize| encoded.get(len..).ok_or_else(cut_short);
    if flags & FEXTRA != 0 {
        let (extra_len, _) = rest(len)?.split_first_chunk::<2>().ok_or_else(cut_short)?;
        len += 2 + usize::from(u16::from_le_bytes(*extra_len));
    }
    for flag in [FNAME, FCOMMENT] {
        if flags & flag != 0 {
            len += 1 + rest(len)?.iter().position(|byte| *byte == 0).ok_or_else(cut_short)?;
        }
    }
    if flags & FHCRC != 0 {
        let (stated, _) = rest(len)?.split_first_chunk::<2>().ok_or_else(cut_short)?;
        let [low, high, ..] = crc32fast::hash(encoded.get(..len).unwrap_or_default()).to_le_bytes();
        if *stated != [low, high] {
            return Err(Error::corrupt("expected a gzip header whose FHCRC matches, found another"));
        }
        len += 2;
    }
    Ok(len)
}

#[cold]
fn cut_short() -> Error {
    Error::corrupt("expected gzip data to its end, found it cut short")
}

/// Totals of one in-memory stream fit.
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
            encoder.encode_reader(&mut &noise[..len], len as u64, &mut sink).unwrap();
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
        assert!(decode(&fancy, CAP).unwrap_err().message().contains("FHCRC"));
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
        assert!(member_len(&one[..one.len() - TRAILER_LEN - 1], CAP, &mut 0).is_err());
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
