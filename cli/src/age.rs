//! Ages on the command line.

use std::str::FromStr;
use std::time::Duration;

/// An age: a whole number with a unit, `7d`, `12h`, `30m` or `0s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Duration);

const UNITS: [(char, u64); 5] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800)];

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Age, String> {
        let unit = UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, seconds)));
        let digits = unit.filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
        let seconds = digits.and_then(|(number, seconds)| number.parse::<u64>().ok()?.checked_mul(*seconds));
        let seconds = seconds.ok_or_else(|| format!("expected an age such as 7d, 12h, 30m or 0s, found \"{text}\""))?;
        Ok(Age(Duration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_numbers_with_a_unit() {
        for (text, seconds) in [("0s", 0), ("90m", 5400), ("12h", 43_200), ("7d", 604_800), ("1w", 604_800)] {
            assert_eq!(text.parse(), Ok(Age(Duration::from_secs(seconds))), "{text}");
        }
        for text in ["", "7", "d", "-1d", "+1d", "1.5d", "1d2h", "99999999999999999999s", "999999999999999999w"] {
            assert!(text.parse::<Age>().is_err(), "{text}");
        }
    }
}
