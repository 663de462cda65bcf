//! Pickling. Of databases: the absolute path, the options and the generation, which the other side opens. Of reports and
//! plans: their fields.

use std::path::PathBuf;

use pyo3::prelude::*;
use sharddb::{GenerationId, ShardingSpec};

use crate::database::Database;
use crate::errors::OrRaise;
use crate::open::{Mode, Open, Options, Origin, Verify};
use crate::reader::Reader;
use crate::snapshot::Snapshot;

/// The arguments of the functions below: path, mode, verify, pointer, specification as JSON, and number and directory of the
/// generation.
type Arguments = (PathBuf, String, String, Option<String>, Option<String>, Option<(u64, PathBuf)>);

#[pymethods]
impl Reader {
    /// Pickles the absolute path, the options and the generation.
    ///
    /// Unpickling opens that generation, or raises `GenerationGone`; a database then follows its store at `refresh`.
    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Arguments)> {
        let py = this.py();
        let Origin { path, options, generation } = this.get().open(py)?.origin();
        let function = if this.is_instance_of::<Snapshot>() { "_open_snapshot_again" } else { "_open_database_again" };
        let arguments = (
            path,
            options.mode.as_str().to_string(),
            options.verify.as_str().to_string(),
            options.pointer,
            options.spec.map(|spec| spec.to_json()),
            generation.map(|(id, directory)| (id.get(), directory)),
        );
        Ok((py.import("sharddb._sharddb")?.getattr(function)?, arguments))
    }
}

fn open_again(py: Python<'_>, arguments: Arguments) -> PyResult<Open> {
    let (path, mode, verify, pointer, spec, generation) = arguments;
    let spec = spec.map(|text| ShardingSpec::from_json(&text)).transpose().or_raise(py)?;
    let options = Options { mode: Mode::parse(&mode)?, verify: Verify::parse(&verify)?, pointer, spec };
    let generation = match generation {
        Some((number, directory)) => Some((GenerationId::new(number).or_raise(py)?, directory)),
        None => None,
    };
    Open::again(py, Origin { path, options, generation })
}

#[pyfunction]
#[pyo3(signature = (*arguments))]
fn _open_database_again(py: Python<'_>, arguments: Arguments) -> PyResult<Py<Database>> {
    Database::new(py, open_again(py, arguments)?)
}

#[pyfunction]
#[pyo3(signature = (*arguments))]
fn _open_snapshot_again(py: Python<'_>, arguments: Arguments) -> PyResult<Py<Snapshot>> {
    Snapshot::new(py, open_again(py, arguments)?.pinned())
}

/// Makes a class of fields pickle. `$rebuild` is the function that unpickling calls; the module has it.
macro_rules! pickle_fields {
    ($class:ident, $rebuild:ident, { $($field:ident: $type:ty),+ $(,)? }) => {
        #[pyo3::pymethods]
        impl $class {
            fn __reduce__<'py>(
                &self,
                py: pyo3::Python<'py>,
            ) -> pyo3::PyResult<(pyo3::Bound<'py, pyo3::PyAny>, (($($type,)+),))> {
                use pyo3::types::PyAnyMethods;
                let rebuild = py.import("sharddb._sharddb")?.getattr(stringify!($rebuild))?;
                Ok((rebuild, (($(self.$field.clone(),)+),)))
            }
        }

        #[pyo3::pyfunction]
        fn $rebuild(fields: ($($type,)+)) -> $class {
            let ($($field,)+) = fields;
            $class { $($field),+ }
        }
    };
}

pub(crate) use pickle_fields;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_open_database_again, module)?)?;
    module.add_function(wrap_pyfunction!(_open_snapshot_again, module)?)
}
