//! Lookups in the current generation of a data set in an object store.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sharddb_format::{ErrorKind, Result};

use crate::generation::{RemoteGeneration, Shared};
use crate::lookup::RemoteLocation;
use crate::open::{Refreshed, Served};
use crate::operation::{Exchange, Operation};
use crate::request::RemoteValue;
use crate::snapshot::RemoteSnapshot;

/// A data set in an object store or on a web server, read by [`Operation`]s.
///
/// A lookup uses the generation that was current when the reader was opened or refreshed. If that generation was removed,
/// or an object was replaced, the lookup refreshes once and tries again. If an object is missing from a generation that is
/// still current, it returns `GenerationGone` after one request for `current`.
///
/// Cheap to clone; clones share the generation, the cache and the requests in flight. Operations are independent: none waits
/// for another, also where they share a request.
///
/// ```
/// use sharddb_remote::{Operation, RemoteReader};
///
/// fn value_len(reader: &RemoteReader, key: u64, run: impl Fn(Operation<'_, Option<usize>>)) {
///     let snapshot = reader.snapshot();
///     println!("{:?} keys of {:?}", snapshot.key_count(), snapshot.generation());
///     let _operation = reader.get(key); // to be polled, see `Operation`
/// }
/// ```
#[derive(Clone)]
pub struct RemoteReader {
    state: Arc<State>,
}

struct State {
    shared: Arc<Shared>,
    served: ArcSwap<Served>,
}

/// Requests and cache of a reader, for all operations so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteStats {
    /// Requests that were made.
    pub requests: u64,
    /// Bytes of all responses.
    pub bytes: u64,
    /// Blocks that were found in the cache, in a block store, or in the response to another operation.
    pub cache_hits: u64,
    /// Bytes in the cache.
    pub cache_bytes: u64,
}

impl RemoteReader {
    pub(crate) fn new(shared: Arc<Shared>, served: Served) -> RemoteReader {
        RemoteReader { state: Arc::new(State { shared, served: ArcSwap::from_pointee(served) }) }
    }

