//! Options of a verification.

use crate::threads::progress::Progress;

/// Options of a verification; see [`Snapshot::verify_with`](crate::Snapshot::verify_with).
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// use sharddb::{Progress, VerifyLevel, VerifyOptions};
///
/// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
/// let progress = Progress::new(); // a clone of it shows another thread how far this is
/// let report = snapshot.verify_with(VerifyLevel::Data, VerifyOptions::new().threads(2).progress(&progress))?;
/// assert!(report.is_clean());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    pub(super) threads: usize,
    pub(super) progress: Progress,
}

impl VerifyOptions {
    /// Creates the default options.
    pub fn new() -> VerifyOptions {
        VerifyOptions::default()
    }

    /// Sets the number of threads that verify, the caller's included. Default: 0, which is one per core that the process may
    /// use when the work starts. If the process cannot start them all, it works with fewer.
    ///
    /// The report is the same with any number, with the findings in the same order. Large shards are divided by minishards,
    /// so one shard is enough for all threads.
    pub fn threads(&mut self, threads: usize) -> &mut VerifyOptions {
        self.threads = threads;
        self
    }

    /// Sets the progress that the verification reports, and that cancels it. Default: none.
    ///
    /// It counts the bytes of the shards that were read; a shard that is read twice counts twice, and other files do not count.
    pub fn progress(&mut self, progress: &Progress) -> &mut VerifyOptions {
        self.progress = progress.clone();
        self
    }
}

/// Returns the progress of these options, for verifications of other containers.
pub fn progress_of(options: &VerifyOptions) -> &Progress {
    &options.progress
}
