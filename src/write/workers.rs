//! The worker threads, which encode, checksum and spill batches while the caller fills the next one.
//!
//! If the process cannot start all threads, fewer work; without any, the caller performs the tasks itself. Every task
//! returns exactly one result, even if it panics, so no caller waits forever.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::error::{self, Error, Result};
use crate::format::locks::lock;
use crate::format::spec::{Encoding, ShardingSpec};
use crate::fs::owning_process::OwningProcess;
use crate::plan::KeyStats;
use crate::threads::progress::Progress;
use crate::write::SortedPairs;
use crate::write::arena::Arena;
use crate::write::batch::{Batch, Totals};
use crate::write::duplicates::Duplicates;
use crate::write::memory_pairs::{BandedBatch, MemoryPairs};
use crate::write::options::BuildOptions;
use crate::write::run::{Run, run_path};

/// A task for a worker thread.
pub(crate) enum Task {
    /// Encode and checksum the pairs of a batch.
    Encode(Batch),
    /// Sort the pairs of batches and write them as a run.
    Spill { batches: Vec<Batch>, order: ShardingSpec },
    /// Put the pairs of a batch into the order of bands.
    Band(Batch, ShardingSpec),
    /// Read a run and write it in another order.
    Resort { run: Run, order: ShardingSpec, batch_len: usize },
    #[cfg(test)]
    Panic,
}

/// The result of a task.
pub(crate) enum Done {
    Encoded {
        batch: Batch,
        totals: Totals,
        cost_before: usize,
    },
    /// The result of `Spill` and of `Resort`.
    RunWritten {
        run: Run,
        dropped: u64,
        memory: Vec<Arena>,
        cost_before: usize,
    },
    Banded(BandedBatch),
}

/// The worker threads of a loader.
pub(crate) struct Workers {
    /// `None` only during drop.
    channels: Option<Channels>,
    threads: Vec<JoinHandle<()>>,
    owner: OwningProcess,
    under_way: usize,
    /// Performs the tasks on the calling thread if there are no worker threads.
    own: Worker,
    /// Results of tasks that the calling thread performed.
    own_done: VecDeque<Result<Done>>,
    /// Statistics of the pairs encoded by each thread and by the caller.
    stats: Vec<Arc<Mutex<KeyStats>>>,
}

/// The channels for tasks and their results.
struct Channels {
    tasks: Sender<Task>,
    done: Receiver<Result<Done>>,
}

impl Workers {
    /// Starts up to `threads` threads, or fewer if the process cannot start that many.
    pub(crate) fn start(
        options: &BuildOptions,
        duplicates: Duplicates,
        threads: usize,
        data_encoding: Encoding,
        spill_dir: &Path,
    ) -> Workers {
        let (tasks, to_do) = channel();
        let (results, done) = channel();
        let to_do = Arc::new(Mutex::new(to_do));
        let own_stats = Arc::default();
        let worker = |stats: &Arc<Mutex<KeyStats>>| Worker {
            duplicates,
            data_encoding,
            spill_dir: spill_dir.to_path_buf(),
            progress: options.progress.clone(),
            stats: options.spec.is_none().then(|| stats.clone()),
        };
        let own = worker(&own_stats);
        let spawn = |_| {
            let stats = Arc::default();
            let (worker, to_do, results) = (worker(&stats), to_do.clone(), results.clone());
            let thread = std::thread::Builder::new().spawn(move || worker.work(&to_do, &results)).ok()?;
            Some((thread, stats))
        };
        let (threads, mut stats): (Vec<_>, Vec<_>) = (0..threads).map_while(spawn).unzip();
        stats.push(own_stats);
        let (channels, owner) = (Some(Channels { tasks, done }), OwningProcess::this_process());
        Workers { channels, threads, owner, under_way: 0, own, own_done: VecDeque::new(), stats }
    }

    /// Returns the number of tasks whose result was not taken yet.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Returns the number of threads that perform tasks; 1 if it is only the caller.
    pub(crate) fn count(&self) -> usize {
        self.threads.len().max(1)
    }

    /// Queues a task for the threads; without threads, performs it now.
    ///
    /// Errors: `InvalidInput` in a forked child, which does not inherit the threads.
    pub(crate) fn give(&mut self, task: Task) -> Result<()> {
        self.check_owner()?;
        self.under_way += 1;
        if self.threads.is_empty() {
            self.own_done.push_back(self.own.perform(task));
            return Ok(());
        }
        self.channels()?.tasks.send(task).map_err(|_| ended())
    }

    /// Returns the result of a finished task, if there is one. Does not wait.
    pub(crate) fn try_wait(&mut self) -> Result<Option<Done>> {
        let own = self.own_done.pop_front();
        let done = || self.channels.as_ref()?.done.try_recv().ok();
        let Some(done) = own.or_else(done) else { return Ok(None) };
        self.under_way -= 1;
        done.map(Some)
    }

    /// Waits for the result of a task; at least one task must be under way.
    ///
    /// Errors: that of the task; `InvalidInput` in a forked child, which does not inherit the threads.
    pub(crate) fn wait(&mut self) -> Result<Done> {
        self.check_owner()?;
        let done = match self.own_done.pop_front() {
            Some(done) => done,
            None if self.threads.is_empty() => return Err(ended()),
            None => self.channels()?.done.recv().map_err(|_| ended())?,
        };
        self.under_way -= 1;
        done
    }

