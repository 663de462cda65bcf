//! The manifest of a generation: the expected content of its files. Parses and writes the text; does no I/O.
//!
//! ```text
//! {
//! "format_version": 1,                     2 with the member "nested"; later major versions are refused
//! "writer": "sharddb 0.1.0",
//! "gzip_backend": "zlib-rs",               equal pairs, options, writer and backend produce equal bytes
//! "sharding": {"@type": ...},              equal to the one in `info`
//! "nested": {"sharding_at": "/scales/0",   only if it is not at the top level of `info`: its JSON pointer,
//!            "shards_in": "8_8_8"},        and the directory of the shards; on one line
//! "info_crc32": 3421780262,                crc32 of the file `info`
//! "checks": true,                          this and the next two: the layout
//! "prefixes": false,
//! "value_alignment": 16,
//! "keys": 3,
//! "value_bytes": 31,                       as stored: encoded, without preambles, padding and indexes
//! "auxiliary": [                           files that speed up reads; omitted if there are none
//! ["minishards",1280,3735928559]           name, bytes, crc32 of the file
//! ],
//! "shards": [
//! [0,120,2,4023233417,305419896],          number, bytes, keys, crc32 of the file, crc32 of the shard index
//! [28,96,1,1432778632,2596996162]
//! ],
//! "digests": [                             of info, the auxiliary files and the shards, in the order above (`digest`);
//! "99aa06d3014798d86001c324468d497f",      null for one that is not known; omitted if none is
//! null,
//! "a96faf705af16834e6c632b61e964e1f",
//! "076f7e02b7120d2ad33dd80b46f60e50"
//! ],
//! "crc32": 10383966                        crc32 of all bytes before the last `"crc32"` of the file
//! }
//! ```
//!
//! The last two lines have exactly this form in every version of the format, so that any changed byte is detected.
//! A script verifies it with `head, tail = text.rsplit(b'"crc32"', 1)` and
//! `tail == b': %d\n}\n' % zlib.crc32(head)`.
//!
//! Names of auxiliary files match `[a-z0-9_]+`. No result depends on an auxiliary file, and a reader ignores those that
//! it does not know. Version 0.1.0 wrote the member `"minishard_pages": [bytes, crc32]` instead, which is read as an
//! entry of that name.
//!
//! Version 0.1.0 wrote no digests. Where one is missing, equal checksums do not mean equal bytes.
//!
//! Version 2 differs from version 1 by the member "nested", without which a reader would look for the shards in the wrong
//! directory. It is required there, and ignored like every unknown member in version 1.
//!
//! All numbers are integers up to `2^64 - 1`. There is no date and no generation number, so that two builds of the same
//! pairs are equal. Members that this version does not know are ignored.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::checksum::Checksum;
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::ShardNumber;
use crate::info::Info;
use crate::json;
use crate::layout::{Layout, ValueAlignment};
use crate::nested::NestedSharding;
use crate::spec::ShardingSpec;

/// The file name of the manifest.
pub const FILE_NAME: &str = "manifest.json";

/// The file name of the minishard table.
pub const MINISHARDS: &str = "minishards";

/// The file name of the key file.
pub const KEYS: &str = "keys";

/// The file name of the predecessor of the minishard table, written by version 0.1.0. No longer read.
pub const MINISHARD_PAGES: &str = "minishard_pages";

/// The maximum length of a manifest in bytes. A million shards take less than half of it.
pub const MAX_BYTES: u64 = 256 << 20;

/// Upper bound on the lengths of all files together.
const MOST_BYTES: u128 = 1 << 62;

/// The maximum number of auxiliary files. The check for repeated names is quadratic.
const MOST_AUXILIARY: usize = 64;

/// The compression library. Its output is part of the guarantee that equal pairs produce equal bytes.
pub const GZIP_BACKEND: &str = "zlib-rs";

/// The major version of a manifest without the member "nested".
const FORMAT_VERSION: u64 = 1;

/// The major version of a manifest with that member, and the latest one that this build reads.
const FORMAT_VERSION_NESTED: u64 = 2;

/// The program and its version.
pub const WRITER: &str = concat!("sharddb ", env!("CARGO_PKG_VERSION"));

/// The name of the last member, quoted as in the text.
pub const CRC32: &str = "\"crc32\"";

/// The expected content of the files of one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// A copy of the member "sharding" of `info`.
    pub sharding: ShardingSpec,
    /// The place of "sharding" in `info` and of the shards; `None` for the top level and the generation's directory.
    pub nested: Option<NestedSharding>,
    /// The crc32 of the file `info`.
    pub info_crc32: u32,
    /// The digest of the file `info`; `None` if it is not known.
    pub info_digest: Option<Digest>,
    pub layout: Layout,
    /// The number of keys in all shards.
    pub keys: u64,
    /// The stored bytes of all values: encoded, without preambles, padding and indexes.
    pub value_bytes: u64,
    /// The auxiliary files; names are unique.
    pub auxiliary: Vec<AuxiliaryRecord>,
    /// The shards that have a file, in ascending order.
    pub shards: Vec<ShardRecord>,
}

