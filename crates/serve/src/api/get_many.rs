//! `get-many`: the values of many keys, one line of JSON per key, in the order of the request.

use std::io;
use std::sync::Arc;
use std::vec::IntoIter;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::json;
use sharddb::OwnedValue;
use sharddb::internal::key::{Key, canonical};

use crate::answer::{Answer, Pieces};
use crate::budget::{Budget, Share};
use crate::counters::Counters;
use crate::database::{Database, Pinned, Read};
use crate::problem::{Problem, Result};
use crate::request::Request;

/// A piece of the answer ends after this number of bytes. It is longer by at most a part of a value.
const PIECE_BYTES: usize = 128 << 10;

/// The bytes of a value that are encoded at a time: a multiple of the 3 bytes that base64 encodes in 4.
const VALUE_BYTES: usize = 48 << 10;

/// The longest text that is parsed as a key, or shown as none.
const MAX_KEY_BYTES: usize = 64;

/// Answers with a line for each key of the request: `{"key", "value"}`, in base64 or null, or `{"key", "error"}`.
///
/// Errors: `invalid-input` if the body is not a list of keys; `busy` if other requests have the memory for the keys.
pub(super) fn answer(database: &Database, request: &Request, budget: &Budget) -> Result<Answer> {
    if !request.is_post {
        return Err(Problem::method());
    }
    let (keys, keys_share) = parse(&request.body, budget)?;
    let lines = Lines {
        pinned: database.pinned()?,
        budget: budget.clone(),
        counters: Arc::clone(&database.counters),
        _keys_share: keys_share,
        keys: keys.into_iter(),
        value: None,
    };
    Ok(Answer::lines(Box::new(lines)))
}

/// Parses a JSON array of keys, or one key per line. Memory for as many keys as there may be is reserved first.
///
/// Errors: `invalid-input`; those of [`Budget::reserve`].
fn parse(body: &[u8], budget: &Budget) -> Result<(Vec<u64>, Share)> {
    let text = std::str::from_utf8(body).map_err(|_| Problem::invalid("expected keys in UTF-8, found other bytes"))?;
    let text = text.trim();
    let array = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let (list, separator) = array.map_or((text, '\n'), |list| (list, ','));
    let most = list.matches(separator).count() + 1;
    let share = budget.reserve(8 * most as u64)?;
    let mut keys = Vec::with_capacity(most);
    for entry in list.split(separator).map(str::trim) {
        let is_blank = entry.is_empty() && (array.is_none() || most == 1);
        if !is_blank {
            keys.push(parse_key(entry).ok_or_else(|| no_key(entry, keys.len()))?);
        }
    }
    Ok((keys, share))
}

/// Parses a number of JSON, or a key in quotes.
fn parse_key(entry: &str) -> Option<u64> {
    match entry.strip_prefix('"').and_then(|entry| entry.strip_suffix('"')) {
        Some(key) if key.len() <= MAX_KEY_BYTES => key.parse::<Key>().ok().map(|key| key.0),
        Some(_) => None,
        None => canonical(entry),
    }
}

fn no_key(entry: &str, keys: usize) -> Problem {
    let found: String = entry.chars().take(MAX_KEY_BYTES).collect();
    Problem::invalid(format!(
        "expected a JSON array of keys, or one key per line, each from 0 to 2^64-1, found {found:?} after {keys} keys"
    ))
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
        let keys = |body: &str| parse(body.as_bytes(), &Budget::new()).ok().map(|(keys, _)| keys);
        assert_eq!(keys("[1, \"2\", \"0x10\", 18446744073709551615]"), Some(vec![1, 2, 16, u64::MAX]));
        assert_eq!(keys(" [\n1,\n2] \n"), Some(vec![1, 2]));
        assert_eq!(keys("1\n\"2\"\r\n\n\"0x3\"\n"), Some(vec![1, 2, 3]));
        for body in ["", "\n\n", "[]", " [ ] "] {
            assert_eq!(keys(body), Some(vec![]), "{body:?}");
        }
        for body in [
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "1,2",
            "1]",
            "-1",
            "1.0",
            "{}",
            "x",
            "[[1]]",
            "null",
            "0x1",
            "01",
            "\"",
            "\"1",
            "18446744073709551616",
        ] {
            assert_eq!(keys(body), None, "{body}");
        }
        assert!(parse(b"\xff", &Budget::new()).is_err());
    }

    /// The body is refused before its last entry is seen.
    #[test]
    fn memory_for_keys_is_reserved_before_they_are_parsed() {
        let body = format!("[{}x]", "1,".repeat(100_000));
        let status = |kib| parse(body.as_bytes(), &Budget::with_kib(kib)).unwrap_err().status.as_u16();
        assert_eq!((status(781), status(782)), (503, 400), "8 bytes for each of 100,001 entries");
    }

    #[test]
    fn a_message_has_no_long_entry() {
        for body in ["9".repeat(1 << 20), format!("\"{}\"", "0".repeat(1 << 20))] {
            let problem = parse(body.as_bytes(), &Budget::new()).unwrap_err();
            assert!(problem.body().len() < 300, "{}", problem.body());
        }
    }
}
