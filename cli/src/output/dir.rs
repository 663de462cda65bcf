//! `dir`: a directory with a file per key, or two if it has a preamble.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::entry::exists;
use crate::failure::{Failure, Result};
use crate::output::partial::Partial;

/// A directory that gets its name when it is complete.
pub(crate) struct Dir {
    partial: Partial,
}

impl Dir {
    pub(crate) fn create(target: &Path) -> Result<Dir> {
        if target == Path::new("-") {
            return Err(Failure::usage("--format dir writes a directory: name it with --output"));
        }
        let free = match fs::read_dir(target) {
            Ok(mut entries) => entries.next().is_none(),
            Err(_) => !exists(target)?,
        };
        if !free {
            return Err(Failure::usage(format!(
                "expected a new or empty directory, found something in {}",
                target.display()
            )));
        }
        Ok(Dir { partial: Partial::directory(target)? })
    }

    /// The directory to which files are written until then.
    pub(crate) fn path(&self) -> &Path {
        self.partial.path()
    }

    /// Syncs the files and gives the directory its name.
    pub(crate) fn finish(self) -> Result<()> {
        let path = self.partial.path();
        sync_files(path).map_err(|error| Failure::io("sync", path, error))?;
        self.partial.keep()
    }
}

/// Syncs all files of a directory with one call, because one call per file takes longer than writing them.
#[cfg(target_os = "linux")]
fn sync_files(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(directory)?)?)
}

/// Syncs all files of a directory.
#[cfg(not(target_os = "linux"))]
fn sync_files(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        File::options().write(true).open(entry?.path())?.sync_all()?;
    }
    Ok(())
}
