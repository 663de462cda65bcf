//! Changes as lines of JSON, which `apply` reads back.

use crate::failure::Result;
use crate::output::{Target, Values};

/// `{"key":"..","old":{"value_b64":".."},"new":null}`: the pair of a key before and after a change.
pub(crate) struct Patch {
    target: Target,
    values: Values,
    line: Vec<u8>,
}

/// A preamble and a value.
pub(crate) type Pair<'a> = (&'a [u8], &'a [u8]);

impl Patch {
    pub(crate) fn new(target: Target, values: Values) -> Patch {
        Patch { target, values, line: Vec::new() }
    }

    /// Writes a change; `None` where the key is absent.
    ///
    /// Errors: `Io`; `BrokenPipe`.
    pub(crate) fn write(&mut self, key: u64, old: Option<Pair<'_>>, new: Option<Pair<'_>>) -> Result<()> {
        self.line.clear();
        self.line.extend_from_slice(format!("{{\"key\":\"{key}\",\"old\":").as_bytes());
        self.push(old)?;
        self.line.extend_from_slice(b",\"new\":");
        self.push(new)?;
        self.line.extend_from_slice(b"}\n");
        self.target.write_all(&self.line)
    }

    fn push(&mut self, pair: Option<Pair<'_>>) -> Result<()> {
        match pair {
            None => self.line.extend_from_slice(b"null"),
            Some((preamble, value)) => {
                self.line.push(b'{');
                self.values.push_members(preamble, value, &mut self.line)?;
                self.line.push(b'}');
            }
        }
        Ok(())
    }

    /// Completes the output and renames it to its path.
    pub(crate) fn finish(self) -> Result<()> {
        self.target.finish()
    }
}
