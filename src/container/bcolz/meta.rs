//! The files that say what the data is: sizes, storage and attributes, as JSON or in the part of YAML that is read.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::container::bcolz::dtype::ByteOrder;
use crate::container::bcolz::yaml;
use crate::container::new_file::NewFile;
use crate::error::{Error, ErrorKind, Result};
use crate::format::json::{self, excerpt};
use crate::storage::open_regular;

/// Longer meta files are refused.
const MAX_META_FILE_BYTES: u64 = 16 << 20;

/// Of the directory of an array: the attributes, as shipped.
const SHIPPED_ATTRIBUTES: &str = "__attrs__";

/// The names of a table's columns, as shipped.
pub(super) const ROOTDIRS: &str = "__rootdirs__";

/// The directory of the files that say what the data is.
pub(super) const META: &str = "meta";

/// Of the directory `meta`: types, chunks, how they are compressed.
pub(super) const STORAGE: &str = "storage";

/// The member of a store's `info` that keeps the meta files of an imported array.
pub(super) const ARRAY_MEMBER: &str = "bcolz";

/// How a data set lies in its directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RootdirLayout {
    /// As bcolz writes it (the default): one chunk a file, `data/__0.blp`; columns in directories of their own.
    #[default]
    Shipped,
    /// As the RFC for bcolz has it: several chunks a file, `data/__1__.bin`; columns within `data`.
    Superchunks,
}

impl RootdirLayout {
    /// The name, in one lowercase word.
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

/// The order of the elements of a chunk with several dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// The last dimension runs fastest (the default).
    #[default]
    C,
    /// The first dimension runs fastest.
    F,
}

impl Order {
    /// The letter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::F => "F",
        }
    }
}

/// One meta file: an object of named members, those that nobody here knows included.
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

    /// Reads a file that must be there.
    ///
    /// Errors: `Io`; `InvalidSpec` if it is no object; `TooLarge`.
    pub(super) fn read(path: PathBuf) -> Result<MetaFile> {
        let members = read_members(&path).map_err(|error| error.at_path(&path))?;
        Ok(MetaFile { path, members })
    }

    /// Reads a file; if there is none, it has no members.
    pub(super) fn read_if_there(path: PathBuf) -> Result<MetaFile> {
        if path.symlink_metadata().is_err() {
            return Ok(MetaFile::new(path));
        }
        MetaFile::read(path)
    }

    /// Replaces the file.
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

    /// Removes a member; whether it was there.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.members.remove(name).is_some()
    }

    pub(super) fn invalid(&self, expected: &str, found: Option<&Value>) -> Error {
        let found = found.map_or("nothing".to_string(), Value::to_string);
        Error::invalid_spec(format!("expected {expected}, found {}", excerpt(&found))).at_path(&self.path)
    }

    /// A member that is a natural number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.invalid(&format!("a natural number for \"{name}\""), Some(value))),
            },
        }
    }

    /// A member that is a list of natural numbers, or one such number.
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

    /// The member `endianness`.
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

    /// The member `order`.
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

/// How long the data is.
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

    /// Replaces the file by one with these sizes.
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

pub(super) fn meta_path(root: &Path, name: &str) -> PathBuf {
    root.join(META).join(name)
}

/// Whether a name can be that of a directory within another: one component, and not on the way up.
pub(super) fn is_plain_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!(components.next(), Some(std::path::Component::Normal(only)) if only == name) && components.next().is_none()
}

fn read_members(path: &Path) -> Result<Map<String, Value>> {
    let (file, len) = open_regular(path)?;
    if len > MAX_META_FILE_BYTES {
        let message = format!("expected a meta file of at most {MAX_META_FILE_BYTES} bytes, found {len}");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let mut bytes = Vec::new();
    file.take(MAX_META_FILE_BYTES).read_to_end(&mut bytes).map_err(|error| Error::io("read", path, error))?;
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Err(Error::invalid_spec("expected a meta file in UTF-8, found other bytes"));
    };
    match parse(text)? {
        Value::Object(members) => Ok(members),
        Value::Null => Ok(Map::new()),
        _ => Err(Error::invalid_spec("expected named members in a meta file, found none")),
    }
}

/// JSON if it begins like an object of it, else YAML. Python writes NaN into what it calls JSON; YAML has it as text.
fn parse(text: &str) -> Result<Value> {
    if !text.trim_start().starts_with('{') {
        return yaml::parse(text);
    }
    parse_json(text).or_else(|error| yaml::parse(text).map_err(|_| error))
}

fn parse_json(text: &str) -> Result<Value> {
    // this checks the depth first
    serde_json::from_str(json::parse(text.as_bytes())?.get())
        .map_err(|error| Error::invalid_spec(format!("expected JSON: {error}")))
}
