//! Numbers that must not be mixed: of a shard, and of a minishard within it.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The number of a shard: below `2^shard_bits`.
///
/// Displayed and parsed in hex, as in file names.
///
/// ```
/// use sharddb::spec::ShardNumber;
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

/// Where a key belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The shard, that is, the file.
    pub shard: ShardNumber,
    /// The minishard within the shard.
    pub minishard: MinishardNumber,
}
