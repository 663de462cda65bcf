//! `patch`: one JSON object per line, with the pair of a key before and after a change.

use serde::de::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::failure::{Failure, Result};
use crate::input::Stream;
use crate::input::ndjson::{Bytes, ValueMembers, key_of, parse, read_lines};

/// A change of one key. At least one of the pairs is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Edit<'a> {
    pub(crate) key: u64,
    /// The pair before; `None` if the key is added.
    pub(crate) old: Option<Bytes<'a>>,
    /// The pair after; `None` if the key is removed.
    pub(crate) new: Option<Bytes<'a>>,
}

/// The format `{"key": .., "old": {"value_b64" | "text" | "value": .., "preamble_b64": ..} | null, "new": ..}`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<'a> {
    #[serde(borrow)]
    key: &'a RawValue,
    #[serde(borrow, deserialize_with = "nullable")]
    old: Option<ValueMembers<'a>>,
    #[serde(borrow, deserialize_with = "nullable")]
    new: Option<ValueMembers<'a>>,
}

/// Deserializes a member that must be there, and may be null.
fn nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ValueMembers<'de>>, D::Error> {
    Option::deserialize(deserializer)
}

/// Reads all lines and passes their changes to `apply`. Skips blank lines.
///
/// Errors: `Malformed` with the line number, also if `apply` refuses a change; `Io`; other errors of `apply`.
pub(crate) fn read(stream: &mut Stream, longest: u64, apply: &mut dyn FnMut(Edit<'_>) -> Result<()>) -> Result<()> {
    read_lines(stream, longest, &mut |line| apply(edit(line).map_err(Failure::Refused)?))
}

fn edit(line: &str) -> Result<Edit<'_>, String> {
    let Members { key, old, new } = parse(line)?;
    match (bytes_of("old", old)?, bytes_of("new", new)?) {
        (None, None) => Err("expected \"old\" or \"new\" to be a pair, found null for both".to_string()),
        (old, new) => Ok(Edit { key: key_of(key)?, old, new }),
    }
}

fn bytes_of<'a>(name: &str, members: Option<ValueMembers<'a>>) -> Result<Option<Bytes<'a>>, String> {
    members.map(ValueMembers::bytes).transpose().map_err(|message| format!("\"{name}\": {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key, the preamble and value before, and those after.
    type Owned = (u64, Option<(Vec<u8>, Vec<u8>)>, Option<(Vec<u8>, Vec<u8>)>);

    fn read_all(text: impl AsRef<[u8]>) -> Result<Vec<Owned>> {
        let mut edits = Vec::new();
        let owned = |bytes: Option<Bytes<'_>>| bytes.map(|Bytes { preamble, value }| (preamble, value.into_owned()));
        read(&mut Stream::of_pipe("p.ndjson", text.as_ref()), 1000, &mut |Edit { key, old, new }| {
            edits.push((key, owned(old), owned(new)));
            Ok(())
        })?;
        Ok(edits)
    }

    fn pair(preamble: &[u8], value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        Some((preamble.to_vec(), value.to_vec()))
    }

    #[test]
    fn reads_every_kind_of_change() {
        let cases: [(&str, Owned); 5] = [
            (r#"{"key":"1","old":null,"new":{"value_b64":"AAEC"}}"#, (1, None, pair(b"", &[0, 1, 2]))),
            (r#"{"key":2,"old":{"text":"\u00e9"},"new":null}"#, (2, pair(b"", "é".as_bytes()), None)),
            (
                r#"{"new":{"value":{"a": [1, 2.50]}},"old":{"preamble_b64":"cA==","text":""},"key":3}"#,
                (3, pair(b"p", b""), pair(b"", br#"{"a":[1,2.50]}"#)),
            ),
            (r#"{"key":"18446744073709551615","old":null,"new":{"value":null}}"#, (u64::MAX, None, pair(b"", b"null"))),
            (
                "\t{ \"key\" : 9007199254740993 , \"old\" : null , \"new\" : {\"text\":\"x\"} } \r\n\n",
                (9_007_199_254_740_993, None, pair(b"", b"x")),
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(read_all(line).unwrap(), [expected], "{line}");
        }
        assert_eq!(read_all("").unwrap(), []);
    }

    /// One case per kind of error, each in line 2, with what the message must contain.
    #[test]
    fn names_the_line_that_is_wrong() {
        let cases = [
            ("{", "EOF"),
            ("[1, null, null]", "expected a JSON object"),
            (r#"{"key":1,"old":null}"#, "missing field `new`"),
            (r#"{"key":1,"new":null}"#, "missing field `old`"),
            (r#"{"old":null,"new":{"text":""}}"#, "missing field `key`"),
            (r#"{"key":1,"old":null,"new":null}"#, "found null for both"),
            (r#"{"key":1,"old":{},"new":null}"#, "\"old\": expected one of"),
            (r#"{"key":1,"old":null,"new":{"text":"","value":1}}"#, "\"new\": expected one of"),
            (r#"{"key":1,"old":null,"new":"text"}"#, "invalid type: string"),
            (r#"{"key":1,"old":null,"new":{"value_b64":"!"}}"#, "\"new\": expected base64"),
            (r#"{"key":1,"old":null,"new":{"text":"","key":1}}"#, "unknown field `key`"),
            (r#"{"key":1,"old":null,"new":{"text":""},"text":""}"#, "unknown field `text`"),
            (r#"{"key":1,"old":null,"old":null,"new":{"text":""}}"#, "duplicate field `old`"),
            (r#"{"key":1.0,"old":null,"new":{"text":""}}"#, "plain decimal digits"),
            (r#"{"key":1,"old":null,"new":{"text":""}} {}"#, "trailing characters"),
        ];
        for (line, part) in cases {
            match read_all(format!("{{\"key\":0,\"old\":null,\"new\":{{\"text\":\"\"}}}}\n{line}\n")) {
                Err(Failure::Malformed(malformed)) => {
                    let message = malformed.to_string();
                    assert!(message.contains(part), "{line}: {message}");
                    assert!(message.ends_with("(file p.ndjson, line 2)"), "{line}: {message}");
                }
                other => panic!("{line}: expected a malformed line, found {other:?}"),
            }
        }
    }

    #[test]
    fn a_refused_change_has_its_line() {
        let lines = "{\"key\":1,\"old\":null,\"new\":{\"text\":\"\"}}\n".repeat(3);
        let mut left = 2;
        let refused = read(&mut Stream::of_pipe("p.ndjson", lines.as_bytes()), 1000, &mut |_| {
            left -= 1;
            if left == 0 { Err(Failure::Refused("no".to_string())) } else { Ok(()) }
        });
        assert_eq!(refused.unwrap_err().to_string(), "no (file p.ndjson, line 2)");
    }
}
