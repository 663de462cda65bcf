//! Sizes in bytes, parsed and displayed with units.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: parsed from `4096`, `64KiB` or `1GB`, shown as `1.5 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();
        let factor = if unit.is_empty() {
            Some(1)
        } else {
            UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor)
        };
        let (Ok(number), Some(factor)) = (number.parse::<u64>(), factor) else {
            return Err(format!(
                "expected an integer with or without a unit (KiB, MiB, GiB, TiB, KB, MB, GB, TB), found \"{text}\""
            ));
        };
        let bytes =
            number.checked_mul(factor).ok_or_else(|| format!("expected less than 2^64 bytes, found \"{text}\""))?;
        Ok(Size(bytes))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().take(5).rev().find(|(_, factor)| self.0 >= *factor && *factor > 1);
        match unit {
            None => write!(f, "{} B", self.0),
            Some((name, factor)) => write!(f, "{:.1} {name}", self.0 as f64 / *factor as f64),
        }
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
            ("7B", 7),
            ("1KiB", 1024),
            ("256MiB", 256 << 20),
            ("1 GiB", 1 << 30),
            ("2tib", 2 << 40),
            ("1KB", 1_000),
            ("3MB", 3_000_000),
            ("1GB", 1_000_000_000),
            ("1TB", 1_000_000_000_000),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_could_mean_two_things_or_none() {
        for text in
            ["", "GiB", "64M", "1.5GiB", "-1", "+1", "1 G iB", "1GiBs", "0x10", "18446744073709551616", "16777216TiB"]
        {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn shows_three_digits() {
        let shown = [0, 1023, 1024, 1 << 20, (3 << 30) / 2, u64::MAX].map(|bytes| Size(bytes).to_string());
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "1.5 GiB", "16777216.0 TiB"]);
    }
}
