//! A finding: a rule that a data set breaks, its severity, and the place.

use std::fmt;
use std::path::Path;

use crate::error::{Error, ErrorLocation};

/// The severity of a [`Finding`], ascending.
///
/// ```
/// use sharddb::verify::{FindingKind, Severity};
///
/// assert_eq!(FindingKind::ValueCheck.severity(), Severity::Error);
/// assert!(Severity::Note < Severity::Warning);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Information; nothing is wrong.
    Note,
    /// ShardDb reads the data correctly, but another reader may not, or bytes that no reader uses have changed.
    Warning,
    /// A read may fail or return wrong data.
    Error,
}

impl Severity {
    /// Returns the severity as one lowercase word.
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
        ///
        /// ```
        /// use sharddb::verify::FindingKind;
        ///
        /// for kind in FindingKind::ALL {
        ///     println!("{kind}: {}", kind.severity());
        /// }
        /// assert_eq!(FindingKind::WrongLength.as_str(), "wrong-length");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum FindingKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl FindingKind {
            /// All kinds: first those of the directory, last those of the data.
            pub const ALL: &[FindingKind] = &[$(FindingKind::$kind,)+];

            /// Returns the stable name of the rule, for programs.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// Returns the severity of the rule.
            pub fn severity(self) -> Severity {
                match self {
                    $(Self::$kind => Severity::$severity,)+
                }
            }
        }
    };
}

