//! `ndjson`: one JSON object per line.
//!
//! Numbers are never converted to floats: keys are parsed from their digits, and a `"value"` keeps its source text.

use std::borrow::Cow;
use std::fmt;
use std::io::{BufRead, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use sharddb::internal::key;

use crate::failure::{Failure, Place, Result};
use crate::input::{Sink, Stream, mark};

/// Reads all lines and passes their pairs to `sink`. With a key field, the member of this name is the key, and the entire
/// line the value.
///
/// Errors: `Malformed` with the line number; `Io`; those of the sink.
pub(crate) fn read(stream: &mut Stream, longest: u64, key_field: Option<&str>, sink: &mut dyn Sink) -> Result<()> {
    read_lines(stream, longest, &mut |line| match key_field {
        Some(name) => sink.insert(key_in(line, name).map_err(Failure::Refused)?, &[], line.as_bytes()),
        None => {
            let (key, Bytes { preamble, value }) = pair(line).map_err(Failure::Refused)?;
            sink.insert(key, &preamble, &value)
        }
    })
}

/// Reads all lines and passes them to `take`, without their line ends. Skips blank lines; the last line needs no line
/// end.
///
/// Errors: `Malformed` with the line number, also if `take` refuses a line; `Io`; other errors of `take`.
pub(super) fn read_lines(stream: &mut Stream, longest: u64, take: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let mut buffer = Vec::new();
    let mut number = 0;
    while read_line(stream, longest, number + 1, &mut buffer)? {
        number += 1;
        let malformed = |message: String| Failure::malformed(stream.name(), Place::Line(number), message);
        if let Some(mark) = mark::describe(&buffer).filter(|_| number == 1) {
            return Err(malformed(format!("expected a JSON object, found {mark}")));
        }
        let line = std::str::from_utf8(without_end(&buffer)).map_err(|error| {
            malformed(format!("expected JSON in UTF-8, found other bytes in column {}", error.valid_up_to() + 1))
        })?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        take(line).map_err(|failure| failure.at(stream.name(), Place::Line(number)))?;
    }
    Ok(())
}

/// Reads a line with its line end into `buffer`; returns false at the end of the stream.
fn read_line(stream: &mut Stream, longest: u64, number: u64, buffer: &mut Vec<u8>) -> Result<bool> {
    buffer.clear();
    let read = stream.take(longest.saturating_add(1)).read_until(b'\n', buffer);
    let read = read.map_err(|error| stream.failure(error))? as u64;
    if read > longest {
        let message = format!(
            "expected a line of at most {longest} bytes, found a longer one: give four times its length as \
             --memory, or use --format bin, which streams large values"
        );
        return Err(Failure::malformed(stream.name(), Place::Line(number), message));
    }
    Ok(read > 0)
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line `{"key": .., "value_b64" | "text" | "value": .., "preamble_b64": ..}`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<'a> {
    #[serde(borrow)]
    key: &'a RawValue,
    #[serde(borrow, default, deserialize_with = "present")]
    value_b64: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "prefix_b64", deserialize_with = "present")]
    preamble_b64: Option<Text<'a>>,
}

/// A string, borrowed unless it has escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Deserializes a member that is present. A `null` is a value here, not an absent member.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The members of a record that state its preamble and value.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValueMembers<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    value_b64: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "prefix_b64", deserialize_with = "present")]
    preamble_b64: Option<Text<'a>>,
}

/// A preamble and a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bytes<'a> {
    pub(crate) preamble: Vec<u8>,
    pub(crate) value: Cow<'a, [u8]>,
}

impl<'a> ValueMembers<'a> {
    pub(super) fn bytes(self) -> Result<Bytes<'a>, String> {
        let preamble = match self.preamble_b64 {
            Some(text) => decode("preamble_b64", &text)?,
            None => Vec::new(),
        };
        let value = match (self.value_b64, self.text, self.value) {
            (Some(text), None, None) => Cow::Owned(decode("value_b64", &text)?),
            (None, Some(text), None) => match text.0 {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
            (None, None, Some(value)) => Cow::Owned(compact(value.get())),
            (None, None, None) => {
                return Err("expected one of \"value_b64\", \"text\" and \"value\", found none".to_string());
            }
            _ => return Err("expected one of \"value_b64\", \"text\" and \"value\", found more than one".to_string()),
        };
        Ok(Bytes { preamble, value })
    }
}

/// The pair of a line.
fn pair(line: &str) -> Result<(u64, Bytes<'_>), String> {
    let Members { key, value_b64, text, value, preamble_b64 } = parse(line).map_err(with_tip)?;
    Ok((key_of(key)?, ValueMembers { value_b64, text, value, preamble_b64 }.bytes()?))
}

