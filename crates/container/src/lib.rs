//! Containers: one interface to formats that keep many chunks in few files and find them through an index.
//!
//! The shards of [ShardDb](sharddb) and of Zarr v3 arrays, the chunk files of bcolz and bloscpack files all map a key to the
//! bytes of a chunk. [`Container`] is that common interface: one program lists, reads and verifies all of them.
//!
//! ```
//! # fn main() -> sharddb::Result<()> {
//! # let store = std::env::temp_dir().join(format!("sharddb-lib-container-doc-{}", std::process::id()));
//! # let mut loader = sharddb::BulkLoader::create(&store)?;
//! # loader.insert(42, b"the answer")?;
//! # loader.finish()?;
//! use sharddb_container::{Container, Form};
//!
//! fn stored_bytes(container: &dyn Container) -> sharddb::Result<usize> {
//!     let mut bytes = 0;
//!     for key in container.keys() {
//!         bytes += container.get(key?, Form::Encoded)?.map_or(0, |chunk| chunk.len());
//!     }
//!     Ok(bytes)
//! }
//!
//! let db = sharddb::ShardDb::open(&store)?;
//! assert_eq!(stored_bytes(&db.snapshot())?, 10);
//! # std::fs::remove_dir_all(&store).unwrap();
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! - `blosc`: Blosc 1 chunks, decoded and encoded (`blosc`); included in the next two.
//! - `bcolz`: bcolz arrays and tables (`bcolz`), and bloscpack files (`bloscpack`): read, verified, written.
//! - `zarr`: sharded Zarr v3 arrays (`zarr`): read, verified, written.

#[cfg(feature = "bcolz")]
pub mod bcolz;
#[cfg(feature = "blosc")]
pub mod blosc;
#[cfg(feature = "bcolz")]
pub mod bloscpack;
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

use sharddb::Value;
use sharddb::shard::ValueLocation;
use sharddb::verify::{VerifyLevel, VerifyOptions, VerifyReport};
use sharddb_format::morton;
use sharddb_format::{Error, Result};

pub use options::ContainerOptions;

/// A set of chunks that are found by key: a [`Snapshot`](sharddb::Snapshot), an array, a file.
///
/// The trait is sealed: [`Snapshot`](sharddb::Snapshot) implements it, and with the features `zarr` and `bcolz` `ZarrArray`,
/// `BcolzArray` and `Bloscpack` do. Other crates cannot implement it, so that a later version may add methods. It is
/// dyn-compatible.
///
/// A missing key is `Ok(None)`. Bytes that are not the stored chunk are an `Err`, never a value.
///
/// ```no_run
/// use sharddb_container::{Container, Form};
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
pub trait Container: sealed::Sealed + Send + Sync {
    /// Returns the chunk of `key`; `Ok(None)` if it is absent or the key is out of range.
    ///
    /// Cost: reads the chunk; `Form::Decoded` also decompresses it.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `TooLarge`, `Io`; for `Form::Decoded` also `Unsupported`, for a codec that this build does not have.
    fn get(&self, key: u64, form: Form) -> Result<Option<Value<'_>>>;

    /// Returns where the encoded chunk of `key` is stored: file, offset and length in bytes.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Container::get), and `Unsupported` if the chunk is not a byte range of a file.
    fn locate(&self, key: u64) -> Result<Option<ValueLocation>>;

    /// Returns the keys that have a chunk, in the order that is cheapest to read.
    ///
    /// A bad entry or file yields one `Err` with its place, and the iteration continues after it. The iteration always ends.
    fn keys(&self) -> Box<dyn Iterator<Item = Result<u64>> + '_>;

    /// Returns what a key is: a cell of a grid, or an opaque number.
    fn key_space(&self) -> KeySpace;

    /// Describes the container as the text of one JSON object, whose member `"format"` names the format.
    fn describe(&self) -> String;

