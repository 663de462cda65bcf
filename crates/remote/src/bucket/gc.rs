//! Removing generations that no reader uses any more, by the time of the server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::stream::{StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use sharddb_format::internal::manifest;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::Bucket;
use crate::bucket::current::{Current, Replacement, conflict};
use crate::bucket::generations::replaced_times;
use crate::bucket::listing::{Listing, Totals};
use crate::bucket_current::{FILE_NAME, GenerationName, MAX_HISTORY, ServerTime};

/// Maximum number of generations that one call removes. `current` names them.
const MOST_REMOVED: usize = MAX_HISTORY / 2;

/// The age in seconds of a probe that no process uses any more. A probe is used for a few requests.
const OLD_PROBE: u64 = 24 * 3600;

/// Options of [`Bucket::gc_with`].
///
/// ```
/// use sharddb_remote::BucketGcOptions;
///
/// let mut options = BucketGcOptions::new();
/// options.keep_listed(true).dry_run(true);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BucketGcOptions {
    keep_listed: bool,
    dry_run: bool,
}

impl BucketGcOptions {
    /// Creates the defaults.
    pub fn new() -> BucketGcOptions {
        BucketGcOptions::default()
    }

    /// Sets whether all generations of the history stay, so that only interrupted uploads are removed. Default: false.
    pub fn keep_listed(&mut self, keep: bool) -> &mut BucketGcOptions {
        self.keep_listed = keep;
        self
    }

    /// Sets whether the report only states what would be removed. Then nothing is written, so ages count by the clock of this
    /// machine. Default: false.
    pub fn dry_run(&mut self, dry_run: bool) -> &mut BucketGcOptions {
        self.dry_run = dry_run;
        self
    }
}

/// What [`Bucket::gc`] removed, or would remove.
///
/// See [`Bucket`] for an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketGcReport {
    /// The names of the generations, ascending.
    pub removed: Vec<String>,
    /// The number of their objects.
    pub objects: u64,
    /// The bytes of their objects.
    pub bytes: u64,
    /// The number of further generations that the options select: the next call removes them.
    pub remaining: u64,
}

impl Bucket {
    /// Removes generations that were replaced at least `older_than` ago, and the objects of interrupted uploads whose newest
    /// object is at least as old.
    ///
    /// Readers of a replaced generation have this much time to finish or to refresh, and an interrupted push to be continued.
    ///
    /// Ages count by the clock of the server, which is read by writing a small object; that of this machine has no effect.
    /// A [`dry_run`](BucketGcOptions::dry_run) writes nothing, and needs only the right to read and to list.
    /// The current generation stays. Before anything is deleted, `current` names the generations that are to be removed, so
    /// that no push or rollback makes one of them current. The manifest of a generation is deleted first: one that is half
    /// deleted cannot be opened, and the next call deletes the rest. All objects below the name of a removed generation are
    /// deleted; objects with foreign names stay.
    ///
    /// Not removed are the parts of an object whose upload was killed: they are no object yet, and the crate `object_store` cannot
    /// list them. Set a lifecycle rule for incomplete multipart uploads on S3 and Google; Azure removes them after a week.
    ///
    /// Removes at most 500 generations, and reports how many remain. Cost: lists all objects, 1,000 per request.
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing was published, since then all uploads may be under way; `Locked` if another publisher
    /// replaced `current` meanwhile; `Unsupported` for a store without conditional writes; `Corrupt` if `current` is
    /// damaged; `Io`.
    pub async fn gc(&self, older_than: Duration) -> Result<BucketGcReport> {
        self.gc_with(older_than, &BucketGcOptions::new()).await
    }

