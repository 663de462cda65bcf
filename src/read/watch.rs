//! A thread that refreshes databases: it checks their stores at intervals, opens new generations, calls the hooks of the
//! application, swaps, and unmaps generations that are no longer in use.

use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result, panicked};
use crate::format::locks::lock;
use crate::fs::owning_process::OwningProcess;
use crate::read::database::{ShardDb, Swap};
use crate::read::snapshot::Snapshot;
use crate::store::GenerationId;

/// Lower bound on the interval.
const SHORTEST: Duration = Duration::from_millis(1);

/// The time between two attempts to unmap a generation that was in use at the last one.
const RELEASE_EVERY: Duration = Duration::from_millis(100);

/// Upper bound on the number of intervals between two attempts to open a generation that failed.
const LONGEST_PAUSE: u32 = 64;

type BeforeSwap = dyn Fn(&Snapshot) -> Result<(), Box<dyn StdError + Send + Sync>> + Send + Sync;
type AfterSwap = dyn Fn(&Snapshot, &Snapshot) + Send + Sync;

impl ShardDb {
    /// Follows new generations on a thread, which ends when the returned handle is dropped. It checks the store at once,
    /// and then every `interval`.
    ///
    /// [`WatchOptions`] has hooks before and after a swap, and watches many databases on one thread.
    /// [`stats`](ShardDb::stats) returns the age of the data and the last error.
    ///
    /// # Errors
    ///
    /// Those of [`WatchOptions::start`].
    ///
    /// ```
    /// # let store = std::env::temp_dir().join(format!("sharddb-watch-doc-{}", std::process::id()));
    /// # let mut loader = sharddb::BulkLoader::create(&store)?;
    /// # loader.insert(42, b"old")?;
    /// # loader.finish()?;
    /// use std::time::Duration;
    ///
    /// let db = sharddb::ShardDb::open(&store)?;
    /// let watch = db.watch(Duration::from_millis(10))?;
    /// # let mut loader = sharddb::BulkLoader::create(&store)?;
    /// # loader.insert(42, b"new")?;
    /// # loader.finish()?;
    /// // .. another process publishes a generation ..
    /// while db.stats().swaps == 0 {
    ///     std::thread::sleep(Duration::from_millis(1));
    /// }
    /// assert_eq!(db.get(42)?.unwrap(), b"new");
    /// drop(watch);
    /// # std::fs::remove_dir_all(&store).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn watch(&self, interval: Duration) -> Result<Watch> {
        WatchOptions::new().interval(interval).start([self.clone()])
    }
}

/// Options for following new generations on a thread.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// use std::ops::ControlFlow;
/// use sharddb::WatchOptions;
///
/// // SAFETY: nobody edits the files of this store.
/// let db = unsafe { sharddb::ShardDb::open_mapped("store")? };
/// let watch = WatchOptions::new()
///     .before_swap(|new| {
///         if new.get(42)?.is_none() {
///             return Err("the new generation lacks key 42".into());
///         }
///         // verifies everything and prepares lookups, so that none of them has to
///         let scanned = new.scan(|pair| pair.map_or_else(ControlFlow::Break, |_| ControlFlow::Continue(())));
///         scanned.break_value().map_or(Ok(()), Err)?;
///         new.warm()?.wait();
///         Ok(())
///     })
///     .after_swap(|old, new| eprintln!("{:?} replaces {:?}", new.generation(), old.generation()))
///     .start([db.clone()])?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct WatchOptions {
    interval: Duration,
    before_swap: Option<Arc<BeforeSwap>>,
    after_swap: Option<Arc<AfterSwap>>,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions { interval: Duration::from_secs(1), before_swap: None, after_swap: None }
    }
}

impl WatchOptions {
    /// Creates the default options.
    pub fn new() -> WatchOptions {
        WatchOptions::default()
    }

    /// Sets the time between two looks at the stores, at least a millisecond. Default: 1 second.
    pub fn interval(&mut self, interval: Duration) -> &mut WatchOptions {
        self.interval = interval.max(SHORTEST);
        self
    }

