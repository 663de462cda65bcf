//! All pairs of a database as an Arrow stream.

use std::sync::Arc;

use arrow_array::builder::LargeBinaryBuilder;
use arrow_array::{RecordBatch, RecordBatchReader, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use sharddb::OwnedValue;
use sharddb::read::Pairs;

use crate::buffer;
use crate::reader::Reader;

/// Upper bounds on a batch. One larger value is a batch of its own.
const BATCH_ROWS: usize = 1 << 16;
const BATCH_BYTES: usize = 16 << 20;

#[pymethods]
impl Reader {
    /// Returns all pairs as an Arrow stream, a capsule, as `pyarrow.table(db)` and `polars.DataFrame(db)` read it.
    ///
    /// The columns are "key", uint64, and "value", large binary, without nulls, in storage order. A batch has at most 65,536
    /// rows, and at most 16 MiB of values unless it is one larger value. The pairs are those of `items`. It is read when the consumer requests it. The
    /// stream keeps the generation. `requested_schema` is ignored, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        buffer::arrow_capsule(py, Batches::new(self.snapshot(py)?.pairs()))
    }
}

/// The batches of a snapshot.
struct Batches {
    pairs: Pairs,
    schema: SchemaRef,
    /// A pair that did not fit into the last batch.
    next: Option<(u64, OwnedValue)>,
    failed: bool,
}

impl Batches {
    fn new(pairs: Pairs) -> Batches {
        let column = |name, data_type| Field::new(name, data_type, false);
        let schema = Schema::new(vec![column("key", DataType::UInt64), column("value", DataType::LargeBinary)]);
        Batches { pairs, schema: Arc::new(schema), next: None, failed: false }
    }

    /// Reads the next batch; empty at the end.
    fn read(&mut self) -> sharddb::Result<(Vec<u64>, LargeBinaryBuilder)> {
        let (mut keys, mut values, mut bytes) = (Vec::new(), LargeBinaryBuilder::new(), 0);
        if let Some((key, value)) = self.next.take() {
            bytes += value.len();
            keys.push(key);
            values.append_value(&value);
        }
        while keys.len() < BATCH_ROWS
            && bytes < BATCH_BYTES
            && let Some((key, value)) = self.pairs.next().transpose()?
        {
            if bytes > 0 && bytes + value.len() > BATCH_BYTES {
                self.next = Some((key, value));
                break;
            }
            bytes += value.len();
            keys.push(key);
            values.append_value(&value);
        }
        Ok((keys, values))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.read() {
            Ok((keys, _)) if keys.is_empty() => None,
            Ok((keys, mut values)) => {
                let columns = vec![Arc::new(UInt64Array::from(keys)) as _, Arc::new(values.finish()) as _];
                Some(RecordBatch::try_new(self.schema.clone(), columns))
            }
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
