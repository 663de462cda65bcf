//! The contents of the files `lock` and `history`: each line is the name of a generation. Does not lock; see `lock`.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::fs;
use crate::store::generation_id::GenerationId;

/// Length of a line in bytes: the name of a generation and a line feed.
pub(super) const LINE_LEN: usize = 15;

/// The maximum length of `lock`, which has up to two lines.
pub(super) const MAX_LOCK_LEN: u64 = 2 * LINE_LEN as u64;

/// Maximum number of lines of a history.
pub(super) const MAX_HISTORY: usize = 1000;

/// A line in which `0` stands for any digit.
const PATTERN: &[u8; LINE_LEN] = b"gen-0000000000\n";

/// Parses a line; `None` if it is torn.
pub(super) fn parse(line: &[u8]) -> Option<GenerationId> {
    GenerationId::from_name(std::str::from_utf8(line).ok()?.strip_suffix('\n')?)
}

/// Returns whether a file has at most `max_len` bytes and only lines, complete or torn.
///
/// A crash may cut off the last line and replace any byte by zero.
pub(super) fn has_lines_only(file: &File, path: &Path, max_len: u64) -> Result<bool> {
    let bytes = fs::read_head(file, max_len + 1, path)?;
    Ok(bytes.len() as u64 <= max_len && may_be_lines(&bytes))
}

/// Returns whether bytes are lines, complete or torn.
pub(super) fn may_be_lines(bytes: &[u8]) -> bool {
    let fits = |(byte, pattern): (&u8, &u8)| match pattern {
        b'0' => byte.is_ascii_digit() || *byte == 0,
        _ => byte == pattern || *byte == 0,
    };
    bytes.iter().zip(PATTERN.iter().cycle()).all(fits)
}

/// Checks that a path is a lock of a store or does not exist. Writes nothing and does not block.
///
/// Errors: `InvalidInput` if it is not a regular file, or its contents are not those of a lock; `Io`.
pub(super) fn check_lock(path: &Path) -> Result<()> {
    match fs::is_real_file_if_there(path)? {
        None => Ok(()),
        Some(false) => Err(not_a_lock(path, "another kind of file")),
        Some(true) => check_lock_content(&fs::open_real_file(path)?, path),
    }
}

/// Errors: `InvalidInput` if the contents are not those of a lock; `Io`.
pub(super) fn check_lock_content(file: &File, path: &Path) -> Result<()> {
    if has_lines_only(file, path, MAX_LOCK_LEN)? { Ok(()) } else { Err(not_a_lock(path, "other contents")) }
}

fn not_a_lock(path: &Path, found: &str) -> Error {
    let message = format!(
        "expected the lock of a store, a regular file that is empty or has names of generations, found {found}: \
         it is unchanged; choose another directory, or move it away"
    );
    Error::invalid_input(message).at_path(path)
}
