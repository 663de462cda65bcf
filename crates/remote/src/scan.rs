//! Iteration over a generation in storage order: its keys, or its pairs.

use std::fmt;

use sharddb_format::internal::key_bounds::KeyBounds;
use sharddb_format::{Error, Result};

use crate::generation::RemoteGeneration;
use crate::lookup::Found;
use crate::operation::{Exchange, Operation};
use crate::request::RemoteValue;
use crate::snapshot::RemoteSnapshot;
use crate::walk::{Rows, Walk};

/// A batch ends with the pair at which its stored values have this many bytes.
const BATCH_BYTES: u64 = 8 << 20;

/// Maximum number of pairs per batch.
const BATCH_PAIRS: usize = 1 << 16;

/// A batch of keys ends with the minishard at which it has this many.
const BATCH_KEYS: usize = 1 << 16;

/// An iterator over all keys in storage order, in batches; see [`RemoteSnapshot::keys`].
///
/// ```
/// use sharddb_remote::{Operation, RemoteSnapshot};
///
/// fn count(snapshot: &RemoteSnapshot, run: impl Fn(Operation<'_, Option<Vec<u64>>>) -> Option<Vec<u64>>) -> usize {
///     let mut keys = snapshot.keys();
///     let mut count = 0;
///     while let Some(batch) = run(keys.next_batch()) {
///         count += batch.len();
///     }
///     count
/// }
/// ```
pub struct RemoteKeys(Position<Walk>);

/// An iterator over all pairs in storage order, in batches; see [`RemoteSnapshot::scan`].
///
/// ```
/// use sharddb_remote::{Operation, RemoteSnapshot, RemoteValue};
///
/// type Pairs = Vec<(u64, RemoteValue)>;
///
/// fn print(snapshot: &RemoteSnapshot, run: impl Fn(Operation<'_, Option<Pairs>>) -> Option<Pairs>) {
///     let mut scan = snapshot.scan();
///     while let Some(batch) = run(scan.next_batch()) {
///         for (key, value) in batch {
///             println!("{key}: {} bytes", value.len());
///         }
///     }
/// }
/// ```
pub struct RemoteScan(Position<ScanState>);

/// The position of an iterator. It is absent while an operation moves it, so that a dropped operation loses nothing
/// without an error.
pub(crate) enum Position<T> {
    At(T),
    Failed(Option<Error>),
}

struct ScanState {
    walk: Walk,
    /// The minishard that is visited now; `None` before the first one.
    rows: Option<Rows>,
}

/// The found keys of a batch of pairs: until their values have 8 MiB, at most 65,536.
#[derive(Default)]
pub(crate) struct PairBatch {
    found: Vec<Found>,
    bytes: u64,
}

impl<T> Position<T> {
    pub(crate) fn new(position: Result<T>) -> Position<T> {
        match position {
            Ok(position) => Position::At(position),
            Err(error) => Position::Failed(Some(error)),
        }
    }

    /// Takes the position, for an operation that puts it back at its end.
    pub(crate) fn take(&mut self) -> Result<T> {
        match std::mem::replace(self, Position::Failed(None)) {
            Position::At(position) => Ok(position),
            Position::Failed(Some(error)) => Err(error),
            Position::Failed(None) => Err(Error::invalid_input(
                "expected an iterator, found one that ended with an error or whose operation was dropped: begin again",
            )),
        }
    }
}

impl RemoteSnapshot {
    /// Iterates over all keys in storage order, in batches. Within a minishard keys ascend, or have their stored order.
    ///
    /// Cost: reads every minishard index, and short gaps between them.
    pub fn keys(&self) -> RemoteKeys {
        RemoteKeys(Position::new(Walk::new(self.generation.clone(), KeyBounds::ALL, 0)))
    }

