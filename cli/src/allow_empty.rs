//! `--allow-empty`: whether a generation without keys may replace one with keys.

use clap::Args;

use crate::failure::{ALLOW_EMPTY, Failure, Result};

/// What to do with an empty input. A pipe whose writer failed also looks like an empty input.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AllowEmpty {
    /// Publish a generation without keys even if the current one has keys
    #[arg(long)]
    pub(crate) allow_empty: bool,
}

impl AllowEmpty {
    /// Refuses to publish an empty generation to a store at a URL if that may have keys. The library refuses it for others.
    ///
    /// Errors: `Unsound`.
    pub(crate) fn check(self, pairs: u64, inputs: &str, store: &str, may_have_keys: bool) -> Result<()> {
        if pairs > 0 || self.allow_empty || !may_have_keys {
            return Ok(());
        }
        Err(Failure::Unsound(format!(
            "expected pairs, found none in {inputs}, and {store} has some: nothing was published; {ALLOW_EMPTY}"
        )))
    }
}
