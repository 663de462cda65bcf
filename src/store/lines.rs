//! Files of lines, each the name of a generation: `lock` and `history`.

use std::fs::File;
use std::path::Path;

use crate::error::Result;
use crate::store::fs;
use crate::store::generation_id::GenerationId;

/// The length of a line: the name of a generation and a line feed.
pub(super) const LINE: usize = 15;

/// The most lines of a history.
pub(super) const MAX_HISTORY: usize = 1000;

/// A line with each digit as 0.
const PATTERN: &[u8; LINE] = b"gen-0000000000\n";

/// The generation on a line; `None` if the line is torn.
pub(super) fn parse(line: &[u8]) -> Option<GenerationId> {
    GenerationId::from_name(std::str::from_utf8(line).ok()?.strip_suffix('\n')?)
}

/// Whether a file has at most `max_len` bytes, all of them in whole or torn lines or zeros, as a crash leaves them.
pub(super) fn has_lines_only(file: &File, path: &Path, max_len: u64) -> Result<bool> {
    let bytes = fs::read_head(file, max_len + 1, path)?;
    let fits = |(byte, pattern): (&u8, &u8)| match pattern {
        b'0' => byte.is_ascii_digit() || *byte == 0,
        _ => byte == pattern || *byte == 0,
    };
    Ok(bytes.len() as u64 <= max_len && bytes.iter().zip(PATTERN.iter().cycle()).all(fits))
}
