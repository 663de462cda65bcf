//! `PartPlan`, the plan of a partitioned build.

use std::str::FromStr;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use sharddb::cluster;

use crate::errors::OrRaise;
use crate::keys::{Key, Keys};
use crate::{plan, spec};

/// The plan of a partitioned build: a sharding specification, and a contiguous range of its shards for each of ``parts`` parts.
///
/// ``spec``: the JSON object "sharding" as a dict or text, or a ``Plan``. If it has fewer shards than parts, it gets more, by
/// fewer minishards. ``sample``: an array of keys, which cuts the parts of an identity hash into ranges of about equal
/// numbers of keys; without it, and with murmur, the ranges have about equal numbers of shards.
///
/// All processes of a build need the same plan: it is pickled, and ``str(plan)`` is JSON text of one line, which ``parse``
/// and the command read. Raises ``InvalidSpec``, ``InvalidInput``, ``TypeError``.
#[pyclass(frozen, eq, hash, from_py_object, module = "sharddb")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PartPlan(pub(crate) cluster::PartPlan);

#[pymethods]
impl PartPlan {
    #[new]
    #[pyo3(signature = (spec, parts, *, sample=None))]
    fn new(py: Python<'_>, spec: &Bound<'_, PyAny>, parts: u64, sample: Option<Keys>) -> PyResult<PartPlan> {
        let spec = spec::parse(spec)?;
        let plan = match sample {
            Some(Keys(keys)) => py.detach(|| cluster::PartPlan::by_sample(spec, &plan::stats_of(&keys, 0), parts)),
            None => cluster::PartPlan::even(spec, parts),
        };
        plan.or_raise(py).map(PartPlan)
    }

    /// Returns the plan of a text.
    #[classmethod]
    fn parse(_class: &Bound<'_, PyType>, py: Python<'_>, text: &str) -> PyResult<PartPlan> {
        cluster::PartPlan::from_str(text).or_raise(py).map(PartPlan)
    }

    /// The specification: the JSON object "sharding" as a dict.
    #[getter]
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        spec::to_dict(py, self.0.spec())
    }

    /// The number of parts.
    #[getter]
    fn parts(&self) -> u64 {
        self.0.parts()
    }

    /// Returns the number of the part that has a key, from 0.
    fn part_of(&self, key: Key) -> u64 {
        self.0.part_of(key.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("PartPlan({}, parts={})", self.0.spec().to_json(), self.0.parts())
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((this.get_type().getattr("parse")?, (this.get().__str__(),)))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PartPlan>()
}
