//! Arrays: one column of rows, in either layout.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;
use sharddb::internal::fs::entry;
use sharddb_format::internal::byte_range::ByteRange;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bcolz::attributes::Attributes;
use crate::bcolz::chunks::{ChunkFiles, Chunks, FoundChunk, Superchunks};
use crate::bcolz::dtype::{ByteOrder, Dtype, Kind};
use crate::bcolz::meta::{MetaFile, Order, ROOTDIRS, RootdirLayout, STORAGE, Sizes, meta_path};
use crate::{ContainerOptions, KeySpace, MAX_DIMENSIONS, blosc};

/// An array of rows in compressed chunks: a bcolz carray, or a column of a table. A key is the number of a chunk.
///
/// Decoded chunks and rows are in the byte order that the type states. The meta files state how many rows are visible;
/// chunks may hold more, from an append that was not finished. If superchunks hold fewer rows than stated, the rows
/// that they hold are visible.
///
/// ```no_run
/// use sharddb_container::bcolz::BcolzArray;
///
/// let array = BcolzArray::open("prices")?;
/// let rows = array.read_rows(0..10)?;
/// assert_eq!(rows.len() as u64, 10 * array.row_bytes());
/// # Ok::<(), sharddb::Error>(())
/// ```
pub struct BcolzArray {
    /// Directory with the meta files: the array's own, or in superchunks that of the table whose column it is.
    pub(super) root: PathBuf,
    pub(super) data: PathBuf,
    pub(super) layout: RootdirLayout,
    pub(super) dtype: Dtype,
    pub(super) byte_order: ByteOrder,
    pub(super) order: Order,
    /// The lengths of all dimensions except the first.
    pub(super) row_shape: Vec<u64>,
    /// Bytes per row; 0 if rows have no fixed length.
    pub(super) row_len: u64,
    /// Rows of every chunk except the last.
    pub(super) chunk_rows: u64,
    /// Whether chunks hold parts of rows: the RFC's layout can cut every dimension.
    pub(super) cuts_rows: bool,
    pub(super) rows: u64,
    pub(super) sizes: Sizes,
    /// `meta/storage`, shared by the columns of a table.
    pub(super) storage: Arc<MetaFile>,
    pub(super) chunks: Chunks,
    pub(super) options: ContainerOptions,
}

impl fmt::Debug for BcolzArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BcolzArray").field("root", &self.root).finish_non_exhaustive()
    }
}

impl BcolzArray {
    /// Opens the array whose own meta files are in `root`.
    ///
    /// # Errors
    ///
    /// Those of [`open`](BcolzArray::open).
    pub(super) fn open_root(root: &Path, options: &ContainerOptions) -> Result<BcolzArray> {
        if entry::exists(&root.join(ROOTDIRS))? {
            return Err(is_table(root));
        }
        let storage = MetaFile::read(meta_path(root, STORAGE))?;
        let Some(dtype) = storage.get("dtype").and_then(Json::as_str).map(str::to_string) else {
            return Err(match storage.get("dtype") {
                Some(Json::Object(_)) => is_table(root),
                found => storage.invalid("the name of a type for \"dtype\"", found),
            });
        };
        BcolzArray::open_column(root, root.join("data"), &dtype, Arc::new(storage), options)
    }

    /// Opens a column whose chunks are in `data`, as described by the meta files in `root`.
    pub(super) fn open_column(
        root: &Path,
        data: PathBuf,
        dtype: &str,
        storage: Arc<MetaFile>,
        options: &ContainerOptions,
    ) -> Result<BcolzArray> {
        let dtype = Dtype::parse(dtype).map_err(|error| error.at_path(storage.path()))?;
        let sizes = Sizes::read(root)?;
        let layout = layout_of(&storage)?;
        let row_shape = sizes.shape.get(1..).unwrap_or_default().to_vec();
        let row_len = row_len(&dtype, &row_shape, &sizes, layout)?;
        let mut array = BcolzArray {
            root: root.to_path_buf(),
            layout,
            byte_order: dtype.byte_order().unwrap_or(storage.byte_order()?),
            order: storage.order()?,
            chunk_rows: stated_chunk_rows(&storage, &dtype)?,
            cuts_rows: cuts_rows(&storage, &row_shape)?,
            rows: sizes.rows(),
            chunks: Chunks::Superchunks(Superchunks::none()),
            dtype,
            data,
            row_shape,
            row_len,
            sizes,
            storage,
            options: options.clone(),
        };
        array.find_chunks()?;
        Ok(array)
    }

