//! Keys as they stand on a command line, in a list, and in a file name.

use std::io::{BufRead, Read};
use std::str::FromStr;

use crate::failure::{Failure, Place, Result};
use crate::input::Stream;

/// A key: decimal (`42`) or hex (`0x2a`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u64);

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Key, String> {
        let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        let plain = digits.chars().all(|c| c.is_digit(radix)); // from_str_radix would take a sign
        let key = plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten();
        key.map(Key).ok_or_else(|| format!("expected a key from 0 to 2^64-1, decimal or 0x hex, found \"{text}\""))
    }
}

/// The key that `text` is the decimal form of: `7`, not `007`, `+7` or `7.0`.
pub(crate) fn canonical(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (text == "0" || !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}

/// The keys of a list, one a line, in order.
pub(crate) struct KeyList {
    stream: Stream,
    line: u64,
    buffer: Vec<u8>,
}

/// The longest line that is read: a key with room for white space.
const LONGEST_LINE: u64 = 4096;

impl KeyList {
    pub(crate) fn new(stream: Stream) -> KeyList {
        KeyList { stream, line: 0, buffer: Vec::new() }
    }

    /// The next keys, as many as have arrived: a caller that writes a key and waits for its answer gets it.
    /// Empty at the end, and only there.
    ///
    /// Errors: a line that is no key, with its number; what the stream says.
    pub(crate) fn next_batch(&mut self) -> Result<Vec<u64>> {
        let mut keys = Vec::new();
        while keys.is_empty() || self.stream.buffer().contains(&b'\n') {
            if !self.next_line()? {
                break;
            }
            let text = String::from_utf8_lossy(&self.buffer);
            if !text.trim().is_empty() {
                let key: Key = text.trim().parse().map_err(|message: String| self.malformed(message))?;
                keys.push(key.0);
            }
        }
        Ok(keys)
    }

    fn next_line(&mut self) -> Result<bool> {
        self.buffer.clear();
        let read = (&mut self.stream).take(LONGEST_LINE).read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|error| self.stream.failure(error))?;
        self.line += 1;
        if read as u64 == LONGEST_LINE && !self.buffer.ends_with(b"\n") {
            return Err(
                self.malformed(format!("expected one key a line, found a line of more than {LONGEST_LINE} bytes"))
            );
        }
        Ok(read > 0)
    }

    fn malformed(&self, message: String) -> Failure {
        Failure::malformed(self.stream.name(), Place::Line(self.line), message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decimal_or_hex() {
        let cases = [
            ("0", 0),
            ("42", 42),
            ("007", 7),
            ("0x2a", 42),
            ("0XFF", 255),
            ("18446744073709551615", u64::MAX),
            ("0xffffffffffffffff", u64::MAX),
        ];
        for (text, key) in cases {
            assert_eq!(text.parse(), Ok(Key(key)), "{text}");
        }
        for text in ["", "0x", "+7", "-1", " 7", "7 ", "1e3", "1.0", "1_000", "0x+1", "ff", "18446744073709551616"] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }

    #[test]
    fn canonical_keys_are_exact() {
        assert_eq!(["0", "7", "18446744073709551615"].map(canonical), [Some(0), Some(7), Some(u64::MAX)]);
        for text in ["", "00", "007", "+7", "-7", "7.0", "7e0", "0x7", " 7", "٧", "18446744073709551616"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }

    fn batches(text: &str) -> Result<Vec<u64>> {
        let mut list = KeyList::new(Stream::of_bytes("keys.txt", text.as_bytes()));
        let mut keys = Vec::new();
        loop {
            let batch = list.next_batch()?;
            if batch.is_empty() {
                return Ok(keys);
            }
            keys.extend(batch);
        }
    }

    #[test]
    fn a_list_has_a_key_a_line() {
        assert!(batches("").unwrap().is_empty());
        assert!(batches("\n \n").unwrap().is_empty());
        assert_eq!(batches("1\n0x2\r\n\n 3 \n4").unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in [("x", 1), ("1\n\n2 3\n", 3), ("1\n\u{feff}2\n", 2)] {
            let message = batches(text).unwrap_err().to_string();
            assert!(message.ends_with(&format!("(file keys.txt, line {line})")), "{message}");
        }
        let long = format!("1\n{}", "1".repeat(5000));
        assert!(batches(&long).unwrap_err().to_string().contains("line 2"));
    }
}
