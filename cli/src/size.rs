//! Sizes in bytes, parsed and displayed with units.

use std::fmt;
use std::str::FromStr;

use crate::number;

/// A number of bytes: parsed from `4096`, `64KiB`, `3.5GB` or `4G`, shown as `1.5 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// The units by which a size is shown.
const BINARY: [(&str, u64); 6] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("PiB", 1 << 50)];

/// Other units. A letter alone is binary, as in dd, du and split.
const OTHERS: [(&str, u64); 10] = [
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("P", 1 << 50),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

/// The least memory of a build.
const MIN_MEMORY: Size = Size(16 << 20);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let unit = text.find(|c: char| c.is_ascii_alphabetic() || c == ' ').unwrap_or(text.len());
        let (digits, unit) = text.split_at(unit);
        let factor = match unit.trim_start() {
            "" if digits.contains('.') => None,
            "" => Some(1),
            unit => {
                BINARY.iter().chain(&OTHERS).find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, size)| *size)
            }
        };
        let bytes = factor.and_then(|factor| number::scaled(digits, factor));
        bytes.map(Size).ok_or_else(|| {
            format!(
                "expected bytes below 2^64, such as 4096, 64M, 1.5GiB or 3GB (K, M, G, T and P are binary, like KiB; \
                 KB, MB, GB, TB and PB are decimal), found \"{text}\""
            )
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = BINARY.iter().rev().find(|(_, factor)| self.0 >= *factor && *factor > 1);
        match unit {
            None => write!(f, "{} B", self.0),
            Some((name, factor)) => write!(f, "{:.1} {name}", self.0 as f64 / *factor as f64),
        }
    }
}

/// Parses the memory of a build, which has a lower limit.
pub(crate) fn parse_memory(text: &str) -> Result<Size, String> {
    match text.parse()? {
        size if size >= MIN_MEMORY => Ok(size),
        size => Err(format!("expected at least {MIN_MEMORY} of memory, found {size}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_binary_and_decimal_units() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("4_096", 4096),
            ("7B", 7),
            ("1KiB", 1024),
            ("256MiB", 256 << 20),
            ("1 GiB", 1 << 30),
            ("2tib", 2 << 40),
            ("64M", 64 << 20),
            ("1G", 1 << 30),
            ("4g", 4 << 30),
            ("1.5GiB", 3 << 29),
            ("1KB", 1_000),
            ("3MB", 3_000_000),
            ("3.5GB", 3_500_000_000),
            ("1TB", 1_000_000_000_000),
            ("1PB", 1_000_000_000_000_000),
            ("1PiB", 1 << 50),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in [
            "",
            "GiB",
            ".5G",
            "5.G",
            "1.5",
            "1..5G",
            "-1",
            "+1",
            "1 G iB",
            "1GiBs",
            "0x10",
            "1e9G",
            "_1",
            "1_",
            "18446744073709551616",
            "16777216TiB",
            "1\u{663}",
            "\0",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn shows_three_digits() {
        let shown = [0, 1023, 1024, 1 << 20, (3 << 30) / 2, u64::MAX].map(|bytes| Size(bytes).to_string());
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.5 GiB", "16384.0 PiB"]);
    }

    #[test]
    fn memory_has_a_lower_limit() {
        assert_eq!(parse_memory("16M"), Ok(MIN_MEMORY));
        assert_eq!(parse_memory("1MB").unwrap_err(), "expected at least 16.0 MiB of memory, found 976.6 KiB");
    }
}
