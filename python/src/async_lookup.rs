//! The coroutines of a local database, which are those of a remote one by name: lookups on a thread of the event loop.

use pyo3::prelude::*;

use crate::reader::Reader;

#[pymethods]
impl Reader {
    /// Returns the value of a key, or `default` if the key is absent, as a coroutine: `get` on a thread of the event loop, which
    /// a slow disk does not block. A thread costs more than a lookup in memory: for many keys await `get_many_async`.
    #[pyo3(signature = (key, default = None))]
    fn get_async<'py>(
        this: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        to_thread(this.py(), (this.getattr("get")?, key, default))
    }

    /// Returns the values of many keys, like `get_many`, as a coroutine.
    #[pyo3(signature = (keys, /))]
    fn get_many_async<'py>(this: &Bound<'py, Self>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        to_thread(this.py(), (this.getattr("get_many")?, keys))
    }
}

/// Returns the coroutine that calls a function on a thread. Cancelling it does not end the call.
fn to_thread<'py>(py: Python<'py>, call: impl pyo3::call::PyCallArgs<'py>) -> PyResult<Bound<'py, PyAny>> {
    py.import("asyncio")?.getattr("to_thread")?.call1(call)
}
