//! The place of shards that a nested object of `info` describes, as in a volume: one of its scales has the member
//! "sharding", and the shards are in the directory that the scale's member "key" names.

use std::path::PathBuf;

use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::json;

/// The longest directory in bytes.
const LONGEST: usize = 1024;

/// The maximum number of names in a directory.
pub const MOST_NAMES: usize = 16;

/// The longest name in bytes on common file systems.
const LONGEST_NAME: usize = 255;

/// The names of other files in a generation, in a store, in the directory of an unfinished generation, or of formats
/// that are recognised by one file.
const RESERVED: [&str; 11] = [
    "keys",
    "info",
    "manifest.json",
    "lease",
    "lock",
    "current",
    "history",
    "spill",
    "minishards",
    "minishard_pages",
    "zarr.json",
];

/// The object of `info` that describes the shards of a generation, and the directory of the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedSharding {
    /// The JSON pointer (RFC 6901) of the object that has the member "sharding"; not empty.
    pub pointer: String,
    /// The directory of the shards relative to that of `info`: names separated by `/`.
    directory: String,
}

impl NestedSharding {
    /// Errors: `InvalidSpec` if the pointer is not that of a nested object, or a generation cannot have the directory.
    pub fn new(pointer: &str, directory: &str) -> Result<NestedSharding> {
        if !pointer.starts_with('/') {
            let found = json::excerpt(pointer);
            return Err(Error::invalid_spec(format!("expected a JSON pointer like /scales/0, found \"{found}\"")));
        }
        if !is_shards_directory(directory) {
            return Err(Error::invalid_spec(format!(
                "expected the directory of the shards (\"key\") to be a relative path without \"..\", hidden names and \
                 names of other files of a generation, found {}: choose another \"key\"",
                json::excerpt(&json::quote(directory))
            )));
        }
        Ok(NestedSharding { pointer: pointer.to_string(), directory: directory.to_string() })
    }

    /// Parses the member of a manifest.
    pub fn from_value(value: &RawValue) -> Result<NestedSharding> {
        let wrong =
            || Error::invalid_spec("expected \"nested\" to be an object with \"sharding_at\" and \"shards_in\"");
        let members = json::members(value).ok_or_else(wrong)?;
        let text = |name| json::member(&members, name)?.and_then(json::string).ok_or_else(wrong);
        NestedSharding::new(&text("sharding_at")?, &text("shards_in")?)
    }

    /// Returns the member of a manifest.
    pub fn to_json(&self) -> String {
        let NestedSharding { pointer, directory } = self;
        format!("{{\"sharding_at\": {}, \"shards_in\": {}}}", json::quote(pointer), json::quote(directory))
    }

    /// Returns the directory of the shards, relative to that of `info`.
    pub fn directory(&self) -> PathBuf {
        self.names().collect()
    }

    /// Returns the names of the directory, outermost first; at least one.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.directory.split('/')
    }

    /// Returns the entry of the generation's directory that leads to the shards.
    pub fn first_name(&self) -> &str {
        self.names().next().unwrap_or_default()
    }
}

/// Returns whether a generation may have its shards in this directory: a relative path of names, on every platform, that
/// stays below the generation and differs from its other files, also where names ignore case.
fn is_shards_directory(directory: &str) -> bool {
    let names = directory.split('/');
    directory.len() <= LONGEST
        && names.clone().count() <= MOST_NAMES
        && names.clone().all(is_portable_name)
        && names.clone().next().is_some_and(is_shards_entry)
}

/// Returns whether the first name of a directory of shards may be this.
pub fn is_shards_entry(name: &str) -> bool {
    let lowercase = name.to_lowercase();
    is_portable_name(name) && !RESERVED.contains(&lowercase.as_str()) && !lowercase.ends_with(".shard")
}

/// Hidden names are refused, because copies often omit them, and so are names that Windows reads as others.
fn is_portable_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST_NAME
        && !name.starts_with('.')
        && !name.ends_with(['.', ' '])
        && !name.chars().any(|char| char.is_control() || r#"\:*?"<>|"#.contains(char))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_directory_stays_below_the_generation_and_beside_its_files() {
        for fine in ["8_8_8", "a/b", "64.0x64.0", "mip é", "a b", "infos", "x/info", "shard", "0.shards"] {
            let nested = NestedSharding::new("/scales/0", fine).unwrap();
            assert_eq!(nested.directory(), Path::new(fine));
        }
        let refused = ["", "/", "/a", "a/", "a//b", "..", "../x", "a/../b", ".", "./a", "a/.", ".hidden", "a/.b", "a."];
        let refused = refused.into_iter().chain(["a\\b", "C:x", "a\0", "a\nb", "a ", "info", "Info", "manifest.json"]);
        let refused = refused.chain(["LEASE", "lock", "current", "history", "spill", "minishards", "minishard_pages"]);
        for bad in refused.chain(["0.shard", "notes.SHARD", "zarr.json", "info/8_8_8", "spill/x", "a*"]) {
            let error = NestedSharding::new("/scales/0", bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{bad:?}");
        }
        assert!(NestedSharding::new("/a", &"x".repeat(255)).is_ok());
        assert!(NestedSharding::new("/a", &"x".repeat(256)).is_err());
        assert!(NestedSharding::new("/a", &["x"; 16].join("/")).is_ok());
        assert!(NestedSharding::new("/a", &["x"; 17].join("/")).is_err());
        for pointer in ["", "scales/0", "#/scales/0"] {
            assert!(NestedSharding::new(pointer, "8_8_8").is_err(), "{pointer}");
        }
    }

    #[test]
    fn the_member_is_read_as_written() {
        for pointer in ["/scales/0", "/a~1b/~0/\"", "/"] {
            let nested = NestedSharding::new(pointer, "8_8_8/\u{e9}").unwrap();
            let text = nested.to_json();
            assert_eq!(NestedSharding::from_value(json::parse(text.as_bytes()).unwrap()).unwrap(), nested, "{text}");
        }
    }
}
