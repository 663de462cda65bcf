//! The keyword arguments of builds.

use std::path::PathBuf;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use sharddb::spec::Encoding;
use sharddb::{BuildOptions, OnDuplicate, Profile, ShardingSpec, UpdateOptions, ValueAlignment};

use crate::errors::OrRaise;
use crate::job::Job;
use crate::progress::Bar;
use crate::{merge_function, size, spec};

/// The memory of a build unless stated, in bytes.
const MEMORY: u64 = 1 << 30;

/// The options of a build, and its job.
pub(crate) struct Build<'py> {
    pub(crate) options: BuildOptions,
    pub(crate) job: Job,
    pub(crate) bar: Bar<'py>,
    /// What the caller stated.
    pub(crate) spec: Option<ShardingSpec>,
    pub(crate) data_encoding: Option<Encoding>,
    pub(crate) index_encoding: Option<Encoding>,
    pub(crate) is_planned: bool,
    pub(crate) has_info: bool,
    pub(crate) has_alignment: bool,
}

impl<'py> Build<'py> {
    /// Reads keyword arguments. Those that are `None` have their default.
    ///
    /// Errors: `TypeError` for an unknown name or a wrong type; `ValueError`, `InvalidSpec` and `InvalidInput` for a wrong
    /// value.
    pub(crate) fn read(function: &str, arguments: Option<&Bound<'py, PyDict>>) -> PyResult<Build<'py>> {
        let mut options = BuildOptions::new();
        options.memory(MEMORY);
        let mut build = Build {
            options,
            job: Job::new(None),
            bar: Bar::none(),
            spec: None,
            data_encoding: None,
            index_encoding: None,
            is_planned: false,
            has_info: false,
            has_alignment: false,
        };
        for (name, value) in arguments.into_iter().flatten() {
            if !value.is_none() {
                let name: String = name.extract()?;
                build.set(function, &name, value)?;
            }
        }
        if let Some(spec) = build.spec {
            build.fix_spec(spec);
        }
        build.options.progress(&build.job.progress);
        Ok(build)
    }

    /// Like [`read`](Self::read), for a function with the argument `spec` that takes all others but `without`.
    pub(crate) fn with_spec(
        py: Python<'py>,
        function: &str,
        spec: Option<&Bound<'py, PyAny>>,
        arguments: Option<Bound<'py, PyDict>>,
        without: &[&str],
    ) -> PyResult<Build<'py>> {
        let arguments = arguments.unwrap_or_else(|| PyDict::new(py));
        for name in without {
            if arguments.get_item(name)?.is_some_and(|value| !value.is_none()) {
                return Err(unknown(function, name));
            }
        }
        arguments.set_item("spec", spec)?;
        Build::read(function, Some(&arguments))
    }

