//! Temporary names of a writer: the generation in the making, its spills, and what is renamed into or out of its place.
//!
//! Whoever holds the lock of the store may remove all that a dead writer left, spills on another file system included:
//! the directory `tmp-gen-..` has a link `spill` to them. Removed is only what has exactly a name that is made here, and
//! holds nothing but what a writer puts there; anything else may be a user's.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::store::contents::{self, is_lowercase_hex};
use crate::store::generation_id::GenerationId;
use crate::store::lines::{LINE, MAX_HISTORY, has_lines_only};
use crate::store::{fs, lock_file};

const GENERATION_PREFIX: &str = "tmp-gen-";

const DOOMED_PREFIX: &str = "tmp-gc-";

/// The next link `current`.
pub(super) const TEMPORARY_LINK: &str = "tmp-current";

/// The next file `lock`.
pub(super) const TEMPORARY_LOCK: &str = "tmp-lock";

/// The next file `history`.
pub(super) const TEMPORARY_HISTORY: &str = "tmp-history";

/// In a temporary directory: the spills, or a link to them.
const SPILL: &str = "spill";

/// The beginning of the name of a directory of spills outside of the store.
const OUTER_SPILL_PREFIX: &str = "sharddb-spill-";

/// What has a temporary name in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Temporary<'a> {
    /// A generation in the making, by the process of this id.
    Pending {
        process: &'a str,
    },
    /// A generation that is being deleted.
    Doomed,
    Link,
    Lock,
    History,
}

impl Temporary<'_> {
    /// What a name is of, if it is exactly one that a writer makes.
    fn from_name(name: &str) -> Option<Temporary<'_>> {
        match name {
            TEMPORARY_LINK => return Some(Temporary::Link),
            TEMPORARY_LOCK => return Some(Temporary::Lock),
            TEMPORARY_HISTORY => return Some(Temporary::History),
            _ => {}
        }
        if let Some(doomed) = name.strip_prefix(DOOMED_PREFIX) {
            return GenerationId::from_name(doomed).map(|_| Temporary::Doomed);
        }
        process_of(name.strip_prefix(GENERATION_PREFIX)?).map(|process| Temporary::Pending { process })
    }

    /// Whether what is at `path` holds nothing but what a writer puts there.
    fn is_native(self, path: &Path) -> bool {
        match self {
            Temporary::Pending { process } => is_native_pending(path, process),
            Temporary::Doomed => fs::is_link(path) || contents::is_native_generation(path),
            Temporary::Link => is_native_link(path),
            Temporary::Lock => is_file_of_lines(path, lock_file::MAX_LEN),
            Temporary::History => is_file_of_lines(path, (MAX_HISTORY * LINE) as u64),
        }
    }
}

/// Whether only a writer makes this name in a store.
pub(super) fn is_temporary_name(name: &str) -> bool {
    Temporary::from_name(name).is_some()
}

/// A new temporary directory for a generation.
pub(super) fn create(store: &Path) -> Result<PathBuf> {
    fs::create_unique_dir(store, GENERATION_PREFIX)
}

/// A new directory for the spills of a temporary directory: within it, or under `temp_root`.
pub(super) fn create_spill(temporary: &Path, temp_root: Option<&Path>) -> Result<PathBuf> {
    let spill = temporary.join(SPILL);
    let Some(temp_root) = temp_root else {
        fs::create_dir(&spill)?;
        return Ok(spill);
    };
    let outer = fs::create_unique_dir(&fs::canonical(temp_root)?, OUTER_SPILL_PREFIX)?;
    // in this order, since the link must never name a foreign directory; a crash in between leaves an empty one
    match fs::write_link(&outer, &spill) {
        Ok(()) => Ok(outer),
        Err(error) => {
            _ = fs::remove(&outer);
            Err(error)
        }
    }
}

/// Removes the spills of a temporary directory; fine if there are none.
pub(super) fn remove_spill(temporary: &Path) -> Result<()> {
    let spill = temporary.join(SPILL);
    if let Some(outer) = outer_spill(&spill) {
        fs::remove(&outer)?;
    }
    fs::remove(&spill)
}

/// Removes a temporary directory and its spills; fine if there is nothing.
pub(super) fn remove(temporary: &Path) -> Result<()> {
    if fs::is_real_dir(temporary) {
        remove_spill(temporary)?; // through a link it would be somebody else's
    }
    fs::remove(temporary)
}

/// Removes what has one of the temporary names for a single file; fine if there is nothing.
///
/// Errors: `InvalidInput` if it is not what a writer puts there.
pub(super) fn remove_native(temporary: &Path) -> Result<()> {
    check_native(temporary)?;
    fs::remove(temporary)
}

