//! The encoding of rows as chunks.

use sharddb_format::Result;

use crate::KeySpace;
use crate::bcolz::array::BcolzArray;
use crate::bcolz::meta::Order;
use crate::blosc::{Encoder, Shuffle};
use crate::bloscpack::Checksum;

/// How new chunks are written, in a new or an existing array.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkEncoding {
    pub(super) shuffle: Shuffle,
    pub(super) compress: bool,
    pub(super) checksum: Checksum,
    pub(super) reserve_percent: u32,
}

impl Default for ChunkEncoding {
    fn default() -> ChunkEncoding {
        ChunkEncoding { shuffle: Shuffle::Bytes, compress: true, checksum: Checksum::Adler32, reserve_percent: 0 }
    }
}

impl ChunkEncoding {
    /// Encodes `rows`, which are in C order, as a chunk.
    pub(super) fn encode(self, array: &BcolzArray, rows: &[u8]) -> Result<Vec<u8>> {
        let cells: u64 = array.row_shape.iter().product();
        let itemsize = array.row_len.checked_div(cells).unwrap_or(1);
        let mut encoder = Encoder::new();
        encoder.typesize(usize::try_from(itemsize).unwrap_or(1)).shuffle(self.shuffle).compress(self.compress);
        match array.order {
            Order::F if !array.row_shape.is_empty() => encoder.encode(&in_f_order(array, rows, itemsize)),
            _ => encoder.encode(rows),
        }
    }
}

/// Reorders rows from C order to Fortran order: the first dimension varies fastest.
fn in_f_order(array: &BcolzArray, rows: &[u8], itemsize: u64) -> Vec<u8> {
    let count = (rows.len() as u64).checked_div(array.row_len).unwrap_or_default();
    let reversed: Vec<u64> = array.row_shape.iter().rev().copied().chain([count]).collect();
    let (from, to) =
        (KeySpace::Linear { grid: reversed.iter().rev().copied().collect() }, KeySpace::Linear { grid: reversed });
    let width = usize::try_from(itemsize).unwrap_or(1);
    let cells = rows.chunks_exact(width).count() as u64;
    let mut bytes = Vec::with_capacity(rows.len());
    for cell in 0..cells {
        let mut position = to.position_of(cell).unwrap_or_default();
        position.reverse();
        let at = from.key_at(&position).ok().and_then(|at| usize::try_from(at).ok()).unwrap_or_default() * width;
        bytes.extend_from_slice(rows.get(at..at + width).unwrap_or_default());
    }
    bytes
}
