//! The encoder: LZ4, blocks not split and in order; an uncompressed copy where LZ4 saves nothing.

use sharddb_format::{Error, ErrorKind, Result};

use crate::blosc::header::{
    CODEC_SHIFT, CODEC_VERSION, FLAG_BITSHUFFLE, FLAG_DONT_SPLIT, FLAG_MEMCPYED, FLAG_SHUFFLE, HEADER_LEN, VERSION,
};
use crate::blosc::shuffle::Shuffle;
use crate::blosc::zeroed;

/// Length in bytes of the longest buffer that a chunk can hold.
pub const MAX_NBYTES: usize = (i32::MAX as usize) - HEADER_LEN;

/// ChunkTarget length in bytes of a block: it fits a second-level cache.
const TARGET_BLOCK_LEN: usize = 256 << 10;

/// The codec number of LZ4.
const LZ4: u8 = 1;

/// Encodes buffers as chunks.
///
/// Deterministic: the same buffer and options give the same bytes.
///
/// ```
/// use sharddb_container::blosc::{Encoder, Shuffle, decode};
///
/// let mut encoder = Encoder::new();
/// encoder.typesize(8).shuffle(Shuffle::Bits);
/// let zeros = [0; 80_000];
/// assert!(encoder.encode(&zeros)?.len() < 1000);
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    typesize: u8,
    shuffle: Shuffle,
    compress: bool,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    /// Creates an encoder with the defaults: elements of one byte, byte shuffle, compression on.
    pub fn new() -> Encoder {
        Encoder { typesize: 1, shuffle: Shuffle::Bytes, compress: true }
    }

    /// Sets the width of an element in bytes, from 1 (the default) to 255. Any other width counts as 1.
    pub fn typesize(&mut self, typesize: usize) -> &mut Encoder {
        self.typesize = u8::try_from(typesize).unwrap_or(1).max(1);
        self
    }

    /// Sets how bytes are reordered before compression (default: [`Shuffle::Bytes`]).
    pub fn shuffle(&mut self, shuffle: Shuffle) -> &mut Encoder {
        self.shuffle = shuffle;
        self
    }

    /// Sets whether to compress (default: yes). Without compression a chunk is a header and a copy of the buffer.
    pub fn compress(&mut self, compress: bool) -> &mut Encoder {
        self.compress = compress;
        self
    }

    /// Encodes `buffer` as a chunk.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `buffer` has more than [`MAX_NBYTES`] bytes; `TooLarge` if memory cannot be allocated.
    pub fn encode(&self, buffer: &[u8]) -> Result<Vec<u8>> {
        let copy_len = buffer.len().checked_add(HEADER_LEN).and_then(|len| i32::try_from(len).ok());
        let (Ok(nbytes), Some(copy_len)) = (u32::try_from(buffer.len()), copy_len) else {
            let message = format!("expected at most {MAX_NBYTES} bytes for a Blosc chunk, found {}", buffer.len());
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        if self.compress
            && let Some(chunk) = self.compressed(buffer, nbytes)?
        {
            return Ok(chunk);
        }
        let mut chunk = self.header(self.flags() | FLAG_MEMCPYED, nbytes, nbytes, copy_len.unsigned_abs()).to_vec();
        chunk.extend_from_slice(buffer);
        Ok(chunk)
    }

    /// Returns the compressed chunk, or `None` if it is not shorter than a copy.
    fn compressed(&self, buffer: &[u8], nbytes: u32) -> Result<Option<Vec<u8>>> {
        let block_len = self.block_len(buffer.len());
        let count = buffer.len().div_ceil(block_len.max(1));
        let mut chunk = vec![0; HEADER_LEN + 4 * count];
        let mut bstarts = Vec::with_capacity(count);
        let mut shuffled = zeroed(block_len)?;
        let mut stream = zeroed(lz4_flex::block::get_maximum_output_size(block_len))?;
        for block in buffer.chunks(block_len.max(1)) {
            let shuffled = shuffled.get_mut(..block.len()).unwrap_or_default();
            self.shuffle.apply(usize::from(self.typesize), block, shuffled);
            bstarts.push(chunk.len());
            append_stream(&mut chunk, shuffled, &mut stream);
            if chunk.len() >= buffer.len() + HEADER_LEN {
                return Ok(None);
            }
        }
        let (Ok(cbytes), Ok(blocksize)) = (u32::try_from(chunk.len()), u32::try_from(block_len)) else {
            return Ok(None);
        };
        let header = self.header(self.flags(), nbytes, blocksize, cbytes);
        let words = bstarts.iter().filter_map(|bstart| u32::try_from(*bstart).ok()).flat_map(u32::to_le_bytes);
        for (place, byte) in chunk.iter_mut().zip(header.into_iter().chain(words)) {
            *place = byte;
        }
        Ok((count > 0).then_some(chunk))
    }

    /// Returns the block length: the whole buffer if it fits one block, otherwise a multiple of 8 elements, which the
    /// bit shuffle requires.
    fn block_len(&self, buffer_len: usize) -> usize {
        let unit = usize::from(self.typesize) * 8;
        match buffer_len {
            one if one <= TARGET_BLOCK_LEN => one,
            _ => TARGET_BLOCK_LEN / unit * unit,
        }
    }

    fn flags(&self) -> u8 {
        let shuffle = match self.shuffle {
            Shuffle::None => 0,
            Shuffle::Bytes => FLAG_SHUFFLE,
            Shuffle::Bits => FLAG_BITSHUFFLE,
        };
        LZ4 << CODEC_SHIFT | FLAG_DONT_SPLIT | shuffle
    }

    fn header(&self, flags: u8, nbytes: u32, blocksize: u32, cbytes: u32) -> [u8; HEADER_LEN] {
        let ([n0, n1, n2, n3], [b0, b1, b2, b3]) = (nbytes.to_le_bytes(), blocksize.to_le_bytes());
        let [c0, c1, c2, c3] = cbytes.to_le_bytes();
        [VERSION, CODEC_VERSION, flags, self.typesize, n0, n1, n2, n3, b0, b1, b2, b3, c0, c1, c2, c3]
    }
}

