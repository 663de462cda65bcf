//! One thing that verification found: which rule, how bad, where.

use std::fmt;
use std::path::Path;

use crate::error::{Error, ErrorLocation};

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Legal, and read right by ShardDb, but another reader may stumble, or somebody changed what nobody reads.
    Warning,
    /// Some read fails or may give something wrong.
    Error,
}

impl Severity {
    /// The severity as one lowercase word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The kinds with their names and severities, in one list.
macro_rules! finding_kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident, $name:literal, $severity:ident;)+) => {
        /// The rule that a [`Finding`] is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum FindingKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl FindingKind {
            /// All kinds, those of the directory first, those of the data last.
            pub const ALL: &[FindingKind] = &[$(FindingKind::$kind,)+];

            /// The stable name of the rule, for machines.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self {
                    $(Self::$kind => Severity::$severity,)+
                }
            }
        }
    };
}

finding_kinds! {
    /// `info` is no longer the one that the manifest was written for.
    InfoMismatch, "info-mismatch", Error;
    /// `manifest.json` is no longer the one that was opened.
    ManifestMismatch, "manifest-mismatch", Error;
    /// A data set of ours has no manifest, so changed and missing files may go unnoticed.
    NoManifest, "no-manifest", Warning;
    /// The file `lease` is not empty, or is missing from a store: readers cannot hold the generation.
    BadLease, "bad-lease", Warning;
    /// An auxiliary file is not the one that the manifest states; answers are the same, lookups may take longer.
    AuxiliaryFile, "auxiliary-file", Warning;
    /// A shard that the manifest lists, or that was there at open, has no file.
    MissingShard, "missing-shard", Error;
    /// A file is named as a shard that the manifest does not list, or that was not there at open.
    UnlistedShard, "unlisted-shard", Error;
    /// A shard's file cannot be opened or read.
    UnreadableShard, "unreadable-shard", Error;
    /// A shard's file is not as long as the manifest says.
    WrongLength, "wrong-length", Error;
    /// A shard has a `.shard` file and the obsolete `.index` or `.data` besides, which are not read.
    ShadowedPair, "shadowed-pair", Warning;
    /// A shard is stored as the obsolete pair of `.index` and `.data`, which few readers know.
    ObsoletePair, "obsolete-pair", Note;
    /// A `.data` file of the obsolete pair has no `.index`; nobody reads it.
    LoneDataFile, "lone-data-file", Warning;
    /// A file looks like a shard, but its name is not one that the specification gives; nobody reads it.
    MisnamedShard, "misnamed-shard", Note;
    /// A generation of ours holds a file that is none of its own.
    UnknownFile, "unknown-file", Note;
    /// A shard's file ends before its shard index does.
    ShortShardIndex, "short-shard-index", Error;
    /// The index of a shard of an array is cut short, does not decode, or does not have its checksum.
    BadShardIndex, "bad-shard-index", Error;
    /// An entry of the shard index is not in order or leads out of the file.
    BadShardIndexEntry, "bad-shard-index-entry", Error;
    /// The entry of an empty minishard lies outside of the file, which some readers refuse.
    OddEmptyEntry, "odd-empty-entry", Warning;

    /// The shard index does not have the CRC-32 that the manifest states.
    ShardIndexCrc, "shard-index-crc", Error;
    /// A minishard index does not decode, or its length is not a multiple of 24.
    BadMinishardIndex, "bad-minishard-index", Error;
    /// A minishard index does not match its check.
    IndexCheck, "index-check", Error;
    /// A minishard index or a value is larger than the caps of [`OpenOptions`](crate::OpenOptions) allow, or values share so
    /// many bytes that not all are looked at.
    OverCap, "over-cap", Error;
    /// The ids of a minishard do not ascend.
    UnorderedIds, "unordered-ids", Warning;
    /// An id stands more than once in a minishard; lookups find the first.
    DuplicateId, "duplicate-id", Error;
    /// A key stands where its hash does not lead, so lookups do not find it.
    MisplacedKey, "misplaced-key", Error;
    /// All keys of a minishard hash to another one of the shard: its entry stands in the wrong slot.
    WrongSlot, "wrong-slot", Error;
    /// A value's range is not in order, leads out of the file or into the shard index.
    BadValueRange, "bad-value-range", Error;
    /// There are not as many keys or bytes as the manifest says.
    WrongCount, "wrong-count", Error;
    /// Two values share bytes; some readers keep one of two keys with the same range.
    Overlap, "overlap", Warning;
    /// A value or a minishard index lies over a minishard index or its checks.
    IndexOverlap, "index-overlap", Error;
    /// Two empty values lie at the same place; some readers keep one of two keys with the same range.
    SharedEmptyRange, "shared-empty-range", Warning;
    /// A shard of others has bytes that no index names: a prefix, padding, or left over.
    UnnamedBytes, "unnamed-bytes", Note;
    /// A shard of ours has bytes that no index names and our writer does not put there.
    UnexpectedGap, "unexpected-gap", Warning;
    /// A value does not begin at a multiple of the data set's value alignment.
    MisalignedValue, "misaligned-value", Error;

    /// A shard's file does not have the CRC-32 that the manifest states.
    FileCrc, "file-crc", Error;
    /// A stored value does not match its check.
    ValueCheck, "value-check", Error;
    /// A stored value does not decode.
    BadValue, "bad-value", Error;
    /// The bytes before a value do not match their check.
    PrefixCheck, "prefix-check", Error;
    /// Padding in a shard of ours is not zero.
    NonzeroPadding, "nonzero-padding", Warning;
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that [`Snapshot::verify`](crate::Snapshot::verify) found, or that [`Salvage`](crate::Salvage) lost.
///
/// `Display` is one line: severity, message, place, rule.
#[derive(Debug)]
pub struct Finding {
    kind: FindingKind,
    error: Error,
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, error: Error) -> Finding {
        Finding { kind, error }
    }

    /// The rule.
    pub fn kind(&self) -> FindingKind {
        self.kind
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }

    /// What was expected and found, without the place.
    pub fn message(&self) -> &str {
        self.error.message()
    }

    /// The file or directory.
    pub fn path(&self) -> Option<&Path> {
        self.error.path()
    }

    /// The key.
    pub fn key(&self) -> Option<u64> {
        self.error.key()
    }

    /// Shard, minishard and byte offset, as far as they are known.
    pub fn location(&self) -> ErrorLocation {
        self.error.location()
    }

    /// All of it as an error, with its source if the operating system had a say.
    pub fn error(&self) -> &Error {
        &self.error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.severity(), self.error, self.kind)
    }
}
