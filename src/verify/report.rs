//! The result of a verification: counts and findings, in bounded memory.

use std::fmt;

use crate::error::Error;
use crate::verify::VerifyLevel;
use crate::verify::finding::{Finding, FindingKind, Severity};

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
/// let report = sharddb::ShardDb::open_pread("store")?.snapshot().verify(VerifyLevel::Index)?;
/// println!("{report}");
/// assert_eq!(report.errors(), 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The level of the verification.
    pub level: VerifyLevel,
    /// Number of shards that could be opened; in a [container](crate::container) of another format, of its files.
    pub shards: u64,
    /// Number of minishards with keys; 0 in a format without minishards.
    pub minishards: u64,
    /// Number of keys in all minishard indexes that could be read; in another format, of chunks. 0 at
    /// [`VerifyLevel::Structure`].
    pub keys: u64,
    /// FoundKey bytes of the values of these keys; 0 at [`VerifyLevel::Structure`].
    pub value_bytes: u64,
    /// Bytes of shards that were verified, from memory or a disk. Bytes that are verified twice count twice.
    pub bytes_read: u64,
    subject: Subject,
    findings: Vec<Finding>,
    notes: u64,
    warnings: u64,
    errors: u64,
}

/// What was verified, which decides what the counts mean.
#[derive(Debug)]
enum Subject {
    Shards,
    #[cfg_attr(not(any(feature = "zarr", feature = "bcolz")), expect(dead_code, reason = "no other format is built"))]
    Files,
}

impl VerifyReport {
    pub(crate) fn new(level: VerifyLevel) -> VerifyReport {
        VerifyReport::of(Subject::Shards, level)
    }

    /// Creates the report of a container without minishards, which has chunks in files.
    #[cfg(any(feature = "zarr", feature = "bcolz"))]
    pub(crate) fn of_files(level: VerifyLevel) -> VerifyReport {
        VerifyReport::of(Subject::Files, level)
    }

    fn of(subject: Subject, level: VerifyLevel) -> VerifyReport {
        VerifyReport {
            level,
            subject,
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

    pub(crate) fn add(&mut self, kind: FindingKind, error: Error) {
        let count = match kind.severity() {
            Severity::Note => &mut self.notes,
            Severity::Warning => &mut self.warnings,
            Severity::Error => &mut self.errors,
        };
        *count += 1;
        if *count <= KEPT {
            self.findings.push(Finding::new(kind, error));
        }
    }

    /// Returns the findings, in the order of the shards; the first 10,000 per severity.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns whether there are no errors. There may be warnings and notes in [`findings`](VerifyReport::findings).
    pub fn is_clean(&self) -> bool {
        self.errors == 0
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
        let VerifyReport { shards, minishards, keys, value_bytes, errors, warnings, notes, .. } = self;
        let with_keys = self.level > VerifyLevel::Structure;
        match self.subject {
            Subject::Shards => write!(f, "{shards} shards, {minishards} minishards")?,
            Subject::Files => write!(f, "{shards} files")?,
        }
        match self.subject {
            Subject::Shards if with_keys => write!(f, ", {keys} keys, {value_bytes} bytes of values")?,
            Subject::Files if with_keys => write!(f, ", {keys} chunks, {value_bytes} bytes of chunks")?,
            _ => {}
        }
        write!(f, ": {errors} errors, {warnings} warnings, {notes} notes")
    }
}
