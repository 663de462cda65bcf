//! The identity of a file or directory: whether two paths, or a path and an open file, lead to the same one.

use std::fs::File;
use std::io;
use std::path::Path;

/// Identifies a file or directory among all that exist at the same time. The number of a removed file is used again
/// when its last descriptor and its last map are closed.
#[cfg(unix)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// Identifies a file or directory by its path with all links resolved, since std has no stable file ids here.
#[cfg(not(unix))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity(std::path::PathBuf);

#[cfg(unix)]
impl Identity {
    /// Returns the identity of the file or directory that a path leads to.
    pub(crate) fn of_path(path: &Path) -> io::Result<Identity> {
        path.metadata().map(|metadata| Identity::new(&metadata))
    }

    /// Returns the identity of an open file.
    pub(crate) fn of_file(file: &File, _: &Path) -> io::Result<Identity> {
        file.metadata().map(|metadata| Identity::new(&metadata))
    }

    fn new(metadata: &std::fs::Metadata) -> Identity {
        use std::os::unix::fs::MetadataExt;
        Identity { device: metadata.dev(), inode: metadata.ino() }
    }
}

#[cfg(not(unix))]
impl Identity {
    /// Returns the identity of the file or directory that a path leads to.
    pub(crate) fn of_path(path: &Path) -> io::Result<Identity> {
        path.canonicalize().map(Identity)
    }

    /// Returns the identity of an open file: that of the path by which it was opened.
    pub(crate) fn of_file(_: &File, path: &Path) -> io::Result<Identity> {
        Identity::of_path(path)
    }
}
