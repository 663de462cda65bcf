//! The identity of a file or directory: whether two paths, or a path and an open file, lead to the same one.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

/// Identifies a file or directory among all that exist at the same time. The number of a removed file is used again
/// when its last descriptor and its last map are closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity(Id);

/// The device and the inode.
#[cfg(unix)]
type Id = (u64, u64);

/// The path with all links resolved, since std has no stable file ids here.
#[cfg(not(unix))]
type Id = std::path::PathBuf;

impl Identity {
    /// Returns the identity of the file or directory that a path leads to.
    pub(crate) fn of_path(path: &Path) -> io::Result<Identity> {
        Identity::new(&path.metadata()?, path)
    }

    /// Returns the identity of an open file.
    pub(crate) fn of_file(file: &File, path: &Path) -> io::Result<Identity> {
        Identity::new(&file.metadata()?, path)
    }

    #[cfg(unix)]
    fn new(metadata: &Metadata, _: &Path) -> io::Result<Identity> {
        use std::os::unix::fs::MetadataExt;
        Ok(Identity((metadata.dev(), metadata.ino())))
    }

    #[cfg(not(unix))]
    fn new(_: &Metadata, path: &Path) -> io::Result<Identity> {
        path.canonicalize().map(Identity)
    }
}
