//! `merge` and `reshard`: a new generation of databases.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::Snapshot;

use crate::errors::OrRaise;
use crate::options::Build;
use crate::published::{Published, check_late_signals};
use crate::source;

/// Merges databases into a new generation of a store, and publishes it.
///
/// ``stores``: paths or open databases, any of which may be foreign data and have other specifications. ``out``: the
/// store; created if nothing is there. It may be one of the sources, which does not change. Pairs are inserted in the order
/// of the databases; ``on_duplicate`` decides about keys that several have, as for ``Loader``. ``spec``, and all other
/// options: as for ``Loader``; without ``data_encoding`` that of the databases if they agree. ``info``: default that of the
/// first database. ``progress``: as for ``Loader.finish``.
///
/// Databases of ShardDb with the hash and at least the bits of the new specification are merged as they are read, others are
/// sorted within ``memory``. Raises ``Empty`` if there are no pairs and ``out`` has some, without ``allow_empty``;
/// ``DuplicateKey``, ``Corrupt``, ``NotFound``, ``Locked``, ``InvalidSpec``, ``InvalidInput``, ``Io``, and what the merge function raises. Nothing is published then.
#[pyfunction]
#[pyo3(
    signature = (stores, out, spec=None, **options),
    text_signature = "(stores, out, spec=None, *, profile=None, memory=\"1GiB\", on_duplicate=\"error\", info=None, \
        sharding_at=None, max_shard_bytes=None, data_encoding=None, index_encoding=None, value_alignment=1, threads=None, \
        temp_dir=None, ordered=False, checks=True, allow_sparse=False, allow_empty=False, durable=True, \
        progress=None)"
)]
fn merge<'py>(
    py: Python<'py>,
    stores: &Bound<'py, PyAny>,
    out: PathBuf,
    spec: Option<&Bound<'py, PyAny>>,
    options: Option<Bound<'py, PyDict>>,
) -> PyResult<Published> {
    if stores.extract::<PathBuf>().is_ok() {
        return Err(PyTypeError::new_err("expected an iterable of databases, found a single path"));
    }
    let mut build = Build::with_spec(py, "merge", spec, options, &[])?;
    let sources = stores.try_iter()?.map(|store| source::open(&store?)).collect::<PyResult<Vec<_>>>()?;
    if let (false, Some(first)) = (build.has_info, sources.first()) {
        py.detach(|| build.options.info_of(first).map(drop)).or_raise(py)?;
    }
    run(py, build, out, &sources)
}

/// Writes the pairs of a database under another specification or encoding, as a new generation of a store, and publishes
/// it.
///
/// ``store``: a path or an open database. ``out``: the store; created if nothing is there. It may be ``store``, which is
/// resharded in place then. ``spec`` and ``profile``, ``max_shard_bytes``: the new specification, given or planned; without
/// them that of the database, with ``data_encoding`` and ``index_encoding`` if they are given. All other options: as for
/// ``Loader``. Keys, values, preambles, the alignment of values and the other members of ``info`` stay. ``progress``: as for
/// ``Loader.finish``.
///
/// Raises ``TypeError`` if nothing to change is given, and what ``merge`` raises.
#[pyfunction]
#[pyo3(
    signature = (store, out, spec=None, **options),
    text_signature = "(store, out, spec=None, *, profile=None, memory=\"1GiB\", info=None, sharding_at=None, \
        max_shard_bytes=None, data_encoding=None, index_encoding=None, value_alignment=None, threads=None, temp_dir=None, \
        ordered=False, checks=True, allow_sparse=False, allow_empty=False, durable=True, progress=None)"
)]
fn reshard<'py>(
    py: Python<'py>,
    store: &Bound<'py, PyAny>,
    out: PathBuf,
    spec: Option<&Bound<'py, PyAny>>,
    options: Option<Bound<'py, PyDict>>,
) -> PyResult<Published> {
    let mut build = Build::with_spec(py, "reshard", spec, options, &["on_duplicate"])?;
    let source = source::open(store)?;
    if !build.has_alignment {
        build.options.value_alignment(source.layout().map_or_else(Default::default, |layout| layout.value_alignment));
    }
    if build.spec.is_none() && !build.is_planned {
        if build.data_encoding.is_none() && build.index_encoding.is_none() {
            return Err(PyTypeError::new_err(
                "expected what to change: spec, profile, max_shard_bytes, data_encoding or index_encoding",
            ));
        }
        build.fix_spec(*source.spec());
        build.options.allow_sparse(true); // as the source is
    }
    if !build.has_info {
        py.detach(|| build.options.info_of(&source).map(drop)).or_raise(py)?;
    }
    run(py, build, out, &[source])
}

fn run(py: Python<'_>, build: Build<'_>, out: PathBuf, sources: &[Snapshot]) -> PyResult<Published> {
    let Build { options, job, bar, .. } = build;
    let published = job.run(py, bar, |job| job.publish(options.merge(&out, sources)?))?;
    check_late_signals(py, &published)?;
    Ok(published.into())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(merge, module)?)?;
    module.add_function(wrap_pyfunction!(reshard, module)?)
}
