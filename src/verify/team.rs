//! Verifies all shards. The report is the same with any number of threads: the same findings in the same order.
//!
//! ```text
//! a shard     its checksums; its minishards, in up to a few ranges per thread      jobs, in the order of the shards
//!             what needs all ranges: misplaced keys, overlaps, gaps, counts        with the job that ends last
//! all shards  reports, in the order of the shards                                  the calling thread
//! ```
//!
//! A range has budgets of its own. If those of all ranges together exceed the budgets of the shard, which only ranges
//! that overlap do, the shard is verified again as a whole, so that the findings do not depend on the division.

use std::num::NonZero;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use crate::error::{Error, ErrorKind, Result};
use crate::format::locks::lock;
use crate::format::spec::Encoding;
use crate::ids::{MinishardNumber, ShardNumber, minishard_number};
use crate::read::generation::Generation;
use crate::read::shard::{Pass, Shard};
use crate::threads::in_order::in_order;
use crate::threads::progress::Progress;
use crate::verify::VerifyLevel;
use crate::verify::directory::Listing;
use crate::verify::range_state::{RangeState, SharedBudget};
use crate::verify::report::VerifyReport;
use crate::verify::shard::{ShardVerifier, Steps};

/// Lower bound on the bytes of a shard file per range.
const BYTES_PER_RANGE: u64 = 4 << 10;

/// Upper bound on the ranges of a shard, per thread.
const RANGES_PER_THREAD: u64 = 4;

/// Upper bound on the reports of shards that wait for those before them, per thread. It bounds the findings in memory.
const REPORTS_PER_THREAD: usize = 4;

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
    let team = Team { generation, listing, threads, level: report.level, progress, alone: Mutex::new(()) };
    let mut jobs = generation.shard_numbers().flat_map(|number| team.jobs_of(number));
    let outcome = in_order(
        threads,
        threads.get().saturating_mul(REPORTS_PER_THREAD),
        || progress.check().ok().and_then(|()| jobs.next()),
        |job: Job, emit| {
            if let Some(of_shard) = team.perform(&job) {
                _ = emit(of_shard, 1);
            }
        },
        |of_shard: Result<VerifyReport>| match of_shard {
            Ok(of_shard) => {
                report.absorb(of_shard);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        },
    )?;
    outcome.break_value().map_or_else(|| progress.check(), Err)
}

/// What the threads share.
struct Team<'a> {
    generation: &'a Generation,
    listing: &'a Listing,
    threads: NonZero<usize>,
    level: VerifyLevel,
    progress: &'a Progress,
    /// Held while all extents of a shard are in memory.
    alone: Mutex<()>,
}

/// A part of the work on one shard.
struct Job {
    work: Arc<ShardWork>,
    number: usize,
    part: Part,
}

enum Part {
    /// All of a shard that is not divided.
    Whole,
    /// What does not depend on minishards.
    Checksums,
    Range(Range<MinishardNumber>),
}

/// The work on one shard.
struct ShardWork {
    /// The shard; `None` if the generation lists it and does not have it.
    shard: Result<Option<Shard>>,
    number: ShardNumber,
    /// What the jobs of a divided shard found, in order; `None` for a job that is not over.
    outcomes: Mutex<Vec<Option<Outcome>>>,
    budget: SharedBudget,
    /// Bytes of progress that are counted, at most `total`.
    counted: AtomicU64,
    total: u64,
}

/// What a job of a divided shard found.
struct Outcome {
    report: VerifyReport,
    range: Option<RangeState>,
}

