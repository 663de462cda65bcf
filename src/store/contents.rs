//! Recognises files that this program writes, by name and contents. Only files that pass both checks are ever removed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::bytes::read_whole;
use crate::error::{ErrorKind, Result};
use crate::format::info;
use crate::format::manifest::{self, Manifest};
use crate::format::nested::{self, NestedSharding};
use crate::fs;
use crate::store::LEASE;

const SHARD_EXTENSION: &str = "shard";

/// Maximum number of hexadecimal digits of a shard number.
const SHARD_DIGITS: usize = 16;

/// The extensions of all spill files, which the modules `build::{run, workers, shards, large, merged_pairs}` and
/// `read::sorted_keys::temp_file` create. If an extension is missing here, the temporary directory of a dead writer with
/// such a file is never removed.
const SPILL_EXTENSIONS: [&str; 9] = ["run", "sorted", "headers", "rows", "large", "first", "merged", "raw", "keys"];

/// Returns an entry of a directory that is not a file of a generation, if there is one.
///
/// All files of a generation are regular files, so a link is foreign, and so is a directory, except the one that the
/// manifest states for the shards.
///
/// Errors: `Io`, including when the path is not a directory.
pub(super) fn foreign_in_generation(directory: &Path) -> Result<Option<PathBuf>> {
    let manifest = read_manifest(directory)?;
    let is_auxiliary = |name: &str| manifest.as_ref().is_some_and(|manifest| manifest.auxiliary(name).is_some());
    let is_known = |name: &str| is_generation_name(name) || is_auxiliary(name);
    let nested = manifest.as_ref().and_then(|manifest| manifest.nested.as_ref());
    let names: Vec<&str> = nested.into_iter().flat_map(NestedSharding::names).collect();
    let foreign = fs::find_entry(directory, |name, path| match (name.to_str(), names.first()) {
        (Some(name), Some(first)) if name == *first => Ok(!fs::is_real_dir(path)?),
        (name, _) => Ok(!name.is_some_and(is_known) || !fs::is_real_file(path)?),
    })?;
    match (foreign, names.split_first()) {
        (None, Some((first, below))) => foreign_in_shards(&directory.join(first), below),
        (foreign, _) => Ok(foreign),
    }
}

/// Returns an entry that is not a shard in the directory `below` another one, or next to the directories on the way to it.
fn foreign_in_shards(directory: &Path, below: &[&str]) -> Result<Option<PathBuf>> {
    if !fs::exists(directory)? {
        return Ok(None); // a copy of a generation without keys may lack it
    }
    let Some((first, below)) = below.split_first() else { return foreign_among_shards(directory) };
    match fs::find_entry(directory, |name, path| Ok(name != *first || !fs::is_real_dir(path)?))? {
        None => foreign_in_shards(&directory.join(first), below),
        foreign => Ok(foreign),
    }
}

pub(super) fn foreign_among_shards(directory: &Path) -> Result<Option<PathBuf>> {
    fs::find_entry(directory, |name, path| Ok(!name.to_str().is_some_and(is_shard_name) || !fs::is_real_file(path)?))
}

/// Returns whether a path is a directory for the shards of an unfinished generation, which has no manifest yet: one that
/// holds only shards, or nothing but another such directory.
pub(super) fn is_own_shards_directory(directory: &Path) -> Result<bool> {
    let mut directory = directory.to_path_buf();
    for _ in 0..nested::MOST_NAMES {
        if !fs::is_real_dir(&directory)? {
            return Ok(false);
        }
        match foreign_among_shards(&directory)? {
            None => return Ok(true),
            Some(below) if fs::find_entry(&directory, |_, path| Ok(path != below))?.is_none() => directory = below,
            Some(_) => return Ok(false),
        }
    }
    Ok(false)
}

/// Reads the manifest of a complete generation, since it may list auxiliary files of a later version. `None` if it is
/// missing or damaged.
fn read_manifest(directory: &Path) -> Result<Option<Manifest>> {
    let path = directory.join(manifest::FILE_NAME);
    if !fs::is_real_file(&path)? {
        return Ok(None);
    }
    match read_whole(&path, manifest::MAX_BYTES) {
        Err(error) if error.kind() == ErrorKind::TooLarge => Ok(None),
        text => Ok(Manifest::parse(&text?).ok()),
    }
}

/// Returns the entry of a complete generation that leads to its shards, if they have a directory of their own.
pub(super) fn shards_entry(directory: &Path) -> Result<Option<PathBuf>> {
    if !fs::is_real_dir(directory)? {
        return Ok(None);
    }
    let nested = read_manifest(directory)?.and_then(|manifest| manifest.nested);
    Ok(nested.map(|nested| directory.join(nested.first_name())))
}

/// Returns whether a path is a directory, and not a link to one, that holds only files of a generation.
pub(super) fn is_own_generation(directory: &Path) -> Result<bool> {
    Ok(fs::is_real_dir(directory)? && foreign_in_generation(directory)?.is_none())
}

/// Returns whether a path is a directory, and not a link to one, that holds only spill files.
pub(super) fn is_own_spill(directory: &Path) -> Result<bool> {
    let is_foreign =
        |name: &OsStr, path: &Path| Ok(!name.to_str().is_some_and(is_spill_name) || !fs::is_real_file(path)?);
    Ok(fs::is_real_dir(directory)? && fs::find_entry(directory, is_foreign)?.is_none())
}

/// Returns whether a file of a generation, complete or not, may have this name. Ignores auxiliary files of later
/// versions.
pub(super) fn is_generation_name(name: &str) -> bool {
    [info::FILE_NAME, LEASE, manifest::FILE_NAME].contains(&name)
        || [manifest::MINISHARDS, manifest::MINISHARD_PAGES, manifest::KEYS].contains(&name)
        || is_shard_name(name)
}

pub(crate) fn is_shard_name(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(stem, extension)| {
        extension == SHARD_EXTENSION && stem.len() <= SHARD_DIGITS && is_lowercase_hex(stem)
    })
}

fn is_spill_name(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(stem, extension)| SPILL_EXTENSIONS.contains(&extension) && is_lowercase_hex(stem))
}

/// Returns whether the text is a number as `{:x}` or `{:08}` formats it: lowercase hexadecimal digits.
pub(super) fn is_lowercase_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        for name in [
            "info",
            "lease",
            "manifest.json",
            "minishards",
            "minishard_pages",
            "keys",
            "0.shard",
            "1c.shard",
            "ffffffffffffffff.shard",
        ] {
            assert!(is_generation_name(name), "{name}");
        }
        for name in
            ["", ".shard", "1C.shard", "x.shard", "00000000000000000.shard", "0.shard~", "info.txt", "Info", "spill"]
        {
            assert!(!is_generation_name(name), "{name}");
        }
        for name in ["00000001.run", "00000001.sorted", "00000002.large", "1f.headers", "0.rows", "1f00000000.keys"] {
            assert!(is_spill_name(name), "{name}");
        }
        for name in ["run", ".run", "x.run", "0.runs", "0.run.txt", "1F.rows", "notes.rows"] {
            assert!(!is_spill_name(name), "{name}");
        }
    }
}
