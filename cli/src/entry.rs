//! What is at a path: an error while reading is neither "absent" nor "another kind of file".

use std::fs::Metadata;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// Returns whether a path leads to something.
pub(crate) fn exists(path: &Path) -> Result<bool> {
    metadata_if_there(path).map(|found| found.is_some())
}

/// Returns whether a path leads to a regular file.
pub(crate) fn is_file(path: &Path) -> Result<bool> {
    metadata_if_there(path).map(|found| found.is_some_and(|found| found.is_file()))
}

/// Returns whether a path leads to a directory.
pub(crate) fn is_dir(path: &Path) -> Result<bool> {
    metadata_if_there(path).map(|found| found.is_some_and(|found| found.is_dir()))
}

/// Returns what a path leads to; `None` if nothing is there.
pub(crate) fn metadata_if_there(path: &Path) -> Result<Option<Metadata>> {
    if_there(path, path.metadata())
}

/// Returns what a path is itself; `None` if nothing is there.
pub(crate) fn own_metadata_if_there(path: &Path) -> Result<Option<Metadata>> {
    if_there(path, path.symlink_metadata())
}

/// Returns the path with all links resolved; `None` if nothing is there.
pub(crate) fn canonical_if_there(path: &Path) -> Result<Option<PathBuf>> {
    if_there(path, path.canonicalize())
}

fn if_there<T>(path: &Path, found: std::io::Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(Failure::io("find", path, error)),
    }
}
