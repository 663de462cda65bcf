//! Lookups in one generation, whatever is published later.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use sharddb_format::Result;
use sharddb_format::internal::layout::Layout;
use sharddb_format::internal::multilod;
use sharddb_format::internal::spec::ShardingSpec;

use crate::generation::RemoteGeneration;
use crate::lookup::RemoteLocation;
use crate::operation::{Exchange, Operation};
use crate::request::RemoteValue;

/// One generation in an object store, or a directory of foreign data.
///
/// Its lookups never return data of another generation. There are no leases in an object store: if the generation is
/// removed, or an object that was read before is replaced, they return `GenerationGone`. Cheap to clone.
///
/// Foreign data has no generations. The bytes of one object are never a mix of two states, if responses have ETags or
/// lengths; two objects are of different states if the first reads of them are before and after a replacement.
#[derive(Clone)]
pub struct RemoteSnapshot {
    pub(crate) generation: Arc<RemoteGeneration>,
}

impl RemoteSnapshot {
    pub(crate) fn new(generation: Arc<RemoteGeneration>) -> RemoteSnapshot {
        RemoteSnapshot { generation }
    }

    /// Returns the value of a key; `None` if the key is absent. Always verified, if the data set has checks.
    ///
    /// # Errors
    ///
    /// `GenerationGone`, `Corrupt`, `TooLarge`; `Io` for a response of the wrong length; those of the client.
    pub fn get(&self, key: u64) -> Operation<'static, Option<RemoteValue>> {
        self.operation(move |generation, exchange| async move { generation.get(&exchange, key).await })
    }

    /// Returns whether a key exists, without reading a long value.
    ///
    /// # Errors
    ///
    /// Those of [`get`](RemoteSnapshot::get), except for damage of the value.
    pub fn contains(&self, key: u64) -> Operation<'static, bool> {
        self.operation(move |generation, exchange| async move { Ok(generation.find(&exchange, key).await?.is_some()) })
    }

    /// Returns where the value of a key is stored; `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// Those of [`contains`](RemoteSnapshot::contains).
    pub fn locate(&self, key: u64) -> Operation<'static, Option<RemoteLocation>> {
        self.operation(move |generation, exchange| async move { generation.locate(&exchange, key).await })
    }

    /// Returns the values of keys, in their order; each has its own error. Keys may repeat.
    ///
    /// Requests are planned for all keys together, by what [a request costs](crate::RemoteOptions::request_cost): neighbouring
    /// ranges of an object are one request if the bytes between them cost less. Those in flight have at most 32 MiB, unless
    /// a single one has more.
    ///
    /// # Errors
    ///
    /// For each key those of [`get`](RemoteSnapshot::get). The operation itself does not fail.
    pub fn get_many(&self, keys: &[u64]) -> Operation<'static, Vec<Result<Option<RemoteValue>>>> {
        let keys = keys.to_vec();
        self.operation(move |generation, exchange| async move { Ok(generation.get_many(&exchange, &keys).await) })
    }

    /// Returns the sharding specification.
    pub fn spec(&self) -> &ShardingSpec {
        &self.generation.spec
    }

    /// Returns the native layout; `None` for foreign data.
    pub fn layout(&self) -> Option<Layout> {
        self.generation.layout
    }

    /// Returns whether values may have preambles, which no read returns: the native layout has them, or `info` says that foreign
    /// values are the manifests of multi-resolution meshes.
    pub fn has_preambles(&self) -> bool {
        self.layout().map_or_else(|| multilod::is_stated_by(self.info()), |layout| layout.preambles)
    }

    /// Returns the text of `info`.
    pub fn info(&self) -> &str {
        &self.generation.info
    }

    /// Returns the number of keys; `None` for foreign data, which has no manifest.
    pub fn key_count(&self) -> Option<u64> {
        self.generation.manifest.as_ref().map(|manifest| manifest.keys)
    }

    /// Returns the name of the generation; `None` if the root is the directory of the shards.
    pub fn generation(&self) -> Option<&str> {
        self.generation.name.as_deref()
    }

    /// Creates an operation on the generation.
    pub(crate) fn operation<T, F, Fut>(&self, run: F) -> Operation<'static, T>
    where
        F: FnOnce(Arc<RemoteGeneration>, Exchange) -> Fut,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        Operation::new(|exchange| run(self.generation.clone(), exchange))
    }
}

impl fmt::Debug for RemoteSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSnapshot")
            .field("generation", &self.generation())
            .field("spec", self.spec())
            .finish_non_exhaustive()
    }
}