    fn find_chunks(&mut self) -> Result<()> {
        if self.layout == RootdirLayout::Shipped {
            let nchunks = self.rows.div_ceil(self.chunk_rows);
            self.chunks = Chunks::Shipped(ChunkFiles::list(&self.data, nchunks, self.options.storage)?);
            return Ok(());
        }
        if self.row_len == 0 {
            let dtype = Json::from(self.dtype.name());
            return Err(self.storage.invalid("a type of a known width for superchunks", Some(&dtype)));
        }
        if self.cuts_rows {
            // only `meta/sizes` states the number of rows if chunks do not hold whole rows
            self.chunks = Chunks::Superchunks(Superchunks::open(&self.data, 1, self.options.storage)?);
            return Ok(());
        }
        let mut superchunks = Superchunks::open(&self.data, self.row_len, self.options.storage)?;
        superchunks.show(self.sizes.rows());
        self.rows = superchunks.rows();
        if let [first, rest @ ..] = superchunks.parts()
            && (first.file.len() > 1 || !rest.is_empty())
        {
            self.chunk_rows = first.chunk_rows();
        }
        self.chunks = Chunks::Superchunks(superchunks);
        Ok(())
    }

    /// Returns the layout of the array in its directory.
    pub fn layout(&self) -> RootdirLayout {
        self.layout
    }

    /// Returns NumPy's name of the element type, as in the meta files.
    pub fn dtype(&self) -> &str {
        self.dtype.name()
    }

    /// Returns the byte order of the elements.
    pub fn byte_order(&self) -> ByteOrder {
        self.byte_order
    }

    /// Returns the order of the elements in each chunk of an array with several dimensions.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the lengths of the dimensions, rows first.
    pub fn shape(&self) -> Vec<u64> {
        [&[self.rows][..], &self.row_shape].concat()
    }

    /// Returns the bytes per row; 0 for Python objects, which have no fixed length.
    pub fn row_bytes(&self) -> u64 {
        self.row_len
    }

    /// Returns the number of rows of every chunk except the last.
    pub fn chunk_rows(&self) -> u64 {
        self.chunk_rows
    }

    /// Returns the number of chunks.
    pub fn nchunks(&self) -> u64 {
        self.chunks.len()
    }

    /// Reads the user attributes of the array.
    ///
    /// # Errors
    ///
    /// `Io`, `InvalidSpec`.
    pub fn attributes(&self) -> Result<Attributes> {
        Attributes::read(self.attributes_path())
    }

    pub(super) fn attributes_path(&self) -> PathBuf {
        self.layout.attributes_path(&self.root)
    }

