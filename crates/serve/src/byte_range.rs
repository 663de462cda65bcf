//! The request header `Range` (RFC 9110, section 14): one range of bytes.

use std::ops::Range;

/// Which bytes a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All of them: there is no `Range`, or one that is ignored.
    Whole,
    /// These, which are at least one and exist.
    Part(Range<u64>),
    /// A range that begins after the last byte.
    Unsatisfiable,
}

/// Returns what the header `Range` selects of `len` bytes.
///
/// The forms are `bytes=A-B`, `bytes=A-` and `bytes=-N`. Another unit, several ranges and a malformed header are ignored,
/// as RFC 9110 permits: the answer is the whole representation.
pub(crate) fn wanted(header: Option<&str>, len: u64) -> Wanted {
    match header.and_then(parse) {
        None => Wanted::Whole,
        Some(range) => range.of(len).map_or(Wanted::Unsatisfiable, Wanted::Part),
    }
}

/// One range as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// From a first byte to a last one, both included.
    FromTo(u64, u64),
    /// The last bytes.
    Last(u64),
}

impl Written {
    /// The bytes that exist; `None` if there are none.
    fn of(self, len: u64) -> Option<Range<u64>> {
        let range = match self {
            Written::FromTo(first, last) => first..last.saturating_add(1).min(len),
            Written::Last(bytes) => len.saturating_sub(bytes)..len,
        };
        (!range.is_empty()).then_some(range)
    }
}

fn parse(header: &str) -> Option<Written> {
    let (unit, range) = header.trim_matches([' ', '\t']).split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.split_once('-')?;
    match (first, last) {
        ("", last) => number(last).map(Written::Last),
        (first, "") => number(first).map(|first| Written::FromTo(first, u64::MAX)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Written::FromTo(first, last))
        }
    }
}

/// Parses decimal digits. A number that is too large for `u64` counts as the largest, which no file has.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn part(header: &str, len: u64, range: Range<u64>) {
        assert_eq!(wanted(Some(header), len), Wanted::Part(range), "{header}");
    }

    #[test]
    fn the_three_forms_select_bytes() {
        part("bytes=0-0", 10, 0..1);
        part("bytes=2-4", 10, 2..5);
        part("bytes=2-", 10, 2..10);
        part("bytes=2-99", 10, 2..10);
        part("bytes=9-9", 10, 9..10);
        part("bytes=-3", 10, 7..10);
        part("bytes=-30", 10, 0..10);
        part("BYTES=1-2", 10, 1..3);
        part("bytes=0-18446744073709551615", u64::MAX, 0..u64::MAX);
        part("bytes=0-99999999999999999999", 10, 0..10);
    }

    #[test]
    fn no_byte_is_not_a_range() {
        for header in
            ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=18446744073709551615-", "bytes=99999999999999999999-"]
        {
            assert_eq!(wanted(Some(header), 10), Wanted::Unsatisfiable, "{header}");
        }
        for header in ["bytes=0-", "bytes=0-0", "bytes=-1"] {
            assert_eq!(wanted(Some(header), 0), Wanted::Unsatisfiable, "{header}");
        }
    }

    #[test]
    fn what_is_not_one_range_of_bytes_is_ignored() {
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=4-2",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=1-2,4-5",
            "bytes=0-0,",
            "lines=0-1",
            "bytes = 0-1",
            "bytes= 0-1",
            "bytes=0x1-2",
            "bytes=1--2",
            "bytes=1 - 2",
            "0-1",
            "bytes=\u{663}-",
        ] {
            assert_eq!(wanted(Some(header), 10), Wanted::Whole, "{header:?}");
        }
        assert_eq!(wanted(None, 10), Wanted::Whole);
    }
}
