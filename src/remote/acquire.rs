//! Gets parts of a generation: from the cache, from the load of another operation, from the block store, or by requests.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::ChecksPlace;
use crate::remote::block_cache::{Attempt, Claim, Lead, Waited};
use crate::remote::block_store::BlockId;
use crate::remote::generation::RemoteGeneration;
use crate::remote::identity::Identity;
use crate::remote::minishard::Parsed;
use crate::remote::objects::{Span, Unread};
use crate::remote::operation::Exchange;
use crate::remote::part::{Block, PartKey, PartRead, Wanted};
use crate::remote::request::{Body, RemoteValue};

/// A part that this operation loads.
struct Load {
    /// The position of the part in the input.
    at: usize,
    lead: Lead<PartKey, Block>,
    span: Span,
    /// Whether this is the second request of the load: the first span did not cover the checks.
    is_extended: bool,
}

/// A part that was requested.
pub(crate) enum Acquired {
    Block(Block),
    /// It was left out, because the blocks before it take much memory: to be acquired alone.
    Deferred,
}

/// The results for parts, by their position, in bounded memory.
struct Results {
    blocks: Vec<Option<Result<Acquired>>>,
    /// The bytes of the minishards in `blocks`, and the upper bound on them; the first one may be longer.
    held: u64,
    most: u64,
}

/// What the bytes of a part are.
enum Content {
    Block(Block, u64),
    /// The part ends at this offset, after the bytes.
    NeedsUntil(u64),
}

impl RemoteGeneration {
    /// Gets one part.
    pub(crate) async fn acquire_one(&self, exchange: &Exchange, read: PartRead) -> Result<Block> {
        let blocks = self.acquire(exchange, std::slice::from_ref(&read)).await;
        blocks.into_iter().next().unwrap_or_else(|| Err(lost()))
    }

    /// Gets parts, with requests that are planned together. The result has a block or an error for each.
    ///
    /// Errors: `Corrupt` if a part is not what it has to be; `GenerationGone` if its object is missing or was replaced;
    /// those of the client.
    pub(crate) async fn acquire(&self, exchange: &Exchange, reads: &[PartRead]) -> Vec<Result<Block>> {
        let acquired = self.acquire_within(exchange, reads, u64::MAX).await.into_iter();
        let blocks = acquired.map(|acquired| match acquired? {
            Acquired::Block(block) => Ok(block),
            Acquired::Deferred => Err(lost()),
        });
        blocks.collect()
    }

    /// Like [`acquire`](Self::acquire), for minishards that take at most `most` bytes of memory together, unless one is
    /// longer. Indexes may decode to many times their stored length; minishards that do not fit are deferred.
    pub(crate) async fn acquire_within(
        &self,
        exchange: &Exchange,
        reads: &[PartRead],
        most: u64,
    ) -> Vec<Result<Acquired>> {
        let mut results = Results { blocks: reads.iter().map(|_| None).collect(), held: 0, most };
        let mut pending: Vec<(usize, Attempt)> = (0..reads.len()).map(|at| (at, Attempt::First)).collect();
        while !pending.is_empty() {
            let (mut loads, mut waits) = (Vec::new(), Vec::new());
            for (at, attempt) in pending.drain(..) {
                let Some(read) = reads.get(at) else { continue };
                match self.shared.cache.claim(self.key_of(read), attempt) {
                    Claim::Ready(block) => {
                        self.count_cache_hit(exchange);
                        results.set(at, Ok(block));
                    }
                    Claim::Lead(lead) => loads.push(Load { at, lead, span: read.span.clone(), is_extended: false }),
                    Claim::Wait(wait) => waits.push((at, wait)),
                }
            }
            // own loads end before this operation waits for another one
            self.load(exchange, reads, loads, &mut results).await;
            for (at, wait) in waits {
                match wait.end().await {
                    Waited::Done(block) => {
                        self.count_cache_hit(exchange);
                        results.set(at, Ok(block));
                    }
                    Waited::Failed(error) => results.set(at, Err(error)),
                    Waited::Again(attempt) => pending.push((at, attempt)),
                }
            }
        }
        results.blocks.into_iter().map(|result| result.unwrap_or_else(|| Err(lost()))).collect()
    }

    /// Returns the key of a part in the cache.
    pub(crate) fn key_of(&self, read: &PartRead) -> PartKey {
        PartKey { generation: self.serial, part: read.part }
    }

