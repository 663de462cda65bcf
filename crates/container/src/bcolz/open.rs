//! Opening an array by path: one with meta files of its own, or a column of a table.

use std::path::Path;

use sharddb::internal::fs::entry;
use sharddb_format::Result;

use crate::ContainerOptions;
use crate::bcolz::array::BcolzArray;
use crate::bcolz::meta::{ROOTDIRS, has_meta};
use crate::bcolz::table::BcolzTable;

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
        match table_above(root)? {
            Some((table, column)) if !entry::exists(&root.join(ROOTDIRS))? => {
                BcolzTable::open_with(table, options)?.into_column(&column)
            }
            _ => BcolzArray::open_root(root, options),
        }
    }

    /// Returns whether `path` has the meta files of an array, or is a column of a table.
    ///
    /// # Errors
    ///
    /// `Io` if a directory cannot be searched.
    pub fn is_at(path: impl AsRef<Path>) -> Result<bool> {
        let root = path.as_ref();
        Ok(has_meta(root)? || table_above(root)?.is_some())
    }
}

/// Returns the table in superchunks that holds the column at `path`, and the column's name in the table.
fn table_above(path: &Path) -> Result<Option<(&Path, String)>> {
    if has_meta(path)? {
        return Ok(None);
    }
    let mut above = path.ancestors().skip(1);
    let table = loop {
        let Some(ancestor) = above.next() else { return Ok(None) };
        if has_meta(ancestor)? {
            break ancestor;
        }
    };
    let names = path.strip_prefix(table).ok().and_then(|below| below.iter().map(|name| name.to_str()).collect());
    let Some(column) = names.map(|names: Vec<_>| names.join("/")) else { return Ok(None) };
    Ok(entry::is_dir(&table.join("data").join(&column))?.then_some((table, column)))
}
