//! Temporary files of a writer: unpublished generations, their spill files, and files before or after a rename.
//!
//! The holder of the store's lock may remove the temporary files of a dead writer, including spill files on another
//! file system, to which the link `spill` in the directory `tmp-gen-*` leads. An entry is removed only if it is *own*:
//! its name is exactly one that is made here, and it holds only what a writer puts there. Anything else may belong to
//! the user.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::format::nested::is_shards_entry;
use crate::fs;
use crate::store::lines::{LINE_LEN, MAX_HISTORY, MAX_LOCK_LEN, has_lines_only, may_be_lines};
use crate::store::{GenerationId, contents};

const GENERATION_PREFIX: &str = "tmp-gen-";

const DOOMED_PREFIX: &str = "tmp-gc-";

/// The link `current` before it is renamed into place.
pub(super) const TEMPORARY_LINK: &str = "tmp-current";

/// The file `lock` before it is renamed into place.
pub(super) const TEMPORARY_LOCK: &str = "tmp-lock";

/// The file `history` before it is renamed into place.
pub(super) const TEMPORARY_HISTORY: &str = "tmp-history";

/// The entry of a temporary directory that holds the spill files, or links to them.
const SPILL: &str = "spill";

/// Prefix of the name of a spill directory outside of the store.
const OUTER_SPILL_PREFIX: &str = "sharddb-spill-";

/// The kinds of temporary names in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Temporary<'a> {
    /// An unpublished generation of the process with this id.
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
    /// Returns the kind of a name; `None` if it is not exactly one that a writer makes.
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

    /// Returns whether the entry at `path` holds only what a writer puts there.
    fn is_own(self, path: &Path) -> Result<bool> {
        match self {
            Temporary::Pending { process } => is_own_pending(path, process),
            Temporary::Doomed => Ok(fs::is_link(path)? || contents::is_own_generation(path)?),
            Temporary::Link => is_own_link(path),
            Temporary::Lock => is_file_of_lines(path, MAX_LOCK_LEN),
            Temporary::History => is_file_of_lines(path, (MAX_HISTORY * LINE_LEN) as u64),
        }
    }
}

/// Returns whether a name is exactly one that a writer makes for a temporary file.
pub(super) fn is_temporary_name(name: &str) -> bool {
    Temporary::from_name(name).is_some()
}

/// Whether a directory has the name of an unpublished generation.
pub(crate) fn is_candidate(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(GENERATION_PREFIX) && is_temporary_name(name))
}

/// Creates a temporary directory for a generation.
pub(super) fn create(store: &Path) -> Result<PathBuf> {
    fs::create_unique_dir(store, GENERATION_PREFIX)
}

/// Creates a directory for the spill files of a temporary directory: within it, or under `temp_root`.
pub(crate) fn create_spill(temporary: &Path, temp_root: Option<&Path>) -> Result<PathBuf> {
    let spill = temporary.join(SPILL);
    let Some(temp_root) = temp_root else {
        fs::create_dir(&spill)?;
        return Ok(spill);
    };
    let outer = fs::create_unique_dir(&fs::canonical(temp_root)?, OUTER_SPILL_PREFIX)?;
    // directory first, since the link must never name a foreign one; a crash in between leaves an empty directory
    match fs::write_link(&outer, &spill) {
        Ok(()) => Ok(outer),
        Err(error) => {
            _ = fs::remove(&outer);
            Err(error)
        }
    }
}

/// Removes the spill files of a temporary directory, if there are any.
pub(crate) fn remove_spill(temporary: &Path) -> Result<()> {
    let spill = temporary.join(SPILL);
    if let Some(outer) = outer_spill(&spill)? {
        fs::remove(&outer)?;
    }
    fs::remove(&spill)
}

/// Removes a temporary directory and its spill files. Does nothing if nothing is there.
pub(crate) fn remove(temporary: &Path) -> Result<()> {
    if fs::is_real_dir(temporary)? {
        remove_spill(temporary)?; // not through a link, whose target may be foreign
    }
    remove_doomed(temporary)
}

/// Removes a generation under its temporary name, a link, or any other temporary entry.
///
/// The directory of the shards goes first, and durably: it is own only as long as the manifest names it, so a crash must
/// not leave it without the manifest.
pub(super) fn remove_doomed(temporary: &Path) -> Result<()> {
    if let Some(shards) = contents::shards_entry(temporary)? {
        fs::remove(&shards)?;
        fs::fsync_dir(temporary)?;
    }
    fs::remove(temporary)
}

/// Removes the entry at a temporary path. Does nothing if nothing is there.
///
/// Errors: `InvalidInput` if a writer did not make it; `Io`.
pub(super) fn remove_own(temporary: &Path) -> Result<()> {
    check_own(temporary)?;
    fs::remove(temporary)
}

/// Checks that a temporary path has nothing, or what a writer puts there.
///
/// Errors: `InvalidInput` if it has anything else; `Io`.
pub(super) fn check_own(temporary: &Path) -> Result<()> {
    let name = temporary.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_own = || Temporary::from_name(name).map_or(Ok(false), |kind| kind.is_own(temporary));
    if fs::exists(temporary)? && !is_own()? {
        let message =
            "expected a temporary file of the store or nothing at this path, found a foreign file: move it away";
        return Err(Error::invalid_input(message).at_path(temporary));
    }
    Ok(())
}

