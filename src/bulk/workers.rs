//! The threads that encode, check, sort and spill batches while the caller fills the next one.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::bulk::Seen;
use crate::bulk::batch::{Batch, SortEntry};
use crate::bulk::options::{BuildOptions, BuildProgress, OnDuplicate};
use crate::bulk::run::{Run, run_path};
use crate::error::{Error, Result};
use crate::spec::{Encoding, ShardingSpec};

/// A batch of less does not pay a thread of its own.
const MIN_BATCH: usize = 8 << 20;

/// What a thread takes beside its batch: the blocks in which it writes a run.
const THREAD_OVERHEAD: usize = 3 << 20;

/// How batches are sorted.
#[derive(Clone, Copy)]
pub(crate) struct Sorting {
    /// Without one, pairs go to a log as they came.
    pub(crate) spec: Option<ShardingSpec>,
    pub(crate) on_duplicate: OnDuplicate,
}

/// What a thread is to do.
enum Task {
    /// Encode a batch, then sort and spill it.
    Batch(Batch),
    /// Read a segment of the log, then sort and spill it.
    Segment(u64, Run, Vec<u8>),
}

/// What a thread has done: what it saw, and memory to use again.
type Done = Result<(Seen, Vec<u8>)>;

/// Threads at work on batches.
pub(crate) struct Workers {
    tasks: Option<Sender<Task>>,
    done: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
    under_way: usize,
    idle_memory: Vec<Vec<u8>>,
}

impl Workers {
    pub(crate) fn start(
        options: &BuildOptions,
        sorting: Sorting,
        data_encoding: Encoding,
        spill_dir: PathBuf,
    ) -> Workers {
        let memory = usize::try_from(options.memory).unwrap_or(usize::MAX);
        let afforded = (memory / (MIN_BATCH + THREAD_OVERHEAD)).saturating_sub(1); // one batch is the caller's
        let count = options.threads.min(afforded).max(1);
        let (tasks, to_do) = channel();
        let (tell, done) = channel();
        let to_do = Arc::new(Mutex::new(to_do));
        let job = Job { sorting, data_encoding, spill_dir, progress: options.progress.clone() };
        let threads = (0..count).map(|_| {
            let (job, to_do, tell) = (job.clone(), to_do.clone(), tell.clone());
            std::thread::spawn(move || job.work(&to_do, &tell))
        });
        Workers { tasks: Some(tasks), done, threads: threads.collect(), under_way: 0, idle_memory: Vec::new() }
    }

    /// The share of the memory that one batch has: each thread holds one, the caller fills another.
    pub(crate) fn batch_cost(&self, memory: usize) -> usize {
        let threads = self.threads.len();
        memory.saturating_sub(threads * THREAD_OVERHEAD) / (threads + 1)
    }

    /// Memory for the next batch; waits while all threads have one.
    pub(crate) fn free_memory(&mut self, seen: &mut Seen) -> Result<Vec<u8>> {
        while self.under_way >= self.threads.len() {
            self.wait(seen)?;
        }
        Ok(self.idle_memory.pop().unwrap_or_default())
    }

    /// Gives a batch to the threads.
    pub(crate) fn submit(&mut self, batch: Batch) -> Result<()> {
        self.give(Task::Batch(batch))
    }

    /// Waits for all that was submitted.
    pub(crate) fn finish(&mut self, seen: &mut Seen) -> Result<()> {
        while self.under_way > 0 {
            self.wait(seen)?;
        }
        self.idle_memory.clear();
        Ok(())
    }

    /// Sorts all segments of a log.
    pub(crate) fn sort_segments(
        mut self,
        segments: Vec<(u64, Run)>,
        batch_cost: usize,
        seen: &mut Seen,
    ) -> Result<Vec<(u64, Run)>> {
        let mut sorted = Seen::default();
        for (number, segment) in segments {
            let mut memory = self.free_memory(&mut sorted)?;
            memory.reserve_exact(batch_cost);
            self.give(Task::Segment(number, segment, memory))?;
        }
        self.finish(&mut sorted)?;
        seen.dropped += sorted.dropped;
        Ok(std::mem::take(&mut sorted.runs))
    }

    fn give(&mut self, task: Task) -> Result<()> {
        self.under_way += 1;
        let sent = self.tasks.as_ref().map(|tasks| tasks.send(task));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(ended()),
        }
    }

    fn wait(&mut self, seen: &mut Seen) -> Result<()> {
        let (found, memory) = self.done.recv().map_err(|_| ended())??;
        self.under_way -= 1;
        seen.merge(found);
        self.idle_memory.push(memory);
        Ok(())
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
    Error::new(crate::ErrorKind::Cancelled, "a thread of the loader ended early")
}

/// What every thread does with a batch.
#[derive(Clone)]
struct Job {
    sorting: Sorting,
    data_encoding: Encoding,
    spill_dir: PathBuf,
    progress: Arc<BuildProgress>,
}

impl Job {
    fn work(&self, to_do: &Mutex<Receiver<Task>>, tell: &Sender<Done>) {
        loop {
            let task = to_do.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let done = match task {
                Ok(Task::Batch(batch)) => self.spill(batch),
                Ok(Task::Segment(number, segment, memory)) => self.sort_segment(number, &segment, memory),
                Err(_) => return,
            };
            if tell.send(done).is_err() {
                return;
            }
        }
    }

    fn spill(&self, batch: Batch) -> Done {
        let mut seen = Seen::default();
        let planning = self.sorting.spec.is_none();
        let batch = batch.encode(self.data_encoding, |header| seen.see(header, planning))?;
        let path = run_path(&self.spill_dir, batch.number);
        let run = match &self.sorting.spec {
            Some(spec) => self.write_sorted(path, &batch, spec, &mut seen)?,
            None => Run::write_log(path, &batch)?,
        };
        seen.runs.push((batch.number, run));
        Ok((seen, batch.into_memory()))
    }

    fn sort_segment(&self, number: u64, segment: &Run, memory: Vec<u8>) -> Done {
        let mut seen = Seen::default();
        let mut batch = Batch::new(number, memory, 0);
        segment.read_batch(&mut batch)?;
        let path = sorted_path(&self.spill_dir, number);
        if let Some(spec) = &self.sorting.spec {
            let run = self.write_sorted(path, &batch, spec, &mut seen)?;
            self.progress.add(run.len());
            seen.runs.push((number, run));
        }
        Ok((seen, batch.into_memory()))
    }

    fn write_sorted(&self, path: PathBuf, batch: &Batch, spec: &ShardingSpec, seen: &mut Seen) -> Result<Run> {
        let (entries, dropped): (Vec<SortEntry>, u64) = batch.sort(spec, self.sorting.on_duplicate)?;
        seen.dropped += dropped;
        Run::write(path, batch, &entries)
    }
}

fn sorted_path(spill_dir: &Path, number: u64) -> PathBuf {
    spill_dir.join(format!("{number:08}.sorted"))
}
