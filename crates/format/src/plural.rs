//! Numbers with their nouns, for the texts of reports.

use std::fmt;

/// A number with separators and its noun in the singular or the plural: `1 key`, `25,000 keys`.
#[derive(Debug)]
pub struct Plural(pub u64, pub &'static str);

impl fmt::Display for Plural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = match self.0 {
            1 => "",
            _ if self.1.ends_with('s') => "es",
            _ => "s",
        };
        write!(f, "{} {}{ending}", Grouped(self.0), self.1)
    }
}

/// A number with a comma before each group of three digits.
#[derive(Debug)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            small @ 0..1000 => write!(f, "{small}"),
            large => write!(f, "{},{:03}", Grouped(large / 1000), large % 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_large_numbers_have_separators() {
        let shown = [0, 1, 2, 1_000, 25_001, u64::MAX].map(|number| Plural(number, "key").to_string());
        assert_eq!(
            shown,
            ["0 keys", "1 key", "2 keys", "1,000 keys", "25,001 keys", "18,446,744,073,709,551,615 keys"]
        );
        assert_eq!(Plural(2, "loss").to_string(), "2 losses");
    }
}