finding_kinds! {
    /// `info` does not have the CRC-32 that the manifest states.
    InfoMismatch, "info-mismatch", Error;
    /// `manifest.json` is no longer the one that was opened.
    ManifestMismatch, "manifest-mismatch", Error;
    /// A native data set, written by ShardDb, has no manifest, so that changed and missing files may go unnoticed.
    NoManifest, "no-manifest", Warning;
    /// The file `lease` is not an empty regular file, or is missing from a generation of a store, so that readers
    /// cannot lock it.
    BadLease, "bad-lease", Warning;
    /// An auxiliary file does not have the length, CRC-32 and digest that the manifest states. Results are the same, but
    /// lookups may take longer.
    AuxiliaryFile, "auxiliary-file", Warning;
    /// The minishard table, whose checksums match, states another minishard index than the shard index: lookups return
    /// errors, or miss keys.
    WrongMinishardTable, "wrong-minishard-table", Error;
    /// The key file is intact, but does not have exactly the keys of the shards: ordered reads return wrong results.
    KeyFile, "key-file", Error;
    /// A shard that the manifest lists, or that existed at open, has no file.
    MissingShard, "missing-shard", Error;
    /// A file has the name of a shard that the manifest does not list, or that did not exist at open. It is not read.
    UnlistedShard, "unlisted-shard", Error;
    /// `info`, the manifest or the attributes of a bcolz array cannot be opened or read.
    UnreadableFile, "unreadable-file", Error;
    /// A shard's file cannot be opened or read.
    UnreadableShard, "unreadable-shard", Error;
    /// A shard's file does not have the length that the manifest states.
    WrongLength, "wrong-length", Error;
    /// A foreign data set has fewer shard files than its specification has shards. A shard without a file has no keys, so
    /// a lost file is not an error.
    AbsentShards, "absent-shards", Note;
    /// A shard has a `.shard` file and also an obsolete `.index` or `.data` file, which is not read.
    ShadowedPair, "shadowed-pair", Warning;
    /// A shard is stored as the obsolete pair of `.index` and `.data`, which few readers support.
    ObsoletePair, "obsolete-pair", Note;
    /// A `.data` file of the obsolete pair has no `.index` file. No reader reads it.
    LoneDataFile, "lone-data-file", Warning;
    /// A file has the extension of a shard, but not a name that the specification allows. No reader reads it.
    MisnamedShard, "misnamed-shard", Note;
    /// A generation with a manifest has a foreign file.
    UnknownFile, "unknown-file", Note;
    /// A shard's file ends before its shard index does.
    ShortShardIndex, "short-shard-index", Error;
    /// In a Zarr array: the index of a shard is truncated, does not decode, or does not match its checksum.
    BadShardIndex, "bad-shard-index", Error;
    /// A shard index entry has a start greater than its end, or a range that is not inside the file.
    BadShardIndexEntry, "bad-shard-index-entry", Error;
    /// The entry of an empty minishard is outside of the file, which some readers refuse.
    OddEmptyEntry, "odd-empty-entry", Warning;

    /// The shard index does not have the CRC-32 that the manifest states.
    ShardIndexCrc, "shard-index-crc", Error;
    /// A minishard index does not decode, or its length is not a multiple of 24.
    BadMinishardIndex, "bad-minishard-index", Error;
    /// A minishard index does not match its check.
    IndexCheck, "index-check", Error;
    /// A minishard index or a value exceeds a cap of [`OpenOptions`](crate::OpenOptions); or the values of a shard
    /// overlap and add up to more than 64 times the file length, and some were not read; or a shard has more keys and
    /// minishards than its file length + 2^19, and some were not read.
    OverCap, "over-cap", Error;
    /// The ids of a minishard do not ascend.
    UnorderedIds, "unordered-ids", Warning;
    /// An id occurs more than once in a minishard. Lookups find the first.
    DuplicateId, "duplicate-id", Error;
    /// A key is in a minishard to which its hash does not lead, so that lookups do not find it.
    MisplacedKey, "misplaced-key", Error;
    /// All keys of a shard hash to one other shard: its file has the name of another shard.
    MisplacedShard, "misplaced-shard", Error;
    /// Many keys of a shard are where their hash does not lead, and match another hash or are most of its keys: the
    /// specification is not the one that the shard was written with.
    WrongSpecification, "wrong-specification", Error;
    /// All keys of a minishard hash to another one of the shard: its shard index entry is in the wrong slot.
    WrongSlot, "wrong-slot", Error;
    /// A value's range overflows or is not inside the file.
    BadValueRange, "bad-value-range", Error;
    /// The number of keys, or the bytes of all values, differ from the manifest.
    WrongCount, "wrong-count", Error;
    /// Two values share bytes; some readers keep one of two keys with the same range.
    Overlap, "overlap", Warning;
    /// A value or a minishard index overlaps a minishard index or its checks.
    IndexOverlap, "index-overlap", Error;
    /// Two empty values have the same offset; some readers keep one of two keys with the same range.
    SharedEmptyRange, "shared-empty-range", Warning;
    /// A foreign shard has bytes that no index names: preambles, padding, or unused bytes.
    UnnamedBytes, "unnamed-bytes", Note;
    /// A native shard has bytes that no index names and that are neither padding nor a preamble.
    UnexpectedGap, "unexpected-gap", Warning;
    /// The offset of a value is not a multiple of the data set's value alignment.
    MisalignedValue, "misaligned-value", Error;

    /// A shard's file does not have the CRC-32 or the digest that the manifest states.
    FileCrc, "file-crc", Error;
    /// A stored value does not match its check.
    ValueCheck, "value-check", Error;
    /// A stored value does not decode.
    BadValue, "bad-value", Error;
    /// A manifest of a multi-resolution mesh has fewer bytes before it than its fragments: readers take other bytes for them.
    MissingFragments, "missing-fragments", Error;
    /// The bytes before a value do not match their check, or were not verified because they follow a damaged index or
    /// range, so that their start is unknown.
    PreambleCheck, "preamble-check", Error;
    /// Padding in a native shard is not zero.
    NonzeroPadding, "nonzero-padding", Warning;
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A broken rule that [`Snapshot::verify`](crate::Snapshot::verify) found, or a loss of [`Salvage`](crate::Salvage).
///
/// `Display` is one line: severity, message, place, rule.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// use sharddb::VerifyLevel;
///
/// let report = sharddb::ShardDb::open("store")?.snapshot().verify(VerifyLevel::Data)?;
/// for finding in report.findings() {
///     println!("{} at {:?}, key {:?}", finding.kind(), finding.path(), finding.key());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Finding {
    pub(super) kind: FindingKind,
    pub(super) error: Error,
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, error: Error) -> Finding {
        Finding { kind, error }
    }

    /// Returns the rule that is broken.
    pub fn kind(&self) -> FindingKind {
        self.kind
    }

    /// Returns the severity of the rule.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }

    /// Returns what was expected and found, without the place.
    pub fn message(&self) -> &str {
        self.error.message()
    }

    /// Returns the file or directory, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.error.path()
    }

    /// Returns the key, if the finding is about one.
    pub fn key(&self) -> Option<u64> {
        self.error.key()
    }

    /// Returns the shard, the minishard and the byte offset, as far as they are known.
    pub fn location(&self) -> ErrorLocation {
        self.error.location()
    }

    /// Returns the message and the place as an error.
    pub fn error(&self) -> &Error {
        &self.error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.severity(), self.error, self.kind)
    }
}
