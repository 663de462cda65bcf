//! `current` of a store in a bucket: names the generation that readers use, and those before it. Parses and writes the
//! text; does no I/O.
//!
//! ```text
//! {
//! "format_version": 1,                     later versions are refused
//! "generation": "gen-0000000003-6f..",     number, and 128 random bits: two publishers never write the same objects
//! "id": "0c..",                            128 random bits, new in every write: a writer recognises its own text
//! "history": [                             oldest first, the current one last
//! {"generation": "gen-0000000001-d1..", "replaced": "2026-11-23T10:00:00Z"},
//! {"generation": "gen-0000000002-77..", "replaced": null, "rolled_back": true},
//! {"generation": "gen-0000000003-6f..", "replaced": null}
//! ],
//! "removed": ["gen-0000000000-a0.."],      what `gc` has removed or is removing; omitted if empty
//! "crc32": 10383966                        crc32 of all bytes before the last `"crc32"` of the text
//! }
//! ```
//!
//! `"replaced"` is the time of the server at which the next entry became current. In the entry before the last it is null,
//! because a writer does not know that time before the write: it is the Last-Modified of this object, and the next writer
//! fills it in. `"rolled_back"` marks an entry that a rollback to the previous one left: further rollbacks pass over it.
//!
//! The last two lines have exactly this form, as in the manifest. Members that this version does not know are ignored.

use std::fmt;

use serde_json::value::RawValue;
use sharddb_format::internal::date;
use sharddb_format::internal::json;
use sharddb_format::internal::manifest;
use sharddb_format::{Error, ErrorKind, Result};

/// The name of the object.
pub(crate) const FILE_NAME: &str = "current";

/// Maximum length of the text in bytes. Longer than [`MAX_HISTORY`] entries and removed names.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of entries of the history, and of removed names.
pub(crate) const MAX_HISTORY: usize = 1000;

const FORMAT_VERSION: u64 = 1;

const PREFIX: &str = "gen-";

/// Number of decimal digits of a generation's number.
const DIGITS: usize = 10;

/// Number of hexadecimal digits of 128 bits.
const HEX_DIGITS: usize = 32;

/// The name of a generation in a bucket: `gen-`, ten decimal digits, `-`, and 32 lowercase hexadecimal digits.
///
/// It is one name of a path, and has no character that a store escapes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GenerationName {
    name: String,
    /// The ten digits of the name.
    number: u64,
}

