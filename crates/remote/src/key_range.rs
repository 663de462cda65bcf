//! Iteration over the keys of a range in ascending order.

use std::fmt;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use sharddb_format::internal::key_bounds::KeyBounds;
use sharddb_format::internal::key_file::KeyRun;
use sharddb_format::{Error, ErrorKind, Result};

use crate::generation::RemoteGeneration;
use crate::key_file::RemoteKeyFile;
use crate::operation::{Exchange, Operation};
use crate::scan::Position;
use crate::snapshot::RemoteSnapshot;
use crate::walk::{Rows, Walk};

/// Keys per batch.
const BATCH_KEYS: usize = 16 << 10;

/// Maximum number of keys that are sorted in memory: 1 GiB.
const MOST_SORTED: usize = 1 << 27;

/// An iterator over the keys of a range in ascending order, in batches; see [`RemoteSnapshot::key_range`].
///
/// ```
/// use sharddb_remote::{Operation, RemoteSnapshot};
///
/// fn smallest(snapshot: &RemoteSnapshot, run: impl Fn(Operation<'_, Option<Vec<u64>>>) -> Option<Vec<u64>>) -> Option<u64> {
///     let first = run(snapshot.key_range(..).next_batch())?;
///     first.first().copied()
/// }
/// ```
pub struct RemoteKeyRange(Position<KeyRangeState>);

pub(crate) struct KeyRangeState {
    generation: Arc<RemoteGeneration>,
    /// `None` if the range has no keys.
    bounds: Option<KeyBounds>,
    source: Source,
}

/// Where the sorted keys come from.
enum Source {
    /// Not known before the first batch.
    Unknown,
    KeyFile {
        file: RemoteKeyFile,
        /// The numbers of the keys that are not read.
        numbers: Range<u64>,
        /// Keys that are read, and not taken.
        read: std::vec::IntoIter<u64>,
    },
    /// The keys that are left.
    Sorted(std::vec::IntoIter<u64>),
}

impl RemoteSnapshot {
    /// Iterates over the keys of a range in ascending order, in batches: those that [`get`](RemoteSnapshot::get) finds.
    ///
    /// Cost: with a key file up to five requests for the ends of the range, then one per 16,384 keys and one per 262,144
    /// keys. Without one, reads the indexes of the minishards
    /// that can hold the keys (few, if the hash is the identity and the range narrow; otherwise all of them) before the
    /// first batch, and sorts the keys in memory, 8 bytes each.
    pub fn key_range(&self, range: impl RangeBounds<u64>) -> RemoteKeyRange {
        RemoteKeyRange(Position::At(KeyRangeState::new(self.generation.clone(), &range)))
    }
}

impl RemoteKeyRange {
    /// Returns the next keys, at least one; `None` at the end. An error ends the iteration.
    ///
    /// # Errors
    ///
    /// Those of [`RemoteKeys::next_batch`](crate::RemoteKeys::next_batch); `TooLarge` also for more than 2^27 keys
    /// without a key file.
    pub fn next_batch(&mut self) -> Operation<'_, Option<Vec<u64>>> {
        Operation::new(|exchange| async move {
            let mut state = self.0.take()?;
            let keys = state.next_keys(&exchange, BATCH_KEYS).await?;
            self.0 = Position::At(state);
            Ok(keys)
        })
    }
}

impl KeyRangeState {
    pub(crate) fn new(generation: Arc<RemoteGeneration>, range: &impl RangeBounds<u64>) -> KeyRangeState {
        KeyRangeState { generation, bounds: KeyBounds::new(range), source: Source::Unknown }
    }

    pub(crate) fn generation(&self) -> &Arc<RemoteGeneration> {
        &self.generation
    }

    /// Returns up to `most` keys; `None` at the end.
    pub(crate) async fn next_keys(&mut self, exchange: &Exchange, most: usize) -> Result<Option<Vec<u64>>> {
        let Some(bounds) = self.bounds else { return Ok(None) };
        loop {
            let keys: Vec<u64> = match &mut self.source {
                Source::Unknown => {
                    self.source = self.open(exchange, bounds).await?;
                    continue;
                }
                Source::Sorted(left) => left.take(most).collect(),
                Source::KeyFile { file, numbers, read } => {
                    if read.as_slice().is_empty() && !numbers.is_empty() {
                        match file.run_from(exchange, numbers).await {
                            Ok(run) => *read = take_run(run, numbers).into_iter(),
                            Err(error) if error.kind() == ErrorKind::Corrupt => {
                                // a damaged key file changes no result
                                self.source = Source::Sorted(self.sorted(exchange, bounds).await?.into_iter());
                                continue;
                            }
                            Err(error) => return Err(error),
                        }
                    }
                    read.take(most).collect()
                }
            };
            let Some(last) = keys.last() else { return Ok(None) };
            if matches!(self.source, Source::KeyFile { .. }) {
                // what is left if the rest of the key file is damaged
                self.bounds = last.checked_add(1).and_then(|next| KeyBounds::new(&(next..=bounds.last())));
            }
            return Ok(Some(keys));
        }
    }

    async fn open(&self, exchange: &Exchange, bounds: KeyBounds) -> Result<Source> {
        if let Some(mut file) = RemoteKeyFile::open(&self.generation, exchange).await {
            match file.numbers(exchange, bounds).await {
                Ok(numbers) => return Ok(Source::KeyFile { file, numbers, read: Vec::new().into_iter() }),
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Source::Sorted(self.sorted(exchange, bounds).await?.into_iter()))
    }

    /// Reads the keys of a range from the minishard indexes, and sorts them.
    async fn sorted(&self, exchange: &Exchange, bounds: KeyBounds) -> Result<Vec<u64>> {
        let mut walk = Walk::new(self.generation.clone(), bounds, 0)?;
        let mut keys = Vec::new();
        while let Some(visited) = walk.next_minishard(exchange).await? {
            let mut rows = Rows::new(visited);
            while let Some(found) = rows.next(&self.generation)? {
                let key = found.row.id;
                if bounds.contains(key) && self.generation.spec.route(key) == found.location {
                    keys.push(key);
                }
            }
            if keys.len() > MOST_SORTED {
                let message = format!(
                    "expected at most {MOST_SORTED} keys to sort in memory, found more: choose a narrower range, or build \
                     with a key file"
                );
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

/// Takes the keys of a run that are among `numbers`.
fn take_run(run: KeyRun, numbers: &mut Range<u64>) -> Vec<u64> {
    let skipped = usize::try_from(numbers.start.saturating_sub(run.first)).unwrap_or(usize::MAX);
    let left = usize::try_from(numbers.end - numbers.start).unwrap_or(usize::MAX);
    let keys: Vec<u64> = run.keys.into_iter().skip(skipped).take(left).collect();
    numbers.start += keys.len() as u64;
    keys
}

impl fmt::Debug for RemoteKeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteKeyRange").finish_non_exhaustive()
    }
}
