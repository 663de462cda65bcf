//! Merge functions, which combine all values of a key.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use crate::error::Result;

/// The type of a [`MergeFunction`]: gets a key and its values, and writes the new value.
type Function = dyn Fn(u64, &mut Values<'_>, &mut dyn Write) -> io::Result<()> + Send + Sync;

/// A function that combines all values of a key into one; see [`OnDuplicate::merge`](super::OnDuplicate::merge).
#[derive(Clone)]
pub struct MergeFunction(Arc<Function>);

impl MergeFunction {
    pub(super) fn new(
        function: impl Fn(u64, &mut Values<'_>, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> MergeFunction {
        MergeFunction(Arc::new(function))
    }

    pub(super) fn call(&self, key: u64, values: &mut Values<'_>, to: &mut dyn Write) -> Result<()> {
        (self.0)(key, values, to).map_err(of_function)
    }
}

impl fmt::Debug for MergeFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MergeFunction")
    }
}

/// The values of one key, in the order of insertion, decoded and without preambles.
///
/// They are read one after another and need not fit into memory. See
/// [`OnDuplicate::merge`](super::OnDuplicate::merge) for an example.
pub struct Values<'a> {
    source: &'a mut dyn ValueSource,
    value: Vec<u8>,
}

/// Where [`Values`] come from.
pub(super) trait ValueSource {
    /// Returns the length of the next value; `None` after the last.
    fn next_len(&mut self) -> Result<Option<u64>>;

    /// Passes on the next value in pieces. There must be one.
    fn read_next(&mut self, to: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

impl<'a> Values<'a> {
    pub(super) fn of(source: &'a mut dyn ValueSource) -> Values<'a> {
        Values { source, value: Vec::new() }
    }

    /// Returns the length of the next value in bytes; `None` after the last. Does not step to it.
    ///
    /// # Errors
    ///
    /// `Io` from a spill file; `InvalidInput` if several pairs of the key have preambles.
    pub fn next_len(&mut self) -> Result<Option<u64>> {
        self.source.next_len()
    }

    /// Returns the next value; `None` after the last. Reads it into memory.
    ///
    /// # Errors
    ///
    /// Those of [`next_len`](Values::next_len).
    #[expect(clippy::should_implement_trait, reason = "the value is borrowed until the next call")]
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        let Values { source, value } = self;
        if source.next_len()?.is_none() {
            return Ok(None);
        }
        value.clear();
        source.read_next(&mut |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(Some(&self.value))
    }

    /// Writes the next value to `to` in pieces, in constant memory. Returns false after the last value.
    ///
    /// # Errors
    ///
    /// Those of [`next_len`](Values::next_len), and `Io` from `to`.
    pub fn copy_next(&mut self, to: &mut dyn Write) -> Result<bool> {
        if self.source.next_len()?.is_none() {
            return Ok(false);
        }
        self.source.read_next(&mut |piece| to.write_all(piece).map_err(of_function))?;
        Ok(true)
    }
}

impl fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}

/// Converts an error of a function or its writer. An error of this crate is returned as it was.
fn of_function(error: io::Error) -> crate::Error {
    match error.downcast::<crate::Error>() {
        Ok(error) => error,
        Err(error) => crate::Error::io("merge values by the function", std::path::Path::new(""), error),
    }
}
