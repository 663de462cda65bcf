//! The line format of the files `lock` and `history`: each line is the name of a generation.

use std::fs::File;
use std::path::Path;

use crate::error::Result;
use crate::fs;
use crate::store::generation_id::GenerationId;

/// Length of a line in bytes: the name of a generation and a line feed.
pub(super) const LINE_LEN: usize = 15;

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
    let fits = |(byte, pattern): (&u8, &u8)| match pattern {
        b'0' => byte.is_ascii_digit() || *byte == 0,
        _ => byte == pattern || *byte == 0,
    };
    Ok(bytes.len() as u64 <= max_len && bytes.iter().zip(PATTERN.iter().cycle()).all(fits))
}
