//! A file or directory that gets its name when it is complete, and is removed if it never is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// What is being written under a name of its own: `.<name>.partial-<process>`, in the same directory.
pub(crate) struct Partial {
    path: PathBuf,
    target: PathBuf,
    kept: bool,
}

impl Partial {
    /// A partial beside `target`; creates nothing.
    ///
    /// Errors: `Usage` if `target` names no file.
    pub(crate) fn beside(target: &Path) -> Result<Partial> {
        let Some(name) = target.file_name() else {
            return Err(Failure::usage(format!("expected the name of an output, found {}", target.display())));
        };
        let mut own = std::ffi::OsString::from(".");
        own.push(name);
        own.push(format!(".partial-{}", std::process::id()));
        Ok(Partial { path: target.with_file_name(own), target: target.to_path_buf(), kept: false })
    }

    /// Where to write.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name, in the place of a file or an empty directory of that name.
    pub(crate) fn keep(mut self) -> Result<()> {
        fs::rename(&self.path, &self.target).map_err(|error| Failure::io("create", &self.target, error))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            // it may never have been created, and there is nobody left to tell
            let _ = fs::remove_file(&self.path).or_else(|_| fs::remove_dir_all(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_its_name_and_what_is_not_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a.bin");
        let partial = Partial::beside(&target).unwrap();
        fs::write(partial.path(), b"x").unwrap();
        assert!(!target.exists());
        partial.keep().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"x");

        let partial = Partial::beside(&target).unwrap();
        fs::create_dir(partial.path()).unwrap();
        fs::write(partial.path().join("1"), b"y").unwrap();
        drop(partial);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["a.bin"]);
        assert_eq!(fs::read(&target).unwrap(), b"x");
    }

    #[test]
    fn a_target_needs_a_name() {
        assert!(matches!(Partial::beside(Path::new("..")), Err(Failure::Usage(_))));
    }
}
