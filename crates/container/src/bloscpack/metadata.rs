//! The metadata section of a file: a description of the data by its writer, mostly JSON.
//!
//! ```text
//! 0   format, 8 bytes of ASCII: JSON
//! 8   options = 0 | checksum | codec | level
//! 12  meta size | max meta size | meta comp size     u32le: decompressed, reserved, stored
//! 24  user codec, 8 bytes
//! 32  the text, compressed with zlib if codec is 1 | zeros up to max meta size | digest of the stored bytes
//! ```

use sharddb_format::internal::json;
use sharddb_format::{Error, ErrorKind, Result};
use zlib_rs::{Inflate, InflateFlush, Status};

use crate::blosc::ZLIB_WINDOW_BITS;
use crate::bloscpack::checksum::Checksum;

pub(super) const SECTION_HEADER_LEN: usize = 32;

/// A longer section is refused.
const MAX_METADATA_BYTES: u32 = 64 << 20;

/// The metadata of a file.
///
/// ```
/// use sharddb_container::bloscpack::{BloscpackOptions, Metadata};
///
/// let mut options = BloscpackOptions::new();
/// options.metadata(Metadata { format: "JSON".into(), bytes: b"{\"dtype\": \"int32\"}".to_vec() });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The format of the bytes, as the file names it; usually `JSON`.
    pub format: String,
    /// The bytes, decompressed.
    pub bytes: Vec<u8>,
}

/// The fixed-size part of the section.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetadataHeader {
    format: [u8; 8],
    checksum: Checksum,
    is_zlib: bool,
    meta_size: u32,
    max_meta_size: u32,
    meta_comp_size: u32,
}

impl MetadataHeader {
    pub(super) fn parse(bytes: &[u8; SECTION_HEADER_LEN]) -> Result<MetadataHeader> {
        let [f0, f1, f2, f3, f4, f5, f6, f7, options, checksum, codec, level, rest @ ..] = *bytes;
        let [s0, s1, s2, s3, m0, m1, m2, m3, c0, c1, c2, c3, _user_codec @ ..] = rest;
        let header = MetadataHeader {
            format: [f0, f1, f2, f3, f4, f5, f6, f7],
            checksum: Checksum::from_number(checksum)?,
            is_zlib: codec == 1,
            meta_size: u32::from_le_bytes([s0, s1, s2, s3]),
            max_meta_size: u32::from_le_bytes([m0, m1, m2, m3]),
            meta_comp_size: u32::from_le_bytes([c0, c1, c2, c3]),
        };
        let fault = match () {
            () if !header.format.is_ascii() => "a format that is not ASCII",
            () if options != 0 => "unknown options",
            () if codec > 1 => "an unknown codec",
            () if level > 9 => "a compression level above 9",
            () if header.meta_comp_size > header.max_meta_size => "more bytes than are reserved",
            () if codec == 0 && header.meta_size != header.meta_comp_size => "two lengths of uncompressed metadata",
            () => return Ok(header),
        };
        Err(Error::corrupt(format!("expected a valid header of bloscpack metadata, found {fault}: {header:?}")))
    }

    /// Returns the length in bytes of the section after its header.
    pub(super) fn body_len(&self) -> u64 {
        u64::from(self.max_meta_size) + self.checksum.digest_len()
    }

    /// Decodes the metadata from the bytes after the header.
    pub(super) fn read(&self, body: &[u8]) -> Result<Metadata> {
        let cut = || Error::corrupt("expected complete bloscpack metadata, found it truncated");
        let (stored, digest) = body.split_at_checked(self.max_meta_size as usize).ok_or_else(cut)?;
        let (stored, room) = stored.split_at_checked(self.meta_comp_size as usize).ok_or_else(cut)?;
        self.checksum.verify(stored, digest)?;
        if room.iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt("expected zeros after bloscpack metadata, found other bytes"));
        }
        let bytes = if self.is_zlib { inflated(stored, self.meta_size)? } else { stored.to_vec() };
        let format = String::from_utf8_lossy(&self.format);
        Ok(Metadata { format: format.trim_end_matches(['\0', ' ']).to_string(), bytes })
    }
}

impl Metadata {
    /// Checks that the bytes are valid JSON if that is their format.
    pub(super) fn check(&self) -> Result<()> {
        match self.format.as_str() {
            "JSON" => json::parse(&self.bytes).map(drop),
            _ => Ok(()),
        }
    }

