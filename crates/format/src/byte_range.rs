//! The two kinds of byte ranges of the format, as two types that cannot be mixed up.
//!
//! Every range that an index states is a [`RelativeRange`]: relative to the end of the shard index, and untrusted.
//! Every range that is read is a [`ByteRange`]: relative to the start of a file, or of bytes in memory.
//! [`RelativeRange::resolve`] converts the first to the second and checks the bounds.

/// Bytes `start..end` relative to the end of the shard index, as stated by an index. Untrusted: not yet checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativeRange {
    pub start: u64,
    pub end: u64,
}

/// Bytes `start..end` of a file, or of bytes in memory, with `start <= end`.
///
/// A range from [`RelativeRange::resolve`] is within its file. Other ranges may end past it, such as the place of a
/// check, which is computed from the end of an index. Reading one that does is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub end: u64,
}

impl RelativeRange {
    /// Converts the range to one of a file of `file_len` bytes whose shard index ends at `base`. `None` if the range is
    /// reversed, overflows, or is outside the file.
    #[inline]
    pub fn resolve(self, base: u64, file_len: u64) -> Option<ByteRange> {
        let start = base.checked_add(self.start)?;
        let end = base.checked_add(self.end)?;
        (start <= end && end <= file_len).then_some(ByteRange { start, end })
    }

    /// Returns the bytes of this range in `body`, the bytes after the shard index. `None` if the range is reversed or
    /// ends past `body`.
    #[inline]
    pub fn of(self, body: &[u8]) -> Option<&[u8]> {
        body.get(usize::try_from(self.start).ok()?..usize::try_from(self.end).ok()?)
    }

    /// Whether a file can contain this range: `start <= end`, and `end` is below 2^63.
    #[inline]
    pub fn is_possible(self) -> bool {
        self.start <= self.end && i64::try_from(self.end).is_ok()
    }
}

impl ByteRange {
    #[inline]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns the bytes of this range in `slice`. `None` if the range ends past `slice`.
    #[inline]
    pub fn of(self, slice: &[u8]) -> Option<&[u8]> {
        slice.get(usize::try_from(self.start).ok()?..usize::try_from(self.end).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_only_what_lies_in_the_file() {
        let resolve = |start, end| RelativeRange { start, end }.resolve(32, 100);
        assert_eq!(resolve(0, 68), Some(ByteRange { start: 32, end: 100 }));
        assert_eq!(resolve(68, 68), Some(ByteRange { start: 100, end: 100 }));
        assert_eq!(resolve(0, 69), None, "past the end");
        assert_eq!(resolve(69, 69), None, "empty, but past the end");
        assert_eq!(resolve(5, 4), None, "not in order");
        assert_eq!(resolve(u64::MAX, 3), None, "overflow");
    }

    #[test]
    fn possible_is_what_any_file_may_have() {
        let largest = i64::MAX.unsigned_abs();
        let possible = |start, end| RelativeRange { start, end }.is_possible();
        assert!(possible(0, 0) && possible(7, 7) && possible(0, largest));
        assert!(!possible(1, 0), "not in order");
        assert!(!possible(0, largest + 1), "longer than any file");
    }
}