/// The expected content of an auxiliary file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxiliaryRecord {
    pub name: String,
    pub checksum: Checksum,
}

/// The expected content of one shard file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRecord {
    pub number: ShardNumber,
    /// The length of the file in bytes.
    pub bytes: u64,
    pub keys: u64,
    /// The crc32 of the file.
    pub crc32: u32,
    /// The crc32 of the shard index, the first bytes of the file.
    pub shard_index_crc32: u32,
    /// The digest of the file; `None` if it is not known.
    pub digest: Option<Digest>,
}

impl Manifest {
    /// Returns the text of the manifest. Equal manifests have equal texts.
    pub fn to_json(&self) -> String {
        self.to_json_by(WRITER)
    }

    fn to_json_by(&self, writer: &str) -> String {
        let Layout { checks, preambles, value_alignment } = self.layout;
        let (version, nested) = match &self.nested {
            None => (FORMAT_VERSION, String::new()),
            Some(nested) => (FORMAT_VERSION_NESTED, format!("\"nested\": {},\n", nested.to_json())),
        };
        let mut text = format!(
            "{{\n\"format_version\": {version},\n\"writer\": {},\n\"gzip_backend\": {},\n\"sharding\": {},\n{nested}\
             \"info_crc32\": {},\n\"checks\": {checks},\n\"prefixes\": {preambles},\n\"value_alignment\": {},\n\
             \"keys\": {},\n\"value_bytes\": {},\n",
            json::quote(writer),
            json::quote(GZIP_BACKEND),
            self.sharding.to_json(),
            self.info_crc32,
            value_alignment.get(),
            self.keys,
            self.value_bytes,
        );
        if !self.auxiliary.is_empty() {
            let rows: Vec<String> = self.auxiliary.iter().map(AuxiliaryRecord::to_row).collect();
            text += &format!("\"auxiliary\": [\n{}\n],\n", rows.join(",\n"));
        }
        text += "\"shards\": [\n";
        let rows: Vec<String> = self.shards.iter().copied().map(ShardRecord::to_row).collect();
        text += &rows.join(",\n");
        text += if rows.is_empty() { "],\n" } else { "\n],\n" };
        let digests: Vec<Option<Digest>> = self.digests().collect();
        if digests.iter().any(Option::is_some) {
            let rows: Vec<String> = digests.into_iter().map(digest_row).collect();
            text += &format!("\"digests\": [\n{}\n],\n", rows.join(",\n"));
        }
        let last = last_member(text.as_bytes());
        text + &last
    }

    /// Parses the text of a manifest.
    ///
    /// Errors: `Corrupt` if its own crc32 does not match, or if a member is missing, malformed or inconsistent with
    /// another; `Unsupported` if it has a later major version.
    pub fn parse(bytes: &[u8]) -> Result<Manifest> {
        check_crc32(bytes)?;
        let root = json::parse(bytes).map_err(corrupt)?;
        let Some(members) = json::members(root) else {
            return Err(Error::corrupt("expected the manifest to be a JSON object, found something else"));
        };
        let members = Members(members);
        let version = members.required("format_version")?;
        check_version(version)?;
        let mut manifest = Manifest {
            sharding: ShardingSpec::from_value(members.required("sharding")?).map_err(corrupt)?,
            nested: match version {
                FORMAT_VERSION => None,
                _ => Some(NestedSharding::from_value(members.required("nested")?).map_err(corrupt)?),
            },
            info_crc32: members.required("info_crc32")?,
            info_digest: None,
            layout: Layout {
                checks: members.required("checks")?,
                preambles: members.required("prefixes")?,
                value_alignment: ValueAlignment::new(members.required("value_alignment")?).map_err(corrupt)?,
            },
            keys: members.required("keys")?,
            value_bytes: members.required("value_bytes")?,
            auxiliary: auxiliary(&members)?,
            shards: members.required::<Vec<Row>>("shards")?.into_iter().map(ShardRecord::from_row).collect(),
        };
        if let Some(rows) = members.optional("digests")? {
            set_digests(manifest.digests_mut(), rows)?;
        }
        manifest.check_shards()?;
        manifest.check_nested()?;
        Ok(manifest)
    }

    /// Returns the record of a shard; `None` if the shard is empty and has no file. O(log n).
    pub fn shard(&self, number: ShardNumber) -> Option<&ShardRecord> {
        let at = self.shards.binary_search_by_key(&number, |shard| shard.number).ok()?;
        self.shards.get(at)
    }

