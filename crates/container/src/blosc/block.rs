//! The blocks of a chunk, decoded in order.

use sharddb_format::{Error, Result};

use crate::blosc::codec::Decoder;
use crate::blosc::header::{HEADER_LEN, Header};
use crate::blosc::shuffle::Shuffle;
use crate::blosc::{no_memory, zeroed};

/// Length in bytes of an offset in `bstarts`, and of the length field of a stream.
const WORD: usize = 4;

/// A chunk whose header and block offsets are complete.
pub(super) struct ChunkBlocks<'a> {
    chunk: &'a [u8],
    header: Header,
    bstarts: &'a [[u8; WORD]],
    /// End of the offsets in the chunk. No block may start before it.
    streams_start: usize,
}

/// The streams of one block, inside the chunk but not decoded, and the decoded length of each.
struct Streams<'a> {
    streams: Vec<&'a [u8]>,
    decoded_len: usize,
}

impl<'a> ChunkBlocks<'a> {
    pub(super) fn new(chunk: &'a [u8], header: Header) -> Result<ChunkBlocks<'a>> {
        let count = match header.nbytes() {
            0 => 0,
            nbytes => nbytes.div_ceil(header.blocksize()) as usize,
        };
        let (table, _) = chunk.get(HEADER_LEN..).unwrap_or_default().as_chunks::<WORD>();
        let Some(bstarts) = table.get(..count) else {
            return Err(Error::corrupt(format!(
                "expected the offsets of {count} blocks in a Blosc chunk, found room for {}",
                table.len()
            )));
        };
        Ok(ChunkBlocks { chunk, header, bstarts, streams_start: HEADER_LEN + count * WORD })
    }

    pub(super) fn decode(&self) -> Result<Vec<u8>> {
        let mut decoder = Decoder::new(self.header.codec());
        let mut decoded = Vec::new();
        let mut shuffled = Vec::new();
        for (number, bstart) in self.bstarts.iter().enumerate() {
            self.decode_block(u32::from_le_bytes(*bstart), &mut decoder, &mut shuffled, &mut decoded).map_err(
                |error| Error::new(error.kind(), format!("{} (block {number} of a Blosc chunk)", error.message())),
            )?;
        }
        Ok(decoded)
    }

    fn decode_block(
        &self,
        bstart: u32,
        decoder: &mut Decoder,
        shuffled: &mut Vec<u8>,
        decoded: &mut Vec<u8>,
    ) -> Result<()> {
        let start = decoded.len();
        let len = self.block_len(start);
        let streams = self.streams(bstart, len)?;
        for stream in &streams.streams {
            // checked before memory is allocated
            self.header.codec().check_ratio(stream.len(), streams.decoded_len)?;
        }
        decoded.try_reserve(len).map_err(|_| no_memory(len))?;
        decoded.resize(start + len, 0);
        let block = decoded.get_mut(start..).unwrap_or_default();
        if self.header.shuffle() == Shuffle::None {
            return streams.decode(decoder, block);
        }
        if shuffled.len() < len {
            *shuffled = zeroed(len)?;
        }
        let shuffled = shuffled.get_mut(..len).unwrap_or_default();
        streams.decode(decoder, shuffled)?;
        self.header.shuffle().undo(usize::from(self.header.typesize()), shuffled, block);
        Ok(())
    }

    /// Returns the length of the block that starts at offset `start` of the buffer.
    fn block_len(&self, start: usize) -> usize {
        let left = (self.header.nbytes() as usize).saturating_sub(start);
        left.min(self.header.blocksize() as usize)
    }

    /// Returns the streams that start at offset `bstart` of the chunk and decode to `len` bytes.
    fn streams(&self, bstart: u32, len: usize) -> Result<Streams<'a>> {
        let bstart = bstart as usize;
        if bstart < self.streams_start {
            let message = format!("expected a block at or after byte {}, found it at {bstart}", self.streams_start);
            return Err(Error::corrupt(message));
        }
        let mut rest = self.chunk.get(bstart..).unwrap_or_default();
        // a last block that is shorter is never split
        let splits = if len == self.header.blocksize() as usize { self.header.splits() as usize } else { 1 };
        if !len.is_multiple_of(splits) {
            return Err(Error::corrupt(format!("expected a block of {splits} equal streams, found {len} bytes")));
        }
        let mut streams = Vec::with_capacity(splits);
        for _ in 0..splits {
            let (stream, after) = cut_stream(rest)?;
            streams.push(stream);
            rest = after;
        }
        Ok(Streams { streams, decoded_len: len / splits })
    }
}

impl Streams<'_> {
    /// Decodes all streams, one after the other, into `block`.
    fn decode(&self, decoder: &mut Decoder, block: &mut [u8]) -> Result<()> {
        for (stream, decoded) in self.streams.iter().zip(block.chunks_exact_mut(self.decoded_len)) {
            if stream.len() == decoded.len() {
                decoded.copy_from_slice(stream)
            } else {
                decoder.decode(stream, decoded)?
            }
        }
        Ok(())
    }
}

/// Splits `bytes` into its first stream and the rest.
fn cut_stream(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let Some((len, after)) = bytes.split_first_chunk::<WORD>() else {
        return Err(Error::corrupt(format!("expected the length of a stream, found {} bytes", bytes.len())));
    };
    let len = u32::from_le_bytes(*len) as usize;
    after
        .split_at_checked(len)
        .ok_or_else(|| Error::corrupt(format!("expected a stream of {len} bytes, found {} bytes", after.len())))
}
