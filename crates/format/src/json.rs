//! Lossless reading of JSON: members in order, each value as its source text.
//!
//! `serde_json` parses. This module adds: repeated members stay visible, foreign values keep their exact text, nesting
//! is bounded, and values can be addressed by JSON pointers (RFC 6901).

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// The maximum nesting depth. Readers of the format differ in how they handle deeper documents.
const MAX_DEPTH: usize = 128;

/// Parses a document and checks its syntax completely.
pub fn parse(bytes: &[u8]) -> Result<&RawValue> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Error::invalid_spec("expected JSON in UTF-8, found other bytes").at_offset(error.valid_up_to() as u64)
    })?;
    check_depth(text)?;
    serde_json::from_str(text).map_err(|error| Error::invalid_spec(format!("expected JSON: {error}")))
}

/// Returns the members of an object in order, including repeated ones; `None` if the value is not an object.
pub fn members(value: &RawValue) -> Option<Vec<(String, &RawValue)>> {
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

/// Returns the elements of an array; `None` if the value is not an array.
pub fn elements(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// Returns the text of a string; `None` if the value is not a string.
pub fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// Returns the member `name`, if there is one.
///
/// Errors: `InvalidSpec` if there is more than one.
pub fn member<'a>(members: &[(String, &'a RawValue)], name: &str) -> Result<Option<&'a RawValue>> {
    let mut found = members.iter().filter(|(member, _)| member == name).map(|(_, value)| *value);
    let first = found.next();
    match found.next() {
        Some(_) => Err(Error::invalid_spec(format!("expected one member \"{name}\", found it more than once"))),
        None => Ok(first),
    }
}

/// Returns the value at a JSON pointer (RFC 6901); `None` if there is none.
///
/// Errors: `InvalidSpec` if the pointer is malformed, or passes a repeated member.
pub fn pointer<'a>(root: &'a RawValue, pointer: &str) -> Result<Option<&'a RawValue>> {
    if pointer.is_empty() {
        return Ok(Some(root));
    }
    let Some(path) = pointer.strip_prefix('/') else {
        let message = format!("expected a JSON pointer like /scales/0, found \"{}\"", excerpt(pointer));
        return Err(Error::invalid_spec(message));
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

/// Returns the place of `value` in the text that it was parsed from; `None` if it is not from this text.
pub(crate) fn range_in(text: &str, value: &RawValue) -> Option<Range<usize>> {
    let start = value.get().as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let range = start..start.checked_add(value.get().len())?;
    text.get(range.clone()).filter(|found| *found == value.get()).map(|_| range)
}

/// An object below the top of a document.
#[derive(Debug)]
pub struct Nested<'a> {
    /// The object's source text.
    pub value: &'a RawValue,
    /// Its JSON pointer (RFC 6901).
    pub pointer: String,
}

/// The objects below the top of a document that have a member of a given name.
#[derive(Debug)]
pub struct NestedObjects<'a> {
    /// The first ones in document order.
    pub first: Vec<Nested<'a>>,
    /// The total number of such objects.
    pub count: u64,
}

/// Finds the objects below the top of `root` that have a member `name`. Does not search the values of those members.
///
/// Keeps the first `most` of them and counts the rest. Cost: one pass over the text, and memory for the kept pointers.
///
/// Errors: `InvalidSpec` if the name of a member is not a valid string.
pub(crate) fn objects_with<'a>(root: &'a RawValue, name: &str, most: usize) -> Result<NestedObjects<'a>> {
    let mut scan = Scan { text: root.get(), name, most, containers: Vec::new(), open_hits: Vec::new(), count: 0 };
    let mut found = Vec::new();
    let (mut in_string, mut escaped, mut string_start) = (false, false, 0);
    for (at, byte) in scan.text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' if in_string => {
                in_string = false;
                scan.string(string_start, at + 1)?;
            }
            _ if in_string => {}
            b'"' => (in_string, string_start) = (true, at),
            b'[' | b'{' => scan.containers.push(Container::new(at, byte == b'{')),
            b']' | b'}' => found.extend(scan.close(at + 1)?),
            b':' => scan.top(|top| top.expects_name = false),
            b',' => scan.top(Container::next),
            _ => {}
        }
    }
    found.sort_by_key(|(start, _)| *start);
    Ok(NestedObjects { first: found.into_iter().map(|(_, nested)| nested).collect(), count: scan.count })
}

