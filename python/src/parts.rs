//! The reduce step of a partitioned build, its publication, and what remains of its files.

use sharddb::internal::publish_if;
use std::path::PathBuf;
use std::str::FromStr;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::cluster::{self, PartReceipt, SpillReceipt, SpillSet};

use crate::errors::OrRaise;
use crate::job::Job;
use crate::options::Build;
use crate::part_plan::PartPlan;
use crate::published::{Published, check_late_signals};
use crate::task;

/// Returns the directory of a job of partitioned builds in a store, ``parts-<job>``. Raises ``InvalidInput`` unless the job
/// is named by letters, digits, ``.``, ``_`` and ``-``.
#[pyfunction]
fn job_directory(py: Python<'_>, store: PathBuf, job: &str) -> PyResult<PathBuf> {
    cluster::job_directory(store, job).or_raise(py)
}

/// Writes the shards of one part of a partitioned build, from the spills of all tasks. Returns its receipt, a line of JSON
/// text, for ``publish_parts``.
///
/// ``spills``: the receipts of all tasks, one per task, in any order. ``directory``: where the spills are. ``out``: where the
/// part is written, which is the directory of the job; default: ``directory``. Pairs of a key are in the order of tasks, and
/// within a task in the order of insertion; ``on_duplicate``: as for ``Loader``. Pairs that do not fit into ``memory`` are
/// spilled to ``temp_dir``, which should be a local disk.
///
/// A part may be built again or twice. Equal receipts count as one. Raises ``InvalidInput`` for a foreign receipt or
/// two of one task, ``NotFound`` or ``Corrupt`` for a spill, ``DuplicateKey``, ``Io``, and what a merge function or the bar
/// raises.
#[pyfunction]
#[pyo3(
    signature = (plan, spills, part, directory, *, out=None, **options),
    text_signature = "(plan, spills, part, directory, *, out=None, memory='1GiB', on_duplicate='error', \
        value_alignment=1, threads=None, temp_dir=None, checks=True, allow_sparse=False, durable=True, progress=None)"
)]
fn build_part(
    py: Python<'_>,
    plan: PartPlan,
    spills: Vec<String>,
    part: u64,
    directory: PathBuf,
    out: Option<PathBuf>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<String> {
    const NAMES: &[&str] = &[
        "memory",
        "on_duplicate",
        "value_alignment",
        "threads",
        "temp_dir",
        "checks",
        "allow_sparse",
        "durable",
        "progress",
    ];
    let Build { options, job, bar, .. } = Build::read_some("build_part", options, NAMES)?;
    let spills = spill_set(py, &plan, &directory, &spills)?;
    let out = out.unwrap_or(directory);
    job.run(py, bar, |_| spills.build_part(part, &out, &options)).map(|receipt| receipt.to_string())
}

/// Publishes all parts of a partitioned build as a generation of a store, and removes the files of their receipts.
///
/// ``spills``, ``parts``: the receipts of all tasks and of all parts. ``directory``: where the spills are; default: the
/// directory of the job. Other options: as for ``Loader``. The bytes are those of a build by one ``Loader``.
///
/// A repeated call with the same receipts returns the same result and changes nothing, also if the first was killed, or
/// another generation is current by then: ``Store.current`` says which. Equal receipts count as one. A job whose tasks spill
/// again has other receipts, and its generation becomes current.
/// Raises ``InvalidInput`` for a missing or foreign receipt, and two of one task or part; ``Superseded`` if the first call was
/// killed and its generation was rolled back or perhaps replaced since; ``Empty`` if the parts have no pairs and the store has
/// some, without ``allow_empty``; ``NotFound`` or ``Corrupt`` for a part whose files are missing, or have other lengths or indexes
/// than its receipt says; ``Locked``, ``Io``; nothing is published then. Values are not read: ``verify`` of the store does that.
/// A KeyboardInterrupt that arrives while ``current`` is being swapped waits for the return.
#[pyfunction]
#[pyo3(
    signature = (store, job, plan, spills, parts, *, directory=None, **options),
    text_signature = "(store, job, plan, spills, parts, *, directory=None, info=None, sharding_at=None, memory='1GiB', \
        threads=None, temp_dir=None, ordered=False, allow_empty=False, durable=True, progress=None)"
)]
#[expect(clippy::too_many_arguments, reason = "arguments of Python, most by name")]
fn publish_parts(
    py: Python<'_>,
    store: PathBuf,
    job: &str,
    plan: PartPlan,
    spills: Vec<String>,
    parts: Vec<String>,
    directory: Option<PathBuf>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Published> {
    const NAMES: &[&str] =
        &["info", "sharding_at", "memory", "threads", "temp_dir", "ordered", "allow_empty", "durable", "progress"];
    let build = Build::read_some("publish_parts", options, NAMES)?;
    let directory = match directory {
        Some(directory) => directory,
        None => cluster::job_directory(&store, job).or_raise(py)?,
    };
    let spills = spill_set(py, &plan, &directory, &spills)?;
    let parts =
        parts.iter().map(|text| PartReceipt::from_str(text)).collect::<sharddb::Result<Vec<_>>>().or_raise(py)?;
    let publish = |running: &Job| publish_if(&spills, &store, job, parts, &build.options, || running.may_publish());
    let published = build.job.run(py, build.bar, publish)?;
    check_late_signals(py, &published)?;
    Ok(published.into())
}

/// Removes the files of a job of partitioned builds, or of all jobs that were published and have no spills or parts. Returns the
/// names of the jobs.
///
/// The processes of the job must have ended. Files of other programs stay. A KeyboardInterrupt ends the call within 50 ms;
/// a removal that has begun goes on. Raises ``NotFound``, ``Locked``, ``Io``.
#[pyfunction]
#[pyo3(signature = (store, job=None))]
fn clean_parts(py: Python<'_>, store: PathBuf, job: Option<&str>) -> PyResult<Vec<String>> {
    let job = job.map(str::to_string);
    task::run_or_leave(py, move || cluster::clean(store, job.as_deref())).map(|cleaned| cleaned.jobs)
}

fn spill_set(py: Python<'_>, plan: &PartPlan, directory: &PathBuf, receipts: &[String]) -> PyResult<SpillSet> {
    let receipts = receipts.iter().map(|text| SpillReceipt::from_str(text)).collect::<sharddb::Result<Vec<_>>>();
    receipts.and_then(|receipts| SpillSet::new(&plan.0, directory, receipts)).or_raise(py)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(job_directory, module)?)?;
    module.add_function(wrap_pyfunction!(build_part, module)?)?;
    module.add_function(wrap_pyfunction!(publish_parts, module)?)?;
    module.add_function(wrap_pyfunction!(clean_parts, module)?)
}
