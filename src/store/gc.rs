//! gc: removes old generations that nobody reads.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::store::generation_id::GenerationId;
use crate::store::lease::Claim;
use crate::store::names::CURRENT;
use crate::store::{current, fs, generations, history, is_complete, scratch};

/// What [`StoreWriter::gc`](crate::StoreWriter::gc) did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcReport {
    /// The generations that were removed, ascending.
    pub removed: Vec<GenerationId>,
    /// The generations that were to be removed but that someone reads, ascending.
    pub in_use: Vec<GenerationId>,
    /// The generations that were to be removed but could not be, ascending. They are as they were, or removed in part
    /// and not listed any more; the next writer tries again.
    pub failed: Vec<GcFailure>,
}

/// A generation that [`StoreWriter::gc`](crate::StoreWriter::gc) could not remove.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GcFailure {
    /// Which generation.
    pub id: GenerationId,
    /// Why: `Io`, or `InvalidInput` if it holds something that no generation has.
    pub error: Arc<Error>,
}

impl PartialEq for GcFailure {
    /// Compares what the errors say.
    fn eq(&self, other: &GcFailure) -> bool {
        self.id == other.id
            && self.error.kind() == other.error.kind()
            && self.error.to_string() == other.error.to_string()
    }
}

impl Eq for GcFailure {}

/// Removes all generations but the current one and the `keep` newest complete ones of the history.
pub(super) fn gc(store: &Path, keep: usize) -> Result<GcReport> {
    let mut report = GcReport::default();
    for id in removable(store, keep)? {
        match remove(store, id) {
            Ok(true) => report.removed.push(id),
            Ok(false) => report.in_use.push(id),
            Err(error) => report.failed.push(GcFailure { id, error: Arc::new(error) }),
        }
    }
    Ok(report)
}

fn removable(store: &Path, keep: usize) -> Result<Vec<GenerationId>> {
    let mut ids = generations(store)?;
    if ids.is_empty() {
        return Ok(ids);
    }
    let current = current::read(store)?.filter(|current| ids.contains(current));
    let Some(current) = current else {
        let message = "expected current to name a generation that is there, found none: \
                       roll back to a generation by its number, then collect";
        return Err(Error::corrupt(message).at_path(&store.join(CURRENT)));
    };
    let complete: BTreeSet<_> = ids.iter().copied().filter(|&id| is_complete(store, id)).collect();
    let mut kept = BTreeSet::new();
    for id in history::read(store)?.into_iter().rev().filter(|id| complete.contains(id)) {
        if kept.len() < keep {
            kept.insert(id);
        }
    }
    kept.insert(current);
    // an incomplete generation later than the current one may be on its way in
    ids.retain(|id| !kept.contains(id) && (complete.contains(id) || *id < current));
    Ok(ids)
}

/// Removes a generation; false if it is leased.
///
/// Errors: `InvalidInput` if it holds something that no generation has, `Io`.
pub(super) fn remove(store: &Path, id: GenerationId) -> Result<bool> {
    let name = id.to_string();
    let (generation, doomed) = (store.join(&name), store.join(scratch::name_for_deletion(&name)));
    scratch::check_generation(&generation)?;
    let Some(claim) = Claim::acquire(&generation)? else { return Ok(false) };
    scratch::remove_native(&doomed)?; // else a rename could replace what is in the way
    // Windows renames no directory while a file in it is open, be it a reader's or this one
    let claim = (!cfg!(windows)).then_some(claim);
    fs::rename(&generation, &doomed)?;
    fs::fsync_dir(store)?; // else a crash could bring the name back for a directory that has lost files
    fs::remove(&doomed)?;
    drop(claim);
    Ok(true)
}
