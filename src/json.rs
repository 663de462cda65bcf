//! Reading JSON without losing anything of it: members in order, each value as its source text.
//!
//! `serde_json` parses; this module adds what the format needs on top: members given twice stay visible,
//! foreign values keep their exact text, nesting is bounded, and a pointer finds its way (RFC 6901).

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// Deeper documents are refused: no reader of the format agrees on what happens beyond.
const MAX_DEPTH: usize = 128;

/// The document as one value, its syntax checked throughout.
pub(crate) fn parse(bytes: &[u8]) -> Result<&RawValue> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Error::invalid_spec("expected JSON in UTF-8, found other bytes").at_offset(error.valid_up_to() as u64)
    })?;
    check_depth(text)?;
    serde_json::from_str(text).map_err(|error| Error::invalid_spec(format!("expected JSON: {error}")))
}

/// The members of an object, in order, repeated ones too; `None` if it is no object.
pub(crate) fn members(value: &RawValue) -> Option<Vec<(String, &RawValue)>> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    serde_json::Deserializer::from_str(value.get()).deserialize_map(Members).ok()
}

/// The elements of an array; `None` if it is no array.
pub(crate) fn elements(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// The text of a string; `None` if it is no string.
pub(crate) fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// The member of that name, an error if it stands there more than once.
pub(crate) fn member<'a>(members: &[(String, &'a RawValue)], name: &str) -> Result<Option<&'a RawValue>> {
    let mut found = members.iter().filter(|(member, _)| member == name).map(|(_, value)| *value);
    let first = found.next();
    match found.next() {
        Some(_) => Err(Error::invalid_spec(format!("expected one member \"{name}\", found it more than once"))),
        None => Ok(first),
    }
}

/// The value that a JSON pointer (RFC 6901) names; `None` if there is none.
pub(crate) fn pointer<'a>(root: &'a RawValue, pointer: &str) -> Result<Option<&'a RawValue>> {
    if pointer.is_empty() {
        return Ok(Some(root));
    }
    let Some(path) = pointer.strip_prefix('/') else {
        return Err(Error::invalid_spec(format!("expected a JSON pointer like /scales/0, found \"{pointer}\"")));
    };
    let mut value = root;
    for token in path.split('/') {
        let token = token.replace("~1", "/").replace("~0", "~");
        let next = match elements(value) {
            Some(elements) => token.parse().ok().and_then(|at: usize| elements.get(at).copied()),
            None => member(&members(value).unwrap_or_default(), &token)?,
        };
        let Some(next) = next else { return Ok(None) };
        value = next;
    }
    Ok(Some(value))
}

/// `text` as a JSON string, quoted and escaped.
pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn check_depth(text: &str) -> Result<()> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            let message = format!("expected JSON nested at most {MAX_DEPTH} deep, found more");
            return Err(Error::invalid_spec(message).at_offset(offset as u64));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_repeats_and_source_text() {
        let root = parse(br#" {"b": 1.50, "a": [ 1 ], "b": 1e400} "#).unwrap();
        let members = members(root).unwrap();
        let texts: Vec<_> = members.iter().map(|(name, value)| (name.as_str(), value.get())).collect();
        assert_eq!(texts, [("b", "1.50"), ("a", "[ 1 ]"), ("b", "1e400")]);
        assert!(member(&members, "b").is_err());
        assert_eq!(member(&members, "a").unwrap().unwrap().get(), "[ 1 ]");
        assert!(member(&members, "c").unwrap().is_none());
    }

    #[test]
    fn refuses_what_is_not_plain_json() {
        for bad in ["", "{", "{\"a\":1,}", "{\"a\":NaN}", "\u{feff}{}", "{} x"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(parse(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(parse(br#""[[[[\"[[[""#).is_ok(), "brackets in strings do not nest");
    }

    #[test]
    fn follows_pointers() {
        let root = parse(br#"{"scales": [{"key": "s0"}, {"key": "s1"}], "a/b": {"~": 7}}"#).unwrap();
        let at = |path| pointer(root, path).unwrap().map(RawValue::get);
        assert_eq!(at("/scales/1/key"), Some("\"s1\""));
        assert_eq!(at("/a~1b/~0"), Some("7"));
        assert_eq!(at("/scales/2"), None);
        assert_eq!(at("/scales/x"), None);
        assert!(pointer(root, "scales").is_err());
    }
}
