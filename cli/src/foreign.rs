//! Advice about data that ShardDb did not write: which command takes it into a store.

use std::path::Path;

use sharddb::{ErrorKind, OpenOptions, Snapshot};

use crate::context::warn;
use crate::entry;
use crate::failure::{Failure, Result};
use crate::printable::word;

/// Adds the command that imports the data at `path` to the refusal to use the path as a store.
///
/// Any other failure stays as it is.
pub(crate) fn not_a_store(failure: Failure, path: &Path) -> Failure {
    match failure {
        Failure::Library(error) if error.kind() == ErrorKind::InvalidInput && matches!(is_data(path), Ok(true)) => {
            let import = import(path, Path::new("NEW_STORE"));
            Failure::usage(format!("{error}; to take its data into a store: {import}"))
        }
        other => other,
    }
}

/// The command line that imports `source` into `store`.
pub(crate) fn import(source: &Path, store: &Path) -> String {
    format!("sharddb import {} {}", word(source), word(store))
}

/// Whether a directory has an info of a data set or the metadata of an array.
///
/// Errors: `Io` if that cannot be determined.
pub(crate) fn is_data(path: &Path) -> Result<bool> {
    for name in ["info", "zarr.json", "meta/sizes"] {
        if entry::is_file(&path.join(name))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether ShardDb wrote the info of a directory without a manifest: an incomplete copy of a generation, whose missing shards
/// nothing else shows.
///
/// Errors: `Io` if that cannot be determined.
pub(crate) fn lacks_manifest(directory: &Path) -> Result<bool> {
    if entry::is_file(&directory.join("manifest.json"))? {
        return Ok(false);
    }
    let opened = OpenOptions::new().check_shards(false).open(directory);
    Ok(opened.is_ok_and(|db| db.snapshot().layout().is_some()))
}

/// Warns of a source that may lack shards.
///
/// Errors: `Io` if that cannot be determined.
pub(crate) fn warn_if_incomplete(source: &Snapshot) -> Result<()> {
    let directory = source.directory();
    if lacks_manifest(directory)? {
        let source = directory.display();
        warn(format_args!(
            "sharddb: {source} is a generation without its manifest.json, so whether it has all its shards is unknown: if it is \
             a copy, copy it again"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_one_that_a_shell_runs() {
        assert_eq!(import(Path::new("a/b-1.zarr"), Path::new("s")), "sharddb import a/b-1.zarr s");
        assert_eq!(import(Path::new("it's $HOME"), Path::new("")), "sharddb import 'it'\\''s $HOME' ''");
    }
}
