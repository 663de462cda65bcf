//! The chunk grid: maps the number of an inner chunk to its shard and its entry in the shard index.

use sharddb_format::{Error, Result};

use crate::zarr::nd::{self, Permutation};

/// The grid of the inner chunks of an array, divided into shards. Without sharding a shard is one chunk.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grid {
    axes: Vec<Axis>,
    /// Number of shards.
    shards: u64,
    chunks_per_shard: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Axis {
    /// Inner chunks along the axis that intersect the array.
    chunks: u64,
    /// Shards along the axis.
    shards: u64,
    chunks_per_shard: u64,
    /// Distance between neighbouring shards along the axis, in shard numbers.
    shard_stride: u64,
    /// Distance between neighbouring chunks along the axis, in entries of the index.
    entry_stride: u64,
}

/// The place of an inner chunk: the number of its shard in C order, and the number of its entry in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkPlace {
    pub(super) shard: u64,
    pub(super) entry: u64,
}

impl Grid {
    /// Creates the grid of an array. `transpose` maps its axes to those of the index.
    ///
    /// # Errors
    ///
    /// `InvalidSpec` if there would be 2^64 chunks or more.
    pub(super) fn new(
        shape: &[u64],
        shard_shape: &[u64],
        chunk_shape: &[u64],
        transpose: &Permutation,
    ) -> Result<Grid> {
        let divide = |shape: &[u64], by: &[u64]| -> Vec<u64> {
            shape.iter().zip(by).map(|(len, by)| len.div_ceil((*by).max(1))).collect()
        };
        let (chunks, shards) = (divide(shape, chunk_shape), divide(shape, shard_shape));
        let chunks_per_shard = divide(shard_shape, chunk_shape);
        let strides = |grid: &[u64]| nd::product(grid).and_then(|_| nd::strides(grid));
        let made = strides(&chunks).and(strides(&shards)).zip(strides(&transpose.apply(&chunks_per_shard)));
        let (Some((shard_strides, entry_strides)), Some(total_shards), Some(entries)) =
            (made, nd::product(&shards), nd::product(&chunks_per_shard))
        else {
            let message =
                format!("expected fewer than 2^64 chunks, found the shape {shape:?} in chunks of {chunk_shape:?}");
            return Err(Error::invalid_spec(message));
        };
        let entry_strides = transpose.inverse().apply(&entry_strides);
        let columns = chunks.iter().zip(&shards).zip(&chunks_per_shard).zip(&shard_strides).zip(&entry_strides);
        let axes = columns
            .map(|((((&chunks, &shards), &chunks_per_shard), &shard_stride), &entry_stride)| Axis {
                chunks,
                shards,
                chunks_per_shard,
                shard_stride,
                entry_stride,
            })
            .collect();
        Ok(Grid { axes, shards: total_shards, chunks_per_shard: entries })
    }

    /// Returns the number of shards.
    pub(super) fn shards(&self) -> u64 {
        self.shards
    }

    /// Returns the number of entries in the index of a shard.
    pub(super) fn chunks_per_shard(&self) -> u64 {
        self.chunks_per_shard
    }

    /// Returns the number of inner chunks along each axis.
    pub(super) fn chunk_cells(&self) -> Vec<u64> {
        self.axes.iter().map(|axis| axis.chunks).collect()
    }

    /// Returns the place of an inner chunk; `None` if the key is out of range.
    #[inline]
    pub(super) fn place(&self, key: u64) -> Option<ChunkPlace> {
        let mut place = ChunkPlace { shard: 0, entry: 0 };
        let mut rest = key;
        for axis in self.axes.iter().rev() {
            let at = rest.checked_rem(axis.chunks)?;
            rest /= axis.chunks;
            place.shard += at / axis.chunks_per_shard * axis.shard_stride;
            place.entry += at % axis.chunks_per_shard * axis.entry_stride;
        }
        (rest == 0).then_some(place)
    }

