//! User attributes of a data set.

use std::path::PathBuf;

use serde_json::Value as Json;
use sharddb_format::internal::json;
use sharddb_format::{Error, Result};

use crate::bcolz::meta::MetaFile;

/// The user attributes of an array or a table: a snapshot of names and JSON values.
///
/// ```no_run
/// use sharddb_container::bcolz::BcolzArray;
///
/// let attributes = BcolzArray::open("prices")?.attributes()?;
/// for name in attributes.names() {
///     println!("{name}: {}", attributes.get(name).unwrap_or_default());
/// }
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Attributes(MetaFile);

impl Attributes {
    pub(super) fn read(path: PathBuf) -> Result<Attributes> {
        MetaFile::read_if_there(path).map(Attributes)
    }

    /// Reads attributes to write them again.
    ///
    /// Errors: those of [`read`](Attributes::read), and `InvalidSpec` for a value that JSON has not, such as NaN.
    pub(super) fn read_exactly(path: PathBuf) -> Result<Attributes> {
        MetaFile::read_exactly(path).map(Attributes)
    }

    /// Returns the value of an attribute as JSON text; `None` if there is no such attribute.
    pub fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).map(Json::to_string)
    }

    /// Returns the names in ascending order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.members().keys().map(String::as_str)
    }

    /// Returns all attributes as the text of one JSON object.
    pub fn to_json(&self) -> String {
        self.to_value().to_string()
    }

    pub(super) fn to_value(&self) -> Json {
        Json::Object(self.0.members().clone())
    }

    /// Sets an attribute to a value, given as JSON text: `23.5`, `"text"`, `[1, 2]`.
    ///
    /// # Errors
    ///
    /// `InvalidSpec` if it is not JSON.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let value = serde_json::from_str(json::parse(value.as_bytes())?.get())
            .map_err(|error| Error::invalid_spec(format!("expected JSON: {error}")))?;
        self.0.set(name, value);
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name)
    }

    pub(super) fn write(&self) -> Result<()> {
        self.0.write()
    }
}
