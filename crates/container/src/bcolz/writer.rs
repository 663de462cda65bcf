//! Changes to arrays and tables: append and truncate rows, replace chunks, set attributes.
//!
//! A file is changed by writing a new one and renaming it, so a reader finds the old or the new file. A change of
//! several files becomes visible through one of them, `meta/sizes`, which states the number of rows:
//!
//! ```text
//! append     chunks or superchunks, which then hold more rows than are visible | meta/sizes
//! truncate   meta/sizes | chunks or superchunks, some of which are no longer visible | meta/sizes, for the lengths in it
//! replace    the chunk or superchunk | meta/sizes, for the lengths in it
//! ```
//!
//! So a crash leaves the old or the new rows, and perhaps bytes that are not visible; the first change of the next
//! writer removes or overwrites them. In the shipped layout each column of a table has its own sizes. The rows of the
//! table are those that all columns have: a crash between two columns leaves some columns longer, until the table is
//! truncated to its rows. In superchunks a table has one `meta/sizes`, and all columns change at once.
//!
//! An error leaves the old rows, or the new rows if it occurs after they became visible.
//!
//! The caller ensures that there is one writer at a time; there is no lock. Open readers do not see the change until
//! they are opened again.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use sharddb_format::{Error, ErrorKind, Result};

use crate::ContainerOptions;
use crate::bcolz::array::BcolzArray;
use crate::bcolz::attributes::Attributes;
use crate::bcolz::chunks::{Chunks, Part, Superchunks, chunk_file_name, superchunk_file_name};
use crate::bcolz::dtype::Kind;
use crate::bcolz::encoding::ChunkEncoding;
use crate::bcolz::meta::{META, RootdirLayout, Sizes};
use crate::bcolz::table::BcolzTable;
use crate::blosc::{self, Shuffle};
use crate::bloscpack::{BloscpackOptions, Replaced, encode_one_chunk, replace_chunk, rewrite};
use crate::new_file::{NewFile, clear, remove_file};

/// Changes an array.
///
/// ```no_run
/// use sharddb_container::bcolz::BcolzWriter;
///
/// let mut writer = BcolzWriter::open("prices")?;
/// writer.append(&7i32.to_le_bytes())?;
/// writer.set_attribute("currency", "\"EUR\"")?;
/// # Ok::<(), sharddb::Error>(())
/// ```
pub struct BcolzWriter {
    array: BcolzArray,
    encoding: ChunkEncoding,
    /// Whether this writer or an earlier one may have left an unfinished change.
    unfinished: bool,
}

impl fmt::Debug for BcolzWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BcolzWriter").field("array", &self.array).finish_non_exhaustive()
    }
}

impl BcolzWriter {
    /// Opens an array for changes. New chunks are written with the defaults of [`BcolzOptions`](super::BcolzOptions);
    /// existing superchunks keep their kind of checksum.
    ///
    /// # Errors
    ///
    /// Those of [`BcolzArray::open`]; `Unsupported` for Python objects and records, and for chunks that cut rows.
    pub fn open(path: impl AsRef<Path>) -> Result<BcolzWriter> {
        BcolzWriter::open_encoded(path.as_ref(), ChunkEncoding::default())
    }

    pub(super) fn open_encoded(root: &Path, encoding: ChunkEncoding) -> Result<BcolzWriter> {
        let array = BcolzArray::open_with(root, &ContainerOptions::new())?;
        refuse_unknown_width(&array)?;
        Ok(BcolzWriter { array, encoding, unfinished: true })
    }

    /// Returns the array in its current state.
    pub fn array(&self) -> &BcolzArray {
        &self.array
    }

    /// Sets the reserve after new chunks, in percent of their length (default: 0). Superchunks only.
    pub fn reserve_percent(&mut self, percent: u32) -> &mut BcolzWriter {
        self.encoding.reserve_percent = percent;
        self
    }

    /// Sets how the bytes of new chunks are reordered before compression (default: byte shuffle).
    pub fn shuffle(&mut self, shuffle: Shuffle) -> &mut BcolzWriter {
        self.encoding.shuffle = shuffle;
        self
    }

