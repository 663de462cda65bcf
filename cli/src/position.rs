//! KEY or --at: a key by its number, or by its position in the grid of chunks.

use std::str::FromStr;

use clap::Args;
use sharddb::internal::key::Key;
use sharddb_container::KeySpace;

use crate::failure::{Failure, Result};

/// The key of a lookup.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeyOrPosition {
    /// Decimal or 0x hex
    #[arg(required_unless_present = "at")]
    key: Option<Key>,
    /// The position of the key in the grid of chunks: x, y, z in a volume, otherwise the axes of the array
    #[arg(long, value_name = "N,N,...", conflicts_with = "key", allow_hyphen_values = true)]
    at: Option<Position>,
}

impl KeyOrPosition {
    /// Returns the key. `space` is called if the key is given by its position.
    ///
    /// Errors: `Usage` if the data set has no grid, or the position is outside of it.
    pub(crate) fn resolve(&self, space: impl FnOnce() -> KeySpace) -> Result<u64> {
        match (&self.at, self.key) {
            (Some(position), _) => position.key_in(&space()),
            (None, Some(key)) => Ok(key.0),
            (None, None) => Err(Failure::usage("expected a key, or a position with --at")),
        }
    }
}

/// The keys of a lookup of several values.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeysOrPosition {
    /// Decimal or 0x hex; several with --output
    #[arg(value_name = "KEY", required_unless_present = "at")]
    keys: Vec<Key>,
    /// The position of a key in the grid of chunks: x, y, z in a volume, otherwise the axes of the array
    #[arg(long, value_name = "N,N,...", conflicts_with = "keys", allow_hyphen_values = true)]
    at: Option<Position>,
}

impl KeysOrPosition {
    /// Like [`KeyOrPosition::resolve`], for all keys.
    pub(crate) fn resolve(&self, space: impl FnOnce() -> KeySpace) -> Result<Vec<u64>> {
        match &self.at {
            Some(position) => Ok(vec![position.key_in(&space())?]),
            None => Ok(self.keys.iter().map(|key| key.0).collect()),
        }
    }
}

/// A position in a grid of chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position(Vec<u64>);

impl Position {
    fn key_in(&self, space: &KeySpace) -> Result<u64> {
        match space {
            KeySpace::Opaque => Err(Failure::usage(
                "--at is for volumes and arrays, whose keys are positions of chunks; the keys of this data set are not: \
                 give the key itself",
            )),
            grid => Ok(grid.key_at(&self.0)?),
        }
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Position, String> {
        let axes = text.split(',').map(|axis| axis.trim().parse().ok()).collect::<Option<Vec<u64>>>();
        axes.map(Position).ok_or_else(|| {
            format!(
                "expected the position of a chunk, numbers from 0 separated by commas such as 3,0,7, found \"{text}\""
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_numbers_from_0() {
        for (text, axes) in [("0", vec![0]), ("3,0,7", vec![3, 0, 7]), ("1, 2", vec![1, 2])] {
            assert_eq!(text.parse(), Ok(Position(axes)), "{text}");
        }
        for text in ["", "-1,0,0", "1,,2", "1.5", "x", "1;2", "18446744073709551616"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }
}
