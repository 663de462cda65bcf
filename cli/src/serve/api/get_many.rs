//! `get-many`: the values of many keys, one line of JSON per key, in the order of the request.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::vec::IntoIter;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::json;
use sharddb::OwnedValue;

use crate::key::Key;
use crate::serve::answer::{Answer, Pieces};
use crate::serve::budget::{Budget, Share};
use crate::serve::counters::Counters;
use crate::serve::database::{Database, Pinned, Read};
use crate::serve::problem::{Problem, Result};
use crate::serve::request::Request;

/// A piece of the answer ends after this number of bytes. It is longer by at most a part of a value.
const PIECE_BYTES: usize = 128 << 10;

/// The bytes of a value that are encoded at a time: a multiple of the 3 bytes that base64 encodes in 4.
const VALUE_BYTES: usize = 48 << 10;

/// Answers with a line for each key of the request: `{"key", "value"}`, in base64 or null, or `{"key", "error"}`.
///
/// Errors: `invalid-input` if the body is not a list of keys; `busy` if other requests have the memory for the keys.
pub(super) fn answer(database: &Database, request: &Request, budget: &Budget) -> Result<Answer> {
    if !request.is_post {
        return Err(Problem::method());
    }
    let keys = parse(&request.body)?;
    let lines = Lines {
        pinned: database.pinned()?,
        budget: budget.clone(),
        counters: Arc::clone(&database.counters),
        _keys_share: budget.reserve(8 * keys.len() as u64)?,
        keys: keys.into_iter(),
        value: None,
    };
    Ok(Answer::lines(Box::new(lines)))
}

/// A key of a body: a number or a string.
struct BodyKey(u64);

impl<'de> Deserialize<'de> for BodyKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<BodyKey, D::Error> {
        struct KeyVisitor;

        impl Visitor<'_> for KeyVisitor {
            type Value = BodyKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key from 0 to 18446744073709551615")
            }

            fn visit_u64<E>(self, key: u64) -> std::result::Result<BodyKey, E> {
                Ok(BodyKey(key))
            }

            fn visit_str<E: Error>(self, text: &str) -> std::result::Result<BodyKey, E> {
                text.parse::<Key>().map(|key| BodyKey(key.0)).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(KeyVisitor)
    }
}

/// Parses a JSON array of keys, or one key per line.
fn parse(body: &[u8]) -> Result<Vec<u64>> {
    let text = std::str::from_utf8(body).map_err(|_| Problem::invalid("expected keys in UTF-8, found other bytes"))?;
    let keys: std::result::Result<Vec<BodyKey>, _> = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text),
        false => text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect(),
    };
    let wrong = |error| Problem::invalid(format!("expected a JSON array of keys, or one key per line: {error}"));
    Ok(keys.map_err(wrong)?.into_iter().map(|key| key.0).collect())
}

/// Looks up the keys of one generation while the client reads.
struct Lines {
    pinned: Arc<Pinned>,
    budget: Budget,
    counters: Arc<Counters>,
    _keys_share: Share,
    keys: IntoIter<u64>,
    /// The value whose line is not complete.
    value: Option<Rest>,
}

/// The rest of a value: its bytes from an offset.
struct Rest {
    bytes: OwnedValue,
    at: usize,
    _share: Share,
}

impl Lines {
    /// Writes the line of a key, as far as its value.
    fn begin(&mut self, key: u64, lines: &mut String) {
        match self.pinned.read(key, &self.budget) {
            Ok(Some(Read { bytes, share, .. })) => {
                lines.push_str(&format!("{{\"key\":\"{key}\",\"value\":\""));
                self.value = Some(Rest { bytes, at: 0, _share: share });
            }
            Ok(None) => lines.push_str(&format!("{{\"key\":\"{key}\",\"value\":null}}\n")),
            Err(problem) => {
                let error = &problem.json()["error"];
                lines.push_str(&json!({"key": key.to_string(), "value": null, "error": error}).to_string());
                lines.push('\n');
            }
        }
    }
}

impl Pieces for Lines {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut lines = String::new();
        while lines.len() < PIECE_BYTES {
            if let Some(rest) = &mut self.value {
                let bytes = rest.bytes.get(rest.at..).unwrap_or_default();
                let part = bytes.get(..VALUE_BYTES).unwrap_or(bytes);
                STANDARD.encode_string(part, &mut lines);
                rest.at += part.len();
                if part.len() == bytes.len() {
                    lines.push_str("\"}\n");
                    self.value = None;
                }
            } else if let Some(key) = self.keys.next() {
                self.begin(key, &mut lines);
            } else {
                break;
            }
        }
        self.counters.add_bytes(lines.len() as u64);
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
