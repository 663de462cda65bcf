//! Sorted keys: in memory, in a key file, or sorted by runs in a temporary file. What finds keys is in `ordered`.

pub(crate) mod key_file;
pub(crate) mod key_writer;
pub(crate) mod sorter;
mod temp_file;
