//! All pairs of a database as an Arrow stream.

use std::sync::Arc;

use arrow_array::builder::LargeBinaryBuilder;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyIterator};
use sharddb::read::Pairs;

use crate::buffer;
use crate::errors::OrRaise;
use crate::iter::{Item, next_item};
use crate::reader::Reader;

/// Upper bounds on a batch. One larger value is a batch of its own.
const BATCH_ROWS: usize = 1 << 16;
const BATCH_BYTES: usize = 16 << 20;

#[pymethods]
impl Reader {
    /// Returns all pairs as an Arrow stream, a capsule, as `pyarrow.table(db)` and `polars.DataFrame(db)` read it.
    ///
    /// The columns are "key", uint64, "value", large binary, and, if the data has preambles, "preamble", large binary, in storage
    /// order. A preamble is null if its length is unknown; nothing else is. A batch has at most 65,536 rows, and at most 16 MiB of values and preambles unless it is one larger
    /// pair. The pairs are those of `items`. It is read when the consumer requests it. The stream keeps the generation.
    /// `requested_schema` is ignored, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let snapshot = self.snapshot(py)?;
        let has_preambles = py.detach(|| snapshot.has_preambles()).or_raise(py)?;
        buffer::arrow_capsule(py, Batches::new(snapshot.pairs(), has_preambles))
    }
}

fn schema(has_preambles: bool) -> SchemaRef {
    let column = |name, data_type| Field::new(name, data_type, name == "preamble");
    let mut columns = vec![column("key", DataType::UInt64), column("value", DataType::LargeBinary)];
    columns.extend(has_preambles.then(|| column("preamble", DataType::LargeBinary)));
    Arc::new(Schema::new(columns))
}

/// The batches of a snapshot.
struct Batches {
    pairs: Pairs,
    has_preambles: bool,
    schema: SchemaRef,
    /// A pair that did not fit into the last batch.
    next: Option<Item>,
    failed: bool,
}

impl Batches {
    fn new(pairs: Pairs, has_preambles: bool) -> Batches {
        Batches { pairs, has_preambles, schema: schema(has_preambles), next: None, failed: false }
    }

    /// Reads the next batch; empty at the end.
    fn read(&mut self) -> sharddb::Result<Batch> {
        let (mut batch, mut bytes) = (Batch::default(), 0);
        while batch.keys.len() < BATCH_ROWS && bytes < BATCH_BYTES {
            let next = match self.next.take() {
                Some(kept) => kept,
                None => match next_item(&mut self.pairs, self.has_preambles).transpose()? {
                    Some(next) => next,
                    None => break,
                },
            };
            let (key, preamble, value) = &next;
            let preamble = preamble.known();
            let more = value.len() + preamble.map_or(0, |preamble| preamble.len());
            if bytes > 0 && bytes + more > BATCH_BYTES {
                self.next = Some(next);
                break;
            }
            bytes += more;
            batch.keys.push(*key);
            batch.values.append_value(value);
            batch.preambles.append_option(preamble);
        }
        Ok(batch)
    }
}

/// The columns of a batch.
#[derive(Default)]
struct Batch {
    keys: Vec<u64>,
    values: LargeBinaryBuilder,
    preambles: LargeBinaryBuilder,
}

impl Batch {
    fn finish(mut self, has_preambles: bool) -> Vec<ArrayRef> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from(self.keys)), Arc::new(self.values.finish())];
        columns.extend(has_preambles.then(|| Arc::new(self.preambles.finish()) as ArrayRef));
        columns
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.read() {
            Ok(batch) if batch.keys.is_empty() => None,
            Ok(batch) => Some(RecordBatch::try_new(self.schema.clone(), batch.finish(self.has_preambles))),
            Err(error) => {
                self.failed = true;
                Some(Err(ArrowError::ExternalError(error.into())))
            }
        }
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Returns lists of pairs that Python code reads as an Arrow stream, one batch per list; preambles are null.
#[pyfunction]
fn _arrow_stream<'py>(batches: &Bound<'py, PyAny>, has_preambles: bool) -> PyResult<Bound<'py, PyCapsule>> {
    let lists = Some(batches.try_iter()?.unbind());
    buffer::arrow_capsule(batches.py(), Lists { lists, has_preambles, schema: schema(has_preambles) })
}

/// The batches that an iterator of Python returns.
struct Lists {
    /// `None` after an exception.
    lists: Option<Py<PyIterator>>,
    has_preambles: bool,
    schema: SchemaRef,
}

impl Lists {
    fn read(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let Some(mut lists) = self.lists.as_ref().map(|lists| lists.bind(py).clone()) else { return Ok(None) };
        let Some(pairs) = lists.next().transpose()? else { return Ok(None) };
        let mut batch = Batch::default();
        for pair in pairs.try_iter()? {
            let (key, value): (u64, Bound<'_, PyBytes>) = pair?.extract()?;
            batch.keys.push(key);
            batch.values.append_value(value.as_bytes());
            batch.preambles.append_null();
        }
        Ok(Some(batch))
    }
}

impl Iterator for Lists {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = Python::attach(|py| self.read(py)).transpose()?;
        Some(match batch {
            Ok(batch) => RecordBatch::try_new(self.schema.clone(), batch.finish(self.has_preambles)),
            Err(error) => {
                self.lists = None;
                Err(ArrowError::ExternalError(error.into()))
            }
        })
    }
}

impl RecordBatchReader for Lists {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_arrow_stream, module)?)
}
