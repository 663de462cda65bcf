//! Random choices of keys, the same in each run.

/// A generator of pseudorandom numbers (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A nearly uniform number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// One of `items`; `None` if there are none.
    pub(crate) fn one_of(&mut self, items: &[u64]) -> Option<u64> {
        let at = usize::try_from(self.below(items.len() as u64)).ok()?;
        items.get(at).copied()
    }

    /// Draws `count` of `items` with replacement, in random order.
    pub(crate) fn draw(&mut self, items: &[u64], count: usize) -> Vec<u64> {
        (0..count).filter_map(|_| self.one_of(items)).collect()
    }

    /// Shuffles items.
    pub(crate) fn shuffle(&mut self, items: &mut [u64]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap_or(last);
            items.swap(last, other);
        }
    }
}

/// A uniform sample of a stream, without replacement, from one pass over it.
pub(crate) struct Sample {
    random: Random,
    capacity: usize,
    seen: u64,
    items: Vec<u64>,
}

impl Sample {
    pub(crate) fn new(capacity: usize, random: Random) -> Sample {
        Sample { random, capacity, seen: 0, items: Vec::new() }
    }

    /// Offers the next item.
    pub(crate) fn offer(&mut self, item: u64) {
        self.seen += 1;
        if self.items.len() < self.capacity {
            return self.items.push(item);
        }
        let at = usize::try_from(self.random.below(self.seen)).unwrap_or(usize::MAX);
        if let Some(place) = self.items.get_mut(at) {
            *place = item;
        }
    }

    /// The number of items offered so far.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// The sample, in random order.
    pub(crate) fn into_items(mut self) -> Vec<u64> {
        self.random.shuffle(&mut self.items);
        self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_all_and_changes_the_order() {
        let mut items: Vec<u64> = (0..1000).collect();
        Random::new(1).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..1000));
    }

    #[test]
    fn a_sample_has_items_from_everywhere_and_none_twice() {
        let mut sample = Sample::new(1000, Random::new(1));
        (0..100_000).for_each(|item| sample.offer(item));
        assert_eq!(sample.seen(), 100_000);
        let mut items = sample.into_items();
        assert_eq!(items.len(), 1000);
        items.sort_unstable();
        assert!(items.windows(2).all(|pair| pair[0] < pair[1]));
        for tenth in 0..10_u64 {
            let range = tenth * 10_000..(tenth + 1) * 10_000;
            let count = items.iter().filter(|item| range.contains(*item)).count();
            assert!((60..140).contains(&count), "{count} of 1000 in {range:?}");
        }
    }

    #[test]
    fn a_sample_of_few_has_all() {
        let mut sample = Sample::new(10, Random::new(1));
        (0..3).for_each(|item| sample.offer(item));
        let mut items = sample.into_items();
        items.sort_unstable();
        assert_eq!(items, [0, 1, 2]);
    }

    #[test]
    fn of_nothing_nothing_is_drawn() {
        assert_eq!(Random::new(1).one_of(&[]), None);
        assert!(Random::new(1).draw(&[], 3).is_empty());
    }
}
