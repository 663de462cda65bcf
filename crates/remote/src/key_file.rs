//! The key file of a generation in an object store, read block by block.

use std::ops::Range;
use std::sync::Arc;

use sharddb_format::internal::key_bounds::KeyBounds;
use sharddb_format::internal::key_file::{BLOCK_KEYS, Directory, GROUP_BLOCKS, KeyRun, TRAILER_LEN, Tag, Tail};
use sharddb_format::internal::manifest;
use sharddb_format::{Error, Result};

use crate::generation::RemoteGeneration;
use crate::objects::Span;
use crate::operation::Exchange;
use crate::request::Body;

/// The bytes of the end of the file that are read first: the whole tail of up to a billion keys.
const TAIL_GUESS: u64 = 64 << 10;

/// Maximum number of blocks per request: some 90 KB.
const REQUEST_BLOCKS: u64 = 16;

/// An open key file.
pub(crate) struct RemoteKeyFile {
    generation: Arc<RemoteGeneration>,
    tail: Tail,
    /// The directory that was read last, with the number of its group.
    last_directory: Option<(u64, Arc<Directory>)>,
}

impl RemoteGeneration {
    async fn read_keys(&self, exchange: &Exchange, range: Range<u64>) -> Result<Body> {
        let span = Span::exact(self.auxiliary_object(manifest::KEYS), range);
        self.objects.read(exchange, &span).await.map_err(|unread| self.explain(&span, &unread))
    }
}

impl RemoteKeyFile {
    /// Opens the key file; `None` if the generation has none, or not the one that the manifest states.
    pub(crate) async fn open(generation: &Arc<RemoteGeneration>, exchange: &Exchange) -> Option<RemoteKeyFile> {
        let manifest = generation.manifest.as_ref()?;
        let len = manifest.auxiliary(manifest::KEYS)?.checksum.bytes;
        let end = generation.read_keys(exchange, len.saturating_sub(TAIL_GUESS)..len).await.ok()?;
        let tail_len = Tail::stated_len(end.as_slice().last_chunk::<TRAILER_LEN>()?, len).ok()?;
        let end = if tail_len <= TAIL_GUESS {
            end
        } else {
            generation.read_keys(exchange, len.checked_sub(tail_len)?..len).await.ok()?
        };
        let start = end.as_slice().len().checked_sub(usize::try_from(tail_len).ok()?)?;
        let tail = Tail::read(end.as_slice().get(start..)?, len).ok()?;
        (tail.shape.keys == manifest.keys && tail.tag == Tag::of_shards(&manifest.shards)).then_some(RemoteKeyFile {
            generation: generation.clone(),
            tail,
            last_directory: None,
        })
    }

    /// Returns the numbers of the keys in a range.
    ///
    /// Errors: `Corrupt`; those of the client.
    pub(crate) async fn numbers(&mut self, exchange: &Exchange, bounds: KeyBounds) -> Result<Range<u64>> {
        let start = self.rank(exchange, bounds.first()).await?;
        let end = match bounds.last().checked_add(1) {
            Some(after) => self.rank(exchange, after).await?,
            None => self.tail.shape.keys,
        };
        Ok(start..end.max(start))
    }

    /// Returns the number of keys below `key`.
    async fn rank(&mut self, exchange: &Exchange, key: u64) -> Result<u64> {
        if self.tail.shape.keys == 0 || key == 0 {
            return Ok(0);
        }
        let group = self.tail.group_of_key(key);
        let directory = self.directory(exchange, group).await?;
        let block = directory.block_of_key(key);
        let run = self.blocks(exchange, &directory, block..block + 1).await?;
        Ok(run.rank(key))
    }

    /// Reads the block with the key of this number, and some after it.
    ///
    /// Errors: `Corrupt` if one is damaged, or there is no such key; those of the client.
    pub(crate) async fn run_from(&mut self, exchange: &Exchange, numbers: &Range<u64>) -> Result<KeyRun> {
        let first = numbers.start / BLOCK_KEYS;
        let group = first / GROUP_BLOCKS;
        let directory = self.directory(exchange, group).await?;
        let end = numbers.end.div_ceil(BLOCK_KEYS).min(first + REQUEST_BLOCKS).min((group + 1) * GROUP_BLOCKS);
        self.blocks(exchange, &directory, first..end).await
    }

    /// Returns the directory of a group, by a request unless it is the last one.
    async fn directory(&mut self, exchange: &Exchange, group: u64) -> Result<Arc<Directory>> {
        if let Some((last, directory)) = &self.last_directory
            && *last == group
        {
            return Ok(directory.clone());
        }
        let bytes = self.generation.read_keys(exchange, self.tail.directory_range(group)?).await?;
        let directory = self.tail.read_directory(group, bytes.as_slice());
        let directory = Arc::new(directory.map_err(|error| self.at_key_file(error))?);
        self.last_directory = Some((group, directory.clone()));
        Ok(directory)
    }

    /// Reads consecutive blocks of a group by one request.
    async fn blocks(&self, exchange: &Exchange, directory: &Directory, blocks: Range<u64>) -> Result<KeyRun> {
        let start = directory.block(blocks.start)?.start;
        let end = directory.block(blocks.end.saturating_sub(1))?.end;
        let bytes = self.generation.read_keys(exchange, start..end).await?;
        let mut keys = Vec::new();
        for number in blocks.clone() {
            let entry = directory.block(number)?;
            let offset = |at: u64| usize::try_from(at.checked_sub(start)?).ok();
            let range = offset(entry.start).zip(offset(entry.end));
            let block = range.and_then(|(start, end)| bytes.as_slice().get(start..end));
            let block =
                block.ok_or_else(|| Error::internal("expected bytes with the blocks of the key file, found others"))?;
            let decoded = self.tail.read_block(number, entry, block);
            keys.extend(decoded.map_err(|error| self.at_key_file(error))?);
        }
        Ok(KeyRun { first: blocks.start * BLOCK_KEYS, keys })
    }

    fn at_key_file(&self, error: Error) -> Error {
        error.at_path(&self.generation.objects.path(&self.generation.auxiliary_object(manifest::KEYS)))
    }
}
