//! A temporary directory under a name that nobody else has: containers that share a directory may share process ids.

use std::fs;
use std::path::{Path, PathBuf};

use sharddb::internal::random_name;

use crate::context;
use crate::failure::{Failure, Result};

/// A directory that is removed when this is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates the directory in `parent`: `prefix` and 128 random bits.
    ///
    /// Errors: `Io`.
    pub(crate) fn create(parent: &Path, prefix: &str) -> Result<Scratch> {
        let path = parent.join(format!("{prefix}{}", random_name()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_its_own_directory_and_no_other() {
        let parent = tempfile::tempdir().unwrap();
        let of_others = parent.path().join(format!("sharddb-build-{}", std::process::id()));
        fs::create_dir(&of_others).unwrap();
        let two = [(), ()].map(|()| Scratch::create(parent.path(), "sharddb-build-").unwrap());
        fs::write(two[0].path().join("file"), "x").unwrap();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 3);
        drop(two);
        assert_eq!(
            fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>(),
            [of_others]
        );
        assert!(Scratch::create(&parent.path().join("missing"), "x").is_err());
    }
}
