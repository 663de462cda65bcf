//! The receipt of a part.

use std::fmt;
use std::str::FromStr;

use super::members::{Kind, Members, VERSION};
use crate::cluster::parts_dir::PartsDir;
use crate::error::{Error, Result};
use crate::format::digest::Digest;
use crate::format::json;
use crate::format::layout::{Layout, ValueAlignment};
use crate::format::manifest::{GZIP_BACKEND, Row, ShardRecord, WRITER, digest_row, set_digests};

const KIND: Kind = Kind {
    noun: "the receipt of a part",
    tag: "sharddb_part",
    names: &[
        "plan",
        "spills",
        "part",
        "writer",
        "on_duplicate",
        "checks",
        "prefixes",
        "value_alignment",
        "value_bytes",
        "dropped",
        "shards",
        "digests",
        "digest",
    ],
    most: 256 << 20,
};

/// The receipt of a part, as returned by [`SpillSet::build_part`](super::SpillSet::build_part): names one directory and
/// states its shards.
///
/// The driver of a build passes the receipts of all parts to [`SpillSet::publish`](super::SpillSet::publish). `Display`
/// and `FromStr` use its JSON text, one line. A digest of the text detects a change of it.
///
/// ```no_run
/// use sharddb::cluster::PartReceipt;
///
/// let receipt: PartReceipt = std::fs::read_to_string("part-3.receipt")?.parse()?;
/// println!("part {} has {} keys in {}", receipt.part(), receipt.keys(), receipt.directory_name());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartReceipt {
    pub(super) content: PartContent,
    pub(super) digest: Digest, // INVARIANT: that of `content`
}

/// What a part consists of, and what decided its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartContent {
    /// The digest of the plan.
    pub(super) plan: Digest,
    /// The digest of the receipts of all spills.
    pub(super) spills: Digest,
    pub(super) part: u64,
    pub(super) options: PartOptions,
    pub(super) value_bytes: u64,
    pub(super) dropped: u64,
    /// In ascending order.
    pub(super) shards: Vec<ShardRecord>,
}

/// The options that decide the bytes of a part besides its plan; equal for all parts of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartOptions {
    /// The program that wrote the part, and its compression library.
    pub(super) writer: String,
    pub(super) on_duplicate: String,
    pub(super) layout: Layout,
}

impl PartOptions {
    pub(super) fn new(on_duplicate: &str, layout: Layout) -> PartOptions {
        PartOptions { writer: PartOptions::this_writer(), on_duplicate: on_duplicate.to_string(), layout }
    }

    /// Returns the name and version of this program and its compression library.
    pub(super) fn this_writer() -> String {
        format!("{WRITER}, {GZIP_BACKEND}")
    }
}

impl fmt::Display for PartOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartOptions { writer, on_duplicate, layout } = self;
        let Layout { checks, preambles, value_alignment, .. } = layout;
        let (writer, on_duplicate, alignment) = (json::quote(writer), json::quote(on_duplicate), value_alignment.get());
        write!(
            f,
            "\"writer\":{writer},\"on_duplicate\":{on_duplicate},\"checks\":{checks},\"prefixes\":{preambles},\
             \"value_alignment\":{alignment}"
        )
    }
}

impl PartReceipt {
    pub(super) fn new(content: PartContent) -> PartReceipt {
        let digest = Digest::of(content.to_string().as_bytes());
        PartReceipt { content, digest }
    }

    /// Returns the number of the part.
    pub fn part(&self) -> u64 {
        self.content.part
    }

    /// Returns the name of the directory of the shards, which contains a digest of the receipt.
    pub fn directory_name(&self) -> String {
        PartsDir::part_name(self.content.part, &self.digest.to_string())
    }

    /// Returns the number of keys.
    pub fn keys(&self) -> u64 {
        self.content.shards.iter().map(|shard| shard.keys).fold(0, u64::saturating_add)
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> u64 {
        self.content.shards.len() as u64
    }

    /// Returns the bytes of all shards.
    pub fn file_bytes(&self) -> u64 {
        self.content.shards.iter().map(|shard| shard.bytes).fold(0, u64::saturating_add)
    }

    /// Returns the number of pairs that were dropped because of a duplicate key.
    pub fn dropped(&self) -> u64 {
        self.content.dropped
    }
}

/// Returns the shards of a part in ascending order.
pub fn shard_records(receipt: &PartReceipt) -> &[ShardRecord] {
    &receipt.content.shards
}

/// Writes the text of a receipt up to its digest.
impl fmt::Display for PartContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartContent { plan, spills, part, options, value_bytes, dropped, shards } = self;
        let rows: Vec<String> = shards.iter().copied().map(ShardRecord::to_row).collect();
        let digests: Vec<String> = shards.iter().map(|shard| digest_row(shard.digest)).collect();
        write!(
            f,
            "{{\"{}\":{VERSION},\"plan\":\"{plan}\",\"spills\":\"{spills}\",\"part\":{part},{options},\
             \"value_bytes\":{value_bytes},\"dropped\":{dropped},\"shards\":[{}],\"digests\":[{}]",
            KIND.tag,
            rows.join(","),
            digests.join(",")
        )
    }
}

