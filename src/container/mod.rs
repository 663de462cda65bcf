//! Containers: many chunks in few files behind an index, whatever the format. A key goes in, bytes come out.
//!
//! ShardDb's own files, the shards of a Zarr array and the superchunks of bcolz hold the same idea in different bytes.
//! [`Container`] is what they have in common, so that one program lists, reads and verifies all of them. It stands on top
//! of everything else: nothing in the read path of a [`Snapshot`](crate::Snapshot) knows of it.

#[cfg(feature = "bcolz")]
pub mod bcolz;
#[cfg(feature = "blosc")]
pub mod blosc;
#[cfg(feature = "bcolz")]
pub mod bloscpack;
#[cfg(test)]
mod crash_tests;
#[cfg(feature = "zarr")]
mod crc32c;
#[cfg(any(feature = "zarr", feature = "bcolz"))]
mod new_file;
mod options;
mod sharded;
#[cfg(feature = "zarr")]
pub mod zarr;
#[cfg(feature = "zarr")]
mod zstd;

use std::fmt;

pub use options::ContainerOptions;

use crate::error::{Error, Result};
use crate::format::morton;
use crate::read::shard::{Value, ValueLocation};
#[cfg(any(feature = "zarr", feature = "bcolz"))]
use crate::storage::{AlignedBytes, Bytes};
use crate::verify::{VerifyLevel, VerifyReport};

/// Chunks behind an index: a [`Snapshot`](crate::Snapshot), an array, a column.
///
/// Object safe. As everywhere, `Ok(None)` is "not there", and what is not the stored chunk is an `Err`.
///
/// ```no_run
/// use sharddb::container::{Container, Form};
///
/// fn print_sizes(container: &dyn Container) -> sharddb::Result<()> {
///     for key in container.keys() {
///         let key = key?;
///         let chunk = container.get(key, Form::Decoded)?;
///         println!("{key}: {} bytes", chunk.map_or(0, |chunk| chunk.len()));
///     }
///     Ok(())
/// }
/// ```
pub trait Container {
    /// The chunk of a key; `Ok(None)` if it is not there, or if there can be no such key.
    ///
    /// Errors: `Corrupt`, `TooLarge`, `Io`; decoded also `Unsupported`, for a codec that this build does not have.
    fn get(&self, key: u64, form: Form) -> Result<Option<Value<'_>>>;

    /// Where the encoded chunk of a key is stored: file, offset, stored length.
    ///
    /// Errors: as [`get`](Container::get), and `Unsupported` where a chunk is no range of a file.
    fn locate(&self, key: u64) -> Result<Option<ValueLocation>>;

    /// The keys that have a chunk, in the order that is cheapest to read.
    ///
    /// A bad entry or file gives one `Err` with its place, and the iteration goes on with the rest; it always ends.
    fn keys(&self) -> Box<dyn Iterator<Item = Result<u64>> + '_>;

    /// What a key is: a number in a grid, or nothing that can be told.
    fn key_space(&self) -> KeySpace;

    /// What the container is, as the text of one JSON object; its member `"format"` names the format.
    fn describe(&self) -> String;

    /// Looks at everything up to a level; see [`Snapshot::verify`](crate::Snapshot::verify).
    ///
    /// Errors: as there. Whatever else is wrong is a finding.
    fn verify(&self, level: VerifyLevel) -> Result<VerifyReport>;

    /// What a store keeps of the container besides its chunks, so that it can be made again: the name of a member of
    /// `info`, and its JSON text.
    fn preserved(&self) -> Option<(&'static str, String)> {
        None
    }

    /// What a key without a chunk stands for, decoded; `None` where absent is absent, and if there can be no such key.
    fn fill_chunk(&self, _key: u64) -> Result<Option<Value<'_>>> {
        Ok(None)
    }
}

/// Which bytes of a chunk are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// As they are stored.
    Encoded,
    /// After all codecs of the chunk: the value of a store; of a Zarr array the elements, in C order and little endian;
    /// of bcolz and bloscpack what Blosc gives back, elements in the order of axes and bytes that the metadata states.
    Decoded,
}

/// What the keys of a [`Container`] are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySpace {
    /// The number of a cell of the grid in C order: the last dimension runs fastest.
    Linear {
        /// Cells along each dimension.
        grid: Vec<u64>,
    },
    /// The [compressed Morton code](morton) of a cell's position.
    Morton {
        /// Cells along each dimension.
        grid: Vec<u64>,
    },
    /// Any number, or one with a meaning that the container does not know.
    Opaque,
}