    /// Like [`read`](Self::read), for a function that takes only some of them.
    pub(crate) fn read_some(
        function: &str,
        arguments: Option<&Bound<'py, PyDict>>,
        names: &[&str],
    ) -> PyResult<Build<'py>> {
        for name in arguments.into_iter().flat_map(|arguments| arguments.keys()) {
            let name: String = name.extract()?;
            if !names.contains(&&*name) {
                return Err(unknown(function, &name));
            }
        }
        Build::read(function, arguments)
    }

    /// Makes a specification that of the build, with the encodings that are stated.
    pub(crate) fn fix_spec(&mut self, spec: ShardingSpec) {
        let data = self.data_encoding.unwrap_or(spec.data_encoding());
        let index = self.index_encoding.unwrap_or(spec.minishard_index_encoding());
        self.options.spec(spec.with_data_encoding(data).with_minishard_index_encoding(index));
    }

    fn set(&mut self, function: &str, name: &str, value: Bound<'py, PyAny>) -> PyResult<()> {
        let py = value.py();
        let options = &mut self.options;
        match name {
            "spec" => self.spec = Some(spec::parse(&value)?),
            "profile" => {
                options.profile(profile(&value)?);
                self.is_planned = true;
            }
            "max_shard_bytes" => {
                options.max_shard_bytes(size::parse(name, &value)?);
                self.is_planned = true;
            }
            "memory" => drop(options.memory(size::parse(name, &value)?)),
            "threads" => drop(options.threads(threads(&value)?)),
            "temp_dir" => drop(options.temp_dir(value.extract::<PathBuf>()?)),
            "on_duplicate" => self.set_on_duplicate(&value)?,
            "info" => {
                options.info(spec::json_text(name, &value)?);
                self.has_info = true;
            }
            "sharding_at" => drop(options.sharding_at(value.extract::<String>()?)),
            "data_encoding" => {
                let encoding = encoding(name, &value)?;
                options.data_encoding(encoding);
                self.data_encoding = Some(encoding);
            }
            "index_encoding" => {
                let encoding = encoding(name, &value)?;
                options.minishard_index_encoding(encoding);
                self.index_encoding = Some(encoding);
            }
            "value_alignment" => {
                options.value_alignment(ValueAlignment::new(value.extract()?).or_raise(py)?);
                self.has_alignment = true;
            }
            "ordered" => drop(options.ordered(value.extract()?)),
            "checks" => drop(options.checks(value.extract()?)),
            "allow_sparse" => drop(options.allow_sparse(value.extract()?)),
            "allow_empty" => drop(options.allow_empty(value.extract()?)),
            "durable" => drop(options.durable(value.extract()?)),
            "progress" => self.bar = Bar::new(Some(value))?,
            _ => return Err(unknown(function, name)),
        }
        Ok(())
    }

    fn set_on_duplicate(&mut self, value: &Bound<'py, PyAny>) -> PyResult<()> {
        let policy = match value.cast::<PyString>() {
            Ok(name) => match &*name.to_cow()? {
                "error" => OnDuplicate::Error,
                "first" => OnDuplicate::KeepFirst,
                "last" => OnDuplicate::KeepLast,
                other => {
                    return Err(PyValueError::new_err(format!(
                        "expected on_duplicate to be \"error\", \"first\", \"last\" or a function, found {other:?}"
                    )));
                }
            },
            Err(_) if value.is_callable() => {
                self.job = Job::new(Some(value.clone().unbind()));
                merge_function::policy(self.job.sender())
            }
            Err(_) => {
                let found = value.get_type().name()?.to_string();
                return Err(PyTypeError::new_err(format!(
                    "expected on_duplicate as a str or a function, found {found}"
                )));
            }
        };
        self.options.on_duplicate(policy);
        Ok(())
    }
}

/// Reads the keyword arguments of an update.
///
/// Errors: those of [`Build::read`].
pub(crate) fn read_update<'py>(
    function: &str,
    arguments: Option<&Bound<'py, PyDict>>,
) -> PyResult<(UpdateOptions, Job, Bar<'py>)> {
    let (mut options, job, mut bar) = (UpdateOptions::new(), Job::new(None), Bar::none());
    options.memory(MEMORY).progress(&job.progress);
    for (name, value) in arguments.into_iter().flatten().filter(|(_, value)| !value.is_none()) {
        match &*name.extract::<String>()? {
            "strict" => drop(options.strict(value.extract()?)),
            "allow_empty" => drop(options.allow_empty(value.extract()?)),
            "memory" => drop(options.memory(size::parse("memory", &value)?)),
            "threads" => drop(options.threads(threads(&value)?)),
            "temp_dir" => drop(options.temp_dir(value.extract::<PathBuf>()?)),
            "durable" => drop(options.durable(value.extract()?)),
            "progress" => bar = Bar::new(Some(value))?,
            name => return Err(unknown(function, name)),
        }
    }
    Ok((options, job, bar))
}

#[cold]
fn unknown(function: &str, name: &str) -> PyErr {
    PyTypeError::new_err(format!("{function}() got an unexpected keyword argument '{name}'"))
}

/// Returns the profile of a name.
pub(crate) fn profile(value: &Bound<'_, PyAny>) -> PyResult<Profile> {
    value.extract::<String>()?.parse().or_raise(value.py())
}

fn threads(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    match value.extract()? {
        0 => Err(PyValueError::new_err("expected at least 1 thread, found 0")),
        threads => Ok(threads),
    }
}

fn encoding(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Encoding> {
    let text: String = value.extract()?;
    let found = [Encoding::Raw, Encoding::Gzip].into_iter().find(|encoding| encoding.as_str() == text);
    found.ok_or_else(|| PyValueError::new_err(format!("expected {name} to be \"raw\" or \"gzip\", found {text:?}")))
}
