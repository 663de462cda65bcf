//! The numbers of shards and minishards, as distinct types that cannot be mixed up.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The number of a shard: below `2^shard_bits`.
///
/// Displayed and parsed in hex, as in file names.
///
/// ```
/// use sharddb_format::ShardNumber;
///
/// assert_eq!(ShardNumber(0x2a).to_string(), "2a");
/// assert_eq!("2a".parse(), Ok(ShardNumber(0x2a)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardNumber(pub u64);

impl fmt::Display for ShardNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl FromStr for ShardNumber {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<ShardNumber, ParseIntError> {
        u64::from_str_radix(text, 16).map(ShardNumber)
    }
}

/// The number of a minishard within its shard: below `2^minishard_bits`.
///
/// Displayed and parsed in decimal.
///
/// ```
/// use sharddb_format::MinishardNumber;
///
/// assert_eq!("12".parse(), Ok(MinishardNumber(12)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinishardNumber(pub u64);

impl fmt::Display for MinishardNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for MinishardNumber {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<MinishardNumber, ParseIntError> {
        text.parse().map(MinishardNumber)
    }
}

/// The shard and the minishard that a key hashes to.
///
/// ```
/// use sharddb_format::{HashFunction, Location, MinishardNumber, ShardNumber, ShardingSpec};
///
/// let spec = ShardingSpec::new(HashFunction::Identity, 0, 2, 3)?; // 4 minishards in each of 8 shards
/// let location = Location { shard: ShardNumber(1), minishard: MinishardNumber(2) };
/// assert_eq!(spec.route(0b001_10), location);
/// # Ok::<(), sharddb_format::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The shard. Each shard is one file.
    pub shard: ShardNumber,
    /// The minishard within the shard.
    pub minishard: MinishardNumber,
}
