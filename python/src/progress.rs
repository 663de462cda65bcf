//! The progress of long work on a bar, such as `tqdm(unit="B", unit_scale=True)`.

use pyo3::prelude::*;
use sharddb::Progress;

/// A bar of the caller, which shows one phase after another: `total` is set and `reset()` called at the beginning of each,
/// and `update(n)` as it goes on.
pub(crate) struct Bar<'py> {
    bar: Option<Bound<'py, PyAny>>,
    /// The step that is shown.
    step: u64,
    /// What is shown of the step.
    shown: u64,
}

impl<'py> Bar<'py> {
    pub(crate) fn new(bar: Option<Bound<'py, PyAny>>) -> Bar<'py> {
        Bar { bar, step: 0, shown: 0 }
    }

    /// Shows the progress of some work that has begun. Errors: what the bar raises.
    pub(crate) fn show(&mut self, progress: &Progress) -> PyResult<()> {
        let Some(bar) = &self.bar else { return Ok(()) };
        let step = progress.step(); // before the other values, which are of this step or of a later one
        if step != self.step {
            let total = progress.total();
            bar.call_method1("set_description", (progress.phase().as_str(),))?;
            bar.setattr("total", (total > 0).then_some(total))?;
            bar.call_method0("reset")?;
            (self.step, self.shown) = (step, 0);
        }
        let done = progress.done();
        if let Some(more) = done.checked_sub(self.shown).filter(|more| *more > 0) {
            bar.call_method1("update", (more,))?;
            self.shown = done;
        }
        Ok(())
    }
}
