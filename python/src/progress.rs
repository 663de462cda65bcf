//! The progress of long work on a bar, such as `tqdm(unit="B", unit_scale=True)`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyType;
use sharddb::Progress;

/// A bar of the caller, which shows one phase after another: `total` is set and `reset()` called at the beginning of each,
/// and `update(n)` then, also of 0, and as it goes on.
pub(crate) struct Bar<'py> {
    bar: Option<Bound<'py, PyAny>>,
    /// The step that is shown.
    step: u64,
    /// What is shown of the step.
    shown: u64,
}

impl<'py> Bar<'py> {
    /// A bar that shows nothing.
    pub(crate) fn none() -> Bar<'py> {
        Bar { bar: None, step: 0, shown: 0 }
    }

    /// Errors: `TypeError` unless the object has what [`show`](Self::show) calls and sets.
    pub(crate) fn new(bar: Option<Bound<'py, PyAny>>) -> PyResult<Bar<'py>> {
        const METHODS: [&str; 3] = ["set_description", "reset", "update"];
        if let Some(class) = bar.as_ref().and_then(|bar| bar.cast::<PyType>().ok()) {
            let name = class.name()?;
            let message =
                format!("expected progress to be a bar, found the class {name}: call it, as in progress={name}()");
            return Err(PyTypeError::new_err(message));
        }
        if let Some(bar) = &bar {
            let is_missing = |name: &&&str| !bar.getattr(**name).is_ok_and(|method| method.is_callable());
            let refused = METHODS.iter().find(is_missing).map(|name| format!("{name}()"));
            if let Some(missing) =
                refused.or_else(|| bar.setattr("total", bar.py().None()).err().map(|_| "total".to_string()))
            {
                return Err(PyTypeError::new_err(format!(
                    "expected progress to be a bar such as tqdm(unit=\"B\", unit_scale=True), with an attribute total and the \
                     methods set_description(text), reset() and update(n), found {} without {missing}",
                    bar.get_type().name()?
                )));
            }
        }
        Ok(Bar { bar, step: 0, shown: 0 })
    }

    /// Shows the progress of some work that has begun. Errors: what the bar raises.
    pub(crate) fn show(&mut self, progress: &Progress) -> PyResult<()> {
        let Some(bar) = &self.bar else { return Ok(()) };
        let step = progress.step(); // before the other values, which are of this step or of a later one
        let begins = step != self.step;
        if begins {
            let total = progress.total();
            bar.call_method1("set_description", (progress.phase().as_str(),))?;
            bar.setattr("total", (total > 0).then_some(total))?;
            bar.call_method0("reset")?;
            (self.step, self.shown) = (step, 0);
        }
        let done = progress.done();
        if let Some(more) = done.checked_sub(self.shown).filter(|more| *more > 0 || begins) {
            bar.call_method1("update", (more,))?;
            self.shown = done;
        }
        Ok(())
    }
}

/// Raises `TypeError` unless an object is a bar, or `None`.
#[pyfunction]
fn _check_bar(progress: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    Bar::new(progress).map(drop)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_check_bar, module)?)
}
