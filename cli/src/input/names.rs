//! `names`: which names of files and directories are keys, which are skipped, and which option makes a name a key.

use std::path::Path;

use clap::ValueEnum;
use glob::Pattern;
use sharddb::internal::key;

use crate::input::skipped::Why;
use crate::printable::word;

/// How the names of files in directories are read.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct NameOptions {
    /// Skip what is named by this pattern of *, ? and [...] in input directories: files, or subdirectories as a whole;
    /// may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) ignore: Vec<Pattern>,
    /// For directories: files are named by a key and this suffix, such as .json
    #[arg(long, value_name = "SUFFIX", value_parser = parse_suffix)]
    pub(crate) suffix: Option<String>,
    /// For directories: read files in subdirectories too, which are named by their keys like all others
    #[arg(long)]
    pub(crate) recursive: bool,
    /// For directories: the base of the keys in names, which may have leading zeros; 16 also takes 0x. Default: 10,
    /// without leading zeros
    #[arg(long, value_enum, value_name = "BASE")]
    pub(crate) name_base: Option<NameBase>,
}

/// The base of the keys in names, in the order of the names that they permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum NameBase {
    #[value(name = "10", help = "Decimal")]
    Ten,
    #[value(name = "16", help = "Hex, of either case, also after 0x")]
    Sixteen,
}

/// A file name that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name<'a> {
    pub(super) key: u64,
    /// The part of the name that is the key.
    pub(super) stem: &'a str,
    /// Whether the file is an index: the value, after a preamble that is in a file of its own.
    pub(super) is_index: bool,
}

