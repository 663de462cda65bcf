//! A temporary directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::context;
use crate::failure::{Failure, Result};

/// A directory that is removed when this is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates the directory in `parent`.
    ///
    /// Errors: `Io`, also if a directory of that name exists.
    pub(crate) fn create(parent: &Path) -> Result<Scratch> {
        let path = parent.join(format!(".sharddb-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| Failure::io("make", &path, error))?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            context::warn(format_args!("sharddb: {} stays: {error}", self.0.display()));
        }
    }
}