    /// Reads the bytes of a range of rows, in C order whatever the order of the chunks.
    ///
    /// Cost: decodes every chunk that holds some of the rows.
    ///
    /// Memory: up to twice the bytes of the rows, and one chunk.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the range exceeds the array, or rows have no fixed length; `Unsupported` if `chunkshape` cuts
    /// rows into parts; `TooLarge` if memory cannot be allocated; those of [`get`](crate::Container::get).
    pub fn read_rows(&self, rows: std::ops::Range<u64>) -> Result<Vec<u8>> {
        self.need_whole_rows()?;
        if rows.start > rows.end || rows.end > self.rows {
            let message = format!("expected rows up to {}, found {}..{}", self.rows, rows.start, rows.end);
            return Err(Error::invalid_input(message).at_path(&self.data));
        }
        if self.row_len == 0 {
            let message = format!("expected rows of one length, found the type {}: read its chunks", self.dtype);
            return Err(Error::invalid_input(message).at_path(&self.data));
        }
        // not reserved in advance: the data may be far smaller than the meta files state
        let mut bytes = Vec::new();
        let mut row = rows.start;
        while row < rows.end {
            let Some((key, first)) = self.chunk_of_row(row) else { break };
            let chunk = self.decoded_rows(key)?;
            let end = rows.end.min(first + self.rows_of(key).max(1));
            let part = self.part_of(&chunk, row - first..end - first);
            if bytes.try_reserve(part.len()).is_err() {
                let message = format!("no memory for {} rows of {} bytes", rows.end - rows.start, self.row_len);
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            bytes.extend_from_slice(part);
            row = end;
        }
        Ok(bytes)
    }

    /// Checks that every chunk has whole rows.
    ///
    /// # Errors
    ///
    /// `Unsupported` if chunks cut rows.
    pub(super) fn need_whole_rows(&self) -> Result<()> {
        if !self.cuts_rows {
            return Ok(());
        }
        let found = self.storage.get("chunkshape").map_or(String::new(), Json::to_string);
        let message = format!(
            "expected a \"chunkshape\" that leaves rows of {:?} whole, found {found}: read its chunks",
            self.row_shape
        );
        Err(Error::new(ErrorKind::Unsupported, message).at_path(self.storage.path()))
    }

    fn part_of<'a>(&self, chunk: &'a [u8], rows: std::ops::Range<u64>) -> &'a [u8] {
        ByteRange { start: rows.start * self.row_len, end: rows.end * self.row_len }.of(chunk).unwrap_or_default()
    }

    /// Returns the key of the chunk that holds `row`, and the first row of that chunk.
    fn chunk_of_row(&self, row: u64) -> Option<(u64, u64)> {
        match &self.chunks {
            Chunks::Shipped(_) => Some((row / self.chunk_rows, row / self.chunk_rows * self.chunk_rows)),
            Chunks::Superchunks(superchunks) => superchunks.chunk_of_row(row),
        }
    }

    /// Returns the number of rows of a chunk.
    pub(super) fn rows_of(&self, key: u64) -> u64 {
        match &self.chunks {
            Chunks::Shipped(_) => self.rows.saturating_sub(key.saturating_mul(self.chunk_rows)).min(self.chunk_rows),
            Chunks::Superchunks(superchunks) => superchunks.rows_of(key).unwrap_or_default(),
        }
    }

    /// Reads the rows of a chunk in C order.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no such chunk; those of [`get`](crate::Container::get).
    pub(super) fn decoded_rows(&self, key: u64) -> Result<Vec<u8>> {
        let Some(chunk) = self.decoded(key)? else {
            return Err(Error::invalid_input(format!("expected a chunk below {}, found {key}", self.nchunks())));
        };
        match self.order {
            Order::F if !self.row_shape.is_empty() => Ok(self.in_c_order(&chunk, self.rows_of(key))),
            _ => Ok(chunk),
        }
    }

    fn in_c_order(&self, chunk: &[u8], rows: u64) -> Vec<u8> {
        let shape: Vec<_> = [&[rows][..], &self.row_shape].concat();
        let cells: u64 = self.row_shape.iter().product();
        let width = self.row_len.checked_div(cells).unwrap_or_default();
        let mut bytes = Vec::with_capacity(chunk.len());
        let space = KeySpace::Linear { grid: shape.clone() };
        for cell in 0..rows * cells {
            let position = space.position_of(cell).unwrap_or_default();
            // the first dimension varies fastest
            let at = position.iter().zip(&shape).rev().fold(0, |at, (index, len)| at * len + index);
            bytes.extend_from_slice(
                ByteRange { start: at * width, end: (at + 1) * width }.of(chunk).unwrap_or_default(),
            );
        }
        bytes
    }

    pub(super) fn find(&self, key: u64) -> Result<Option<FoundChunk<'_>>> {
        self.chunks.find(key).map_err(|error| error.at_key(key))
    }

    /// Decodes a chunk, truncated to its visible rows.
    pub(super) fn decoded(&self, key: u64) -> Result<Option<Vec<u8>>> {
        let Some(place) = self.find(key)? else { return Ok(None) };
        let decoded = place.file.decoded(place.number, self.options.max_chunk_bytes);
        let Some(mut decoded) = decoded.map_err(|error| error.at_key(key))? else { return Ok(None) };
        if self.row_len > 0 && !self.cuts_rows {
            self.check_len(key, decoded.len() as u64).map_err(|error| error.at_path(place.file.path()).at_key(key))?;
            decoded.truncate(usize::try_from(self.rows_of(key) * self.row_len).unwrap_or(usize::MAX));
        }
        Ok(Some(decoded))
    }

    /// Checks the decoded length of a chunk. The last chunk may be longer: it holds rows of an append that stopped
    /// before it wrote the meta files.
    fn check_len(&self, key: u64, found: u64) -> Result<()> {
        let expected = self.rows_of(key) * self.row_len;
        let may_be_longer = key + 1 == self.nchunks()
            && found > expected
            && (found <= self.chunk_rows * self.row_len || self.layout == RootdirLayout::Superchunks)
            && found.is_multiple_of(self.row_len);
        if found == expected || may_be_longer {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "expected a chunk of {expected} decoded bytes, as the meta files state, found {found}"
        )))
    }

    /// Reads the Blosc header of a chunk; `None` if there is no such chunk.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Io`.
    pub fn chunk_header(&self, key: u64) -> Result<Option<blosc::Header>> {
        let Some(place) = self.find(key)? else { return Ok(None) };
        let located = place.file.find_chunk(place.number).map_err(|error| error.at_key(key))?;
        Ok(located.map(|(_, header)| header))
    }
}

