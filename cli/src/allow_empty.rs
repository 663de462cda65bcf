//! `--allow-empty`: whether a generation without keys may replace one that has some.

use std::path::Path;

use clap::Args;
use sharddb::{OpenOptions, Store};

use crate::failure::{Failure, Result};

/// What to do when there is nothing to publish: a pipe whose writer failed looks like an empty input.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AllowEmpty {
    /// Publish a generation without keys even where the current one has some
    #[arg(long)]
    allow_empty: bool,
}

impl AllowEmpty {
    /// To be called before a generation of `pairs` pairs from `inputs` is published, while the store is locked.
    ///
    /// Errors: `NoPairs` if it is empty, and would replace one that is not, or that cannot be read.
    pub(crate) fn check(self, pairs: u64, inputs: &str, store: &Path) -> Result<()> {
        if pairs > 0 || self.allow_empty || !has_keys(store)? {
            return Ok(());
        }
        let store = store.display();
        Err(Failure::NoPairs(format!(
            "expected pairs, found none in {inputs}, and {store} has some: nothing was published; \
             --allow-empty publishes an empty generation"
        )))
    }
}

/// Whether the current generation of a store may have keys; one that cannot be read may.
fn has_keys(store: &Path) -> Result<bool> {
    if Store::open(store)?.current()?.is_none() {
        return Ok(false);
    }
    let Ok(db) = OpenOptions::new().check_shards(false).open_pread(store) else { return Ok(true) };
    let snapshot = db.snapshot();
    Ok(snapshot.len().map_or_else(|| snapshot.keys().next().is_some(), |keys| keys > 0))
}
