//! The manifest of a generation: what its files must be. Text to type and back, no I/O.
//!
//! ```text
//! {
//! "format_version": 1,                     later major versions are refused
//! "writer": "sharddb 0.1.0",
//! "gzip_backend": "zlib-rs",               same pairs, options, writer and backend: the same bytes
//! "sharding": {"@type": ..},               equal to the one in `info`
//! "info_crc32": 305419896,                 of the file `info`
//! "checks": true,                          the layout
//! "prefixes": false,
//! "value_alignment": 1,
//! "keys": 3,
//! "value_bytes": 31,                       as stored: encoded, without prefixes, padding and indexes
//! "shards": [
//! [0,120,2,4023233417,305419896],          number, bytes of the file, keys, crc32 of the file, crc32 of its shard index
//! [12,96,1,1432778632,2596996162]
//! ],
//! "crc32": 2923529841                      of all bytes before the last `"crc32"` of the file
//! }
//! ```
//!
//! The last two lines are exact, so that no byte of the file can change unnoticed, in any version of the format.
//! A script checks it with `head, tail = text.rsplit(b'"crc32"', 1)` and
//! `tail == b': %d\n}\n' % zlib.crc32(head)`.
//!
//! All numbers are integers up to `2^64 - 1`. There is no date and no generation number: what was built twice from
//! the same is equal. Members that this version does not know are ignored.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::layout::{Layout, ValueAlignment};
use crate::spec::{ShardNumber, ShardingSpec};

/// The name of the manifest's file in its generation.
pub(crate) const FILE_NAME: &str = "manifest.json";

/// The library that compresses; its output is part of the promise "same pairs, same bytes".
pub(crate) const GZIP_BACKEND: &str = "zlib-rs";

/// The major version of the manifest that this build writes, and the latest that it reads.
const FORMAT_VERSION: u64 = 1;

const WRITER: &str = concat!("sharddb ", env!("CARGO_PKG_VERSION"));

/// The name of the last member, as it stands in the text.
const CRC32: &str = "\"crc32\"";

/// What the files of one generation must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// A copy of the member "sharding" of `info`.
    pub(crate) sharding: ShardingSpec,
    /// The crc32 of the file `info`.
    pub(crate) info_crc32: u32,
    pub(crate) layout: Layout,
    /// The number of keys in all shards.
    pub(crate) keys: u64,
    /// The bytes of all values as stored: encoded; prefixes, padding and indexes not counted.
    pub(crate) value_bytes: u64,
    /// The shards that have a file, ascending.
    pub(crate) shards: Vec<ShardRecord>,
}

/// What the file of one shard must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardRecord {
    pub(crate) number: ShardNumber,
    /// The length of the file.
    pub(crate) bytes: u64,
    pub(crate) keys: u64,
    /// The crc32 of the file.
    pub(crate) crc32: u32,
    /// The crc32 of the shard index, the first bytes of the file.
    pub(crate) shard_index_crc32: u32,
}

impl Manifest {
    /// The text of the manifest: the same for equal manifests.
    pub(crate) fn to_json(&self) -> String {
        self.to_json_by(WRITER)
    }

    fn to_json_by(&self, writer: &str) -> String {
        let Layout { checks, prefixes, value_alignment } = self.layout;
        let mut text = format!(
            "{{\n\"format_version\": {FORMAT_VERSION},\n\"writer\": {},\n\"gzip_backend\": {},\n\"sharding\": {},\n\
             \"info_crc32\": {},\n\"checks\": {checks},\n\"prefixes\": {prefixes},\n\"value_alignment\": {},\n\
             \"keys\": {},\n\"value_bytes\": {},\n\"shards\": [\n",
            json::quote(writer),
            json::quote(GZIP_BACKEND),
            self.sharding.to_json(),
            self.info_crc32,
            value_alignment.get(),
            self.keys,
            self.value_bytes,
        );
        let rows: Vec<String> = self.shards.iter().map(ShardRecord::to_row).collect();
        text += &rows.join(",\n");
        text += if rows.is_empty() { "],\n" } else { "\n],\n" };
        let last = last_member(text.as_bytes());
        text + &last
    }

