//! Plans: from keys or their number to a sharding specification.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::Profile;
use sharddb::plan::{KeyStats, PlanReason};

use crate::keys::Keys;
use crate::{options, size, spec};

/// A sharding specification that was chosen for keys, and why. Returned by ``plan``; ``Loader`` takes it as ``spec``.
#[pyclass(frozen, module = "sharddb")]
pub(crate) struct Plan(sharddb::plan::Plan);

#[pymethods]
impl Plan {
    /// The specification: the JSON object "sharding" as a dict.
    #[getter]
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        spec::to_dict(py, &self.0.spec())
    }

    /// The profile that it was chosen for.
    #[getter]
    fn profile(&self) -> &'static str {
        self.0.profile().as_str()
    }

    /// The number of distinct keys; an estimate within about 5 % if there are more than 24,576 and some are repeated.
    #[getter]
    fn keys(&self) -> u64 {
        self.0.keys()
    }

    /// The expected bytes of all shards.
    #[getter]
    fn stored_bytes(&self) -> u64 {
        self.0.stored_bytes()
    }

    /// Why it uses the identity hash ("dense") or murmur ("uneven", "sparse", "few keys", "unknown keys", "profile").
    #[getter]
    fn reason(&self) -> &'static str {
        match self.0.reason() {
            PlanReason::Dense { .. } => "dense",
            PlanReason::Uneven { .. } => "uneven",
            PlanReason::Sparse { .. } => "sparse",
            PlanReason::FewKeys { .. } => "few keys",
            PlanReason::UnknownKeys => "unknown keys",
            PlanReason::ProfileRule => "profile",
            _ => "other",
        }
    }

    fn __repr__(&self) -> String {
        let (keys, stored_bytes) = (self.0.keys(), self.0.stored_bytes());
        format!(
            "Plan(spec={}, profile={:?}, keys={keys}, stored_bytes={stored_bytes}, reason={:?})",
            self.0.spec().to_json(),
            self.profile(),
            self.reason()
        )
    }
}

/// Chooses a sharding specification, for keys or for a number of keys.
///
/// ``keys``: an array or iterable of integers, all keys or a sample. ``count``: the number of keys; next to ``keys`` it must
/// be absent. ``value_bytes``: the bytes of all values, an int or a text such as "3GB". ``profile``: how the data will be
/// read, "local", "remote" or "cloudvolume". ``max_shard_bytes``: upper bound on the mean size of a shard, for ``keys``.
///
/// Raises ``TypeError`` unless exactly one of ``keys`` and ``count`` is given, ``ValueError``, ``OverflowError``.
#[pyfunction]
#[pyo3(signature = (keys=None, *, count=None, value_bytes=None, profile=None, max_shard_bytes=None))]
fn plan(
    py: Python<'_>,
    keys: Option<Keys>,
    count: Option<u64>,
    value_bytes: Option<&Bound<'_, PyAny>>,
    profile: Option<&Bound<'_, PyAny>>,
    max_shard_bytes: Option<&Bound<'_, PyAny>>,
) -> PyResult<Plan> {
    let profile = profile.map_or(Ok(Profile::Local), options::profile)?;
    let value_bytes = value_bytes.map_or(Ok(0), |value| size::parse("value_bytes", value))?;
    let most = max_shard_bytes.map(|value| size::parse("max_shard_bytes", value)).transpose()?;
    match (keys, count, most) {
        (Some(Keys(keys)), None, most) => {
            let stats = py.detach(|| stats_of(&keys, value_bytes));
            let most = most.unwrap_or(u64::MAX);
            Ok(Plan(sharddb::plan::Plan::with_max_shard_bytes(&stats, profile, most)))
        }
        (None, Some(count), None) => Ok(Plan(sharddb::plan::Plan::for_counts(count, value_bytes, profile))),
        (None, Some(_), Some(_)) => {
            Err(PyTypeError::new_err("expected max_shard_bytes only next to keys, found count"))
        }
        _ => Err(PyTypeError::new_err("expected either keys or count")),
    }
}

/// Returns the statistics of keys whose values have `value_bytes` bytes together.
pub(crate) fn stats_of(keys: &[u64], value_bytes: u64) -> KeyStats {
    let mut stats = KeyStats::new();
    let (each, mut rest) = match u64::try_from(keys.len()) {
        Ok(count @ 1..) => (value_bytes / count, value_bytes % count),
        _ => (0, 0),
    };
    for key in keys {
        stats.insert(*key, 0, each + u64::from(rest > 0));
        rest = rest.saturating_sub(1);
    }
    stats
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Plan>()?;
    module.add_function(wrap_pyfunction!(plan, module)?)
}