    /// Iterates over all pairs in the order of [`keys`](RemoteSnapshot::keys), in batches. Reads everything once.
    pub fn scan(&self) -> RemoteScan {
        let walk = Walk::new(self.generation.clone(), KeyBounds::ALL, u64::MAX);
        RemoteScan(Position::new(walk.map(|walk| ScanState { walk, rows: None })))
    }
}

impl RemoteKeys {
    /// Returns the next keys, at least one; `None` at the end. A batch reads up to 8 MiB, and ends
    /// with the minishard that reaches 65,536 keys. An error ends the iteration.
    ///
    /// # Errors
    ///
    /// `GenerationGone`, `Corrupt`; `TooLarge` for an index above the cap, and for data without a manifest and with more than
    /// 2^20 shards; those of the client; `InvalidInput` after an error or a dropped operation.
    pub fn next_batch(&mut self) -> Operation<'_, Option<Vec<u64>>> {
        Operation::new(|exchange| async move {
            let mut walk = self.0.take()?;
            let keys = next_keys(&mut walk, &exchange).await?;
            self.0 = Position::At(walk);
            Ok(keys)
        })
    }
}

async fn next_keys(walk: &mut Walk, exchange: &Exchange) -> Result<Option<Vec<u64>>> {
    let mut keys = Vec::new();
    while keys.is_empty() || keys.len() < BATCH_KEYS && !walk.is_round_done() {
        let Some(visited) = walk.next_minishard(exchange).await? else { break };
        let mut rows = Rows::new(visited);
        while let Some(found) = rows.next(walk.generation())? {
            keys.push(found.row.id);
        }
    }
    Ok((!keys.is_empty()).then_some(keys))
}

impl RemoteScan {
    /// Returns the next pairs, at least one; `None` at the end. A batch ends with the value that reaches 8 MiB of stored
    /// values. An error ends the iteration.
    ///
    /// # Errors
    ///
    /// Those of [`RemoteKeys::next_batch`]; `Corrupt` and `TooLarge` for a value.
    pub fn next_batch(&mut self) -> Operation<'_, Option<Vec<(u64, RemoteValue)>>> {
        Operation::new(|exchange| async move {
            let mut state = self.0.take()?;
            let pairs = state.next_pairs(&exchange).await?;
            self.0 = Position::At(state);
            Ok(pairs)
        })
    }
}

impl ScanState {
    async fn next_pairs(&mut self, exchange: &Exchange) -> Result<Option<Vec<(u64, RemoteValue)>>> {
        let mut batch = PairBatch::default();
        while !batch.is_full() {
            let found = match &mut self.rows {
                Some(rows) => rows.next(self.walk.generation())?,
                None => None,
            };
            match found {
                Some(found) => batch.push(found),
                None if !batch.found.is_empty() && self.walk.is_round_done() => break,
                None => match self.walk.next_minishard(exchange).await? {
                    Some(visited) => self.rows = Some(Rows::new(visited)),
                    None => break,
                },
            }
        }
        self.walk.generation().pairs(exchange, batch).await
    }
}

impl PairBatch {
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= BATCH_PAIRS || self.bytes >= BATCH_BYTES
    }

    pub(crate) fn push(&mut self, found: Found) {
        self.bytes = self.bytes.saturating_add(found.value.len());
        self.found.push(found);
    }
}

impl RemoteGeneration {
    /// Reads the values of a batch; `None` if it is empty. The first error ends it.
    pub(crate) async fn pairs(
        &self,
        exchange: &Exchange,
        PairBatch { found, .. }: PairBatch,
    ) -> Result<Option<Vec<(u64, RemoteValue)>>> {
        if found.is_empty() {
            return Ok(None);
        }
        let values = self.values(exchange, &found).await;
        found.iter().zip(values).map(|(found, value)| Ok((found.row.id, value?))).collect::<Result<_>>().map(Some)
    }
}

impl fmt::Debug for RemoteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteKeys").finish_non_exhaustive()
    }
}

impl fmt::Debug for RemoteScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteScan").finish_non_exhaustive()
    }
}