    /// Encodes the section, uncompressed and without a reserve.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the format has more than 8 characters, or there are 64 MiB or more.
    pub(super) fn encode(&self, checksum: Checksum) -> Result<Vec<u8>> {
        let fits = self.format.is_ascii() && self.format.len() <= 8;
        let Some(len) = u32::try_from(self.bytes.len()).ok().filter(|len| fits && *len < MAX_METADATA_BYTES) else {
            return Err(Error::invalid_input(format!(
                "expected metadata below {MAX_METADATA_BYTES} bytes with a format of at most 8 characters, found {} bytes of \"{}\"",
                self.bytes.len(),
                self.format
            )));
        };
        let mut section = self.format.clone().into_bytes();
        section.resize(8, 0);
        section.extend([0, checksum.number(), 0, 0]);
        for _ in 0..3 {
            section.extend(len.to_le_bytes());
        }
        section.extend([0; 8]);
        section.extend(&self.bytes);
        section.extend(checksum.digest(&self.bytes));
        Ok(section)
    }
}

/// Inflates a zlib stream, which must give exactly `len` bytes.
fn inflated(stored: &[u8], len: u32) -> Result<Vec<u8>> {
    if len > MAX_METADATA_BYTES {
        let message = format!("expected at most {MAX_METADATA_BYTES} bytes of bloscpack metadata, found {len}");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let mut bytes = vec![0; len as usize];
    let mut inflate = Inflate::new(true, ZLIB_WINDOW_BITS);
    match inflate.decompress(stored, &mut bytes, InflateFlush::Finish) {
        Ok(Status::StreamEnd) if inflate.total_out() == u64::from(len) => Ok(bytes),
        Ok(_) => {
            Err(Error::corrupt(format!("expected {len} bytes of bloscpack metadata, found {}", inflate.total_out())))
        }
        Err(error) => Err(Error::corrupt(format!("expected deflated bloscpack metadata, found: {}", error.as_str()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by bloscpack 0.16.0: {"dtype": "int32"} with sha256, uncompressed, ten times its length reserved. The
    /// level is left from an attempt to compress it.
    const HEADER: [u8; 32] = [
        b'J', b'S', b'O', b'N', 0, 0, 0, 0, // format
        0, 6, 0, 6, // options, checksum, codec, level
        17, 0, 0, 0, 170, 0, 0, 0, 17, 0, 0, 0, // sizes
        0, 0, 0, 0, 0, 0, 0, 0, // user codec
    ];

    #[test]
    fn round_trip() {
        let metadata = Metadata { format: "JSON".to_string(), bytes: b"{\"a\": 1}".to_vec() };
        for checksum in Checksum::ALL {
            let section = metadata.encode(checksum).unwrap();
            let (header, body) = section.split_first_chunk().unwrap();
            let header = MetadataHeader::parse(header).unwrap();
            assert_eq!(header.body_len(), body.len() as u64);
            assert_eq!(header.read(body).unwrap(), metadata);
        }
        assert!(Metadata { format: "JSON or so".to_string(), bytes: Vec::new() }.encode(Checksum::None).is_err());
    }

    #[test]
    fn says_what_is_wrong() {
        for (at, byte, word) in [
            (1, 0x80, "not ASCII"),
            (8, 1, "unknown options"),
            (9, 9, "found 9"),
            (10, 2, "unknown codec"),
            (11, 10, "level above 9"),
            (20, 171, "more bytes than are reserved"),
            (12, 16, "two lengths"),
        ] {
            let mut header = HEADER;
            header[at] = byte;
            let error = MetadataHeader::parse(&header).unwrap_err();
            assert!(error.message().contains(word), "expected \"{word}\", found \"{error}\"");
        }
        let header = MetadataHeader::parse(&HEADER).unwrap();
        let mut body = b"{\"dtype\": \"int32\"".to_vec();
        body.resize(170, 0);
        body.extend(Checksum::Sha256.digest(&body[..17]));
        assert!(header.read(&body).is_ok());
        for (at, word) in [(0, "expected sha256"), (17, "zeros"), (169, "zeros"), (170, "expected sha256")] {
            let mut changed = body.clone();
            changed[at] ^= 1;
            assert!(header.read(&changed).unwrap_err().message().contains(word), "byte {at}");
        }
        assert!(header.read(&body[..180]).is_err());
    }
}
