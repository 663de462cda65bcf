//! The two kinds of offsets of the format, as two types that cannot be mixed up.
//!
//! Everything that an index says is a [`RelativeRange`]: relative to the end of the shard index.
//! Everything that is read is a [`ByteRange`]: of a file, known to lie within it. The one way from the first
//! to the second is [`RelativeRange::resolve`], which checks.

/// Bytes `start..end`, relative to the end of the shard index, as an index states them: not yet trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelativeRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Bytes `start..end` of a file or of its part behind the shard index, in order and within its length when made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl RelativeRange {
    /// The range in a file of `file_len` bytes whose shard index ends at `base`; `None` if it is not in order,
    /// overflows, or lies outside.
    #[inline]
    pub(crate) fn resolve(self, base: u64, file_len: u64) -> Option<ByteRange> {
        let start = base.checked_add(self.start)?;
        let end = base.checked_add(self.end)?;
        (start <= end && end <= file_len).then_some(ByteRange { start, end })
    }

    /// The bytes in this range of those behind the shard index; `None` if it is not in order or not all are there.
    #[inline]
    pub(crate) fn of(self, behind: &[u8]) -> Option<&[u8]> {
        behind.get(usize::try_from(self.start).ok()?..usize::try_from(self.end).ok()?)
    }

    /// Whether there could be a file with this range: it is in order and ends within 2^63 bytes.
    #[inline]
    pub(crate) fn is_possible(self) -> bool {
        self.start <= self.end && i64::try_from(self.end).is_ok()
    }
}

impl ByteRange {
    #[inline]
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }

    /// The bytes of `slice` in this range, if all of them are there.
    #[inline]
    pub(crate) fn of(self, slice: &[u8]) -> Option<&[u8]> {
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
