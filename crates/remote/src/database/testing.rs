//! An `ObjectStore` for tests: it records reads, holds them back, and changes answers.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ::object_store::path::Path;
use ::object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures_util::stream::BoxStream;
use tokio::task::yield_now;

/// What a test does to the answer of a read: the read, its position among all reads, the answer.
pub(crate) type Change = Box<dyn Fn(&Seen, usize, Result<GetResult>) -> Result<GetResult> + Send + Sync>;

/// A read that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) object: String,
    pub(crate) range: Option<Range<u64>>,
    pub(crate) if_match: Option<String>,
    pub(crate) if_none_match: Option<String>,
}

/// A store that passes everything on.
pub(crate) struct Recorder<S> {
    inner: S,
    change: Mutex<Option<Change>>,
    is_closed: AtomicBool,
    /// The time of a read.
    latency: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    in_flight: usize,
    most_in_flight: usize,
}

impl<S: ObjectStore> Recorder<S> {
    pub(crate) fn new(inner: S) -> Recorder<S> {
        Recorder::with_latency(inner, Duration::ZERO)
    }

    /// A store whose reads take `latency` each.
    pub(crate) fn with_latency(inner: S, latency: Duration) -> Recorder<S> {
        let is_closed = AtomicBool::new(false);
        Recorder { inner, change: Mutex::default(), is_closed, latency, state: Mutex::default() }
    }

    /// Changes the answers from now on.
    pub(crate) fn change(
        &self,
        change: impl Fn(&Seen, usize, Result<GetResult>) -> Result<GetResult> + Send + Sync + 'static,
    ) {
        *self.change.lock().unwrap() = Some(Box::new(change));
    }

    /// Passes answers on as they are again.
    pub(crate) fn repair(&self) {
        *self.change.lock().unwrap() = None;
    }

    /// Holds reads back until `open`.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
    }

    /// The reads since the last call.
    pub(crate) fn take_requests(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state().seen)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.state().in_flight
    }

    pub(crate) fn most_in_flight(&self) -> usize {
        self.state().most_in_flight
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Records a read; returns its position.
    fn begin(&self, seen: &Seen) -> usize {
        let mut state = self.state();
        state.seen.push(seen.clone());
        state.in_flight += 1;
        state.most_in_flight = state.most_in_flight.max(state.in_flight);
        state.seen.len() - 1
    }
}

/// Counts a read as ended, also one that was dropped.
struct InFlight<'a>(&'a Mutex<State>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().in_flight -= 1;
    }
}

impl<S> fmt::Debug for Recorder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

impl<S> fmt::Display for Recorder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

#[async_trait::async_trait]
impl<S: ObjectStore> ObjectStore for Recorder<S> {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let range = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.clone()),
            None => None,
            Some(other) => panic!("expected a bounded range, found {other}"),
        };
        let (if_match, if_none_match) = (options.if_match.clone(), options.if_none_match.clone());
        let seen = Seen { object: location.to_string(), range, if_match, if_none_match };
        let at = self.begin(&seen);
        let _in_flight = InFlight(&self.state);
        for _ in 0..64 {
            yield_now().await; // so that others begin before this one ends
        }
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        while self.is_closed.load(Ordering::SeqCst) {
            yield_now().await;
        }
        let answer = self.inner.get_opts(location, options).await;
        match &*self.change.lock().unwrap() {
            Some(change) => change(&seen, at, answer),
            None => answer,
        }
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Runs a future on a small runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(future)
}