    /// Returns the digests of `info`, the auxiliary files and the shards.
    fn digests(&self) -> impl Iterator<Item = Option<Digest>> {
        let of_auxiliary = self.auxiliary.iter().map(|file| file.checksum.digest);
        [self.info_digest].into_iter().chain(of_auxiliary).chain(self.shards.iter().map(|shard| shard.digest))
    }

    fn digests_mut(&mut self) -> impl Iterator<Item = &mut Option<Digest>> {
        let of_auxiliary = self.auxiliary.iter_mut().map(|file| &mut file.checksum.digest);
        let of_shards = self.shards.iter_mut().map(|shard| &mut shard.digest);
        [&mut self.info_digest].into_iter().chain(of_auxiliary).chain(of_shards)
    }

    /// Returns whether the digests of all files are known: then only equal files have an equal manifest.
    pub fn has_all_digests(&self) -> bool {
        self.digests().all(|digest| digest.is_some())
    }

    /// Returns what is stated about the bytes of a shard.
    pub fn checksum_of(&self, shard: &ShardRecord) -> Checksum {
        shard.checksum(&self.sharding)
    }

    /// Verifies the bytes of `info`. Errors: `Corrupt` if their checksums differ from the manifest's.
    pub fn check_info(&self, info: &[u8]) -> Result<()> {
        let found = Checksum::of(info);
        let stated = Checksum { crc32: self.info_crc32, digest: self.info_digest, ..found };
        stated
            .check(found)
            .map_err(|error| Error::corrupt(format!("the info does not match the manifest: {}", error.message())))
    }

    /// Returns the directory of the shards, relative to that of the generation; empty if it is the same.
    pub fn shards_directory(&self) -> PathBuf {
        self.nested.as_ref().map(NestedSharding::directory).unwrap_or_default()
    }

    /// Returns the path of a shard of the generation in `directory`.
    pub fn shard_path(&self, directory: &Path, number: ShardNumber) -> PathBuf {
        directory.join(self.shards_directory()).join(self.sharding.shard_file_name(number))
    }

    /// Returns the JSON pointer of the object in `info` that has "sharding"; empty for the top level.
    pub fn pointer(&self) -> &str {
        self.nested.as_ref().map_or("", |nested| &nested.pointer)
    }

    /// Verifies the directory of the shards found in `info`. Errors: `Corrupt` if it differs from the manifest's.
    pub fn check_directory(&self, found: &Info) -> Result<()> {
        if found.shards != self.shards_directory() {
            let (expected, found) = (self.shards_directory(), &found.shards);
            return Err(Error::corrupt(format!(
                "expected the directory of the shards that the manifest states, {}, found {} in the info",
                expected.display(),
                found.display()
            )));
        }
        Ok(())
    }

    /// Verifies the sharding specification found in `info`. Errors: `Corrupt` if it differs from the manifest's.
    pub fn check_sharding(&self, found: &ShardingSpec) -> Result<()> {
        if *found != self.sharding {
            let expected = self.sharding;
            return Err(Error::corrupt(format!(
                "expected the \"sharding\" of the manifest, {expected}, found {found}"
            )));
        }
        Ok(())
    }

    /// Returns the record of an auxiliary file, if there is one of this name.
    pub fn auxiliary(&self, name: &str) -> Option<&AuxiliaryRecord> {
        self.auxiliary.iter().find(|record| record.name == name)
    }

    /// Errors: `Corrupt` if the directory of the shards has the name of an auxiliary file.
    fn check_nested(&self) -> Result<()> {
        let Some(nested) = &self.nested else { return Ok(()) };
        match self.auxiliary.iter().find(|file| file.name.eq_ignore_ascii_case(nested.first_name())) {
            Some(file) => Err(Error::corrupt(format!(
                "expected another name for the auxiliary file {} in the manifest, found that of the directory of the \
                 shards",
                file.name
            ))),
            None => Ok(()),
        }
    }

    fn check_shards(&self) -> Result<()> {
        let mut keys = Some(0u64);
        let mut last = None;
        for shard in &self.shards {
            if shard.number > self.sharding.max_shard() {
                let max = self.sharding.max_shard().0;
                let message = format!("expected shard numbers up to {max}, found {}", shard.number.0);
                return Err(Error::corrupt(message).at_shard(shard.number));
            }
            if let Some(last) = last.replace(shard.number)
                && last >= shard.number
            {
                let (last, found) = (last.0, shard.number.0);
                let message = format!("expected the manifest's shards in ascending order, found {found} after {last}");
                return Err(Error::corrupt(message).at_shard(shard.number));
            }
            keys = keys.and_then(|keys| keys.checked_add(shard.keys));
        }
        if keys != Some(self.keys) {
            let found = keys.map_or("more than 2^64".to_string(), |keys| keys.to_string());
            return Err(Error::corrupt(format!("expected {} keys in the manifest's shards, found {found}", self.keys)));
        }
        self.check_lengths()
    }

