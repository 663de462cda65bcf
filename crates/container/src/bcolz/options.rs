//! Options for creating arrays and tables.

use std::path::Path;

use serde_json::{Map, Value as Json, json};
use sharddb_format::{Error, Result};

use crate::bcolz::dtype::{ByteOrder, Dtype};
use crate::bcolz::encoding::ChunkEncoding;
use crate::bcolz::meta::{META, MetaFile, Order, ROOTDIRS, RootdirLayout, STORAGE, Sizes, is_plain_name, meta_path};
use crate::bcolz::writer::{BcolzTableWriter, BcolzWriter};
use crate::blosc::Shuffle;
use crate::bloscpack::Checksum;
use crate::new_file::{NewDirectory, create_dir, sync_dir};

/// Default length in bytes of a decoded chunk.
const CHUNK_BYTES: u64 = 512 << 10;

/// Default length in bytes of a decoded superchunk. An append rewrites the last superchunk.
const SUPERCHUNK_BYTES: u64 = 64 << 20;

/// Options for creating a bcolz array or table.
///
/// ```
/// use sharddb_container::bcolz::{BcolzArray, BcolzOptions};
///
/// let root = std::env::temp_dir().join(format!("sharddb-bcolz-doc-{}", std::process::id()));
/// let mut writer = BcolzOptions::new().chunk_rows(1000).create_array(&root, "int32", &[])?;
/// writer.append(&[7; 4 * 2500])?;
/// let array = BcolzArray::open(&root)?;
/// assert_eq!((array.rows(), array.nchunks()), (2500, 3));
/// # std::fs::remove_dir_all(&root).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BcolzOptions {
    layout: RootdirLayout,
    chunk_rows: Option<u64>,
    superchunk_chunks: Option<u64>,
    byte_order: ByteOrder,
    order: Order,
    encoding: ChunkEncoding,
}

impl Default for BcolzOptions {
    fn default() -> BcolzOptions {
        BcolzOptions::new()
    }
}

impl BcolzOptions {
    /// Creates the defaults: the shipped layout, chunks of 512 KiB, byte shuffle and LZ4.
    pub fn new() -> BcolzOptions {
        BcolzOptions {
            layout: RootdirLayout::Shipped,
            chunk_rows: None,
            superchunk_chunks: None,
            byte_order: ByteOrder::Little,
            order: Order::C,
            encoding: ChunkEncoding::default(),
        }
    }

    /// Sets the layout in the directory (default: [`RootdirLayout::Shipped`]).
    pub fn layout(&mut self, layout: RootdirLayout) -> &mut BcolzOptions {
        self.layout = layout;
        self
    }

    /// Sets the number of rows per chunk (default: as many as fit 512 KiB).
    pub fn chunk_rows(&mut self, rows: u64) -> &mut BcolzOptions {
        self.chunk_rows = Some(rows);
        self
    }

    /// Sets the largest number of chunks per superchunk (default: as many as fit 64 MiB when decoded).
    pub fn superchunk_chunks(&mut self, chunks: u64) -> &mut BcolzOptions {
        self.superchunk_chunks = Some(chunks);
        self
    }

    /// Sets the byte order of types whose name does not state one (default: little). Superchunks only.
    pub fn byte_order(&mut self, byte_order: ByteOrder) -> &mut BcolzOptions {
        self.byte_order = byte_order;
        self
    }

    /// Sets the order of the elements within a chunk of an array with several dimensions (default: C). Superchunks
    /// only. Rows are always appended in C order.
    pub fn order(&mut self, order: Order) -> &mut BcolzOptions {
        self.order = order;
        self
    }

    /// Sets how bytes are reordered before compression (default: byte shuffle).
    pub fn shuffle(&mut self, shuffle: Shuffle) -> &mut BcolzOptions {
        self.encoding.shuffle = shuffle;
        self
    }

    /// Sets whether to compress (default: yes, with LZ4).
    pub fn compress(&mut self, compress: bool) -> &mut BcolzOptions {
        self.encoding.compress = compress;
        self
    }

