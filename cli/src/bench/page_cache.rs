//! What makes a lookup cold: files whose pages are not in memory, and a count of what then comes from the disk.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::failure::{Failure, Result};

/// What is dropped from memory before cold lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cold {
    /// The pages of the files that are measured; names and inodes stay. Needs no rights
    Files,
    /// The page cache of the whole machine, with names and inodes. Needs root, and slows everybody for a while
    Machine,
    /// Nothing: no cold lookups
    No,
}

impl Cold {
    /// Why there can be no cold lookups on this system, if so.
    pub(crate) fn impossible() -> Option<&'static str> {
        (!cfg!(target_os = "linux")).then_some("only Linux lets a program drop pages and count what it reads")
    }

    /// Drops what is to be dropped; `files` are those that will be read. None of them may be mapped.
    pub(crate) fn drop_pages(self, files: &[PathBuf]) -> Result<()> {
        match self {
            Cold::Files => files.iter().try_for_each(|file| drop_pages_of(file)),
            Cold::Machine => drop_all_pages(),
            Cold::No => Ok(()),
        }
    }

    /// What the lookups after it are like.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Cold::Files => {
                "the pages of the files were dropped before, their names and inodes were not, which helps one file a \
                 key; --cold machine drops these too"
            }
            Cold::Machine => "the page cache of the machine was dropped before, with names and inodes",
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
    rustix::fs::sync(); // dirty pages are not dropped
    std::fs::write(path, "3").map_err(|error| Failure::io("write to", path, error))
}

/// Bytes that were fetched from a disk for this process so far; `None` where the system does not tell.
pub(crate) fn disk_reads() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}
