//! `get-many`: the values of many keys, one line of JSON per key, in the order of the request.

use std::io;
use std::vec::IntoIter;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use sharddb::Snapshot;

use super::parse_key;
use crate::serve::answer::{Answer, Pieces};
use crate::serve::database::Database;
use crate::serve::problem::{Problem, Result};
use crate::serve::request::Request;

/// A piece of the answer ends after this number of bytes. It is longer by at most one value.
const PIECE_BYTES: usize = 256 << 10;

/// Answers with a line for each key of the request: `{"key", "value"}`, in base64 or null, or `{"key", "error"}`.
///
/// Errors: `invalid-input` if the body is not a list of keys.
pub(super) fn answer(database: &Database, request: &Request) -> Result<Answer> {
    if !request.is_post {
        return Err(Problem::method());
    }
    let keys = parse(&request.body)?;
    let snapshot = database.pinned()?.snapshot.clone();
    Ok(Answer::lines(Box::new(Lines { snapshot, keys: keys.into_iter() })))
}

/// Parses a JSON array of keys, or one key per line. A key is a number or a string.
fn parse(body: &[u8]) -> Result<Vec<u64>> {
    let text = std::str::from_utf8(body).map_err(|_| Problem::invalid("expected keys in UTF-8, found other bytes"))?;
    let wrong = |error| Problem::invalid(format!("expected a JSON array of keys, or one key per line: {error}"));
    let values: Vec<Value> = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text).map_err(wrong)?,
        false => {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            lines.map(serde_json::from_str).collect::<Result<_, _>>().map_err(wrong)?
        }
    };
    values.iter().map(key_of).collect()
}

fn key_of(value: &Value) -> Result<u64> {
    match value {
        Value::String(text) => parse_key(text),
        Value::Number(number) if number.is_u64() => Ok(number.as_u64().unwrap_or_default()),
        other => Err(Problem::invalid(format!("expected a key from 0 to 18446744073709551615, found {other}"))),
    }
}

/// Looks up the keys of one generation while the client reads.
struct Lines {
    snapshot: Snapshot,
    keys: IntoIter<u64>,
}

impl Pieces for Lines {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut lines = String::new();
        while lines.len() < PIECE_BYTES
            && let Some(key) = self.keys.next()
        {
            let text = key.to_string();
            let line = match self.snapshot.get(key) {
                Ok(value) => json!({"key": text, "value": value.map(|value| STANDARD.encode(&*value))}),
                Err(error) => {
                    let problem = Problem::from(error).json();
                    json!({"key": text, "value": null, "error": problem["error"]})
                }
            };
            lines.push_str(&line.to_string());
            lines.push('\n');
        }
        Ok((!lines.is_empty()).then(|| lines.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_an_array_or_lines() {
        let keys = |body: &str| parse(body.as_bytes()).ok();
        assert_eq!(keys("[1, \"2\", \"0x10\", 18446744073709551615]"), Some(vec![1, 2, 16, u64::MAX]));
        assert_eq!(keys("1\n\"2\"\n\n3"), Some(vec![1, 2, 3]));
        assert_eq!(keys(""), Some(vec![]));
        for body in ["[1,", "-1", "1.0", "{}", "x", "[[1]]", "null", "18446744073709551616"] {
            assert_eq!(keys(body), None, "{body}");
        }
        assert!(parse(b"\xff").is_err());
    }
}
