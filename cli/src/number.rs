//! Numbers on the command line and in messages.

use std::str::FromStr;

/// A count: parsed from `1000`, `1_000`, `1e9`, `10M` or `2.5M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Count(pub(crate) u64);

/// The decimal suffixes of a count.
const SUFFIXES: [(char, u64); 4] = [('K', 1_000), ('M', 1_000_000), ('G', 1_000_000_000), ('T', 1_000_000_000_000)];

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Count, String> {
        parse(text).map(Count).ok_or_else(|| {
            format!("expected a whole number below 2^64, such as 1000, 1_000, 1e9 or 10M, found \"{text}\"")
        })
    }
}

fn parse(text: &str) -> Option<u64> {
    if let Some((digits, exponent)) = text.split_once(['e', 'E']) {
        let plain = exponent.bytes().all(|byte| byte.is_ascii_digit());
        let factor = 10_u64.checked_pow(exponent.parse().ok().filter(|_| plain)?)?;
        return exactly(digits, factor);
    }
    let suffix = SUFFIXES.iter().find(|(suffix, _)| text.ends_with([*suffix, suffix.to_ascii_lowercase()]));
    match suffix {
        Some((_, factor)) => exactly(text.get(..text.len() - 1)?, *factor),
        None => exactly(text, 1),
    }
}

fn exactly(digits: &str, factor: u64) -> Option<u64> {
    let (number, divisor) = fraction(digits)?;
    let scaled = number.checked_mul(u128::from(factor))?;
    (scaled % divisor == 0).then(|| u64::try_from(scaled / divisor).ok())?
}

/// `digits` times `factor`, rounded down: decimal digits with `_` between them, and a part after the point.
pub(crate) fn scaled(digits: &str, factor: u64) -> Option<u64> {
    let (number, divisor) = fraction(digits)?;
    u64::try_from(number.checked_mul(u128::from(factor))? / divisor).ok()
}

/// `3.25` as 325 and 100.
fn fraction(text: &str) -> Option<(u128, u128)> {
    let (whole, part) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, part)) => (whole, part),
        None => (text, ""),
    };
    let is_number = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') && !text.starts_with('_') && !text.ends_with('_')
    };
    if whole.is_empty() || !is_number(whole) || !is_number(part) {
        return None;
    }
    let digits: String = whole.chars().chain(part.chars()).filter(|c| *c != '_').collect();
    let places = u32::try_from(part.bytes().filter(u8::is_ascii_digit).count()).ok()?;
    Some((digits.parse().ok()?, 10_u128.checked_pow(places)?))
}

/// A number with separators, and its noun in the singular or the plural: `1 key`, `2,000 keys`.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", crate::histogram::grouped(number))
}

/// The number of keys, or what else `noun` says, and the one before: `3 keys (5 before)`.
pub(crate) fn counted(number: u64, noun: &str, before: Option<u64>) -> String {
    let before = before.map_or_else(String::new, |before| format!(" ({} before)", crate::histogram::grouped(before)));
    format!("{}{before}", plural(number, noun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators_exponents_and_suffixes() {
        let cases = [
            ("0", 0),
            ("1_000", 1_000),
            ("1e9", 1_000_000_000),
            ("1E0", 1),
            ("2.5e6", 2_500_000),
            ("10M", 10_000_000),
            ("1.5k", 1_500),
            ("2G", 2_000_000_000),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, count) in cases {
            assert_eq!(text.parse(), Ok(Count(count)), "{text}");
        }
        for text in [
            "",
            "e9",
            "1e",
            "1e-1",
            "1e+3",
            "1e20",
            "1.5",
            "1.55e1",
            "M",
            "10MM",
            "1,000",
            "_1",
            "1__",
            "-1",
            "0x10",
            "1e99999999999",
            "18446744073709551616",
            "\u{661}",
        ] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2, 1000].map(|number| plural(number, "key")), ["0 keys", "1 key", "2 keys", "1,000 keys"]);
    }
}
