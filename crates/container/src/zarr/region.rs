//! Regions of an array: boxes of elements with a position, and the grid cells that they intersect.

use crate::zarr::nd;

/// A box of elements in an array: its origin and its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) origin: Vec<u64>,
    pub(super) shape: Vec<u64>,
}

impl Region {
    /// Returns the region of a whole array.
    pub(super) fn whole(shape: &[u64]) -> Region {
        Region { origin: vec![0; shape.len()], shape: shape.to_vec() }
    }

    /// Returns the region of a grid cell, which may exceed the array.
    pub(super) fn of_cell(cell: &[u64], cell_shape: &[u64]) -> Region {
        let origin = cell.iter().zip(cell_shape).map(|(at, len)| at.saturating_mul(*len)).collect();
        Region { origin, shape: cell_shape.to_vec() }
    }

    /// Returns the intersection, which may be empty.
    pub(super) fn intersection(&self, other: &Region) -> Region {
        let axes = self.origin.iter().zip(&self.shape).zip(other.origin.iter().zip(&other.shape));
        let (origin, shape) = axes
            .map(|((a, a_len), (b, b_len))| {
                let start = (*a).max(*b);
                (start, a.saturating_add(*a_len).min(b.saturating_add(*b_len)).saturating_sub(start))
            })
            .unzip();
        Region { origin, shape }
    }

    /// Returns the position of this region relative to the origin of `around`.
    pub(super) fn place_in(&self, around: &Region) -> Vec<u64> {
        self.origin.iter().zip(&around.origin).map(|(at, from)| at.saturating_sub(*from)).collect()
    }

    /// Returns the grid cells that the region intersects, in C order.
    pub(super) fn cells(&self, cell_shape: &[u64]) -> impl Iterator<Item = Vec<u64>> + use<> {
        let axes = self.origin.iter().zip(&self.shape).zip(cell_shape);
        let (first, counts): (Vec<_>, Vec<_>) = axes
            .map(|((at, len), cell)| {
                let (cell, first) = ((*cell).max(1), at / (*cell).max(1));
                let count = if *len == 0 { 0 } else { at.saturating_add(*len).div_ceil(cell) - first };
                (first, count)
            })
            .unzip();
        positions(&counts).map(move |at| at.iter().zip(&first).map(|(at, first)| at + first).collect())
    }

    /// Cuts the region into tiles from its origin, in C order. The last tile along an axis may be smaller.
    pub(super) fn tiles(&self, tile_shape: &[u64]) -> impl Iterator<Item = Region> + use<> {
        let (whole, tile_shape) = (self.clone(), tile_shape.to_vec());
        let counts: Vec<_> =
            whole.shape.iter().zip(&tile_shape).map(|(len, tile)| len.div_ceil((*tile).max(1))).collect();
        positions(&counts).map(move |at| {
            let mut tile = Region::of_cell(&at, &tile_shape);
            tile.origin.iter_mut().zip(&whole.origin).for_each(|(at, from)| *at += from);
            tile.intersection(&whole)
        })
    }
}

/// Returns all positions in a grid, in C order.
fn positions(counts: &[u64]) -> impl Iterator<Item = Vec<u64>> + use<> {
    let counts = counts.to_vec();
    (0..nd::product(&counts).unwrap_or(u64::MAX)).map(move |number| {
        let mut rest = number;
        let mut position = vec![0; counts.len()];
        for (at, count) in position.iter_mut().zip(&counts).rev() {
            *at = rest.checked_rem(*count).unwrap_or(0);
            rest = rest.checked_div(*count).unwrap_or(0);
        }
        position
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(origin: &[u64], shape: &[u64]) -> Region {
        Region { origin: origin.to_vec(), shape: shape.to_vec() }
    }

    #[test]
    fn cells_are_those_that_are_touched() {
        let cells: Vec<_> = region(&[3, 8], &[2, 8]).cells(&[4, 8]).collect();
        assert_eq!(cells, [[0, 1], [1, 1]]);
        assert_eq!(region(&[3, 8], &[2, 0]).cells(&[4, 8]).count(), 0);
        assert_eq!(region(&[], &[]).cells(&[]).collect::<Vec<_>>(), [[0; 0]]);
    }

    #[test]
    fn tiles_fill_a_region_and_no_more() {
        let tiles: Vec<_> = region(&[10, 1], &[5, 2]).tiles(&[4, 2]).collect();
        assert_eq!(tiles, [region(&[10, 1], &[4, 2]), region(&[14, 1], &[1, 2])]);
    }

    #[test]
    fn what_two_regions_have() {
        let both = region(&[2, 2], &[4, 4]).intersection(&region(&[4, 0], &[9, 3]));
        assert_eq!(both, region(&[4, 2], &[2, 1]));
        assert_eq!(both.place_in(&region(&[2, 2], &[4, 4])), [2, 0]);
        assert_eq!(region(&[0], &[2]).intersection(&region(&[2], &[2])).shape, [0]);
    }
}