    /// Returns the value of a key; `None` if the key is absent. Always verified, if the data set has checks.
    ///
    /// Cost, cold, in a native data set: one request for an absent key, and for a minishard whose values take less than
    /// [a request costs](crate::RemoteOptions::request_cost); two for others. Three in foreign data, and one less with the shard
    /// index in the cache. With the minishard index in the cache one, and none if the value came with it. One more without a
    /// minishard table in a store of more than 64 shards, or if the table is
    /// [read on demand](crate::RemoteOptions::whole_table_bytes).
    ///
    /// # Errors
    ///
    /// `Corrupt`, `TooLarge`; `GenerationGone` if a refresh does not help; `Io` for a response of the wrong length; those
    /// of the client.
    pub fn get(&self, key: u64) -> Operation<'static, Option<RemoteValue>> {
        self.operation(move |generation, exchange| async move { generation.get(&exchange, key).await })
    }

    /// Returns whether a key exists, without reading a long value.
    ///
    /// # Errors
    ///
    /// Those of [`get`](RemoteReader::get), except for damage of the value.
    pub fn contains(&self, key: u64) -> Operation<'static, bool> {
        self.operation(move |generation, exchange| async move { Ok(generation.find(&exchange, key).await?.is_some()) })
    }

    /// Returns where the value of a key is stored; `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// Those of [`contains`](RemoteReader::contains).
    pub fn locate(&self, key: u64) -> Operation<'static, Option<RemoteLocation>> {
        self.operation(move |generation, exchange| async move { generation.locate(&exchange, key).await })
    }

    /// Returns the values of keys, all of one generation, in their order; each has its own error. Keys may repeat.
    ///
    /// See [`RemoteSnapshot::get_many`]. If the generation is gone, the whole batch is looked up again after a refresh.
    ///
    /// # Errors
    ///
    /// For each key those of [`get`](RemoteReader::get); those of the refresh.
    pub fn get_many(&self, keys: &[u64]) -> Operation<'static, Vec<Result<Option<RemoteValue>>>> {
        let keys: Arc<[u64]> = keys.into();
        let state = self.state.clone();
        Operation::new(|exchange| async move {
            let generation = state.generation();
            let results = generation.get_many(&exchange, &keys).await;
            let is_gone = |result: &Result<_>| {
                result.as_ref().is_err_and(|error: &sharddb_format::Error| error.kind() == ErrorKind::GenerationGone)
            };
            if !results.iter().any(is_gone) {
                return Ok(results);
            }
            match state.after_gone(&generation, &exchange).await? {
                Some(next) => {
                    drop(results);
                    Ok(next.get_many(&exchange, &keys).await)
                }
                None => Ok(results),
            }
        })
    }

    /// Looks whether another generation is current, and serves it then. Returns whether it does.
    ///
    /// The new generation is opened completely before it is served. Operations that have begun continue in the old one.
    ///
    /// Cost: one request if nothing has changed.
    ///
    /// # Errors
    ///
    /// Those of [`open`](crate::RemoteOptions::open). The old generation is served then.
    pub fn refresh(&self) -> Operation<'static, bool> {
        let state = self.state.clone();
        Operation::new(|exchange| async move {
            let before = state.served.load_full();
            match before.refreshed(&state.shared, &exchange).await? {
                Refreshed::Unchanged => Ok(false),
                Refreshed::Same(served) => {
                    state.replace(&before, served);
                    Ok(false)
                }
                Refreshed::Other(served) => {
                    state.replace(&before, served);
                    Ok(true)
                }
            }
        })
    }

    /// Returns the generation that is served now.
    pub fn snapshot(&self) -> RemoteSnapshot {
        RemoteSnapshot::new(self.state.generation())
    }

    /// Returns the totals of all operations, including the one that opened the reader.
    pub fn stats(&self) -> RemoteStats {
        let Shared { totals, cache, .. } = &*self.state.shared;
        RemoteStats {
            requests: totals.requests(),
            bytes: totals.bytes(),
            cache_hits: totals.cache_hits(),
            cache_bytes: cache.lock().bytes(),
        }
    }

    /// Creates an operation on the current generation, which runs again after a refresh if that is gone.
    pub(crate) fn operation<T, F, Fut>(&self, run: F) -> Operation<'static, T>
    where
        T: Send,
        F: Fn(Arc<RemoteGeneration>, Exchange) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let state = self.state.clone();
        Operation::new(|exchange| async move {
            let generation = state.generation();
            match run(generation.clone(), exchange.clone()).await {
                Err(error) if error.kind() == ErrorKind::GenerationGone => {
                    match state.after_gone(&generation, &exchange).await? {
                        Some(next) => run(next, exchange).await,
                        None => Err(error),
                    }
                }
                result => result,
            }
        })
    }
}

impl State {
    fn generation(&self) -> Arc<RemoteGeneration> {
        self.served.load().generation.clone()
    }

    /// Returns the generation to use after an object of `gone` was not found or was replaced, from another operation or
    /// opened now. `None` if `current` still names `gone`: the object is missing from it, and opening it again would not
    /// help.
    async fn after_gone(
        &self,
        gone: &Arc<RemoteGeneration>,
        exchange: &Exchange,
    ) -> Result<Option<Arc<RemoteGeneration>>> {
        let before = self.served.load_full();
        if !Arc::ptr_eq(&before.generation, gone) {
            return Ok(Some(before.generation.clone()));
        }
        let is_published = gone.name.is_some() && !gone.objects.was_replaced();
        let next = if is_published {
            before.refreshed(&self.shared, exchange).await?
        } else {
            Refreshed::Other(Served::open(&self.shared, exchange).await?)
        };
        match next {
            Refreshed::Unchanged => Ok(None),
            Refreshed::Same(served) => {
                self.replace(&before, served);
                Ok(None)
            }
            Refreshed::Other(served) => {
                self.replace(&before, served);
                Ok(Some(self.generation()))
            }
        }
    }

    /// Serves another generation, unless another operation has replaced `before` meanwhile.
    fn replace(&self, before: &Arc<Served>, served: Served) {
        self.served.compare_and_swap(before, Arc::new(served));
    }
}

impl fmt::Debug for RemoteReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteReader")
            .field("generation", &self.state.generation().name)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