    /// Returns the key of the inner chunk at a place; `None` if the chunk is outside the array.
    pub(super) fn key(&self, place: ChunkPlace) -> Option<u64> {
        self.axes.iter().try_fold(0u64, |key, axis| {
            let shard = (place.shard / axis.shard_stride).checked_rem(axis.shards)?;
            let at = shard * axis.chunks_per_shard + place.entry / axis.entry_stride % axis.chunks_per_shard;
            (at < axis.chunks).then(|| key * axis.chunks + at)
        })
    }

    /// Returns the position of a shard in the grid of shards.
    pub(super) fn shard_position(&self, number: u64) -> Vec<u64> {
        self.axes.iter().map(|axis| (number / axis.shard_stride).checked_rem(axis.shards).unwrap_or(0)).collect()
    }

    /// Returns the number of the shard at a position; `None` if the position is outside the grid.
    pub(super) fn shard_number(&self, position: &[u64]) -> Option<u64> {
        let inside = position.len() == self.axes.len();
        self.axes
            .iter()
            .zip(position)
            .filter(|_| inside)
            .try_fold(0u64, |number, (axis, &at)| (at < axis.shards).then(|| number + at * axis.shard_stride))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(shape: &[u64], shard: &[u64], chunk: &[u64], order: Vec<usize>) -> Grid {
        Grid::new(shape, shard, chunk, &Permutation::new(order).unwrap()).unwrap()
    }

    #[test]
    fn every_key_has_a_place_of_its_own_and_back() {
        for (order, shape) in [(vec![0, 1, 2], [70, 60, 50]), (vec![2, 0, 1], [64, 33, 1])] {
            let grid = grid(&shape, &[32, 32, 64], &[16, 8, 32], order);
            let keys: u64 = grid.chunk_cells().iter().product();
            let mut places: Vec<_> = (0..keys).map(|key| grid.place(key).unwrap()).collect();
            assert!((0..keys).all(|key| grid.key(places[usize::try_from(key).unwrap()]) == Some(key)));
            places.sort();
            places.dedup();
            assert_eq!(places.len() as u64, keys);
            assert_eq!(grid.place(keys), None);
            assert_eq!(grid.place(u64::MAX), None);
        }
    }

    #[test]
    fn chunks_beyond_the_array_have_no_key() {
        let grid = grid(&[40], &[32], &[16], vec![0]);
        assert_eq!((grid.chunk_cells(), grid.shards()), (vec![3], 2));
        assert_eq!(grid.key(ChunkPlace { shard: 1, entry: 0 }), Some(2));
        assert_eq!(grid.key(ChunkPlace { shard: 1, entry: 1 }), None);
    }

    #[test]
    fn entries_follow_the_transposed_axes() {
        let grid = grid(&[32, 16], &[32, 16], &[16, 8], vec![1, 0]);
        // keys 0 1 / 2 3; the index has them by columns
        let entries: Vec<_> = (0..4).map(|key| grid.place(key).unwrap().entry).collect();
        assert_eq!(entries, [0, 2, 1, 3]);
    }

    #[test]
    fn arrays_without_dimensions_or_elements() {
        let point = grid(&[], &[], &[], vec![]);
        assert_eq!(point.place(0), Some(ChunkPlace { shard: 0, entry: 0 }));
        assert_eq!((point.place(1), point.shards(), point.shard_number(&[])), (None, 1, Some(0)));
        let empty = grid(&[0, 5], &[2, 2], &[1, 1], vec![0, 1]);
        assert_eq!((empty.place(0), empty.shards(), empty.shard_number(&[0, 0])), (None, 0, None));
    }

    #[test]
    fn more_than_2_to_the_64_chunks_are_refused() {
        let one = Permutation::identity(2);
        assert!(Grid::new(&[1 << 33, 1 << 32], &[1, 1], &[1, 1], &one).is_err());
        assert!(Grid::new(&[1 << 33, 1 << 30], &[1, 1], &[1, 1], &one).is_ok());
    }
}
