//! A sink that keeps its pairs, for the tests of the readers.

use std::io::Read;

use crate::failure::{Failure, Result};
use crate::input::Sink;

/// A pair, as a reader passed it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: u64,
    pub(crate) prefix: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

pub(crate) fn pair(key: u64, prefix: &[u8], value: &[u8]) -> Pair {
    Pair { key, prefix: prefix.to_vec(), value: value.to_vec() }
}

/// Every pair, in order.
#[derive(Default)]
pub(crate) struct Pairs(pub(crate) Vec<Pair>);

impl Sink for Pairs {
    fn insert(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        self.0.push(pair(key, prefix, value));
        Ok(())
    }

    fn insert_reader(&mut self, key: u64, prefix_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        let failure = |source| Failure::Io { what: "insert".to_string(), source };
        let (mut prefix, mut value) = (Vec::new(), Vec::new());
        (&mut *reader).take(prefix_len).read_to_end(&mut prefix).map_err(failure)?;
        reader.take(value_len).read_to_end(&mut value).map_err(failure)?;
        self.insert(key, &prefix, &value)
    }
}
