//! Iteration over keys and pairs, in storage order.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sharddb::OwnedValue;
use sharddb::read::{Keys, Pairs};

use crate::batch;
use crate::errors::OrRaise;
use crate::preamble;
use crate::reader::Reader;

/// Keys or pairs that are read at a time, without the GIL.
const KEYS_PER_READ: usize = 1024;

/// The values of a block have at most this many bytes, except for its last one.
const BYTES_PER_READ: usize = 1 << 20;

/// An iterator over keys, which are read in blocks; see `Reader.__iter__`.
#[pyclass(module = "sharddb")]
struct KeyIterator {
    generation: Reader,
    keys: Keys,
    block: std::vec::IntoIter<sharddb::Result<u64>>,
}

#[pymethods]
impl KeyIterator {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<u64>> {
        if self.block.len() == 0 {
            self.generation.open(py)?; // in a forked child it takes a lease
            let keys = &mut self.keys;
            self.block = py.detach(|| keys.take(KEYS_PER_READ).collect::<Vec<_>>()).into_iter();
        }
        self.block.next().transpose().or_raise(py)
    }
}

/// An iterator over pairs; see `Reader.items`.
#[pyclass(module = "sharddb")]
struct ItemIterator {
    generation: Reader,
    pairs: Pairs,
    has_preambles: bool,
    block: std::vec::IntoIter<sharddb::Result<Item>>,
}

/// A key, its preamble, and the value.
pub(crate) type Item = (u64, Preamble, OwnedValue);

pub(crate) enum Preamble {
    /// The data has no preambles.
    None,
    /// Where the preamble begins after padding is not stored.
    Unknown,
    Known(OwnedValue),
}

impl Preamble {
    pub(crate) fn known(&self) -> Option<&OwnedValue> {
        match self {
            Preamble::Known(preamble) => Some(preamble),
            Preamble::None | Preamble::Unknown => None,
        }
    }
}

/// Reads the next pairs: at most `KEYS_PER_READ`, and until their values have `BYTES_PER_READ` bytes.
fn read_block(pairs: &mut Pairs, has_preambles: bool) -> Vec<sharddb::Result<Item>> {
    let (mut block, mut bytes) = (Vec::new(), 0);
    while block.len() < KEYS_PER_READ
        && bytes < BYTES_PER_READ
        && let Some(item) = next_item(pairs, has_preambles)
    {
        if let Ok((_, preamble, value)) = &item {
            for part in preamble.known().into_iter().chain([value]) {
                batch::touch(part);
                bytes += part.len();
            }
        }
        block.push(item);
    }
    block
}

/// Reads the next pair, with its preamble if the data has some.
pub(crate) fn next_item(pairs: &mut Pairs, has_preambles: bool) -> Option<sharddb::Result<Item>> {
    if has_preambles {
        let next = pairs.next_with_preamble()?;
        return Some(
            next.map(|(key, preamble, value)| (key, preamble.map_or(Preamble::Unknown, Preamble::Known), value)),
        );
    }
    Some(pairs.next()?.map(|(key, value)| (key, Preamble::None, value)))
}

#[pymethods]
impl ItemIterator {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyAny>)>> {
        if self.block.len() == 0 {
            self.generation.open(py)?; // in a forked child it takes a lease
            let (pairs, has_preambles) = (&mut self.pairs, self.has_preambles);
            self.block = py.detach(|| read_block(pairs, has_preambles)).into_iter();
        }
        Ok(match self.block.next().transpose().or_raise(py)? {
            None => None,
            Some((key, Preamble::None, value)) => Some((key, PyBytes::new(py, &value).into_any())),
            Some((key, preamble, value)) => {
                Some((key, preamble::value(py, &value, preamble.known().map(|preamble| &**preamble))?))
            }
        })
    }
}

#[pymethods]
impl Reader {
    /// Iterates over the keys of the current generation in storage order, as integers. `keys` returns an array.
    ///
    /// A key that cannot be read raises; the iteration then continues with the next one that can.
    fn __iter__(&self, py: Python<'_>) -> PyResult<KeyIterator> {
        let open = self.open(py)?.pinned();
        let keys = open.snapshot().keys();
        Ok(KeyIterator { generation: Reader::new(open), keys, block: Vec::new().into_iter() })
    }

    /// Iterates over the pairs of the current generation in storage order, as tuples of `int` and `bytes`.
    ///
    /// These are the pairs that the indexes have: also a key that is stored twice, or in a place where lookups do not find
    /// it. A pair that cannot be read raises; the iteration then continues with the next one that can. Values are
    /// `ValueWithPreamble` if the data has preambles, as a multi-resolution mesh has.
    fn items(&self, py: Python<'_>) -> PyResult<ItemIterator> {
        let open = self.open(py)?.pinned();
        let snapshot = open.snapshot();
        let has_preambles = py.detach(|| snapshot.has_preambles()).or_raise(py)?;
        let pairs = snapshot.pairs();
        Ok(ItemIterator { generation: Reader::new(open), pairs, has_preambles, block: Vec::new().into_iter() })
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<KeyIterator>()?;
    module.add_class::<ItemIterator>()
}
