//! Repairs a `current` that is not a link, such as the directory that a copy with followed links makes (`cp -rL`).
//!
//! A copy is removed only if a generation has all of its bytes: the original may be the damaged one. A copy that differs is
//! renamed to `current.1`, or the next free number.

use std::path::{Path, PathBuf};

use crate::bytes::read_whole;
use crate::error::{Error, Result};
use crate::format::manifest;
use crate::fs;
use crate::store::{CURRENT, GenerationId, contents, current, generations, scratch};

/// Maximum length of a text file in place of `current` that may be replaced.
const LONGEST_TEXT: u64 = 4096;

/// Prefix of the name of a copy that differs, before its number.
const ASIDE_PREFIX: &str = "current.";

/// What is in the place of `current`.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing, a link, or a short text.
    Replaceable,
    /// A directory with the bytes of this generation.
    Copy(GenerationId),
    /// A directory with the manifest of a generation, and other bytes.
    Different,
}

/// Returns what is in the place of `current`. Changes nothing.
///
/// Cost: reads a directory and its original.
///
/// Errors: `InvalidInput` if it is anything else than [`Found`] lists; `Io`.
pub(super) fn examine(store: &Path) -> Result<Found> {
    let path = store.join(CURRENT);
    if !fs::is_real_dir(&path)? {
        return check_replaceable(&path).map(|()| Found::Replaceable);
    }
    let text = |directory: &Path| read_whole(&directory.join(manifest::FILE_NAME), manifest::MAX_BYTES);
    if !contents::is_own_generation(&path)? || !fs::is_file(&path.join(manifest::FILE_NAME))? {
        return Err(irreplaceable(&path, "another directory"));
    }
    let (manifest, mut found) = (text(&path)?, None);
    for id in generations(store)?.into_iter().rev() {
        let generation = store.join(id.to_string());
        if fs::is_file(&generation.join(manifest::FILE_NAME))? && text(&generation)? == manifest {
            if fs::is_real_dir(&generation)? && has_all_of(&generation, &path)? {
                return Ok(Found::Copy(id));
            }
            found = Some(Found::Different);
        }
    }
    found.ok_or_else(|| irreplaceable(&path, "another directory"))
}

/// Makes `current` name `id`, in place of what [`examine`] found.
///
/// Errors: `InvalidInput` if a foreign file has a temporary name; `Io`.
pub(super) fn swap(store: &Path, id: GenerationId, found: &Found) -> Result<()> {
    let path = store.join(CURRENT);
    let aside = match found {
        Found::Replaceable => return current::swap(store, id),
        Found::Copy(original) => {
            let doomed = store.join(scratch::name_for_deletion(&original.to_string()));
            scratch::remove_own(&doomed)?;
            doomed
        }
        Found::Different => free_aside(store)?,
    };
    fs::rename(&path, &aside)?;
    if let Err(error) = current::swap(store, id) {
        _ = fs::rename(&aside, &path);
        return Err(error);
    }
    if let Found::Copy(_) = found { scratch::remove(&aside) } else { Ok(()) }
}

/// Returns whether a name is one that [`swap`] gives a copy that differs.
pub(super) fn is_aside_name(name: &str) -> bool {
    let number = name.strip_prefix(ASIDE_PREFIX).and_then(|number| number.parse::<u64>().ok());
    number.is_some_and(|number| name == format!("{ASIDE_PREFIX}{number}"))
}

fn free_aside(store: &Path) -> Result<PathBuf> {
    for number in 1_u64.. {
        let path = store.join(format!("{ASIDE_PREFIX}{number}"));
        if !fs::exists(&path)? {
            return Ok(path);
        }
    }
    Err(Error::internal("no number is free"))
}

/// Returns whether a generation has each file of a copy of it, with the same bytes, and not as a link, which may lead into
/// the copy.
fn has_all_of(generation: &Path, copy: &Path) -> Result<bool> {
    let differs = fs::find_entry(copy, |name, copied| {
        let original = generation.join(name);
        let are_equal = if fs::is_dir(copied)? {
            fs::is_real_dir(&original)? && has_all_of(&original, copied)?
        } else {
            fs::is_real_file(&original)? && fs::have_equal_bytes(&original, copied)?
        };
        Ok(!are_equal)
    })?;
    Ok(differs.is_none())
}

/// Checks that a `current` that is not a directory may be replaced.
///
/// Errors: `InvalidInput` if it is neither a link nor a short text file; `Io`.
fn check_replaceable(path: &Path) -> Result<()> {
    let is_text = || Ok(fs::is_real_file(path)? && fs::file_len(path)? <= LONGEST_TEXT);
    if fs::exists(path)? && !fs::is_link(path)? && !is_text()? {
        return Err(irreplaceable(path, "another kind of file"));
    }
    Ok(())
}

fn irreplaceable(path: &Path, found: &str) -> Error {
    let message = format!(
        "expected a link, a line of text or a copy of a generation of this store, found {found}: move it away, then \
         roll back"
    );
    Error::invalid_input(message).at_path(path)
}
