//! The team that verifies all shards. The report is the same with any number of threads: the same findings in the same
//! order.
//!
//! ```text
//! a shard     its checksums; its minishards, in up to a few ranges per thread      any thread, in the order of the shards
//!             what needs all ranges: misplaced keys, overlaps, gaps, counts        the thread that ends the last job
//! all shards  reports, in the order of the shards                                  the calling thread
//! ```
//!
//! The calling thread does all jobs itself if it is the only one, and none otherwise.
//!
//! A range has budgets of its own. If those of all ranges together exceed the budgets of the shard, which only ranges
//! that overlap do, the shard is verified again as a whole, so that the findings do not depend on the division.

use std::collections::VecDeque;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::{Error, ErrorKind, Result};
use crate::format::locks::lock;
use crate::format::spec::Encoding;
use crate::ids::{MinishardNumber, ShardNumber};
use crate::read::generation::Generation;
use crate::read::shard::{Pass, Shard};
use crate::threads::progress::Progress;
use crate::verify::VerifyLevel;
use crate::verify::directory::Listing;
use crate::verify::range_state::RangeState;
use crate::verify::range_state::SharedBudget;
use crate::verify::report::VerifyReport;
use crate::verify::shard::ShardVerifier;
use crate::verify::steps::Steps;

/// Lower bound on the bytes of a shard file per range.
const BYTES_PER_RANGE: u64 = 4 << 10;

/// Upper bound on the ranges of a shard, per thread.
const RANGES_PER_THREAD: u64 = 4;

/// Upper bound on the shards that are begun and not yet in the report, per thread. It bounds the findings in memory.
const SHARDS_PER_THREAD: usize = 4;

/// Verifies all shards, and adds their reports to `report`.
///
/// Works with fewer threads if the process cannot start all of them.
///
/// Errors: `GenerationGone`; `Cancelled`; `Internal` after a panic of another thread.
pub(super) fn verify_shards(
    generation: &Generation,
    listing: &Listing,
    threads: NonZero<usize>,
    report: &mut VerifyReport,
    progress: &Progress,
) -> Result<()> {
    let team = Team::new(generation, listing, threads, report.level, progress);
    if threads.get() == 1 {
        return team.work_alone(report);
    }
    thread::scope(|scope| {
        let start = |_: &usize| thread::Builder::new().spawn_scoped(scope, || team.work()).is_ok();
        if (0..threads.get()).take_while(start).count() == 0 {
            return team.work_alone(report);
        }
        let _end = End(&team); // also after an error: the threads would wait for ever
        team.collect(report)
    })
}

/// Ends the threads when it is dropped.
struct End<'a, 'b>(&'a Team<'b>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.queue().stop = true;
        self.0.changed.notify_all();
    }
}

/// What the threads share.
struct Team<'a> {
    generation: &'a Generation,
    listing: &'a Listing,
    threads: NonZero<usize>,
    level: VerifyLevel,
    queue: Mutex<Queue>,
    /// Notified when a shard is verified, is in the report, or when the work ends.
    changed: Condvar,
    progress: &'a Progress,
}

struct Queue {
    /// The shards that are not begun.
    numbers: std::vec::IntoIter<ShardNumber>,
    /// The shard whose jobs are being taken.
    current: Option<Arc<ShardWork>>,
    /// The shards that are begun and not in the report, in order.
    begun: VecDeque<Arc<ShardWork>>,
    stop: bool,
}

/// The work on one shard.
struct ShardWork {
    shard: Option<Shard>,
    /// The ranges of minishards; empty if the shard is verified as a whole.
    ranges: Vec<Range<MinishardNumber>>,
    next_job: AtomicU64,
    state: Mutex<State>,
    budget: SharedBudget,
    /// Bytes of progress that are counted, at most `total`.
    counted: AtomicU64,
    total: u64,
}

struct State {
    /// The outcome of each job, in order.
    outcomes: Vec<Option<Outcome>>,
    left: usize,
    /// The report of the shard.
    report: Option<Result<VerifyReport>>,
}

/// What a job found.
struct Outcome {
    report: VerifyReport,
    range: Option<RangeState>,
}

