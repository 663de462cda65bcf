//! `--allow-empty`: whether a generation without keys may replace one with keys.

use std::path::Path;

use clap::Args;
use sharddb::{OpenOptions, Store};

use crate::failure::{Failure, Result};

/// What to do with an empty input. A pipe whose writer failed also looks like an empty input.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AllowEmpty {
    /// Publish a generation without keys even if the current one has keys
    #[arg(long)]
    allow_empty: bool,
}

impl AllowEmpty {
    /// Refuses to publish an empty generation over one with keys. Call it while the store is locked, before publishing.
    ///
    /// Errors: `Unsound` if `pairs` is 0 and the current generation has keys or cannot be read.
    pub(crate) fn check(self, pairs: u64, inputs: &str, store: &Path) -> Result<()> {
        self.check_replaced(pairs, inputs, &store.display().to_string(), || has_keys(store))
    }

    /// Refuses to publish an empty generation to a store that has keys, as `has_keys` finds out.
    ///
    /// Errors: `Unsound`; those of `has_keys`.
    pub(crate) fn check_replaced(
        self,
        pairs: u64,
        inputs: &str,
        store: &str,
        has_keys: impl FnOnce() -> Result<bool>,
    ) -> Result<()> {
        if pairs > 0 || self.allow_empty || !has_keys()? {
            return Ok(());
        }
        Err(Failure::Unsound(format!(
            "expected pairs, found none in {inputs}, and {store} has some: nothing was published; \
             --allow-empty publishes an empty generation"
        )))
    }
}

/// Whether the current generation may have keys. A generation that cannot be read may.
pub(crate) fn has_keys(store: &Path) -> Result<bool> {
    if Store::open(store)?.current()?.is_none() {
        return Ok(false);
    }
    let Ok(db) = OpenOptions::new().check_shards(false).open(store) else { return Ok(true) };
    let snapshot = db.snapshot();
    Ok(snapshot.key_count().map_or_else(|| snapshot.keys().next().is_some(), |keys| keys > 0))
}
