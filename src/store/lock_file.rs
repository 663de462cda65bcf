//! The bytes of the file `lock`: up to two lines, each the name of a generation.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::store::fs;
use crate::store::generation_id::GenerationId;

/// The length of a line of the file: the name of a generation and a line feed.
pub(super) const LINE: usize = 15;

/// The length of the file at most.
pub(super) const MAX_LEN: u64 = 2 * LINE as u64;

/// A line with each digit as 0.
const PATTERN: &[u8; LINE] = b"gen-0000000000\n";

/// The generations on both lines; `None` for a line that is missing or torn.
pub(super) fn lines(file: &File, path: &Path) -> Result<(Option<GenerationId>, Option<GenerationId>)> {
    let bytes = fs::read_head(file, MAX_LEN, path)?;
    let (first, second) = bytes.split_at_checked(LINE).unwrap_or((&bytes, &[]));
    Ok((line(first), line(second)))
}

/// The generation on a line, if it is a whole one.
fn line(bytes: &[u8]) -> Option<GenerationId> {
    GenerationId::from_name(std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?)
}

/// Checks that a path names a lock of a store, or nothing. Writes nothing and never waits.
///
/// Errors: `InvalidInput` if it is not a regular file, or has other content than a lock; `Io`.
pub(super) fn check(path: &Path) -> Result<()> {
    if !fs::is_real_file_or_nothing(path) {
        return Err(not_a_lock(path, "something else than a regular file"));
    }
    if !fs::exists(path) {
        return Ok(());
    }
    check_content(&fs::open_real_file(path)?, path)
}

/// Errors: `InvalidInput` if the file has other content than a lock; `Io`.
pub(super) fn check_content(file: &File, path: &Path) -> Result<()> {
    if has_lines_only(file, path)? { Ok(()) } else { Err(not_a_lock(path, "a file of something else")) }
}

fn not_a_lock(path: &Path, found: &str) -> Error {
    let message = format!(
        "expected the lock of a store, empty or with names of generations, found {found}: it was left as it is; \
         choose another directory, or move it away"
    );
    Error::invalid_input(message).at_path(path)
}

/// Whether a file is empty, or has whole or torn lines or zeros; what a crash leaves of it included.
pub(super) fn has_lines_only(file: &File, path: &Path) -> Result<bool> {
    let bytes = fs::read_head(file, MAX_LEN + 1, path)?;
    let fits = |(byte, pattern): (&u8, &u8)| match pattern {
        b'0' => byte.is_ascii_digit() || *byte == 0,
        _ => byte == pattern || *byte == 0,
    };
    Ok(bytes.len() as u64 <= MAX_LEN && bytes.iter().zip(PATTERN.iter().cycle()).all(fits))
}
