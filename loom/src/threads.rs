//! Some of the library's module `threads`.

#[path = "../../src/threads/cancel.rs"]
pub(crate) mod cancel;
