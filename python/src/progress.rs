//! The progress of long work on a bar, such as `tqdm(unit="B", unit_scale=True)`.

use pyo3::prelude::*;
use sharddb::write::{BuildPhase, BuildProgress};

/// A bar of the caller, which shows one phase after another: `total` is set and `reset()` called at the beginning of each,
/// and `update(n)` as it goes on.
pub(crate) struct Bar<'py> {
    bar: Option<Bound<'py, PyAny>>,
    /// The step that is shown.
    step: u64,
    /// The bytes of the step that are shown.
    shown: u64,
}

impl<'py> Bar<'py> {
    pub(crate) fn new(bar: Option<Bound<'py, PyAny>>) -> Bar<'py> {
        Bar { bar, step: 0, shown: 0 }
    }

    /// Shows the progress of a build. Errors: what the bar raises.
    pub(crate) fn show(&mut self, progress: &BuildProgress) -> PyResult<()> {
        let step = progress.step(); // before the other values, which are of this step or of a later one
        self.show_step(step, name(progress.phase()), progress.total(), progress.done())
    }

    /// Shows the progress of a step; `total` is 0 if it is not known. Errors: what the bar raises.
    pub(crate) fn show_step(&mut self, step: u64, name: &str, total: u64, done: u64) -> PyResult<()> {
        let Some(bar) = &self.bar else { return Ok(()) };
        if step != self.step {
            bar.call_method1("set_description", (name,))?;
            bar.setattr("total", (total > 0).then_some(total))?;
            bar.call_method0("reset")?;
            (self.step, self.shown) = (step, 0);
        }
        if let Some(more) = done.checked_sub(self.shown).filter(|more| *more > 0) {
            bar.call_method1("update", (more,))?;
            self.shown = done;
        }
        Ok(())
    }
}

fn name(phase: BuildPhase) -> &'static str {
    match phase {
        BuildPhase::Insert => "insert",
        BuildPhase::Sort => "sort",
        BuildPhase::Merge => "merge",
        BuildPhase::Write => "write",
        BuildPhase::Order => "order",
        BuildPhase::Publish => "publish",
        _ => "build",
    }
}
