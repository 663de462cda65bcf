//! Chunk key encodings: map the position of a shard to the name of its file, and file names to positions.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::value::RawValue;
use sharddb::internal::fs::entry;
use sharddb_format::internal::json;
use sharddb_format::{Error, Result};

use crate::zarr::extension::Extension;

/// How the files of shards are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkKeyEncoding {
    style: Style,
    separator: char,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// `c/1/2`, `c` without dimensions.
    Default,
    /// `1.2`, `0` without dimensions.
    V2,
}

impl ChunkKeyEncoding {
    pub(super) fn parse(value: &RawValue) -> Result<ChunkKeyEncoding> {
        let encoding = Extension::parse(value, "chunk key encoding")?;
        let (style, usual) = match encoding.name.as_str() {
            "default" => (Style::Default, '/'),
            "v2" => (Style::V2, '.'),
            _ => return Err(encoding.unknown("default, v2")),
        };
        encoding.allow(&["separator"])?;
        let separator = match encoding.get("separator")? {
            None => usual,
            Some(value) => match json::string(value).as_deref() {
                Some("/") => '/',
                Some(".") => '.',
                _ => return Err(encoding.wrong("separator", value)),
            },
        };
        Ok(ChunkKeyEncoding { style, separator })
    }

    /// Returns the path of the file of the shard at `position`, relative to the array.
    pub(super) fn path(self, position: &[u64]) -> String {
        let mut parts: Vec<_> = position.iter().map(u64::to_string).collect();
        match self.style {
            Style::Default => parts.insert(0, "c".to_string()),
            Style::V2 if parts.is_empty() => parts.push("0".to_string()),
            Style::V2 => {}
        }
        parts.join(&self.separator.to_string())
    }

    /// Returns the positions of all files below `array` whose name is that of a shard, in no particular order.
    ///
    /// # Errors
    ///
    /// `Io` if a directory cannot be listed.
    pub(super) fn list(self, array: &Path, dimensions: usize) -> Result<Vec<Vec<u64>>> {
        let mut found = Vec::new();
        if self.separator == '.' {
            for name in names(array)? {
                found.extend(self.position_in(&name, dimensions));
            }
            return Ok(found);
        }
        match self.style {
            Style::V2 if dimensions == 0 => found.extend(entry::exists(&array.join("0"))?.then(Vec::new)),
            Style::V2 => descend(array, dimensions, &mut Vec::new(), &mut found)?,
            Style::Default if dimensions == 0 => found.extend(entry::exists(&array.join("c"))?.then(Vec::new)),
            Style::Default => descend(&array.join("c"), dimensions, &mut Vec::new(), &mut found)?,
        }
        Ok(found)
    }

    /// Returns the position in a file name that holds a whole position.
    fn position_in(self, name: &str, dimensions: usize) -> Option<Vec<u64>> {
        let position: Vec<u64> = match (self.style, dimensions) {
            (Style::Default, 0) => (name == "c").then(Vec::new)?,
            (Style::V2, 0) => (name == "0").then(Vec::new)?,
            (Style::Default, _) => name.strip_prefix("c.")?.split('.').map(cell).collect::<Option<_>>()?,
            (Style::V2, _) => name.split('.').map(cell).collect::<Option<_>>()?,
        };
        (position.len() == dimensions).then_some(position)
    }
}

/// Collects the positions of the files that are `dimensions` levels down.
fn descend(directory: &Path, dimensions: usize, above: &mut Vec<u64>, found: &mut Vec<Vec<u64>>) -> Result<()> {
    for name in names(directory)? {
        let Some(at) = cell(&name) else { continue };
        above.push(at);
        if above.len() == dimensions {
            found.push(above.clone());
        } else {
            descend(&directory.join(name), dimensions, above, found)?;
        }
        above.pop();
    }
    Ok(())
}

/// Returns the names in a directory. A missing directory has none; a dangling link or a file in its place is an error, since
/// its chunks are elsewhere or lost.
fn names(directory: &Path) -> Result<Vec<String>> {
    let fail = |error| Error::io("list the directory", directory, error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !entry::exists(directory)? => return Ok(Vec::new()),
        entries => entries.map_err(fail)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(fail)?.file_name().into_string());
    }
    Ok(names)
}

/// Parses a number in a name: decimal, without leading zeros.
fn cell(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|digit| digit.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoding(json: &str) -> Result<ChunkKeyEncoding> {
        ChunkKeyEncoding::parse(&RawValue::from_string(json.to_string()).unwrap())
    }

    #[test]
    fn names_of_both_styles_with_either_separator() {
        let cases = [
            (r#"{"name": "default"}"#, "c/1/23", "c"),
            (r#""default""#, "c/1/23", "c"),
            (r#"{"name": "default", "configuration": {"separator": "."}}"#, "c.1.23", "c"),
            (r#"{"name": "v2"}"#, "1.23", "0"),
            (r#"{"name": "v2", "configuration": {"separator": "/"}}"#, "1/23", "0"),
        ];
        for (json, two, none) in cases {
            let encoding = encoding(json).unwrap();
            assert_eq!((encoding.path(&[1, 23]).as_str(), encoding.path(&[]).as_str()), (two, none), "{json}");
        }
    }

    #[test]
    fn others_are_refused() {
        assert!(encoding(r#"{"name": "v3"}"#).unwrap_err().message().contains("\"v3\""));
        assert!(encoding(r#"{"name": "v2", "configuration": {"separator": "-"}}"#).is_err());
        assert!(encoding(r#"{"name": "v2", "configuration": {"prefix": "x"}}"#).is_err());
        assert!(encoding("7").is_err());
    }

    #[test]
    fn only_plain_numbers_are_cells() {
        assert_eq!((cell("0"), cell("10"), cell("18446744073709551615")), (Some(0), Some(10), Some(u64::MAX)));
        for text in ["", "01", "00", "+1", "-1", "1 ", "18446744073709551616", "x"] {
            assert_eq!(cell(text), None, "{text}");
        }
    }
}
