//! `dir`: one file per key, or two if it has a prefix: `7` with the prefix and `7.index` with the value.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::output::partial::Partial;
use crate::output::{Output, failure};

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
            Err(_) => !target.exists(),
        };
        if !free {
            return Err(Failure::usage(format!(
                "expected a new or empty directory, found something in {}",
                target.display()
            )));
        }
        Ok(Dir { partial: Partial::directory(target)? })
    }

    fn file(&self, name: String, bytes: &[u8]) -> Result<()> {
        let path: PathBuf = self.partial.path().join(name);
        fs::write(&path, bytes).map_err(|error| failure(&path, error))
    }
}

impl Output for Dir {
    fn write(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        if prefix.is_empty() {
            return self.file(key.to_string(), value);
        }
        self.file(key.to_string(), prefix)?;
        self.file(format!("{key}.index"), value)
    }

    fn finish(self: Box<Self>) -> Result<()> {
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