    /// Sets the digest after each chunk of a superchunk (default: Adler-32).
    pub fn checksum(&mut self, checksum: Checksum) -> &mut BcolzOptions {
        self.encoding.checksum = checksum;
        self
    }

    /// Sets the reserve after each chunk of a superchunk in percent of its length, so that a longer chunk can replace
    /// it in place (default: 0).
    pub fn reserve_percent(&mut self, percent: u32) -> &mut BcolzOptions {
        self.encoding.reserve_percent = percent;
        self
    }

    /// Creates an empty array, which appears at `path` only when it is complete. `row_shape` has the lengths of all
    /// dimensions except the first; it is empty for a plain column.
    ///
    /// # Errors
    ///
    /// `Io`; `InvalidSpec` for a type that NumPy does not have, or whose name does not state its width; `InvalidInput`
    /// if `path` exists, or options contradict each other.
    pub fn create_array(&self, path: impl AsRef<Path>, dtype: &str, row_shape: &[u64]) -> Result<BcolzWriter> {
        let root = path.as_ref();
        let storage = self.storage_of(&[("", dtype)], row_shape)?;
        let directory = NewDirectory::create(root)?;
        self.write_array(directory.temporary(), storage, row_shape)?;
        directory.finish()?;
        BcolzWriter::open_encoded(root, self.encoding)
    }

    /// Creates an empty table of plain columns, each given as name and type.
    ///
    /// # Errors
    ///
    /// Those of [`create_array`](BcolzOptions::create_array); `InvalidInput` for a name that cannot be the name of a
    /// directory.
    pub fn create_table(&self, path: impl AsRef<Path>, columns: &[(&str, &str)]) -> Result<BcolzTableWriter> {
        let root = path.as_ref();
        if let Some((name, _)) = columns.iter().find(|(name, _)| !is_plain_name(name)) {
            return Err(Error::invalid_input(format!("expected a name for a column, found \"{name}\"")));
        }
        if columns.is_empty() {
            return Err(Error::invalid_input("expected one or more columns, found none"));
        }
        let storage = self.storage_of(columns, &[])?;
        let directory = NewDirectory::create(root)?;
        match self.layout {
            RootdirLayout::Shipped => self.write_shipped_table(directory.temporary(), columns)?,
            RootdirLayout::Superchunks => {
                self.write_array(directory.temporary(), storage, &[])?;
                let data = directory.temporary().join("data");
                columns.iter().try_for_each(|(name, _)| create_dir(&data.join(name)))?;
                sync_dir(&data)?;
            }
        }
        directory.finish()?;
        BcolzTableWriter::open_encoded(root, self.encoding)
    }

    fn write_shipped_table(&self, root: &Path, columns: &[(&str, &str)]) -> Result<()> {
        for (name, dtype) in columns {
            let column = root.join(name);
            create_dir(&column)?;
            self.write_array(&column, self.storage_of(&[("", dtype)], &[])?, &[])?;
        }
        MetaFile::new(self.layout.attributes_path(root)).write()?;
        let mut rootdirs = MetaFile::new(root.join(ROOTDIRS));
        rootdirs.set("names", columns.iter().map(|(name, _)| *name).collect());
        rootdirs.write()
    }

    fn write_array(&self, root: &Path, storage: Map<String, Json>, row_shape: &[u64]) -> Result<()> {
        create_dir(&root.join("data"))?;
        create_dir(&root.join(META))?;
        let mut file = MetaFile::new(meta_path(root, STORAGE));
        for (name, value) in storage {
            file.set(&name, value);
        }
        file.write()?;
        MetaFile::new(self.layout.attributes_path(root)).write()?;
        let shape = [&[0][..], row_shape].concat();
        Sizes { file: MetaFile::new(meta_path(root, "sizes")), shape, nbytes: Some(0), cbytes: Some(0) }.write()
    }