impl KeySpace {
    /// The key of the cell at `position`.
    ///
    /// Errors: `InvalidInput` if the position is not in the grid, or there is none.
    ///
    /// ```
    /// use sharddb::container::KeySpace;
    ///
    /// assert_eq!(KeySpace::Linear { grid: vec![4, 3] }.key_at(&[1, 2])?, 5);
    /// assert!(KeySpace::Linear { grid: vec![4, 3] }.key_at(&[1, 3]).is_err());
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn key_at(&self, position: &[u64]) -> Result<u64> {
        let key = match self {
            Self::Linear { grid } => linear::number(grid, position),
            Self::Morton { grid } => morton::encode(grid, position),
            Self::Opaque => return Err(Error::invalid_input("expected keys with a position, found a set without")),
        };
        key.ok_or_else(|| Error::invalid_input(format!("expected a position in a grid of {self}, found {position:?}")))
    }

    /// The position of a key's cell; `None` if there is no such cell.
    pub fn position_of(&self, key: u64) -> Option<Vec<u64>> {
        match self {
            Self::Linear { grid } => linear::position(grid, key),
            Self::Morton { grid } => morton::decode(grid, key),
            Self::Opaque => None,
        }
    }
}

impl fmt::Display for KeySpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (grid, order) = match self {
            Self::Linear { grid } => (grid, "C order"),
            Self::Morton { grid } => (grid, "compressed Morton code"),
            Self::Opaque => return f.write_str("opaque"),
        };
        let cells: Vec<_> = grid.iter().map(u64::to_string).collect();
        write!(f, "{} cells, {order}", cells.join(" x "))
    }
}

/// A value of its own.
#[cfg(any(feature = "zarr", feature = "bcolz"))]
fn owned(bytes: Vec<u8>) -> Value<'static> {
    Value::from_bytes(Bytes::Owned(AlignedBytes::from(bytes)))
}

/// Numbers of cells in C order.
mod linear {
    /// The number of the cell at `position`; `None` if it is not in the grid.
    pub(super) fn number(grid: &[u64], position: &[u64]) -> Option<u64> {
        if grid.len() != position.len() {
            return None;
        }
        grid.iter().zip(position).try_fold(0u64, |number, (&cells, &at)| {
            if at < cells { number.checked_mul(cells)?.checked_add(at) } else { None }
        })
    }

    /// The position of the cell of this number; `None` if there is none.
    pub(super) fn position(grid: &[u64], number: u64) -> Option<Vec<u64>> {
        let mut position = vec![0; grid.len()];
        let mut rest = number;
        for (at, &cells) in position.iter_mut().zip(grid).rev() {
            *at = rest.checked_rem(cells)?;
            rest /= cells;
        }
        (rest == 0).then_some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_numbers_run_fastest_along_the_last_dimension() {
        let space = KeySpace::Linear { grid: vec![2, 3, 4] };
        let mut expected = 0;
        for z in 0..2 {
            for y in 0..3 {
                for x in 0..4 {
                    assert_eq!(space.key_at(&[z, y, x]).unwrap(), expected);
                    assert_eq!(space.position_of(expected), Some(vec![z, y, x]));
                    expected += 1;
                }
            }
        }
        assert_eq!(space.position_of(24), None);
        assert_eq!(space.position_of(u64::MAX), None);
    }

    #[test]
    fn a_position_outside_of_the_grid_is_no_key() {
        let space = KeySpace::Linear { grid: vec![2, 3] };
        for position in [&[2, 0][..], &[0, 3], &[0], &[0, 0, 0], &[u64::MAX, 0]] {
            assert!(space.key_at(position).is_err(), "{position:?}");
        }
        assert!(KeySpace::Opaque.key_at(&[0]).is_err());
        assert_eq!(KeySpace::Linear { grid: vec![0, 3] }.position_of(0), None);
    }

    #[test]
    fn no_dimensions_are_one_cell() {
        let space = KeySpace::Linear { grid: Vec::new() };
        assert_eq!(space.key_at(&[]).unwrap(), 0);
        assert_eq!((space.position_of(0), space.position_of(1)), (Some(Vec::new()), None));
    }
}
