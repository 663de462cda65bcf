//! The byte shuffle and the bit shuffle: all first bytes (bits) of the elements, then all second ones, and so on.
//! Similar bytes become neighbours, which compress better.

/// How the bytes of a block are reordered before compression. See [`Encoder`](super::Encoder) for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shuffle {
    /// Not reordered.
    None,
    /// By the bytes of each element (the default).
    #[default]
    Bytes,
    /// By the bits of each element.
    Bits,
}

impl Shuffle {
    /// Returns Blosc's name: `noshuffle`, `shuffle` or `bitshuffle`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "noshuffle",
            Self::Bytes => "shuffle",
            Self::Bits => "bitshuffle",
        }
    }

    /// Restores the original order. Both slices have the length of the block.
    pub(super) fn undo(self, typesize: usize, shuffled: &[u8], block: &mut [u8]) {
        match self {
            Self::Bytes if typesize > 1 => unshuffle(typesize, shuffled, block),
            // blocks that are not a multiple of 8 elements are not shuffled
            Self::Bits if (block.len() / typesize).is_multiple_of(8) => bitunshuffle(typesize, shuffled, block),
            _ => block.copy_from_slice(shuffled),
        }
    }

    /// Reorders a block. Both slices have its length.
    pub(super) fn apply(self, typesize: usize, block: &[u8], shuffled: &mut [u8]) {
        match self {
            Self::Bytes if typesize > 1 => shuffle(typesize, block, shuffled),
            Self::Bits if (block.len() / typesize).is_multiple_of(8) => bitshuffle(typesize, block, shuffled),
            _ => shuffled.copy_from_slice(block),
        }
    }
}

fn unshuffle(typesize: usize, shuffled: &[u8], block: &mut [u8]) {
    let count = block.len() / typesize;
    let whole = count * typesize;
    for (at, plane) in shuffled.chunks_exact(count.max(1)).take(typesize).enumerate() {
        for (element, byte) in block.chunks_exact_mut(typesize).zip(plane) {
            if let Some(place) = element.get_mut(at) {
                *place = *byte;
            }
        }
    }
    copy_tail(whole, shuffled, block);
}

fn shuffle(typesize: usize, block: &[u8], shuffled: &mut [u8]) {
    let count = block.len() / typesize;
    let whole = count * typesize;
    for (at, plane) in shuffled.chunks_exact_mut(count.max(1)).take(typesize).enumerate() {
        for (place, element) in plane.iter_mut().zip(block.chunks_exact(typesize)) {
            if let Some(byte) = element.get(at) {
                *place = *byte;
            }
        }
    }
    copy_tail(whole, block, shuffled);
}

/// Byte `b` of the elements becomes 8 rows of bits: row `8 * b + k` has bit `k` of all elements, 8 per byte.
fn bitunshuffle(typesize: usize, shuffled: &[u8], block: &mut [u8]) {
    let row_len = block.len() / typesize / 8;
    let whole = row_len * 8 * typesize;
    for (at, rows) in shuffled.chunks_exact((row_len * 8).max(1)).take(typesize).enumerate() {
        for (group, elements) in block.chunks_exact_mut(typesize * 8).enumerate() {
            let rows = std::array::from_fn(|row| rows.get(row * row_len + group).copied().unwrap_or_default());
            for (element, byte) in elements.chunks_exact_mut(typesize).zip(transposed(rows)) {
                if let Some(place) = element.get_mut(at) {
                    *place = byte;
                }
            }
        }
    }
    copy_tail(whole, shuffled, block);
}

fn bitshuffle(typesize: usize, block: &[u8], shuffled: &mut [u8]) {
    let row_len = block.len() / typesize / 8;
    let whole = row_len * 8 * typesize;
    for (at, rows) in shuffled.chunks_exact_mut((row_len * 8).max(1)).take(typesize).enumerate() {
        for (group, elements) in block.chunks_exact(typesize * 8).enumerate() {
            let bytes = std::array::from_fn(|of| elements.get(of * typesize + at).copied().unwrap_or_default());
            for (row, byte) in transposed(bytes).into_iter().enumerate() {
                if let Some(place) = rows.get_mut(row * row_len + group) {
                    *place = byte;
                }
            }
        }
    }
    copy_tail(whole, block, shuffled);
}

/// Copies the bytes after the last whole element, which are not reordered.
fn copy_tail(whole: usize, from: &[u8], to: &mut [u8]) {
    if let (Some(to), Some(from)) = (to.get_mut(whole..), from.get(whole..)) {
        to.copy_from_slice(from);
    }
}

/// Transposes the 8 x 8 bits: bit `i` of byte `j` becomes bit `j` of byte `i`.
fn transposed(bytes: [u8; 8]) -> [u8; 8] {
    // swaps squares of 1, 2 and 4 bits across the diagonal
    let mut bits = u64::from_le_bytes(bytes);
    for (shift, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let changed = (bits ^ (bits >> shift)) & mask;
        bits ^= changed ^ (changed << shift);
    }
    bits.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ways(shuffle: Shuffle, typesize: usize, block: &[u8]) -> Vec<u8> {
        let mut shuffled = vec![0; block.len()];
        shuffle.apply(typesize, block, &mut shuffled);
        let mut back = vec![0; block.len()];
        shuffle.undo(typesize, &shuffled, &mut back);
        assert_eq!(back, block, "{shuffle:?}, typesize {typesize}");
        shuffled
    }

    #[test]
    fn bytes_of_one_place_come_together_and_the_tail_stays() {
        assert_eq!(both_ways(Shuffle::Bytes, 3, b"abcABC123xy"), b"aA1bB2cC3xy");
    }

    #[test]
    fn bits_of_one_place_come_together() {
        // elements of one byte: the transposed matrix itself
        let diagonal = [1, 2, 4, 8, 16, 32, 64, 128];
        assert_eq!(both_ways(Shuffle::Bits, 1, &diagonal), diagonal);
        assert_eq!(both_ways(Shuffle::Bits, 1, &[0x81, 0, 0, 0, 0, 0, 0, 0]), [1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(both_ways(Shuffle::Bits, 1, &[0, 0xff, 0, 0, 0, 0, 0, 0]), [2; 8]);
        // 8 elements of 2 bytes, then one byte that belongs to none
        let mut block = [0u8; 17];
        block[3] = 0x10; // bit 4 of the second byte of element 1: row 8 + 4
        block[16] = 7;
        let mut rows = [0u8; 17];
        rows[12] = 0x02;
        rows[16] = 7;
        assert_eq!(both_ways(Shuffle::Bits, 2, &block), rows);
    }

    #[test]
    fn every_width_and_length_goes_both_ways() {
        let bytes: Vec<u8> = (0..400u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for shuffle in [Shuffle::None, Shuffle::Bytes, Shuffle::Bits] {
            for typesize in [1, 2, 3, 4, 7, 8, 12, 16, 17, 255] {
                for len in [0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 128, 254, 255, 256, 399, 400] {
                    both_ways(shuffle, typesize, &bytes[..len]);
                }
            }
        }
    }
}
