//! Classifies a directory before anything in it is changed: a store, room for a store, or foreign.
//!
//! There is no marker file. A directory is a store if `current` names a generation. Otherwise every name in it must be
//! one that a store has, and it must have a `lock`, or else a `current` and a generation. `lost+found` and names that
//! begin with a dot are ignored, since they belong to the file system or a file manager.

use std::ffi::OsStr;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::format::info;
use crate::fs;
use crate::store::lines::check_lock;
use crate::store::parts_entry::is_parts_dir;
use crate::store::{CURRENT, GenerationId, HISTORY, LOCK, current, current_copy, moved, scratch};

/// Files that mark a directory as a Zarr or bcolz array, or a group or table of arrays.
const ARRAY_FILES: [&str; 7] =
    ["zarr.json", ".zarray", ".zgroup", ".zmetadata", "__rootdirs__", "meta/sizes", "meta/storage"];

/// The class of a path at which a store is opened or created.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathClass {
    /// A store, which may be empty.
    Store,
    /// Nothing, an empty directory, or generations or directories of partitioned builds without `current` and `lock`: a
    /// store can be created here.
    Room,
    /// Anything else, with a description for an error message.
    Foreign(String),
}

impl PathClass {
    /// Classifies a path. Changes nothing. Reads the names in the directory up to the first foreign one.
    ///
    /// Errors: `InvalidInput` if all names are those of a store but `lock` is foreign; `Io`.
    pub(super) fn of(path: &Path) -> Result<PathClass> {
        match fs::is_dir_if_there(path)? {
            None => return Ok(PathClass::Room),
            Some(false) => return Ok(PathClass::Foreign("a file that is not a directory".to_string())),
            Some(true) => {}
        }
        match current::read(path) {
            Ok(Some(_)) => return Ok(PathClass::Store),
            Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
            _ => {}
        }
        let of_arrays = ARRAY_FILES.map(|name| ("an array", name));
        for (found, name) in of_arrays.into_iter().chain([("a data set", info::FILE_NAME)]) {
            if fs::exists(&path.join(name))? {
                return Ok(PathClass::Foreign(format!("{found} ({name})")));
            }
        }
        PathClass::by_names(path)
    }

    /// Classifies a directory whose `current` is missing or damaged by all of its names.
    ///
    /// Scans again if a writer may have created or removed a new store during the scan.
    fn by_names(path: &Path) -> Result<PathClass> {
        const SCANS: usize = 10;
        for _ in 0..SCANS {
            if let Some(class) = PathClass::by_one_scan(path)? {
                return Ok(class);
            }
            std::thread::yield_now();
        }
        Ok(PathClass::Foreign("names of a store, but no lock and no generation".to_string()))
    }

    /// Classifies a directory by one scan; `None` if it has names of a store, but no lock and no generation.
    fn by_one_scan(path: &Path) -> Result<Option<PathClass>> {
        let (mut store_names, mut generations) = (false, false);
        let foreign = fs::find_entry(path, |name, path| {
            let Some(name) = name.to_str() else { return Ok(!is_ignored(name)) };
            generations |= GenerationId::from_name(name).is_some() && fs::is_dir(path)?;
            store_names |= is_store_name(name);
            Ok(!is_store_name(name) && !is_ignored(OsStr::new(name)) && !is_parts_dir(path)?)
        })?;
        if let Some(foreign) = foreign {
            let name = foreign.file_name().unwrap_or_default();
            return Ok(Some(PathClass::Foreign(format!(
                "the foreign file {name:?} and no current that names a generation"
            ))));
        }
        let lock = path.join(LOCK);
        check_lock(&lock)?;
        let current = fs::exists(&path.join(CURRENT))?;
        Ok(match fs::exists(&lock)? || current && generations {
            true => Some(PathClass::Store),
            false if generations || !store_names => Some(PathClass::Room),
            false => None,
        })
    }
}

