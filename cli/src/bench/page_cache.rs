//! Cold lookups: dropping pages from memory, and counting the bytes that are then read from the disk.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::failure::{Failure, Result};

/// What is dropped from memory before cold lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cold {
    /// The pages of the measured files; names and inodes stay cached. Needs no privileges
    Files,
    /// The page cache of the entire machine, with names and inodes. Needs root, and slows other programs for a while
    Machine,
    /// Nothing: no cold lookups
    No,
}

impl Cold {
    /// The reason why this platform cannot measure cold lookups, if it cannot.
    pub(crate) fn impossible() -> Option<&'static str> {
        (!cfg!(target_os = "linux")).then_some("only Linux lets a program drop pages and count what it reads")
    }

    /// Drops pages; `files` are those that the lookups will read. None of them may be mapped.
    pub(crate) fn drop_pages(self, files: &[PathBuf]) -> Result<()> {
        match self {
            Cold::Files => files.iter().try_for_each(|file| drop_pages_of(file)),
            Cold::Machine => drop_all_pages(),
            Cold::No => Ok(()),
        }
    }

    /// Describes the cache state of cold lookups, for the report.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Cold::Files => {
                "the pages of the files were dropped first, but not their names and inodes, which favours one file per \
                 key; --cold machine drops these too"
            }
            Cold::Machine => "the page cache of the machine was dropped first, with names and inodes",
            Cold::No => "not measured",
        }
    }
}

#[cfg(target_os = "linux")]
fn drop_pages_of(path: &Path) -> Result<()> {
    use rustix::fs::{Advice, fadvise};
    let failure = |error| Failure::io("open", path, error);
    let file = std::fs::File::open(path).map_err(failure)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| Failure::io("drop the pages of", path, error.into()))
}

#[cfg(not(target_os = "linux"))]
fn drop_pages_of(_: &Path) -> Result<()> {
    Ok(())
}

fn drop_all_pages() -> Result<()> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    #[cfg(target_os = "linux")]
    rustix::fs::sync(); // the kernel keeps dirty pages
    std::fs::write(path, "3").map_err(|error| Failure::io("write to", path, error))
}

/// Bytes read from a disk for this process so far; `None` if the operating system does not report them.
pub(crate) fn disk_reads() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}
