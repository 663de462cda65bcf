//! The chunks of a column: which file holds each, which chunk of the file it is, and which rows it has.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sharddb::internal::bytes::StorageKind;
use sharddb_format::{Error, Result};

use crate::bloscpack::Superchunk;

/// The chunks of one column.
pub(super) enum Chunks {
    Shipped(ChunkFiles),
    Superchunks(Superchunks),
}

/// The place of a chunk: its file, and its number in the file.
pub(super) struct FoundChunk<'a> {
    pub(super) file: &'a Superchunk,
    pub(super) number: u64,
}

/// One chunk per file. The directory is listed once; a file is opened at its first use.
pub(super) struct ChunkFiles {
    directory: PathBuf,
    kind: StorageKind,
    nchunks: u64,
    files: BTreeMap<u64, OnceLock<Superchunk>>,
}

/// Several chunks per file, with all files open. Their headers state how many rows there are; the meta files limit how
/// many of them are visible.
pub(super) struct Superchunks {
    parts: Vec<Part>,
    /// The visible rows, and the chunks that hold them. Rows of an unfinished append may follow.
    rows: u64,
    nchunks: u64,
}

/// One superchunk, and where it starts in the column.
pub(super) struct Part {
    pub(super) file: Superchunk,
    pub(super) first_key: u64,
    pub(super) first_row: u64,
    /// Rows of every chunk except the last.
    chunk_rows: u64,
    last_rows: u64,
}

pub(super) fn chunk_file_name(key: u64) -> String {
    format!("__{key}.blp")
}

pub(super) fn superchunk_file_name(number: u64) -> String {
    format!("__{number}__.bin")
}

impl Chunks {
    /// Returns the number of chunks.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Shipped(files) => files.nchunks,
            Self::Superchunks(superchunks) => superchunks.nchunks,
        }
    }

    /// Returns the place of the chunk of `key`; `None` if the key is out of range.
    ///
    /// # Errors
    ///
    /// `Corrupt` if its file is missing; those of opening the file.
    pub(super) fn find(&self, key: u64) -> Result<Option<FoundChunk<'_>>> {
        match self {
            Self::Shipped(files) if key < files.nchunks => Ok(Some(FoundChunk { file: files.open(key)?, number: 0 })),
            Self::Shipped(_) => Ok(None),
            Self::Superchunks(superchunks) => Ok(superchunks
                .part_of_key(key)
                .map(|part| FoundChunk { file: &part.file, number: key - part.first_key })),
        }
    }
}

impl ChunkFiles {
    /// Lists the files of a data directory, which should have `nchunks` chunks.
    pub(super) fn list(directory: &Path, nchunks: u64, kind: StorageKind) -> Result<ChunkFiles> {
        let number = |name: &str| name.strip_prefix("__")?.strip_suffix(".blp")?.parse().ok();
        let numbers = list_numbers(directory, |name| number(name).filter(|key| name == chunk_file_name(*key)))?;
        let files = numbers.into_iter().map(|key| (key, OnceLock::new())).collect();
        Ok(ChunkFiles { directory: directory.to_path_buf(), kind, nchunks, files })
    }

    pub(super) fn path(&self, key: u64) -> PathBuf {
        self.directory.join(chunk_file_name(key))
    }

    /// Returns the numbers of all files whose name is that of a chunk.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.files.keys().copied()
    }

    pub(super) fn is_there(&self, key: u64) -> bool {
        self.files.contains_key(&key)
    }

    fn open(&self, key: u64) -> Result<&Superchunk> {
        let Some(place) = self.files.get(&key) else {
            let message = format!("expected {} chunks, found no file for this one", self.nchunks);
            return Err(Error::corrupt(message).at_path(&self.path(key)));
        };
        if let Some(file) = place.get() {
            return Ok(file);
        }
        let path = self.path(key);
        let file = Superchunk::open(&path, self.kind)?;
        if file.len() != 1 {
            let message = format!("expected a file of one chunk, found {}", file.len());
            return Err(Error::corrupt(message).at_path(&path));
        }
        Ok(place.get_or_init(|| file))
    }
}

