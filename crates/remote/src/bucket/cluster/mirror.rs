//! Sparse local copies of objects: some ranges of an object, at the same offsets of a file of the same length. The local
//! code reads them like the whole file.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use object_store::{GetOptions, GetRange};
use sharddb::Progress;
use sharddb::cluster::SpillReceipt;
use sharddb::internal::fs::disk;
use sharddb::internal::{ROW_LEN, Spill, TRAILER_LEN, check_spill_len, lost_spill};
use sharddb_format::{Error, Result};

use crate::UnknownLength;
use crate::bucket::cluster::job::JobObjects;
use crate::bucket::root::Root;
use crate::store_error::is_missing_object;

/// A gap between two sections is read if it is at most this fraction of the second one, so that the gaps of a part add up
/// to at most that much of its bytes.
const GAP_FRACTION: u64 = 32;

/// A sparse copy that is being made.
pub(super) struct Mirror<'a> {
    root: &'a Root,
    object: String,
    path: PathBuf,
    file: File,
    progress: &'a Progress,
}

/// The effect of copying a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    Done,
    /// There is no such object.
    Missing,
    /// The object has this length, and not the stated one.
    OtherLength(u64),
}

impl<'a> Mirror<'a> {
    /// Creates the file at `path`, empty.
    pub(super) fn create(root: &'a Root, object: String, path: PathBuf, progress: &'a Progress) -> Result<Mirror<'a>> {
        let file = disk::create_new(&path).map_err(|error| Error::io("create", &path, error))?;
        Ok(Mirror { root, object, path, file, progress })
    }

    /// Makes the file as long as the object, which has the length `len`.
    pub(super) fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|error| Error::io("extend", &self.path, error))
    }

    /// Copies a range of an object of the length `len`.
    ///
    /// Errors: `Io` also if the server answers by another range.
    pub(super) async fn copy(&self, range: Range<u64>, len: u64) -> Result<Copied> {
        self.progress.check()?;
        let path = self.root.path(&self.object)?;
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let result = match self.root.store().get_opts(&path, options).await {
            Err(error) if is_missing_object(&error) => return Ok(Copied::Missing),
            Err(error) => return self.explain(error, len).await,
            Ok(result) if result.meta.size != len && result.extensions.get::<UnknownLength>().is_none() => {
                return Ok(Copied::OtherLength(result.meta.size));
            }
            Ok(result) => result,
        };
        if result.range != range {
            return Err(self.other_range(&range, result.range.start, result.range.end));
        }
        let (mut at, mut stream) = (range.start, result.into_stream());
        while let Some(chunk) = stream.next().await {
            self.progress.check()?;
            let chunk = chunk.map_err(|error| self.root.failed("read", &self.object, error))?;
            let end = at.saturating_add(chunk.len() as u64);
            if end > range.end {
                return Err(self.other_range(&range, range.start, end));
            }
            let written = disk::write_all_at(&self.file, &self.path, at, &chunk);
            written.map_err(|error| Error::io("write", &self.path, error))?;
            at = end;
        }
        if at != range.end {
            return Err(self.other_range(&range, range.start, at));
        }
        Ok(Copied::Done)
    }

    /// An object that is shorter than the range makes some stores fail without a reason.
    async fn explain(&self, error: object_store::Error, len: u64) -> Result<Copied> {
        match self.root.head(&self.object).await {
            Ok(Some(meta)) if meta.size != len => Ok(Copied::OtherLength(meta.size)),
            _ => Err(self.root.failed("read", &self.object, error)),
        }
    }

    fn other_range(&self, wanted: &Range<u64>, start: u64, end: u64) -> Error {
        let found = format!("expected bytes {} to {}, found {start} to {end}", wanted.start, wanted.end);
        Error::io("read", &self.root.place(&self.object), std::io::Error::other(found))
    }
}

/// Copies the trailer and the section table of a spill, and its sections of a part, into `directory`.
///
/// Cost: one request for the end of the spill if it has one run, else two, and one per section.
///
/// Errors: `NotFound` or `Corrupt`, with the object, if the spill is lost, cut, damaged or not that of its receipt;
/// `Cancelled`; `Io`.
pub(super) async fn mirror_spill(
    (root, job): (&Root, &JobObjects),
    (part, parts): (u64, u64),
    receipt: SpillReceipt,
    directory: &Path,
    progress: &Progress,
) -> Result<()> {
    let (object, len) = (job.object(&receipt.file_name()), receipt.bytes());
    let place = root.place(&object);
    let mirror = Mirror::create(root, object, directory.join(receipt.file_name()), progress)?;
    let copy = async |range: Range<u64>| match mirror.copy(range, len).await? {
        Copied::Done => Ok(()),
        Copied::Missing => Err(lost_spill(&receipt).at_path(&place)),
        Copied::OtherLength(found) => check_spill_len(&receipt, found).map_err(|error| error.at_path(&place)),
    };
    let at_object = |error| job.at_object(root, directory, error);
    let mut copied_from = len.saturating_sub(guessed_end(parts));
    copy(copied_from..len).await?;
    mirror.set_len(len)?; // it has this length already, unless the spill is empty
    let spill = Spill::open(directory, &receipt).map_err(at_object)?;
    if spill.table_start() < copied_from {
        copy(spill.table_start()..copied_from).await?;
        copied_from = spill.table_start();
    }
    for range in merged(spill.section_ranges(part).map_err(at_object)?) {
        let end = range.end.min(copied_from);
        if range.start < end {
            copy(range.start..end).await?;
        }
    }
    Ok(())
}

/// Returns the length of trailer and table of a spill with one run, in which every part has a section, and random bytes.
fn guessed_end(parts: u64) -> u64 {
    parts.saturating_add(1).saturating_mul(ROW_LEN as u64).saturating_add(TRAILER_LEN as u64)
}

/// Merges ascending ranges with small gaps.
fn merged(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if (range.start - last.end).saturating_mul(GAP_FRACTION) <= range.end - range.start => {
                last.end = range.end;
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gaps_are_read_and_others_are_not() {
        let cases = [
            ("", ""),
            ("0..10 10..20", "0..20"),
            ("0..10 11..42", "0..10 11..42"),
            ("0..10 11..43", "0..43"),
            ("5..5 7..71 100..100 110..200", "5..71 100..100 110..200"),
        ];
        let parse = |range: &str| {
            let (start, end) = range.split_once("..").unwrap();
            start.parse::<u64>().unwrap()..end.parse::<u64>().unwrap()
        };
        for (ranges, expected) in cases {
            let merged: Vec<_> = merged(ranges.split_whitespace().map(parse).collect());
            let merged: Vec<_> = merged.iter().map(|range| format!("{range:?}")).collect();
            assert_eq!(merged.join(" "), expected, "{ranges}");
        }
    }

    /// The gaps of any number of small sections add up to less than 1/20 of what is wanted.
    #[test]
    fn gaps_are_a_small_part_of_what_is_read() {
        let ranges: Vec<_> = (0..1000).map(|at| at * 103..at * 103 + 100).collect();
        let (wanted, read): (u64, u64) = (100_000, merged(ranges).iter().map(|range| range.end - range.start).sum());
        assert!(read <= wanted + wanted / 20, "{read}");
    }
}