impl NameOptions {
    /// The first of the options that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--ignore", !self.ignore.is_empty()),
            ("--suffix", self.suffix.is_some()),
            ("--recursive", self.recursive),
            ("--name-base", self.name_base.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// The key in a file name; `None` if the options make it none.
    pub(super) fn parse<'a>(&self, name: &'a str) -> Option<Name<'a>> {
        let plain = name.strip_suffix(".gz").unwrap_or(name);
        let (stem, is_index) = match (&self.suffix, name.strip_suffix(".index")) {
            (Some(suffix), _) => (plain.strip_suffix(suffix.as_str())?, false),
            (None, Some(stem)) => (stem, true),
            (None, None) => (plain.strip_suffix(":0").unwrap_or(plain), false), // KEY:LOD, the manifest of a mesh
        };
        Some(Name { key: self.key(stem)?, stem, is_index })
    }

    fn key(&self, text: &str) -> Option<u64> {
        match self.name_base {
            None => key::canonical(text),
            Some(NameBase::Ten) => number(text, 10),
            Some(NameBase::Sixteen) => {
                let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
                number(digits.unwrap_or(text), 16)
            }
        }
    }

    /// Why a name is skipped, whatever has it.
    pub(super) fn skips(&self, name: &str) -> Option<Why> {
        match self.ignore.iter().find(|pattern| pattern.matches(name)) {
            Some(pattern) => Some(Why::Ignored(pattern.as_str().to_string())),
            None => name.starts_with('.').then_some(Why::Hidden),
        }
    }

    /// Why a file is skipped that has no key.
    pub(super) fn skips_file(&self, name: &str) -> Option<Why> {
        if name == "info" {
            Some(Why::Info)
        } else if name.ends_with(".spatial") || name.contains(".labels") {
            Some(Why::SpatialIndex)
        } else {
            self.is_fragment(name).then_some(Why::Fragment)
        }
    }

    /// Whether this is KEY:LOD:BOX, a piece of the mesh whose manifest is KEY:LOD.
    fn is_fragment(&self, name: &str) -> bool {
        let mut parts = name.splitn(3, ':');
        let (key, lod, bounds) = (parts.next(), parts.next(), parts.next());
        key.and_then(|key| self.key(key)).is_some()
            && lod.and_then(|lod| number(lod, 10)).is_some()
            && bounds.is_some_and(|bounds| !bounds.is_empty())
    }

    /// What names are expected, for a message.
    pub(super) fn expected(&self) -> String {
        let base = match self.name_base {
            None => "canonical decimal",
            Some(NameBase::Ten) => "decimal",
            Some(NameBase::Sixteen) => "hex",
        };
        match &self.suffix {
            None => format!("(7, 7.gz or 7.index, in {base} below 2^64)"),
            Some(suffix) => format!("and {} (in {base} below 2^64)", word(Path::new(suffix))),
        }
    }

    /// What the user can do about a name that is no key, for a message. If other names are keys (`has_keys`), no advice
    /// takes these away: otherwise two names could each advise what the other one forbids.
    pub(super) fn advice(&self, name: &str, has_keys: bool) -> String {
        let suffixes = [self.suffix.as_deref(), None, suffix_after_word(name), suffix_after_digits(name)];
        let bases = [self.name_base, None, Some(NameBase::Ten), Some(NameBase::Sixteen)];
        let with = |suffix: Option<&str>, name_base| {
            let options = NameOptions { suffix: suffix.map(str::to_string), name_base, ..NameOptions::default() };
            Some((options.parse(name).filter(|name| !name.is_index)?.key, options))
        };
        let found = suffixes.into_iter().find_map(|suffix| {
            let mut permitted = bases.into_iter().filter(|base| !has_keys || *base >= self.name_base);
            permitted.find_map(|base| with(suffix, base))
        });
        match found {
            Some((key, options)) if !has_keys || options.suffix == self.suffix => {
                let is_new = has_keys && options.name_base != self.name_base;
                let others = match options.name_base {
                    Some(NameBase::Sixteen) if is_new => ", and all names are hex",
                    _ => "",
                };
                format!("with {} it is the file of key {key}{others}", options.changes(self))
            }
            Some((_, options)) if options.suffix.is_some() => {
                let suffix = options.suffix.as_deref().unwrap_or_default();
                let end = if name.ends_with(".gz") { ".gz" } else { "" };
                let pattern = format!("*{}{end}", Pattern::escape(suffix));
                let skips = format!("--ignore {} skips such files", word(Path::new(&pattern)));
                match self.suffix {
                    None => {
                        format!("{skips}; to read them instead, {} and --ignore for the others", options.changes(self))
                    }
                    Some(_) => skips,
                }
            }
            _ => "--ignore GLOB skips files".to_string(),
        }
    }

    /// What the user has to change to have these options.
    fn changes(&self, given: &NameOptions) -> String {
        let mut changes = Vec::new();
        match &self.suffix {
            suffix if *suffix == given.suffix => {}
            Some(suffix) => {
                let separator = if suffix.starts_with('-') { '=' } else { ' ' };
                changes.push(format!("--suffix{separator}{}", word(Path::new(suffix))));
            }
            None => changes.push("no --suffix".to_string()),
        }
        match self.name_base {
            base if base == given.name_base => {}
            Some(NameBase::Ten) => changes.push("--name-base 10".to_string()),
            Some(NameBase::Sixteen) => changes.push("--name-base 16".to_string()),
            None => changes.push("no --name-base".to_string()),
        }
        changes.join(" and ")
    }
}

