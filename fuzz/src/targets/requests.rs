//! Arbitrary text as the path and the header `Range` of an HTTP request: names that stay in their directory, or a refusal;
//! a range of bytes that exist, the same that a naive parser finds.
//!
//! The input is a length (8 bytes), the path up to a line end, and the header.

use std::path::{Component, Path};

use crate::byte_range::{Wanted, wanted};
use crate::request_path::{Platform, encode, parse};

/// Runs the target.
pub fn run(input: &[u8]) {
    let Some((len, text)) = input.split_first_chunk::<8>() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let (path, header) = text.split_once('\n').unwrap_or((text, ""));
    for platform in [Platform::Unix, Platform::Windows] {
        if let Some(names) = parse(path, platform) {
            check_names(&names, platform);
        }
    }
    check_range(header, u64::from_le_bytes(*len));
}

fn check_names(names: &[String], platform: Platform) {
    for name in names {
        let components: Vec<_> = Path::new(name).components().collect();
        assert!(matches!(components[..], [Component::Normal(only)] if only == name.as_str()), "{name:?}");
        assert!(!name.contains(['/', '\\', '\0']) && name != ".." && name != ".", "{name:?}");
    }
    let path: String = names.iter().map(|name| format!("/{}", encode(name))).collect();
    let again = if names.is_empty() { Some(Vec::new()) } else { parse(&path, platform) };
    // an encoded path may be longer than a path may be
    assert!(again.is_none_or(|again| again == names), "{path:?}");
    if platform == Platform::Windows {
        let upper: Vec<_> = names.iter().map(|name| name.to_uppercase()).collect();
        assert!(!upper.iter().any(|name| name == "CON" || name.starts_with("NUL.") || name.contains(':')), "{names:?}");
    }
}

fn check_range(header: &str, len: u64) {
    let found = wanted(Some(header), len);
    if let Wanted::Part(part) = &found {
        assert!(part.start < part.end && part.end <= len, "{header:?} of {len}: {part:?}");
    }
    let naive = match naive(header) {
        None => Wanted::Whole,
        Some((first, last)) => {
            let len = u128::from(len);
            let (first, end) = match first {
                Some(first) => (first, last.map_or(len, |last| len.min(last + 1))),
                None => (len.saturating_sub(last.unwrap_or(0)), len),
            };
            if first < end { Wanted::Part(first as u64..end as u64) } else { Wanted::Unsatisfiable }
        }
    };
    assert_eq!(found, naive, "{header:?} of {len}");
}

/// The first and the last byte of one range; at least one of them. A number beyond 64 bits counts as the largest.
fn naive(header: &str) -> Option<(Option<u128>, Option<u128>)> {
    let header = header.trim_matches([' ', '\t']);
    let (unit, range) = (header.get(..6)?, header.get(6..)?);
    if !unit.eq_ignore_ascii_case("bytes=") || range.matches('-').count() != 1 {
        return None;
    }
    let number = |text: &str| -> Option<Option<u128>> {
        if text.is_empty() {
            return Some(None);
        }
        if !text.chars().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        Some(Some(text.parse().unwrap_or(u128::MAX).min(u128::from(u64::MAX))))
    };
    let (first, last) = range.split_once('-')?;
    match (number(first)?, number(last)?) {
        (None, None) => None,
        (Some(first), Some(last)) if first > last => None,
        bounds => Some(bounds),
    }
}
