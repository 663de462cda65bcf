//! The meta files: sizes, storage and attributes, in JSON or the supported subset of YAML.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sharddb::internal::bytes::open_regular;
use sharddb::internal::fs::entry;
use sharddb_format::internal::json::{self, excerpt};
use sharddb_format::{Error, ErrorKind, Result};

use crate::bcolz::dtype::ByteOrder;
use crate::bcolz::yaml;
use crate::new_file::NewFile;

/// A longer meta file is refused.
const MAX_META_FILE_BYTES: u64 = 16 << 20;

/// Name of the attributes file in the shipped layout, in the array's directory.
const SHIPPED_ATTRIBUTES: &str = "__attrs__";

/// Name of the file with the names of a table's columns, in the shipped layout.
pub(super) const ROOTDIRS: &str = "__rootdirs__";

/// Name of the directory of the meta files.
pub(super) const META: &str = "meta";

/// Name of the meta file with types, chunk shape and compression, in the directory `meta`.
pub(super) const STORAGE: &str = "storage";

/// The member of a store's `info` that keeps the meta files of an imported array.
pub(super) const ARRAY_MEMBER: &str = "bcolz";

/// The layout of a data set in its directory, which bcolz calls `rootdir`.
///
/// ```
/// use sharddb_container::bcolz::{BcolzOptions, RootdirLayout};
///
/// let mut options = BcolzOptions::new();
/// options.layout(RootdirLayout::Superchunks);
/// assert_eq!(RootdirLayout::Superchunks.as_str(), "superchunks");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RootdirLayout {
    /// As bcolz writes it (the default): one chunk per file, `data/__0.blp`. Each column of a table has a directory of
    /// its own.
    #[default]
    Shipped,
    /// As bcolz's RFC describes it: several chunks per file, `data/__1__.bin`. The columns of a table are below `data`.
    Superchunks,
}

impl RootdirLayout {
    /// Returns the name: `shipped` or `superchunks`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shipped => "shipped",
            Self::Superchunks => "superchunks",
        }
    }

    pub(super) fn attributes_path(self, root: &Path) -> PathBuf {
        match self {
            Self::Shipped => root.join(SHIPPED_ATTRIBUTES),
            Self::Superchunks => meta_path(root, "attributes"),
        }
    }
}

/// The order of the elements in a chunk with several dimensions.
///
/// ```
/// use sharddb_container::bcolz::{BcolzOptions, Order};
///
/// let mut options = BcolzOptions::new();
/// options.order(Order::F);
/// assert_eq!(Order::F.as_str(), "F");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// The last dimension varies fastest (the default).
    #[default]
    C,
    /// The first dimension varies fastest.
    F,
}

impl Order {
    /// Returns the name: `C` or `F`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::F => "F",
        }
    }
}

/// A meta file: an object with named members. Unknown members are kept.
#[derive(Clone, Debug, Default)]
pub(super) struct MetaFile {
    path: PathBuf,
    members: Map<String, Value>,
}

impl MetaFile {
    pub(super) fn new(path: PathBuf) -> MetaFile {
        MetaFile { path, members: Map::new() }
    }

    pub(super) fn from_members(path: PathBuf, members: Map<String, Value>) -> MetaFile {
        MetaFile { path, members }
    }

    /// Reads a file, which must exist.
    ///
    /// # Errors
    ///
    /// `Io`; `InvalidSpec` if it is not an object; `TooLarge`.
    pub(super) fn read(path: PathBuf) -> Result<MetaFile> {
        MetaFile::read_by(parse, path)
    }

    fn read_by(parse: fn(&str) -> Result<Value>, path: PathBuf) -> Result<MetaFile> {
        let members = read_text(&path).and_then(|text| match parse(&text)? {
            Value::Object(members) => Ok(members),
            Value::Null => Ok(Map::new()),
            _ => Err(Error::invalid_spec("expected named members in a meta file, found none")),
        });
        let members = members.map_err(|error| error.at_path(&path))?;
        Ok(MetaFile { path, members })
    }

    /// Reads a file. A missing file has no members.
    pub(super) fn read_if_there(path: PathBuf) -> Result<MetaFile> {
        if !entry::exists(&path)? {
            return Ok(MetaFile::new(path));
        }
        MetaFile::read(path)
    }

    /// Like [`read_if_there`](MetaFile::read_if_there), but refuses NaN and other text that is no JSON, which cannot be
    /// written again as it is.
    pub(super) fn read_exactly(path: PathBuf) -> Result<MetaFile> {
        if !entry::exists(&path)? {
            return Ok(MetaFile::new(path));
        }
        MetaFile::read_by(parse_exactly, path)
    }

    /// Writes the file, replacing the old one.
    pub(super) fn write(&self) -> Result<()> {
        let mut file = NewFile::create(&self.path)?;
        file.write(format!("{}\n", Value::Object(self.members.clone())).as_bytes())?;
        file.finish()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.members.get(name)
    }

    pub(super) fn members(&self) -> &Map<String, Value> {
        &self.members
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.members.insert(name.to_string(), value);
    }