    /// Checks the container up to `level`; see [`Snapshot::verify`](sharddb::Snapshot::verify).
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::verify`](sharddb::Snapshot::verify). Every other fault is a finding of the report.
    fn verify(&self, level: VerifyLevel) -> Result<VerifyReport> {
        self.verify_with(level, &VerifyOptions::new())
    }

    /// Like [`verify`](Container::verify), with options. The progress counts bytes of a store, and files of other containers. Only
    /// a store uses more than one thread.
    ///
    /// # Errors
    ///
    /// Those of [`verify`](Container::verify); `Cancelled`.
    fn verify_with(&self, level: VerifyLevel, options: &VerifyOptions) -> Result<VerifyReport>;

    /// Returns what a store must keep of the container besides its chunks so that it can be exported again: the name of a
    /// member of `info`, and its JSON text. `None` if nothing needs to be kept.
    ///
    /// # Errors
    ///
    /// `Io`, `InvalidSpec`, `TooLarge` if the attributes of a bcolz array cannot be read.
    fn preserved(&self) -> Result<Option<(&'static str, String)>> {
        Ok(None)
    }

    /// Returns the decoded chunk that a key without a chunk represents. `None` if the format has no fill value, or the key
    /// is out of range.
    ///
    /// # Errors
    ///
    /// `TooLarge` if the chunk exceeds the limit of the [`ContainerOptions`].
    fn fill_chunk(&self, _key: u64) -> Result<Option<Value<'_>>> {
        Ok(None)
    }
}

/// Keeps other crates from implementing [`Container`].
mod sealed {
    pub trait Sealed {}
}

/// Selects the stored or the decoded bytes of a chunk.
///
/// ```no_run
/// use sharddb_container::{Container, Form};
///
/// # let snapshot = sharddb::ShardDb::open("store")?.snapshot();
/// let compressed = Container::get(&snapshot, 7, Form::Encoded)?; // a gzip member, if the store has gzip values
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// The bytes as they are stored.
    Encoded,
    /// The bytes after all codecs are undone. For a store: the value. For Zarr: the elements in C order, little endian. For
    /// bcolz and bloscpack: what Blosc decompresses to, with the order of axes and bytes that the metadata states.
    Decoded,
}

/// The meaning of the keys of a [`Container`].
///
/// ```
/// use sharddb_container::KeySpace;
///
/// let space = KeySpace::Linear { grid: vec![4, 3] };
/// assert_eq!(space.position_of(5), Some(vec![1, 2]));
/// assert_eq!(space.to_string(), "4 x 3 cells, C order");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySpace {
    /// The index of a grid cell in C order: the last dimension varies fastest.
    Linear {
        /// The number of cells along each dimension.
        grid: Vec<u64>,
    },
    /// The [compressed Morton code](morton) of a grid cell.
    Morton {
        /// The number of cells along each dimension.
        grid: Vec<u64>,
    },
    /// Any number. The container does not know its meaning.
    Opaque,
}

impl KeySpace {
    /// Returns the key of the cell at `position`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `position` is outside the grid, or there is no grid.
    ///
    /// ```
    /// use sharddb_container::KeySpace;
    ///
    /// assert_eq!(KeySpace::Linear { grid: vec![4, 3] }.key_at(&[1, 2])?, 5);
    /// assert!(KeySpace::Linear { grid: vec![4, 3] }.key_at(&[1, 3]).is_err());
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn key_at(&self, position: &[u64]) -> Result<u64> {
        let key = match self {
            Self::Linear { grid } => linear::number(grid, position),
            Self::Morton { grid } => morton::encode(grid, position),
            Self::Opaque => {
                return Err(Error::invalid_input("expected keys with a position in a grid, found opaque keys"));
            }
        };
        key.ok_or_else(|| Error::invalid_input(format!("expected a position in a grid of {self}, found {position:?}")))
    }

    /// Returns the position of the cell of `key`; `None` if there is no such cell.
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

/// The largest number of dimensions of an array, as in NumPy. Arrays with more are refused.
#[cfg(any(feature = "zarr", feature = "bcolz"))]
const MAX_DIMENSIONS: usize = 64;

/// The conversion between the position of a cell and its index in C order.
mod linear {
    /// Returns the index of the cell at `position`; `None` if it is outside the grid.
    pub(super) fn number(grid: &[u64], position: &[u64]) -> Option<u64> {
        if grid.len() != position.len() {
            return None;
        }
        grid.iter().zip(position).try_fold(0u64, |number, (&cells, &at)| {
            if at < cells { number.checked_mul(cells)?.checked_add(at) } else { None }
        })
    }

    /// Returns the position of the cell with this index; `None` if there is none.
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
