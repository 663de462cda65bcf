//! Numbers that must not be mixed: of a shard, and of a minishard within it.

/// The number of a shard: below `2^shard_bits`. Written in hex in file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardNumber(pub u64);

/// The number of a minishard within its shard: below `2^minishard_bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinishardNumber(pub u64);

/// Where a key belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The shard, that is, the file.
    pub shard: ShardNumber,
    /// The minishard within the shard.
    pub minishard: MinishardNumber,
}