impl Superchunks {
    /// Opens all superchunks of a data directory. A row has `row_len` bytes.
    ///
    /// # Errors
    ///
    /// `Corrupt` if a superchunk is missing, or does not hold whole rows; those of opening the files.
    pub(super) fn open(directory: &Path, row_len: u64, kind: StorageKind) -> Result<Superchunks> {
        let number = |name: &str| name.strip_prefix("__")?.strip_suffix("__.bin")?.parse().ok();
        let mut numbers = list_numbers(directory, |name| number(name).filter(|at| name == superchunk_file_name(*at)))?;
        numbers.sort_unstable();
        let mut parts: Vec<Part> = Vec::new();
        for (expected, found) in (1..).zip(numbers) {
            if expected != found {
                let path = directory.join(superchunk_file_name(expected));
                let message = format!("expected the superchunks numbered from 1 on, found number {found} next");
                return Err(Error::corrupt(message).at_path(&path));
            }
            let file = Superchunk::open(&directory.join(superchunk_file_name(found)), kind)?;
            let path = file.path().to_path_buf();
            let (first_key, first_row) = parts.last().map_or((0, 0), |part| (part.end_key(), part.end_row()));
            parts.push(Part::new(file, first_key, first_row, row_len).map_err(|error| error.at_path(&path))?);
        }
        let (rows, nchunks) = parts.last().map_or((0, 0), |part| (part.end_row(), part.end_key()));
        Ok(Superchunks { parts, rows, nchunks })
    }

    pub(super) fn none() -> Superchunks {
        Superchunks { parts: Vec::new(), rows: 0, nchunks: 0 }
    }

    /// Limits the visible rows to `rows`.
    pub(super) fn show(&mut self, rows: u64) {
        if rows < self.rows {
            let last = rows.checked_sub(1).and_then(|row| self.chunk_of_row(row));
            self.nchunks = last.map_or(0, |(key, _)| key + 1);
            self.rows = rows;
        }
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the number of visible rows.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of stored rows, visible or not.
    pub(super) fn stored_rows(&self) -> u64 {
        self.parts.last().map_or(0, Part::end_row)
    }

    fn part_of_key(&self, key: u64) -> Option<&Part> {
        let part = self.parts.get(self.parts.partition_point(|part| part.end_key() <= key))?;
        (part.first_key <= key && key < self.nchunks).then_some(part)
    }

    /// Returns the key of the chunk that holds `row`, and the first row of that chunk.
    pub(super) fn chunk_of_row(&self, row: u64) -> Option<(u64, u64)> {
        let part = self.parts.get(self.parts.partition_point(|part| part.end_row() <= row))?;
        let number = (row - part.first_row).checked_div(part.chunk_rows)?;
        Some((part.first_key + number, part.first_row + number * part.chunk_rows))
    }

    /// Returns the number of visible rows of a chunk.
    pub(super) fn rows_of(&self, key: u64) -> Option<u64> {
        let part = self.part_of_key(key)?;
        let number = key - part.first_key;
        let first = part.first_row + number * part.chunk_rows;
        Some(part.rows_of(number).min(self.rows.saturating_sub(first)))
    }
}

impl Part {
    fn new(file: Superchunk, first_key: u64, first_row: u64, row_len: u64) -> Result<Part> {
        let rows = |len: Option<u32>| match len {
            Some(len) if u64::from(len).is_multiple_of(row_len.max(1)) => Ok(u64::from(len) / row_len.max(1)),
            Some(len) => {
                Err(Error::corrupt(format!("expected chunks of whole rows of {row_len} bytes, found {len} bytes")))
            }
            None => {
                Err(Error::corrupt("expected a superchunk that states the size of its chunks, found one that does not"))
            }
        };
        let (chunk_rows, last_rows) = match file.len() {
            0 => (1, 0),
            // with a single chunk, only the length of the last chunk is valid
            1 => (rows(file.header().last_chunk())?, rows(file.header().last_chunk())?),
            _ => (rows(file.header().chunk_size())?, rows(file.header().last_chunk())?),
        };
        let part = Part { file, first_key, first_row, chunk_rows: chunk_rows.max(1), last_rows };
        let end = part.file.len().checked_mul(part.chunk_rows).and_then(|rows| rows.checked_add(first_row));
        match end {
            Some(_) => Ok(part),
            None => Err(Error::corrupt("expected fewer than 2^64 rows, found more")),
        }
    }

    pub(super) fn rows_of(&self, number: u64) -> u64 {
        if number + 1 == self.file.len() { self.last_rows } else { self.chunk_rows }
    }

    pub(super) fn chunk_rows(&self) -> u64 {
        self.chunk_rows
    }

    pub(super) fn end_key(&self) -> u64 {
        self.first_key + self.file.len()
    }

    pub(super) fn end_row(&self) -> u64 {
        match self.file.len() {
            0 => self.first_row,
            chunks => self.first_row + (chunks - 1) * self.chunk_rows + self.last_rows,
        }
    }
}

/// Returns the numbers in the names of the files of a directory. A missing directory counts as empty: some archive
/// formats lose empty directories.
fn list_numbers(directory: &Path, number: impl Fn(&str) -> Option<u64>) -> Result<Vec<u64>> {
    let fail = |error| Error::io("list the directory", directory, error);
    let mut numbers = Vec::new();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(numbers),
        entries => entries.map_err(fail)?,
    };
    for entry in entries {
        numbers.extend(entry.map_err(fail)?.file_name().to_str().and_then(&number));
    }
    Ok(numbers)
}
