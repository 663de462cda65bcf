//! `history`: the generations of a store in the order in which they became current.
//!
//! ```text
//! gen-0000000001      oldest first, at most 1,000 lines
//! gen-0000000002
//! gen-0000000004
//! ```
//!
//! A publication, and a rollback to a given generation, append a line before `current` changes. An earlier line of the
//! same generation stays until the next append: of two, the last one counts. A rollback to the previous entry removes
//! the lines after that entry before `current` changes. So a line after that of the current generation is void: a crash
//! came before `current` changed, or an earlier version rolled the generation back, which left the line. The next append
//! drops void lines.
//!
//! For a collection, complete generations that have no line any more count as earlier entries, by number. A rollback
//! does not return to them, since they may have been rolled back.
//!
//! A store written by an earlier version has no such file. Its history is its complete generations up to the current
//! one, by number.

use std::collections::BTreeSet;
use std::path::Path;

use crate::bytes::read_whole;
use crate::error::{Error, ErrorKind, Result};
use crate::fs;
use crate::store::lines::{LINE_LEN, MAX_HISTORY, parse};
use crate::store::{GenerationId, HISTORY, current, generations, intact, is_complete, moved, scratch};

/// Returns the generations that were current, oldest first; the last is the current one. Some may have been removed
/// since.
///
/// Errors: `Corrupt` if the file or `current` is damaged; `Io`.
pub(crate) fn read(store: &Path) -> Result<Vec<GenerationId>> {
    entries(store, current::read(store)?)
}

/// Appends a generation that is about to become current.
///
/// Rewrites the file. A crash before `current` names the generation leaves a void line. The caller syncs the directory.
///
/// Errors: those of [`read`], except for a damaged `current`; `InvalidInput` if a foreign file has the temporary name.
pub(super) fn append(store: &Path, id: GenerationId) -> Result<()> {
    let current = match current::read(store) {
        Err(error) if intact::is_damage(&error) => None, // a rollback may be repairing it
        current => current?,
    };
    let mut entries = entries(store, current)?;
    entries.push(id); // an earlier line stays: a crash before `current` changes must not take it away
    write(store, &entries)
}

/// Returns the entries of [`read`] after the complete generations that have no line any more, by number: those below the
/// first line, and of a full file also those below the first that is greater, since a rollback moves a line to the end.
///
/// Errors: those of [`read`].
pub(super) fn read_with_older(store: &Path) -> Result<Vec<GenerationId>> {
    let (lines, entries) = (lines(store)?.unwrap_or_default(), read(store)?);
    let Some(first) = lines.first() else { return Ok(entries) };
    let bound = lines.iter().find(|id| *id > first).filter(|_| lines.len() == MAX_HISTORY).unwrap_or(first);
    let listed: BTreeSet<_> = lines.iter().chain(&entries).copied().collect();
    let mut older = complete(store, |id| id < *bound && !listed.contains(&id))?;
    older.extend(entries);
    Ok(older)
}

/// Removes the lines after that of the entry `id`, durably, before `current` changes to it. Does nothing without the file.
///
/// Errors: those of [`append`].
pub(super) fn end_with(store: &Path, id: GenerationId) -> Result<()> {
    if !exists(store)? {
        return Ok(());
    }
    let mut entries = read(store)?;
    let end = entries.iter().position(|entry| *entry == id);
    entries.truncate(end.ok_or_else(|| Error::internal(format!("{id} is no entry of the history")))? + 1);
    write(store, &entries)?;
    fs::fsync_dir(store)
}

/// Replaces the file by one with the newest entries.
fn write(store: &Path, entries: &[GenerationId]) -> Result<()> {
    let excess = entries.len().saturating_sub(MAX_HISTORY);
    let lines: String = entries.iter().skip(excess).map(|id| format!("{id}\n")).collect();
    let temporary = store.join(scratch::TEMPORARY_HISTORY);
    scratch::remove_own(&temporary)?; // a failed append may have left it
    fs::replace(&store.join(HISTORY), &temporary, lines.as_bytes()).inspect_err(|_| _ = fs::remove_file(&temporary))
}

/// Returns whether the file has the line of a generation, void or not.
///
/// Errors: `Corrupt` if the file is damaged; `Io`.
pub(super) fn has_line(store: &Path, id: GenerationId) -> Result<bool> {
    lines(store).map(|lines| lines.is_some_and(|lines| lines.contains(&id)))
}

/// Returns whether a store has the file.
///
/// Errors: `Io`.
pub(super) fn exists(store: &Path) -> Result<bool> {
    fs::exists(&store.join(HISTORY))
}

/// Removes the file. Called when the publication that created it has failed, so its last line is void. In a store of an
/// earlier version it also has lines that are not void, but these are the entries that [`read`] returns without the
/// file.
///
/// Errors: `Io`.
pub(super) fn remove(store: &Path) -> Result<()> {
    fs::remove_file(&store.join(HISTORY))
}

