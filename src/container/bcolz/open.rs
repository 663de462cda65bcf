//! Opens an array by its path: one with meta files of its own, or a column of a table.

use std::path::Path;

use crate::container::ContainerOptions;
use crate::container::bcolz::array::BcolzArray;
use crate::container::bcolz::meta::{ROOTDIRS, STORAGE, meta_path};
use crate::container::bcolz::table::BcolzTable;
use crate::error::Result;

impl BcolzArray {
    /// Opens an array for positioned reads; a column of a table by the table's path followed by the column's name.
    ///
    /// Errors: `Io`; `InvalidSpec` if a meta file does not say what it must; `Corrupt`; `InvalidInput` if it is a table.
    pub fn open(path: impl AsRef<Path>) -> Result<BcolzArray> {
        BcolzArray::open_with(path, &ContainerOptions::new())
    }

    /// Opens an array in another way.
    pub fn open_with(path: impl AsRef<Path>, options: &ContainerOptions) -> Result<BcolzArray> {
        let root = path.as_ref();
        match table_above(root) {
            Some((table, column)) if !root.join(ROOTDIRS).exists() => {
                BcolzTable::open_with(table, options)?.into_column(&column)
            }
            _ => BcolzArray::open_root(root, options),
        }
    }

    /// Whether there is something at `path` that looks like an array, or like a column of a table.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        let root = path.as_ref();
        meta_path(root, STORAGE).is_file() || table_above(root).is_some()
    }
}

/// The table that keeps a column of this path in superchunks, and the column's name in it.
fn table_above(path: &Path) -> Option<(&Path, String)> {
    if meta_path(path, STORAGE).is_file() {
        return None;
    }
    let table = path.ancestors().skip(1).find(|ancestor| meta_path(ancestor, STORAGE).is_file())?;
    let names: Option<Vec<_>> = path.strip_prefix(table).ok()?.iter().map(|name| name.to_str()).collect();
    let column = names?.join("/");
    table.join("data").join(&column).is_dir().then_some((table, column))
}
