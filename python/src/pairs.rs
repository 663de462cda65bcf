//! Pairs of the caller on their way into a build: collected in batches with the GIL, inserted without it.
//!
//! ```text
//! one pair                  w[k] = v
//! a mapping, an iterable    pair by pair (`pair_input`)
//! keys, offsets, data       slice by slice, no object per value
//! an Arrow stream           batch by batch (`arrow_input`)
//! ```

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sharddb::{BulkLoader, Updater};

use crate::bytes_like::{self, Held};
use crate::errors::OrRaise;
use crate::keys::{Key, Keys, room_for};
use crate::preamble;

/// Upper bounds on a batch, except for a single larger pair.
const BATCH_BYTES: usize = 1 << 20;
pub(crate) const BATCH_PAIRS: usize = 1 << 14;

/// Where pairs go.
pub(crate) trait Sink: Send {
    fn put(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> sharddb::Result<()>;
}

impl Sink for BulkLoader {
    #[inline]
    fn put(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> sharddb::Result<()> {
        self.insert_with_preamble(key, preamble, value)
    }
}

impl Sink for Updater {
    #[inline]
    fn put(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> sharddb::Result<()> {
        self.put_with_preamble(key, preamble, value)
    }
}

/// Inserts pairs into a sink.
pub(crate) struct Writer<S> {
    sink: S,
    keys: Vec<u64>,
    /// The end of each value in `bytes`.
    ends: Vec<usize>,
    /// The keys with a preamble, by their positions, and the ends of the preambles, which are before the values.
    preambles: Vec<(usize, usize)>,
    bytes: Vec<u8>,
}

impl<S: Sink> Writer<S> {
    pub(crate) fn new(sink: S) -> Writer<S> {
        Writer { sink, keys: Vec::new(), ends: Vec::new(), preambles: Vec::new(), bytes: Vec::new() }
    }

    /// Inserts what was collected, and returns the sink.
    pub(crate) fn finish(mut self, py: Python<'_>) -> PyResult<S> {
        self.flush(py)?;
        Ok(self.sink)
    }

    /// Adds a pair.
    pub(crate) fn push(&mut self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Key(key) = key.extract()?;
        if let Some(preamble) = preamble::of(value)? {
            self.bytes.extend_from_slice(preamble.as_bytes());
            self.preambles.push((self.keys.len(), self.bytes.len()));
        }
        bytes_like::append(value, &mut self.bytes)?;
        self.keys.push(key);
        self.ends.push(self.bytes.len());
        if self.bytes.len() >= BATCH_BYTES || self.keys.len() >= BATCH_PAIRS { self.flush(value.py()) } else { Ok(()) }
    }

    /// Adds the pairs of arrays: the value of `keys[i]` is `data[offsets[i]:offsets[i + 1]]`.
    ///
    /// Errors: before the first insertion, those of arrays that do not fit together.
    pub(crate) fn extend_ragged(
        &mut self,
        keys: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = keys.py();
        let Keys(keys) = keys.extract()?;
        let item_len = data.getattr_opt("itemsize")?.and_then(|len| len.extract::<u64>().ok()).unwrap_or(1);
        let data = Held::new(data).inspect_err(|error| note(py, error, "data"))?;
        let Keys(offsets) = offsets.extract().inspect_err(|error| note(py, error, "offsets"))?;
        let is_in_items = |last: &u64| last.checked_mul(item_len) == Some(data.len() as u64) && *last > 0;
        if item_len > 1 && offsets.last().is_some_and(is_in_items) {
            let message =
                format!("expected offsets in bytes, found offsets in items of data: multiply them by {item_len}");
            return Err(PyValueError::new_err(message));
        }
        let offsets = checked_offsets(&offsets, keys.len(), data.len())?;
        self.flush(py)?;
        let mut at = 0;
        while let Some((&begin, ends)) = offsets.get(at..).and_then(<[usize]>::split_first) {
            let fits = |end: &&usize| **end - begin <= BATCH_BYTES;
            let pairs = ends.iter().take(BATCH_PAIRS).take_while(fits).count().max(1);
            let (Some(keys), Some(ends)) = (keys.get(at..at + pairs), ends.get(..pairs)) else { break };
            self.keys.extend_from_slice(keys);
            self.ends.extend(ends.iter().map(|end| end - begin));
            let end = ends.last().copied().unwrap_or(begin);
            data.append(py, begin..end, &mut self.bytes);
            self.flush(py)?;
            at += pairs;
        }
        Ok(())
    }

    /// Inserts what was collected, without the GIL, and handles signals.
    pub(crate) fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.insert_collected()).or_raise(py)?;
        py.check_signals()
    }

    fn insert_collected(&mut self) -> sharddb::Result<()> {
        let mut begin = 0;
        let mut preambles = self.preambles.drain(..).peekable();
        for (at, (key, end)) in self.keys.drain(..).zip(self.ends.drain(..)).enumerate() {
            let split = preambles.next_if(|(of, _)| *of == at).map_or(begin, |(_, end)| end);
            let part = |range| self.bytes.get(range).unwrap_or_default();
            self.sink.put(key, part(begin..split), part(split..end))?;
            begin = end;
        }
        self.bytes.clear();
        self.bytes.shrink_to(BATCH_BYTES * 2); // after a large value
        Ok(())
    }

    /// Inserts pairs that Rust has, without the GIL, and handles signals. Pairs that were collected before go first.
    pub(crate) fn insert_all(
        &mut self,
        py: Python<'_>,
        insert: impl FnOnce(&mut S) -> sharddb::Result<()> + Send,
    ) -> PyResult<()> {
        self.flush(py)?;
        py.detach(|| insert(&mut self.sink)).or_raise(py)?;
        py.check_signals()
    }
}

/// Returns offsets that ascend, one more than there are keys, within the data.
///
/// Errors: `ValueError`, which names the first offset that is wrong.
fn checked_offsets(offsets: &[u64], keys: usize, data: usize) -> PyResult<Vec<usize>> {
    if offsets.len().checked_sub(1) != Some(keys) {
        let message = format!("expected one more offset than the {keys} keys, found {} offsets", offsets.len());
        return Err(PyValueError::new_err(message));
    }
    let mut previous = 0;
    let mut checked = room_for(offsets.len())?;
    for (at, &offset) in offsets.iter().enumerate() {
        let next = usize::try_from(offset).ok().filter(|next| (previous..=data).contains(next)).ok_or_else(|| {
            let message = format!(
                "expected offsets that ascend within the {data} bytes of data, found {offset} after {previous} at index {at}"
            );
            PyValueError::new_err(message)
        })?;
        checked.push(next);
        previous = next;
    }
    Ok(checked)
}

/// Adds the name of the argument to an exception about it.
fn note(py: Python<'_>, error: &PyErr, argument: &str) {
    let _ = error.value(py).call_method1("add_note", (format!("in the argument {argument}"),));
}
