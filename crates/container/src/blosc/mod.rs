//! Blosc 1 chunks: a buffer cut into blocks, each of which is byte- or bit-shuffled and then compressed by one of five
//! codecs.
//!
//! All chunks of bcolz and bloscpack have this format, and so do those of Zarr's codec `blosc`. All five codecs are
//! decoded. The encoder writes LZ4, or an uncompressed copy where that is smaller. Blosc 2 frames and super-chunks are
//! a different format and not supported.
//!
//! ```text
//! 0   version = 2 | codec version = 1 | flags | typesize     one byte each
//! 4   nbytes      of the decoded buffer                      u32le, like all fields below
//! 8   blocksize   of each decoded block except the last
//! 12  cbytes      of the whole chunk
//! 16  memcpyed:   the buffer itself
//!     otherwise:  bstarts, the offset in the chunk of each block; then the blocks in any order.
//!                 A block is one stream, or typesize of them if it is split: length, bytes.
//!                 A stream as long as its decoded data is an uncompressed copy.
//! ```

mod block;
mod blosclz;
mod codec;
mod encode;
mod header;
mod shuffle;

use sharddb_format::{Error, ErrorKind, Result};

pub use codec::Codec;
#[cfg(feature = "bcolz")]
pub(crate) use codec::ZLIB_WINDOW_BITS;
pub use encode::{Encoder, MAX_NBYTES};
pub use header::{HEADER_LEN, Header};
pub use shuffle::Shuffle;

use crate::blosc::block::ChunkBlocks;

/// Decodes a chunk to the buffer that it was made from.
///
/// Memory: the decoded buffer and two blocks.
///
/// # Errors
///
/// `Corrupt` if `chunk` is not exactly one Blosc 1 chunk; `Unsupported` for another version of Blosc; `TooLarge` if the
/// buffer has more than `max_bytes` bytes, which is checked before allocating.
///
/// ```
/// use sharddb_container::blosc::{Encoder, decode};
///
/// let numbers: Vec<u8> = (0..1000u32).flat_map(u32::to_le_bytes).collect();
/// let chunk = Encoder::new().typesize(4).encode(&numbers)?;
/// assert!(chunk.len() < numbers.len() / 2);
/// assert_eq!(decode(&chunk, 4000)?, numbers);
/// # Ok::<(), sharddb::Error>(())
/// ```
pub fn decode(chunk: &[u8], max_bytes: u64) -> Result<Vec<u8>> {
    let header = Header::parse(chunk)?;
    if u64::from(header.nbytes()) > max_bytes {
        let message = format!("expected at most {max_bytes} bytes of decoded data, found {}", header.nbytes());
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    header.check_len(chunk)?;
    if header.is_memcpyed() {
        let (_, copy) = chunk.split_at_checked(HEADER_LEN).unwrap_or_default();
        return copied(copy, header);
    }
    ChunkBlocks::new(chunk, header)?.decode()
}

fn copied(copy: &[u8], header: Header) -> Result<Vec<u8>> {
    if copy.len() as u64 != u64::from(header.nbytes()) {
        let message = format!("expected a copy of {} bytes in a Blosc chunk, found {}", header.nbytes(), copy.len());
        return Err(Error::corrupt(message));
    }
    Ok(copy.to_vec())
}

/// Returns `len` zeros, or `TooLarge` if they cannot be allocated.
fn zeroed(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| no_memory(len))?;
    bytes.resize(len, 0);
    Ok(bytes)
}

#[cold]
fn no_memory(len: usize) -> Error {
    Error::new(ErrorKind::TooLarge, format!("no memory for {len} bytes of a decoded Blosc chunk"))
}
