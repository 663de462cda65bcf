//! Advice about data that ShardDb did not write: which command takes it into a store.

use std::path::Path;

use sharddb::ErrorKind;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_one_that_a_shell_runs() {
        assert_eq!(import(Path::new("a/b-1.zarr"), Path::new("s")), "sharddb import a/b-1.zarr s");
        assert_eq!(import(Path::new("it's $HOME"), Path::new("")), "sharddb import 'it'\\''s $HOME' ''");
    }
}