impl GenerationName {
    /// Parses an exact name; `None` for anything else.
    pub(crate) fn parse(name: &str) -> Option<GenerationName> {
        let (number, random) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let is_number = number.len() == DIGITS && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|_| is_number && is_random(random))?;
        Some(GenerationName { name: name.to_string(), number })
    }

    /// Returns the number, which has ten digits.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the name.
    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for GenerationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A time of the server, in seconds since 1970-01-01T00:00:00Z. `Display` writes `2026-11-23T10:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerTime(u64);

impl ServerTime {
    /// Returns the time of this number of seconds since 1970; `None` before that year and after 9999.
    pub(crate) fn from_unix(seconds: i64) -> Option<ServerTime> {
        u64::try_from(seconds).ok().filter(|seconds| *seconds <= date::LAST_SECOND).map(ServerTime)
    }

    /// Returns the number of seconds since 1970.
    pub(crate) fn unix(self) -> u64 {
        self.0
    }

    /// Returns the seconds from an earlier time to this one; 0 if it is later.
    pub(crate) fn seconds_since(self, earlier: ServerTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Parses exactly what `Display` writes; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<ServerTime> {
        date::parse_iso_8601(text).map(ServerTime)
    }
}

impl fmt::Display for ServerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&date::iso_8601(self.0))
    }
}

/// A generation that was current and has a successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) generation: GenerationName,
    /// When the successor became current. `None` only in the last entry: the Last-Modified of the object.
    pub(crate) at: Option<ServerTime>,
    /// Whether it was left by a rollback to the previous entry.
    pub(crate) rolled_back: bool,
}

/// What `current` of a store in a bucket states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketCurrent {
    /// The generation that readers use.
    pub(crate) generation: GenerationName,
    /// 32 hexadecimal digits, random per write.
    pub(crate) id: String,
    /// The generations before it, oldest first; names are unique.
    pub(crate) before: Vec<Replaced>,
    /// Generations that `gc` has removed or is removing. They must not become current.
    pub(crate) removed: Vec<GenerationName>,
}

impl BucketCurrent {
    /// Parses the text.
    ///
    /// Errors: `Corrupt` if its crc32 does not match, or if a member is missing, malformed or inconsistent with another;
    /// `Unsupported` if it has a later version; `TooLarge` if the history is longer than 1,000 entries.
    pub(crate) fn parse(bytes: &[u8]) -> Result<BucketCurrent> {
        check_crc32(bytes)?;
        let root = json::parse(bytes).map_err(corrupt)?;
        let members = Members::of(root, "an object")?;
        check_version(&members)?;
        let generation = members.generation("generation")?;
        let mut before = history(&members)?;
        let last = before.pop();
        if last.as_ref().map(|entry| (&entry.generation, entry.at)) != Some((&generation, None)) {
            return Err(Error::corrupt(format!(
                "expected the history in current to end with {generation}, the current generation, found another end"
            )));
        }
        check_history(&generation, &before)?;
        let id = members.text("id")?;
        if !is_random(&id) {
            return Err(malformed("id"));
        }
        Ok(BucketCurrent { generation, id, before, removed: removed(&members)? })
    }

    /// Returns a generation of the history by its name, or by its number, as in `gen-0000000003`.
    ///
    /// Errors: `GenerationGone` if the last `gc` removed it; `NotFound` if the history does not have it; `InvalidInput` if
    /// several have the number.
    pub(crate) fn named(&self, name: &str) -> Result<&GenerationName> {
        let is_named =
            |found: &&GenerationName| found.name == name || found.name.rsplit_once('-').is_some_and(|it| it.0 == name);
        let all = self.before.iter().map(|entry| &entry.generation).chain([&self.generation]);
        match all.filter(is_named).collect::<Vec<_>>()[..] {
            [found] => Ok(found),
            [] if self.removed.iter().any(|removed| is_named(&removed)) => Err(Error::new(
                ErrorKind::GenerationGone,
                format!("expected the generation {name}, found that gc removed it"),
            )),
            [] => Err(Error::new(
                ErrorKind::NotFound,
                format!("expected the generation {name} in the history, found others: gc removes old ones from it"),
            )),
            ref several => {
                let names: Vec<&str> = several.iter().map(|name| name.as_str()).collect();
                Err(Error::invalid_input(format!("expected one generation {name}, found {}", names.join(" and "))))
            }
        }
    }

    /// Returns the text. Equal values have equal texts.
    pub(crate) fn to_json(&self) -> String {
        let mut rows: Vec<String> = self.before.iter().map(Replaced::to_row).collect();
        rows.push(format!("{{\"generation\": \"{}\", \"replaced\": null}}", self.generation));
        let mut text = format!(
            "{{\n\"format_version\": {FORMAT_VERSION},\n\"generation\": \"{}\",\n\"id\": \"{}\",\n\"history\": [\n{}\n],\n",
            self.generation,
            self.id,
            rows.join(",\n")
        );
        if !self.removed.is_empty() {
            let names: Vec<String> = self.removed.iter().map(|name| format!("\"{name}\"")).collect();
            text += &format!("\"removed\": [{}],\n", names.join(", "));
        }
        let last = manifest::last_member(text.as_bytes());
        text + &last
    }
}

impl Replaced {
    fn to_row(&self) -> String {
        let at = self.at.map_or("null".to_string(), |at| format!("\"{at}\""));
        let rolled_back = if self.rolled_back { ", \"rolled_back\": true" } else { "" };
        format!("{{\"generation\": \"{}\", \"replaced\": {at}{rolled_back}}}", self.generation)
    }
}

/// Returns the directory of the current generation: what the text names in a bucket, or in a copy of a local store, whose
/// `current` is the name of a generation and at most a line end.
///
/// Errors: those of [`BucketCurrent::parse`].
pub(crate) fn generation_directory(bytes: &[u8]) -> Result<String> {
    match local_generation(bytes) {
        Some(local) => Ok(local.to_string()),
        None => BucketCurrent::parse(bytes).map(|current| current.generation.name),
    }
}

/// Returns the generation that the `current` of a copied local store names; `None` for any other text.
pub(crate) fn local_generation(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    is_local_name(line).then_some(line)
}

/// Returns the directory of a chosen generation: see [`BucketCurrent::named`]. In a copy of a local store, whose `current`
/// has no history, it is the chosen name, whether there is such a generation or not.
///
/// Errors: those of [`generation_directory`] and of [`BucketCurrent::named`]; `InvalidInput` if a local store has no such
/// names.
pub(crate) fn chosen_directory(bytes: &[u8], chosen: &str) -> Result<String> {
    let current = generation_directory(bytes)?;
    match (is_local_name(&current), is_local_name(chosen)) {
        (true, true) => Ok(chosen.to_string()),
        (true, false) => Err(Error::invalid_input(format!(
            "expected a generation of a copy of a local store, such as {current}, found {chosen:?}"
        ))),
        (false, _) => Ok(BucketCurrent::parse(bytes)?.named(chosen)?.to_string()),
    }
}

/// Returns whether a text is the name of a generation of a local store: `gen-0000000003`.
fn is_local_name(text: &str) -> bool {
    let digits = text.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a text is the name of a generation, and so of a directory.
pub(crate) fn is_generation_directory(text: &str) -> bool {
    is_local_name(text) || GenerationName::parse(text).is_some()
}

/// Returns whether a text is 128 bits as lowercase hexadecimal digits.
pub(crate) fn is_random(text: &str) -> bool {
    text.len() == HEX_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn history(members: &Members<'_>) -> Result<Vec<Replaced>> {
    let rows = members.required("history")?;
    let rows = json::elements(rows).ok_or_else(|| malformed("history"))?;
    check_len("entries of the history", rows.len())?;
    rows.into_iter().map(replaced).collect()
}

fn replaced(row: &RawValue) -> Result<Replaced> {
    let members = Members::of(row, "entries of the history that are objects")?;
    let at = match members.required("replaced")?.get() {
        "null" => None,
        _ => Some(ServerTime::parse(&members.text("replaced")?).ok_or_else(|| malformed("replaced"))?),
    };
    let rolled_back = match members.optional("rolled_back")?.map(RawValue::get) {
        Some("true") => true,
        None | Some("false") => false,
        Some(_) => return Err(malformed("rolled_back")),
    };
    Ok(Replaced { generation: members.generation("generation")?, at, rolled_back })
}

/// Errors: `Corrupt` if a generation is named twice, or an entry that has a later one lacks its time.
fn check_history(generation: &GenerationName, before: &[Replaced]) -> Result<()> {
    let mut names: Vec<_> = before.iter().map(|entry| &entry.generation).chain([generation]).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair.first() == pair.last()) {
        let name = pair.first().map(|name| name.as_str()).unwrap_or_default();
        let message = format!("expected each generation once in the history in current, found {name} again");
        return Err(Error::corrupt(message));
    }
    match before.split_last() {
        Some((_, older)) if older.iter().any(|entry| entry.at.is_none()) => {
            Err(Error::corrupt("expected a time in all but the last two entries of the history in current, found null"))
        }
        _ => Ok(()),
    }
}

fn removed(members: &Members<'_>) -> Result<Vec<GenerationName>> {
    let Some(names) = members.optional("removed")? else { return Ok(Vec::new()) };
    let names = json::elements(names).ok_or_else(|| malformed("removed"))?;
    check_len("removed generations", names.len())?;
    let parse = |name| json::string(name).and_then(|name| GenerationName::parse(&name));
    names.into_iter().map(|name| parse(name).ok_or_else(|| malformed("removed"))).collect()
}

fn check_len(what: &str, found: usize) -> Result<()> {
    if found <= MAX_HISTORY {
        Ok(())
    } else {
        let message = format!("expected at most {MAX_HISTORY} {what} in current, found {found}");
        Err(Error::new(ErrorKind::TooLarge, message))
    }
}

fn check_version(members: &Members<'_>) -> Result<()> {
    match members.required("format_version")?.get().parse() {
        Ok(FORMAT_VERSION) => Ok(()),
        Ok(0) | Err(_) => Err(malformed("format_version")),
        Ok(later) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "this build reads current of a bucket in format version {FORMAT_VERSION}, found {later}: \
                 use a later version of ShardDb"
            ),
        )),
    }
}

fn check_crc32(bytes: &[u8]) -> Result<()> {
    let name = manifest::CRC32.as_bytes();
    let at = bytes.windows(name.len()).rposition(|window| window == name);
    let Some((head, found)) = at.and_then(|at| bytes.split_at_checked(at)) else {
        return Err(Error::corrupt(
            "expected current to be the text of a store in a bucket or the name of a generation, found neither",
        ));
    };
    let expected = manifest::last_member(head);
    if found != expected.as_bytes() {
        let found = String::from_utf8_lossy(found);
        let found = json::excerpt(&found);
        let message = format!("expected current to end with its checksum, {expected:?}, found {found:?}");
        return Err(Error::corrupt(message));
    }
    Ok(())
}

/// The members of an object, in order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    fn of(value: &'a RawValue, expected: &str) -> Result<Members<'a>> {
        let found = || Error::corrupt(format!("expected {expected} in current, found something else"));
        json::members(value).map(Members).ok_or_else(found)
    }

    fn optional(&self, name: &str) -> Result<Option<&'a RawValue>> {
        json::member(&self.0, name).map_err(corrupt)
    }

    fn required(&self, name: &str) -> Result<&'a RawValue> {
        self.optional(name)?
            .ok_or_else(|| Error::corrupt(format!("expected a member \"{name}\" in current, found none")))
    }

    fn text(&self, name: &str) -> Result<String> {
        json::string(self.required(name)?).ok_or_else(|| malformed(name))
    }

    fn generation(&self, name: &str) -> Result<GenerationName> {
        GenerationName::parse(&self.text(name)?).ok_or_else(|| malformed(name))
    }
}

fn malformed(name: &str) -> Error {
    Error::corrupt(format!("the member \"{name}\" in current of a store in a bucket is malformed"))
}

/// Turns an error of a nested parser into `Corrupt`.
fn corrupt(error: Error) -> Error {
    Error::corrupt(format!("in current of a store in a bucket: {}", error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    fn name(number: u64, byte: &str) -> GenerationName {
        GenerationName::parse(&format!("gen-{number:010}-{}", byte.repeat(16))).unwrap()
    }

    fn sample() -> BucketCurrent {
        let replaced = |generation, at: Option<&str>, rolled_back| Replaced {
            generation,
            at: at.map(|at| ServerTime::parse(at).unwrap()),
            rolled_back,
        };
        BucketCurrent {
            generation: name(3, "6f"),
            id: ID.to_string(),
            before: vec![
                replaced(name(1, "d1"), Some("2026-11-23T10:00:00Z"), false),
                replaced(name(2, "77"), None, true),
            ],
            removed: vec![name(0, "a0")],
        }
    }

    /// The text of `sample`; the crc32 is that of Python's zlib.
    const TEXT: &str = "{\n\"format_version\": 1,\n\
        \"generation\": \"gen-0000000003-6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f\",\n\
        \"id\": \"000102030405060708090a0b0c0d0e0f\",\n\
        \"history\": [\n\
        {\"generation\": \"gen-0000000001-d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1\", \"replaced\": \"2026-11-23T10:00:00Z\"},\n\
        {\"generation\": \"gen-0000000002-77777777777777777777777777777777\", \"replaced\": null, \"rolled_back\": true},\n\
        {\"generation\": \"gen-0000000003-6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f\", \"replaced\": null}\n\
        ],\n\
        \"removed\": [\"gen-0000000000-a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0\"],\n\
        \"crc32\": 3885091226\n}\n";

    #[test]
    fn the_text_is_fixed_both_ways() {
        assert_eq!(sample().to_json(), TEXT);
        assert_eq!(BucketCurrent::parse(TEXT.as_bytes()).unwrap(), sample());
    }

    #[test]
    fn the_first_one_has_no_history_but_itself() {
        let first = BucketCurrent { before: Vec::new(), removed: Vec::new(), ..sample() };
        assert!(!first.to_json().contains("removed"));
        assert_eq!(BucketCurrent::parse(first.to_json().as_bytes()).unwrap(), first);
    }

    #[test]
    fn every_changed_or_missing_byte_is_found() {
        for at in 0..TEXT.len() {
            let mut bytes = TEXT.as_bytes().to_vec();
            bytes[at] ^= 1;
            assert_eq!(BucketCurrent::parse(&bytes).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
            assert!(BucketCurrent::parse(&TEXT.as_bytes()[..at]).is_err(), "cut at {at}");
        }
    }

    /// One case for each way to be wrong in a text whose crc32 matches.
    #[test]
    fn names_the_member_that_is_wrong() {
        let (first, last) = (format!("\"{}\"", name(1, "d1")), format!("\"{}\"", name(3, "6f")));
        let cases = [
            (TEXT.replace("\"format_version\": 1", "\"format_version\": 0"), "format_version"),
            (TEXT.replace("\"format_version\": 1,\n", ""), "format_version"),
            (TEXT.replace(ID, "../../../../../../../../../../../.."), "\"id\""),
            (TEXT.replace(&first, "\"gen-0000000001\""), "generation"),
            (TEXT.replace(&first, "\"../x\""), "generation"),
            (TEXT.replace(&first, &last), "again"),
            (TEXT.replace(&first, "7"), "generation"),
            (TEXT.replace("\"2026-11-23T10:00:00Z\"", "null"), "all but the last two"),
            (TEXT.replace("2026-11-23T10:00:00Z", "2026-02-30T10:00:00Z"), "replaced"),
            (TEXT.replace("\"rolled_back\": true", "\"rolled_back\": 1"), "rolled_back"),
            (TEXT.replacen(&last, &first, 1), "end"),
            (TEXT.replace("\"removed\": [", "\"removed\": [7, "), "removed"),
            (TEXT.replace("\"history\"", "\"id\": \"\", \"history\""), "more than once"),
        ];
        for (text, expected) in cases {
            let error = BucketCurrent::parse(with_crc32(&text).as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}");
            assert!(error.message().contains(expected), "{expected}: {error}");
        }
        let later = with_crc32(&TEXT.replace("\"format_version\": 1", "\"format_version\": 2, \"new\": []"));
        assert_eq!(BucketCurrent::parse(later.as_bytes()).unwrap_err().kind(), ErrorKind::Unsupported);
        let long = BucketCurrent { removed: vec![name(0, "a0"); MAX_HISTORY + 1], ..sample() };
        assert_eq!(BucketCurrent::parse(long.to_json().as_bytes()).unwrap_err().kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn unknown_members_are_ignored() {
        let text = with_crc32(&TEXT.replace("\"id\"", "\"note\": [1, {}],\n\"id\""));
        assert_eq!(BucketCurrent::parse(text.as_bytes()).unwrap(), sample());
    }

    fn with_crc32(text: &str) -> String {
        let (head, _) = text.rsplit_once("\"crc32\"").unwrap();
        format!("{head}\"crc32\": {}\n}}\n", crc32fast::hash(head.as_bytes()))
    }

    #[test]
    fn names_are_exact() {
        let random = "0123456789abcdef0123456789abcdef";
        let name = GenerationName::parse(&format!("gen-0000000042-{random}")).unwrap();
        assert_eq!((name.number(), name.as_str().len()), (42, 47));
        for bad in ["", "gen-0000000042", "gen-42-", "Gen-0000000042-", "gen-+000000042-"] {
            assert_eq!(GenerationName::parse(&format!("{bad}{random}")), None, "{bad}");
        }
        for bad in ["/x", "0", "/", "\n"] {
            assert_eq!(GenerationName::parse(&format!("gen-0000000042-{random}{bad}")), None, "{bad}");
        }
        assert_eq!(GenerationName::parse(&format!("gen-0000000042-{}", random.to_uppercase())), None);
    }

    #[test]
    fn times_are_those_of_four_digit_years_from_1970() {
        assert_eq!(ServerTime::from_unix(-1), None);
        assert_eq!(ServerTime::from_unix(253_402_300_799).unwrap().to_string(), "9999-12-31T23:59:59Z");
        assert_eq!(ServerTime::from_unix(253_402_300_800), None);
    }

    #[test]
    fn a_generation_is_chosen_by_its_name_or_its_number() {
        let chosen = |name: &str| chosen_directory(TEXT.as_bytes(), name);
        for wanted in [name(1, "d1"), name(2, "77"), name(3, "6f")] {
            assert_eq!(chosen(wanted.as_str()).unwrap(), wanted.as_str());
            assert_eq!(chosen(&format!("gen-{:010}", wanted.number())).unwrap(), wanted.as_str());
        }
        for (name, kind) in [
            (name(0, "a0").as_str(), ErrorKind::GenerationGone),
            ("gen-0000000000", ErrorKind::GenerationGone),
            (name(1, "d2").as_str(), ErrorKind::NotFound),
            ("gen-0000000004", ErrorKind::NotFound),
            ("gen-000000000", ErrorKind::NotFound),
            ("gen", ErrorKind::NotFound),
            ("", ErrorKind::NotFound),
        ] {
            assert_eq!(chosen(name).unwrap_err().kind(), kind, "{name}");
        }
        let mut same_number = sample();
        same_number.before[1].generation = name(1, "77");
        let error = same_number.named("gen-0000000001").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("found {} and {}", name(1, "d1"), name(1, "77"))), "{error}");
        // a copy of a local store
        assert_eq!(chosen_directory(b"gen-0000000007\n", "gen-0000000002").unwrap(), "gen-0000000002");
        for other in ["../x", "", name(1, "d1").as_str()] {
            assert_eq!(
                chosen_directory(b"gen-0000000007\n", other).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{other}"
            );
        }
    }

    #[test]
    fn the_directory_is_that_of_a_bucket_or_of_a_local_store() {
        assert_eq!(generation_directory(TEXT.as_bytes()).unwrap(), name(3, "6f").as_str());
        for text in ["gen-0000000007", "gen-0000000007\n", "gen-0000000007\r\n"] {
            assert_eq!(generation_directory(text.as_bytes()).unwrap(), "gen-0000000007");
        }
        for text in ["", "gen-7", "../x", "gen-0000000007/..", "gen-0000000007\n\n", "<html>404</html>"] {
            assert_eq!(generation_directory(text.as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt, "{text:?}");
        }
        assert_eq!(generation_directory(b"gen-000000000\xff").unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
