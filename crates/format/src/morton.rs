//! The compressed Morton code: maps a grid position to one number, such that nearby cells have nearby numbers.
//!
//! Neuroglancer's precomputed volumes number their chunks this way. The bits of the coordinates are interleaved, lowest
//! bit first, and for each bit the first dimension first. A dimension contributes only as many bits as its largest
//! coordinate has:
//!
//! ```text
//! grid 4 x 2 x 8    x has 2 bits, y 1, z 3
//! code              z2 z1 x1 z0 y0 x0
//! ```
//!
//! A grid has any number of dimensions. Those of a precomputed volume are x, y, z.

/// Returns the code of the cell at `position`.
///
/// `None` if the position is not in the grid, or if the codes of the grid need more than 64 bits.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// assert_eq!(sharddb::volume::morton::encode(&[4, 4, 5], &[2, 3, 4]), Some(90));
/// assert_eq!(sharddb::volume::morton::encode(&[4, 4, 5], &[2, 3, 5]), None);
/// ```
pub fn encode(grid: &[u64], position: &[u64]) -> Option<u64> {
    let fits = grid.len() == position.len() && grid.iter().zip(position).all(|(cells, at)| at < cells);
    if !fits || code_bits(grid)? > u64::BITS {
        return None;
    }
    let (mut code, mut taken) = (0, 0);
    for_each_bit(grid, |dimension, bit| {
        let set = position.get(dimension).is_some_and(|at| at >> bit & 1 == 1);
        code |= u64::from(set) << taken;
        taken += 1;
    });
    Some(code)
}

/// Returns the position of the cell with this code.
///
/// `None` if no cell of the grid has this code, or if the codes of the grid need more than 64 bits.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// assert_eq!(sharddb::volume::morton::decode(&[4, 4, 5], 90), Some(vec![2, 3, 4]));
/// assert_eq!(sharddb::volume::morton::decode(&[4, 4, 5], 127), None);
/// ```
pub fn decode(grid: &[u64], code: u64) -> Option<Vec<u64>> {
    if code_bits(grid)? > u64::BITS {
        return None;
    }
    let (mut position, mut rest) = (vec![0u64; grid.len()], code);
    for_each_bit(grid, |dimension, bit| {
        if let Some(at) = position.get_mut(dimension) {
            *at |= (rest & 1) << bit;
        }
        rest >>= 1;
    });
    let fits = rest == 0 && grid.iter().zip(&position).all(|(cells, at)| at < cells);
    fits.then_some(position)
}

/// Returns the number of bits in the codes of a grid; `None` if a dimension has no cells.
///
/// [`encode`] and [`decode`] return `None` for a grid that needs more than 64 bits.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// assert_eq!(sharddb::volume::morton::code_bits(&[4, 4, 5]), Some(7));
/// ```
pub fn code_bits(grid: &[u64]) -> Option<u32> {
    grid.iter().try_fold(0u32, |bits, &cells| bits.checked_add(coordinate_bits(cells)?))
}

/// Calls `visit` with (dimension, bit of its coordinate) for each bit of a code, lowest first.
fn for_each_bit(grid: &[u64], mut visit: impl FnMut(usize, u32)) {
    for bit in 0..u64::BITS {
        for (dimension, &cells) in grid.iter().enumerate() {
            if coordinate_bits(cells).is_some_and(|bits| bit < bits) {
                visit(dimension, bit);
            }
        }
    }
}

/// Returns the number of bits of the largest coordinate; `None` if there are no cells.
fn coordinate_bits(cells: u64) -> Option<u32> {
    Some(u64::BITS - cells.checked_sub(1)?.leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions and codes from volumes that other programs wrote.
    #[test]
    fn matches_codes_of_other_writers() {
        for (position, code) in [([0, 0, 0], 0), ([0, 0, 1], 4), ([2, 3, 4], 90), ([3, 3, 4], 91)] {
            assert_eq!(encode(&[4, 4, 5], &position), Some(code));
            assert_eq!(decode(&[4, 4, 5], code), Some(position.to_vec()));
        }
    }

    #[test]
    fn a_dimension_that_is_used_up_drops_out() {
        // x has 2 bits, y 1, z 3: code z2 z1 x1 z0 y0 x0
        assert_eq!(encode(&[4, 2, 8], &[0b10, 0b0, 0b110]), Some(0b11_1000));
        assert_eq!(encode(&[4, 2, 8], &[0b01, 0b1, 0b001]), Some(0b00_0111));
        assert_eq!(encode(&[1, 1, 9], &[0, 0, 8]), Some(8), "dimensions of one cell have no bits");
    }

    #[test]
    fn every_cell_has_its_own_code_and_back() {
        for grid in [&[5, 3, 7][..], &[1], &[16, 1, 2, 3], &[]] {
            let cells: u64 = grid.iter().product();
            let mut found = 0;
            for code in 0..1u64 << code_bits(grid).unwrap() {
                let Some(position) = decode(grid, code) else { continue };
                assert_eq!(encode(grid, &position), Some(code));
                found += 1;
            }
            assert_eq!(found, cells, "{grid:?}");
        }
    }

    #[test]
    fn all_64_bits_and_no_more() {
        let grid = [1 << 22, 1 << 21, 1 << 21];
        let last = [(1 << 22) - 1, (1 << 21) - 1, (1 << 21) - 1];
        assert_eq!(encode(&grid, &last), Some(u64::MAX));
        assert_eq!(decode(&grid, u64::MAX), Some(last.to_vec()));
        assert_eq!(encode(&[u64::MAX], &[u64::MAX - 1]), Some(u64::MAX - 1));
        assert_eq!(encode(&[1 << 33, 1 << 32], &[0, 0]), None);
        assert_eq!(decode(&[1 << 33, 1 << 32], 0), None);
    }

    #[test]
    fn what_is_not_in_the_grid_has_no_code() {
        assert_eq!(encode(&[4, 4], &[4, 0]), None);
        assert_eq!(encode(&[4, 4], &[0]), None);
        assert_eq!(encode(&[0, 4], &[0, 0]), None);
        assert_eq!(decode(&[0, 4], 0), None);
        assert_eq!(decode(&[3, 3], 0b1111), None, "3,3 has bits, but no cell");
        assert_eq!(decode(&[4, 4], 16), None, "more bits than the grid has");
    }
}
