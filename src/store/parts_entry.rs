//! The entries of the directory of a partitioned build, by their names and kinds of files.

use std::ffi::OsStr;
use std::path::Path;

use crate::error::Result;
use crate::format::digest::Digest;
use crate::fs;
use crate::store::{PARTS_PREFIX, contents, scratch};

pub(crate) const TASK_PREFIX: &str = "task-";
pub(crate) const PART_PREFIX: &str = "part-";
pub(crate) const PUBLISHING_PREFIX: &str = "publishing-";
pub(crate) const PUBLISHED_PREFIX: &str = "published-";
pub(crate) const TEMPORARY_TASK_PREFIX: &str = "tmp-task-";
pub(crate) const TEMPORARY_PART_PREFIX: &str = "tmp-part-";
pub(crate) const TEMPORARY_MARK: &str = "tmp-mark";

/// Returns whether a path in a store is the directory of a partitioned build: its name is that of one, and it is empty or
/// has an entry that such a build makes.
pub(crate) fn is_parts_dir(path: &Path) -> Result<bool> {
    let named = path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(PARTS_PREFIX));
    if !named || !fs::is_real_dir(path)? {
        return Ok(false);
    }
    let mut is_empty = true;
    let own = fs::find_entry(path, |name, path| {
        is_empty = false;
        Ok(name.to_str().map_or(Ok(None), |name| Entry::of(name, path))?.is_some())
    })?;
    Ok(own.is_some() || is_empty)
}

/// An entry that a partitioned build makes.
pub(crate) enum Entry {
    Complete,
    Temporary,
    Mark,
}

impl Entry {
    /// Returns the kind of an entry; `None` if its name or its kind of file is not exactly one that is made here.
    pub(crate) fn of(name: &str, path: &Path) -> Result<Option<Entry>> {
        let process_after = |prefix| name.strip_prefix(prefix).and_then(scratch::process_of);
        let is_mark = [PUBLISHING_PREFIX, PUBLISHED_PREFIX].iter().any(|prefix| suffix_is_digest(name, prefix));
        let (entry, is_own) = if is_numbered(name, TASK_PREFIX) {
            (Entry::Complete, fs::is_real_file(path)?)
        } else if is_numbered(name, PART_PREFIX) {
            (Entry::Complete, fs::is_real_dir(path)? && contents::foreign_among_shards(path)?.is_none())
        } else if is_mark || name == TEMPORARY_MARK {
            (Entry::Mark, fs::is_real_file(path)?)
        } else if process_after(TEMPORARY_TASK_PREFIX).is_some() {
            (Entry::Temporary, fs::is_real_file(path)?)
        } else if let Some(process) = process_after(TEMPORARY_PART_PREFIX) {
            (Entry::Temporary, scratch::is_own_part(path, process)?)
        } else {
            return Ok(None);
        };
        Ok(is_own.then_some(entry))
    }
}

pub(crate) fn suffix_is_digest(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(is_digest)
}

/// Returns whether a name is a prefix, a number as `{}` formats it, and a digest.
pub(crate) fn is_numbered(name: &str, prefix: &str) -> bool {
    let Some((number, digest)) = name.strip_prefix(prefix).and_then(|rest| rest.split_once('-')) else { return false };
    number.parse::<u64>().is_ok_and(|parsed| parsed.to_string() == number) && is_digest(digest)
}

pub(crate) fn is_digest(text: &str) -> bool {
    text.parse::<Digest>().is_ok()
}