/// Checks that a generation may be removed.
///
/// A link passes, since only the link is removed.
///
/// Errors: `InvalidInput` if it is not a directory, or has a foreign file; `Io`.
pub(super) fn check_generation(generation: &Path) -> Result<()> {
    if fs::is_link(generation)? {
        return Ok(());
    }
    let foreign = if fs::is_real_dir(generation)? {
        contents::foreign_in_generation(generation)?
    } else {
        Some(generation.to_path_buf())
    };
    match foreign {
        None => Ok(()),
        Some(foreign) => {
            let message = "expected only the files of a generation in the generation to remove, found another: \
                           move it away";
            Err(Error::invalid_input(message).at_path(&foreign))
        }
    }
}

/// Returns the name that a generation has while it is deleted.
pub(super) fn name_for_deletion(generation: &str) -> String {
    format!("{DOOMED_PREFIX}{generation}")
}

/// Removes the temporary files of dead writers.
///
/// Ignores errors of removal, and what cannot be recognised because a read fails: what stays only takes space, the next
/// writer tries again, and a writer that wants to roll back must not fail because of it.
pub(super) fn clear(store: &Path) -> Result<()> {
    let mut names = fs::names(store)?;
    let is_own = |kind: Temporary<'_>, name: &str| kind.is_own(&store.join(name)).unwrap_or(false);
    names.retain(|name| Temporary::from_name(name).is_some_and(|kind| is_own(kind, name)));
    // makes the rename of a deleted generation durable: a crash must not restore its name once files are gone
    if !names.is_empty() && fs::fsync_dir(store).is_ok() {
        names.iter().for_each(|name| _ = remove(&store.join(name)));
    }
    Ok(())
}

/// Parses what [`fs::create_unique_dir`] puts after a prefix, and returns the process id.
pub(crate) fn process_of(suffix: &str) -> Option<&str> {
    let (process, nanos) = suffix.split_once('-')?;
    let is_id = process.parse::<u32>().is_ok_and(|id| id.to_string() == process);
    (is_id && contents::is_lowercase_hex(nanos) && nanos.len() <= 32).then_some(process)
}

/// Returns whether a directory holds only files of a generation, at most one directory for its shards, and `spill`, a
/// spill directory or a link to one.
fn is_own_pending(directory: &Path, process: &str) -> Result<bool> {
    let mut has_shards = false;
    has_own_spill_and(directory, process, |name, path| {
        if is_shards_entry(name) && fs::is_real_dir(path)? {
            return Ok(!std::mem::replace(&mut has_shards, true) && contents::is_own_shards_directory(path)?);
        }
        Ok(contents::is_generation_name(name) && fs::is_real_file(path)?)
    })
}

/// Returns whether a directory holds only shards and `spill`, a spill directory or a link to one.
pub(super) fn is_own_part(directory: &Path, process: &str) -> Result<bool> {
    has_own_spill_and(directory, process, |name, path| Ok(contents::is_shard_name(name) && fs::is_real_file(path)?))
}

/// Returns whether a path is a directory in which each entry but a `spill` of its own is own.
fn has_own_spill_and(
    directory: &Path,
    process: &str,
    mut is_own: impl FnMut(&str, &Path) -> Result<bool>,
) -> Result<bool> {
    let is_foreign = |name: &OsStr, path: &Path| match name.to_str() {
        Some(SPILL) => Ok(!is_own_spill(path, process)?),
        Some(name) => Ok(!is_own(name, path)?),
        None => Ok(true),
    };
    Ok(fs::is_real_dir(directory)? && fs::find_entry(directory, is_foreign)?.is_none())
}

/// Returns whether a path is a spill directory, or a link to one of the same process, which may be removed already.
fn is_own_spill(spill: &Path, process: &str) -> Result<bool> {
    if fs::is_real_dir(spill)? {
        return contents::is_own_spill(spill);
    }
    let Some(outer) = outer_spill(spill)?.filter(|outer| process_of_spill(outer) == Some(process)) else {
        return Ok(false);
    };
    Ok(!fs::exists(&outer)? || contents::is_own_spill(&outer)?)
}

fn is_file_of_lines(path: &Path, max_len: u64) -> Result<bool> {
    Ok(fs::is_real_file(path)? && has_lines_only(&fs::open_real_file(path)?, path, max_len)?)
}

/// Returns whether a path is a link to a generation, or a text file with its name, which may be torn.
fn is_own_link(link: &Path) -> Result<bool> {
    let target = target_of(link)?;
    let Some(target) = target.as_deref().and_then(Path::to_str) else { return Ok(false) };
    let may_be_torn = target.len() < LINE_LEN && may_be_lines(target.as_bytes()); // a name without the line feed
    Ok(GenerationId::from_name(target).is_some() || fs::is_real_file(link)? && may_be_torn)
}

/// Returns the spill directory outside of the store that a link `spill` names.
fn outer_spill(spill: &Path) -> Result<Option<PathBuf>> {
    Ok(target_of(spill)?.filter(|outer| outer.is_absolute() && process_of_spill(outer).is_some()))
}

fn process_of_spill(outer: &Path) -> Option<&str> {
    process_of(outer.file_name()?.to_str()?.strip_prefix(OUTER_SPILL_PREFIX)?)
}

/// Returns the target of a link, or of a text file in its place; `None` if neither is there.
fn target_of(link: &Path) -> Result<Option<PathBuf>> {
    match fs::read_link(link) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        target => target,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};

    use super::*;
    use crate::common::TempDir;

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

    /// A link `spill` is followed only if its target has the name of a spill directory of the same process.
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

    /// An entry with the name of a temporary file and foreign contents stays, completely.
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
            let listed = crate::common::generations::names(store.path());
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