/// The key of a line that is a value: its member of this name.
fn key_in(line: &str, name: &str) -> Result<u64, String> {
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let members = deserializer.deserialize_map(FindMembers(name)).map_err(|error| explain(&error))?;
    deserializer.end().map_err(|error| explain(&error))?;
    let mut found = Vec::new();
    members.into_iter().try_for_each(|member| find_within(member, &mut found))?;
    match *found.as_slice() {
        [] => Err(format!("expected the member \"{name}\" of --key-field, found none")),
        [key] => key_of(key),
        _ => Err(format!("expected the member \"{name}\" of --key-field once, found it more than once")),
    }
}

/// Finds the members that a name, or a path of names with points between them, leads to.
struct FindMembers<'a>(&'a str);

/// A member that is wanted, or that may contain the wanted one.
struct Member<'a, 'de> {
    value: &'de RawValue,
    /// The rest of the path; empty for the wanted member.
    rest: &'a str,
}

/// Adds the wanted members in `member`, or the member itself. A member of the path that is no object has none.
fn find_within<'de>(member: Member<'_, 'de>, found: &mut Vec<&'de RawValue>) -> Result<(), String> {
    if member.rest.is_empty() {
        found.push(member.value);
        return Ok(());
    }
    if !member.value.get().starts_with('{') {
        return Ok(());
    }
    let mut deserializer = serde_json::Deserializer::from_str(member.value.get());
    let members = deserializer.deserialize_map(FindMembers(member.rest)).map_err(|error| explain(&error))?;
    members.into_iter().try_for_each(|member| find_within(member, found))
}

