//! The blocks of a generation that are cached: what identifies them, and what they are in memory.

use std::sync::Arc;

use sharddb_format::internal::byte_range::ByteRange;
use sharddb_format::internal::ids::{Location, ShardNumber};
use sharddb_format::{Error, Result};

use crate::block_cache::BlockCache;
use crate::minishard::Minishard;
use crate::objects::Span;
use crate::request::Body;
use crate::shared_request::SharedRequest;
use crate::table::Described;

/// The cache of a reader. All its generations share it.
pub(crate) type Cache = BlockCache<BlockKey, Block, SharedRequest>;

/// A block of one of the generations that a reader has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) generation: u64,
    pub(crate) block: BlockName,
}

/// A block of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum BlockName {
    /// A group of blocks of the minishard table.
    TableGroup(u64),
    /// A block of the entries of a shard index, or all of it.
    ShardIndex { shard: ShardNumber, block: u64 },
    /// The index of a minishard, with the checks, and the values of a short one.
    Minishard(Location),
}

/// A block in memory. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Block {
    Bytes(Body),
    /// A shard that has no object, and so no keys.
    NoShard,
    Minishard(Arc<Minishard>),
}

impl Block {
    /// Returns the bytes that it takes in memory.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Block::Bytes(bytes) => bytes.as_slice().len() as u64,
            Block::NoShard => 0,
            Block::Minishard(minishard) => minishard.size(),
        }
    }

    /// Returns the minishard that it is.
    pub(crate) fn minishard(self) -> Result<Arc<Minishard>> {
        match self {
            Block::Minishard(minishard) => Ok(minishard),
            Block::Bytes(_) | Block::NoShard => Err(Error::internal("expected a minishard, found another block")),
        }
    }
}

/// A block to read.
#[derive(Clone, Debug)]
pub(crate) struct BlockRead {
    pub(crate) block: BlockName,
    pub(crate) span: Span,
    /// Another span by which a block store may have a minishard: with its values, or without them.
    pub(crate) other_span: Option<Span>,
    pub(crate) wanted: BlockContent,
}

/// What the bytes of a block have to contain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockContent {
    /// An intact block of the minishard table.
    TableBlock(ShardNumber, Described),
    /// Entries of a shard index.
    Entries(ShardNumber),
    /// The encoded index of a minishard at this place of the shard.
    Minishard(Location, ByteRange),
}