    /// Checks that sums of the files' lengths do not overflow.
    fn check_lengths(&self) -> Result<()> {
        let lengths =
            self.shards.iter().map(|shard| shard.bytes).chain(self.auxiliary.iter().map(|file| file.checksum.bytes));
        let total = lengths.map(u128::from).sum::<u128>();
        if total > MOST_BYTES {
            let message = format!("expected files of at most 2^62 bytes in the manifest together, found {total}");
            return Err(Error::corrupt(message));
        }
        Ok(())
    }
}

/// Returns the auxiliary files that the manifest lists.
fn auxiliary(members: &Members) -> Result<Vec<AuxiliaryRecord>> {
    let pages = members.optional("minishard_pages")?;
    let pages = pages.map(|(bytes, crc32)| (MINISHARD_PAGES.to_string(), bytes, crc32));
    let rows = members.optional::<Vec<AuxiliaryRow>>("auxiliary")?.unwrap_or_default();
    if rows.len() > MOST_AUXILIARY {
        let message =
            format!("expected at most {MOST_AUXILIARY} auxiliary files in the manifest, found {}", rows.len());
        return Err(Error::corrupt(message));
    }
    let mut records: Vec<AuxiliaryRecord> = Vec::new();
    for (name, bytes, crc32) in pages.into_iter().chain(rows) {
        if !is_auxiliary_name(&name) {
            return Err(Error::corrupt(format!(
                "expected an unreserved auxiliary file name of a-z, 0-9 and _ in the manifest, found {name:?}"
            )));
        }
        if records.iter().any(|record| record.name == name) {
            let message = format!("expected each auxiliary file once in the manifest, found {name} again");
            return Err(Error::corrupt(message));
        }
        records.push(AuxiliaryRecord { name, checksum: Checksum { bytes, crc32, digest: None, shard_index_len: 0 } });
    }
    Ok(records)
}

/// Returns whether an auxiliary file may have this name: `[a-z0-9_]+`, and not the name of another file of a generation
/// or a store.
pub(crate) fn is_auxiliary_name(name: &str) -> bool {
    const RESERVED: [&str; 5] = ["info", "lease", "lock", "current", "history"];
    let is_of_alphabet = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    !name.is_empty() && name.bytes().all(is_of_alphabet) && !RESERVED.contains(&name)
}

/// An auxiliary file as a row of the text.
type AuxiliaryRow = (String, u64, u32);

impl AuxiliaryRecord {
    fn to_row(&self) -> String {
        let AuxiliaryRecord { name, checksum: Checksum { bytes, crc32, .. } } = self;
        format!("[{},{bytes},{crc32}]", json::quote(name))
    }
}

/// A shard as a row of the text.
pub type Row = (u64, u64, u64, u32, u32);

impl ShardRecord {
    pub fn to_row(self) -> String {
        let ShardRecord { number: ShardNumber(number), bytes, keys, crc32, shard_index_crc32, digest: _ } = self;
        format!("[{number},{bytes},{keys},{crc32},{shard_index_crc32}]")
    }

    pub fn from_row((number, bytes, keys, crc32, shard_index_crc32): Row) -> ShardRecord {
        ShardRecord { number: ShardNumber(number), bytes, keys, crc32, shard_index_crc32, digest: None }
    }

    /// Returns what is stated about the bytes of the file.
    pub fn checksum(&self, spec: &ShardingSpec) -> Checksum {
        let shard_index_len = spec.shard_index_len();
        Checksum { bytes: self.bytes, crc32: self.crc32, digest: self.digest, shard_index_len }
    }
}

/// Returns a digest as a row of the text.
pub fn digest_row(digest: Option<Digest>) -> String {
    digest.map_or("null".to_string(), |digest| format!("\"{digest}\""))
}

/// Sets the digests of files by the rows of the text.
///
/// Errors: `Corrupt` if there are not as many rows as files, or one is malformed.
pub fn set_digests<'a>(
    mut digests: impl Iterator<Item = &'a mut Option<Digest>>,
    rows: Vec<Option<String>>,
) -> Result<()> {
    let found = rows.len();
    for row in rows {
        let row = row.map(|row| row.parse()).transpose().map_err(corrupt)?;
        *digests.next().ok_or_else(|| other_digests(found))? = row;
    }
    if digests.next().is_some() { Err(other_digests(found)) } else { Ok(()) }
}

#[cold]
fn other_digests(found: usize) -> Error {
    Error::corrupt(format!("expected one digest for each file, found {found}, which are more or fewer"))
}

