//! Byte buffers on the heap that begin at an aligned address.

use std::ops::Deref;

use crate::error::{Error, ErrorKind, Result};

/// A buffer whose visible part, `buffer[start..]`, begins at a multiple of an alignment.
pub struct AlignedBytes {
    buffer: Vec<u8>,
    start: usize,
}

impl AlignedBytes {
    /// The alignment for the bytes of a whole file: with it, values keep their alignment, which is at most a page.
    pub const PAGE: usize = 4096;

    /// Allocates `len` zero bytes.
    ///
    /// Errors: `TooLarge` if the allocation fails.
    pub fn zeroed(len: usize, alignment: usize) -> Result<AlignedBytes> {
        let (mut buffer, start) = allocate(len, alignment)?;
        buffer.resize(start + len, 0);
        Ok(AlignedBytes { buffer, start })
    }

    /// Copies bytes.
    ///
    /// Errors: `TooLarge` if the allocation fails.
    pub(crate) fn copy_of(bytes: &[u8], alignment: usize) -> Result<AlignedBytes> {
        let (mut buffer, start) = allocate(bytes.len(), alignment)?;
        buffer.resize(start, 0);
        buffer.extend_from_slice(bytes);
        Ok(AlignedBytes { buffer, start })
    }

    /// Takes the bytes of a vector. Copies them only if they are not aligned.
    pub fn from_vec(bytes: Vec<u8>, alignment: usize) -> Result<AlignedBytes> {
        if padding_to(&bytes, alignment) == 0 {
            return Ok(AlignedBytes { buffer: bytes, start: 0 });
        }
        AlignedBytes::copy_of(&bytes, alignment)
    }

    /// Returns the bytes as a vector. Moves them only if they do not begin at the start of the allocation.
    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
        }
        self.buffer
    }
}

impl Clone for AlignedBytes {
    /// Copies the bytes to an address with the same alignment, up to [`PAGE`](Self::PAGE).
    fn clone(&self) -> AlignedBytes {
        let alignment = 1 << self.as_ptr().addr().trailing_zeros().min(AlignedBytes::PAGE.trailing_zeros());
        AlignedBytes::copy_of(self, alignment).unwrap_or_else(|_| AlignedBytes::from(self.to_vec()))
    }
}

impl From<Vec<u8>> for AlignedBytes {
    /// Takes the vector without a copy and without an alignment.
    fn from(buffer: Vec<u8>) -> AlignedBytes {
        AlignedBytes { buffer, start: 0 }
    }
}

/// Allocates a buffer for `len` bytes, and returns where in it they begin.
fn allocate(len: usize, alignment: usize) -> Result<(Vec<u8>, usize)> {
    let no_memory = || Error::new(ErrorKind::TooLarge, format!("cannot allocate {len} bytes: out of memory"));
    let capacity = len.checked_add(alignment - 1).ok_or_else(no_memory)?;
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(capacity).map_err(|_| no_memory())?;
    let start = padding_to(&buffer, alignment);
    Ok((buffer, start))
}

fn padding_to(bytes: &[u8], alignment: usize) -> usize {
    bytes.as_ptr().addr().wrapping_neg() & (alignment - 1)
}

impl AsMut<[u8]> for AlignedBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.start..).unwrap_or_default()
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_at_an_aligned_address() {
        for alignment in [1, 4, 8, 16, 64, 4096] {
            for len in [0, 1, 4095, 4097] {
                let bytes = AlignedBytes::zeroed(len, alignment).unwrap();
                assert_eq!((bytes.as_ptr().addr() % alignment, bytes.len()), (0, len));
                let bytes = AlignedBytes::from_vec(vec![7; len], alignment).unwrap();
                assert_eq!((bytes.as_ptr().addr() % alignment, &bytes[..]), (0, &vec![7; len][..]));
            }
        }
    }

    #[test]
    fn too_much_is_an_error_and_no_abort() {
        assert_eq!(AlignedBytes::zeroed(usize::MAX, 1).err().unwrap().kind(), ErrorKind::TooLarge);
        assert_eq!(AlignedBytes::zeroed(usize::MAX / 2, 64).err().unwrap().kind(), ErrorKind::TooLarge);
    }
}
