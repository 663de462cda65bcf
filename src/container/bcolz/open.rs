//! Opening an array by path: one with meta files of its own, or a column of a table.

use std::path::Path;

use crate::container::ContainerOptions;
use crate::container::bcolz::array::BcolzArray;
use crate::container::bcolz::meta::{ROOTDIRS, STORAGE, meta_path};
use crate::container::bcolz::table::BcolzTable;
use crate::error::Result;

impl BcolzArray {
    /// Opens an array for positioned reads. The path of a column is the path of its table followed by the name of the
    /// column.
    ///
    /// Cost: reads the meta files and lists the data directory; superchunks are all opened.
    ///
    /// # Errors
    ///
    /// `Io`; `InvalidSpec` if a meta file is invalid; `Corrupt`; `InvalidInput` if it is a table.
    pub fn open(path: impl AsRef<Path>) -> Result<BcolzArray> {
        BcolzArray::open_with(path, &ContainerOptions::new())
    }

    /// Opens an array with `options`.
    ///
    /// # Errors
    ///
    /// Those of [`open`](BcolzArray::open).
    pub fn open_with(path: impl AsRef<Path>, options: &ContainerOptions) -> Result<BcolzArray> {
        let root = path.as_ref();
        match table_above(root) {
            Some((table, column)) if !root.join(ROOTDIRS).exists() => {
                BcolzTable::open_with(table, options)?.into_column(&column)
            }
            _ => BcolzArray::open_root(root, options),
        }
    }

    /// Returns whether `path` has the meta files of an array, or is a column of a table.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        let root = path.as_ref();
        meta_path(root, STORAGE).is_file() || table_above(root).is_some()
    }
}

/// Returns the table in superchunks that holds the column at `path`, and the column's name in the table.
fn table_above(path: &Path) -> Option<(&Path, String)> {
    if meta_path(path, STORAGE).is_file() {
        return None;
    }
    let table = path.ancestors().skip(1).find(|ancestor| meta_path(ancestor, STORAGE).is_file())?;
    let names: Option<Vec<_>> = path.strip_prefix(table).ok()?.iter().map(|name| name.to_str()).collect();
    let column = names?.join("/");
    table.join("data").join(&column).is_dir().then_some((table, column))
}
