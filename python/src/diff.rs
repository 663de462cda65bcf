//! `diff`: the keys that were added, removed or changed between two databases.

use std::num::NonZero;
use std::ops::ControlFlow;

use pyo3::prelude::*;
use sharddb::diff::{ChangeKind, Diff, DiffOptions, DiffTotals};
use sharddb::{Progress, Snapshot};

use crate::progress::Bar;
use crate::{buffer, source, task};

/// The difference of two databases. Returned by ``diff``.
#[pyclass(frozen, get_all, module = "sharddb")]
pub(crate) struct Differences {
    /// The keys that only the new database has: a uint64 array.
    added: Py<PyAny>,
    /// The keys that only the old database has: a uint64 array.
    removed: Py<PyAny>,
    /// The keys with another value: a uint64 array.
    changed: Py<PyAny>,
    /// The number of keys with the same value, without those of equal shards of foreign data, which were not read.
    unchanged: u64,
    /// The number of shards that are equal and were not opened.
    equal_shards: u64,
}

#[pyfunction]
fn _differences(fields: (Py<PyAny>, Py<PyAny>, Py<PyAny>, u64, u64)) -> Differences {
    let (added, removed, changed, unchanged, equal_shards) = fields;
    Differences { added, removed, changed, unchanged, equal_shards }
}

#[pymethods]
impl Differences {
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Fields<'_>,))> {
        let Differences { added, removed, changed, unchanged, equal_shards } = self;
        let rebuild = py.import("sharddb._sharddb")?.getattr("_differences")?;
        Ok((rebuild, ((added, removed, changed, *unchanged, *equal_shards),)))
    }

    /// Whether there is a difference.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        for keys in [&self.added, &self.removed, &self.changed] {
            if keys.bind(py).len()? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let [added, removed, changed] = [&self.added, &self.removed, &self.changed].map(|keys| keys.bind(py).len());
        let (unchanged, equal_shards) = (self.unchanged, self.equal_shards);
        Ok(format!(
            "<Differences: {} added, {} removed, {} changed, {unchanged} unchanged keys, {equal_shards} equal shards>",
            added?, removed?, changed?
        ))
    }
}

/// The fields of `Differences`, which it pickles.
type Fields<'a> = (&'a Py<PyAny>, &'a Py<PyAny>, &'a Py<PyAny>, u64, u64);

/// The keys of each kind of change.
#[derive(Default)]
struct Changed {
    added: Vec<u64>,
    removed: Vec<u64>,
    changed: Vec<u64>,
    totals: DiffTotals,
}

/// Finds the keys that were added, removed or changed from one database to another.
///
/// ``old``, ``new``: paths or open databases, of any writers and specifications. ``threads``: default one per core. ``progress``: a bar as for ``Loader.finish``, which counts the keys of both.
///
/// Keys are in storage order. Shards that are the same file are not opened, nor are shards with the same digest; in all
/// other shards, values are compared byte by byte. Runs without the GIL. Raises ``Corrupt`` with the place of damaged
/// bytes, ``NotFound``, ``Io``.
#[pyfunction]
#[pyo3(signature = (old, new, *, threads=None, progress=None))]
fn diff(
    py: Python<'_>,
    old: &Bound<'_, PyAny>,
    new: &Bound<'_, PyAny>,
    threads: Option<NonZero<usize>>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Differences> {
    let (old, new) = (source::open(old)?, source::open(new)?);
    let found = task::run(py, Bar::new(progress)?, |progress| compare(&old, &new, threads, progress))?;
    Ok(Differences {
        added: buffer::array(py, found.added)?.unbind(),
        removed: buffer::array(py, found.removed)?.unbind(),
        changed: buffer::array(py, found.changed)?.unbind(),
        unchanged: found.totals.unchanged,
        equal_shards: found.totals.equal_shards,
    })
}

fn compare(
    old: &Snapshot,
    new: &Snapshot,
    threads: Option<NonZero<usize>>,
    progress: &Progress,
) -> sharddb::Result<Changed> {
    let mut found = Changed::default();
    let mut options = DiffOptions::new();
    options.threads(threads.map_or(0, NonZero::get)).progress(progress);
    let outcome = Diff::between_with(old, new, &options).run(|change| match change {
        Ok(change) => {
            match change.kind() {
                ChangeKind::Added => found.added.push(change.key()),
                ChangeKind::Removed => found.removed.push(change.key()),
                ChangeKind::Changed => found.changed.push(change.key()),
            }
            ControlFlow::Continue(())
        }
        Err(error) => ControlFlow::Break(error),
    });
    match outcome {
        ControlFlow::Continue(totals) => Ok(Changed { totals, ..found }),
        ControlFlow::Break(error) => Err(error),
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Differences>()?;
    module.add_function(wrap_pyfunction!(_differences, module)?)?;
    module.add_function(wrap_pyfunction!(diff, module)?)
}