/// The parts of a new store that [`Made::make`] created.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Made {
    directory: bool,
    pub(super) lock: bool,
}

impl Made {
    /// Returns the union of what this and a later attempt created.
    pub(super) fn and(self, later: Made) -> Made {
        Made { directory: self.directory || later.directory, lock: self.lock || later.lock }
    }

    /// Creates an empty store, durably, unless there is one.
    ///
    /// Errors: `InvalidInput` if the path is foreign; `Io`.
    pub(super) fn make(store: &Path) -> Result<Made> {
        match PathClass::of(store)? {
            PathClass::Store => return Ok(Made::default()),
            PathClass::Room => {}
            PathClass::Foreign(found) => {
                let message = format!(
                    "expected a store or an empty directory to create one in, found {found}: choose another directory"
                );
                return Err(Error::invalid_input(message).at_path(store));
            }
        }
        let directory = fs::create_dir_all(store)?;
        let lock = store.join(LOCK);
        let made = fs::create_if_absent(&lock).and_then(|made| fs::fsync_dir(store).map(|()| made));
        match made {
            Ok(made) => Ok(Made { directory, lock: made }),
            Err(error) => {
                _ = Made { directory, lock: true }.remove(&lock);
                Err(error)
            }
        }
    }

    /// Removes what was created, if the directory has nothing else. Parent directories stay, since other programs may
    /// use them.
    ///
    /// The caller holds the lock and has checked that the file is empty.
    pub(super) fn remove(self, lock: &Path) -> Result<()> {
        let Some(store) = lock.parent().filter(|_| self.lock) else { return Ok(()) };
        if fs::find_entry(store, |name, _| Ok(name != LOCK && !is_ignored(name)))?.is_some() {
            return Ok(());
        }
        fs::remove_file(lock)?;
        if self.directory { fs::remove_dir(store) } else { Ok(()) }
    }
}

/// Checks that a path is a store.
///
/// Errors: `NotFound` if a store could be created there, `InvalidInput` if the path is foreign; `Io`.
pub(super) fn check_store(path: &Path) -> Result<()> {
    let (kind, found) = match PathClass::of(path)? {
        PathClass::Store => return Ok(()),
        PathClass::Room => (ErrorKind::NotFound, "none".to_string()),
        PathClass::Foreign(found) => (ErrorKind::InvalidInput, found),
    };
    let message = format!("expected a store, which is a directory with the link current, found {found}");
    Err(Error::new(kind, message).at_path(path))
}

fn is_store_name(name: &str) -> bool {
    [CURRENT, LOCK, HISTORY].contains(&name)
        || GenerationId::from_name(name).is_some()
        || scratch::is_temporary_name(name)
        || current_copy::is_aside_name(name)
        || moved::id_of(name).is_some()
}