    /// Appends rows, in C order and the byte order of the type. They fill the last chunk, then new chunks; in
    /// superchunks, the last superchunk is filled first.
    ///
    /// Cost: O(files of the array) in addition to the rows, so one append of many rows is much cheaper than many
    /// appends.
    ///
    /// Memory: one superchunk, or one chunk in the shipped layout.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `rows` is not a whole number of rows; `Io`; `Corrupt` if the last chunk cannot be decoded.
    pub fn append(&mut self, rows: &[u8]) -> Result<()> {
        self.change(|writer| {
            let shown = writer.array.rows + whole_rows(&writer.array, rows)?;
            append(&writer.array, writer.encoding, rows)?;
            writer.reopen()?;
            writer.write_sizes(shown)
        })
    }

    /// Truncates the array to its first `rows` rows.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the array has fewer; `Io`; `Corrupt` if the chunk that is cut cannot be decoded.
    pub fn truncate(&mut self, rows: u64) -> Result<()> {
        self.change(|writer| {
            check_truncation(&writer.array, rows)?;
            writer.write_sizes(rows)?; // first: later rows are no longer visible
            truncate(&writer.array, writer.encoding, rows)?;
            writer.reopen()?;
            writer.write_sizes(rows)
        })
    }

    /// Replaces the rows of a chunk by the same number of rows, in C order.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no such chunk, or it has a different number of rows; `Io`.
    pub fn replace_chunk(&mut self, key: u64, rows: &[u8]) -> Result<Replaced> {
        self.change(|writer| {
            let replaced = replace(&writer.array, writer.encoding, key, rows)?;
            writer.reopen()?;
            writer.write_sizes(writer.array.rows)?;
            Ok(replaced)
        })
    }

    /// Sets an attribute to a value, given as JSON text: `23.5`, `"text"`, `{"value": [1, 3], "dtype": "int32"}`.
    ///
    /// # Errors
    ///
    /// `InvalidSpec` if it is not JSON; `Io`.
    pub fn set_attribute(&mut self, name: &str, value: &str) -> Result<()> {
        set_attribute(self.array.layout, &self.array.root, name, value)
    }

    /// Removes an attribute; returns whether it existed.
    ///
    /// # Errors
    ///
    /// `Io`; `InvalidSpec` if the attributes file is invalid.
    pub fn remove_attribute(&mut self, name: &str) -> Result<bool> {
        remove_attribute(self.array.layout, &self.array.root, name)
    }

    /// Makes a change, after removing what an unfinished change left.
    fn change<T>(&mut self, change: impl FnOnce(&mut BcolzWriter) -> Result<T>) -> Result<T> {
        if self.unfinished {
            self.reopen()?;
            clear(&self.array.root)?;
            clear(&self.array.root.join(META))?;
            recover(&self.array, self.encoding)?;
            self.reopen()?;
        }
        self.unfinished = true;
        let changed = change(self)?;
        self.reopen()?;
        self.unfinished = false;
        Ok(changed)
    }

    fn reopen(&mut self) -> Result<()> {
        self.array = BcolzArray::open_with(&self.array.root, &self.array.options)?;
        Ok(())
    }

    fn write_sizes(&self, rows: u64) -> Result<()> {
        write_sizes(&self.array.sizes, rows, self.array.row_len, stored_bytes(&self.array, rows)?)
    }
}

/// Changes all columns of a table together.
///
/// ```no_run
/// use sharddb_container::bcolz::BcolzTableWriter;
///
/// let mut writer = BcolzTableWriter::open("trades")?; // columns id: int32, price: float32
/// writer.append(&[&1i32.to_le_bytes(), &9.5f32.to_le_bytes()])?;
/// # Ok::<(), sharddb::Error>(())
/// ```
pub struct BcolzTableWriter {
    root: PathBuf,
    table: BcolzTable,
    encoding: ChunkEncoding,
    /// Whether this writer or an earlier one may have left an unfinished change.
    unfinished: bool,
}

impl fmt::Debug for BcolzTableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BcolzTableWriter").field("root", &self.root).finish_non_exhaustive()
    }
}

impl BcolzTableWriter {
    /// Opens a table for changes.
    ///
    /// # Errors
    ///
    /// Those of [`BcolzTable::open`](super::BcolzTable::open); `Unsupported` for Python objects and records, and for
    /// chunks that cut rows.
    pub fn open(path: impl AsRef<Path>) -> Result<BcolzTableWriter> {
        BcolzTableWriter::open_encoded(path.as_ref(), ChunkEncoding::default())
    }