    /// Sets a function that is called with each new generation when it is open and before it is served, to validate it
    /// or to read it into memory. Default: none.
    ///
    /// If it returns an error or panics, the old generation stays current, and the error is the last one of
    /// [`ShardDb::stats`]. An error of ShardDb keeps its kind; any other is `Cancelled`. The function is called again for the
    /// same generation after 1, 2, 4 and up to 64 intervals, and at once when `current` names another generation. With several
    /// databases, [`Snapshot::directory`] states which one it is.
    ///
    /// Lookups never wait for it. [`ShardDb::refresh`] waits, and swaps without calling it; called by the function
    /// itself for the same database, it is an error of kind `InvalidInput`.
    pub fn before_swap<F>(&mut self, f: F) -> &mut WatchOptions
    where
        F: Fn(&Snapshot) -> Result<(), Box<dyn StdError + Send + Sync>> + Send + Sync + 'static,
    {
        self.before_swap = Some(Arc::new(f));
        self
    }

    /// Sets a function that is called after each swap of this watch with the old and the new generation. Default: none.
    ///
    /// It is called by the thread of the watch, after lookups have begun to use the new generation. A panic is recorded
    /// as the last error of [`ShardDb::stats`]. It is not called for a swap by [`ShardDb::refresh`].
    pub fn after_swap(&mut self, f: impl Fn(&Snapshot, &Snapshot) + Send + Sync + 'static) -> &mut WatchOptions {
        self.after_swap = Some(Arc::new(f));
        self
    }

    /// Starts one thread that follows the stores of all these databases. It checks each of them at once, and then every
    /// interval. The databases stay open while the watch lives.
    ///
    /// An error keeps the old generation, and the thread continues. The thread also unmaps retired generations, within
    /// 100 ms after their last reader or at the next check, whichever is earlier; shards that only values refer to, at
    /// the next check. So no reader waits for the unmapping.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a database that stays with one generation, because it was opened by the directory of a
    /// generation, from a bare directory, or from pairs; `Io` if the thread cannot be started.
    pub fn start(&self, databases: impl IntoIterator<Item = ShardDb>) -> Result<Watch> {
        let followers = databases.into_iter().map(Follower::new).collect::<Result<Vec<_>>>()?;
        let signal = Arc::new(Signal::default());
        let (options, thread_signal) = (self.clone(), signal.clone());
        let run = move || run(followers, &options, &thread_signal);
        let thread = thread::Builder::new().name("sharddb-watch".to_string()).spawn(run);
        let thread = thread.map_err(|error| Error::io("start a thread to watch", "".as_ref(), error))?;
        Ok(Watch { thread: Some(thread), signal, owner: OwningProcess::this_process() })
    }

    fn accept(&self, new: &Snapshot) -> Result<()> {
        let Some(before_swap) = &self.before_swap else { return Ok(()) };
        before_swap(new).map_err(|error| {
            let refused = "the hook `before_swap` refused the generation";
            let error = match error.downcast::<Error>() {
                Ok(error) => error.context(refused),
                Err(error) => Error::new(ErrorKind::Cancelled, format!("{refused}: {error}")),
            };
            error.at_path(new.directory())
        })
    }
}

impl fmt::Debug for WatchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchOptions").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// A thread that follows new generations; see [`ShardDb::watch`].
///
/// Dropping it ends the thread and waits for it: not for the interval, but for a check in progress, with its hooks. No
/// hook is called afterwards. Dropped by a hook, it does not wait.
///
/// # Fork
///
/// A forked child has no such thread, and its databases stay with their generations; dropping the watch there does
/// nothing. End the watch before a fork, because the thread may hold locks of the database, and start one in each
/// process after it.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let db = sharddb::ShardDb::open("store")?;
/// let watch = db.watch(std::time::Duration::from_secs(60))?;
/// watch.check_now(); // on a signal, for example
/// # Ok(()) }
/// ```
#[must_use = "dropping it ends the watch"]
pub struct Watch {
    thread: Option<JoinHandle<()>>,
    signal: Arc<Signal>,
    owner: OwningProcess,
}

