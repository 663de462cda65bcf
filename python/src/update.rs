//! `update`: changes single pairs of a store.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::UpdateReport;

use crate::errors::OrRaise;
use crate::keys::Keys;
use crate::options;
use crate::pairs::Writer;
use crate::pickle::pickle_fields;
use crate::published::{Published, check_late_signals};
use crate::source;

/// The effect of an update.
#[pyclass(frozen, eq, hash, get_all, module = "sharddb")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Changes {
    /// Keys that the base did not have.
    added: u64,
    /// Keys of the base that were put, with a new value or the same.
    replaced: u64,
    /// Keys of the base that were deleted.
    deleted: u64,
    /// Keys to delete that the base did not have.
    absent: u64,
    /// Changes that a later change of the same key made void.
    overridden: u64,
    /// Shard files that were written.
    written_shards: u64,
    /// The bytes of the shard files that were written.
    written_bytes: u64,
    /// Shard files of the base that the new generation has as hard links.
    linked_shards: u64,
    /// Shard files of the base that were copied, because the file system does not link them.
    copied_shards: u64,
}

pickle_fields!(Changes, _changes, {
    added: u64,
    replaced: u64,
    deleted: u64,
    absent: u64,
    overridden: u64,
    written_shards: u64,
    written_bytes: u64,
    linked_shards: u64,
    copied_shards: u64,
});

#[pymethods]
impl Changes {
    fn __repr__(&self) -> String {
        let Changes { added, replaced, deleted, absent, overridden, .. } = self;
        let Changes { written_shards, written_bytes, linked_shards, copied_shards, .. } = self;
        format!(
            "Changes(added={added}, replaced={replaced}, deleted={deleted}, absent={absent}, overridden={overridden}, \
             written_shards={written_shards}, written_bytes={written_bytes}, linked_shards={linked_shards}, \
             copied_shards={copied_shards})"
        )
    }
}

impl From<UpdateReport> for Changes {
    fn from(report: UpdateReport) -> Changes {
        let UpdateReport { added, replaced, deleted, absent, overridden, .. } = report;
        let UpdateReport { written_shards, written_bytes, linked_shards, copied_shards, .. } = report;
        Changes {
            added,
            replaced,
            deleted,
            absent,
            overridden,
            written_shards,
            written_bytes,
            linked_shards,
            copied_shards,
        }
    }
}

/// Puts and deletes pairs of a store, and publishes the result. Returns what was published, and its effect. If nothing
/// changed, since the store has all these pairs and none of the keys to delete, nothing is published, and the first is
/// ``None``.
///
/// ``puts``: a mapping, an iterable of pairs or an Arrow stream, as for ``Loader.extend``; of two pairs with one key the
/// later one counts. ``deletes``: an array or iterable of keys, which are deleted after all puts. ``strict``: whether the
/// deletion of an absent key is an error. ``base``: any database to change instead of the current generation of the store,
/// which is created then if nothing is there; the result is always published then. ``allow_empty``: whether all keys may be
/// deleted. ``memory``, ``threads``, ``temp_dir``, ``durable``: as for ``Loader``.
/// ``progress``: as for ``Loader.finish``.
///
/// Only shards with a change are written; the others are hard links to the same files. Values that do not change are copied
/// as stored. After an exception nothing was published, and nothing is left behind; a KeyboardInterrupt that arrived during the
/// publication has a note that says so.
///
/// Raises ``NotFound`` if there is no store, ``Empty`` if no key is left, with ``strict`` ``AbsentKey`` for an absent key, ``Locked``, ``Corrupt``, ``InvalidInput``,
/// ``Io``, and what an iterable raises.
#[pyfunction]
#[pyo3(
    signature = (store, puts=None, deletes=None, *, base=None, **options),
    text_signature = "(store, puts=None, deletes=None, *, base=None, strict=False, allow_empty=False, memory=\"1GiB\", \
        threads=None, temp_dir=None, durable=True, progress=None)"
)]
fn update<'py>(
    py: Python<'py>,
    store: PathBuf,
    puts: Option<&Bound<'py, PyAny>>,
    deletes: Option<Keys>,
    base: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Option<Published>, Changes)> {
    let (options, job, bar) = options::read_update("update", options)?;
    let base = base.map(source::open).transpose()?;
    let begin = || match &base {
        Some(base) => options.create(&store, base),
        None => options.open(&store),
    };
    let mut writer = Writer::new(py.detach(begin).or_raise(py)?);
    if let Some(puts) = puts {
        writer.extend(puts)?;
    }
    let Keys(deletes) = deletes.unwrap_or(Keys(Vec::new()));
    writer.insert_all(py, |updater| deletes.iter().try_for_each(|key| updater.delete(*key)))?;
    let updater = writer.finish(py)?;
    let (published, report) = job.run(py, bar, |job| {
        let (candidate, report) = updater.finish_unpublished()?;
        Ok((job.publish(candidate)?, report))
    })?;
    check_late_signals(py, &published)?;
    Ok((Published::if_new(published), report.into()))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Changes>()?;
    module.add_function(wrap_pyfunction!(_changes, module)?)?;
    module.add_function(wrap_pyfunction!(update, module)?)
}
