//! A range of keys as text, as Rust writes it: `10..20`.

use std::ops::{Bound, RangeBounds};
use std::str::FromStr;

use crate::key::Key;

/// The bounds of a range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedKeyRange(Bound<u64>, Bound<u64>);

impl ParsedKeyRange {
    pub fn bounds(self) -> (Bound<u64>, Bound<u64>) {
        (self.0, self.1)
    }

    pub fn contains(self, key: u64) -> bool {
        self.bounds().contains(&key)
    }
}

impl FromStr for ParsedKeyRange {
    type Err = String;

    fn from_str(text: &str) -> Result<ParsedKeyRange, String> {
        let parts = text.split_once("..=").map(|(start, end)| (start, end, true));
        let parts = parts.or_else(|| text.split_once("..").map(|(start, end)| (start, end, false)));
        let (start, end, closed) = parts.ok_or_else(|| {
            format!("expected a range of keys such as 10..20, 10..=19, 10.. or ..20, found \"{text}\"")
        })?;
        let key = |text: &str| text.parse::<Key>().map(|key| key.0);
        let start = if start.is_empty() { Bound::Unbounded } else { Bound::Included(key(start)?) };
        let end = match (end, closed) {
            ("", false) => Bound::Unbounded,
            (end, true) => Bound::Included(key(end)?),
            (end, false) => Bound::Excluded(key(end)?),
        };
        match (start, end) {
            (Bound::Included(first), Bound::Included(last) | Bound::Excluded(last)) if first > last => {
                Err(format!("expected a range that begins before it ends, found \"{text}\""))
            }
            _ => Ok(ParsedKeyRange(start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Bound::{Excluded, Included, Unbounded};

    #[test]
    fn ranges_are_written_as_in_rust() {
        let cases = [
            ("..", (Unbounded, Unbounded)),
            ("10..20", (Included(10), Excluded(20))),
            ("10..=20", (Included(10), Included(20))),
            ("0x10..", (Included(16), Unbounded)),
            ("..0x20", (Unbounded, Excluded(32))),
            ("..=18446744073709551615", (Unbounded, Included(u64::MAX))),
            ("7..7", (Included(7), Excluded(7))),
        ];
        for (text, (start, end)) in cases {
            assert_eq!(text.parse(), Ok(ParsedKeyRange(start, end)), "{text}");
        }
        for text in ["", "7", "7.20", "20..10", "20..=10", "7..=", "..=", "-1..5", "1...5", "1..5..9", "a..b", "1 ..2"]
        {
            assert!(text.parse::<ParsedKeyRange>().is_err(), "{text}");
        }
    }
}
