//! The bytes of the file `lock`: up to two lines, each the name of a generation.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::store::fs;
use crate::store::generation_id::GenerationId;
use crate::store::lines::{LINE, has_lines_only, parse};

/// The length of the file at most.
pub(super) const MAX_LEN: u64 = 2 * LINE as u64;

/// The generations on both lines; `None` for a line that is missing or torn.
pub(super) fn lines(file: &File, path: &Path) -> Result<(Option<GenerationId>, Option<GenerationId>)> {
    let bytes = fs::read_head(file, MAX_LEN, path)?;
    let (first, second) = bytes.split_at_checked(LINE).unwrap_or((&bytes, &[]));
    Ok((parse(first), parse(second)))
}

/// Checks that a path names a lock of a store, or nothing. Writes nothing and never waits.
///
/// Errors: `InvalidInput` if it is not a regular file, or has other content than a lock; `Io`.
pub(super) fn check(path: &Path) -> Result<()> {
    if !fs::is_real_file_or_nothing(path) {
        return Err(not_a_lock(path, "something else than a regular file"));
    }
    if !fs::exists(path)? {
        return Ok(());
    }
    check_content(&fs::open_real_file(path)?, path)
}

/// Errors: `InvalidInput` if the file has other content than a lock; `Io`.
pub(super) fn check_content(file: &File, path: &Path) -> Result<()> {
    if has_lines_only(file, path, MAX_LEN)? { Ok(()) } else { Err(not_a_lock(path, "a file of something else")) }
}

fn not_a_lock(path: &Path, found: &str) -> Error {
    let message = format!(
        "expected the lock of a store, empty or with names of generations, found {found}: it was left as it is; \
         choose another directory, or move it away"
    );
    Error::invalid_input(message).at_path(path)
}
