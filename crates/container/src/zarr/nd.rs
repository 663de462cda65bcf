//! N-dimensional boxes of elements in C order: strides, copies between boxes, transposition.

use sharddb_format::{Error, ErrorKind, Result};

/// Returns the product, if it is below 2^64.
pub(super) fn product(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |product, &cells| product.checked_mul(cells))
}

/// Returns the distance in cells between neighbours along each axis, in C order; `None` if it is 2^64 or more.
pub(super) fn strides(shape: &[u64]) -> Option<Vec<u64>> {
    let mut strides = vec![1; shape.len()];
    let mut stride = 1u64;
    for (at, &cells) in strides.iter_mut().zip(shape).rev() {
        *at = stride;
        stride = stride.checked_mul(cells.max(1))?;
    }
    Some(strides)
}

/// A permutation of axes as in the codec `transpose`: axis `i` of the result is axis `order[i]` of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Permutation(Vec<usize>);

impl Permutation {
    /// Returns `None` if an axis is missing or repeated.
    pub(super) fn new(order: Vec<usize>) -> Option<Permutation> {
        let mut seen = vec![false; order.len()];
        for &axis in &order {
            let seen = seen.get_mut(axis).filter(|seen| !**seen)?;
            *seen = true;
        }
        Some(Permutation(order))
    }

    pub(super) fn identity(dimensions: usize) -> Permutation {
        Permutation((0..dimensions).collect())
    }

    pub(super) fn is_identity(&self) -> bool {
        self.0.iter().enumerate().all(|(at, &axis)| at == axis)
    }

    /// Returns the permutation that applies `self`, then `next`.
    pub(super) fn then(&self, next: &Permutation) -> Permutation {
        Permutation(next.apply(&self.0))
    }

    pub(super) fn inverse(&self) -> Permutation {
        let mut order = vec![0; self.0.len()];
        for (at, &axis) in self.0.iter().enumerate() {
            if let Some(place) = order.get_mut(axis) {
                *place = at;
            }
        }
        Permutation(order)
    }

    /// Permutes the items of the axes.
    pub(super) fn apply<T: Copy>(&self, items: &[T]) -> Vec<T> {
        self.0.iter().filter_map(|&axis| items.get(axis).copied()).collect()
    }

    /// Permutes the axes of a box of `shape`. Elements have `size` bytes.
    pub(super) fn transpose(&self, elements: Vec<u8>, shape: &[u64], size: usize) -> Result<Vec<u8>> {
        if self.is_identity() {
            return Ok(elements);
        }
        let mut transposed = zeroed(elements.len())?;
        let strides = strides(shape).unwrap_or_default();
        let mut walk = Walk::new(&self.apply(shape), &self.apply(&strides));
        for place in transposed.chunks_exact_mut(size) {
            let Some(from) = walk.next() else { break };
            copy_element(&elements, from, place);
        }
        Ok(transposed)
    }
}

fn copy_element(elements: &[u8], number: u64, place: &mut [u8]) {
    let start = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(place.len());
    if let Some(element) = elements.get(start..).and_then(|rest| rest.get(..place.len())) {
        place.copy_from_slice(element);
    }
}

/// Iterates over the cells of a box inside another box, in C order. Yields their indices in the outer box.
pub(super) struct Walk {
    axes: Vec<WalkAxis>,
    number: Option<u64>,
}

struct WalkAxis {
    cells: u64,
    stride: u64,
    at: u64,
}

impl Walk {
    pub(super) fn new(shape: &[u64], strides: &[u64]) -> Walk {
        let axes = shape.iter().zip(strides).map(|(&cells, &stride)| WalkAxis { cells, stride, at: 0 }).collect();
        Walk { axes, number: (!shape.contains(&0)).then_some(0) }
    }
}

impl Iterator for Walk {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let current = self.number?;
        let mut number = current;
        for axis in self.axes.iter_mut().rev() {
            axis.at += 1;
            if axis.at < axis.cells {
                self.number = Some(number + axis.stride);
                return Some(current);
            }
            number -= axis.stride * (axis.cells - 1);
            axis.at = 0;
        }
        self.number = None;
        Some(current)
    }
}

/// The elements of a box in C order, and its shape.
pub(super) struct ElementBox<'a> {
    pub(super) elements: &'a [u8],
    pub(super) shape: &'a [u64],
}