impl Team<'_> {
    /// Opens a shard and divides it.
    fn jobs_of(&self, number: ShardNumber) -> impl Iterator<Item = Job> + use<> {
        let shard = self.generation.open_shard_apart(number);
        let opened = shard.as_ref().ok().and_then(Option::as_ref);
        let parts = opened.map_or_else(|| vec![Part::Whole], |shard| self.parts_of(shard));
        let work = Arc::new(ShardWork {
            number,
            outcomes: Mutex::new(parts.iter().map(|_| None).collect()),
            budget: SharedBudget::new(opened.map_or(0, |shard| shard.reader().files().data_len())),
            counted: AtomicU64::new(0),
            total: self.listing.bytes_to_verify(self.generation, number, self.level),
            shard,
        });
        parts.into_iter().enumerate().map(move |(number, part)| Job { work: work.clone(), number, part })
    }

    /// Returns the parts into which a shard is divided.
    ///
    /// A shard with gzip indexes and preambles is not divided: the preamble of the first value of a minishard begins where
    /// the minishard before ends.
    fn parts_of(&self, shard: &Shard) -> Vec<Part> {
        let reader = shard.reader();
        let needs_order = reader.spec.minishard_index_encoding() == Encoding::Gzip
            && reader.layout.is_some_and(|layout| layout.preambles);
        let is_divisible =
            self.level >= VerifyLevel::Index && !needs_order && reader.files().can_hold_shard_index(&reader.spec);
        let minishards = reader.spec.minishards();
        let most = RANGES_PER_THREAD.saturating_mul(self.threads.get() as u64);
        let ranges = (shard.file_bytes() / BYTES_PER_RANGE).min(most).min(minishards);
        if !is_divisible || ranges < 2 || self.threads.get() == 1 {
            return vec![Part::Whole];
        }
        let bound = |at: u64| {
            let minishard = u128::from(minishards) * u128::from(at) / u128::from(ranges);
            minishard_number(u64::try_from(minishard).unwrap_or(u64::MAX))
        };
        let ranges = (0..ranges).map(|at| Part::Range(bound(at)..bound(at + 1)));
        [Part::Checksums].into_iter().chain(ranges).collect()
    }

    /// Does a job. Returns the report of the shard if this was the last job of it.
    fn perform(&self, job: &Job) -> Option<Result<VerifyReport>> {
        let work = &*job.work;
        let report = match &work.shard {
            Ok(Some(shard)) => Ok(self.perform_on(shard, job)?),
            Ok(None) => Err(Error::internal("a shard number of the generation has no slot").at_shard(work.number)),
            Err(error) if error.kind() == ErrorKind::GenerationGone => Err(error.clone()),
            Err(error) => {
                let mut report = VerifyReport::new(self.level);
                let kind = self.listing.kind_of_open_error(self.generation, work.number, error);
                report.add(kind, error.clone());
                Ok(report)
            }
        };
        self.steps(work).add(work.total);
        Some(report)
    }

    fn perform_on(&self, shard: &Shard, job: &Job) -> Option<VerifyReport> {
        let work = &*job.work;
        // with positioned reads a handle reads ahead for one walk
        let shares = shard.reader().is_mapped_or_loaded() || matches!(job.part, Part::Whole);
        let own = if shares { None } else { self.generation.open_shard_apart(shard.number()).ok().flatten() };
        let shard = own.as_ref().unwrap_or(shard);
        let _pass = Pass::new(shard);
        let mut report = VerifyReport::new(self.level);
        let mut verifier = self.verifier(work, shard, &mut report);
        let range = match &job.part {
            Part::Whole if verifier.verify() => return Some(report),
            Part::Whole => return Some(self.verify_with_all_extents(work, shard)),
            Part::Checksums => {
                verifier.begin();
                None
            }
            Part::Range(minishards) => Some(verifier.verify_range(minishards.clone(), &work.budget)),
        };
        let outcomes = work.end(job.number, Outcome { report, range })?;
        Some(self.combine(work, shard, outcomes))
    }

    /// Combines the outcomes of a divided shard, and verifies what needs all of them.
    fn combine(&self, work: &ShardWork, shard: &Shard, outcomes: Vec<Outcome>) -> VerifyReport {
        let mut report = VerifyReport::new(self.level);
        let mut ranges = Vec::new();
        for outcome in outcomes {
            report.absorb(outcome.report);
            ranges.extend(outcome.range);
        }
        let mut verifier = self.verifier(work, shard, &mut report);
        if ranges.into_iter().all(|range| verifier.absorb_range(range)) && verifier.end() {
            return report;
        }
        self.verify_with_all_extents(work, shard)
    }

    /// Verifies a whole shard again, one at a time because of the memory.
    fn verify_with_all_extents(&self, work: &ShardWork, shard: &Shard) -> VerifyReport {
        let _alone = lock(&self.alone);

        let mut report = VerifyReport::new(self.level);
        self.verifier(work, shard, &mut report).verify_with_all_extents();
        report
    }

    fn verifier<'a>(
        &'a self,
        work: &'a ShardWork,
        shard: &'a Shard,
        report: &'a mut VerifyReport,
    ) -> ShardVerifier<'a> {
        ShardVerifier::new(self.generation, shard.reader(), report, self.steps(work))
    }

    fn steps<'a>(&'a self, work: &'a ShardWork) -> Steps<'a> {
        Steps { progress: self.progress, counted: &work.counted, total: work.total }
    }
}

impl ShardWork {
    /// Keeps what a job found. Returns what all jobs found if this was the last one.
    fn end(&self, job: usize, outcome: Outcome) -> Option<Vec<Outcome>> {
        let mut outcomes = lock(&self.outcomes);
        if let Some(place) = outcomes.get_mut(job) {
            *place = Some(outcome);
        }
        let is_last = outcomes.iter().all(Option::is_some);
        is_last.then(|| std::mem::take(&mut *outcomes).into_iter().flatten().collect())
    }
}
