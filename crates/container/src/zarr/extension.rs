//! The form of codecs, chunk grids and chunk key encodings in `zarr.json`: a name with a configuration.

use serde_json::value::RawValue;
use sharddb_format::internal::json;
use sharddb_format::{Error, ErrorKind, Result};

/// An extension: `{"name": "gzip", "configuration": {}}`, or the bare name.
pub(super) struct Extension<'a> {
    pub(super) name: String,
    what: &'static str,
    configuration: Vec<(String, &'a RawValue)>,
}

impl<'a> Extension<'a> {
    pub(super) fn parse(value: &'a RawValue, what: &'static str) -> Result<Extension<'a>> {
        if let Some(name) = json::string(value) {
            return Ok(Extension { name, what, configuration: Vec::new() });
        }
        let wrong = || Error::invalid_spec(format!("expected a {what} with a name, found {}", value.get()));
        let members = json::members(value).ok_or_else(wrong)?;
        let name = json::member(&members, "name")?.and_then(json::string).ok_or_else(wrong)?;
        for (member, _) in &members {
            if !matches!(member.as_str(), "name" | "configuration" | "must_understand") {
                return Err(Error::invalid_spec(format!(
                    "expected a {what} \"{name}\", found a member \"{member}\" in it"
                )));
            }
        }
        let configuration = match json::member(&members, "configuration")? {
            Some(configuration) => json::members(configuration).ok_or_else(wrong)?,
            None => Vec::new(),
        };
        Ok(Extension { name, what, configuration })
    }

    /// Returns a member of the configuration.
    pub(super) fn get(&self, name: &str) -> Result<Option<&'a RawValue>> {
        json::member(&self.configuration, name)
    }

    /// Returns a required member of the configuration.
    pub(super) fn need(&self, name: &str) -> Result<&'a RawValue> {
        self.get(name)?.ok_or_else(|| {
            Error::invalid_spec(format!(
                "expected \"{name}\" in the configuration of {} \"{}\", found none",
                self.what, self.name
            ))
        })
    }

    /// Checks that the configuration has no other members than `names`.
    ///
    /// # Errors
    ///
    /// `InvalidSpec` if the configuration has a member that is not in `names`.
    pub(super) fn allow(&self, names: &[&str]) -> Result<()> {
        match self.configuration.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            Some((name, value)) => Err(self.wrong(name, value)),
            None => Ok(()),
        }
    }

    /// Returns the error for an invalid member.
    pub(super) fn wrong(&self, name: &str, value: &RawValue) -> Error {
        Error::invalid_spec(format!(
            "expected a valid configuration of {} \"{}\", found \"{name}\": {}",
            self.what,
            self.name,
            value.get()
        ))
    }

    /// Returns the error for an unsupported extension.
    pub(super) fn unknown(&self, known: &str) -> Error {
        let message = format!("expected a {} that this build has ({known}), found \"{}\"", self.what, self.name);
        Error::new(ErrorKind::Unsupported, message)
    }
}

/// Parses an array of non-negative integers. `1.0` is accepted.
pub(super) fn numbers(value: &RawValue) -> Option<Vec<u64>> {
    json::elements(value)?
        .iter()
        .map(|element| element.get().strip_suffix(".0").unwrap_or(element.get()).parse().ok())
        .collect()
}
