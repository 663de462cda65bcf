//! How a database follows its store: when it was last checked, with which result, and the statistics of this.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::read::snapshot::{Snapshot, Stats};
use crate::store::GenerationId;

/// What a database remembers about its refreshes.
pub(super) struct Following {
    /// When the database began to serve the current generation.
    swapped: Moment,
    /// When `current` was last known to name the current generation.
    checked: Moment,
    swaps: u64,
    failures: u64,
    last_error: Option<(Error, Moment)>,
    /// The thread that is in a refresh.
    thread: Option<ThreadId>,
}

impl Following {
    /// Creates the state of a database that was opened now.
    pub(super) fn new() -> Following {
        let now = Moment::now();
        Following { swapped: now, checked: now, swaps: 0, failures: 0, last_error: None, thread: None }
    }

    /// Begins a refresh on this thread.
    pub(super) fn begin(&mut self) {
        self.thread = Some(thread::current().id());
    }

    pub(super) fn is_refreshed_by_this_thread(&self) -> bool {
        self.thread == Some(thread::current().id())
    }

    /// Counts a swap, which the caller does under the same lock.
    pub(super) fn note_swap(&mut self) {
        self.note_success();
        self.swapped = self.checked;
        self.swaps += 1;
    }

    fn note_success(&mut self) {
        self.checked = Moment::now();
        self.failures = 0;
    }

    /// Ends the refresh.
    pub(super) fn end<T>(&mut self, result: &Result<T>) {
        self.thread = None;
        match result {
            Ok(_) => self.note_success(),
            Err(error) => {
                self.failures += 1;
                self.note_error(error);
            }
        }
    }

    pub(super) fn note_error(&mut self, error: &Error) {
        self.last_error = Some((error.clone(), Moment::now()));
    }

    pub(super) fn stats(&self, current: &Snapshot, open_generations: usize) -> DatabaseStats {
        let now = Moment::now();
        let since = |when: Moment| now.since(when);
        DatabaseStats {
            generation: current.generation(),
            open_generations,
            swaps: self.swaps,
            served: since(self.swapped),
            age: since(self.checked),
            failures: self.failures,
            last_error: self
                .last_error
                .as_ref()
                .map(|(error, when)| LastError { error: error.clone(), ago: since(*when) }),
            current: current.stats(),
        }
    }
}

/// A point in time. Not known on platforms without a clock (WebAssembly), where databases in memory work.
#[derive(Clone, Copy)]
struct Moment(Option<Instant>);

impl Moment {
    fn now() -> Moment {
        Moment(if cfg!(all(target_family = "wasm", target_os = "unknown")) { None } else { Some(Instant::now()) })
    }

    /// Returns the time since an earlier moment; 0 if it is not known.
    fn since(self, earlier: Moment) -> Duration {
        let known = self.0.zip(earlier.0);
        known.map_or(Duration::ZERO, |(now, earlier)| now.saturating_duration_since(earlier))
    }
}

/// Statistics of a database and of how it follows its store; see [`ShardDb::stats`](crate::ShardDb::stats).
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let stats = sharddb::ShardDb::open("store")?.stats();
/// println!("the data is at most {:?} old", stats.age);
/// if stats.failures > 0 {
///     println!("{:?}", stats.last_error.map(|last| last.error));
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DatabaseStats {
    /// The id of the current generation; `None` for a bare directory.
    pub generation: Option<GenerationId>,
    /// The number of open generations; see [`ShardDb::open_generations`](crate::ShardDb::open_generations).
    pub open_generations: usize,
    /// How often a refresh has changed the current generation.
    pub swaps: u64,
    /// The time since the current generation was opened or swapped in.
    pub served: Duration,
    /// The age of the data: the time since the database was opened or a refresh last succeeded, found something or not.
    /// A generation that was published earlier is served.
    ///
    /// A refresh succeeds every interval of a [watch](crate::ShardDb::watch): a larger age means that refreshes fail, or
    /// that the watch has ended.
    pub age: Duration,
    /// The number of refreshes that failed since the last one that succeeded.
    pub failures: u64,
    /// The last error of a refresh, or of a hook of a watch; `None` if there was none.
    pub last_error: Option<LastError>,
    /// The statistics of the current generation.
    pub current: Stats,
}

/// The last error of a refresh or of a hook; see [`DatabaseStats`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastError {
    /// The error.
    pub error: Error,
    /// The time since it occurred.
    pub ago: Duration,
}
