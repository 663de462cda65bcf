//! The disk space that a directory takes.

use std::fs::{self, Metadata};
use std::path::Path;

use crate::failure::{Failure, Result};

/// Totals of a directory, itself included. A file with several hard links is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    /// Files that are not directories.
    pub(crate) files: u64,
    /// Files and directories.
    pub(crate) inodes: u64,
    /// The lengths of the files.
    pub(crate) apparent: u64,
    /// The allocated blocks of files and directories, in bytes; `None` if the operating system does not report them.
    pub(crate) allocated: Option<u64>,
}

impl DiskUsage {
    /// Measures a directory and everything below it, without following symbolic links.
    pub(crate) fn of(directory: &Path) -> Result<DiskUsage> {
        let mut usage = DiskUsage { allocated: Some(0), ..DiskUsage::default() };
        usage.add_directory(directory)?;
        let mut directories = vec![directory.to_path_buf()];
        while let Some(directory) = directories.pop() {
            let failure = |error| Failure::io("list", &directory, error);
            for entry in fs::read_dir(&directory).map_err(failure)? {
                let entry = entry.map_err(failure)?;
                let metadata = entry.metadata().map_err(failure)?;
                usage.add(&metadata);
                if metadata.is_dir() {
                    directories.push(entry.path());
                }
            }
        }
        Ok(usage)
    }

    fn add_directory(&mut self, directory: &Path) -> Result<()> {
        let metadata = fs::metadata(directory).map_err(|error| Failure::io("open", directory, error))?;
        self.add(&metadata);
        Ok(())
    }

    fn add(&mut self, metadata: &Metadata) {
        self.inodes += 1;
        self.allocated = self.allocated.zip(allocated(metadata)).map(|(sum, bytes)| sum + bytes);
        if !metadata.is_dir() {
            self.files += 1;
            self.apparent += metadata.len();
        }
    }
}

#[cfg(unix)]
fn allocated(metadata: &Metadata) -> Option<u64> {
    /// The unit of `st_blocks`, whatever the block size of the file system.
    const BLOCK: u64 = 512;
    Some(std::os::unix::fs::MetadataExt::blocks(metadata) * BLOCK)
}

#[cfg(not(unix))]
fn allocated(_: &Metadata) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_all_below() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("1"), [7; 5000]).unwrap();
        fs::write(dir.path().join("a/2"), [7; 10]).unwrap();
        let usage = DiskUsage::of(dir.path()).unwrap();
        assert_eq!((usage.files, usage.inodes, usage.apparent), (2, 4, 5010));
    }

    #[test]
    fn what_is_not_there_is_an_io_error() {
        assert!(matches!(DiskUsage::of(Path::new("there/is/no/such")), Err(Failure::Io { .. })));
    }
}
