//! How far a long operation is, and the flag that cancels it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// A phase of an operation, as returned by [`Progress::phase`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// A build takes pairs. Their total is not known.
    #[default]
    Insert,
    /// A build sorts spilled runs again, whose order does not match the planned specification.
    Sort,
    /// A build merges runs into fewer.
    Merge,
    /// A build writes shards.
    Write,
    /// A build reads back and sorts the keys, and writes the key file: 8 bytes per key.
    Order,
    /// A build writes `info`, minishard table and manifest, and publishes the generation.
    Publish,
    /// Files are copied, uploaded or downloaded, and compared with their checksums.
    Copy,
    /// Shards are verified, in bytes, of which those that are read twice count twice; or the files of another container.
    Verify,
    /// Two databases are compared. A pair of both counts twice.
    Compare,
    /// The keys of a range are read from the indexes and sorted.
    Scan,
    /// Chunks of an array are written in another format.
    Convert,
    /// Generations are removed.
    Remove,
}

/// What [`Progress::done`] and [`Progress::total`] count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Keys.
    Keys,
    /// Chunks of an array.
    Chunks,
    /// Generations.
    Generations,
    /// Files.
    Files,
}

impl Unit {
    const ALL: [Unit; 5] = [Unit::Bytes, Unit::Keys, Unit::Chunks, Unit::Generations, Unit::Files];
}

impl Phase {
    const ALL: [Phase; 12] = [
        Phase::Insert,
        Phase::Sort,
        Phase::Merge,
        Phase::Write,
        Phase::Order,
        Phase::Publish,
        Phase::Copy,
        Phase::Verify,
        Phase::Compare,
        Phase::Scan,
        Phase::Convert,
        Phase::Remove,
    ];

    /// Returns the phase as one lowercase word.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Insert => "insert",
            Phase::Sort => "sort",
            Phase::Merge => "merge",
            Phase::Write => "write",
            Phase::Order => "order",
            Phase::Publish => "publish",
            Phase::Copy => "copy",
            Phase::Verify => "verify",
            Phase::Compare => "compare",
            Phase::Scan => "scan",
            Phase::Convert => "convert",
            Phase::Remove => "remove",
        }
    }

    /// Returns what is usually counted in this phase.
    fn unit(self) -> Unit {
        match self {
            Phase::Compare | Phase::Scan => Unit::Keys,
            Phase::Convert => Unit::Chunks,
            Phase::Remove => Unit::Generations,
            _ => Unit::Bytes,
        }
    }
}

/// How far an operation is, and the flag that cancels it. Clones are the same progress, for other threads.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-progress-doc-{}", std::process::id()));
/// use sharddb::progress::Phase;
/// use sharddb::{ErrorKind, Progress};
///
/// let progress = Progress::new();
/// let mut loader = sharddb::BuildOptions::new().progress(&progress).create(&store)?;
/// loader.insert(7, b"seven")?;
/// assert_eq!((progress.phase(), progress.done()), (Phase::Insert, 5));
///
/// progress.cancel();
/// assert_eq!(loader.finish().unwrap_err().kind(), ErrorKind::Cancelled);
/// # std::fs::remove_dir_all(&store).ok();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Progress {
    counts: Arc<Counts>,
    cancelled: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Counts {
    step: AtomicU64,
    phase: AtomicU8,
    unit: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Creates a progress of nothing yet.
    pub fn new() -> Progress {
        Progress::default()
    }

    /// Creates a progress that is cancelled once `flag` is true, such as a flag that a signal handler sets.
    pub fn cancelled_by(flag: &Arc<AtomicBool>) -> Progress {
        Progress { cancelled: flag.clone(), ..Progress::default() }
    }

    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        Phase::ALL.get(usize::from(self.counts.phase.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }

    /// Returns what is counted in the current phase.
    pub fn unit(&self) -> Unit {
        Unit::ALL.get(usize::from(self.counts.unit.load(Ordering::Relaxed))).copied().unwrap_or(Unit::Bytes)
    }

    /// Returns the number of steps begun. A phase is one step, except that each round of merging is a step of its own,
    /// in which [`done`](Progress::done) begins at 0 again.
    ///
    /// Values that are read after this number belong to this step or a later one.
    pub fn step(&self) -> u64 {
        self.counts.step.load(Ordering::Acquire)
    }

    /// Returns what is done of this phase, in its [unit](Progress::unit).
    pub fn done(&self) -> u64 {
        self.counts.done.load(Ordering::Relaxed)
    }

    /// Returns what is to be done in this phase, in its [unit](Progress::unit); 0 if unknown.
    pub fn total(&self) -> u64 {
        self.counts.total.load(Ordering::Relaxed)
    }

    /// Cancels the operation: soon after this, it fails with `Cancelled`, unless it has ended.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns whether the operation was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Returns a progress with counts of its own that is cancelled with this one.
    pub fn apart(&self) -> Progress {
        Progress::cancelled_by(&self.cancelled)
    }

    /// Begins a step, of which 0 is done; a total of 0 is unknown. For programs that show their own work too.
    pub fn begin(&self, phase: Phase, total: u64) {
        self.begin_counting(phase, phase.unit(), total);
    }

    /// Begins a step that counts something else than its phase usually does.
    pub fn begin_counting(&self, phase: Phase, unit: Unit, total: u64) {
        let counts = &self.counts;
        counts.phase.store(number_of(&Phase::ALL, phase), Ordering::Relaxed);
        counts.unit.store(number_of(&Unit::ALL, unit), Ordering::Relaxed);
        counts.done.store(0, Ordering::Relaxed);
        counts.total.store(total, Ordering::Relaxed);
        counts.step.fetch_add(1, Ordering::Release);
    }

    /// Adds to what is done of this step.
    pub fn add(&self, done: u64) {
        self.counts.done.fetch_add(done, Ordering::Relaxed);
    }

    /// Returns an error if the operation was cancelled.
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::new(ErrorKind::Cancelled, "the operation was cancelled")) } else { Ok(()) }
    }
}

fn number_of<T: PartialEq>(all: &[T], one: T) -> u8 {
    let number = all.iter().position(|other| *other == one).unwrap_or(0);
    u8::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rounds of merging have the same phase; the step tells them apart.
    #[test]
    fn every_beginning_is_a_step_that_counts_from_zero() {
        let progress = Progress::new();
        for step in 1..=3 {
            progress.begin(Phase::Merge, 100);
            assert_eq!((progress.step(), progress.phase(), progress.done()), (step, Phase::Merge, 0));
            progress.add(70);
        }
    }

    #[test]
    fn each_phase_is_returned_as_it_began() {
        let progress = Progress::new();
        for phase in Phase::ALL {
            progress.begin(phase, 0);
            assert_eq!(progress.phase(), phase);
        }
    }

    #[test]
    fn a_progress_apart_is_cancelled_too_and_counts_alone() {
        let progress = Progress::new();
        let apart = progress.apart();
        apart.add(5);
        progress.cancel();
        assert_eq!((progress.done(), apart.is_cancelled()), (0, true));
        assert_eq!(apart.check().unwrap_err().kind(), ErrorKind::Cancelled);
    }
}