impl<'a, 'de> Visitor<'de> for FindMembers<'a> {
    type Value = Vec<Member<'a, 'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(Text(name)) = map.next_key()? {
            match self.0.strip_prefix(&*name) {
                Some("") => found.push(Member { value: map.next_value()?, rest: "" }),
                Some(rest) if rest.len() > 1 && rest.starts_with('.') => {
                    found.push(Member { value: map.next_value()?, rest: rest.get(1..).unwrap_or_default() });
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

pub(super) fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, String> {
    if !line.trim_ascii_start().starts_with('{') {
        return Err("expected a JSON object, found something else".to_string()); // serde would also accept an array
    }
    serde_json::from_str(line).map_err(|error| explain(&error))
}

/// The message of serde, with the column instead of its line number, which is always 1.
fn explain(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(&message);
    format!("expected a record: {message} in column {}", error.column())
}

/// Adds to a message about an unknown member how to read lines that have others.
fn with_tip(message: String) -> String {
    if message.contains("unknown field") {
        message + ": --key-field NAME takes the key from any member, and the whole line as the value"
    } else {
        message
    }
}

/// Parses a key: canonical decimal digits, as a number or as a string.
pub(super) fn key_of(value: &RawValue) -> Result<u64, String> {
    let text = value.get();
    let digits: Cow<'_, str> = match serde_json::from_str(text) {
        Ok(Text(string)) => string,
        Err(_) => Cow::Borrowed(text),
    };
    key::canonical(&digits).ok_or_else(|| {
        let found: String = text.chars().take(40).collect();
        format!("expected a key from 0 to 2^64-1 in plain decimal digits, found {found}")
    })
}

fn decode(member: &str, text: &Text<'_>) -> Result<Vec<u8>, String> {
    STANDARD.decode(text.0.as_bytes()).map_err(|error| format!("expected base64 in \"{member}\": {error}"))
}

/// Returns `json`, which must be valid, without its white space outside of strings; everything else stays byte for byte.
pub(crate) fn compact(json: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' if !in_string => continue,
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ => {}
        }
        out.push(byte);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::testing::{self, Pairs, pair};

    fn read_all(text: impl AsRef<[u8]>, key_field: Option<&str>) -> Result<Vec<testing::Pair>> {
        let mut pairs = Pairs::default();
        read(&mut Stream::of_pipe("in.ndjson", text.as_ref()), 1000, key_field, &mut pairs).map(|()| pairs.0)
    }

    fn one(line: &str) -> testing::Pair {
        let mut pairs = read_all(line, None).unwrap();
        assert_eq!(pairs.len(), 1);
        pairs.remove(0)
    }

    fn message(text: impl AsRef<[u8]>) -> String {
        match read_all(text, None) {
            Err(Failure::Malformed(malformed)) => malformed.to_string(),
            other => panic!("expected a malformed record, found {other:?}"),
        }
    }

    #[test]
    fn reads_every_kind_of_value() {
        let cases: [(&str, testing::Pair); 14] = [
            (r#"{"key":"1","value_b64":"AAEC"}"#, pair(1, b"", &[0, 1, 2])),
            (r#"{"key":1,"value_b64":""}"#, pair(1, b"", b"")),
            (r#"{"key":1,"value_b64":"\/\u002b\/+"}"#, pair(1, b"", &[0xff, 0xef, 0xfe])),
            (r#"{"key":1,"text":""}"#, pair(1, b"", b"")),
            (r#"{"key":1,"text":"h\u00e9 \n"}"#, pair(1, b"", "hé \n".as_bytes())),
            (r#"{"key":1,"text":"é"}"#, pair(1, b"", "é".as_bytes())),
            (r#"{"key":1,"value": {"a" : [1, 2.50, "x y"]} }"#, pair(1, b"", br#"{"a":[1,2.50,"x y"]}"#)),
            (r#"{"key":1,"value":null}"#, pair(1, b"", b"null")),
            (r#"{"key":1,"value":"text"}"#, pair(1, b"", b"\"text\"")),
            (r#"{"key":1,"value":1e400}"#, pair(1, b"", b"1e400")),
            (r#"{"key":1,"value":0.10000000000000000000001}"#, pair(1, b"", b"0.10000000000000000000001")),
            (r#"{"preamble_b64":"cA==","value_b64":"dg==","key":1}"#, pair(1, b"p", b"v")),
            // the name of earlier versions
            (r#"{"prefix_b64":"cA==","value_b64":"dg==","key":1}"#, pair(1, b"p", b"v")),
            ("\t{ \"key\" : 1 , \"text\" : \"x\" } ", pair(1, b"", b"x")),
        ];
        for (line, expected) in cases {
            assert_eq!(one(line), expected, "{line}");
        }
    }

    #[test]
    fn keys_are_exact() {
        for (text, key) in [
            ("0", 0),
            ("9007199254740993", 9_007_199_254_740_993), // 2^53 + 1, which no double holds
            ("\"9007199254740993\"", 9_007_199_254_740_993),
            ("18446744073709551615", u64::MAX),
            ("\"18446744073709551615\"", u64::MAX),
            ("\"\\u0037\"", 7),
        ] {
            assert_eq!(one(&format!("{{\"key\":{text},\"text\":\"\"}}")).key, key, "{text}");
        }
    }

    #[test]
    fn keys_that_are_none_are_refused() {
        for key in [
            "-1",
            "-0",
            "1.0",
            "1e3",
            "1E0",
            "18446744073709551616",
            "\"18446744073709551616\"",
            "\"007\"",
            "\"0x10\"",
            "\"\"",
            "\" 7\"",
            "\"+7\"",
            "\"1e3\"",
            "null",
            "true",
            "[1]",
            "{}",
        ] {
            let message = message(format!("{{\"key\":{key},\"text\":\"\"}}"));
            assert_eq!(
                message,
                format!(
                    "expected a key from 0 to 2^64-1 in plain decimal digits, found {key} (file in.ndjson, line 1)"
                )
            );
        }
    }

    #[test]
    fn lines_end_in_every_usual_way() {
        let line = |key| format!("{{\"key\":{key},\"text\":\"x\"}}");
        let expected = [pair(1, b"", b"x"), pair(2, b"", b"x")];
        for (between, end) in [("\n", ""), ("\n", "\n"), ("\r\n", "\r\n"), ("\n\n \t\r\n", "\n\n")] {
            assert_eq!(read_all(line(1) + between + &line(2) + end, None).unwrap(), expected, "{between:?} {end:?}");
        }
        assert_eq!(read_all("", None).unwrap(), []);
        assert_eq!(read_all("\n\r\n", None).unwrap(), []);
    }

    /// One case per kind of error, each in line 3, with what the message must contain.
    #[test]
    fn names_the_line_that_is_wrong() {
        let cases = [
            ("{", "EOF"),
            ("{\"key\":1,\"text\":\"x\"", "EOF"),
            ("{\"key\":1,\"text\":\"x\"} {}", "column 22"),
            ("{\"key\":1,\"text\":\"x\"}}", "column 21"),
            ("[1, \"AA==\"]", "expected a JSON object"),
            ("7", "expected a JSON object"),
            ("\u{feff}{\"key\":1,\"text\":\"x\"}", "expected a JSON object"),
            ("{\"text\":\"x\"}", "missing field `key`"),
            ("{\"key\":1}", "found none"),
            ("{\"key\":1,\"text\":\"x\",\"value\":1}", "found more than one"),
            ("{\"key\":1,\"text\":\"x\",\"value\":null}", "found more than one"),
            ("{\"key\":1,\"value_b64\":\"\",\"text\":\"\"}", "found more than one"),
            ("{\"key\":1,\"key\":1,\"text\":\"x\"}", "duplicate field `key`"),
            ("{\"key\":1,\"text\":\"x\",\"text\":\"x\"}", "duplicate field `text`"),
            ("{\"key\":1,\"text\":\"x\",\"note\":1}", "unknown field `note`"),
            ("{\"key\":1,\"text\":null}", "invalid type: null"),
            ("{\"key\":1,\"text\":7}", "invalid type: integer `7`"),
            ("{\"key\":1,\"text\":\"\\ud800\"}", "column"),
            ("{\"key\":1,\"value_b64\":null}", "invalid type: null"),
            ("{\"key\":1,\"value_b64\":\"A\"}", "expected base64 in \"value_b64\""),
            ("{\"key\":1,\"value_b64\":\"AA\"}", "expected base64 in \"value_b64\""),
            ("{\"key\":1,\"value_b64\":\"AA==\\n\"}", "expected base64 in \"value_b64\""),
            ("{\"key\":1,\"value_b64\":\"_-==\"}", "expected base64 in \"value_b64\""),
            ("{\"key\":1,\"text\":\"x\",\"preamble_b64\":\"?\"}", "expected base64 in \"preamble_b64\""),
            ("{\"key\":1,\"value\":NaN}", "column"),
            ("{\"key\":1,\"value\":[1,]}", "column"),
            ("{\"key\":1,\"value\":01}", "column"),
        ];
        for (line, part) in cases {
            let message =
                message(format!("{{\"key\":1,\"text\":\"good\"}}\n\n{line}\n{{\"key\":2,\"text\":\"good\"}}\n"));
            assert!(message.contains(part) && message.ends_with("(file in.ndjson, line 3)"), "{line}: {message}");
        }
        let message = message(b"{\"key\":1,\"text\":\"\xff\"}");
        assert!(message.contains("UTF-8") && message.contains("column 18"), "{message}");
    }

    #[test]
    fn a_line_has_a_longest_length() {
        let line = |len: usize| format!("{{\"key\":1,\"text\":\"{}\"}}", "x".repeat(len - 19));
        assert_eq!(line(50).len(), 50);
        assert!(read_all(line(1000), None).is_ok());
        assert!(read_all(line(999) + "\n", None).is_ok());
        let message = message(line(50) + "\n" + &line(1001));
        assert!(message.contains("--format bin") && message.contains("line 2"), "{message}");
    }

    #[test]
    fn deep_values_do_not_overflow_the_stack() {
        let depth = 200_000;
        let value = "[".repeat(depth) + &"]".repeat(depth);
        let line = format!("{{\"key\":1,\"value\":{value}}}");
        let mut pairs = Pairs::default();
        read(&mut Stream::of_pipe("f", line.as_bytes()), 1 << 20, None, &mut pairs).unwrap();
        assert_eq!(pairs.0[0].value, value.as_bytes());
    }

    #[test]
    fn with_a_key_field_the_line_is_the_value() {
        let id = Some("id");
        let line = r#" {"name": "a",  "id":  18446744073709551615, "name": 1.50}"#;
        assert_eq!(read_all(format!("{line}\r\n"), id).unwrap(), [pair(u64::MAX, b"", line.as_bytes())]);
        assert_eq!(read_all(r#"{"id":"7"}"#, id).unwrap(), [pair(7, b"", br#"{"id":"7"}"#)]);
        for (line, part) in [
            (r#"{"key":1}"#, "member \"id\" of --key-field, found none"),
            (r#"{"a":{"id":1}}"#, "found none"),
            (r#"{"id":1,"id":1}"#, "found it more than once"),
            (r#"{"id":1.0}"#, "found 1.0"),
            (r#"{"id":1} x"#, "column 10"),
            (r#"{"id":1"#, "EOF"),
            (r#"[1]"#, "expected an object"),
            (r#"{"id":1,"x":nan}"#, "column"),
        ] {
            let message = read_all(format!("\n{line}\n"), id).unwrap_err().to_string();
            assert!(message.contains(part) && message.ends_with("(file in.ndjson, line 2)"), "{line}: {message}");
        }
    }

    #[test]
    fn compact_removes_white_space_and_nothing_else() {
        let cases = [
            ("null", "null"),
            (" [ 1 ,\t2 , 3.50 ] ", "[1,2,3.50]"),
            ("{ \"a b\" : \"c  d\" }", "{\"a b\":\"c  d\"}"),
            (r#"" \" x \\" "#, r#"" \" x \\""#),
            (r#"{"a": "\\", "b": " "}"#, r#"{"a":"\\","b":" "}"#),
            ("1e400", "1e400"),
            ("123456789012345678901234567890.10", "123456789012345678901234567890.10"),
            ("\"é \u{a0}\"", "\"é \u{a0}\""),
        ];
        for (json, expected) in cases {
            assert_eq!(String::from_utf8(compact(json)).unwrap(), expected, "{json}");
        }
    }
}
