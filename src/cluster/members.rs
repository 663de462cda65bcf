//! The members of a plan, a receipt or a mark: a JSON object on one line, parsed strictly.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::format::json;

/// The version of all texts.
pub(crate) const VERSION: u64 = 1;

/// A kind of text.
#[derive(Debug)]
pub struct Kind {
    /// The kind with its article, for messages.
    pub noun: &'static str,
    /// The first member, whose value is the version.
    pub tag: &'static str,
    /// The other members.
    pub names: &'static [&'static str],
    /// The maximum length in bytes.
    pub most: usize,
}

/// The members of a text: names of its [`Kind`], each once, and no others.
#[derive(Debug)]
pub struct Members<'a> {
    kind: &'static Kind,
    members: Vec<(String, &'a RawValue)>,
}

impl<'a> Members<'a> {
    /// Errors: `InvalidInput` if the text is not of this kind; `TooLarge`; `Unsupported` for a later version.
    pub fn parse(text: &'a str, kind: &'static Kind) -> Result<Members<'a>> {
        let noun = kind.noun;
        if text.len() > kind.most {
            let message = format!("expected {noun} of at most {} bytes, found {}", kind.most, text.len());
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let found = |what: &str| Error::invalid_input(format!("expected {noun}, found {what}"));
        let root = json::parse(text.as_bytes()).map_err(|error| found(&format!("other text: {}", error.message())))?;
        let members = json::members(root).ok_or_else(|| found("JSON that is not an object"))?;
        let members = Members { kind, members };
        match members.required(kind.tag)? {
            VERSION => {}
            version => {
                let message = format!("this build reads {noun} of version {VERSION}, found {version}");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        let is_known = |name: &str| name == kind.tag || kind.names.contains(&name);
        match members.members.iter().find(|(name, _)| !is_known(name)) {
            Some((name, _)) => Err(found(&format!("the unknown member {}", json::quote(&json::excerpt(name))))),
            None => Ok(members),
        }
    }

    /// Returns the value of a member.
    ///
    /// Errors: `InvalidInput` if it is missing, repeated or malformed.
    pub fn required<T: Deserialize<'a>>(&self, name: &str) -> Result<T> {
        let value = self.raw(name)?;
        serde_json::from_str(value.get()).map_err(|error| self.malformed(name, &error.to_string()))
    }

    /// Returns the value of a member that is a string, parsed; `None` if there is none.
    pub fn parsed_if_there<T: std::str::FromStr<Err = Error>>(&self, name: &str) -> Result<Option<T>> {
        self.is_there(name).then(|| self.parsed(name)).transpose()
    }

    /// Returns the value of a member; `None` if there is none.
    pub fn value_if_there<T: Deserialize<'a>>(&self, name: &str) -> Result<Option<T>> {
        self.is_there(name).then(|| self.required(name)).transpose()
    }

    fn is_there(&self, name: &str) -> bool {
        self.members.iter().any(|(found, _)| found == name)
    }

    /// Returns the JSON text of a member.
    pub fn raw(&self, name: &str) -> Result<&'a RawValue> {
        let noun = self.kind.noun;
        let member = json::member(&self.members, name)
            .map_err(|error| Error::invalid_input(format!("expected {noun}: {}", error.message())))?;
        member.ok_or_else(|| {
            Error::invalid_input(format!("expected {noun}, with a member \"{name}\", found no such member"))
        })
    }

    /// Returns the value of a member that is a string, parsed.
    pub fn parsed<T: std::str::FromStr<Err = Error>>(&self, name: &str) -> Result<T> {
        let text: String = self.required(name)?;
        text.parse().map_err(|error: Error| self.malformed(name, error.message()))
    }

    /// The error for a member with an impossible value.
    pub fn malformed(&self, name: &str, why: &str) -> Error {
        let noun = self.kind.noun;
        Error::invalid_input(format!("expected {noun}, found the malformed member \"{name}\": {why}"))
    }
}