/// The members of the manifest, in order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    fn required<T: Deserialize<'a>>(&self, name: &str) -> Result<T> {
        self.optional(name)?
            .ok_or_else(|| Error::corrupt(format!("expected a member \"{name}\" in the manifest, found none")))
    }

    fn optional<T: Deserialize<'a>>(&self, name: &str) -> Result<Option<T>> {
        let Some(value) = json::member(&self.0, name).map_err(corrupt)? else { return Ok(None) };
        serde_json::from_str(value.get())
            .map(Some)
            .map_err(|error| Error::corrupt(format!("the manifest's member \"{name}\" is malformed: {error}")))
    }
}

/// Returns the last member and the rest of the text, given the bytes before it.
pub fn last_member(head: &[u8]) -> String {
    format!("{CRC32}: {}\n}}\n", crc32fast::hash(head))
}

fn check_crc32(bytes: &[u8]) -> Result<()> {
    let at = bytes.windows(CRC32.len()).rposition(|window| window == CRC32.as_bytes());
    let Some((head, found)) = at.and_then(|at| bytes.split_at_checked(at)) else {
        return Err(Error::corrupt("expected the manifest to end with its crc32, found none: the file is cut short"));
    };
    let expected = last_member(head);
    if found != expected.as_bytes() {
        let found = String::from_utf8_lossy(found);
        let message = format!("expected the manifest to end with its checksum, {expected:?}, found {found:?}");
        return Err(Error::corrupt(message));
    }
    Ok(())
}

fn check_version(found: u64) -> Result<()> {
    match found {
        1..=FORMAT_VERSION_NESTED => Ok(()),
        0 => Err(Error::corrupt("expected a \"format_version\" from 1, found 0")),
        later => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "this build reads manifests up to format version {FORMAT_VERSION_NESTED}, found {later}: \
                 use a later version of ShardDb"
            ),
        )),
    }
}

