//! What verification looked at and what it found, in bounded memory.

use std::fmt;

use crate::error::Error;
use crate::verify::VerifyLevel;
use crate::verify::finding::{Finding, FindingKind, Severity};

/// Findings kept of each severity, so that a flood of notes does not wash errors away.
const KEPT: u64 = 10_000;

/// What [`Snapshot::verify`](crate::Snapshot::verify) looked at and what it found.
///
/// `Display` is one line with all figures.
#[derive(Debug)]
#[non_exhaustive]
pub struct VerifyReport {
    /// How much was looked at.
    pub level: VerifyLevel,
    /// Shards that could be opened; of a [container](crate::container) of another format, its files.
    pub shards: u64,
    /// Minishards with keys; 0 in a format that has none.
    pub minishards: u64,
    /// Keys, in all minishard indexes that could be read; 0 at [`VerifyLevel::Structure`]. In another format, chunks.
    pub keys: u64,
    /// Stored bytes of the values of these keys; 0 at [`VerifyLevel::Structure`].
    pub value_bytes: u64,
    /// Bytes of shards that were looked at, from the disk or not; some more than once.
    pub bytes_read: u64,
    subject: Subject,
    findings: Vec<Finding>,
    notes: u64,
    warnings: u64,
    errors: u64,
}

/// What was looked at, and so what there is to count.
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

    /// Of a container that has no minishards: chunks in files.
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

    /// What was found, in the order of the shards; the first 10,000 of each severity.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether there are no errors. There may be warnings and notes: look at [`findings`](VerifyReport::findings).
    pub fn is_clean(&self) -> bool {
        self.errors == 0
    }

    /// The number of errors, also of those that are not kept.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// The number of warnings, also of those that are not kept.
    pub fn warnings(&self) -> u64 {
        self.warnings
    }

    /// The number of notes, also of those that are not kept.
    pub fn notes(&self) -> u64 {
        self.notes
    }

    /// The number of findings that were counted and not kept.
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
