//! What is at a path.
//!
//! The functions return `Io` if that cannot be determined, for example in a directory that cannot be searched: an error while
//! reading is neither "absent" nor "another kind of file".

use std::fs::Metadata;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::fs::disk::inspect;

/// Returns whether an entry exists at a path, even if it is a dangling link.
pub fn exists(path: &Path) -> Result<bool> {
    own_metadata_if_there(path).map(|entry| entry.is_some())
}

/// Returns whether a path is a directory or a link to one.
pub fn is_dir(path: &Path) -> Result<bool> {
    metadata_if_there(path).map(|target| target.is_some_and(|target| target.is_dir()))
}

/// Returns whether a path is a directory or a link to one; `None` if nothing is there.
///
/// Makes one call for a directory, so it stays correct if one is created or removed concurrently.
pub(crate) fn is_dir_if_there(path: &Path) -> Result<Option<bool>> {
    let Some(entry) = own_metadata_if_there(path)? else { return Ok(None) };
    Ok(Some(entry.is_dir() || entry.is_symlink() && is_dir(path)?))
}

/// Returns whether a path is a directory, and not a link to one.
pub(crate) fn is_real_dir(path: &Path) -> Result<bool> {
    own_metadata_if_there(path).map(|entry| entry.is_some_and(|entry| entry.is_dir()))
}

/// Returns whether a path is a regular file or a link to one.
pub fn is_file(path: &Path) -> Result<bool> {
    metadata_if_there(path).map(|target| target.is_some_and(|target| target.is_file()))
}

/// Returns whether a path is a regular file, and not a link to one; `None` if nothing is there.
///
/// Makes one call, so it stays correct if the file is removed concurrently.
pub(crate) fn is_real_file_if_there(path: &Path) -> Result<Option<bool>> {
    own_metadata_if_there(path).map(|entry| entry.map(|entry| entry.is_file()))
}

/// Returns whether a path is a regular file, and not a link to one.
pub(crate) fn is_real_file(path: &Path) -> Result<bool> {
    is_real_file_if_there(path).map(|is_file| is_file == Some(true))
}

/// Returns whether a path is a symbolic link, even if it dangles.
pub(crate) fn is_link(path: &Path) -> Result<bool> {
    own_metadata_if_there(path).map(|entry| entry.is_some_and(|entry| entry.is_symlink()))
}

/// Returns what a path is itself; `None` if nothing is there.
pub fn own_metadata_if_there(path: &Path) -> Result<Option<Metadata>> {
    if_there(path, inspect(path, || path.symlink_metadata()))
}

/// Returns what a path leads to; `None` if nothing is there.
fn metadata_if_there(path: &Path) -> Result<Option<Metadata>> {
    if_there(path, inspect(path, || path.metadata()))
}

fn if_there(path: &Path, found: io::Result<Metadata>) -> Result<Option<Metadata>> {
    match found {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Error::io("find", path, error)),
    }
}