/// Turns an error of a nested parser into `Corrupt`.
fn corrupt(error: Error) -> Error {
    Error::corrupt(format!("in the manifest: {}", error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashFunction;
    use crate::spec::Encoding;

    /// Written by hand; the crc32 was computed by another implementation.
    const GOLDEN: &str = r#"{
"format_version": 1,
"writer": "sharddb 0.1.0",
"gzip_backend": "zlib-rs",
"sharding": {"@type": "neuroglancer_uint64_sharded_v1", "preshift_bits": 0, "hash": "identity", "minishard_bits": 1, "shard_bits": 5, "minishard_index_encoding": "raw", "data_encoding": "gzip"},
"info_crc32": 3421780262,
"checks": true,
"prefixes": false,
"value_alignment": 16,
"keys": 3,
"value_bytes": 31,
"shards": [
[0,120,2,4023233417,305419896],
[28,96,1,1432778632,2596996162]
],
"crc32": 10383966
}
"#;

    const GOLDEN_EMPTY: &str = r#"{
"format_version": 1,
"writer": "sharddb 0.1.0",
"gzip_backend": "zlib-rs",
"sharding": {"@type": "neuroglancer_uint64_sharded_v1", "preshift_bits": 0, "hash": "identity", "minishard_bits": 0, "shard_bits": 0, "minishard_index_encoding": "raw", "data_encoding": "raw"},
"info_crc32": 0,
"checks": false,
"prefixes": false,
"value_alignment": 1,
"keys": 0,
"value_bytes": 0,
"shards": [
],
"crc32": 3235621350
}
"#;

    fn auxiliary(name: &str, bytes: u64, crc32: u32) -> AuxiliaryRecord {
        AuxiliaryRecord {
            name: name.to_string(),
            checksum: Checksum { bytes, crc32, digest: None, shard_index_len: 0 },
        }
    }

    fn golden_with(member: &str) -> String {
        resealed(&GOLDEN.replace("\"shards\"", &format!("{member},\n\"shards\"")))
    }

    fn golden_with_auxiliary() -> (Manifest, String) {
        let records = vec![auxiliary("minishards", 1280, 3_735_928_559), auxiliary("later_2", 0, 0)];
        let text = golden_with("\"auxiliary\": [\n[\"minishards\",1280,3735928559],\n[\"later_2\",0,0]\n]");
        (Manifest { auxiliary: records, ..golden() }, text)
    }

    fn golden() -> Manifest {
        let sharding = ShardingSpec::new(HashFunction::Identity, 0, 1, 5).unwrap();
        Manifest {
            sharding: sharding.with_data_encoding(Encoding::Gzip),
            nested: None,
            info_crc32: crc32fast::hash(b"123456789"),
            info_digest: None,
            layout: Layout { checks: true, preambles: false, value_alignment: ValueAlignment::Sixteen },
            keys: 3,
            value_bytes: 31,
            auxiliary: Vec::new(),
            shards: vec![
                ShardRecord {
                    number: ShardNumber(0),
                    bytes: 120,
                    keys: 2,
                    crc32: 4_023_233_417,
                    shard_index_crc32: 305_419_896,
                    digest: None,
                },
                ShardRecord {
                    number: ShardNumber(28),
                    bytes: 96,
                    keys: 1,
                    crc32: 1_432_778_632,
                    shard_index_crc32: 2_596_996_162,
                    digest: None,
                },
            ],
        }
    }

    fn empty() -> Manifest {
        Manifest {
            sharding: ShardingSpec::new(HashFunction::Identity, 0, 0, 0).unwrap(),
            nested: None,
            info_crc32: 0,
            info_digest: None,
            layout: Layout::default(),
            keys: 0,
            value_bytes: 0,
            auxiliary: Vec::new(),
            shards: Vec::new(),
        }
    }

    /// Returns `text` with a matching crc32.
    fn resealed(text: &str) -> String {
        let (head, _) = text.rsplit_once(CRC32).unwrap();
        format!("{head}\"crc32\": {}\n}}\n", crc32fast::hash(head.as_bytes()))
    }

    #[test]
    fn golden_text_both_ways() {
        let cases = [(golden(), GOLDEN.to_string()), (empty(), GOLDEN_EMPTY.to_string())];
        for (manifest, text) in
            cases.into_iter().chain([golden_with_auxiliary(), golden_nested(), golden_with_digests()])
        {
            assert_eq!(manifest.to_json_by("sharddb 0.1.0"), text);
            assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), manifest);
            assert_eq!(Manifest::parse(manifest.to_json().as_bytes()).unwrap(), manifest);
        }
    }

    /// Each change of the text, from the first string to the second, is an error that contains the third.
    #[track_caller]
    fn assert_corrupt(text: &str, cases: &[(&str, &str, &str)]) {
        for (from, to, named) in cases {
            let changed = resealed(&text.replacen(from, to, 1));
            assert_ne!(changed, text, "{from}");
            let error = Manifest::parse(changed.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{to}: {error}");
            assert!(error.to_string().contains(named), "{to}: {error}");
        }
    }

    const DIGESTS: [&str; 2] = ["99aa06d3014798d86001c324468d497f", "a96faf705af16834e6c632b61e964e1f"];

    /// The text of [`golden_with_auxiliary`] with the digests of `info`, an auxiliary file and the last shard.
    fn golden_with_digests() -> (Manifest, String) {
        let (mut manifest, text) = golden_with_auxiliary();
        let [one, other] = DIGESTS;
        let rows = format!("\"digests\": [\n\"{one}\",\n\"{other}\",\nnull,\nnull,\n\"{one}\"\n],\n");
        let text = resealed(&text.replace("\"crc32\"", &format!("{rows}\"crc32\"")));
        let [one, other] = DIGESTS.map(|digest| Some(digest.parse().unwrap()));
        (manifest.info_digest, manifest.auxiliary[0].checksum.digest, manifest.shards[1].digest) = (one, other, one);
        (manifest, text)
    }

    #[test]
    fn digests_are_optional_and_one_for_each_file() {
        let (manifest, text) = golden_with_digests();
        assert!(!manifest.has_all_digests() && !golden().has_all_digests());
        let complete = resealed(&text.replace("null", &format!("\"{}\"", DIGESTS[1])));
        assert!(Manifest::parse(complete.as_bytes()).unwrap().has_all_digests());
        let one = format!("\"{}\"", DIGESTS[0]);
        let cases = [
            (&*format!("null,\n{one}"), "null", "more or fewer"),
            ("null,\nnull", "null,\nnull,\nnull", "more or fewer"),
            (&one, "\"99aa06d3\"", "32 lowercase hexadecimal digits"),
            (&one, "7", "\"digests\" is malformed"),
            ("\"digests\": [", "\"digests\": 7, \"other\": [", "\"digests\" is malformed"),
        ];
        assert_corrupt(&text, &cases);
    }

    /// The text of [`golden`] with its shards in the directory of a scale; the member "nested" is written by hand.
    fn golden_nested() -> (Manifest, String) {
        let nested = NestedSharding::new("/scales/0", "8_8_8").unwrap();
        let version = GOLDEN.replace("\"format_version\": 1", "\"format_version\": 2");
        let member = "\"nested\": {\"sharding_at\": \"/scales/0\", \"shards_in\": \"8_8_8\"},\n\"info_crc32\"";
        let text = resealed(&version.replace("\"info_crc32\"", member));
        (Manifest { nested: Some(nested), ..golden() }, text)
    }

    #[test]
    fn a_nested_place_is_required_in_version_2_and_ignored_in_version_1() {
        let (manifest, text) = golden_nested();
        assert_eq!(manifest.shard_path(Path::new("gen"), ShardNumber(28)), Path::new("gen/8_8_8/1c.shard"));
        assert_eq!((manifest.pointer(), golden().pointer()), ("/scales/0", ""));
        assert_eq!(golden().shard_path(Path::new("gen"), ShardNumber(0)), Path::new("gen/00.shard"));
        let first = resealed(&text.replace("\"format_version\": 2", "\"format_version\": 1"));
        assert_eq!(Manifest::parse(first.as_bytes()).unwrap(), golden(), "as every unknown member");
        let cases = [
            ("\"nested\": {", "\"nests\": {", "\"nested\""),
            ("\"nested\": {", "\"nested\": 7, \"n\": {", "\"nested\""),
            ("\"nested\": {", "\"nested\": {}, \"n\": {", "shards_in"),
            ("\"8_8_8\"", "8", "shards_in"),
            ("\"8_8_8\"", "\"../x\"", "../x"),
            ("\"8_8_8\"", "\"/etc\"", "/etc"),
            ("\"8_8_8\"", "\"lease\"", "lease"),
            ("\"8_8_8\"", "\"spill/a\"", "spill"),
            ("\"/scales/0\"", "\"\"", "JSON pointer"),
            ("\"/scales/0\"", "\"scales/0\"", "JSON pointer"),
            ("\"shards\": [", "\"auxiliary\": [[\"8_8_8\",1,2]], \"shards\": [", "8_8_8"),
        ];
        assert_corrupt(&text, &cases);
    }

    /// Version 0.1.0 wrote a separate member for its only auxiliary file.
    #[test]
    fn minishard_pages_are_an_auxiliary_file() {
        let pages = "\"minishard_pages\": [148,2460534511]";
        let manifest = Manifest::parse(golden_with(pages).as_bytes()).unwrap();
        assert_eq!(manifest.auxiliary("minishard_pages"), Some(&auxiliary("minishard_pages", 148, 2_460_534_511)));
        assert_eq!(manifest.auxiliary("minishards"), None);
        let rows: Vec<String> = (0..65).map(|number| format!("[\"a{number}\",1,2]")).collect();
        let text = golden_with(&format!("\"auxiliary\": [{}]", rows.join(",")));
        assert!(Manifest::parse(text.as_bytes()).unwrap_err().message().contains("at most 64"));
        let twice = golden_with(&format!("{pages},\n\"auxiliary\": [[\"minishard_pages\",1,2]]"));
        assert_eq!(Manifest::parse(twice.as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn finds_the_record_of_a_shard() {
        let manifest = golden();
        assert_eq!(manifest.shard(ShardNumber(28)).unwrap().bytes, 96);
        assert_eq!(manifest.shard(ShardNumber(1)), None);
        assert_eq!(empty().shard(ShardNumber(0)), None);
    }

    #[test]
    fn knows_its_info() {
        assert!(golden().check_info(b"123456789").is_ok());
        assert_eq!(golden().check_info(b"123456780").unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(golden().check_sharding(&golden().sharding).is_ok());
        assert_eq!(golden().check_sharding(&empty().sharding).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn keeps_the_largest_numbers_exact() {
        let mut manifest = golden();
        manifest.sharding = ShardingSpec::new(HashFunction::Identity, 0, 0, 64).unwrap();
        let [first, second] = &mut manifest.shards[..] else { panic!() };
        (first.keys, second.keys) = (1, u64::MAX - 1);
        (second.number, second.bytes, second.crc32) = (ShardNumber(u64::MAX), (1 << 62) - 999, u32::MAX);
        (manifest.keys, manifest.value_bytes) = (u64::MAX, (1 << 53) + 1);
        assert_eq!(Manifest::parse(manifest.to_json().as_bytes()).unwrap(), manifest);
    }

    #[test]
    fn cut_short_anywhere_is_corrupt() {
        for len in 0..GOLDEN.len() {
            assert_eq!(
                Manifest::parse(&GOLDEN.as_bytes()[..len]).unwrap_err().kind(),
                ErrorKind::Corrupt,
                "{len} bytes"
            );
        }
    }

    #[test]
    fn any_bit_flipped_or_byte_more_is_corrupt() {
        let mut bytes = GOLDEN.as_bytes().to_vec();
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Manifest::parse(&bytes).unwrap_err().kind(), ErrorKind::Corrupt, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Manifest::parse(&bytes).is_ok());
        bytes.push(b'\n');
        assert_eq!(Manifest::parse(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_later_version_is_unsupported_by_both_numbers() {
        let text = resealed(&GOLDEN.replace("\"format_version\": 1", "\"format_version\": 29"));
        let error = Manifest::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("version 2, found 29"), "{error}");
        let text = resealed(&GOLDEN.replace("\"keys\"", "\"format\"").replace("n\": 1", "n\": 3"));
        assert_eq!(
            Manifest::parse(text.as_bytes()).unwrap_err().kind(),
            ErrorKind::Unsupported,
            "whatever else it says"
        );
    }

    #[test]
    fn unknown_members_are_ignored() {
        let later = "\"later\": {\"crc32\": [1e400]},\n\"later\": null,\n\"keys\"";
        let text = resealed(&GOLDEN.replace("\"keys\"", later).replace("0.1.0", "0.9.0"));
        assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), golden());
    }

    /// One case per kind of invalid manifest with a matching crc32, with a text that the message must contain.
    #[test]
    fn refuses_by_name() {
        let cases = [
            ("{\n\"format_version\": 1", "[{}], {\n\"format_version\": 1", "JSON"),
            ("\"format_version\": 1", "\"format_version\": 0", "format_version"),
            ("\"format_version\": 1", "\"format_version\": 1.0", "format_version"),
            ("\"format_version\": 1,\n", "", "format_version"),
            ("sharded_v1", "sharded_v2", "sharded_v2"),
            ("\"shard_bits\": 5", "\"shard_bits\": 65", "shard_bits"),
            ("\"info_crc32\": 3421780262", "\"info_crc32\": 4294967296", "info_crc32"),
            ("\"info_crc32\": 3421780262", "\"info_crc32\": -1", "info_crc32"),
            ("\"checks\": true", "\"checks\": 1", "checks"),
            ("\"checks\": true,\n", "", "checks"),
            ("\"prefixes\": false", "\"prefixes\": null", "prefixes"),
            ("\"value_alignment\": 16", "\"value_alignment\": 32", "found 32"),
            ("\"keys\": 3", "\"keys\": 3.0", "keys"),
            ("\"keys\": 3", "\"keys\": \"3\"", "keys"),
            ("\"keys\": 3", "\"keys\": 3, \"keys\": 3", "more than once"),
            ("\"keys\": 3", "\"keys\": 4", "expected 4 keys"),
            ("\"value_bytes\": 31", "\"value_bytes\": 18446744073709551616", "value_bytes"),
            ("\"value_bytes\": 31", "\"value_bytes\": 1e1", "value_bytes"),
            ("[0,120,2,", "[0,120,18446744073709551615,", "more than 2^64"),
            ("[0,120,2,", "[0,18446744073709551615,2,", "2^62"),
            ("[0,120,2,", "[0,120,2.0,", "shards"),
            ("[0,120,2,", "[0,18446744073709551616,2,", "shards"),
            ("[0,120,2,4023233417", "[0,120,2,4294967296", "shards"),
            ("2596996162]", "2596996162,0]", "shards"),
            ("[28,96,1,1432778632,2596996162]", "[28,96,1,1432778632]", "shards"),
            ("[28,", "[32,", "up to 31"),
            ("[28,", "[0,", "ascending"),
            ("[0,120", "[29,120", "ascending"),
            ("\"shards\": [", "\"shards\": {}, \"rows\": [", "shards"),
            ("\"shards\": [", "\"minishard_pages\": 7, \"shards\": [", "minishard_pages"),
            ("\"shards\": [", "\"minishard_pages\": [1,4294967296], \"shards\": [", "minishard_pages"),
            ("\"shards\": [", "\"auxiliary\": {}, \"shards\": [", "auxiliary"),
            ("\"shards\": [", "\"auxiliary\": [[\"a\",1]], \"shards\": [", "auxiliary"),
            ("\"shards\": [", "\"auxiliary\": [[\"\",1,2]], \"shards\": [", "name"),
            ("\"shards\": [", "\"auxiliary\": [[\"../a\",1,2]], \"shards\": [", "../a"),
            ("\"shards\": [", "\"auxiliary\": [[\"A\",1,2]], \"shards\": [", "name"),
            ("\"shards\": [", "\"auxiliary\": [[\"info\",1,2]], \"shards\": [", "info"),
            ("\"shards\": [", "\"auxiliary\": [[\"lease\",1,2]], \"shards\": [", "lease"),
            ("\"shards\": [", "\"auxiliary\": [[\"a\",1,2],[\"a\",1,2]], \"shards\": [", "again"),
        ];
        for (from, to, named) in cases {
            let text = resealed(&GOLDEN.replacen(from, to, 1));
            assert_ne!(text, GOLDEN, "{from}");
            let error = Manifest::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{to}: {error}");
            assert!(error.to_string().contains(named), "{to}: {error}");
        }
    }
}