/// A number that has digits only, and at least one.
fn number(digits: &str, radix: u32) -> Option<u64> {
    let plain = digits.chars().all(|c| c.is_digit(radix)); // from_str_radix would take a sign
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

/// `.json` of `7.json`, `1f.json` and `7.json.gz`.
fn suffix_after_word(name: &str) -> Option<&str> {
    suffix_at(name, |c| !c.is_ascii_alphanumeric())
}

/// `mesh` of `7mesh`.
fn suffix_after_digits(name: &str) -> Option<&str> {
    suffix_at(name, |c| !c.is_ascii_digit()).filter(|suffix| !suffix.starts_with(['x', 'X'])) // of 0x
}

/// The end of a name from this character on, if it may be the suffix of other names too: not a number, a box or the name of a
/// compression that is not read.
fn suffix_at(name: &str, is_first: impl Fn(char) -> bool) -> Option<&str> {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let suffix = name.get(name.find(is_first)?..)?;
    let has = |of: fn(&char) -> bool| suffix.chars().any(|c| of(&c));
    let is_word = has(|c| c.is_alphabetic()) && !has(|c| c.is_control());
    let is_common = (suffix.starts_with('.') || !has(char::is_ascii_digit)) && !suffix.ends_with(".zst");
    (is_word && is_common && parse_suffix(suffix).is_ok()).then_some(suffix)
}

/// The parser of --suffix.
fn parse_suffix(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('/') || text.ends_with(".gz") {
        let message =
            "expected the end of file names, such as .json; files with .gz after it are read too, decompressed";
        return Err(message.to_string());
    }
    Ok(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(suffix: Option<&str>, name_base: Option<NameBase>) -> NameOptions {
        NameOptions { suffix: suffix.map(str::to_string), name_base, ..NameOptions::default() }
    }

    const NONE: (Option<&str>, Option<NameBase>) = (None, None);
    const JSON: (Option<&str>, Option<NameBase>) = (Some(".json"), None);
    const TEN: (Option<&str>, Option<NameBase>) = (None, Some(NameBase::Ten));
    const SIXTEEN: (Option<&str>, Option<NameBase>) = (None, Some(NameBase::Sixteen));

    #[test]
    fn names_are_keys_as_the_options_say() {
        let cases = [
            (NONE, "18446744073709551615.gz", u64::MAX),
            (NONE, "7:0", 7),
            (NONE, "7:0.gz", 7),
            (JSON, "7.json", 7),
            (JSON, "7.json.gz", 7),
            ((Some("_mesh"), None), "7_mesh", 7),
            ((Some(".index"), None), "7.index", 7),
            ((Some(":1"), None), "7:1", 7),
            (TEN, "0007", 7),
            (TEN, "0000", 0),
            (TEN, "00000000000000000000000018446744073709551615", u64::MAX),
            (SIXTEEN, "1f", 31),
            (SIXTEEN, "001F.gz", 31),
            (SIXTEEN, "0x1f", 31),
            (SIXTEEN, "0Xffffffffffffffff", u64::MAX),
            (SIXTEEN, "10", 16),
            ((Some(".json"), Some(NameBase::Sixteen)), "0xaB.json", 171),
        ];
        for ((suffix, base), name, key) in cases {
            let found = options(suffix, base).parse(name);
            assert_eq!(found.map(|found| (found.key, found.is_index)), Some((key, false)), "{name}");
        }
        assert_eq!(options(None, SIXTEEN.1).parse("0x1F.index"), Some(Name { key: 31, stem: "0x1F", is_index: true }));
    }

    #[test]
    fn other_names_are_no_keys() {
        let cases: [(_, &[&str]); 4] = [
            (NONE, &["", "007", "+7", "0x7", "a", "7.txt", "7:1", "7:00", ":0", "18446744073709551616", "7.index.gz"]),
            (JSON, &["7", "7.gz", "7.index", "7.JSON", "7json", ".json", "07.json", "7.json.index", "7.json.zst"]),
            (TEN, &["ff", "0x7", "+7", " 7", "٧", "18446744073709551616", ".gz", ".index"]),
            (SIXTEEN, &["0x", "x1", "0x0x1", "1_f", "-1", "fg", "10000000000000000", "0x+1"]),
        ];
        for ((suffix, base), names) in cases {
            for name in names {
                assert_eq!(options(suffix, base).parse(name), None, "{name}");
            }
        }
    }

    #[test]
    fn fragments_belong_to_a_key() {
        let none = options(None, None);
        for name in ["7:0:0-64_0-64_0-64", "7:0:0-64_0-64_0-64.gz", "7:3:x"] {
            assert_eq!(none.skips_file(name), Some(Why::Fragment), "{name}");
        }
        for name in ["7:0", "7:0:", "a:0:x", "7::x", "07:0:x", "7:a:x"] {
            assert_eq!(none.skips_file(name), None, "{name}");
        }
        assert_eq!(options(None, TEN.1).skips_file("07:0:x"), Some(Why::Fragment));
    }

    /// Names, and the option that makes each a key, where no other name is one.
    #[test]
    fn advice_names_the_option_that_fits() {
        let cases = [
            (NONE, "7.json", "with --suffix .json it is the file of key 7"),
            (NONE, "7.json.gz", "with --suffix .json it"),
            (NONE, "7.mp4", "with --suffix .mp4 it"),
            (NONE, "7 copy", "with --suffix ' copy' it"),
            (NONE, "7mesh", "with --suffix mesh it"),
            (NONE, "7-mesh", "with --suffix=-mesh it"),
            (NONE, "0007", "with --name-base 10 it is the file of key 7"),
            (NONE, "007.gz", "with --name-base 10 it"),
            (NONE, "ff", "with --name-base 16 it is the file of key 255"),
            (NONE, "0x10", "with --name-base 16 it is the file of key 16"),
            (NONE, "0007.json", "with --suffix .json and --name-base 10 it is the file of key 7"),
            (NONE, "1f.json", "with --suffix .json and --name-base 16 it is the file of key 31"),
            (TEN, "1f", "with --name-base 16 it"),
            (SIXTEEN, "18446744073709551615", "with no --name-base it"),
            (JSON, "7.txt", "with --suffix .txt it"),
            (JSON, "7", "with no --suffix it is the file of key 7"),
            (JSON, "07.json", "with --name-base 10 it"),
        ];
        for ((suffix, base), name, expected) in cases {
            let advice = options(suffix, base).advice(name, false);
            assert!(advice.starts_with(expected), "{name}: {advice}");
        }
        for name in [
            "README.md",
            "7.json.zst",
            "7:1",
            "7.5",
            "0-64_0-64_0-64",
            "0x",
            "18446744073709551616",
            "é",
            "x.index",
            "7\u{1b}a",
        ] {
            assert_eq!(options(None, None).advice(name, false), "--ignore GLOB skips files", "{name}");
        }
    }

    #[test]
    fn advice_keeps_the_keys_that_there_are() {
        let advice = options(None, None).advice("7.[x]", true);
        assert_eq!(
            advice,
            "--ignore '*.[[]x[]]' skips such files; to read them instead, --suffix '.[x]' and --ignore for the others"
        );
        assert_eq!(options(Some(".json"), None).advice("7.txt", true), "--ignore '*.txt' skips such files");
        let advice = options(None, None).advice("7.json.gz", true);
        assert!(advice.starts_with("--ignore '*.json.gz' skips such files; to read"), "{advice}");
        for ((suffix, base), name) in [(JSON, "7"), (SIXTEEN, "18446744073709551615")] {
            assert_eq!(options(suffix, base).advice(name, true), "--ignore GLOB skips files", "{name}");
        }
        let advice = options(None, None).advice("0007", true);
        assert_eq!(advice, "with --name-base 10 it is the file of key 7");
        let advice = options(None, None).advice("1f", true);
        assert_eq!(advice, "with --name-base 16 it is the file of key 31, and all names are hex");
    }

    #[test]
    fn suffixes_are_ends_of_names() {
        for text in ["", ".gz", ".json.gz", "a/b"] {
            assert!(parse_suffix(text).is_err(), "{text}");
        }
        for text in [".json", "json", ":0", " x"] {
            assert_eq!(parse_suffix(text).as_deref(), Ok(text));
        }
    }
}