fn is_ignored(name: &OsStr) -> bool {
    name == "lost+found" || name.as_encoded_bytes().first() == Some(&b'.')
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, create_dir_all, write};

    use super::*;
    use crate::common::TempDir;

    /// One case for each way to be of each class; `/` at the end of a name makes a directory, `=` precedes its content.
    #[test]
    fn classifies_stores_room_and_foreign_directories() {
        let store: [&[&str]; 10] = [
            &["current=gen-0000000001"],
            &["current=gen-0000000001\n", "notes.txt="],
            &["lock="],
            &["lock=gen-0000000001\n", "gen-0000000001/"],
            &["lock=\0\0", ".DS_Store=", "lost+found/"],
            &[
                "lock=",
                "tmp-gen-12-ab/",
                "tmp-current=gen-00",
                "history/",
                "parts-3/",
                "current.1/",
                "moved-gen-0000000002=",
            ],
            &["current/", "gen-0000000001/", "lock=gen-0000000001\n"],
            &["current/", "gen-0000000001/"],
            &["current=gen-1", "gen-0000000001/"],
            &["current=", "lock="],
        ];
        let room: [&[&str]; 6] = [
            &[],
            &["lost+found/"],
            &[".hidden="],
            &["gen-0000000001/"],
            &["parts-3/"],
            &["parts-3/", "parts-3/task-1-0123456789abcdef0123456789abcdef=", "parts-3/receipts="],
        ];
        let foreign: [(&[&str], &str); 19] = [
            (&["lock=", "current.01/"], "current.01"),
            (&["lock=", "moved-gen-2="], "moved-gen-2"),
            (&["lock=", "current.old/"], "current.old"),
            (&["notes.txt="], "notes.txt"),
            (&["lock=", "notes.txt="], "notes.txt"),
            (&["current=releases/3", "releases/", "lock="], "releases"),
            (&["current/", "gen-0000000001/", "other/"], "other"),
            (&["current/"], "no generation"),
            (&["current=gen-0000000001x"], "no generation"),
            (&["gen-1/"], "gen-1"),
            (&["gen-0000000001="], "no generation"),
            (&["tmp-thesis/", "lock="], "tmp-thesis"),
            (&["history="], "no generation"),
            (&["info=", "lock="], "data set"),
            (&[".zarray=", "lock="], "an array"),
            (&["meta/", "meta/sizes=", "data/"], "an array"),
            (&["\u{1b}[31m="], "u{1b}"),
            (&["parts-notes/", "parts-notes/mine="], "parts-notes"),
            (&["parts-3="], "parts-3"),
        ];
        for names in store {
            assert_eq!(of(names).unwrap(), PathClass::Store, "{names:?}");
        }
        for names in room {
            assert_eq!(of(names).unwrap(), PathClass::Room, "{names:?}");
        }
        for (names, named) in foreign {
            let PathClass::Foreign(found) = of(names).unwrap() else { panic!("{names:?}") };
            assert!(found.contains(named), "{found}");
        }
        assert_eq!(of(&["lock=7"]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(of(&["lock/"]).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    fn of(names: &[&str]) -> Result<PathClass> {
        let directory = TempDir::new();
        for name in names {
            match name.split_once('=') {
                Some((name, content)) => write(directory.path().join(name), content).unwrap(),
                None => create_dir(directory.path().join(name)).unwrap(),
            }
        }
        PathClass::of(directory.path())
    }

    #[test]
    fn nothing_is_room_and_a_file_is_not() {
        let directory = TempDir::new();
        assert_eq!(PathClass::of(&directory.path().join("none")).unwrap(), PathClass::Room);
        write(directory.path().join("file"), "").unwrap();
        assert!(matches!(PathClass::of(&directory.path().join("file")).unwrap(), PathClass::Foreign(_)));
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_is_not_utf8_is_foreign() {
        use std::os::unix::ffi::OsStrExt;
        let directory = TempDir::new();
        write(directory.path().join(OsStr::from_bytes(b"\xff")), "").unwrap();
        assert!(matches!(PathClass::of(directory.path()).unwrap(), PathClass::Foreign(_)));
    }

    #[test]
    fn removes_what_it_made_and_nothing_else() {
        let directory = TempDir::new();
        let (new, there) = (directory.path().join("a/new"), directory.path().join("there"));
        create_dir_all(&there).unwrap();
        for (store, stays) in [(&new, false), (&there, true)] {
            let lock = store.join("lock");
            let made = Made::make(store).unwrap();
            assert!(!Made::make(store).unwrap().lock, "it is there");
            write(store.join("notes"), "").unwrap();
            made.remove(&lock).unwrap();
            assert!(lock.exists());
            std::fs::remove_file(store.join("notes")).unwrap();
            Made::default().remove(&lock).unwrap();
            assert!(lock.exists(), "another made it");
            made.remove(&lock).unwrap();
            assert_eq!((lock.exists(), store.exists()), (false, stays));
        }
        assert!(directory.path().join("a").exists());
    }
}