    pub(super) fn open_encoded(root: &Path, encoding: ChunkEncoding) -> Result<BcolzTableWriter> {
        let table = BcolzTable::open(root)?;
        for (_, column) in table.columns() {
            refuse_unknown_width(column)?;
        }
        Ok(BcolzTableWriter { root: root.to_path_buf(), table, encoding, unfinished: true })
    }

    /// Returns the table in its current state.
    pub fn table(&self) -> &BcolzTable {
        &self.table
    }

    /// Appends rows, given as one slice per column in the order of [`BcolzTable::columns`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless there is one slice per column, all with the same number of rows; those of
    /// [`BcolzWriter::append`]. Rows that some columns already have are removed again if possible.
    pub fn append(&mut self, columns: &[&[u8]]) -> Result<()> {
        self.change(|writer| {
            let (before, count) = (writer.table.rows(), writer.count_rows(columns)?);
            match writer.table.layout() {
                RootdirLayout::Shipped => writer.append_to_each(columns).inspect_err(|_| writer.cut_back(before)),
                RootdirLayout::Superchunks => {
                    for ((_, column), rows) in writer.table.columns().zip(columns) {
                        append(column, writer.encoding, rows)?;
                    }
                    writer.reopen()?;
                    writer.write_sizes(before + count)
                }
            }
        })
    }

    /// Appends in the shipped layout, where each column has its own sizes.
    fn append_to_each(&self, columns: &[&[u8]]) -> Result<()> {
        self.table
            .columns()
            .zip(columns)
            .try_for_each(|((_, column), rows)| BcolzWriter::open_encoded(&column.root, self.encoding)?.append(rows))
    }

    /// Truncates columns of the shipped layout that became longer. Errors are ignored: the append has failed already.
    fn cut_back(&self, rows: u64) {
        for (_, column) in self.table.columns() {
            let cut = |mut writer: BcolzWriter| if writer.array.rows > rows { writer.truncate(rows) } else { Ok(()) };
            _ = BcolzWriter::open_encoded(&column.root, self.encoding).and_then(cut);
        }
    }

    /// Returns the number of rows that `columns` have.
    fn count_rows(&self, columns: &[&[u8]]) -> Result<u64> {
        let expected = self.table.columns().count();
        if let Some((name, column)) = self.table.columns().find(|(_, column)| column.rows != self.table.rows()) {
            let message = format!(
                "expected columns of {} rows, found {} in \"{name}\": truncate the table to that length",
                self.table.rows(),
                column.rows
            );
            return Err(Error::invalid_input(message).at_path(&self.root));
        }
        let counts = self.table.columns().zip(columns).map(|((_, column), part)| whole_rows(column, part));
        let counts = counts.collect::<Result<Vec<_>>>()?;
        if columns.len() != expected || counts.windows(2).any(|pair| pair.first() != pair.last()) {
            let message = format!(
                "expected {expected} columns of the same number of rows, found {} with {counts:?} rows",
                columns.len()
            );
            return Err(Error::invalid_input(message).at_path(&self.root));
        }
        Ok(counts.first().copied().unwrap_or_default())
    }

    /// Truncates every column to its first `rows` rows.
    ///
    /// # Errors
    ///
    /// Those of [`BcolzWriter::truncate`].
    pub fn truncate(&mut self, rows: u64) -> Result<()> {
        self.change(|writer| {
            writer.table.columns().try_for_each(|(_, column)| check_truncation(column, rows))?;
            let mut columns = writer.table.columns();
            match writer.table.layout() {
                RootdirLayout::Shipped => columns.try_for_each(|(_, column)| {
                    BcolzWriter::open_encoded(&column.root, writer.encoding)?.truncate(rows)
                }),
                RootdirLayout::Superchunks => {
                    writer.write_sizes(rows)?; // first: later rows are no longer visible
                    columns.try_for_each(|(_, column)| truncate(column, writer.encoding, rows))?;
                    drop(columns);
                    writer.reopen()?;
                    writer.write_sizes(rows)
                }
            }
        })
    }

    /// Sets an attribute of the table; see [`BcolzWriter::set_attribute`].
    ///
    /// # Errors
    ///
    /// `InvalidSpec` if `value` is not JSON; `Io`.
    pub fn set_attribute(&mut self, name: &str, value: &str) -> Result<()> {
        set_attribute(self.table.layout(), &self.root, name, value)
    }

