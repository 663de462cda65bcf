//! The generations of a store in a bucket.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::Bucket;
use crate::bucket::current::Current;
use crate::bucket_current::{GenerationName, ServerTime};

/// What `current` states about a generation.
///
/// See [`Bucket`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BucketState {
    /// It is the one that readers use.
    Current,
    /// It was current, and is in the history: a rollback to it is possible if it is complete.
    Listed,
    /// It was never current, or is not in the history any more: an upload under way or interrupted, or a removal.
    Unfinished,
}

/// A generation of a store in a bucket, as listed by [`Bucket::generations`].
///
/// See [`Bucket`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketGeneration {
    /// Its name, which is that of its directory.
    pub name: String,
    /// What `current` states about it.
    pub state: BucketState,
    /// Whether it has a manifest, which is written last and removed first.
    pub is_complete: bool,
    /// When its successor became current, by the clock of the server. `None` unless it is listed.
    pub replaced: Option<SystemTime>,
    /// The number of its objects.
    pub objects: u64,
    /// The bytes of its objects.
    pub bytes: u64,
}

/// An entry of the history, as returned by [`Bucket::history`].
///
/// See [`Bucket`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketVersion {
    /// The name of the generation. Its objects may have been removed.
    pub name: String,
    /// When its successor became current, by the clock of the server. `None` for the current one.
    pub replaced: Option<SystemTime>,
    /// Whether a rollback to the previous one left it.
    pub rolled_back: bool,
}

impl Bucket {
    /// Returns the name of the current generation; `None` if nothing was published. One request.
    ///
    /// # Errors
    ///
    /// `Corrupt` if `current` is damaged; `Unsupported` if a later version wrote it; `Io`.
    pub async fn current(&self) -> Result<Option<String>> {
        Ok(self.root.current().await?.map(|current| current.generation().to_string()))
    }

    /// Returns the generations that were current, oldest first; the last is the current one. At most 1,000. One request.
    ///
    /// # Errors
    ///
    /// Those of [`current`](Self::current).
    pub async fn history(&self) -> Result<Vec<BucketVersion>> {
        let Some(current) = self.root.current().await? else { return Ok(Vec::new()) };
        let before = current.before().into_iter().map(|entry| BucketVersion {
            name: entry.generation.to_string(),
            replaced: entry.at.map(system_time),
            rolled_back: entry.rolled_back,
        });
        let last = BucketVersion { name: current.generation().to_string(), replaced: None, rolled_back: false };
        Ok(before.chain([last]).collect())
    }

    /// Returns the generations of which the bucket has objects, ascending.
    ///
    /// Cost: lists all objects, 1,000 per request.
    ///
    /// # Errors
    ///
    /// Those of [`current`](Self::current); `TooLarge` for more than 100,000 generations.
    pub async fn generations(&self) -> Result<Vec<BucketGeneration>> {
        let current = self.root.current().await?;
        let replaced = replaced_times(current.as_ref());
        let listing = self.root.list().await?;
        let generations = listing.generations.into_iter().map(|(name, totals)| BucketGeneration {
            state: state_of(current.as_ref(), &replaced, &name),
            is_complete: totals.is_complete,
            replaced: replaced.get(&name).copied().map(system_time),
            objects: totals.objects,
            bytes: totals.bytes,
            name: name.to_string(),
        });
        Ok(generations.collect())
    }

    /// Returns a generation by its name, or the current one.
    ///
    /// Errors: `InvalidInput` if it is not the name of one; `NotFound` without a current one.
    pub(super) async fn named_or_current(&self, name: Option<&str>) -> Result<GenerationName> {
        match name {
            Some(name) => parse_name(name),
            None => self.root.published().await.map(|current| current.generation().clone()),
        }
    }
}

/// Parses a name that the caller gave.
pub(super) fn parse_name(name: &str) -> Result<GenerationName> {
    GenerationName::parse(name).ok_or_else(|| {
        let message =
            "expected the name of a generation in a bucket, gen-, ten digits, - and 32 hexadecimal digits, found";
        Error::new(ErrorKind::InvalidInput, format!("{message} {name:?}"))
    })
}

/// Returns when the generations of the history were replaced.
pub(super) fn replaced_times(current: Option<&Current>) -> HashMap<GenerationName, ServerTime> {
    let before = current.map(Current::before).unwrap_or_default();
    before.into_iter().filter_map(|entry| Some((entry.generation, entry.at?))).collect()
}

fn state_of(
    current: Option<&Current>,
    replaced: &HashMap<GenerationName, ServerTime>,
    name: &GenerationName,
) -> BucketState {
    if current.is_some_and(|current| current.generation() == name) {
        return BucketState::Current;
    }
    if replaced.contains_key(name) { BucketState::Listed } else { BucketState::Unfinished }
}

fn system_time(time: ServerTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.unix())
}
