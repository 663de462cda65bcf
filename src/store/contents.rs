//! Recognises files that this program writes, by name and contents. Only files that pass both checks are ever removed.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::format::info;
use crate::format::manifest::{self, Manifest};
use crate::storage::read_whole;
use crate::store::fs;
use crate::store::names::LEASE;

const SHARD_EXTENSION: &str = "shard";

/// Maximum number of hexadecimal digits of a shard number.
const SHARD_DIGITS: usize = 16;

/// The extensions of the spill files that the loader makes (`run`, `workers`, `shards`, `large`): one that is missing here
/// would be left behind by a writer that died.
const SPILL_EXTENSIONS: [&str; 5] = ["run", "sorted", "headers", "rows", "large"];

/// Returns an entry of a directory that is not a file of a generation, if there is one.
///
/// All files of a generation are regular files, so a directory or a link is foreign.
///
/// Errors: `Io`, including when the path is not a directory.
pub(super) fn foreign_in_generation(directory: &Path) -> Result<Option<PathBuf>> {
    let manifest = read_manifest(directory);
    let is_auxiliary = |name: &str| manifest.as_ref().is_some_and(|manifest| manifest.auxiliary(name).is_some());
    let is_known = |name: &str| is_generation_name(name) || is_auxiliary(name);
    fs::find_entry(directory, |name, path| !name.to_str().is_some_and(is_known) || !fs::is_real_file(path))
}

/// Reads the manifest of a complete generation, since it may list auxiliary files of a later version.
fn read_manifest(directory: &Path) -> Option<Manifest> {
    let path = directory.join(manifest::FILE_NAME);
    if !fs::is_real_file(&path) {
        return None;
    }
    Manifest::parse(&read_whole(&path, manifest::MAX_BYTES).ok()?).ok()
}

/// Returns whether a path is a directory, and not a link to one, that holds only files of a generation.
pub(super) fn is_native_generation(directory: &Path) -> bool {
    fs::is_real_dir(directory) && foreign_in_generation(directory).is_ok_and(|foreign| foreign.is_none())
}

/// Returns whether a path is a directory, and not a link to one, that holds only spill files.
pub(super) fn is_native_spill(directory: &Path) -> bool {
    let foreign =
        || fs::find_entry(directory, |name, path| !name.to_str().is_some_and(is_spill_name) || !fs::is_real_file(path));
    fs::is_real_dir(directory) && foreign().is_ok_and(|foreign| foreign.is_none())
}

/// Returns whether a file of a generation, complete or not, may have this name. Ignores auxiliary files of later
/// versions.
pub(super) fn is_generation_name(name: &str) -> bool {
    [info::FILE_NAME, LEASE, manifest::FILE_NAME, manifest::MINISHARDS, manifest::MINISHARD_PAGES].contains(&name)
        || name.rsplit_once('.').is_some_and(|(stem, extension)| {
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
        for name in ["00000001.run", "00000001.sorted", "00000002.large", "1f.headers", "0.rows"] {
            assert!(is_spill_name(name), "{name}");
        }
        for name in ["run", ".run", "x.run", "0.runs", "0.run.txt", "1F.rows", "notes.rows"] {
            assert!(!is_spill_name(name), "{name}");
        }
    }
}