impl<'a> Team<'a> {
    fn new(
        generation: &'a Generation,
        listing: &'a Listing,
        threads: NonZero<usize>,
        level: VerifyLevel,
        progress: &'a Progress,
    ) -> Team<'a> {
        let numbers = generation.shard_numbers().collect::<Vec<_>>().into_iter();
        let queue = Queue { numbers, current: None, begun: VecDeque::new(), stop: false };
        Team { generation, listing, threads, level, queue: Mutex::new(queue), changed: Condvar::new(), progress }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Adds the reports of all shards to `report`, in order.
    fn collect(&self, report: &mut VerifyReport) -> Result<()> {
        let mut queue = self.queue();
        loop {
            self.progress.check()?;
            let Some(first) = queue.begun.front() else {
                if queue.numbers.len() == 0 {
                    return Ok(());
                }
                queue = self.wait(queue);
                continue;
            };
            let finished = first.state().report.take();
            let Some(of_shard) = finished else {
                queue = self.wait(queue);
                continue;
            };
            queue.begun.pop_front();
            drop(queue);
            self.changed.notify_all();
            report.absorb(of_shard?);
            queue = self.queue();
        }
    }

    fn wait<'q>(&self, queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    /// Does all jobs on the calling thread.
    fn work_alone(&self, report: &mut VerifyReport) -> Result<()> {
        while let Some((work, job)) = self.next_job() {
            self.perform(&work, job);
            self.progress.check()?;
            let finished = work.state().report.take();
            if let Some(of_shard) = finished {
                self.queue().begun.pop_front();
                report.absorb(of_shard?);
            }
        }
        Ok(())
    }

    /// Does jobs until there are none.
    fn work(&self) {
        while let Some((work, job)) = self.next_job() {
            let done = catch_unwind(AssertUnwindSafe(|| self.perform(&work, job)));
            if let Err(panic) = done {
                work.state().report = Some(Err(Error::panicked("a thread of the verification", &*panic)));
            }
            drop(self.queue()); // so that the calling thread is not between its look at the shard and its wait
            self.changed.notify_all();
        }
    }

    fn next_job(&self) -> Option<(Arc<ShardWork>, usize)> {
        let mut queue = self.queue();
        loop {
            if queue.stop {
                return None;
            }
            if let Some(work) = &queue.current {
                if let Some(job) = work.take_job() {
                    return Some((work.clone(), job));
                }
                queue.current = None;
            }
            if queue.begun.len() >= self.threads.get().saturating_mul(SHARDS_PER_THREAD) {
                queue = self.wait(queue);
                continue;
            }
            let number = queue.numbers.next()?;
            let work = Arc::new(self.open(number));
            queue.begun.push_back(work.clone());
            queue.current = Some(work);
        }
    }

    /// Opens a shard and divides it.
    fn open(&self, number: ShardNumber) -> ShardWork {
        let total = self.listing.bytes_to_verify(self.generation, number, self.level);
        let (shard, ranges, report) = match self.generation.open_shard_apart(number) {
            Ok(Some(shard)) => {
                let ranges = self.ranges_of(&shard);
                (Some(shard), ranges, None)
            }
            Ok(None) => (None, Vec::new(), Some(Err(no_slot(number)))),
            Err(error) if error.kind() == ErrorKind::GenerationGone => (None, Vec::new(), Some(Err(error))),
            Err(error) => {
                let mut report = VerifyReport::new(self.level);
                report.add(self.listing.kind_of_open_error(self.generation, number, &error), error);
                (None, Vec::new(), Some(Ok(report)))
            }
        };
        let jobs = 1 + ranges.len();
        let data_len = shard.as_ref().map_or(0, |shard| shard.reader().files().data_len());
        ShardWork {
            shard,
            ranges,
            next_job: AtomicU64::new(0),
            budget: SharedBudget::new(data_len),
            state: Mutex::new(State { outcomes: (0..jobs).map(|_| None).collect(), left: jobs, report }),
            counted: AtomicU64::new(0),
            total,
        }
    }

