//! Repairs a `current` that is not a link, such as the directory that a copy with followed links makes (`cp -rL`).

use std::path::Path;

use crate::bytes::read_whole;
use crate::error::{Error, Result};
use crate::format::manifest;
use crate::fs;
use crate::store::generation_id::GenerationId;
use crate::store::names::CURRENT;
use crate::store::{contents, current, generations, scratch};

/// Maximum length of a text file in place of `current` that may be replaced.
const LONGEST_TEXT: u64 = 4096;

/// Checks that [`swap`] would not lose data. Changes nothing.
///
/// Errors: those of [`swap`].
pub(super) fn check(store: &Path) -> Result<()> {
    let path = store.join(CURRENT);
    match fs::is_real_dir(&path)? {
        true => original_of(store, &path)?.map(|_| ()).ok_or_else(|| irreplaceable(&path, "another directory")),
        false => check_replaceable(&path),
    }
}

/// Makes `current` name `id`. Replaces a link, a short text, or a copy of an existing generation.
///
/// Errors: `InvalidInput` if `current` is anything else; `Io`.
pub(super) fn swap(store: &Path, id: GenerationId) -> Result<()> {
    let path = store.join(CURRENT);
    if !fs::is_real_dir(&path)? {
        check_replaceable(&path)?;
        return current::swap(store, id);
    }
    let original = original_of(store, &path)?.ok_or_else(|| irreplaceable(&path, "another directory"))?;
    let doomed = store.join(scratch::name_for_deletion(&original.to_string()));
    scratch::remove_own(&doomed)?;
    fs::rename(&path, &doomed)?;
    if let Err(error) = current::swap(store, id) {
        _ = fs::rename(&doomed, &path);
        return Err(error);
    }
    scratch::remove(&doomed)
}

/// Returns the generation of which a directory is a copy: it has the same manifest, and for each file of the copy one
/// of the same name and length. Does not compare contents of other files.
fn original_of(store: &Path, copy: &Path) -> Result<Option<GenerationId>> {
    if !contents::is_own_generation(copy)? || !fs::is_file(&copy.join(manifest::FILE_NAME))? {
        return Ok(None);
    }
    for id in generations(store)?.into_iter().rev() {
        if is_copy_of(&store.join(id.to_string()), copy)? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn is_copy_of(generation: &Path, copy: &Path) -> Result<bool> {
    for name in fs::names(copy)? {
        let (original, copied) = (generation.join(&name), copy.join(&name));
        let are_files = fs::is_file(&original)? && fs::is_file(&copied)?;
        if !are_files || fs::file_len(&original)? != fs::file_len(&copied)? {
            return Ok(false);
        }
    }
    let manifest = |directory: &Path| read_whole(&directory.join(manifest::FILE_NAME), manifest::MAX_BYTES);
    Ok(manifest(copy)? == manifest(generation)?)
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
