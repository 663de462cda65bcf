//! The stages of a build or an update: the pairs are read, then the loader sorts, writes and syncs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sharddb::Progress;
use sharddb::progress::Phase;

use crate::context::Context;
use crate::input::InputProgress;
use crate::progress::{Amount, Display, Status};

pub(super) struct Stages {
    pub(super) build: Progress,
    all_read: Arc<AtomicBool>,
}

impl Stages {
    pub(super) fn new(context: &Context) -> Stages {
        Stages { build: context.interrupt.progress(), all_read: Arc::default() }
    }

    pub(super) fn all_read(&self) {
        self.all_read.store(true, Ordering::Relaxed);
    }

    /// Shows the status of `reading` until all pairs are read, then that of the loader.
    pub(super) fn show(&self, quiet: bool, reading: impl Fn() -> Status + Send + 'static) -> Display {
        let (build, all_read) = (self.build.clone(), Arc::clone(&self.all_read));
        Display::start(quiet, move || if all_read.load(Ordering::Relaxed) { status_of(&build) } else { reading() })
    }
}

/// The status of a loader that has all pairs.
pub(super) fn status_of(build: &Progress) -> Status {
    let status = Status::of_work(build.phase().as_str(), build);
    match build.phase() {
        Phase::Insert => Status::of_phase("sort", status.number), // counts what was inserted, not what is sorted
        Phase::Publish => Status::of_phase("sync", status.number),
        _ => status,
    }
}

/// The status of inputs that are read.
pub(super) fn reading_inputs(input: &Arc<InputProgress>) -> impl Fn() -> Status + Send + 'static {
    let input = Arc::clone(input);
    move || Status { phase: "read", number: 0, part: input.fraction(), amount: Amount::Bytes(input.bytes()) }
}

/// The status of a database or another container that is read.
pub(super) fn reading_source(read: &Progress) -> impl Fn() -> Status + Send + 'static {
    let read = read.clone();
    move || Status { number: 0, ..Status::of_work("read", &read) }
}
