//! A file or directory that gets its name when it is complete, and is removed if it never is.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// A file or directory under a temporary name, `.<name>.partial-<process>`, in the directory of its target.
///
/// If the target is a symbolic link, the file it leads to is replaced, and the link stays.
pub(crate) struct Partial {
    path: PathBuf,
    target: PathBuf,
    kept: bool,
}

/// Upper bound on the symbolic links that are followed, as in Linux.
const MOST_LINKS: usize = 40;

/// Number of temporary names to try: files of earlier processes with the same id may be left.
const MOST_NAMES: u32 = 100;

impl Partial {
    /// Creates a file next to `target`, with the mode of the existing file, and its owner if permitted.
    ///
    /// Errors: `Usage` if `target` has no file name; `Io`.
    pub(crate) fn file(target: &Path) -> Result<(Partial, File)> {
        Partial::create(target, |path, target| create_like(path, target.metadata().ok().as_ref()))
    }

    /// Creates a directory next to `target`.
    ///
    /// Errors: those of [`file`](Partial::file).
    pub(crate) fn directory(target: &Path) -> Result<Partial> {
        Partial::create(target, |path, _| fs::create_dir(path)).map(|(partial, ())| partial)
    }

    fn create<T>(target: &Path, create: impl Fn(&Path, &Path) -> io::Result<T>) -> Result<(Partial, T)> {
        let no_name = || Failure::usage(format!("expected an output path with a name, found {}", target.display()));
        target.file_name().ok_or_else(no_name)?;
        let resolved = follow_links(target).map_err(|error| Failure::io("find", target, error))?;
        let name = resolved.file_name().ok_or_else(no_name)?;
        for number in 0..MOST_NAMES {
            let mut own = OsString::from(".");
            own.push(name);
            own.push(format!(".partial-{}", std::process::id()));
            if number > 0 {
                own.push(format!("-{number}"));
            }
            let path = resolved.with_file_name(own);
            match create(&path, &resolved) {
                Ok(created) => return Ok((Partial { path, target: resolved, kept: false }, created)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::io("create", &path, error)),
            }
        }
        Err(Failure::io("create a temporary file next to", target, io::ErrorKind::AlreadyExists.into()))
    }

    /// The temporary path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames it to its target, replacing a file or an empty directory, and syncs the parent directory.
    ///
    /// The content must be synced before.
    pub(crate) fn keep(mut self) -> Result<()> {
        fs::rename(&self.path, &self.target).map_err(|error| Failure::io("create", &self.target, error))?;
        self.kept = true;
        let parent = self.target.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        sync_directory(parent).map_err(|error| Failure::io("sync", parent, error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            // a failure of the cleanup is not reported
            let _ = fs::remove_file(&self.path).or_else(|_| fs::remove_dir_all(&self.path));
        }
    }
}

/// Follows the symbolic links at the end of a path. The result may not exist.
///
/// Errors: `Io` for a cycle of links, and for a link that the kernel refuses to follow (in /tmp, one of another user).
pub(super) fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match path.symlink_metadata() {
            Ok(found) if found.is_symlink() => {}
            Err(error) if !matches!(error.kind(), NotFound | NotADirectory) => return Err(error),
            _ => return Ok(path),
        }
        match path.metadata() {
            Err(error) if error.kind() != NotFound => return Err(error),
            _ => {}
        }
        let link = fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(link);
    }
    Err(io::Error::other(format!("expected at most {MOST_LINKS} symbolic links, found more: is there a cycle?")))
}

/// Creates a file with the permissions of `old`, or with the default ones.
#[cfg(unix)]
fn create_like(path: &Path, old: Option<&Metadata>) -> io::Result<File> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};

    let mut options = File::options();
    options.write(true).create_new(true);
    let Some(old) = old else { return options.open(path) };
    let file = options.mode(0o600).open(path)?; // not readable by others until its mode is set
    let new = file.metadata()?;
    let (owner, group) = (old.uid(), old.gid());
    // without the right to change the owner, the mode below still applies
    if new.uid() != owner {
        let _ = fchown(&file, Some(owner), None);
    }
    let group_is_kept = new.gid() == group || fchown(&file, None, Some(group)).is_ok();
    // a different group does not get the permissions of the old group
    let mode = if group_is_kept { old.mode() & 0o777 } else { old.mode() & 0o707 };
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(file)
}

#[cfg(not(unix))]
fn create_like(path: &Path, _old: Option<&Metadata>) -> io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

/// Syncs the names in a directory. Ignores `InvalidInput`, which file systems without this operation return.
#[cfg(unix)]
fn sync_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory)?.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

/// Does nothing: a directory cannot be opened here, and the operating system syncs its names.
#[cfg(not(unix))]
fn sync_directory(_directory: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_kept_has_its_name_and_what_is_not_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a.bin");
        let (partial, _) = Partial::file(&target).unwrap();
        fs::write(partial.path(), b"x").unwrap();
        assert!(!target.exists());
        partial.keep().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"x");

        let partial = Partial::directory(&target).unwrap();
        fs::write(partial.path().join("1"), b"y").unwrap();
        drop(partial);
        assert_eq!(names(dir.path()), ["a.bin"]);
        assert_eq!(fs::read(&target).unwrap(), b"x");
    }

    #[test]
    fn a_target_needs_a_name() {
        assert!(matches!(Partial::directory(Path::new("..")), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_file_that_is_left_by_another_process_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let left = format!(".a.partial-{}", std::process::id());
        fs::write(dir.path().join(&left), b"left").unwrap();
        let (partial, _) = Partial::file(&dir.path().join("a")).unwrap();
        partial.keep().unwrap();
        assert_eq!(names(dir.path()), [OsString::from(&left), OsString::from("a")]);
        assert_eq!(fs::read(dir.path().join(&left)).unwrap(), b"left");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_to_where_nothing_is_yet() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        symlink("b/second", dir.path().join("first")).unwrap();
        symlink("../target", dir.path().join("b/second")).unwrap();
        let (partial, _) = Partial::file(&dir.path().join("first")).unwrap();
        partial.keep().unwrap();
        assert_eq!(names(dir.path()), ["b", "first", "target"]);
        assert!(dir.path().join("first").is_symlink());

        symlink("loop", dir.path().join("loop")).unwrap();
        assert!(matches!(Partial::file(&dir.path().join("loop")), Err(Failure::Io { .. })));
    }
}
