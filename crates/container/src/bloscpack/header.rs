//! The header of a bloscpack file, in its three versions.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use sharddb::internal::bytes::open_regular;
use sharddb::internal::fs::entry;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bloscpack::checksum::Checksum;

pub(super) const MAGIC: [u8; 4] = *b"blpk";

/// Length in bytes of a header of version 1.
pub(super) const V1_LEN: usize = 16;

/// Length in bytes of a header of version 2 or 3.
pub(super) const LEN: usize = 32;

const OPTION_OFFSETS: u8 = 1;
const OPTION_METADATA: u8 = 1 << 1;

/// The version of a bloscpack header. See [`Header`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// 16 bytes, which state only the number of chunks. Written by bcolz.
    V1,
    /// 32 bytes, without metadata or reserved offsets. Described by the RFC of bcolz.
    V2,
    /// 32 bytes. Written by bloscpack.
    V3,
}

/// The header of a bloscpack file, parsed and checked.
///
/// ```no_run
/// use sharddb_container::bloscpack::{Bloscpack, Version};
///
/// let file = Bloscpack::open("data.blp")?;
/// assert_eq!(file.header().version(), Version::V3);
/// # Ok::<(), sharddb::Error>(())
/// ```
///
/// ```text
/// 0   b l p k | version | options | checksum | typesize
/// 8   version 1: nchunks, i64le; the header ends here
///     version 2 and 3: chunk size, i32le | last chunk, i32le     decoded lengths, -1 = unknown
/// 16  nchunks, i64le, -1 = unknown
/// 24  max app chunks, i64le: reserved offsets for appended chunks; 0 in version 2
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub(super) version: Version,
    pub(super) has_offsets: bool,
    pub(super) has_metadata: bool,
    pub(super) checksum: Checksum,
    pub(super) typesize: u8,
    pub(super) chunk_size: Option<u32>,
    pub(super) last_chunk: Option<u32>,
    pub(super) nchunks: Option<u64>,
    pub(super) max_app_chunks: u64,
}

impl Version {
    /// Returns the version as a number, from 1 to 3.
    pub fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }

    fn from_number(number: u8) -> Result<Version> {
        match number {
            1 => Ok(Self::V1),
            2 => Ok(Self::V2),
            3 => Ok(Self::V3),
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                format!("expected a bloscpack header of version 1 to 3, found version {number}"),
            )),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

