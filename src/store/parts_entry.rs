//! The entries of the directory of a partitioned build, by their names and kinds of files.

use std::ffi::OsStr;
use std::path::Path;

use crate::store::contents::{self, is_lowercase_hex};
use crate::store::names::PARTS_PREFIX;
use crate::store::{fs, scratch};

pub(super) const TASK_PREFIX: &str = "task-";
pub(super) const PART_PREFIX: &str = "part-";
pub(super) const PUBLISHING_PREFIX: &str = "publishing-";
pub(super) const PUBLISHED_PREFIX: &str = "published-";
pub(super) const TEMPORARY_TASK_PREFIX: &str = "tmp-task-";
pub(super) const TEMPORARY_PART_PREFIX: &str = "tmp-part-";
pub(super) const TEMPORARY_MARK: &str = "tmp-mark";

/// Number of hexadecimal digits of a digest.
const DIGEST_LEN: usize = 16;

/// Returns whether a path in a store is the directory of a partitioned build: its name is that of one, and it is empty or
/// has an entry that such a build makes.
pub(super) fn is_parts_dir(path: &Path) -> bool {
    let named = path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(PARTS_PREFIX));
    let has = |is_wanted: fn(&OsStr, &Path) -> bool| fs::find_entry(path, is_wanted).is_ok_and(|entry| entry.is_some());
    let has_own = || has(|name, path| name.to_str().is_some_and(|name| Entry::of(name, path).is_some()));
    named && fs::is_real_dir(path) && (has_own() || !has(|_, _| true))
}

/// An entry that a partitioned build makes.
pub(super) enum Entry {
    Complete,
    Temporary,
    Mark,
}

impl Entry {
    /// Returns the kind of an entry; `None` if its name or its kind of file is not exactly one that is made here.
    pub(super) fn of(name: &str, path: &Path) -> Option<Entry> {
        if is_numbered(name, TASK_PREFIX) {
            return fs::is_real_file(path).then_some(Entry::Complete);
        }
        if is_numbered(name, PART_PREFIX) {
            let has_only_shards = || contents::foreign_among_shards(path).is_ok_and(|foreign| foreign.is_none());
            return (fs::is_real_dir(path) && has_only_shards()).then_some(Entry::Complete);
        }
        if name == TEMPORARY_MARK
            || suffix_is_digest(name, PUBLISHING_PREFIX)
            || suffix_is_digest(name, PUBLISHED_PREFIX)
        {
            return fs::is_real_file(path).then_some(Entry::Mark);
        }
        if name.strip_prefix(TEMPORARY_TASK_PREFIX).and_then(scratch::process_of).is_some() {
            return fs::is_real_file(path).then_some(Entry::Temporary);
        }
        let process = name.strip_prefix(TEMPORARY_PART_PREFIX).and_then(scratch::process_of)?;
        scratch::is_own_part(path, process).then_some(Entry::Temporary)
    }
}

pub(super) fn suffix_is_digest(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(is_digest)
}

/// Returns whether a name is a prefix, a number as `{}` formats it, and a digest.
pub(super) fn is_numbered(name: &str, prefix: &str) -> bool {
    let Some((number, digest)) = name.strip_prefix(prefix).and_then(|rest| rest.split_once('-')) else { return false };
    number.parse::<u64>().is_ok_and(|parsed| parsed.to_string() == number) && is_digest(digest)
}

pub(super) fn is_digest(text: &str) -> bool {
    text.len() == DIGEST_LEN && is_lowercase_hex(text)
}
