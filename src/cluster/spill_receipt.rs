//! The receipt of a spill.

use std::fmt;
use std::str::FromStr;

use super::members::{Kind, Members, VERSION};
use crate::cluster::parts_dir::PartsDir;
use crate::error::{Error, ErrorKind, Result};
use crate::format::digest::Digest;

const KIND: Kind = Kind {
    noun: "the receipt of a spill",
    tag: "sharddb_spill",
    names: &["plan", "task", "digest", "pairs", "prefixes", "bytes", "run"],
    most: 4 << 10,
};

/// The receipt of a spill, as returned by [`SpillWriter::finish`](super::SpillWriter::finish): names one file and
/// states its content.
///
/// The driver of a build collects one receipt per task and passes all of them to each part. `Display` and `FromStr` use
/// its JSON text, one line.
///
/// ```
/// use sharddb::cluster::SpillReceipt;
///
/// let text = "{\"sharddb_spill\":1,\"plan\":\"0123456789abcdef0123456789abcdef\",\"task\":7,\
///     \"digest\":\"000000000000000000000000000000ff\",\
///     \"pairs\":2,\"prefixes\":0,\"bytes\":99,\"run\":\"fedcba9876543210fedcba9876543210\"}";
/// let receipt: SpillReceipt = text.parse()?;
/// assert_eq!((receipt.task(), receipt.pairs(), receipt.bytes()), (7, 2, 99));
/// assert_eq!(receipt.file_name(), "task-7-000000000000000000000000000000ff");
/// assert_eq!(receipt.to_string(), text);
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillReceipt {
    /// The digest of the plan.
    pub(super) plan: Digest,
    pub(super) task: u64,
    pub(super) digest: Digest,
    pub(super) pairs: u64,
    /// The number of pairs with a preamble.
    pub(super) preambles: u64,
    pub(super) bytes: u64,
    /// The random bytes of the file; `None` in receipts of earlier versions.
    pub(super) run: Option<Digest>,
}

impl SpillReceipt {
    /// Returns the number of the task.
    pub fn task(&self) -> u64 {
        self.task
    }

    /// Returns the name of the file, which contains the digest of its content.
    pub fn file_name(&self) -> String {
        PartsDir::spill_name(self.task, &self.digest.to_string())
    }

    /// Returns the number of pairs.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Returns whether the spill has random bytes, which no other run has.
    pub(super) fn is_of_one_run(&self) -> bool {
        self.run.is_some()
    }

    /// Returns the length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Checks the length of the file or the object that has the name of the spill.
///
/// Errors: `Corrupt` without a place.
pub fn check_spill_len(receipt: &SpillReceipt, found: u64) -> Result<()> {
    if found == receipt.bytes {
        return Ok(());
    }
    let message = format!(
        "expected the spill of task {}, of {} bytes, found a file of {found}: run the task again",
        receipt.task, receipt.bytes
    );
    Err(Error::corrupt(message))
}

/// Returns the error, without a place, if there is no spill.
#[cold]
pub fn lost_spill(receipt: &SpillReceipt) -> Error {
    let message = format!("expected the spill of task {}, found no such file: run the task again", receipt.task);
    Error::new(ErrorKind::NotFound, message)
}

impl fmt::Display for SpillReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpillReceipt { plan, task, digest, pairs, preambles, bytes, run } = self;
        let run = run.map(|run| format!(",\"run\":\"{run}\"")).unwrap_or_default();
        write!(
            f,
            "{{\"{}\":{VERSION},\"plan\":\"{plan}\",\"task\":{task},\"digest\":\"{digest}\",\"pairs\":{pairs},\
             \"prefixes\":{preambles},\"bytes\":{bytes}{run}}}",
            KIND.tag
        )
    }
}

impl FromStr for SpillReceipt {
    type Err = Error;

    /// Parses the JSON text of a receipt.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is anything else; `TooLarge`; `Unsupported` for a later version.
    fn from_str(text: &str) -> Result<SpillReceipt> {
        let members = Members::parse(text, &KIND)?;
        Ok(SpillReceipt {
            plan: members.parsed("plan")?,
            task: members.required("task")?,
            digest: members.parsed("digest")?,
            pairs: members.required("pairs")?,
            preambles: members.required("prefixes")?,
            bytes: members.required("bytes")?,
            run: members.parsed_if_there("run")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_other_texts() {
        let text = SpillReceipt {
            plan: Digest::of(b"plan"),
            task: u64::MAX,
            digest: Digest::of(b""),
            pairs: 1,
            preambles: 0,
            bytes: u64::MAX,
            run: Some(Digest::of(b"random")),
        }
        .to_string();
        let of_earlier_version = text.split_once(",\"run\"").map(|(text, _)| format!("{text}}}")).unwrap();
        assert_eq!(of_earlier_version.parse::<SpillReceipt>().unwrap().to_string(), of_earlier_version);
        assert_eq!(text.parse::<SpillReceipt>().unwrap().to_string(), text);
        let cases = [
            ("\"pairs\":1", "\"pairs\":-1", ErrorKind::InvalidInput),
            ("\"pairs\":1", "\"pairs\":1e3", ErrorKind::InvalidInput),
            ("\"pairs\":1", "\"pairs\":18446744073709551616", ErrorKind::InvalidInput),
            ("\"pairs\":1,", "", ErrorKind::InvalidInput),
            ("\"pairs\":1", "\"pairs\":1,\"file\":\"/etc/passwd\"", ErrorKind::InvalidInput),
            ("\"digest\":\"", "\"digest\":\"../", ErrorKind::InvalidInput),
            ("\"run\":\"", "\"run\":\"x", ErrorKind::InvalidInput),
            ("\"run\":", "\"run\":\"00\",\"run\":", ErrorKind::InvalidInput),
            ("sharddb_spill\":1", "sharddb_spill\":9", ErrorKind::Unsupported),
        ];
        for (from, to, kind) in cases {
            let error = text.replacen(from, to, 1).parse::<SpillReceipt>().unwrap_err();
            assert_eq!(error.kind(), kind, "{to}: {error}");
        }
        let error = " ".repeat(5000).parse::<SpillReceipt>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }
}