    /// Parses the text of a manifest.
    ///
    /// Errors: `Corrupt` if its own crc32 does not match or a member is missing, malformed or at odds with another;
    /// `Unsupported` if it is of a later major version.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Manifest> {
        check_crc32(bytes)?;
        let root = json::parse(bytes).map_err(corrupt)?;
        let Some(members) = json::members(root) else {
            return Err(Error::corrupt("expected the manifest to be a JSON object, found something else"));
        };
        let members = Members(members);
        check_version(members.required("format_version")?)?;
        let manifest = Manifest {
            sharding: ShardingSpec::from_value(members.required("sharding")?).map_err(corrupt)?,
            info_crc32: members.required("info_crc32")?,
            layout: Layout {
                checks: members.required("checks")?,
                prefixes: members.required("prefixes")?,
                value_alignment: ValueAlignment::new(members.required("value_alignment")?).map_err(corrupt)?,
            },
            keys: members.required("keys")?,
            value_bytes: members.required("value_bytes")?,
            shards: members.required::<Vec<Row>>("shards")?.into_iter().map(ShardRecord::from_row).collect(),
        };
        manifest.check_shards()?;
        Ok(manifest)
    }

    /// The record of a shard; `None` if the shard is empty and has no file. Costs a binary search.
    pub(crate) fn shard(&self, number: ShardNumber) -> Option<&ShardRecord> {
        let at = self.shards.binary_search_by_key(&number, |shard| shard.number).ok()?;
        self.shards.get(at)
    }

    /// Errors: `Corrupt` unless these are the bytes of the `info` that the manifest was written for.
    pub(crate) fn check_info(&self, info: &[u8]) -> Result<()> {
        let found = crc32fast::hash(info);
        if found != self.info_crc32 {
            let expected = self.info_crc32;
            return Err(Error::corrupt(format!(
                "expected the info that the manifest was written for, with the crc32 {expected}, found {found}"
            )));
        }
        Ok(())
    }

    /// Errors: `Corrupt` unless this sharding specification, found in `info`, is the manifest's.
    pub(crate) fn check_sharding(&self, found: &ShardingSpec) -> Result<()> {
        if *found != self.sharding {
            let expected = self.sharding;
            return Err(Error::corrupt(format!("expected the manifest's \"sharding\" {expected}, found {found}")));
        }
        Ok(())
    }

    fn check_shards(&self) -> Result<()> {
        let mut keys = Some(0u64);
        let mut before = None;
        for shard in &self.shards {
            if shard.number > self.sharding.max_shard() {
                let max = self.sharding.max_shard().0;
                let message = format!("expected shard numbers up to {max}, found {}", shard.number.0);
                return Err(Error::corrupt(message).at_shard(shard.number));
            }
            if before.replace(shard.number) >= Some(shard.number) {
                let message = format!("expected the manifest's shards in ascending order, found {}", shard.number.0);
                return Err(Error::corrupt(message + " after its like or a greater one").at_shard(shard.number));
            }
            keys = keys.and_then(|keys| keys.checked_add(shard.keys));
        }
        if keys != Some(self.keys) {
            let found = keys.map_or("more than 2^64".to_string(), |keys| keys.to_string());
            return Err(Error::corrupt(format!("expected {} keys in the manifest's shards, found {found}", self.keys)));
        }
        Ok(())
    }
}

/// A shard as a row of the text.
type Row = (u64, u64, u64, u32, u32);

impl ShardRecord {
    fn to_row(&self) -> String {
        let ShardRecord { number: ShardNumber(number), bytes, keys, crc32, shard_index_crc32 } = self;
        format!("[{number},{bytes},{keys},{crc32},{shard_index_crc32}]")
    }

    fn from_row((number, bytes, keys, crc32, shard_index_crc32): Row) -> ShardRecord {
        ShardRecord { number: ShardNumber(number), bytes, keys, crc32, shard_index_crc32 }
    }
}

/// The members of the manifest, in order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    fn required<T: Deserialize<'a>>(&self, name: &str) -> Result<T> {
        let Some(value) = json::member(&self.0, name).map_err(corrupt)? else {
            return Err(Error::corrupt(format!("expected a member \"{name}\" in the manifest, found none")));
        };
        serde_json::from_str(value.get())
            .map_err(|error| Error::corrupt(format!("the manifest's member \"{name}\" is malformed: {error}")))
    }
}

/// The text from the last member on, given the bytes before it.
fn last_member(head: &[u8]) -> String {
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
        let message = format!("expected the manifest to end with {expected:?} by the bytes before it, found {found:?}");
        return Err(Error::corrupt(message));
    }
    Ok(())
}

fn check_version(found: u64) -> Result<()> {
    match found {
        1..=FORMAT_VERSION => Ok(()),
        0 => Err(Error::corrupt("expected a \"format_version\" from 1, found 0")),
        later => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "this build reads manifests up to format version {FORMAT_VERSION}, found {later}: \
                 use a later version of ShardDb"
            ),
        )),
    }
}

/// Whatever is wrong inside of a manifest, it is the manifest that is corrupt.
fn corrupt(error: Error) -> Error {
    Error::corrupt(format!("in the manifest: {}", error.message()))
}