    fn check_owner(&self) -> Result<()> {
        if self.owner.is_this_process() {
            Ok(())
        } else {
            Err(Error::invalid_input(
                "expected the process that began the build, found a forked child of it: begin another build",
            ))
        }
    }

    fn channels(&self) -> Result<&Channels> {
        self.channels.as_ref().ok_or_else(ended)
    }

    /// Returns the statistics of all encoded pairs.
    pub(crate) fn stats(&self) -> KeyStats {
        let mut all = KeyStats::new();
        self.stats.iter().for_each(|stats| all.merge(&lock(stats)));
        all
    }
}

impl Drop for Workers {
    /// Ends the threads. A forked child does not have them: joining them or locking a channel could wait forever there.
    fn drop(&mut self) {
        let (channels, threads) = (self.channels.take(), std::mem::take(&mut self.threads));
        if !self.owner.is_this_process() {
            std::mem::forget((channels, threads));
            return;
        }
        drop(channels); // the threads end when the task channel closes
        for thread in threads {
            let _ = thread.join();
        }
    }
}

#[cold]
fn ended() -> Error {
    Error::internal("the threads of the loader ended early")
}

/// Returns the error for a panic in a thread of the loader.
#[cold]
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Error {
    error::panicked("a thread of the loader", panic)
}

/// Performs tasks, on a worker thread or on the calling thread.
struct Worker {
    duplicates: Duplicates,
    data_encoding: Encoding,
    spill_dir: PathBuf,
    progress: Progress,
    /// `Some` if a specification is to be planned.
    stats: Option<Arc<Mutex<KeyStats>>>,
}

impl Worker {
    fn work(&self, to_do: &Mutex<Receiver<Task>>, results: &Sender<Result<Done>>) {
        loop {
            let task = lock(to_do).recv();
            let Ok(task) = task else { return };
            if results.send(self.perform(task)).is_err() {
                return;
            }
        }
    }

    /// Performs a task; turns a panic into an error.
    fn perform(&self, task: Task) -> Result<Done> {
        let performed = catch_unwind(AssertUnwindSafe(|| match task {
            Task::Encode(batch) => self.encode(batch),
            Task::Spill { batches, order } => self.spill(batches, order),
            Task::Band(batch, spec) => BandedBatch::in_pieces(&batch, &spec).map(Done::Banded),
            Task::Resort { run, order, batch_len } => self.resort(run, order, batch_len),
            #[cfg(test)]
            Task::Panic => panic!("of a test"),
        }));
        performed.unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    fn encode(&self, batch: Batch) -> Result<Done> {
        let cost_before = batch.cost();
        let mut stats = self.stats.as_ref().map(|stats| lock(stats));
        let (batch, totals) = batch.encode(self.data_encoding, stats.as_deref_mut())?;
        Ok(Done::Encoded { batch, totals, cost_before })
    }

    fn spill(&self, batches: Vec<Batch>, order: ShardingSpec) -> Result<Done> {
        let number = batches.first().map_or(0, |batch| batch.number);
        let cost_before = batches.iter().map(Batch::cost).sum();
        let (run, dropped, memory) = self.write_run(run_path(&self.spill_dir, number), batches, order)?;
        Ok(Done::RunWritten { run, dropped, memory, cost_before })
    }

    fn resort(&self, in_old_order: Run, order: ShardingSpec, batch_len: usize) -> Result<Done> {
        let path = in_old_order.path().with_extension("sorted");
        let batches = in_old_order.open()?.read_batches(batch_len)?;
        let (run, dropped, _) = self.write_run(path, batches, order)?;
        in_old_order.remove()?;
        self.progress.add(run.value_region_bytes());
        Ok(Done::RunWritten { run, dropped, memory: Vec::new(), cost_before: 0 })
    }

    /// Writes batches as a run. Returns the run, the number of dropped pairs and the memory of the batches.
    fn write_run(&self, path: PathBuf, batches: Vec<Batch>, order: ShardingSpec) -> Result<(Run, u64, Vec<Arena>)> {
        let banded = batches.into_iter().map(|batch| BandedBatch::in_place(batch, &order));
        let pairs = MemoryPairs::new(banded.collect::<Result<_>>()?, order, self.duplicates, None);
        let mut sorted = pairs.all();
        let run = Run::write(path, order, self.duplicates, pairs.headers_at_most(), &mut sorted)?;
        Ok((run, sorted.dropped(), sorted.into_memory().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn workers(threads: usize) -> Workers {
        Workers::start(
            &BuildOptions::new(),
            Duplicates::Refuse,
            threads,
            Encoding::Raw,
            Path::new("no spill directory"),
        )
    }

    /// Every task returns one result, with threads and without.
    #[test]
    fn a_panic_is_an_error_and_the_next_task_is_done() {
        for threads in [0, 1, 3] {
            let mut workers = workers(threads);
            for _ in 0..5 {
                workers.give(Task::Panic).unwrap();
                workers.give(Task::Encode(Batch::default())).unwrap();
            }
            assert_eq!(workers.under_way(), 10);
            let (mut panics, mut encoded) = (0, 0);
            while workers.under_way() > 0 {
                match workers.wait() {
                    Ok(Done::Encoded { .. }) => encoded += 1,
                    Ok(_) => unreachable!("no such task was given"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Internal);
                        assert!(error.to_string().contains("of a test"), "{error}");
                        panics += 1;
                    }
                }
            }
            assert_eq!((panics, encoded), (5, 5), "{threads} threads");
            assert!(workers.try_wait().unwrap().is_none());
        }
    }
}