/// Checks that a line can be appended.
///
/// Errors: `Corrupt` if the file is damaged; `InvalidInput` if a foreign file has the temporary name;
/// `Io`.
pub(super) fn check(store: &Path) -> Result<()> {
    lines(store)?;
    scratch::check_own(&store.join(scratch::TEMPORARY_HISTORY))
}

fn entries(store: &Path, current: Option<GenerationId>) -> Result<Vec<GenerationId>> {
    let Some(mut entries) = lines(store)? else { return by_number(store, current) };
    // without `current`, which is missing or damaged, all lines count, so that a rollback can repair it
    if let Some(current) = current {
        match entries.iter().rposition(|id| *id == current) {
            Some(at) => entries.truncate(at + 1),
            None => entries.push(current), // made current by an earlier version, which does not write this file
        }
    }
    // one entry per generation, so that repeated rollbacks end
    let mut later = BTreeSet::new();
    entries.reverse();
    entries.retain(|id| later.insert(*id));
    entries.reverse();
    Ok(entries)
}

/// Reads the file; `None` if there is none or it is empty.
fn lines(store: &Path) -> Result<Option<Vec<GenerationId>>> {
    let path = store.join(HISTORY);
    let Some(is_file) = fs::is_real_file_if_there(&path)? else { return Ok(None) };
    let damaged = |found: &str| {
        let message = format!(
            "expected a history of up to {MAX_HISTORY} lines, each the name of a generation, found {found}: \
             if you move it away, the generations up to the current one count, by number, and gc removes later ones"
        );
        Error::corrupt(message).at_path(&path)
    };
    if !is_file {
        return Err(damaged("a file that is not a regular one"));
    }
    let bytes = match read_whole(&path, (MAX_HISTORY * LINE_LEN) as u64) {
        Err(error) if error.kind() == ErrorKind::TooLarge => return Err(damaged("more")),
        bytes => bytes?,
    };
    if bytes.is_empty() {
        return Ok(None); // says no more than no file
    }
    let lines = bytes.chunks(LINE_LEN).enumerate();
    let parsed = lines.map(|(at, line)| parse(line).ok_or_else(|| damaged(&format!("other text in line {}", at + 1))));
    parsed.collect::<Result<_>>().map(Some)
}

fn by_number(store: &Path, current: Option<GenerationId>) -> Result<Vec<GenerationId>> {
    let mut entries = complete(store, |id| current.is_none_or(|current| id < current))?;
    if let Some(current) = current
        && fs::exists(&store.join(current.to_string()))?
    {
        entries.push(current);
    }
    Ok(entries)
}

/// Returns the complete generations among those that are wanted, ascending, without those that were moved in.
fn complete(store: &Path, is_wanted: impl Fn(GenerationId) -> bool) -> Result<Vec<GenerationId>> {
    let mut complete = Vec::new();
    for id in generations(store)?.into_iter().filter(|id| is_wanted(*id)) {
        if is_complete(store, id)? && moved::held_from(store, id)?.is_none() {
            complete.push(id);
        }
    }
    Ok(complete)
}

#[cfg(test)]
mod tests {
    use std::fs::{read_to_string, write};

    use super::*;
    use crate::common::TempDir;
    use crate::error::ErrorKind;
    use crate::fs::disk::{Fault, Watch};
    use crate::store::testing::{Sample, id, store_of};

    fn numbers(store: &Path) -> Vec<u64> {
        read(store).unwrap().into_iter().map(GenerationId::get).collect()
    }

