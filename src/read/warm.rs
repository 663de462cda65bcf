//! Background reading of a mapped generation into memory, concurrent with lookups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::read::snapshot::Snapshot;

impl Snapshot {
    /// Reads all pages of a mapped generation into memory, shard by shard, on a background thread, and then what lookups
    /// keep about minishards: 3 to 7 bytes per minishard.
    ///
    /// For data that fits into memory, after a restart for example: lookups work meanwhile.
    /// [`OpenOptions::populate`](crate::OpenOptions::populate) does the same when a shard is opened. Linux uses huge
    /// pages if the file system supports them, which makes lookups faster. Shards with positioned reads are
    /// skipped. So are shards that cannot be opened: lookups report their errors.
    ///
    /// Nothing is verified, except shard indexes and blocks of the minishard table; a [scan](Snapshot::scan) before this
    /// call verifies the values.
    ///
    /// # Errors
    ///
    /// `Io` if the thread cannot be started.
    ///
    /// ```no_run
    /// # fn main() -> sharddb::Result<()> {
    /// // SAFETY: nobody edits the files of this store.
    /// let snapshot = unsafe { sharddb::ShardDb::open_mapped("store")? }.snapshot();
    /// let warming = snapshot.warm()?;
    /// println!("{:?}", snapshot.get(42)?); // at once
    /// warming.wait();
    /// # Ok(()) }
    /// ```
    pub fn warm(&self) -> Result<Warming> {
        let (snapshot, cancelled) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let is_cancelled = cancelled.clone();
        let work = move || {
            let goes_on = || !is_cancelled.load(Ordering::Relaxed);
            for number in snapshot.generation.shard_numbers().take_while(|_| goes_on()) {
                if let Ok(Some(shard)) = snapshot.generation.shard(number) {
                    shard.reader().populate(&goes_on);
                    if shard.reader().is_mapped_or_loaded() {
                        shard.reader().fill_minishard_map(&goes_on);
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("sharddb-warm".to_string()).spawn(work);
        let thread = thread.map_err(|error| Error::io("start a thread to warm", self.directory(), error))?;
        Ok(Warming { thread: Some(thread), cancelled })
    }
}

/// A background thread that reads a generation into memory; see [`Snapshot::warm`]. Dropping it cancels the work.
#[derive(Debug)]
#[must_use = "dropping it cancels the work"]
pub struct Warming {
    thread: Option<JoinHandle<()>>,
    cancelled: Arc<AtomicBool>,
}

impl Warming {
    /// Returns whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread to end.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic in it affects no lookup
        }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
