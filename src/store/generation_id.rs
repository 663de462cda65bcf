//! The number of a generation, and the directory name made of it.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

const PREFIX: &str = "gen-";

/// The greatest number of ten digits.
const MAX: u64 = 9_999_999_999;

/// The number of a generation. Within a store, numbers ascend in the order of publication and are never reused.
///
/// `Display` and `FromStr` use the name of the generation's directory.
///
/// ```
/// use sharddb::GenerationId;
///
/// let id = GenerationId::new(3)?;
/// assert_eq!(id.to_string(), "gen-0000000003");
/// assert_eq!("gen-0000000003".parse::<GenerationId>()?, id);
/// assert!("gen-3".parse::<GenerationId>().is_err());
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GenerationId(u64);

impl GenerationId {
    /// Returns the id of this number.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the number has more than ten digits.
    pub fn new(number: u64) -> Result<GenerationId> {
        if number <= MAX {
            Ok(GenerationId(number))
        } else {
            Err(Error::invalid_input(format!("expected a generation number up to {MAX}, found {number}")))
        }
    }

    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Parses the exact name of a generation's directory.
    pub(crate) fn from_name(name: &str) -> Option<GenerationId> {
        let digits = name.strip_prefix(PREFIX)?;
        let exact = digits.len() == 10 && digits.bytes().all(|digit| digit.is_ascii_digit());
        exact.then(|| digits.parse().ok().map(GenerationId))?
    }

    /// Returns the next number.
    ///
    /// Errors: `InvalidInput` after the last number of ten digits.
    pub(crate) fn next(self) -> Result<GenerationId> {
        GenerationId::new(self.0 + 1)
    }
}

/// Parses the name of a generation as people write it: `gen-0000000003`, `gen-3`, or just `3`.
///
/// Errors: `InvalidInput`.
pub fn generation_of_text(text: &str) -> Result<GenerationId> {
    let number = text.strip_prefix(PREFIX).unwrap_or(text);
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match number.parse::<u64>() {
        Ok(number) if digits => GenerationId::new(number),
        _ => text.parse(),
    }
}

impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:010}", self.0)
    }
}

impl FromStr for GenerationId {
    type Err = Error;

    /// Parses the exact name of a generation's directory.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the name is not `gen-` and ten digits.
    fn from_str(name: &str) -> Result<GenerationId> {
        GenerationId::from_name(name).ok_or_else(|| {
            Error::invalid_input(format!(
                "expected a generation such as gen-0000000003, with ten digits, found {name:?}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_or_numbers_a_generation() {
        for text in ["3", "0000000003", "gen-3", "gen-0000000003"] {
            assert_eq!(generation_of_text(text).unwrap().get(), 3, "{text}");
        }
        for text in ["", "-3", "+3", "gen-", "gen-+3", "gen-gen-3", "gen-0000000003/", "99999999999", "current"] {
            assert!(generation_of_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_exact_both_ways() {
        for (number, name) in [(0, "gen-0000000000"), (3, "gen-0000000003"), (MAX, "gen-9999999999")] {
            assert_eq!(GenerationId::new(number).unwrap().to_string(), name);
            assert_eq!(name.parse::<GenerationId>().unwrap().get(), number);
        }
        for bad in ["", "3", "gen-", "gen-3", "gen-00000000003", "gen-000000000a", "gen-+000000003", "Gen-0000000003"] {
            assert_eq!(GenerationId::from_name(bad), None, "{bad:?}");
        }
        for bad in
            ["gen-0000000003/", "gen-0000000003\n", " gen-0000000003", "./gen-0000000003", "gen-000000000\u{663}"]
        {
            assert_eq!(GenerationId::from_name(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_last_number_has_ten_digits() {
        assert!(GenerationId::new(MAX + 1).is_err());
        assert!(GenerationId(MAX).next().is_err());
        assert_eq!(GenerationId(9).next().unwrap(), GenerationId(10));
    }
}