impl Header {
    /// Parses and checks the header at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// `Corrupt`; `Unsupported` for a later version.
    pub(super) fn parse(bytes: &[u8]) -> Result<Header> {
        let short = || Error::corrupt(format!("expected a bloscpack header, found a file of {} bytes", bytes.len()));
        let (&[m0, m1, m2, m3, version, options, checksum, typesize], rest) =
            bytes.split_first_chunk::<8>().ok_or_else(short)?;
        if [m0, m1, m2, m3] != MAGIC {
            let found = [m0, m1, m2, m3].escape_ascii().to_string();
            return Err(Error::corrupt(format!(
                "expected a bloscpack file that begins with \"blpk\", found \"{found}\""
            )));
        }
        let version = Version::from_number(version)?;
        if version == Version::V1 {
            let (nchunks, _) = rest.split_first_chunk().ok_or_else(short)?;
            return Header::v1([options, checksum, typesize], i64::from_le_bytes(*nchunks));
        }
        let (chunk_size, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (last_chunk, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (nchunks, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (max_app_chunks, _) = rest.split_first_chunk().ok_or_else(short)?;
        let header = Header {
            version,
            has_offsets: options & OPTION_OFFSETS != 0,
            has_metadata: options & OPTION_METADATA != 0,
            checksum: Checksum::from_number(checksum)?,
            typesize,
            chunk_size: known(i32::from_le_bytes(*chunk_size).into(), "chunk size")?
                .and_then(|size| size.try_into().ok()),
            last_chunk: known(i32::from_le_bytes(*last_chunk).into(), "last chunk")?
                .and_then(|size| size.try_into().ok()),
            nchunks: known(i64::from_le_bytes(*nchunks), "nchunks")?,
            max_app_chunks: known(i64::from_le_bytes(*max_app_chunks), "max app chunks")?
                .ok_or_else(|| Error::corrupt("expected a number of reserved offsets, found -1"))?,
        };
        header.check(options)?;
        Ok(header)
    }

    fn v1(reserved: [u8; 3], nchunks: i64) -> Result<Header> {
        if reserved != [0; 3] {
            return Err(Error::corrupt(format!(
                "expected zeros in the reserved bytes of a bloscpack header of version 1, found {reserved:?}"
            )));
        }
        Ok(Header { nchunks: known(nchunks, "nchunks")?, ..Header::of_one_chunk() })
    }

    /// Returns the header that bcolz writes.
    pub(super) fn of_one_chunk() -> Header {
        Header {
            version: Version::V1,
            has_offsets: false,
            has_metadata: false,
            checksum: Checksum::None,
            typesize: 0,
            chunk_size: None,
            last_chunk: None,
            nchunks: Some(1),
            max_app_chunks: 0,
        }
    }

    fn check(&self, options: u8) -> Result<()> {
        let fault = match self {
            _ if options & !(OPTION_OFFSETS | OPTION_METADATA) != 0 => "unknown options",
            Header { version: Version::V2, has_metadata: true, .. } => "metadata, which version 2 does not have",
            Header { version: Version::V2, max_app_chunks: 1.., .. } => "bytes in its reserved part",
            Header { has_offsets: true, nchunks: None, .. } => "offsets of an unknown number of chunks",
            Header { max_app_chunks: 1.., has_offsets: false, .. } => "reserved offsets, but no offsets",
            Header { chunk_size: Some(chunk), last_chunk: Some(last), .. } if last > chunk => {
                "a last chunk larger than the others"
            }
            Header { nchunks: Some(nchunks), .. }
                if nchunks.checked_add(self.max_app_chunks).is_none_or(|all| i64::try_from(all).is_err()) =>
            {
                "more than 2^63 chunks"
            }
            _ => return Ok(()),
        };
        Err(Error::corrupt(format!(
            "expected a valid bloscpack header, found {fault} ({self}, options {options:#04x})"
        )))
    }

    /// Encodes the header: 16 bytes in version 1, 32 otherwise.
    pub(super) fn encode(&self) -> Vec<u8> {
        let nchunks = self.nchunks.map_or(-1, u64::cast_signed).to_le_bytes();
        let mut bytes = MAGIC.to_vec();
        if self.version == Version::V1 {
            bytes.extend([1, 0, 0, 0]);
            bytes.extend(nchunks);
            return bytes;
        }
        let options = u8::from(self.has_offsets) * OPTION_OFFSETS + u8::from(self.has_metadata) * OPTION_METADATA;
        bytes.extend([self.version.number(), options, self.checksum.number(), self.typesize]);
        bytes.extend(self.chunk_size.map_or(-1, u32::cast_signed).to_le_bytes());
        bytes.extend(self.last_chunk.map_or(-1, u32::cast_signed).to_le_bytes());
        bytes.extend(nchunks);
        bytes.extend(self.max_app_chunks.to_le_bytes());
        bytes
    }

    pub(super) fn len(&self) -> u64 {
        match self.version {
            Version::V1 => V1_LEN as u64,
            Version::V2 | Version::V3 => LEN as u64,
        }
    }

    /// Returns the number of offsets in the file, reserved ones included.
    pub(super) fn offset_slots(&self) -> u64 {
        match (self.has_offsets, self.nchunks) {
            (true, Some(nchunks)) => nchunks.saturating_add(self.max_app_chunks),
            _ => 0,
        }
    }

    /// Returns the version of the header.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns whether the file has the offsets of its chunks.
    pub fn has_offsets(&self) -> bool {
        self.has_offsets
    }

    /// Returns the kind of digest after each chunk.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// Returns the width of an element in bytes; 0 in version 1, which does not state it.
    pub fn typesize(&self) -> u8 {
        self.typesize
    }

    /// Returns the decoded length in bytes of every chunk except the last; `None` if it is not stated.
    pub fn chunk_size(&self) -> Option<u32> {
        self.chunk_size
    }

    /// Returns the decoded length of the last chunk in bytes; `None` if it is not stated.
    pub fn last_chunk(&self) -> Option<u32> {
        self.last_chunk
    }

    /// Returns the number of chunks; `None` if it is not stated.
    pub fn nchunks(&self) -> Option<u64> {
        self.nchunks
    }

    /// Returns the number of reserved offsets for appended chunks.
    pub fn max_app_chunks(&self) -> u64 {
        self.max_app_chunks
    }

    /// Returns the decoded length of chunk `number` in bytes, if it is stated.
    pub(super) fn decoded_len(&self, number: u64, nchunks: u64) -> Option<u32> {
        if number + 1 == nchunks { self.last_chunk } else { self.chunk_size }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stated = |value: Option<u64>| value.map_or("unknown".to_string(), |value| value.to_string());
        write!(
            f,
            "version {}, checksum {}, typesize {}, chunk size {}, last chunk {}, {} chunks, {} more",
            self.version,
            self.checksum,
            self.typesize,
            stated(self.chunk_size.map(u64::from)),
            stated(self.last_chunk.map(u64::from)),
            stated(self.nchunks),
            self.max_app_chunks
        )
    }
}

/// Returns whether `path` is a regular file that starts with the magic bytes.
///
/// Errors: `Io`.
pub(super) fn is_at(path: &Path) -> Result<bool> {
    if !entry::is_file(path)? {
        return Ok(false);
    }
    let (mut file, _) = open_regular(path)?;
    let mut magic = [0; MAGIC.len()];
    match file.read_exact(&mut magic) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(Error::io("read", path, error)),
        read => Ok(read.is_ok() && magic == MAGIC),
    }
}

/// Converts a number where -1 means unknown.
fn known(value: i64, name: &str) -> Result<Option<u64>> {
    match value {
        -1 => Ok(None),
        value => match u64::try_from(value) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(Error::corrupt(format!("expected {name} of -1 or more, found {value}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by bloscpack 0.16.0: version 3, offsets, adler32, typesize 4; chunk size 8192, last chunk 7040; 6
    /// chunks, 20 more.
    const V3: [u8; 32] = [
        b'b', b'l', b'p', b'k', 3, 1, 1, 4, // magic, version, options, checksum, typesize
        0, 32, 0, 0, 0x80, 27, 0, 0, // chunk size, last chunk
        6, 0, 0, 0, 0, 0, 0, 0, // nchunks
        20, 0, 0, 0, 0, 0, 0, 0, // max app chunks
    ];

    /// Written by bcolz 1.2.1.
    const V1: [u8; 16] = [b'b', b'l', b'p', b'k', 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

    fn with(at: usize, byte: u8) -> Result<Header> {
        let mut header = V3;
        header[at] = byte;
        Header::parse(&header)
    }

    #[test]
    fn both_ways() {
        let header = Header::parse(&V3).unwrap();
        assert_eq!((header.chunk_size(), header.last_chunk(), header.nchunks()), (Some(8192), Some(7040), Some(6)));
        assert_eq!((header.checksum(), header.typesize(), header.offset_slots()), (Checksum::Adler32, 4, 26));
        assert_eq!(header.encode(), V3);
        assert_eq!(Header::parse(&V1).unwrap(), Header::of_one_chunk());
        assert_eq!(Header::of_one_chunk().encode(), V1);
        let unknown = [&V3[..5], &[0, 1, 4], &[255; 16], &[0; 8]].concat();
        let header = Header::parse(&unknown).unwrap();
        assert_eq!((header.chunk_size(), header.last_chunk(), header.nchunks()), (None, None, None));
        assert_eq!(header.encode(), unknown);
    }

    #[test]
    fn says_what_is_wrong() {
        let mut reserved = V1;
        reserved[6] = 1;
        for (header, word) in [
            (with(0, b'B'), "found \"Blpk\""),
            (with(4, 4), "version 4"),
            (with(4, 2), "reserved part"),
            (with(5, 5), "unknown options"),
            (with(5, 0), "no offsets"),
            (with(6, 9), "checksum from 0 to 8, found 9"),
            (with(11, 0x80), "chunk size of -1 or more"),
            (with(13, 33), "last chunk larger"),
            (with(23, 0x80), "nchunks of -1 or more"),
            (Header::parse(&V3[..31]), "31 bytes"),
            (Header::parse(&V1[..15]), "15 bytes"),
            (Header::parse(&reserved), "reserved bytes"),
        ] {
            let error = header.unwrap_err();
            assert!(error.message().contains(word), "expected \"{word}\", found \"{error}\"");
        }
    }
}