    /// Removes an attribute; returns whether it existed.
    ///
    /// # Errors
    ///
    /// `Io`; `InvalidSpec` if the attributes file is invalid.
    pub fn remove_attribute(&mut self, name: &str) -> Result<bool> {
        remove_attribute(self.table.layout(), &self.root, name)
    }

    /// Makes a change, after removing what an unfinished change left. In the shipped layout the writers of the columns
    /// do that.
    fn change<T>(&mut self, change: impl FnOnce(&mut BcolzTableWriter) -> Result<T>) -> Result<T> {
        if self.unfinished {
            self.reopen()?;
            clear(&self.root)?;
            if self.table.layout() == RootdirLayout::Superchunks {
                clear(&self.root.join(META))?;
                self.table.columns().try_for_each(|(_, column)| recover(column, self.encoding))?;
            }
            self.reopen()?;
        }
        self.unfinished = true;
        let changed = change(self)?;
        self.reopen()?;
        self.unfinished = false;
        Ok(changed)
    }

    fn reopen(&mut self) -> Result<()> {
        self.table = BcolzTable::open(&self.root)?;
        Ok(())
    }

    /// Writes the sizes that all columns in superchunks share.
    fn write_sizes(&self, rows: u64) -> Result<()> {
        let (mut row_len, mut stored, mut sizes) = (0, 0, None);
        for (_, column) in self.table.columns() {
            row_len += column.row_len;
            stored += stored_bytes(column, rows)?;
            sizes = Some(&column.sizes);
        }
        sizes.map_or(Ok(()), |sizes| write_sizes(sizes, rows, row_len, stored))
    }
}

fn refuse_unknown_width(array: &BcolzArray) -> Result<()> {
    array.need_whole_rows()?;
    match array.dtype.kind() {
        Kind::Object | Kind::Record => Err(Error::new(
            ErrorKind::Unsupported,
            format!("expected elements of a known width to write, found the type {}", array.dtype),
        )
        .at_path(&array.root)),
        _ if array.row_len == 0 => {
            Err(Error::invalid_input("expected rows of one byte or more, found none").at_path(&array.root))
        }
        _ => Ok(()),
    }
}

/// Removes what an unfinished change left in the data directory of an array.
fn recover(array: &BcolzArray, encoding: ChunkEncoding) -> Result<()> {
    clear(&array.data)?;
    match &array.chunks {
        Chunks::Superchunks(there) if there.stored_rows() == there.rows() => Ok(()),
        _ => truncate(array, encoding, array.rows),
    }
}

/// Returns the number of rows in `rows`, which must be whole rows.
fn whole_rows(array: &BcolzArray, rows: &[u8]) -> Result<u64> {
    let len = rows.len() as u64;
    if array.row_len > 0 && len.is_multiple_of(array.row_len) {
        return Ok(len / array.row_len);
    }
    let message = format!("expected rows of {} bytes, found {len} bytes", array.row_len);
    Err(Error::invalid_input(message).at_path(&array.data))
}

fn check_truncation(array: &BcolzArray, rows: u64) -> Result<()> {
    if rows <= array.rows {
        return Ok(());
    }
    Err(Error::invalid_input(format!("expected at most {} rows to keep, found {rows}", array.rows))
        .at_path(&array.data))
}

fn append(array: &BcolzArray, encoding: ChunkEncoding, rows: &[u8]) -> Result<()> {
    if whole_rows(array, rows)? == 0 {
        return Ok(());
    }
    match &array.chunks {
        Chunks::Shipped(_) => append_shipped(array, encoding, rows),
        Chunks::Superchunks(superchunks) => append_superchunks(array, superchunks, encoding, rows),
    }
}

fn append_shipped(array: &BcolzArray, encoding: ChunkEncoding, rows: &[u8]) -> Result<()> {
    let full = array.rows / array.chunk_rows;
    let begun = if array.rows.is_multiple_of(array.chunk_rows) { Vec::new() } else { array.decoded_rows(full)? };
    for (key, chunk) in (full..).zip(cut(&begun, rows, array.chunk_rows * array.row_len)) {
        write_chunk_file(array, key, &encoding.encode(array, &chunk)?)?;
    }
    Ok(())
}