    /// Returns the ranges of minishards into which a shard is divided; empty if it is not.
    ///
    /// A shard with gzip indexes and preambles is not divided: the preamble of the first value of a minishard begins where
    /// the minishard before ends.
    fn ranges_of(&self, shard: &Shard) -> Vec<Range<MinishardNumber>> {
        let reader = shard.reader();
        let needs_order = reader.spec.minishard_index_encoding() == Encoding::Gzip
            && reader.layout.is_some_and(|layout| layout.preambles);
        let is_divisible =
            self.level >= VerifyLevel::Index && !needs_order && reader.files().can_hold_shard_index(&reader.spec);
        let minishards = reader.spec.minishards();
        let most = RANGES_PER_THREAD.saturating_mul(self.threads.get() as u64);
        let ranges = (shard.file_bytes() / BYTES_PER_RANGE).min(most).min(minishards);
        if !is_divisible || ranges < 2 || self.threads.get() == 1 {
            return Vec::new();
        }
        let bound = |at: u64| {
            let minishard = u128::from(minishards) * u128::from(at) / u128::from(ranges);
            MinishardNumber(u64::try_from(minishard).unwrap_or(u64::MAX))
        };
        (0..ranges).map(|at| bound(at)..bound(at + 1)).collect()
    }

    /// Does one job of a shard, and after the last one the rest.
    fn perform(&self, work: &ShardWork, job: usize) {
        let steps = work.steps(self.progress);
        let Some(shard) = &work.shard else { return steps.add(work.total) };
        // with positioned reads a handle reads ahead for one walk
        let own = if shard.reader().is_mapped_or_loaded() || work.ranges.is_empty() {
            None
        } else {
            self.generation.open_shard_apart(shard.number()).ok().flatten()
        };
        let shard = own.as_ref().unwrap_or(shard);
        let _pass = Pass::new(shard);
        let outcome = match work.ranges.get(job.wrapping_sub(1)) {
            None if work.ranges.is_empty() => Outcome { report: self.verify_whole(shard, steps), range: None },
            None => self.verify_checksums(shard, steps),
            Some(range) => self.verify_range(work, shard, range.clone(), steps),
        };
        let finished = {
            let mut state = work.state();
            if let Some(place) = state.outcomes.get_mut(job) {
                *place = Some(outcome);
            }
            state.left -= 1;
            if state.left > 0 {
                return;
            }
            std::mem::take(&mut state.outcomes)
        };
        let report = if work.ranges.is_empty() {
            finished.into_iter().flatten().next().map(|outcome| outcome.report)
        } else {
            Some(self.finish(shard, finished.into_iter().flatten().collect(), steps))
        };
        let report = report.ok_or_else(|| Error::internal("a shard was verified without a report"));
        work.state().report = Some(report);
        steps.add(work.total);
    }

    fn verify_whole(&self, shard: &Shard, steps: Steps<'_>) -> VerifyReport {
        let mut report = VerifyReport::new(self.level);
        ShardVerifier::new(self.generation, shard.reader(), &mut report, steps).verify();
        report
    }

    fn verify_checksums(&self, shard: &Shard, steps: Steps<'_>) -> Outcome {
        let mut report = VerifyReport::new(self.level);
        ShardVerifier::new(self.generation, shard.reader(), &mut report, steps).begin();
        Outcome { report, range: None }
    }

    fn verify_range(
        &self,
        work: &ShardWork,
        shard: &Shard,
        minishards: Range<MinishardNumber>,
        steps: Steps<'_>,
    ) -> Outcome {
        let mut report = VerifyReport::new(self.level);
        let verifier = ShardVerifier::new(self.generation, shard.reader(), &mut report, steps);
        let range = verifier.verify_range(minishards, &work.budget);
        Outcome { report, range: Some(range) }
    }

    /// Combines the outcomes of a divided shard, and verifies what needs all of them.
    fn finish(&self, shard: &Shard, outcomes: Vec<Outcome>, steps: Steps<'_>) -> VerifyReport {
        let mut report = VerifyReport::new(self.level);
        let mut ranges = Vec::new();
        for outcome in outcomes {
            report.absorb(outcome.report);
            ranges.extend(outcome.range);
        }
        let mut verifier = ShardVerifier::new(self.generation, shard.reader(), &mut report, steps);
        if ranges.into_iter().all(|range| verifier.absorb_range(range)) {
            verifier.end();
            return report;
        }
        drop(verifier);
        self.verify_whole(shard, steps)
    }
}

impl ShardWork {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn steps<'a>(&'a self, progress: &'a Progress) -> Steps<'a> {
        Steps { progress, counted: &self.counted, total: self.total }
    }

    fn take_job(&self) -> Option<usize> {
        let job = usize::try_from(self.next_job.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
        (job <= self.ranges.len()).then_some(job)
    }
}

/// The error for a shard that the generation lists and does not have.
fn no_slot(number: ShardNumber) -> Error {
    Error::internal("a shard number of the generation has no slot").at_shard(number)
}