    pub(crate) fn count_cache_hit(&self, exchange: &Exchange) {
        exchange.count_cache_hit();
        self.objects.totals().count_cache_hit();
    }

    async fn load(&self, exchange: &Exchange, reads: &[PartRead], loads: Vec<Load>, results: &mut Results) {
        let mut loads = self.load_from_store(exchange, reads, loads, results);
        while !loads.is_empty() {
            let spans: Vec<Span> = loads.iter().map(|load| load.span.clone()).collect();
            let mut open: Vec<Option<Load>> = loads.drain(..).map(Some).collect();
            let answered = |member: usize, answer: Result<RemoteValue, Unread>| {
                let Some(load) = open.get_mut(member).and_then(Option::take) else { return };
                let Some(read) = reads.get(load.at) else { return };
                loads.extend(self.end_load(read, load, answer, results));
            };
            self.objects.read_planned(exchange, &spans, answered).await;
        }
    }

    /// Ends a load with the bytes of its span. Returns it if it needs more.
    fn end_load(
        &self,
        read: &PartRead,
        load: Load,
        answer: Result<RemoteValue, Unread>,
        results: &mut Results,
    ) -> Option<Load> {
        let content = match answer {
            Ok(bytes) => {
                let bytes = bytes.into_body();
                let content = self.parse(read, bytes.clone(), load.span.range.start);
                content.map(|content| (content, Some(bytes)))
            }
            Err(Unread::Missing) => self.missing(read).map(|block| (Content::Block(block, 0), None)),
            Err(unread) => Err(self.explain(&load.span, &unread)),
        };
        match content {
            Ok((Content::Block(block, size), bytes)) => {
                if let (Some(bytes), Some(id)) = (bytes, self.block_id(&load.span))
                    && let Some(store) = &self.shared.block_store
                {
                    store.put(&id, bytes.as_slice());
                }
                self.finish(load.lead, block.clone(), size, &load.span);
                results.set(load.at, Ok(block));
                None
            }
            Ok((Content::NeedsUntil(end), _)) => match self.extended(&load, end) {
                Ok(span) => Some(Load { span, is_extended: true, ..load }),
                Err(error) => fail(load, error, results),
            },
            Err(error) => fail(load, error, results),
        }
    }

    /// Ends the loads of parts that the block store has. Returns the others.
    fn load_from_store(
        &self,
        exchange: &Exchange,
        reads: &[PartRead],
        loads: Vec<Load>,
        results: &mut Results,
    ) -> Vec<Load> {
        let Some(store) = &self.shared.block_store else { return loads };
        let mut left = Vec::new();
        for load in loads {
            let stored = self.block_id(&load.span).and_then(|id| store.get(&id));
            let stored = stored.filter(|bytes| self.is_all_of(&load.span, bytes.len() as u64));
            let start = load.span.range.start;
            let parsed = stored.zip(reads.get(load.at)).map(|(bytes, read)| self.parse(read, Body::new(bytes), start));
            match parsed {
                Some(Ok(Content::Block(block, size))) => {
                    self.count_cache_hit(exchange);
                    self.finish(load.lead, block.clone(), size, &load.span);
                    results.set(load.at, Ok(block));
                }
                _ => left.push(load), // not there, or damaged
            }
        }
        left
    }

    /// Returns whether a stored block of `found` bytes has all that the object has of a span.
    fn is_all_of(&self, span: &Span, found: u64) -> bool {
        let end = span.range.start.saturating_add(found);
        let ends_object = || self.objects.identity(&span.object).is_some_and(|identity| identity.len == Some(end));
        found == span.len() || (span.needed..span.len()).contains(&found) && ends_object()
    }

    /// Ends a load. The block is kept unless the identity of its object is not known, which later blocks of the object
    /// could not be compared with.
    fn finish(&self, lead: Lead<PartKey, Block>, block: Block, size: u64, span: &Span) {
        let is_native = self.manifest.is_some();
        match is_native || matches!(block, Block::NoShard) || self.objects.identity(&span.object).is_some() {
            true => lead.finish(block, size),
            false => lead.finish_without_keeping(block),
        }
    }