impl Watch {
    /// Makes the thread check all stores now instead of at the end of the interval, generations that failed before
    /// included. Does not wait for it.
    pub fn check_now(&self) {
        self.signal.request().check = true;
        self.signal.changed.notify_all();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // in a forked child there is no thread, and the lock may be held for ever
        let Some(thread) = self.thread.take().filter(|_| self.owner.is_this_process()) else { return };
        self.signal.request().stop = true;
        self.signal.changed.notify_all();
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join(); // it does not panic, and there is nobody to report it to
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// What the handle asks of the thread.
#[derive(Default)]
struct Signal {
    request: Mutex<Request>,
    changed: Condvar,
}

#[derive(Default)]
struct Request {
    stop: bool,
    check: bool,
}

/// Why a wait ended.
#[derive(PartialEq, Eq)]
enum Wake {
    Stop,
    Check,
    Timeout,
}

impl Signal {
    fn request(&self) -> MutexGuard<'_, Request> {
        lock(&self.request)
    }

    fn is_stopped(&self) -> bool {
        self.request().stop
    }

    fn wait(&self, timeout: Duration) -> Wake {
        let request = self.request();
        let waited = self.changed.wait_timeout_while(request, timeout, |request| !request.stop && !request.check);
        let (mut request, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (request.stop, std::mem::take(&mut request.check)) {
            (true, _) => Wake::Stop,
            (false, true) => Wake::Check,
            (false, false) => Wake::Timeout,
        }
    }
}

/// The work of the thread.
fn run(mut followers: Vec<Follower>, options: &WatchOptions, signal: &Signal) {
    loop {
        for follower in &mut followers {
            if signal.is_stopped() {
                return;
            }
            follower.check(options);
        }
        match wait(&followers, options.interval, signal) {
            Wake::Stop => return,
            Wake::Check => followers.iter_mut().for_each(Follower::end_pause),
            Wake::Timeout => {}
        }
    }
}

/// Waits for the end of the interval or for a request. Unmaps generations whose last reader ends meanwhile.
fn wait(followers: &[Follower], interval: Duration, signal: &Signal) -> Wake {
    let mut left = interval;
    loop {
        let has_retired = followers.iter().any(|follower| follower.db.has_retired());
        let step = if has_retired { left.min(RELEASE_EVERY) } else { left };
        let wake = signal.wait(step);
        left = left.saturating_sub(step);
        if wake != Wake::Timeout || left.is_zero() {
            return wake;
        }
        followers.iter().for_each(|follower| follower.db.release_unread());
    }
}

/// A database that is watched.
struct Follower {
    db: ShardDb,
    /// The number of attempts that failed since the last one that did not.
    failures: u32,
    /// The generation that `current` named when the last attempt failed; `None` if `current` could not be read.
    failed: Option<GenerationId>,
    /// The number of intervals to wait before the next attempt, unless `current` changes.
    pause: u32,
}

impl Follower {
    fn new(db: ShardDb) -> Result<Follower> {
        if db.follows() {
            return Ok(Follower { db, failures: 0, failed: None, pause: 0 });
        }
        let message = "expected a database that was opened by the path of a store, found one that stays with its \
                       generation: open the store instead, which follows `current`";
        Err(Error::invalid_input(message).at_path(db.snapshot().directory()))
    }

    fn end_pause(&mut self) {
        self.pause = 0;
    }

    /// Refreshes the database, unless the current generation has failed and its pause is not over.
    fn check(&mut self, options: &WatchOptions) {
        if self.pause > 0 && self.failed == self.db.named_generation() {
            self.pause -= 1;
            return;
        }
        match self.db.refresh_if(&|new| options.accept(new)) {
            Ok(swap) => {
                (self.failures, self.pause) = (0, 0);
                if let Some(swap) = swap {
                    self.after(options, &swap);
                    drop(swap);
                    self.db.release_unread();
                }
            }
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                self.failed = self.db.named_generation();
                self.pause = 1_u32.checked_shl(self.failures - 1).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE) - 1;
            }
        }
    }

    fn after(&self, options: &WatchOptions, swap: &Swap) {
        let Some(after_swap) = &options.after_swap else { return };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| after_swap(&swap.old, &swap.new))) {
            self.db.note_error(&panicked("the hook `after_swap`", &*panic));
        }
    }
}
