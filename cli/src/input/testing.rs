//! A sink that keeps its pairs, for the tests of the readers.

use std::io::Read;

use crate::failure::{Failure, Result};
use crate::input::Sink;

/// A pair, as a reader passed it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: u64,
    pub(crate) preamble: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

pub(crate) fn pair(key: u64, preamble: &[u8], value: &[u8]) -> Pair {
    Pair { key, preamble: preamble.to_vec(), value: value.to_vec() }
}

/// Every pair, in order.
#[derive(Default)]
pub(crate) struct Pairs(pub(crate) Vec<Pair>);

impl Sink for Pairs {
    fn insert(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        self.0.push(pair(key, preamble, value));
        Ok(())
    }

    fn insert_reader(&mut self, key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        let failure = |source| Failure::Io { what: "insert".to_string(), source };
        let (mut preamble, mut value) = (Vec::new(), Vec::new());
        (&mut *reader).take(preamble_len).read_to_end(&mut preamble).map_err(failure)?;
        reader.take(value_len).read_to_end(&mut value).map_err(failure)?;
        self.insert(key, &preamble, &value)
    }
}