    /// Returns the name of a range for the block store; `None` if the content of the object has no unique name, or if that
    /// is never known before the range is read.
    fn block_id(&self, span: &Span) -> Option<BlockId> {
        self.shared.block_store.as_ref()?;
        let data_set = match &self.content_name {
            Some(name) => name.clone(),
            None if self.shared.root.is_empty() => return None,
            // a whole shard index is the first read of its object, whose response has the ETag
            None if span.range == (0..self.spec.shard_index_len()) => return None,
            None => {
                let identity = self.objects.identity(&span.object)?;
                format!("{}|{}", self.shared.root, identity.strong_etag()?)
            }
        };
        Some(BlockId { data_set, object: span.object.clone(), range: span.range.clone() })
    }

    /// Verifies the bytes of a part.
    fn parse(&self, read: &PartRead, bytes: Body, start: u64) -> Result<Content> {
        let len = bytes.as_slice().len() as u64;
        match read.wanted {
            Wanted::TableBlock(shard, described) => {
                let is_intact = |record| described.is_intact(record, bytes.as_slice(), start);
                match self.record(shard).is_some_and(is_intact) {
                    true => Ok(Content::Block(Block::Bytes(bytes), len)),
                    false => Err(self.bad_table()),
                }
            }
            Wanted::Entries(shard) => match self.record(shard) {
                Some(record) => Ok(Content::Block(Block::Bytes(self.check_shard_index(record, bytes)?), len)),
                None => Ok(Content::Block(Block::Bytes(bytes), len)),
            },
            Wanted::Minishard(location, index) => {
                match self.minishard_format().parse(location, index, bytes, start)? {
                    Parsed::NeedsUntil(end) => Ok(Content::NeedsUntil(end)),
                    Parsed::Minishard(minishard) => {
                        let size = minishard.size();
                        Ok(Content::Block(Block::Minishard(Arc::new(minishard)), size))
                    }
                }
            }
        }
    }

    /// Returns the block for a part whose object is missing: a shard without a manifest is empty then.
    fn missing(&self, read: &PartRead) -> Result<Block> {
        match read.wanted {
            Wanted::TableBlock(..) => Err(self.bad_table()),
            Wanted::Entries(_) if self.manifest.is_none() && !self.was_read(&read.span.object) => Ok(Block::NoShard),
            Wanted::Entries(_) | Wanted::Minishard(..) => Err(self.objects.gone(&read.span.object)),
        }
    }

    fn was_read(&self, object: &str) -> bool {
        self.objects.identity(object).is_some_and(|Identity { etag, len }| etag.is_some() || len.is_some())
    }

    /// An error that makes lookups use the shard index.
    fn bad_table(&self) -> Error {
        let message = "expected a block of the minishard table with its checksum, found other bytes";
        Error::corrupt(message).at_path(&self.objects.path(&self.table_object()))
    }

    /// Returns the span of a load up to `end`.
    fn extended(&self, load: &Load, end: u64) -> Result<Span> {
        let Range { start, end: before } = load.span.range;
        if load.is_extended || end <= before {
            let message = format!(
                "expected a minishard whose index and checks end at byte {before}, found an index with checks up to byte {end}; \
                 run `sharddb verify`"
            );
            return Err(Error::corrupt(message).at_path(&self.objects.path(&load.span.object)).at_offset(start));
        }
        let cap = ChecksPlace::total_len(self.shared.max_index_bytes, self.layout.unwrap_or_default());
        if end - before > cap {
            let message = format!(
                "expected at most {cap} bytes of checks of a minishard, found {}: raise the cap `max_index_bytes`",
                end - before
            );
            let path = self.objects.path(&load.span.object);
            return Err(Error::new(ErrorKind::TooLarge, message).at_path(&path).at_offset(start));
        }
        Ok(Span::exact(load.span.object.clone(), start..end))
    }
}

fn fail(load: Load, error: Error, results: &mut Results) -> Option<Load> {
    load.lead.fail(&error);
    results.set(load.at, Err(error));
    None
}

impl Results {
    fn set(&mut self, at: usize, result: Result<Block>) {
        let size = match &result {
            Ok(Block::Minishard(minishard)) => minishard.size(),
            _ => 0,
        };
        let held = self.held.saturating_add(size);
        let acquired = match size > 0 && self.held > 0 && held > self.most {
            true => Ok(Acquired::Deferred),
            false => {
                self.held = held;
                result.map(Acquired::Block)
            }
        };
        if let Some(slot) = self.blocks.get_mut(at) {
            *slot = Some(acquired);
        }
    }
}

/// A part that has no result.
fn lost() -> Error {
    Error::internal("expected a result for every part that was requested")
}