    /// Returns the members of `meta/storage`.
    fn storage_of(&self, columns: &[(&str, &str)], row_shape: &[u64]) -> Result<Map<String, Json>> {
        let mut row_len = 1;
        for (_, dtype) in columns {
            row_len = row_len.max(self.row_len(dtype, row_shape)?);
        }
        let chunk_rows = self.chunk_rows.unwrap_or((CHUNK_BYTES / row_len).max(1));
        let chunk_len =
            chunk_rows.checked_mul(row_len).filter(|len| (1..=i32::MAX.unsigned_abs().into()).contains(len));
        let Some(chunk_len) = chunk_len else {
            return Err(Error::invalid_input(format!(
                "expected chunks below 2 GiB, found {chunk_rows} rows of {row_len} bytes"
            )));
        };
        let storage = match self.layout {
            RootdirLayout::Shipped => self.shipped_storage(columns, chunk_rows)?,
            RootdirLayout::Superchunks => {
                let automatic = (SUPERCHUNK_BYTES / chunk_len).max(1);
                let superchunk = self.superchunk_chunks.unwrap_or(automatic).max(1);
                let shape = [&[chunk_rows][..], row_shape].concat();
                self.superchunk_storage(columns, &shape, superchunk)
            }
        };
        match storage {
            Json::Object(members) => Ok(members),
            _ => Ok(Map::new()),
        }
    }

    fn row_len(&self, dtype: &str, row_shape: &[u64]) -> Result<u64> {
        let parsed = Dtype::parse(dtype)?;
        let row_len =
            parsed.itemsize().and_then(|len| row_shape.iter().try_fold(len, |all, len| all.checked_mul(*len)));
        match row_len.filter(|len| *len > 0) {
            Some(len) => Ok(len),
            None => {
                Err(Error::invalid_spec(format!("expected rows of a known width, found \"{dtype}\" x {row_shape:?}")))
            }
        }
    }

    fn shipped_storage(&self, columns: &[(&str, &str)], chunk_rows: u64) -> Result<Json> {
        if self.byte_order != ByteOrder::Little || self.order != Order::C {
            return Err(Error::invalid_input(
                "expected little endian and C order for the layout as shipped, found others: state the byte order in the \
                 type, or choose superchunks",
            ));
        }
        let dtype = columns.first().map_or("", |(_, dtype)| dtype);
        Ok(json!({
            "dtype": dtype, "chunklen": chunk_rows, "expectedlen": 0, "dflt": default_of(dtype),
            "cparams": {
                "clevel": if self.encoding.compress { 5 } else { 0 }, "cname": "lz4", "quantize": 0,
                "shuffle": match self.encoding.shuffle { Shuffle::None => 0, Shuffle::Bytes => 1, Shuffle::Bits => 2 },
            },
        }))
    }

    fn superchunk_storage(&self, columns: &[(&str, &str)], chunk_shape: &[u64], superchunk: u64) -> Json {
        let dtype = match columns {
            [("", dtype)] => Json::from(*dtype),
            columns => columns.iter().map(|(name, dtype)| (name.to_string(), Json::from(*dtype))).collect(),
        };
        let filters = match self.encoding.shuffle {
            Shuffle::None => json!([]),
            filter => json!([filter.as_str()]),
        };
        json!({
            "dtype": dtype, "chunkshape": chunk_shape, "superchunksize": superchunk,
            "endianness": self.byte_order.as_str(), "order": self.order.as_str(),
            "compression": {"library": "lz4", "level": if self.encoding.compress { 5 } else { 0 }, "filters": filters},
        })
    }
}

/// Returns bcolz's fill value. It must be a value of the type, since bcolz passes it to NumPy.
fn default_of(dtype: &str) -> Json {
    match dtype.trim_start_matches(['<', '>', '|', '=']) {
        "bool" | "?" | "b1" => Json::Bool(false),
        name if name.starts_with(['S', 'U', 'a']) => Json::from(""),
        name if name.starts_with('f') => Json::from(0.0),
        _ => Json::from(0),
    }
}