    /// Removes with options; see [`gc`](Bucket::gc).
    ///
    /// # Errors
    ///
    /// Those of [`gc`](Bucket::gc).
    pub async fn gc_with(&self, older_than: Duration, options: &BucketGcOptions) -> Result<BucketGcReport> {
        let base = self.root.published().await?;
        let now = if options.dry_run { time_of_this_machine()? } else { self.root.server_time().await? };
        let listing = self.root.list().await?;
        let is_old = |then| Duration::from_secs(now.seconds_since(then)) >= older_than;
        let mut doomed = doomed(&base, &listing, options.keep_listed, is_old);
        let remaining = doomed.len().saturating_sub(MOST_REMOVED) as u64;
        doomed.truncate(MOST_REMOVED);
        let report = BucketGcReport {
            removed: doomed.iter().map(|(name, _)| name.to_string()).collect(),
            objects: doomed.iter().map(|(_, totals)| totals.objects).sum(),
            bytes: doomed.iter().fold(0, |bytes, (_, totals)| totals.bytes.saturating_add(bytes)),
            remaining,
        };
        if options.dry_run {
            return Ok(report);
        }
        if !doomed.is_empty() {
            self.root.check_conditions().await?;
            self.announce(&base, &listing, &doomed).await?;
        }
        for (generation, _) in &doomed {
            self.delete(generation).await?;
        }
        // others are in use
        for (probe, _) in listing.probes.iter().filter(|(_, written)| now.seconds_since(*written) >= OLD_PROBE) {
            _ = self.root.store().delete(&self.root.path(probe)?).await; // the next call tries again
        }
        Ok(report)
    }

    /// Makes `current` name the generations that are to be removed, instead of those that have no objects any more.
    async fn announce(&self, base: &Current, listing: &Listing, doomed: &[(GenerationName, Totals)]) -> Result<()> {
        let is_doomed = |name: &GenerationName| doomed.iter().any(|(doomed, _)| doomed == name);
        let has_objects = |name: &GenerationName| listing.generations.contains_key(name);
        let earlier = base.text.removed.iter().filter(|name| has_objects(name) && !is_doomed(name));
        let removed = doomed.iter().map(|(name, _)| name).chain(earlier).take(MAX_HISTORY).cloned().collect();
        match self.root.replace(Some(base), &base.without(removed)).await? {
            Replacement::Written => Ok(()),
            Replacement::Conflict(found) => Err(conflict(&self.root, found.as_deref())),
        }
    }

    /// Deletes the objects of a generation, the manifest first.
    async fn delete(&self, generation: &GenerationName) -> Result<()> {
        let current = self.root.published().await?;
        if current.generation() == generation || !current.text.removed.contains(generation) {
            let message = format!(
                "expected current to list {generation} as removed, found that it does not: another publisher replaced it \
                 while gc was at work; this generation and the remaining ones stay, and the next gc removes what is old"
            );
            return Err(Error::new(ErrorKind::Locked, message).at_path(&self.root.place(FILE_NAME)));
        }
        let fail = |error| self.root.failed("delete", generation.as_str(), error);
        let manifest = self.root.path(&format!("{generation}/{}", manifest::FILE_NAME))?;
        match self.root.store().delete(&manifest).await {
            Err(object_store::Error::NotFound { .. }) => {}
            deleted => deleted.map_err(fail)?,
        }
        let objects = self.root.store().list(Some(&self.root.path(generation.as_str())?));
        self.root.delete_all(objects.map_ok(|meta| meta.location).boxed(), generation.as_str()).await
    }
}

/// Returns the generations to remove.
fn doomed(
    base: &Current,
    listing: &Listing,
    keep_listed: bool,
    is_old: impl Fn(ServerTime) -> bool,
) -> Vec<(GenerationName, Totals)> {
    let replaced = replaced_times(Some(base));
    let is_doomed = |name: &GenerationName, totals: &Totals| match replaced.get(name) {
        _ if name == base.generation() => false,
        Some(at) => !keep_listed && is_old(*at),
        None => base.text.removed.contains(name) || is_old(totals.newest),
    };
    let generations = listing.generations.iter().filter(|(name, totals)| is_doomed(name, totals));
    generations.map(|(name, totals)| (name.clone(), *totals)).collect()
}

/// Errors: `Unsupported` if the clock is far from right.
fn time_of_this_machine() -> Result<ServerTime> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).ok().and_then(ServerTime::from_unix);
    let message = "expected a clock of this machine of the years 1970 to 9999, found another: set it";
    now.ok_or_else(|| Error::new(ErrorKind::Unsupported, message))
}
