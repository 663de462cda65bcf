//! `locate`: the path from a key to its value, with the numbers of the files.
//!
//! The ranges are read from the shard file by this module, so that they are those of the bytes; that the value is found
//! there is the answer of the library.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};
use sharddb::Snapshot;
use sharddb::spec::Encoding;

use crate::answer::read_exact_at;
use crate::budget::Budget;
use crate::database::Database;
use crate::gzip;
use crate::problem::{Problem, Result};

/// The largest minishard index that is read, encoded or decoded.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// The bytes of a row: a key, a gap and a length.
const ROW_BYTES: usize = 24;

/// Describes the path.
///
/// Errors: those of the lookup; `io`, `corrupt`, `too-large` and `busy` for the index.
pub(super) fn json(database: &Database, key: u64, budget: &Budget) -> Result<Value> {
    let pinned = database.pinned()?;
    let snapshot = &pinned.snapshot;
    let (spec, place) = (snapshot.spec(), snapshot.spec().route(key));
    let found = snapshot.locate(key)?;
    let file = spec.shard_file_name(place.shard);
    let path = snapshot.shards_directory().join(&file);
    let index = match File::open(&path) {
        Ok(file) => Some(Index::read(&file, &path, snapshot, key, budget)?),
        Err(error) if error.kind() == ErrorKind::NotFound => None, // the shard is empty
        Err(error) => return Err(Problem::io("open", &path, &error)),
    };
    let range = |range: &Range<u64>| json!({"start": range.start, "end": range.end});
    let entry = place.minishard.get() * 16;
    Ok(json!({
        "key": key.to_string(),
        "hashed": format!("{:#018x}", spec.hash(key)),
        "shard": file.trim_end_matches(".shard"),
        "minishard": place.minishard.get(),
        "file": file,
        "shard_index_entry": range(&(entry..entry + 16)),
        "minishard_index": index.as_ref().filter(|index| !index.stored.is_empty()).map(|index| json!({
            "start": index.stored.start,
            "end": index.stored.end,
            "rows": index.rows,
            "encoding": spec.minishard_index_encoding().as_str(),
        })),
        "row": index.as_ref().and_then(|index| index.row),
        "value": found.as_ref().map(|found| json!({
            "start": found.range.start,
            "end": found.range.end,
            "encoding": spec.data_encoding().as_str(),
        })),
        "found": found.is_some(),
    }))
}

/// The index of one minishard.
struct Index {
    /// Where it is stored in the file.
    stored: Range<u64>,
    rows: usize,
    /// The row of the key, from 0.
    row: Option<usize>,
}

impl Index {
    fn read(file: &File, path: &Path, snapshot: &Snapshot, key: u64, budget: &Budget) -> Result<Index> {
        let failed = |error: io::Error| Problem::io("read the minishard index of", path, &error);
        let spec = snapshot.spec();
        let stored = Index::range(file, snapshot, key).map_err(failed)?;
        let len = stored.end - stored.start;
        let mut share = budget.reserve(len)?;
        if len > MAX_INDEX_BYTES {
            return Err(too_large(len));
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| too_large(len))?];
        read_exact_at(file, &mut bytes, stored.start).map_err(failed)?;
        if spec.minishard_index_encoding() == Encoding::Gzip && !bytes.is_empty() {
            let decoded = gzip::stated_len(&bytes);
            if decoded > MAX_INDEX_BYTES {
                return Err(too_large(decoded));
            }
            budget.grow(&mut share, len + decoded)?;
            bytes = gzip::decode(&bytes, decoded).map_err(failed)?;
        }
        let rows = bytes.len() / ROW_BYTES;
        Ok(Index { stored, rows, row: row_of(&bytes, rows, key) })
    }

    /// Reads the entry of the shard index: the range of the minishard index in the file.
    fn range(file: &File, snapshot: &Snapshot, key: u64) -> io::Result<Range<u64>> {
        let (spec, place) = (snapshot.spec(), snapshot.spec().route(key));
        let mut entry = [0; 16];
        read_exact_at(file, &mut entry, place.minishard.get() * 16)?;
        let (start, end) = entry.split_at(8);
        let offset = |bytes: &[u8]| word(bytes)?.checked_add(spec.shard_index_len());
        let stored = offset(start).zip(offset(end)).map(|(start, end)| start..end);
        let len = file.metadata()?.len();
        stored.filter(|range| range.start <= range.end && range.end <= len).ok_or_else(|| {
            let message = format!("expected a range of the {len} bytes of the file in the entry of the shard index");
            io::Error::new(ErrorKind::InvalidData, message)
        })
    }
}

fn too_large(bytes: u64) -> Problem {
    Problem::too_large(format!(
        "expected a minishard index of at most {MAX_INDEX_BYTES} bytes to describe the path, found {bytes} or more"
    ))
}

/// Returns the row of a key. The first words are keys, each the difference from the one before.
fn row_of(index: &[u8], rows: usize, key: u64) -> Option<usize> {
    let mut known: u64 = 0;
    index.chunks_exact(8).take(rows).position(|bytes| {
        known = known.wrapping_add(word(bytes).unwrap_or(0));
        known == key
    })
}

fn word(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_differences() {
        let words: [u64; 9] = [5, 3, u64::MAX, 0, 0, 0, 8, 8, 8];
        let index: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        for (key, row) in [(5, Some(0)), (8, Some(1)), (7, Some(2)), (3, None), (0, None)] {
            assert_eq!(row_of(&index, 3, key), row, "{key}");
        }
        assert_eq!(row_of(&[], 0, 0), None);
    }
}
