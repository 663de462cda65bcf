//! The 16-byte header of a chunk.

use sharddb_format::{Error, ErrorKind, Result};

use crate::blosc::codec::Codec;
use crate::blosc::shuffle::Shuffle;

/// Length in bytes of a chunk's header.
pub const HEADER_LEN: usize = 16;

pub(super) const VERSION: u8 = 2;
pub(super) const CODEC_VERSION: u8 = 1;

pub(super) const FLAG_SHUFFLE: u8 = 1;
pub(super) const FLAG_MEMCPYED: u8 = 1 << 1;
pub(super) const FLAG_BITSHUFFLE: u8 = 1 << 2;
const FLAG_RESERVED: u8 = 1 << 3;
pub(super) const FLAG_DONT_SPLIT: u8 = 1 << 4;
pub(super) const CODEC_SHIFT: u32 = 5;

/// ChunkBlocks are split into one stream per byte of an element only up to this element width.
const MAX_SPLITS: u32 = 16;

/// ChunkBlocks are split only if each stream has at least this many bytes.
const MIN_SPLIT_LEN: u32 = 128;

/// The header of a chunk, parsed and checked; nothing is decoded yet.
///
/// ```
/// use sharddb_container::blosc::{Codec, Encoder, Header, Shuffle};
///
/// let chunk = Encoder::new().typesize(8).encode(&[7; 800])?;
/// let header = Header::parse(&chunk)?;
/// assert_eq!((header.nbytes(), header.typesize()), (800, 8));
/// assert_eq!((header.codec(), header.shuffle()), (Codec::Lz4, Shuffle::Bytes));
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    codec: Codec,
    flags: u8,
    typesize: u8,
    nbytes: u32,
    blocksize: u32,
    cbytes: u32,
}

