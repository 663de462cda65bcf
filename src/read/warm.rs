//! Bringing a mapped generation into memory while it is already being read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::read::snapshot::Snapshot;

impl Snapshot {
    /// Reads all pages of a mapped generation into memory, shard by shard, on a thread of its own.
    ///
    /// For data that fits into memory and a program that does not want to wait for it, after a restart for example: lookups
    /// go on meanwhile. What [`OpenOptions::populate`](crate::OpenOptions::populate) does when a shard is opened. Linux forms
    /// huge pages of what it reads, where the file system has them; a lookup in those costs less. Nothing happens to shards
    /// that are not mapped.
    ///
    /// Errors: `Io` if there can be no thread. A shard that cannot be opened is left to the lookups.
    ///
    /// ```no_run
    /// # fn main() -> sharddb::Result<()> {
    /// // SAFETY: nobody edits the files of this store.
    /// let snapshot = unsafe { sharddb::ShardDb::open("store")? }.snapshot();
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
                }
            }
        };
        let thread = thread::Builder::new().name("sharddb-warm".to_string()).spawn(work);
        let thread = thread.map_err(|error| Error::io("start a thread to warm", self.directory(), error))?;
        Ok(Warming { thread: Some(thread), cancelled })
    }
}

/// A generation on its way into memory; see [`Snapshot::warm`]. Dropped, it ends soon.
#[derive(Debug)]
#[must_use = "dropped, it ends"]
pub struct Warming {
    thread: Option<JoinHandle<()>>,
    cancelled: Arc<AtomicBool>,
}

impl Warming {
    /// Whether all is in memory that will be.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until all is in memory.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it only asks the system for pages
        }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
