//! The verification of a generation, and its report.

use std::ffi::OsString;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sharddb::{Progress, VerifyLevel, VerifyOptions, verify};

use crate::pickle::pickle_fields;
use crate::progress::Bar;
use crate::reader::Reader;
use crate::task;

const LEVELS: [VerifyLevel; 3] = [VerifyLevel::Structure, VerifyLevel::Index, VerifyLevel::Data];

#[pymethods]
impl Reader {
    /// Verifies the generation: "structure" (directory, manifest, shard indexes), "index" (also every minishard index), or
    /// "data" (also every value and every checksum). Returns a report; defects are findings, not exceptions.
    ///
    /// `progress` is a bar such as `tqdm(unit="B", unit_scale=True)`, in bytes. An exception that it raises ends the
    /// verification, as KeyboardInterrupt does.
    ///
    /// Raises `ValueError` for another level, `GenerationGone`, and `Io` if the directory cannot be listed.
    #[pyo3(signature = (level = "data", progress = None))]
    fn verify(&self, py: Python<'_>, level: &str, progress: Option<Bound<'_, PyAny>>) -> PyResult<VerifyReport> {
        let Some(level) = LEVELS.into_iter().find(|it| it.as_str() == level) else {
            let message = format!("expected level to be one of \"structure\", \"index\", \"data\", found {level:?}");
            return Err(PyValueError::new_err(message));
        };
        let snapshot = self.snapshot(py)?;
        let verify = |progress: &Progress| snapshot.verify_with(level, VerifyOptions::new().progress(progress));
        let report = task::run(py, Bar::new(progress)?, verify)?;
        Ok(report.into())
    }
}

/// What a verification has found. `str(report)` is one line with all counts.
#[pyclass(frozen, get_all, module = "sharddb")]
struct VerifyReport {
    /// "structure", "index" or "data".
    level: String,
    /// The number of shards that could be opened.
    shards: u64,
    /// The number of minishards with keys.
    minishards: u64,
    /// The number of keys in the indexes that could be read; 0 at the level "structure".
    keys: u64,
    /// The stored bytes of the values of these keys; 0 at the level "structure".
    value_bytes: u64,
    /// The bytes of shards that were verified.
    bytes_read: u64,
    /// The number of findings that are errors: a read may fail or return wrong data.
    errors: u64,
    /// The number of findings that are warnings: another reader may not read the data.
    warnings: u64,
    /// The number of findings that are notes: nothing is wrong.
    notes: u64,
    /// The findings, in the order of the shards; the first 10,000 per severity.
    findings: Vec<Finding>,
    #[pyo3(name = "_text")]
    text: String,
}

pickle_fields!(VerifyReport, _verify_report, {
    level: String,
    shards: u64,
    minishards: u64,
    keys: u64,
    value_bytes: u64,
    bytes_read: u64,
    errors: u64,
    warnings: u64,
    notes: u64,
    findings: Vec<Finding>,
    text: String,
});

impl From<verify::VerifyReport> for VerifyReport {
    fn from(report: verify::VerifyReport) -> VerifyReport {
        VerifyReport {
            level: report.level.as_str().to_string(),
            shards: report.shards,
            minishards: report.minishards,
            keys: report.keys,
            value_bytes: report.value_bytes,
            bytes_read: report.bytes_read,
            errors: report.errors(),
            warnings: report.warnings(),
            notes: report.notes(),
            findings: report.findings().iter().map(Finding::new).collect(),
            text: report.to_string(),
        }
    }
}

#[pymethods]
impl VerifyReport {
    /// Whether there are no errors. There may be warnings and notes.
    #[getter]
    fn is_clean(&self) -> bool {
        self.errors == 0
    }

    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<sharddb.VerifyReport: {}>", self.text)
    }
}

/// A rule that a data set breaks, or something worth knowing. `str(finding)` is one line.
#[pyclass(frozen, get_all, from_py_object, module = "sharddb")]
#[derive(Clone)]
struct Finding {
    /// The rule, such as "value-check".
    kind: String,
    /// "error", "warning" or "note".
    severity: String,
    /// What was expected and found.
    message: String,
    /// The file or directory, or `None`.
    path: Option<OsString>,
    /// The key, or `None`.
    key: Option<u64>,
    /// The number of the shard, or `None`.
    shard: Option<u64>,
    /// The number of the minishard within the shard, or `None`.
    minishard: Option<u64>,
    /// The byte offset in the file, or `None`.
    offset: Option<u64>,
    #[pyo3(name = "_text")]
    text: String,
}

pickle_fields!(Finding, _finding, {
    kind: String,
    severity: String,
    message: String,
    path: Option<OsString>,
    key: Option<u64>,
    shard: Option<u64>,
    minishard: Option<u64>,
    offset: Option<u64>,
    text: String,
});

impl Finding {
    fn new(finding: &verify::Finding) -> Finding {
        let place = finding.location();
        Finding {
            kind: finding.kind().as_str().to_string(),
            severity: finding.severity().as_str().to_string(),
            message: finding.message().to_string(),
            path: finding.path().map(Into::into),
            key: finding.key(),
            shard: place.shard.map(|shard| shard.get()),
            minishard: place.minishard.map(|minishard| minishard.get()),
            offset: place.offset,
            text: finding.to_string(),
        }
    }
}

#[pymethods]
impl Finding {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<sharddb.Finding {}>", self.text)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<VerifyReport>()?;
    module.add_class::<Finding>()?;
    module.add_function(wrap_pyfunction!(_verify_report, module)?)?;
    module.add_function(wrap_pyfunction!(_finding, module)?)
}