    /// Publish 1, 2, 3 (bad), roll back to 2, publish 4 (bad): the entry before 4 is 2.
    #[test]
    fn a_rollback_skips_generations_that_were_rolled_back() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 3);
        let writer = store.writer().unwrap();
        assert_eq!(numbers(store.path()), [1, 2, 3]);
        assert_eq!(writer.rollback(None).unwrap(), id(2));
        assert_eq!(numbers(store.path()), [1, 2]);
        assert_eq!(read_to_string(directory.path().join("history")).unwrap().lines().count(), 2, "no void line");
        assert_eq!(Sample::new(4).publish(&writer), id(4));
        assert_eq!(numbers(store.path()), [1, 2, 4]);
        assert_eq!(writer.rollback(None).unwrap(), id(2));
        assert_eq!(writer.rollback(None).unwrap(), id(1));
        assert_eq!(writer.rollback(None).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(writer.rollback(Some(id(4))).unwrap(), id(4), "forward");
        assert_eq!(numbers(store.path()), [1, 4]);
    }

    #[test]
    fn a_rollback_to_a_given_one_is_an_entry() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 3);
        let writer = store.writer().unwrap();
        writer.rollback(Some(id(1))).unwrap();
        assert_eq!(numbers(store.path()), [2, 3, 1]);
        assert_eq!(writer.rollback(None).unwrap(), id(3));
        writer.rollback(Some(id(3))).unwrap();
        assert_eq!(numbers(store.path()), [2, 3], "it is current already");
    }

    /// gc keeps generations of the history, and not those that were rolled back.
    #[test]
    fn gc_keeps_the_newest_entries() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 3);
        let writer = store.writer().unwrap();
        writer.rollback(None).unwrap();
        assert_eq!(Sample::new(4).publish(&writer), id(4));
        assert_eq!(writer.gc(2).unwrap().removed, [id(1), id(3)], "2 and 4 are the newest that count");
        assert_eq!(writer.rollback(None).unwrap(), id(2));
        assert_eq!(writer.gc(0).unwrap().removed, [id(4)]);
        assert_eq!(writer.rollback(None).unwrap_err().kind(), ErrorKind::InvalidInput, "1 was removed");
    }

    /// A store that an earlier version wrote, and one into which an earlier version has published since.
    #[test]
    fn without_the_file_numbers_decide() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 4);
        let writer = store.writer().unwrap();
        let history = directory.path().join("history");
        writer.rollback(Some(id(3))).unwrap();
        std::fs::remove_file(&history).unwrap();
        assert_eq!(numbers(store.path()), [1, 2, 3]);
        assert_eq!(writer.rollback(None).unwrap(), id(2));
        assert!(!history.exists());
        assert_eq!(Sample::new(5).publish(&writer), id(5));
        assert_eq!(numbers(store.path()), [1, 2, 5]);
        write(&history, "gen-0000000001\n").unwrap();
        assert_eq!(numbers(store.path()), [1, 5]);
    }

    #[test]
    fn another_file_is_an_error_that_says_what_to_do() {
        for text in ["notes", "gen-0000000001", "gen-1\n", "gen-0000000001\r\n", "gen-0000000001\n\n", "\0"] {
            let directory = TempDir::new();
            let store = store_of(directory.path(), 2);
            let history = directory.path().join("history");
            write(&history, text).unwrap();
            let writer = store.writer().unwrap();
            for error in [read(store.path()).unwrap_err(), writer.begin(None).unwrap_err(), writer.gc(1).unwrap_err()] {
                assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*history)), "{text:?}");
                assert!(error.message().contains("move it away"));
            }
            assert_eq!(read_to_string(&history).unwrap(), text);
        }
    }

    /// Generations that have no line any more, because the file was full, count for gc, and a rollback does not return to them.
    #[test]
    fn generations_without_a_line_count_for_gc() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 6);
        let history = directory.path().join("history");
        let full = |first: &[u64], last: &[u64]| -> String {
            let between = 7..1007 - (first.len() + last.len()) as u64;
            let numbers = first.iter().copied().chain(between).chain(last.iter().copied());
            numbers.map(|number| format!("{}\n", id(number))).collect()
        };
        std::fs::remove_dir_all(store.generation_path(id(4))).unwrap();
        write(&history, full(&[3], &[5, 6])).unwrap();
        let writer = store.writer().unwrap();
        assert_eq!(store.removable(5).unwrap(), []);
        assert_eq!(writer.rollback(None).unwrap(), id(5));
        assert_eq!(store.removable(4).unwrap(), [id(6)], "also if the file is not full any more");
        assert_eq!(store.removable(3).unwrap(), [id(1), id(6)]);
        assert_eq!(writer.rollback(None).unwrap(), id(3));
        assert_eq!(writer.rollback(None).unwrap_err().kind(), ErrorKind::InvalidInput, "2 was perhaps rolled back");
        // a rollback has moved the line of 1, and later 2 and 6 have lost theirs
        write(&history, full(&[1], &[5, 3])).unwrap();
        assert_eq!(store.removable(5).unwrap(), []);
        assert_eq!(writer.gc(4).unwrap().removed, [id(2)]);
    }

    /// A rollback to a given generation that fails leaves it an entry.
    #[test]
    fn a_failed_rollback_takes_no_entry_away() {
        for nth in 0.. {
            let directory = TempDir::in_memory();
            let store = store_of(directory.path(), 3);
            let watch = Watch::on(directory.path());
            watch.fail(Fault::Broken, nth);
            let result = store.writer().and_then(|writer| writer.rollback(Some(id(1))));
            let faults = watch.heal();
            drop(watch);
            let expected = if store.current().unwrap() == Some(id(1)) { [2, 3, 1] } else { [1, 2, 3] };
            assert_eq!(numbers(store.path()), expected, "operation {nth}: {result:?}");
            assert_eq!(store.writer().unwrap().gc(3).unwrap().removed, []);
            if faults == 0 {
                break;
            }
        }
    }

    #[test]
    fn has_a_bounded_length() {
        let directory = TempDir::new();
        let store = store_of(directory.path(), 2);
        let history = directory.path().join("history");
        let lines: String = (3..1002).chain([2]).map(|number| format!("{}\n", id(number))).collect();
        write(&history, lines).unwrap();
        store.writer().unwrap().rollback(Some(id(1))).unwrap();
        assert_eq!(numbers(store.path()), (4..1002).chain([2, 1]).collect::<Vec<_>>());
        write(&history, "gen-0000000001\n".repeat(1001)).unwrap();
        let error = read(store.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("found more: if you move it away, "));
    }
}
