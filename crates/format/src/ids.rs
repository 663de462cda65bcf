//! The numbers of shards and minishards, as distinct types that cannot be mixed up.

use std::fmt;

/// The number of a shard: below `2^shard_bits` of its specification, which [makes](crate::ShardingSpec::shard) it.
///
/// Displayed in hex, as in file names.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// use sharddb::spec::{HashFunction, ShardingSpec};
///
/// let spec = ShardingSpec::new(HashFunction::Identity, 0, 2, 6)?; // 64 shards
/// let shard = spec.shard(0x2a).unwrap();
/// assert_eq!((shard.get(), shard.to_string()), (42, "2a".to_string()));
/// assert_eq!(spec.shard(64), None);
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardNumber(pub(crate) u64);

impl ShardNumber {
    /// Returns the number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ShardNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// The number of a minishard within its shard: below `2^minishard_bits` of its specification, which
/// [makes](crate::ShardingSpec::minishard) it.
///
/// Displayed in decimal.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// use sharddb::spec::{HashFunction, ShardingSpec};
///
/// let spec = ShardingSpec::new(HashFunction::Identity, 0, 2, 6)?; // 4 minishards per shard
/// assert_eq!(spec.minishard(3).unwrap().get(), 3);
/// assert_eq!(spec.minishard(4), None);
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinishardNumber(pub(crate) u64);

impl MinishardNumber {
    /// Returns the number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MinishardNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Makes a number that may be out of range, for what is read from files and for the ends of ranges.
#[inline]
pub const fn shard_number(number: u64) -> ShardNumber {
    ShardNumber(number)
}

/// Makes a number that may be out of range, like [`shard_number`].
#[inline]
pub const fn minishard_number(number: u64) -> MinishardNumber {
    MinishardNumber(number)
}

/// The shard and the minishard that a key hashes to.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// use sharddb::spec::{HashFunction, ShardingSpec};
///
/// let spec = ShardingSpec::new(HashFunction::Identity, 0, 2, 3)?; // 4 minishards in each of 8 shards
/// let location = spec.route(0b001_10);
/// assert_eq!((location.shard.get(), location.minishard.get()), (1, 2));
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The shard. Each shard is one file.
    pub shard: ShardNumber,
    /// The minishard within the shard.
    pub minishard: MinishardNumber,
}