/// Splits `begun` followed by `rows` into chunks.
fn cut<'a>(begun: &'a [u8], rows: &'a [u8], chunk_len: u64) -> impl Iterator<Item = Vec<u8>> + 'a {
    let chunk_len = usize::try_from(chunk_len).unwrap_or(usize::MAX);
    let (first, rest) = rows.split_at_checked(chunk_len.saturating_sub(begun.len())).unwrap_or((rows, &[]));
    std::iter::once([begun, first].concat()).chain(rest.chunks(chunk_len).map(<[u8]>::to_vec))
}

fn write_chunk_file(array: &BcolzArray, key: u64, chunk: &[u8]) -> Result<()> {
    let mut file = NewFile::create(&array.data.join(chunk_file_name(key)))?;
    file.write(&encode_one_chunk(chunk))?;
    file.finish()
}

fn append_superchunks(array: &BcolzArray, there: &Superchunks, encoding: ChunkEncoding, rows: &[u8]) -> Result<()> {
    let room = superchunk_chunks(array)?;
    let (chunk_rows, last) = match there.parts().last() {
        Some(last) if last.file.len() > 0 => (array.chunk_rows, Some(last)),
        _ => (array.chunk_rows, None),
    };
    // chunks of the last superchunk may have a different size
    let chunk_rows = last.filter(|last| last.file.len() > 1).map_or(chunk_rows, Part::chunk_rows);
    let begun = match last {
        Some(last) if last.rows_of(last.file.len() - 1) < chunk_rows => array.decoded_rows(last.end_key() - 1)?,
        _ => Vec::new(),
    };
    let mut chunks = cut(&begun, rows, chunk_rows * array.row_len);
    let mut number = there.parts().len() as u64;
    if let Some(last) = last {
        let kept = last.file.len() - u64::from(!begun.is_empty());
        // a partial last chunk is continued; new chunks follow as long as the superchunk has room
        let free = room.max(last.file.len()).saturating_sub(kept);
        let more = take_encoded(array, encoding, &mut chunks, free)?;
        if !more.is_empty() {
            let chunk = |at: u64| more.get(usize::try_from(at.checked_sub(kept)?).ok()?).map(Vec::as_slice);
            rewrite(&last.file, encoding.reserve_percent, kept + more.len() as u64, chunk)?;
        }
    }
    loop {
        let more = take_encoded(array, encoding, &mut chunks, room)?;
        if more.is_empty() {
            return Ok(());
        }
        number += 1;
        write_superchunk(array, encoding, number, &more)?;
    }
}

fn take_encoded(
    array: &BcolzArray,
    encoding: ChunkEncoding,
    chunks: &mut impl Iterator<Item = Vec<u8>>,
    count: u64,
) -> Result<Vec<Vec<u8>>> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    chunks.by_ref().take(count).filter(|chunk| !chunk.is_empty()).map(|chunk| encoding.encode(array, &chunk)).collect()
}

fn write_superchunk(array: &BcolzArray, encoding: ChunkEncoding, number: u64, chunks: &[Vec<u8>]) -> Result<()> {
    let cells: u64 = array.row_shape.iter().product();
    let itemsize = array.row_len.checked_div(cells).unwrap_or(1);
    let mut options = BloscpackOptions::new();
    options
        .typesize(usize::try_from(itemsize).unwrap_or(1))
        .checksum(encoding.checksum)
        .reserve_percent(encoding.reserve_percent);
    let mut writer = options.create(array.data.join(superchunk_file_name(number)), chunks.len() as u64)?;
    for chunk in chunks {
        writer.push_encoded(chunk)?;
    }
    writer.finish()
}

/// Returns the largest number of chunks per superchunk.
fn superchunk_chunks(array: &BcolzArray) -> Result<u64> {
    match array.storage.number("superchunksize")? {
        Some(0) => {
            Err(array.storage.invalid("one chunk or more for \"superchunksize\"", array.storage.get("superchunksize")))
        }
        Some(chunks) => Ok(chunks),
        None => Ok(1),
    }
}

