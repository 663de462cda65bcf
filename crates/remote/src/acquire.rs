//! Gets blocks of a generation: from the cache, from the block store, or by requests, which operations share.
//!
//! An operation never waits for another one. Where another one reads a block, this one makes the same request, and the
//! adapter performs it once.

use std::sync::Arc;

use sharddb_format::{Error, Result};

use crate::block::{Block, BlockContent, BlockKey, BlockRead};
use crate::block_store::{BlockId, BlockStore};
use crate::generation::RemoteGeneration;
use crate::identity::Identity;
use crate::minishard::Parsed;
use crate::objects::{Span, Unread};
use crate::operation::{Exchange, IN_FLIGHT_BYTES, Outgoing};
use crate::plan::Merged;
use crate::request::{Body, Failure, RemoteValue, Response};
use crate::shared_request::{Role, SharedRequest};

/// A block that is not in memory.
struct Load<'a> {
    /// The position of the block in the input.
    at: usize,
    read: &'a BlockRead,
    /// The bytes to request.
    span: Span,
    /// The bytes of the block before `span`, if the first request did not cover the checks.
    head: Option<Body>,
}

/// A request, and the loads that wait for its answer.
struct Reading<'a> {
    request: Arc<SharedRequest>,
    role: Role,
    span: Span,
    loads: Vec<Load<'a>>,
}

/// What the bytes of a block are.
enum Received {
    Block(Block),
    /// The block is longer than these bytes: it also has this span.
    Longer(Body, Span),
}

impl RemoteGeneration {
    /// Gets one block.
    pub(crate) async fn acquire_one(&self, exchange: &Exchange, read: BlockRead) -> Result<Block> {
        let mut result = Err(lost());
        self.acquire(exchange, std::slice::from_ref(&read), |_, block| result = block).await;
        result
    }

    /// Gets blocks, with requests that are planned together for runs of at most [`IN_FLIGHT_BYTES`]. Calls `ended` with the
    /// position and the result of each, in the order of arrival.
    ///
    /// Errors: `Corrupt` if a block is not what it has to be; `GenerationGone` if its object is missing or was replaced;
    /// those of the client.
    pub(crate) async fn acquire(
        &self,
        exchange: &Exchange,
        reads: &[BlockRead],
        mut ended: impl FnMut(usize, Result<Block>),
    ) {
        let all = reads.iter().enumerate();
        let all = all.map(|(at, read)| Load { at, read, span: read.span.clone(), head: None }).collect();
        let mut left = self.load_from_store(exchange, all, &mut ended);
        while !left.is_empty() {
            let run = self.request_cost().run(left.iter().map(|load| &load.span), IN_FLIGHT_BYTES);
            let rest = left.split_off(run);
            self.acquire_run(exchange, std::mem::replace(&mut left, rest), &mut ended).await;
        }
    }

    /// Gets the blocks of a run, which other operations may wait for.
    async fn acquire_run(
        &self,
        exchange: &Exchange,
        mut loads: Vec<Load<'_>>,
        ended: &mut impl FnMut(usize, Result<Block>),
    ) {
        while !loads.is_empty() {
            let readings = self.readings(exchange, std::mem::take(&mut loads), ended);
            let requests = readings.iter().map(|reading| Outgoing::shared(&reading.request, reading.role)).collect();
            let mut readings: Vec<Option<Reading<'_>>> = readings.into_iter().map(Some).collect();
            let answered = |at: usize, answer: Result<Response, Failure>| {
                if let Some(reading) = readings.get_mut(at).and_then(Option::take) {
                    loads.extend(self.end_reading(exchange, reading, answer, ended));
                }
            };
            exchange.fetch_all(requests, answered).await;
        }
    }

    /// Returns the key of a block in the cache.
    pub(crate) fn key_of(&self, read: &BlockRead) -> BlockKey {
        BlockKey { generation: self.serial, block: read.block }
    }

    pub(crate) fn count_cache_hit(&self, exchange: &Exchange) {
        exchange.count_cache_hit();
        self.objects.totals().count_cache_hit();
    }