/// Copies the part of shape `part` at position `from` of a box to position `to` of another. Elements have `size` bytes.
///
/// The part must be inside both boxes. Rows outside are not copied.
pub(super) fn copy_part(
    source: &ElementBox<'_>,
    from: &[u64],
    target: &mut [u8],
    target_shape: &[u64],
    to: &[u64],
    part: &[u64],
    size: usize,
) {
    let inside = |origin: &[u64], shape: &[u64]| {
        origin
            .iter()
            .zip(part)
            .zip(shape)
            .all(|((at, len), cells)| at.checked_add(*len).is_some_and(|end| end <= *cells))
    };
    debug_assert!(inside(from, source.shape) && inside(to, target_shape), "the part must be inside both boxes");
    let (Some(source_strides), Some(target_strides)) = (strides(source.shape), strides(target_shape)) else { return };
    // the last axis is contiguous: it is copied as a row
    let (rows, row) = part.split_at(part.len().saturating_sub(1));
    let row = row.first().copied().unwrap_or(1);
    let row_bytes = to_usize(row).saturating_mul(size);
    let (source_first, target_first) = (offset(from, &source_strides), offset(to, &target_strides));
    let starts = Walk::new(rows, &source_strides).zip(Walk::new(rows, &target_strides));
    for (source_row, target_row) in starts {
        let read = to_usize(source_first + source_row).saturating_mul(size);
        let write = to_usize(target_first + target_row).saturating_mul(size);
        let bytes = source.elements.get(read..).and_then(|rest| rest.get(..row_bytes));
        let place = target.get_mut(write..).and_then(|rest| rest.get_mut(..row_bytes));
        if let (Some(bytes), Some(place)) = (bytes, place) {
            place.copy_from_slice(bytes);
        }
    }
}

fn offset(position: &[u64], strides: &[u64]) -> u64 {
    position.iter().zip(strides).map(|(at, stride)| at * stride).sum()
}

/// Returns `len` zeros.
///
/// # Errors
///
/// `TooLarge` if they cannot be allocated.
pub(super) fn zeroed(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let message = || format!("no memory for {len} bytes of a chunk: lower the cap");
    bytes.try_reserve_exact(len).map_err(|_| Error::new(ErrorKind::TooLarge, message()))?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Returns `len` bytes filled with repetitions of `pattern`.
pub(super) fn filled(pattern: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut bytes = zeroed(len)?;
    if pattern.iter().any(|byte| *byte != 0) {
        bytes.chunks_exact_mut(pattern.len()).for_each(|element| element.copy_from_slice(pattern));
    }
    Ok(bytes)
}

/// Converts the length of something in memory. Saturates on platforms with a smaller `usize`.
pub(super) fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposes_and_back() {
        let order = Permutation::new(vec![2, 0, 1]).unwrap();
        let elements: Vec<u8> = (0..24).collect(); // 2 x 3 x 4
        let transposed = order.transpose(elements.clone(), &[2, 3, 4], 1).unwrap(); // 4 x 2 x 3
        assert_eq!(transposed[..7], [0, 4, 8, 12, 16, 20, 1]);
        assert_eq!(order.apply(&[2, 3, 4]), [4, 2, 3]);
        assert_eq!(order.inverse().transpose(transposed, &[4, 2, 3], 1).unwrap(), elements);
        assert!(order.then(&order.inverse()).is_identity());
    }

    #[test]
    fn a_permutation_has_every_axis_once() {
        for bad in [vec![1], vec![0, 0], vec![0, 2], vec![usize::MAX]] {
            assert_eq!(Permutation::new(bad), None);
        }
        assert!(Permutation::new(Vec::new()).unwrap().is_identity());
    }

    #[test]
    fn copies_parts_between_boxes() {
        let elements: Vec<u8> = (0..24).collect(); // 2 x 3 x 4
        let mut target = vec![0xff; 2 * 2 * 2];
        let source = ElementBox { elements: &elements, shape: &[2, 3, 4] };
        copy_part(&source, &[0, 1, 2], &mut target, &[2, 2, 2], &[0, 0, 0], &[2, 2, 2], 1);
        assert_eq!(target, [6, 7, 10, 11, 18, 19, 22, 23]);
        let mut target = vec![0; 12];
        let source = ElementBox { elements: &[1, 2, 3, 4], shape: &[1, 2] };
        copy_part(&source, &[0, 0], &mut target, &[2, 3], &[1, 1], &[1, 2], 2);
        assert_eq!(target, [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_box_without_dimensions_is_one_element() {
        let mut target = [0; 2];
        copy_part(&ElementBox { elements: &[7, 8], shape: &[] }, &[], &mut target, &[], &[], &[], 2);
        assert_eq!(target, [7, 8]);
    }
}