fn truncate(array: &BcolzArray, encoding: ChunkEncoding, rows: u64) -> Result<()> {
    match &array.chunks {
        Chunks::Shipped(files) => {
            let (full, left) = (rows / array.chunk_rows, rows % array.chunk_rows);
            if left > 0 && array.rows_of(full) > left {
                let chunk = first_rows(array, full, left)?;
                write_chunk_file(array, full, &encoding.encode(array, &chunk)?)?;
            }
            let kept = rows.div_ceil(array.chunk_rows);
            // in descending order, so that there is never a gap
            for key in files.numbers().filter(|key| *key >= kept).collect::<Vec<_>>().into_iter().rev() {
                remove_file(&files.path(key))?;
            }
            Ok(())
        }
        Chunks::Superchunks(superchunks) => truncate_superchunks(array, superchunks, encoding, rows),
    }
}

fn truncate_superchunks(array: &BcolzArray, there: &Superchunks, encoding: ChunkEncoding, rows: u64) -> Result<()> {
    for part in there.parts().iter().rev() {
        if part.first_row >= rows {
            remove_file(part.file.path())?;
            continue;
        }
        if part.end_row() <= rows {
            return Ok(());
        }
        let full = (rows - part.first_row) / part.chunk_rows();
        let left = (rows - part.first_row) % part.chunk_rows();
        let last = match left {
            0 => None,
            left => Some(encoding.encode(array, &first_rows(array, part.first_key + full, left)?)?),
        };
        let nchunks = full + u64::from(last.is_some());
        return rewrite(&part.file, encoding.reserve_percent, nchunks, |at| last.as_deref().filter(|_| at == full));
    }
    Ok(())
}

/// Reads the first rows of a chunk, in C order.
fn first_rows(array: &BcolzArray, key: u64, rows: u64) -> Result<Vec<u8>> {
    let mut chunk = array.decoded_rows(key)?;
    chunk.truncate(usize::try_from(rows * array.row_len).unwrap_or(usize::MAX));
    Ok(chunk)
}

fn replace(array: &BcolzArray, encoding: ChunkEncoding, key: u64, rows: &[u8]) -> Result<Replaced> {
    let (found, expected) = (whole_rows(array, rows)?, array.rows_of(key));
    if key >= array.nchunks() || found != expected {
        let message = format!("expected the {expected} rows of a chunk below {}, found {found} rows", array.nchunks());
        return Err(Error::invalid_input(message).at_path(&array.data).at_key(key));
    }
    let chunk = encoding.encode(array, rows)?;
    match array.find(key)? {
        Some(place) if array.layout == RootdirLayout::Superchunks => {
            replace_chunk(place.file, place.number, &chunk, encoding.reserve_percent)
        }
        _ => write_chunk_file(array, key, &chunk).map(|()| Replaced::Rewritten),
    }
}

/// Returns the stored bytes of the chunks that hold the first `rows` rows.
fn stored_bytes(array: &BcolzArray, rows: u64) -> Result<u64> {
    let mut stored = 0;
    match &array.chunks {
        Chunks::Shipped(files) => {
            for key in files.numbers().take_while(|key| *key < rows.div_ceil(array.chunk_rows)) {
                let path = files.path(key);
                let len = fs::metadata(&path).map_err(|error| Error::io("find", &path, error))?.len();
                // without the bloscpack header, which is as long as a Blosc header
                stored += len.saturating_sub(blosc::HEADER_LEN as u64);
            }
        }
        Chunks::Superchunks(superchunks) => stored = superchunks.parts().iter().map(|part| part.file.file_len()).sum(),
    }
    Ok(stored)
}

fn write_sizes(sizes: &Sizes, rows: u64, row_len: u64, stored: u64) -> Result<()> {
    let mut sizes = sizes.clone();
    if let Some(first) = sizes.shape.first_mut() {
        *first = rows;
    }
    sizes.nbytes = rows.checked_mul(row_len);
    sizes.cbytes = Some(stored);
    sizes.write()
}

fn set_attribute(layout: RootdirLayout, root: &Path, name: &str, value: &str) -> Result<()> {
    let mut attributes = Attributes::read_exactly(layout.attributes_path(root))?;
    attributes.set(name, value)?;
    attributes.write()
}

fn remove_attribute(layout: RootdirLayout, root: &Path, name: &str) -> Result<bool> {
    let mut attributes = Attributes::read_exactly(layout.attributes_path(root))?;
    let was_there = attributes.remove(name);
    attributes.write().map(|()| was_there)
}
