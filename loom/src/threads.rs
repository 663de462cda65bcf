//! Some of the library's module `threads`.

#[path = "../../src/threads/progress.rs"]
pub(crate) mod progress;