    /// Returns requests for the blocks that are not in the cache: those that other operations have made for them, where there
    /// are any, and new ones. The cache is locked meanwhile, so that no block is read twice at a time.
    fn readings<'a>(
        &self,
        exchange: &Exchange,
        loads: Vec<Load<'a>>,
        ended: &mut impl FnMut(usize, Result<Block>),
    ) -> Vec<Reading<'a>> {
        let (mut readings, mut new, mut cached) = (Vec::new(), Vec::new(), Vec::new());
        let mut cache = self.shared.cache.lock();
        for load in loads {
            let key = self.key_of(load.read);
            if let Some(block) = cache.get(key) {
                cached.push((load.at, block));
                continue;
            }
            let other = cache.read_of(key);
            match other.and_then(|request| Some((load.span.within(&request.range)?, request))) {
                Some((span, request)) => join(&mut readings, request, span, load),
                None => new.push(Some(load)),
            }
        }
        for Merged { span, members } in
            self.request_cost().merge(new.iter().flatten().map(|load: &Load<'_>| &load.span))
        {
            let request = Arc::new(SharedRequest::new(self.objects.request(&span), span.range.clone()));
            let loads = members.into_iter().filter_map(|member| new.get_mut(member)?.take()).collect();
            readings.push(Reading { request, role: Role::First, span, loads });
        }
        let own = readings.iter().filter(|reading| reading.role == Role::First);
        cache.begin(own.flat_map(|reading| {
            let request = Arc::downgrade(&reading.request);
            reading.loads.iter().map(move |load| (self.key_of(load.read), request.clone()))
        }));
        drop(cache);
        for (at, block) in cached {
            self.count_cache_hit(exchange);
            ended(at, Ok(block));
        }
        readings
    }

    /// Ends the loads of a request that was answered. Returns those that need more.
    fn end_reading<'a>(
        &self,
        exchange: &Exchange,
        reading: Reading<'a>,
        answer: Result<Response, Failure>,
        ended: &mut impl FnMut(usize, Result<Block>),
    ) -> Vec<Load<'a>> {
        let Reading { request, role, span, loads } = reading;
        let answer = match role {
            Role::First => self.objects.counted(answer),
            Role::Joined => answer,
        };
        let answer = self.objects.accept(&span, answer);
        let mut left = Vec::new();
        for load in loads {
            match self.content(&load, self.objects.part(&load.span, &span, &answer)) {
                Ok(Received::Block(block)) => {
                    if role == Role::Joined {
                        self.count_cache_hit(exchange);
                    }
                    ended(load.at, Ok(block));
                }
                Ok(Received::Longer(head, span)) => left.push(Load { span, head: Some(head), ..load }),
                Err(error) => ended(load.at, Err(error)),
            }
        }
        drop(request); // others find it until the blocks are in the cache
        left
    }

    /// Verifies what was read, and keeps it. If another operation was faster, returns its block, unless that has less.
    fn content(&self, load: &Load<'_>, answer: Result<RemoteValue, Unread>) -> Result<Received> {
        let cached = self.shared.cache.lock().get(self.key_of(load.read));
        if let Some(block) = cached.filter(|block| answer.is_err() || load.span.len() <= block.size()) {
            return Ok(Received::Block(block));
        }
        let content = match answer {
            Ok(bytes) => {
                let bytes = load.with_head(bytes);
                let content = self.parse(load, bytes.clone())?;
                if let (Received::Block(_), Some(id)) = (&content, self.block_id(&load.whole()))
                    && let Some(store) = &self.shared.block_store
                {
                    store.put(&id, bytes.as_slice());
                }
                content
            }
            Err(Unread::Missing) => Received::Block(self.missing(load.read)?),
            Err(unread) => return Err(self.explain(&load.span, &unread)),
        };
        if let Received::Block(block) = &content {
            self.keep(load, block);
        }
        Ok(content)
    }

    /// Ends the loads of blocks that the block store has. Returns the others, and those of blocks in the cache.
    fn load_from_store<'a>(
        &self,
        exchange: &Exchange,
        loads: Vec<Load<'a>>,
        ended: &mut impl FnMut(usize, Result<Block>),
    ) -> Vec<Load<'a>> {
        let Some(store) = &self.shared.block_store else { return loads };
        let mut left = Vec::new();
        for load in loads {
            let is_cached = self.shared.cache.lock().get(self.key_of(load.read)).is_some();
            if !is_cached && let Some(block) = self.stored(&**store, &load) {
                self.count_cache_hit(exchange);
                self.keep(&load, &block);
                ended(load.at, Ok(block));
            } else {
                left.push(load);
            }
        }
        left
    }

    /// Returns a block from the block store; `None` if that does not have it, or a damaged one.
    fn stored(&self, store: &dyn BlockStore, load: &Load<'_>) -> Option<Block> {
        let mut spans: Vec<&Span> = load.read.other_span.iter().chain([&load.span]).collect();
        spans.sort_by_key(|span| std::cmp::Reverse(span.len())); // that with the values first
        let mut blocks = spans.into_iter().map(|span| {
            let bytes = store.get(&self.block_id(span)?)?;
            if !self.is_all_of(span, bytes.len() as u64) {
                return None;
            }
            match self.parse(&Load { span: span.clone(), head: None, ..*load }, Body::new(bytes)) {
                Ok(Received::Block(block)) => Some(block),
                Ok(Received::Longer(..)) | Err(_) => None,
            }
        });
        blocks.find_map(|block| block)
    }

    /// Returns whether a stored block of `found` bytes has all that the object has of a span.
    fn is_all_of(&self, span: &Span, found: u64) -> bool {
        let end = span.range.start.saturating_add(found);
        let ends_object = || self.objects.identity(&span.object).is_some_and(|identity| identity.len == Some(end));
        found == span.len() || (span.needed..span.len()).contains(&found) && ends_object()
    }

    /// Puts a block into the cache, unless the identity of its object is not known, which later blocks of the object could not
    /// be compared with.
    fn keep(&self, load: &Load<'_>, block: &Block) {
        let is_native = self.manifest.is_some();
        if is_native || matches!(block, Block::NoShard) || self.objects.identity(&load.span.object).is_some() {
            self.shared.cache.lock().insert(self.key_of(load.read), block.clone(), block.size());
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

    /// Verifies the bytes of a block.
    fn parse(&self, load: &Load<'_>, bytes: Body) -> Result<Received> {
        let start = load.start();
        let block = match load.read.wanted {
            BlockContent::TableBlock(shard, described) => {
                let is_intact = |record| described.is_intact(record, bytes.as_slice(), start);
                if self.record(shard).is_some_and(is_intact) {
                    Block::Bytes(bytes)
                } else {
                    return Err(self.bad_table());
                }
            }
            BlockContent::Entries(shard) => match self.record(shard) {
                Some(record) => Block::Bytes(self.check_shard_index(record, bytes)?),
                None => Block::Bytes(bytes),
            },
            BlockContent::Minishard(location, index) => {
                match self.minishard_format().parse(location, index, bytes.clone(), start)? {
                    Parsed::NeedsUntil(end) => return self.longer(load, bytes, end),
                    Parsed::Minishard(minishard) => Block::Minishard(Arc::new(minishard)),
                }
            }
        };
        Ok(Received::Block(block))
    }

    /// Returns the block of an object that is missing: a shard without a manifest is empty then.
    fn missing(&self, read: &BlockRead) -> Result<Block> {
        match read.wanted {
            BlockContent::TableBlock(..) => Err(self.bad_table()),
            BlockContent::Entries(_) if self.manifest.is_none() && !self.was_read(&read.span.object) => {
                Ok(Block::NoShard)
            }
            BlockContent::Entries(_) | BlockContent::Minishard(..) => Err(self.objects.gone(&read.span.object)),
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

    /// Returns what is left of a block that ends at `end`, after the bytes that were read.
    fn longer(&self, load: &Load<'_>, head: Body, end: u64) -> Result<Received> {
        let start = load.start();
        let before = start.saturating_add(head.as_slice().len() as u64);
        if load.head.is_some() {
            return Err(Error::internal("expected a minishard with its checks, found a part of them").at_offset(start));
        }
        Ok(Received::Longer(head, Span::exact(load.span.object.clone(), before..end)))
    }
}

impl Load<'_> {
    /// The offset of the block in its object.
    fn start(&self) -> u64 {
        let head = self.head.as_ref().map_or(0, |head| head.as_slice().len() as u64);
        self.span.range.start.saturating_sub(head)
    }

    /// The span of the whole block, as far as it was requested.
    fn whole(&self) -> Span {
        Span::exact(self.span.object.clone(), self.start()..self.span.range.end)
    }

    /// Returns the bytes of the block from those of its span.
    fn with_head(&self, bytes: RemoteValue) -> Body {
        match &self.head {
            Some(head) => Body::new([head.as_slice(), &bytes].concat()),
            None => bytes.into_body(),
        }
    }
}

/// Adds a load to the requests of other operations.
fn join<'a>(readings: &mut Vec<Reading<'a>>, request: Arc<SharedRequest>, span: Span, load: Load<'a>) {
    match readings.last_mut() {
        Some(last) if Arc::ptr_eq(&last.request, &request) => {
            last.span.needed = last.span.needed.min(span.needed);
            last.loads.push(load);
        }
        _ => readings.push(Reading { request, role: Role::Joined, span, loads: vec![load] }),
    }
}

/// A block that has no result.
fn lost() -> Error {
    Error::internal("expected a result for every block that was requested")
}
