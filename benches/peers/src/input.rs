//! The pairs as input of an engine: in random order, or ascending.

use crate::data::DataSet;
use crate::reader::Result;

/// The order of pairs in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Random, as from a parallel pipeline.
    Any,
    /// Ascending by key, as from a sorted source.
    Ascending,
}

/// The pairs to load.
pub struct Input {
    data: DataSet,
    /// All keys, if the order is ascending.
    ascending: Option<Vec<u64>>,
}

/// The place of a value in memory.
struct Place {
    key: u64,
    start: usize,
    len: usize,
}

impl Input {
    /// Sorts the keys if the order is ascending, so that no load pays for it.
    pub fn new(data: DataSet, order: Order) -> Input {
        let ascending = (order == Order::Ascending).then(|| {
            let mut keys: Vec<u64> = data.keys().collect();
            keys.sort_unstable();
            keys
        });
        Input { data, ascending }
    }

    pub fn data(&self) -> &DataSet {
        &self.data
    }

    /// Calls `f` with the pairs in input order.
    pub fn for_each(&self, mut f: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut value = Vec::new();
        let mut give = |key| {
            self.data.value_into(key, &mut value);
            f(key, &value)
        };
        match &self.ascending {
            Some(keys) => keys.iter().copied().try_for_each(give),
            None => self.data.keys().try_for_each(&mut give),
        }
    }

    /// Calls `f` with the pairs in ascending order. If the input has another order, all pairs are collected in memory
    /// and sorted, as any program that wants to append must do.
    pub fn for_each_ascending(&self, mut f: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        if self.ascending.is_some() {
            return self.for_each(f);
        }
        let mut values = Vec::with_capacity(usize::try_from(self.data.value_bytes())?);
        let mut places = Vec::with_capacity(usize::try_from(self.data.keys)?);
        self.for_each(|key, value| {
            places.push(Place { key, start: values.len(), len: value.len() });
            values.extend_from_slice(value);
            Ok(())
        })?;
        places.sort_unstable_by_key(|place| place.key);
        places.iter().try_for_each(|place| f(place.key, &values[place.start..place.start + place.len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascending_pairs_are_the_same_pairs() {
        let data: DataSet = "1kxlognormal".parse().unwrap();
        let gather = |order, ascending| {
            let (input, mut pairs) = (Input::new(data, order), Vec::new());
            let take = |key, value: &[u8]| {
                pairs.push((key, value.to_vec()));
                Ok(())
            };
            if ascending { input.for_each_ascending(take) } else { input.for_each(take) }.unwrap();
            pairs
        };
        let mut pairs = gather(Order::Any, false);
        assert!(!pairs.is_sorted());
        pairs.sort_unstable();
        assert_eq!(pairs.len(), 1000);
        assert!(gather(Order::Ascending, false) == pairs);
        assert!(gather(Order::Ascending, true) == pairs);
        assert!(gather(Order::Any, true) == pairs);
    }
}
