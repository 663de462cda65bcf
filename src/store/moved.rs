//! `moved-gen-N`: the record of a user's directory that is moved into the store as generation N.
//!
//! ```text
//! gen-0000000002 <- /data/incoming
//! ```
//!
//! It is written, durably, before the directory is renamed, and removed once `current` names the generation, durably. If
//! the publication fails between, and the directory cannot be renamed back, the generation is the user's only copy: while
//! there is a record, it is not collected or discarded, and is no entry of a history that goes by numbers. A record is void
//! if there is no such generation, or `current` names it. The history does not count: of a store without `current`, also
//! the line of a generation that never was current is there.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::bytes::read_whole;
use crate::error::{Error, Result};
use crate::fs;
use crate::store::{GenerationId, current, intact};

const PREFIX: &str = "moved-";

/// Maximum length of a record in bytes; longer than any path.
const MAX_LEN: u64 = 1 << 16;

/// A directory that was moved into a store and has not become current; see [`Store::moved_in`](crate::Store::moved_in).
///
/// `Display` says what it is, and what to do.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// for moved in sharddb::Store::open("store")?.moved_in()? {
///     eprintln!("{moved}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovedIn {
    /// The generation that it is now.
    pub id: GenerationId,
    /// The path that it had.
    pub from: PathBuf,
}

impl fmt::Display for MovedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MovedIn { id, from } = self;
        write!(
            f,
            "{id} is the directory {}, which was moved into the store and has not become current: roll back to {id} to \
             publish it, or rename it to its old path",
            from.display()
        )
    }
}

/// Checks that [`record`] does not replace a foreign file.
///
/// Errors: `InvalidInput`; `Io`.
pub(super) fn check(store: &Path, id: GenerationId) -> Result<()> {
    let path = path_of(store, id);
    if fs::exists(&path)? && read(&path, id)?.is_none() {
        let message = "expected the record of a move or nothing at this path, found a foreign file: move it away";
        return Err(Error::invalid_input(message).at_path(&path));
    }
    Ok(())
}

/// Records, durably, that a directory is about to be moved into the store.
///
/// Errors: those of [`check`]; `Io`.
pub(super) fn record(store: &Path, id: GenerationId, from: &Path) -> Result<()> {
    check(store, id)?;
    let path = path_of(store, id);
    fs::remove_file(&path)?; // of a publication that was killed before it used up the number
    let text = [&head(id), from.as_os_str().as_encoded_bytes(), b"\n"].concat();
    fs::write_new(&path, &text).inspect_err(|_| _ = fs::remove_file(&path))?;
    fs::fsync_dir(store)
}

/// Removes the record of a generation, which is current or was renamed back. Ignores errors: the record is void then, and
/// the next writer removes it.
pub(super) fn forget(store: &Path, id: GenerationId) {
    if read(&path_of(store, id), id).is_ok_and(|record| record.is_some()) {
        _ = fs::remove_file(&path_of(store, id));
    }
}

/// Returns the directories that were moved in and have not become current, by their numbers.
///
/// Errors: `Io`.
pub(super) fn read_all(store: &Path) -> Result<Vec<MovedIn>> {
    let mut held = Vec::new();
    for id in fs::names(store)?.iter().filter_map(|name| id_of(name)) {
        if let Some(from) = held_from(store, id)? {
            held.push(MovedIn { id, from });
        }
    }
    Ok(held)
}

/// Returns the path that a generation had, if it was moved in and has not become current.
///
/// Errors: `Io`.
pub(super) fn held_from(store: &Path, id: GenerationId) -> Result<Option<PathBuf>> {
    let Some(from) = read(&path_of(store, id), id)? else { return Ok(None) };
    let current = match current::read(store) {
        Err(error) if intact::is_damage(&error) => None,
        current => current?,
    };
    Ok((current != Some(id) && fs::exists(&store.join(id.to_string()))?).then_some(from))
}

/// Removes void records. Ignores errors, as [`forget`] does.
pub(super) fn clear(store: &Path) -> Result<()> {
    let recorded = fs::names(store)?.into_iter().filter_map(|name| id_of(&name));
    recorded.filter(|id| matches!(held_from(store, *id), Ok(None))).for_each(|id| forget(store, id));
    Ok(())
}

fn path_of(store: &Path, id: GenerationId) -> PathBuf {
    store.join(format!("{PREFIX}{id}"))
}

/// Returns the generation of a record by its name; `None` if that is not exactly the name of one.
pub(super) fn id_of(name: &str) -> Option<GenerationId> {
    GenerationId::from_name(name.strip_prefix(PREFIX)?)
}

/// The bytes of a record before the path.
fn head(id: GenerationId) -> Vec<u8> {
    format!("{id} <- ").into_bytes()
}

/// Reads a record: the path in it, empty if a crash cut it. `None` if there is none, or a foreign file.
fn read(path: &Path, id: GenerationId) -> Result<Option<PathBuf>> {
    if !fs::is_real_file(path)? || fs::file_len(path)? > MAX_LEN {
        return Ok(None);
    }
    let (text, head) = (read_whole(path, MAX_LEN)?, head(id));
    if head.starts_with(&text) || text.iter().all(|byte| *byte == 0) {
        return Ok(Some(PathBuf::new()));
    }
    let from = text.strip_prefix(&*head).map(|from| from.strip_suffix(b"\n").unwrap_or(from));
    Ok(from.map(path_from_bytes))
}

#[cfg(unix)]
fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(not(unix))]
fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::new(&*String::from_utf8_lossy(bytes)))
}