    /// Removes a member; returns whether it existed.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.members.remove(name).is_some()
    }

    pub(super) fn invalid(&self, expected: &str, found: Option<&Value>) -> Error {
        let found = found.map_or("nothing".to_string(), Value::to_string);
        Error::invalid_spec(format!("expected {expected}, found {}", excerpt(&found))).at_path(&self.path)
    }

    /// Returns a member that is a natural number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.invalid(&format!("a natural number for \"{name}\""), Some(value))),
            },
        }
    }

    /// Returns a member that is a list of natural numbers, or one such number.
    pub(super) fn numbers(&self, name: &str) -> Result<Option<Vec<u64>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let numbers = match value {
            Value::Array(items) => items.iter().map(Value::as_u64).collect(),
            one => one.as_u64().map(|number| vec![number]),
        };
        match numbers {
            Some(numbers) => Ok(Some(numbers)),
            None => Err(self.invalid(&format!("natural numbers for \"{name}\""), Some(value))),
        }
    }

    /// Returns the member `endianness`.
    pub(super) fn byte_order(&self) -> Result<ByteOrder> {
        match self.get("endianness") {
            None | Some(Value::Null) => Ok(ByteOrder::Little),
            Some(value) => match value.as_str() {
                Some("little") => Ok(ByteOrder::Little),
                Some("big") => Ok(ByteOrder::Big),
                _ => Err(self.invalid("\"little\" or \"big\" for \"endianness\"", Some(value))),
            },
        }
    }

    /// Returns the member `order`.
    pub(super) fn order(&self) -> Result<Order> {
        match self.get("order") {
            None | Some(Value::Null) => Ok(Order::C),
            Some(value) => match value.as_str() {
                Some("C") => Ok(Order::C),
                Some("F") => Ok(Order::F),
                _ => Err(self.invalid("\"C\" or \"F\" for \"order\"", Some(value))),
            },
        }
    }
}

/// The lengths of the data: `meta/sizes`.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) file: MetaFile,
    pub(super) shape: Vec<u64>,
    pub(super) nbytes: Option<u64>,
    pub(super) cbytes: Option<u64>,
}

impl Sizes {
    pub(super) fn read(root: &Path) -> Result<Sizes> {
        let file = MetaFile::read(meta_path(root, "sizes"))?;
        let Some(shape) = file.numbers("shape")?.filter(|shape| !shape.is_empty()) else {
            return Err(file.invalid("the lengths of one or more dimensions for \"shape\"", file.get("shape")));
        };
        let (nbytes, cbytes) = (file.number("nbytes")?, file.number("cbytes")?);
        Ok(Sizes { file, shape, nbytes, cbytes })
    }

    /// Writes the file with these sizes, replacing the old one.
    pub(super) fn write(&self) -> Result<()> {
        let mut file = self.file.clone();
        file.set("shape", Value::from(self.shape.clone()));
        file.set("nbytes", Value::from(self.nbytes));
        file.set("cbytes", Value::from(self.cbytes));
        file.write()
    }

    pub(super) fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or_default()
    }
}

/// Returns whether a directory has the meta files of an array or a table.
pub(super) fn has_meta(root: &Path) -> Result<bool> {
    entry::is_file(&meta_path(root, STORAGE))
}

pub(super) fn meta_path(root: &Path, name: &str) -> PathBuf {
    root.join(META).join(name)
}

/// Returns whether `name` is a single path component and not `..`, so that it names a directory inside another.
pub(super) fn is_plain_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!(components.next(), Some(std::path::Component::Normal(only)) if only == name) && components.next().is_none()
}

/// Errors: `Io`; `TooLarge`; `InvalidSpec` if it is not UTF-8.
pub(super) fn read_text(path: &Path) -> Result<String> {
    let (file, len) = open_regular(path)?;
    if len > MAX_META_FILE_BYTES {
        let message = format!("expected a meta file of at most {MAX_META_FILE_BYTES} bytes, found {len}");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let mut bytes = Vec::new();
    file.take(MAX_META_FILE_BYTES).read_to_end(&mut bytes).map_err(|error| Error::io("read", path, error))?;
    String::from_utf8(bytes).map_err(|_| Error::invalid_spec("expected a meta file in UTF-8, found other bytes"))
}

/// Like [`parse_exactly`], but also reads what Python's `json` module writes and JSON has not: NaN is read as text.
fn parse(text: &str) -> Result<Value> {
    parse_exactly(text).or_else(|error| yaml::parse(text).map_err(|_| error))
}

/// Parses JSON if the text starts with `{`, otherwise YAML.
fn parse_exactly(text: &str) -> Result<Value> {
    if text.trim_start().starts_with('{') { parse_json(text) } else { yaml::parse(text) }
}

fn parse_json(text: &str) -> Result<Value> {
    // `json::parse` limits the depth
    serde_json::from_str(json::parse(text.as_bytes())?.get())
        .map_err(|error| Error::invalid_spec(format!("expected JSON: {error}")))
}
