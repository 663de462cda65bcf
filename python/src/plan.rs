//! Plans: from keys or their number to a sharding specification.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sharddb::plan::{KeyStats, PlanReason};
use sharddb::{Profile, ShardingSpec};

use crate::errors::OrRaise;
use crate::keys::Keys;
use crate::pickle::pickle_fields;
use crate::{options, size, spec};

/// A sharding specification that was chosen for keys, and why. Returned by ``plan``; ``Loader`` takes it as ``spec``.
#[pyclass(frozen, eq, hash, module = "sharddb")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// The JSON text of the specification.
    spec: String,
    /// The profile that it was chosen for.
    #[pyo3(get)]
    profile: String,
    /// The number of distinct keys; an estimate within about 5 % if there are more than 24,576 and some are repeated.
    #[pyo3(get)]
    keys: u64,
    /// The expected bytes of all shards.
    #[pyo3(get)]
    stored_bytes: u64,
    /// Why it uses the identity hash ("dense") or murmur ("uneven", "sparse", "few keys", "unknown keys", "profile").
    #[pyo3(get)]
    reason: String,
}

pickle_fields!(Plan, _plan, { spec: String, profile: String, keys: u64, stored_bytes: u64, reason: String });

impl From<sharddb::plan::Plan> for Plan {
    fn from(plan: sharddb::plan::Plan) -> Plan {
        let reason = match plan.reason() {
            PlanReason::Dense { .. } => "dense",
            PlanReason::Uneven { .. } => "uneven",
            PlanReason::Sparse { .. } => "sparse",
            PlanReason::FewKeys { .. } => "few keys",
            PlanReason::UnknownKeys => "unknown keys",
            PlanReason::ProfileRule => "profile",
            _ => "other",
        };
        Plan {
            spec: plan.spec().to_json(),
            profile: plan.profile().as_str().to_string(),
            keys: plan.keys(),
            stored_bytes: plan.stored_bytes(),
            reason: reason.to_string(),
        }
    }
}

#[pymethods]
impl Plan {
    /// The specification: the JSON object "sharding" as a dict.
    #[getter]
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        spec::to_dict(py, &ShardingSpec::from_json(&self.spec).or_raise(py)?)
    }

    fn __repr__(&self) -> String {
        let Plan { spec, profile, keys, stored_bytes, reason } = self;
        format!("Plan(spec={spec}, profile={profile:?}, keys={keys}, stored_bytes={stored_bytes}, reason={reason:?})")
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
            Ok(sharddb::plan::Plan::with_max_shard_bytes(&stats, profile, most).into())
        }
        (None, Some(count), None) => Ok(sharddb::plan::Plan::for_counts(count, value_bytes, profile).into()),
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
    module.add_function(wrap_pyfunction!(_plan, module)?)?;
    module.add_function(wrap_pyfunction!(plan, module)?)
}
