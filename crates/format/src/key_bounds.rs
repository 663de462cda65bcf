//! A range of keys as its first and its last key.

use std::ops::{Bound, RangeBounds};

/// The keys from `first` to `last`, both included; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBounds {
    // INVARIANT: first <= last
    first: u64,
    last: u64,
}

impl KeyBounds {
    pub const ALL: KeyBounds = KeyBounds { first: 0, last: u64::MAX };

    /// Converts a range; `None` if it has no keys.
    pub fn new(range: &impl RangeBounds<u64>) -> Option<KeyBounds> {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let last = match range.end_bound() {
            Bound::Included(last) => *last,
            Bound::Excluded(end) => end.checked_sub(1)?,
            Bound::Unbounded => u64::MAX,
        };
        KeyBounds::between(first, last)
    }

    fn between(first: u64, last: u64) -> Option<KeyBounds> {
        (first <= last).then_some(KeyBounds { first, last })
    }

    pub fn first(self) -> u64 {
        self.first
    }

    pub fn last(self) -> u64 {
        self.last
    }

    #[inline]
    pub fn contains(self, key: u64) -> bool {
        (self.first..=self.last).contains(&key)
    }
}

/// The part of a range between two ends that move towards each other: `start <= key < end`. Numbers of 128 bits have a
/// place after the largest key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    start: u128,
    end: u128,
}

impl Unread {
    /// Returns the whole range; `None` has no keys.
    pub fn whole(bounds: Option<KeyBounds>) -> Unread {
        match bounds {
            Some(bounds) => Unread { start: u128::from(bounds.first), end: u128::from(bounds.last) + 1 },
            None => Unread { start: 0, end: 0 },
        }
    }

    /// Returns the first and the last key; `None` if there is none.
    pub fn bounds(self) -> Option<KeyBounds> {
        let last = self.end.checked_sub(1)?;
        KeyBounds::between(u64::try_from(self.start).ok()?, u64::try_from(last).ok()?)
    }

    #[inline]
    pub fn contains(self, key: u64) -> bool {
        (self.start..self.end).contains(&u128::from(key))
    }

    /// Moves the start after `key`.
    #[inline]
    pub fn take_front(&mut self, key: u64) {
        self.start = u128::from(key) + 1;
    }

    /// Moves the end before `key`.
    #[inline]
    pub fn take_back(&mut self, key: u64) {
        self.end = u128::from(key);
    }

    /// Moves the start to `key` or the first key of `whole`, but not past the end.
    pub fn seek(&mut self, whole: Unread, key: u64) {
        self.start = u128::from(key).max(whole.start).min(self.end);
    }

    /// Moves the end after `key` or the last key of `whole`, but not past the start.
    pub fn seek_back(&mut self, whole: Unread, key: u64) {
        self.end = (u128::from(key) + 1).min(whole.end).max(self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_move_up_to_each_other_and_back() {
        const MAX: u64 = u64::MAX;
        let whole = Unread::whole(KeyBounds::new(&(10..)));
        let mut left = whole;
        left.take_back(MAX);
        left.take_front(10);
        assert_eq!(left.bounds(), KeyBounds::new(&(11..MAX)));
        assert!(left.contains(11) && !left.contains(10) && !left.contains(MAX));
        left.seek(whole, 0);
        assert_eq!(left.bounds(), KeyBounds::new(&(10..MAX)));
        left.seek(whole, MAX);
        assert_eq!(left.bounds(), None);
        left.seek(whole, 20);
        left.seek_back(whole, 30);
        assert_eq!(left.bounds(), KeyBounds::new(&(20..=30)));
        left.seek_back(whole, 5);
        assert_eq!(left.bounds(), None);
        left.seek_back(whole, MAX);
        assert_eq!(left.bounds(), KeyBounds::new(&(20..)));
        left.take_front(MAX);
        assert_eq!(left.bounds(), None);
        assert_eq!(Unread::whole(None).bounds(), None);
    }

    #[test]
    fn every_kind_of_range() {
        const MAX: u64 = u64::MAX;
        let bounds = |first, last| Some(KeyBounds { first, last });
        assert_eq!(KeyBounds::new(&(..)), bounds(0, MAX));
        assert_eq!(KeyBounds::new(&(3..7)), bounds(3, 6));
        assert_eq!(KeyBounds::new(&(3..=7)), bounds(3, 7));
        assert_eq!(KeyBounds::new(&(..MAX)), bounds(0, MAX - 1));
        assert_eq!(KeyBounds::new(&(MAX..=MAX)), bounds(MAX, MAX));
        assert_eq!(KeyBounds::new(&(Bound::Excluded(3), Bound::Unbounded)), bounds(4, MAX));
        assert_eq!(KeyBounds::new(&(3..3)), None);
        assert_eq!(KeyBounds::new(&(..0)), None);
        assert_eq!(KeyBounds::new(&(Bound::Excluded(MAX), Bound::Unbounded)), None);
        let (start, end) = (7, 3);
        assert_eq!(KeyBounds::new(&(start..end)), None);
    }
}
