//! Tables: several columns of the same length.

use sharddb::internal::{add_finding, report_of_files};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value as Json};
use sharddb::Progress;
use sharddb::internal::fs::entry;
use sharddb::verify::{FindingKind, VerifyLevel, VerifyReport};
use sharddb_format::internal::json::excerpt;
use sharddb_format::{Error, ErrorKind, Result};

use crate::ContainerOptions;
use crate::bcolz::array::BcolzArray;
use crate::bcolz::attributes::Attributes;
use crate::bcolz::meta::{MetaFile, ROOTDIRS, RootdirLayout, STORAGE, has_meta, is_plain_name, meta_path};
use crate::bcolz::verify::verify_attributes;

/// Columns that are nested more deeply are refused.
const MAX_COLUMN_DEPTH: usize = 32;

/// A table: named columns, each a [`BcolzArray`]. Chunk keys are relative to their column.
///
/// The name of a nested column is a path: `position/x`.
///
/// ```no_run
/// use sharddb_container::bcolz::BcolzTable;
///
/// let table = BcolzTable::open("trades")?;
/// for (name, column) in table.columns() {
///     println!("{name}: {} rows of {}", column.rows(), column.dtype());
/// }
/// # Ok::<(), sharddb::Error>(())
/// ```
pub struct BcolzTable {
    root: PathBuf,
    layout: RootdirLayout,
    columns: Vec<(String, BcolzArray)>,
}

impl fmt::Debug for BcolzTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BcolzTable").field("root", &self.root).finish_non_exhaustive()
    }
}

impl BcolzTable {
    /// Opens a table for positioned reads.
    ///
    /// # Errors
    ///
    /// `Io`; `InvalidSpec` if a meta file is invalid; `Corrupt`; `InvalidInput` if it is an array.
    pub fn open(path: impl AsRef<Path>) -> Result<BcolzTable> {
        BcolzTable::open_with(path, &ContainerOptions::new())
    }

    /// Opens a table with `options`.
    ///
    /// # Errors
    ///
    /// Those of [`open`](BcolzTable::open).
    pub fn open_with(path: impl AsRef<Path>, options: &ContainerOptions) -> Result<BcolzTable> {
        let root = path.as_ref();
        let rootdirs = root.join(ROOTDIRS);
        let (layout, columns) = if entry::exists(&rootdirs)? {
            (RootdirLayout::Shipped, shipped_columns(root, MetaFile::read(rootdirs)?, options)?)
        } else {
            (RootdirLayout::Superchunks, nested_columns(root, options)?)
        };
        Ok(BcolzTable { root: root.to_path_buf(), layout, columns })
    }