/// Errors: `InvalidInput` if there is something else in a temporary place than what a writer puts there.
pub(super) fn check_native(temporary: &Path) -> Result<()> {
    let native = || Temporary::from_name(temporary.file_name()?.to_str()?).map(|kind| kind.is_native(temporary));
    if fs::exists(temporary)? && native() != Some(true) {
        let message = "expected what a writer of the store left, or nothing, found something else: move it away";
        return Err(Error::invalid_input(message).at_path(temporary));
    }
    Ok(())
}

/// Checks that a generation may be removed.
///
/// Errors: `InvalidInput` if it is not a directory, or holds something that no generation has; `Io`. A link to one may:
/// only the link is removed.
pub(super) fn check_generation(generation: &Path) -> Result<()> {
    if fs::is_link(generation) {
        return Ok(());
    }
    let foreign = match fs::is_real_dir(generation) {
        true => contents::foreign_in_generation(generation)?,
        false => Some(generation.to_path_buf()),
    };
    match foreign {
        None => Ok(()),
        Some(foreign) => {
            let message = "expected only the files of a generation in what is to be removed, found something else: \
                           move it away";
            Err(Error::invalid_input(message).at_path(&foreign))
        }
    }
}

/// The name that a generation has while it is deleted.
pub(super) fn name_for_deletion(generation: &str) -> String {
    format!("{DOOMED_PREFIX}{generation}")
}

/// Removes what dead writers left. What cannot be removed takes space and does no other harm, so it stays until
/// the next writer tries; it must not keep anybody from, say, a rollback.
pub(super) fn clear(store: &Path) -> Result<()> {
    let mut names = fs::names(store)?;
    names.retain(|name| Temporary::from_name(name).is_some_and(|kind| kind.is_native(&store.join(name))));
    // who renamed a generation away may have died before that was on the disk: with files gone it must not come back
    if !names.is_empty() && fs::fsync_dir(store).is_ok() {
        names.iter().for_each(|name| _ = remove(&store.join(name)));
    }
    Ok(())
}

/// The process id in what [`fs::create_unique_dir`] puts after a prefix.
fn process_of(suffix: &str) -> Option<&str> {
    let (process, nanos) = suffix.split_once('-')?;
    let is_id = process.parse::<u32>().is_ok_and(|id| id.to_string() == process);
    (is_id && is_lowercase_hex(nanos) && nanos.len() <= 32).then_some(process)
}

/// Whether a directory holds nothing but files of a generation and `spill`, a directory of spills or a link to one.
fn is_native_pending(directory: &Path, process: &str) -> bool {
    let foreign = || {
        fs::find_entry(directory, |name, path| match name.to_str() {
            Some(SPILL) => !is_native_spill(path, process),
            Some(name) => !contents::is_generation_name(name) || !fs::is_real_file(path),
            None => true,
        })
    };
    fs::is_real_dir(directory) && foreign().is_ok_and(|foreign| foreign.is_none())
}

/// Whether it is a directory of spills, or a link to one of the same process, which may be gone.
fn is_native_spill(spill: &Path, process: &str) -> bool {
    if fs::is_real_dir(spill) {
        return contents::is_native_spill(spill);
    }
    let Some(outer) = outer_spill(spill) else { return false };
    let of_process = || process_of(outer.file_name()?.to_str()?.strip_prefix(OUTER_SPILL_PREFIX)?);
    of_process() == Some(process)
        && (fs::exists(&outer).is_ok_and(|exists| !exists) || contents::is_native_spill(&outer))
}

fn is_file_of_lines(path: &Path, max_len: u64) -> bool {
    let has_lines = || has_lines_only(&fs::open_real_file(path)?, path, max_len);
    fs::is_real_file(path) && has_lines().is_ok_and(|lines| lines)
}

/// Whether it is a link to a generation; where there are no links, a file with its name, be it a torn one.
fn is_native_link(link: &Path) -> bool {
    let Ok(Some(target)) = fs::read_link(link) else { return false };
    let Some(target) = target.to_str() else { return false };
    let name = b"gen-0000000000";
    let is_torn = || target.len() <= name.len() && target.bytes().zip(name).all(is_of_name);
    GenerationId::from_name(target).is_some() || fs::is_real_file(link) && is_torn()
}

fn is_of_name((byte, pattern): (u8, &u8)) -> bool {
    byte == *pattern || byte == 0 || *pattern == b'0' && byte.is_ascii_digit()
}

