//! What the user of a data set says of it.

use std::path::PathBuf;

use serde_json::Value as Json;

use crate::container::bcolz::meta::MetaFile;
use crate::error::{Error, Result};
use crate::format::json;

/// The attributes of an array or a table, as they were when they were read: names with values of JSON.
#[derive(Clone, Debug)]
pub struct Attributes(MetaFile);

impl Attributes {
    pub(super) fn read(path: PathBuf) -> Result<Attributes> {
        MetaFile::read_if_there(path).map(Attributes)
    }

    /// The value of an attribute, as the text of JSON; `None` if there is none of that name.
    pub fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).map(Json::to_string)
    }

    /// The names, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.members().keys().map(String::as_str)
    }

    /// All of them, as the text of one JSON object.
    pub fn to_json(&self) -> String {
        Json::Object(self.0.members().clone()).to_string()
    }

    /// Gives an attribute a value, which is the text of JSON: `23.5`, `"text"`, `[1, 2]`.
    ///
    /// Errors: `InvalidSpec` if it is not JSON.
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