/// Appends the stream of a block: compressed, or a copy if LZ4 does not shorten it.
fn append_stream(chunk: &mut Vec<u8>, shuffled: &[u8], buffer: &mut [u8]) {
    let stream = match lz4_flex::block::compress_into(shuffled, buffer) {
        Ok(len) if len < shuffled.len() => buffer.get(..len).unwrap_or_default(),
        _ => shuffled,
    };
    chunk.extend_from_slice(&u32::try_from(stream.len()).unwrap_or_default().to_le_bytes());
    chunk.extend_from_slice(stream);
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "pseudo-random bytes")]
mod tests {
    use super::*;
    use crate::blosc::{Header, decode};

    #[test]
    fn round_trip() {
        let numbers: Vec<u8> = (0..200_000u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
        for len in [0, 1, 3, 4, 100, 262_144, 262_145, 800_000] {
            for shuffle in [Shuffle::None, Shuffle::Bytes, Shuffle::Bits] {
                for typesize in [1, 4, 8, 13, 255, 300] {
                    let chunk = Encoder::new().typesize(typesize).shuffle(shuffle).encode(&numbers[..len]).unwrap();
                    assert!(chunk.len() <= len + HEADER_LEN);
                    assert_eq!(decode(&chunk, len as u64).unwrap(), &numbers[..len], "{len} {shuffle:?} {typesize}");
                }
            }
        }
    }

    #[test]
    fn incompressible_data_is_stored_as_a_copy() {
        let noise: Vec<u8> =
            (0..3000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8 ^ (i >> 3) as u8).collect();
        let chunk = Encoder::new().shuffle(Shuffle::None).compress(false).encode(&noise).unwrap();
        assert!(Header::parse(&chunk).unwrap().is_memcpyed());
        assert_eq!(chunk[HEADER_LEN..], noise);
        assert!(Header::parse(&Encoder::new().encode(b"abc").unwrap()).unwrap().is_memcpyed());
    }
}