impl Header {
    /// Parses and checks the header of `chunk`. Needs only the first [`HEADER_LEN`] bytes.
    ///
    /// # Errors
    ///
    /// `Corrupt`; `Unsupported` for another version of Blosc.
    pub fn parse(chunk: &[u8]) -> Result<Header> {
        let Some((&[v, w, flags, typesize, n0, n1, n2, n3, b0, b1, b2, b3, c0, c1, c2, c3], _)) =
            chunk.split_first_chunk::<HEADER_LEN>()
        else {
            let message = format!("expected a Blosc header of {HEADER_LEN} bytes, found {} bytes", chunk.len());
            return Err(Error::corrupt(message));
        };
        check_version(v)?;
        if flags & FLAG_RESERVED != 0 {
            return Err(Error::corrupt(format!("expected Blosc flags without bit 3, found {flags:#04x}")));
        }
        let header = Header {
            codec: Codec::from_format(flags >> CODEC_SHIFT)?,
            flags,
            typesize,
            nbytes: u32::from_le_bytes([n0, n1, n2, n3]),
            blocksize: u32::from_le_bytes([b0, b1, b2, b3]),
            cbytes: u32::from_le_bytes([c0, c1, c2, c3]),
        };
        if w != CODEC_VERSION {
            let message = format!("expected version {CODEC_VERSION} of Blosc's {}, found {w}", header.codec);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        header.check_sizes()?;
        Ok(header)
    }

    fn check_sizes(self) -> Result<()> {
        let Header { typesize, nbytes, blocksize, cbytes, .. } = self;
        let largest = i32::MAX.unsigned_abs();
        let fault = match () {
            () if typesize == 0 => "a typesize of 0",
            () if nbytes > largest || cbytes > largest => "sizes above 2^31 - 1",
            () if (cbytes as usize) < HEADER_LEN => "cbytes below the length of the header",
            () if nbytes > 0 && blocksize == 0 => "blocks of 0 bytes",
            () if blocksize > nbytes.max(u32::from(typesize)) => "a block larger than the buffer",
            () => return Ok(()),
        };
        Err(Error::corrupt(format!(
            "expected a valid Blosc header, found {fault} (typesize {typesize}, nbytes {nbytes}, blocksize \
             {blocksize}, cbytes {cbytes})"
        )))
    }

    /// Returns the codec of the streams. Meaningless if the chunk [is an uncompressed copy](Header::is_memcpyed).
    pub fn codec(self) -> Codec {
        self.codec
    }

    /// Returns how bytes were reordered before compression. Meaningless if the chunk [is an uncompressed
    /// copy](Header::is_memcpyed).
    pub fn shuffle(self) -> Shuffle {
        match self.flags {
            flags if flags & FLAG_SHUFFLE != 0 => Shuffle::Bytes,
            flags if flags & FLAG_BITSHUFFLE != 0 => Shuffle::Bits,
            _ => Shuffle::None,
        }
    }

    /// Returns whether the chunk holds the buffer uncompressed.
    pub fn is_memcpyed(self) -> bool {
        self.flags & FLAG_MEMCPYED != 0
    }

    /// Returns the width of an element in bytes, from 1 to 255. The shuffle uses it.
    pub fn typesize(self) -> u8 {
        self.typesize
    }

    /// Returns the length of the decoded buffer in bytes.
    pub fn nbytes(self) -> u32 {
        self.nbytes
    }

    /// Returns the length of a decoded block in bytes. The last block may be shorter.
    pub fn blocksize(self) -> u32 {
        self.blocksize
    }

    /// Returns the length of the chunk in bytes, header included.
    pub fn cbytes(self) -> u32 {
        self.cbytes
    }

    /// Checks that `chunk`, which has this header, is as long as the header states.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it has another length.
    pub(crate) fn check_len(self, chunk: &[u8]) -> Result<()> {
        if chunk.len() as u64 == u64::from(self.cbytes) {
            return Ok(());
        }
        let (stated, found) = (self.cbytes, chunk.len());
        Err(Error::corrupt(format!(
            "expected a Blosc chunk of the {stated} bytes that its header states, found {found}"
        )))
    }

    /// Returns the number of streams of a full block.
    ///
    /// Chunks that are older than the flag follow the rule of their time, so the flag alone does not decide.
    pub(super) fn splits(self) -> u32 {
        let typesize = u32::from(self.typesize);
        let may_split = typesize <= MAX_SPLITS && self.blocksize / typesize >= MIN_SPLIT_LEN;
        if self.flags & FLAG_DONT_SPLIT == 0 && may_split { typesize } else { 1 }
    }
}

fn check_version(version: u8) -> Result<()> {
    match version {
        VERSION => Ok(()),
        3..=6 => Err(Error::new(
            ErrorKind::Unsupported,
            format!("expected a chunk of Blosc 1 (format version {VERSION}), found one of Blosc 2 (version {version})"),
        )),
        _ => Err(Error::corrupt(format!("expected Blosc format version {VERSION}, found {version}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// version, codec version, lz4 | dont split | shuffle, typesize 4, nbytes 400, blocksize 400, cbytes 141: written
    /// by bcolz-zipline 1.13.0
    const LZ4: [u8; 16] = [2, 1, 0x31, 4, 0x90, 1, 0, 0, 0x90, 1, 0, 0, 141, 0, 0, 0];

    fn with(at: usize, byte: u8) -> Result<Header> {
        let mut header = LZ4;
        header[at] = byte;
        Header::parse(&header)
    }

    #[test]
    fn reads_every_field() {
        let header = Header::parse(&LZ4).unwrap();
        assert_eq!((header.codec(), header.shuffle()), (Codec::Lz4, Shuffle::Bytes));
        assert_eq!((header.typesize(), header.nbytes(), header.blocksize(), header.cbytes()), (4, 400, 400, 141));
        assert!(!header.is_memcpyed());
        assert_eq!(header.splits(), 1);
        assert_eq!(with(2, 0x24).unwrap().shuffle(), Shuffle::Bits);
    }

    #[test]
    fn says_what_is_wrong() {
        for (header, kind, word) in [
            (with(0, 1), ErrorKind::Corrupt, "format version 2, found 1"),
            (with(0, 5), ErrorKind::Unsupported, "Blosc 2"),
            (with(1, 2), ErrorKind::Unsupported, "version 1 of Blosc's lz4, found 2"),
            (with(2, 0x39), ErrorKind::Corrupt, "without bit 3"),
            (with(2, 0xa1), ErrorKind::Corrupt, "codec 5"),
            (with(3, 0), ErrorKind::Corrupt, "typesize of 0"),
            (with(7, 0x80), ErrorKind::Corrupt, "2^31"),
            (with(9, 2), ErrorKind::Corrupt, "larger than the buffer"),
            (with(12, 15), ErrorKind::Corrupt, "below the length"),
            (Header::parse(&LZ4[..15]), ErrorKind::Corrupt, "found 15 bytes"),
        ] {
            let error = header.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.message().contains(word), "{error}");
        }
    }
}