/// The state of [`objects_with`]. The text is valid JSON, so brackets match and names precede colons.
struct Scan<'a, 'b> {
    text: &'a str,
    name: &'b str,
    most: usize,
    /// The open containers, outermost first; at most [`MAX_DEPTH`].
    containers: Vec<Container<'a>>,
    /// The start and the pointer of each open object that has the member.
    open_hits: Vec<(usize, String)>,
    count: u64,
}

/// An open object or array, and the position of the scan in it.
struct Container<'a> {
    start: usize,
    is_object: bool,
    /// The next string is the name of a member.
    expects_name: bool,
    /// The name of the current member, quoted as in the source.
    name: &'a str,
    /// The index of the current element.
    element: u64,
    /// The current member is the one searched for, so its value is skipped.
    is_hidden: bool,
    is_hit: bool,
}

impl Container<'_> {
    fn new(start: usize, is_object: bool) -> Container<'static> {
        Container { start, is_object, expects_name: is_object, name: "", element: 0, is_hidden: false, is_hit: false }
    }

    fn next(&mut self) {
        self.element += 1;
        self.expects_name = self.is_object;
        self.is_hidden = false;
    }
}

impl<'a> Scan<'a, '_> {
    fn top(&mut self, change: impl FnMut(&mut Container<'a>)) {
        self.containers.last_mut().into_iter().for_each(change);
    }

    /// Processes a string. If it is the name searched for, records the object.
    fn string(&mut self, start: usize, end: usize) -> Result<()> {
        let Some((top, above)) = self.containers.split_last_mut().filter(|(top, _)| top.expects_name) else {
            return Ok(());
        };
        top.name = self.text.get(start..end).unwrap_or_default();
        if above.iter().any(|container| container.is_hidden) || unquote(top.name)? != self.name {
            return Ok(());
        }
        top.is_hidden = !above.is_empty();
        if above.is_empty() || std::mem::replace(&mut top.is_hit, true) {
            return Ok(());
        }
        self.count += 1;
        if self.count <= self.most as u64 {
            let hit = (top.start, pointer_to(above)?);
            self.open_hits.push(hit);
        }
        Ok(())
    }

    /// Closes the innermost container, which ends at `end`; returns it if it is one of the kept objects.
    fn close(&mut self, end: usize) -> Result<Option<(usize, Nested<'a>)>> {
        let closed = self.containers.pop();
        let is_kept = |(start, _): &mut (usize, String)| closed.as_ref().is_some_and(|closed| closed.start == *start);
        let Some((start, pointer)) = self.open_hits.pop_if(is_kept) else { return Ok(None) };
        let value = serde_json::from_str(self.text.get(start..end).unwrap_or_default());
        let value =
            value.map_err(|error| Error::internal(format!("an object of valid JSON does not parse: {error}")))?;
        Ok(Some((start, Nested { value, pointer })))
    }
}

/// Returns the pointer to the current value of the innermost of nested containers, which are given outermost first.
fn pointer_to(containers: &[Container<'_>]) -> Result<String> {
    let mut pointer = String::new();
    for container in containers {
        pointer.push('/');
        if container.is_object {
            pointer.push_str(&unquote(container.name)?.replace('~', "~0").replace('/', "~1"))
        } else {
            pointer.push_str(&container.element.to_string())
        }
    }
    Ok(pointer)
}

/// Returns the text of a string that is quoted as in the source.
fn unquote(quoted: &str) -> Result<Cow<'_, str>> {
    if !quoted.contains('\\') {
        let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        return Ok(Cow::Borrowed(inner.unwrap_or(quoted)));
    }
    serde_json::from_str(quoted).map(Cow::Owned).map_err(|error| Error::invalid_spec(format!("expected JSON: {error}")))
}

/// Returns the beginning of a text for a message, with the number of bytes left out.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => Cow::Owned(format!("{}... ({} more bytes)", &text[..end], text.len() - end)),
        None => Cow::Borrowed(text),
    }
}

/// Returns `text` as a JSON string, quoted and escaped.
pub fn quote(text: &str) -> String {
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