fn is_table(root: &Path) -> Error {
    Error::invalid_input(
        "expected an array, found a table: its columns are arrays, each at the path of the table with its name",
    )
    .at_path(root)
}

fn layout_of(storage: &MetaFile) -> Result<RootdirLayout> {
    match (storage.get("chunklen"), storage.get("chunkshape")) {
        (Some(_), None) => Ok(RootdirLayout::Shipped),
        (None, Some(_)) => Ok(RootdirLayout::Superchunks),
        (found, _) => Err(storage.invalid("either \"chunklen\" or \"chunkshape\"", found)),
    }
}

fn stated_chunk_rows(storage: &MetaFile, dtype: &Dtype) -> Result<u64> {
    if dtype.kind() == Kind::Object {
        return Ok(1); // each object has a chunk of its own
    }
    let rows = match storage.number("chunklen")? {
        Some(rows) => Some(rows),
        None => storage.numbers("chunkshape")?.and_then(|shape| shape.first().copied()),
    };
    match rows {
        Some(rows @ 1..=0x7fff_ffff) => Ok(rows),
        _ => Err(storage.invalid("from 1 to 2^31 - 1 rows for \"chunklen\"", storage.get("chunklen"))),
    }
}

/// Returns whether chunks cut rows: `chunkshape` states lengths other than those of the row.
fn cuts_rows(storage: &MetaFile, row_shape: &[u64]) -> Result<bool> {
    let shape = storage.numbers("chunkshape")?.unwrap_or_default();
    Ok(shape.get(1..).is_some_and(|within| !within.is_empty() && within != row_shape))
}

/// Returns the bytes per row, from the type or, if its name does not state a width, from the sizes.
fn row_len(dtype: &Dtype, row_shape: &[u64], sizes: &Sizes, layout: RootdirLayout) -> Result<u64> {
    let invalid = |expected: &str| sizes.file.invalid(expected, sizes.file.get("shape"));
    if row_shape.len() >= MAX_DIMENSIONS {
        return Err(invalid(&format!("at most {MAX_DIMENSIONS} dimensions")));
    }
    if dtype.kind() == Kind::Object {
        return match row_shape {
            [] => Ok(0),
            _ => Err(invalid("one dimension for objects")),
        };
    }
    let cells = row_shape.iter().try_fold(1u64, |cells, len| cells.checked_mul(*len));
    let from_type = match (cells, dtype.itemsize()) {
        (Some(cells), Some(itemsize)) => cells.checked_mul(itemsize),
        (Some(_), None) => sizes.nbytes.and_then(|nbytes| nbytes.checked_div(sizes.rows())).or(Some(0)),
        (None, _) => None,
    };
    let Some(row_len) = from_type.filter(|len| *len <= i32::MAX.unsigned_abs().into()) else {
        return Err(invalid("rows below 2 GiB"));
    };
    match (layout, sizes.nbytes) {
        // for superchunks, their headers state the number of rows
        (RootdirLayout::Shipped, Some(stated)) if sizes.rows().checked_mul(row_len) != Some(stated) => {
            let expected = format!("the bytes of {} rows of {row_len} bytes for \"nbytes\"", sizes.rows());
            Err(sizes.file.invalid(&expected, sizes.file.get("nbytes")))
        }
        _ => Ok(row_len),
    }
}