/// The directory outside of the store that a link `spill` names.
fn outer_spill(spill: &Path) -> Option<PathBuf> {
    let outer = fs::read_link(spill).ok()??;
    let name = outer.file_name()?.to_str()?;
    process_of(name.strip_prefix(OUTER_SPILL_PREFIX)?)?;
    outer.is_absolute().then_some(outer)
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};

    use super::*;
    use crate::store::testing::TempDir;

    #[test]
    fn clears_its_own_names_and_no_others() {
        let (store, temp_root) = (TempDir::new(), TempDir::new());
        let inner = create_spill(&create(store.path()).unwrap(), None).unwrap();
        let outer = create_spill(&create(store.path()).unwrap(), Some(temp_root.path())).unwrap();
        write(inner.join("00000001.run"), "x").unwrap();
        write(outer.join("00000001.run"), "x").unwrap();
        let generation = store.path().join("gen-0000000001");
        create_dir(&generation).unwrap();
        create_dir(generation.join("spill")).unwrap();
        fs::write_link(Path::new("gen-0000000001"), &store.path().join("tmp-current")).unwrap();
        create_dir(store.path().join("other")).unwrap();
        clear(store.path()).unwrap();
        assert_eq!(store.names(), ["gen-0000000001", "other"]);
        assert_eq!(temp_root.names(), [""; 0]);
        assert!(generation.join("spill").exists(), "a link is removed, not what it names");
    }

    /// A link that was tampered with leads to nothing but spills of the same process.
    #[test]
    fn follows_a_link_to_spills_only() {
        for name in ["precious", "sharddb-spill-", "sharddb-spill-x-1", "sharddb-spill-1-00", "sharddb-spill-thesis"] {
            let (store, elsewhere) = (TempDir::new(), TempDir::new());
            let precious = elsewhere.path().join(name);
            create_dir(&precious).unwrap();
            fs::write_link(&precious, &create(store.path()).unwrap().join(SPILL)).unwrap();
            clear(store.path()).unwrap();
            assert_eq!((store.names().len(), elsewhere.names()), (1, vec![name.to_string()]));
        }
    }

    #[test]
    fn names_are_exact() {
        for name in ["tmp-current", "tmp-lock", "tmp-gc-gen-0000000001", "tmp-gen-1-0", "tmp-gen-4294967295-18a3f"] {
            assert!(is_temporary_name(name), "{name}");
        }
        let foreign = ["tmp-", "tmp-thesis", "tmp-gen-", "tmp-gen-1", "tmp-gen-1-", "tmp-gen-01-a", "tmp-gen-1-A"];
        let foreign =
            foreign.into_iter().chain(["tmp-gen-1-a-b", "tmp-gen--1", "tmp-gen-+1-a", "tmp-gc-", "tmp-gc-gen-1"]);
        for name in
            foreign.chain(["tmp-gen-99999999999-a", "tmp-current~", "tmp-currents", "tmp-locks", "tmp-gc-0000000001"])
        {
            assert!(!is_temporary_name(name), "{name}");
        }
    }

    /// A name of ours with contents that no writer makes: the contents decide, and all of it stays.
    #[test]
    fn leaves_what_no_writer_makes() {
        type Make = fn(&Path);
        let cases: [(&str, Make); 9] = [
            ("tmp-gen-1-a", |path| write(path, "notes").unwrap()),
            ("tmp-gen-1-a", |path| {
                _ = [create_dir(path), write(path.join("0.shard"), "x"), write(path.join("notes.txt"), "x")]
                    .map(Result::unwrap)
            }),
            ("tmp-gen-1-a", |path| _ = [create_dir(path), create_dir(path.join("0.shard"))].map(Result::unwrap)),
            ("tmp-gen-1-a", |path| _ = [create_dir(path), write(path.join("spill"), "/")].map(Result::unwrap)),
            ("tmp-gc-gen-0000000001", |path| write(path, "x").unwrap()),
            ("tmp-gc-gen-0000000001", |path| _ = [create_dir(path), create_dir(path.join("sub"))].map(Result::unwrap)),
            ("tmp-current", |path| write(path, "notes").unwrap()),
            ("tmp-current", |path| create_dir(path).unwrap()),
            ("tmp-lock", |path| write(path, "notes").unwrap()),
        ];
        for (name, make) in cases {
            let store = TempDir::new();
            make(&store.path().join(name));
            let listed = crate::store::testing::names(store.path());
            clear(store.path()).unwrap();
            assert_eq!(store.names(), listed, "{name}");
        }
    }

    #[test]
    fn a_temp_root_must_be_there() {
        let store = TempDir::new();
        let temporary = create(store.path()).unwrap();
        let error = create_spill(&temporary, Some(&store.path().join("none"))).unwrap_err();
        assert_eq!(error.path(), Some(&*store.path().join("none")));
    }
}