    /// Returns whether the meta files at `path` are those of a table.
    ///
    /// # Errors
    ///
    /// `Io` if a file cannot be read.
    pub fn is_at(path: impl AsRef<Path>) -> Result<bool> {
        let root = path.as_ref();
        let has_rootdirs = entry::is_file(&root.join(ROOTDIRS))?;
        if has_rootdirs || !has_meta(root)? {
            return Ok(has_rootdirs);
        }
        match MetaFile::read(meta_path(root, STORAGE)) {
            Ok(storage) => Ok(storage.get("dtype").is_some_and(Json::is_object)),
            Err(error) if error.kind() == ErrorKind::Io => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Returns the layout of the table in its directory.
    pub fn layout(&self) -> RootdirLayout {
        self.layout
    }

    /// Returns the columns with their names, in the order of the table; in superchunks in ascending order of their
    /// names.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &BcolzArray)> {
        self.columns.iter().map(|(name, column)| (name.as_str(), column))
    }

    /// Returns the column with this name.
    pub fn column(&self, name: &str) -> Option<&BcolzArray> {
        self.columns().find(|(other, _)| *other == name).map(|(_, column)| column)
    }

    /// Converts the table into the column with this name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is none. The message lists the existing names.
    pub fn into_column(self, name: &str) -> Result<BcolzArray> {
        let names: Vec<_> = self.columns().map(|(name, _)| name.to_string()).collect();
        let column = self.columns.into_iter().find(|(other, _)| other == name);
        column.map(|(_, column)| column).ok_or_else(|| {
            let message =
                format!("expected one of the columns {}, found \"{}\"", excerpt(&names.join(", ")), excerpt(name));
            Error::invalid_input(message).at_path(&self.root)
        })
    }

    /// Returns the number of rows. If columns differ, that of the shortest one.
    pub fn rows(&self) -> u64 {
        self.columns().map(|(_, column)| column.rows()).min().unwrap_or_default()
    }

    /// Checks every column up to `level`, and that all have the same number of rows.
    ///
    /// # Errors
    ///
    /// Those of [`Container::verify`](crate::Container::verify). Every other fault is a finding.
    pub fn verify(&self, level: VerifyLevel) -> Result<VerifyReport> {
        let (mut report, rows) = (report_of_files(level), self.rows());
        verify_attributes(self.attributes(), &mut report);
        for (name, column) in self.columns() {
            column.verify_into(&mut report, &Progress::new())?;
            if column.rows() != rows {
                let message = format!(
                    "expected {rows} rows in every column, found {} in \"{name}\": truncating the table to {rows} rows \
                     makes them equal",
                    column.rows()
                );
                add_finding(&mut report, FindingKind::WrongCount, Error::corrupt(message).at_path(&column.data));
            }
        }
        Ok(report)
    }

    /// Reads the user attributes of the table.
    ///
    /// # Errors
    ///
    /// `Io`, `InvalidSpec`.
    pub fn attributes(&self) -> Result<Attributes> {
        Attributes::read(self.layout.attributes_path(&self.root))
    }
}

/// Opens the columns that `__rootdirs__` lists, each in the directory of its name.
fn shipped_columns(root: &Path, rootdirs: MetaFile, options: &ContainerOptions) -> Result<Vec<(String, BcolzArray)>> {
    let names = rootdirs.get("names").and_then(Json::as_array);
    let Some(names) = names.and_then(|names| names.iter().map(Json::as_str).collect::<Option<Vec<_>>>()) else {
        return Err(rootdirs.invalid("the names of columns for \"names\"", rootdirs.get("names")));
    };
    let mut sorted = names.clone();
    sorted.sort_unstable();
    if let Some([name, ..]) = sorted.chunk_by(|name, next| name == next).find(|same| same.len() > 1) {
        let name = excerpt(name);
        let message = format!("expected each column once in \"names\", found \"{name}\" more than once");
        return Err(Error::corrupt(message).at_path(&root.join(ROOTDIRS)));
    }
    let column = |name: &&str| {
        if !is_plain_name(name) {
            return Err(rootdirs.invalid("names of directories within the table", rootdirs.get("names")));
        }
        BcolzArray::open_root(&root.join(name), options).map(|column| (name.to_string(), column))
    };
    names.iter().map(column).collect()
}

/// Opens the columns that the dtype in `meta/storage` lists, in directories below `data`.
fn nested_columns(root: &Path, options: &ContainerOptions) -> Result<Vec<(String, BcolzArray)>> {
    let storage = Arc::new(MetaFile::read(meta_path(root, STORAGE))?);
    let Some(Json::Object(dtypes)) = storage.get("dtype") else {
        let message = "expected a table, found an array: open it as one";
        return Err(Error::invalid_input(message).at_path(root));
    };
    let mut leaves = Vec::new();
    collect_leaves(dtypes, "", 0, &storage, &mut leaves)?;
    let column = |(name, dtype): (String, String)| {
        let data = name.split('/').fold(root.join("data"), |path, part| path.join(part));
        let column = BcolzArray::open_column(root, data, &dtype, storage.clone(), options)?;
        Ok((name, column))
    };
    leaves.into_iter().map(column).collect()
}

fn collect_leaves(
    dtypes: &Map<String, Json>,
    prefix: &str,
    depth: usize,
    storage: &MetaFile,
    leaves: &mut Vec<(String, String)>,
) -> Result<()> {
    for (name, dtype) in dtypes {
        if !is_plain_name(name) || depth > MAX_COLUMN_DEPTH {
            return Err(storage.invalid("names of directories within the table", Some(&Json::from(name.as_str()))));
        }
        match dtype {
            Json::String(dtype) => leaves.push((format!("{prefix}{name}"), dtype.clone())),
            Json::Object(inner) => collect_leaves(inner, &format!("{prefix}{name}/"), depth + 1, storage, leaves)?,
            found => return Err(storage.invalid(&format!("a type for column \"{name}\""), Some(found))),
        }
    }
    Ok(())
}
