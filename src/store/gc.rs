//! Garbage collection: removes old generations that no reader has leased.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::fs;
use crate::store::lease::Claim;
use crate::store::{CURRENT, GenerationId, current, generations, history, intact, is_complete, moved, scratch};
use crate::threads::progress::{Phase, Progress};

/// The result of [`StoreWriter::gc`](crate::StoreWriter::gc).
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let report = sharddb::Store::open("store")?.writer()?.gc(1)?;
/// for failure in &report.failed {
///     eprintln!("{}: {}", failure.id, failure.error);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcReport {
    /// The generations that were removed, ascending.
    pub removed: Vec<GenerationId>,
    /// The generations that were kept because a reader holds their lease, ascending.
    pub in_use: Vec<GenerationId>,
    /// The generations that could not be removed, ascending. Each is unchanged, or partly removed and no longer listed;
    /// the next writer removes the rest.
    pub failed: Vec<GcFailure>,
}

/// A generation that [`StoreWriter::gc`](crate::StoreWriter::gc) could not remove; see [`GcReport`] for an example.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GcFailure {
    /// The generation.
    pub id: GenerationId,
    /// The reason: `Io`, or `InvalidInput` if the generation has a foreign file.
    pub error: Arc<Error>,
}

impl PartialEq for GcFailure {
    /// Compares the ids, and the kinds and texts of the errors.
    fn eq(&self, other: &GcFailure) -> bool {
        self.id == other.id
            && self.error.kind() == other.error.kind()
            && self.error.to_string() == other.error.to_string()
    }
}

impl Eq for GcFailure {}

/// Removes all generations except the current one and the `keep` newest ones of the history, of which intact ones come first.
/// Ends before the next one once it is cancelled.
///
/// Errors: `Cancelled`; `Corrupt`; `Io`.
pub(super) fn gc(store: &Path, keep: usize, progress: &Progress) -> Result<GcReport> {
    let mut report = GcReport::default();
    let Choice { intact, doomed } = choose(store, keep)?;
    if !doomed.is_empty() {
        // what is kept was perhaps never synced, and what is removed may be all that a power cut would leave
        intact.iter().try_for_each(|id| intact::sync(store, *id))?;
    }
    progress.begin(Phase::Remove, doomed.len() as u64);
    for id in doomed {
        if progress.is_cancelled() {
            let message =
                format!("the garbage collection was cancelled: generations removed before: {}", report.removed.len());
            return Err(Error::new(ErrorKind::Cancelled, message));
        }
        match remove(store, id) {
            Ok(true) => report.removed.push(id),
            Ok(false) => report.in_use.push(id),
            Err(error) => report.failed.push(GcFailure { id, error: Arc::new(error) }),
        }
        progress.add(1);
    }
    Ok(report)
}

/// Returns the generations that `gc` removes unless they are leased, ascending.
pub(super) fn removable(store: &Path, keep: usize) -> Result<Vec<GenerationId>> {
    choose(store, keep).map(|choice| choice.doomed)
}

/// The intact generations that a garbage collection keeps, and the generations that it removes unless they are leased.
#[derive(Default)]
struct Choice {
    intact: BTreeSet<GenerationId>,
    doomed: Vec<GenerationId>,
}

fn choose(store: &Path, keep: usize) -> Result<Choice> {
    let mut ids = generations(store)?;
    if ids.is_empty() {
        return Ok(Choice::default());
    }
    let current = current::read(store)?.filter(|current| ids.contains(current));
    let Some(current) = current else {
        let message = "expected current to name an existing generation, found that it does not: \
                       roll back to a generation by its number, then run gc again";
        return Err(Error::corrupt(message).at_path(&store.join(CURRENT)));
    };
    intact::check(store, current).map_err(|error| {
        if !intact::is_damage(&error) {
            return error;
        }
        let message = format!(
            "expected an intact current generation, found that its reads fail ({}): nothing was removed; roll back to \
             an intact generation, or salvage this one",
            error.message()
        );
        match error.path() {
            Some(path) => Error::corrupt(message).at_path(path),
            None => Error::corrupt(message),
        }
    })?;
    let mut complete = BTreeSet::new();
    for id in &ids {
        if is_complete(store, *id)? {
            complete.insert(*id);
        }
    }
    let (mut intact, mut damaged) = (BTreeSet::new(), Vec::new()); // newest first
    for id in history::read_with_older(store)?.into_iter().rev().filter(|id| complete.contains(id)) {
        if intact.len() >= keep {
            break;
        }
        match intact::damage_of(store, id)? {
            None => _ = intact.insert(id),
            Some(_) => damaged.push(id),
        }
    }
    damaged.truncate(keep.saturating_sub(intact.len())); // their pairs can be salvaged
    intact.insert(current);
    let moved = moved::read_all(store)?;
    ids.retain(|id| !moved.iter().any(|moved| moved.id == *id)); // the user's only copies
    // an incomplete generation newer than the current one is kept: another program may still be copying it into the
    // store
    ids.retain(|id| !intact.contains(id) && !damaged.contains(id) && (complete.contains(id) || *id < current));
    Ok(Choice { intact, doomed: ids })
}

/// Removes a generation; returns false if it is leased.
///
/// Errors: `InvalidInput` if it has a foreign file; `Io`.
pub(super) fn remove(store: &Path, id: GenerationId) -> Result<bool> {
    let name = id.to_string();
    let (generation, doomed) = (store.join(&name), store.join(scratch::name_for_deletion(&name)));
    scratch::check_generation(&generation)?;
    let Some(claim) = Claim::acquire(&generation)? else { return Ok(false) };
    scratch::remove_own(&doomed)?; // the rename must not replace a foreign file
    // Windows does not rename a directory while a file in it is open, so the claim is dropped before
    let claim = (!cfg!(windows)).then_some(claim);
    fs::rename(&generation, &doomed)?;
    fs::fsync_dir(store)?; // otherwise a crash could restore the name for a directory that has lost files
    scratch::remove_doomed(&doomed)?;
    drop(claim);
    Ok(true)
}
