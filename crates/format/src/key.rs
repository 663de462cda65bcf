//! Keys as text: on a command line, in a URL, in a list of keys, in file names.

use std::str::FromStr;

/// A key: decimal (`42`) or hex (`0x2a`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u64);

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

/// Parses a key in canonical decimal: `7`, not `007`, `+7` or `7.0`.
pub fn canonical(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (text == "0" || !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
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
}
