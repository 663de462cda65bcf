//! The contents of the file `lock`: up to two lines, each the name of a generation. Does not lock; see `lock`.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::fs;
use crate::store::generation_id::GenerationId;
use crate::store::lines::{LINE_LEN, has_lines_only, parse};

/// The maximum length of the file.
pub(super) const MAX_LEN: u64 = 2 * LINE_LEN as u64;

/// Reads the generations on both lines; `None` for a line that is missing or torn.
pub(super) fn lines(file: &File, path: &Path) -> Result<(Option<GenerationId>, Option<GenerationId>)> {
    let bytes = fs::read_head(file, MAX_LEN, path)?;
    let (first, second) = bytes.split_at_checked(LINE_LEN).unwrap_or((&bytes, &[]));
    Ok((parse(first), parse(second)))
}

/// Checks that a path is a lock of a store or does not exist. Writes nothing and does not block.
///
/// Errors: `InvalidInput` if it is not a regular file, or its contents are not those of a lock; `Io`.
pub(super) fn check(path: &Path) -> Result<()> {
    match fs::is_real_file_if_there(path)? {
        None => Ok(()),
        Some(false) => Err(not_a_lock(path, "another kind of file")),
        Some(true) => check_content(&fs::open_real_file(path)?, path),
    }
}

/// Errors: `InvalidInput` if the contents are not those of a lock; `Io`.
pub(super) fn check_content(file: &File, path: &Path) -> Result<()> {
    if has_lines_only(file, path, MAX_LEN)? { Ok(()) } else { Err(not_a_lock(path, "other contents")) }
}

fn not_a_lock(path: &Path, found: &str) -> Error {
    let message = format!(
        "expected the lock of a store, a regular file that is empty or has names of generations, found {found}: \
         it is unchanged; choose another directory, or move it away"
    );
    Error::invalid_input(message).at_path(path)
}
