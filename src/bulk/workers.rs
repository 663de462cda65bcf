//! The threads that encode, check and spill batches while the caller fills the next one.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::bulk::SortedPairs;
use crate::bulk::arena::Arena;
use crate::bulk::batch::{Batch, Seen};
use crate::bulk::memory_pairs::{MemoryPairs, SlicedBatch};
use crate::bulk::options::{BuildOptions, BuildProgress, OnDuplicate};
use crate::bulk::run::{Run, run_path};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::KeyStats;
use crate::spec::{Encoding, ShardingSpec};

/// What a thread is to do.
pub(crate) enum Task {
    /// Make memory of this capacity ready to be filled, so many bytes of it.
    Prepare { capacity: usize, len: usize },
    /// Encode and check the pairs of a batch.
    Encode(Batch),
    /// Sort the pairs of batches and write them as a run.
    Spill { batches: Vec<Batch>, order: ShardingSpec },
    /// Put a batch into slices.
    Slice(Batch, ShardingSpec),
    /// Read a run and write it in another order.
    Resort { number: u64, run: Run, order: ShardingSpec, batch_len: usize },
}

/// What a thread has done.
pub(crate) enum Done {
    Prepared(Arena),
    Encoded { batch: Batch, seen: Seen, cost_before: usize },
    Spilled { number: u64, run: Run, dropped: u64, memory: Vec<Arena>, cost_before: usize },
    Sliced(SlicedBatch),
}

/// Threads at work.
pub(crate) struct Workers {
    tasks: Option<Sender<Task>>,
    done: Receiver<Result<Done>>,
    threads: Vec<JoinHandle<()>>,
    under_way: usize,
    /// Each thread counts the keys that it encodes.
    stats: Vec<Arc<Mutex<KeyStats>>>,
}

impl Workers {
    pub(crate) fn start(
        options: &BuildOptions,
        threads: usize,
        data_encoding: Encoding,
        spill_dir: PathBuf,
    ) -> Workers {
        let (tasks, to_do) = channel();
        let (tell, done) = channel();
        let to_do = Arc::new(Mutex::new(to_do));
        let stats: Vec<Arc<Mutex<KeyStats>>> = (0..threads).map(|_| Arc::default()).collect();
        let threads = stats.iter().map(|stats| {
            let worker = Worker {
                on_duplicate: options.on_duplicate,
                data_encoding,
                spill_dir: spill_dir.clone(),
                progress: options.progress.clone(),
                stats: options.spec.is_none().then(|| stats.clone()),
            };
            let (to_do, tell) = (to_do.clone(), tell.clone());
            std::thread::spawn(move || worker.work(&to_do, &tell))
        });
        Workers { tasks: Some(tasks), done, threads: threads.collect(), under_way: 0, stats }
    }

    /// Tasks that are not done yet.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Gives a task to the threads.
    pub(crate) fn give(&mut self, task: Task) -> Result<()> {
        self.under_way += 1;
        match &self.tasks {
            Some(tasks) if tasks.send(task).is_ok() => Ok(()),
            _ => Err(ended()),
        }
    }

    /// What was done, if anything is; does not wait.
    pub(crate) fn try_wait(&mut self) -> Result<Option<Done>> {
        let Ok(done) = self.done.try_recv() else { return Ok(None) };
        self.under_way -= 1;
        done.map(Some)
    }

    /// Waits for a task to be done.
    pub(crate) fn wait(&mut self) -> Result<Done> {
        let done = self.done.recv().map_err(|_| ended())?;
        self.under_way -= 1;
        done
    }

    /// The statistics of all pairs that were encoded.
    pub(crate) fn stats(&self) -> KeyStats {
        let mut all = KeyStats::new();
        self.stats.iter().for_each(|stats| all.merge(&locked(stats)));
        all
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.tasks = None; // the threads end when there is nothing more to do
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cold]
fn ended() -> Error {
    Error::new(ErrorKind::Cancelled, "a thread of the loader ended early")
}

fn locked(stats: &Mutex<KeyStats>) -> std::sync::MutexGuard<'_, KeyStats> {
    stats.lock().unwrap_or_else(PoisonError::into_inner)
}

fn prepare(capacity: usize, len: usize) -> Result<Done> {
    let mut memory = Batch::memory(capacity)?;
    memory.touch(len);
    Ok(Done::Prepared(memory))
}

/// One of the threads.
struct Worker {
    on_duplicate: OnDuplicate,
    data_encoding: Encoding,
    spill_dir: PathBuf,
    progress: Arc<BuildProgress>,
    /// Where a specification is to be planned.
    stats: Option<Arc<Mutex<KeyStats>>>,
}

impl Worker {
    fn work(&self, to_do: &Mutex<Receiver<Task>>, tell: &Sender<Result<Done>>) {
        loop {
            let task = to_do.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let done = match task {
                Ok(Task::Prepare { capacity, len }) => prepare(capacity, len),
                Ok(Task::Encode(batch)) => self.encode(batch),
                Ok(Task::Spill { batches, order }) => self.spill(batches, order),
                Ok(Task::Slice(batch, spec)) => SlicedBatch::in_pieces(&batch, &spec).map(Done::Sliced),
                Ok(Task::Resort { number, run, order, batch_len }) => self.resort(number, &run, order, batch_len),
                Err(_) => return,
            };
            if tell.send(done).is_err() {
                return;
            }
        }
    }

    fn encode(&self, batch: Batch) -> Result<Done> {
        let cost_before = batch.cost();
        let mut stats = self.stats.as_ref().map(|stats| locked(stats));
        let (batch, seen) = batch.encode(self.data_encoding, stats.as_deref_mut())?;
        Ok(Done::Encoded { batch, seen, cost_before })
    }

    fn spill(&self, batches: Vec<Batch>, order: ShardingSpec) -> Result<Done> {
        let number = batches.first().map_or(0, |batch| batch.number);
        let cost_before = batches.iter().map(Batch::cost).sum();
        let (run, dropped, memory) = self.write_run(run_path(&self.spill_dir, number), batches, order)?;
        Ok(Done::Spilled { number, run, dropped, memory, cost_before })
    }

    fn resort(&self, number: u64, run: &Run, order: ShardingSpec, batch_len: usize) -> Result<Done> {
        let path = run_path(&self.spill_dir, number).with_extension("sorted");
        let (run, dropped, _) = self.write_run(path, run.read_batches(batch_len)?, order)?;
        self.progress.add(run.len());
        Ok(Done::Spilled { number, run, dropped, memory: Vec::new(), cost_before: 0 })
    }

    /// Writes batches as a run; returns how many pairs were dropped and the memory of the batches too.
    fn write_run(&self, path: PathBuf, batches: Vec<Batch>, order: ShardingSpec) -> Result<(Run, u64, Vec<Arena>)> {
        let sliced = batches.into_iter().map(|batch| SlicedBatch::in_place(batch, &order));
        let pairs = MemoryPairs::new(sliced.collect::<Result<_>>()?, order, self.on_duplicate);
        let mut sorted = pairs.all();
        let run = Run::write(path, order, pairs.headers_at_most(), &mut sorted)?;
        Ok((run, sorted.dropped(), sorted.into_memory().collect()))
    }
}
