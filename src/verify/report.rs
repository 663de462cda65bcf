//! The result of a verification: counts and findings, in bounded memory.

use std::fmt;

use crate::error::Error;
use crate::plural::Plural;
use crate::verify::VerifyLevel;
use crate::verify::finding::{Finding, FindingKind, Severity};
use crate::verify::key_sum::KeySum;

/// Maximum number of findings kept per severity. The limit is separate, so that many notes do not displace errors.
const KEPT: u64 = 10_000;

/// The result of [`Snapshot::verify`](crate::Snapshot::verify): counts and findings.
///
/// `Display` is one line with all counts.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// use sharddb::VerifyLevel;
///
/// let report = sharddb::ShardDb::open("store")?.snapshot().verify(VerifyLevel::Index)?;
/// println!("{report}");
/// assert_eq!(report.errors(), 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The level of the verification.
    pub level: VerifyLevel,
    /// Number of shards that could be opened; in a container of another format, of its files.
    pub shards: u64,
    /// Number of minishards with keys, as stated by the shard indexes; 0 in a format without minishards.
    pub minishards: u64,
    /// Number of keys in all minishard indexes that could be read; in another format, of chunks. 0 at
    /// [`VerifyLevel::Structure`].
    pub keys: u64,
    /// Stored (encoded) bytes of the values of these keys, without preambles; 0 at [`VerifyLevel::Structure`].
    pub value_bytes: u64,
    /// Number of bytes of the shards that were verified, in files or in memory: indexes, values (or chunks), preambles
    /// and padding.
    ///
    /// A byte that is verified twice counts twice, for example in a shard whose CRC-32 is in the manifest. Checks count
    /// only as bytes of such a shard. Holes of a sparse file do not count, except in a shard index whose CRC-32 is in
    /// the manifest, and up to 64 KiB where a hole of the shard index is found, which several threads do more often.
    pub bytes_read: u64,
    /// The sum of the keys in the shards, if there is a key file to compare it with.
    pub(super) key_sum: KeySum,
    subject: Subject,
    findings: Vec<Finding>,
    notes: u64,
    warnings: u64,
    errors: u64,
}

/// What was verified, which defines the meaning of the counts.
#[derive(Debug)]
enum Subject {
    Shards,
    Files,
}

/// Creates the report of a container without minishards, which has chunks in files.
pub fn report_of_files(level: VerifyLevel) -> VerifyReport {
    VerifyReport::of(Subject::Files, level)
}

/// Adds a finding to the report of a container.
pub fn add_finding(report: &mut VerifyReport, kind: FindingKind, error: Error) {
    report.add(kind, error);
}

impl VerifyReport {
    pub(crate) fn new(level: VerifyLevel) -> VerifyReport {
        VerifyReport::of(Subject::Shards, level)
    }

    fn of(subject: Subject, level: VerifyLevel) -> VerifyReport {
        VerifyReport {
            level,
            subject,
            key_sum: KeySum::default(),
            shards: 0,
            minishards: 0,
            keys: 0,
            value_bytes: 0,
            bytes_read: 0,
            findings: Vec::new(),
            notes: 0,
            warnings: 0,
            errors: 0,
        }
    }

    /// Counts `more` findings of a kind that are not kept.
    pub(crate) fn count_more(&mut self, kind: FindingKind, more: u64) {
        *self.count_of(kind) += more;
    }

    fn count_of(&mut self, kind: FindingKind) -> &mut u64 {
        match kind.severity() {
            Severity::Note => &mut self.notes,
            Severity::Warning => &mut self.warnings,
            Severity::Error => &mut self.errors,
        }
    }

    /// Counts a finding, and keeps it unless 10,000 of its severity are kept already.
    pub(crate) fn add(&mut self, kind: FindingKind, error: Error) {
        let count = self.count_of(kind);
        *count += 1;
        if *count <= KEPT {
            self.findings.push(Finding::new(kind, error));
        }
    }

    /// Adds the counts and the findings of a report about what follows, as if this report had been continued.
    pub(crate) fn absorb(&mut self, next: VerifyReport) {
        self.shards += next.shards;
        self.minishards += next.minishards;
        self.keys += next.keys;
        self.key_sum.merge(next.key_sum);
        self.value_bytes = self.value_bytes.saturating_add(next.value_bytes);
        self.bytes_read += next.bytes_read;
        let [mut notes, mut warnings, mut errors] = [next.notes, next.warnings, next.errors];
        for Finding { kind, error } in next.findings {
            *match kind.severity() {
                Severity::Note => &mut notes,
                Severity::Warning => &mut warnings,
                Severity::Error => &mut errors,
            } -= 1;
            self.add(kind, error);
        }
        self.notes += notes;
        self.warnings += warnings;
        self.errors += errors;
    }

    /// Returns the findings, in the order of the shards; the first 10,000 per severity.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns whether there are no errors. There may be warnings and notes in [`findings`](VerifyReport::findings).
    pub fn is_clean(&self) -> bool {
        self.errors == 0
    }

    /// Returns the number of findings, including those that are not kept.
    pub(crate) fn reported(&self) -> u64 {
        self.notes + self.warnings + self.errors
    }

    /// Returns the number of errors, including those that are not kept.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Returns the number of warnings, including those that are not kept.
    pub fn warnings(&self) -> u64 {
        self.warnings
    }

    /// Returns the number of notes, including those that are not kept.
    pub fn notes(&self) -> u64 {
        self.notes
    }

    /// Returns the number of findings that are counted but not kept.
    pub fn dropped(&self) -> u64 {
        self.errors + self.warnings + self.notes - self.findings.len() as u64
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerifyReport { shards, minishards, keys, value_bytes, errors, warnings, notes, .. } = *self;
        let with_keys = self.level > VerifyLevel::Structure;
        let bytes = Plural(value_bytes, "byte");
        match self.subject {
            Subject::Shards => write!(f, "{}, {}", Plural(shards, "shard"), Plural(minishards, "minishard"))?,
            Subject::Files => write!(f, "{}", Plural(shards, "file"))?,
        }
        match self.subject {
            Subject::Shards if with_keys => write!(f, ", {}, {bytes} of values", Plural(keys, "key"))?,
            Subject::Files if with_keys => write!(f, ", {}, {bytes} of chunks", Plural(keys, "chunk"))?,
            _ => {}
        }
        write!(f, ": {}, {}, {}", Plural(errors, "error"), Plural(warnings, "warning"), Plural(notes, "note"))
    }
}