impl fmt::Display for PartReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},\"digest\":\"{}\"}}", self.content, self.digest)
    }
}

impl FromStr for PartReceipt {
    type Err = Error;

    /// Parses the JSON text of a receipt.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is anything else, also if its text was changed; `TooLarge`; `Unsupported` for a later
    /// version.
    fn from_str(text: &str) -> Result<PartReceipt> {
        let members = Members::parse(text, &KIND)?;
        let alignment = ValueAlignment::new(members.required("value_alignment")?)
            .map_err(|error| members.malformed("value_alignment", error.message()))?;
        let layout = Layout::new(members.required("checks")?, members.required("prefixes")?, alignment);
        let mut shards: Vec<_> =
            members.required::<Vec<Row>>("shards")?.into_iter().map(ShardRecord::from_row).collect();
        set_digests(shards.iter_mut().map(|shard| &mut shard.digest), members.required("digests")?)
            .map_err(|error| members.malformed("digests", error.message()))?;
        let receipt = PartReceipt::new(PartContent {
            plan: members.parsed("plan")?,
            spills: members.parsed("spills")?,
            part: members.required("part")?,
            options: PartOptions {
                writer: members.required("writer")?,
                on_duplicate: members.required("on_duplicate")?,
                layout,
            },
            value_bytes: members.required("value_bytes")?,
            dropped: members.required("dropped")?,
            shards,
        });
        let stated: Digest = members.parsed("digest")?;
        if stated != receipt.digest {
            let message = format!("expected {}, found that its text was changed: its digest is {stated}", KIND.noun);
            return Err(Error::invalid_input(message));
        }
        Ok(receipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::ids::shard_number;

    fn receipt() -> PartReceipt {
        let digest = Some(Digest::of(b"shard"));
        let shard =
            ShardRecord { number: shard_number(5), bytes: 120, keys: 2, crc32: 7, shard_index_crc32: 8, digest };
        PartReceipt::new(PartContent {
            plan: Digest::of(b"plan"),
            spills: Digest::of(b"spills"),
            part: 3,
            options: PartOptions::new("error", Layout::new(true, false, ValueAlignment::One)),
            value_bytes: 31,
            dropped: 1,
            shards: vec![shard, ShardRecord { number: shard_number(6), ..shard }],
        })
    }

    #[test]
    fn parses_what_it_displays() {
        let receipt = receipt();
        let read: PartReceipt = receipt.to_string().parse().unwrap();
        assert_eq!(read, receipt);
        assert_eq!((read.part(), read.keys(), read.shards(), read.file_bytes(), read.dropped()), (3, 4, 2, 240, 1));
        assert_eq!(read.directory_name(), format!("part-3-{}", receipt.digest));
        assert!(!receipt.to_string().contains('\n'));
    }

    /// Shards with equal lengths and checksums are not taken for each other.
    #[test]
    fn shards_with_another_digest_are_another_part() {
        let one = receipt();
        let mut content = one.content.clone();
        content.shards[0].digest = Some(Digest::of(b"other bytes with the same CRC-32"));
        assert_ne!(PartReceipt::new(content).directory_name(), one.directory_name());
    }

    /// Every change of a byte is noticed, as one of the syntax or by the digest.
    #[test]
    fn a_changed_text_is_an_error() {
        let text = receipt().to_string();
        for at in 0..text.len() {
            for byte in [b'0', b'9', b'"', b'a', b'{', b','] {
                let mut changed = text.clone().into_bytes();
                if std::mem::replace(&mut changed[at], byte) != byte {
                    let changed = String::from_utf8(changed).unwrap();
                    let error = changed.parse::<PartReceipt>().unwrap_err();
                    assert!(
                        [ErrorKind::InvalidInput, ErrorKind::Unsupported].contains(&error.kind()),
                        "{changed}: {error}"
                    );
                }
            }
        }
    }
}
