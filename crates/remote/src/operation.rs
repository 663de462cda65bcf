//! An operation of the reader as a state machine without I/O: requests come out, responses go in.
//!
//! The compiler writes the state machine: an operation is an `async` block whose only leaf futures are the responses of
//! its [`Exchange`]. There is no runtime, no thread, no timer and no waker in it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sharddb_format::Result;
use sharddb_format::internal::locks::lock;

use crate::request::{Failure, Request, Response, Wanted};
use crate::shared_request::{RequestId, Role, SharedRequest};

/// Upper bound on the bytes of the requests of an operation that are in flight at a time, unless a single one is longer.
pub(crate) const IN_FLIGHT_BYTES: u64 = 32 << 20;

/// An operation that needs reads from an object store: a lookup, for example.
///
/// The caller performs the requests, in any order and number at a time, and polls in between:
///
/// 1. [`poll`](Operation::poll). `Ready` is the result.
/// 2. [`next_request`](Operation::next_request) until it returns `None`; perform them, and give each answer to
///    [`answer`](Operation::answer).
/// 3. Poll again after each answer. An operation waits for nothing else.
///
/// Dropping an operation cancels it. The adapters of this crate (feature `object_store`) and of the Python package do all that,
/// and perform a request that several operations make at the same time once: see [`RequestId::shared`].
///
/// ```
/// use std::task::Poll;
///
/// use sharddb_remote::{Operation, Request, Response};
///
/// fn run<T>(
///     mut operation: Operation<'_, T>,
///     mut perform: impl FnMut(&Request) -> Response,
/// ) -> sharddb::Result<T> {
///     loop {
///         if let Poll::Ready(result) = operation.poll() {
///             return result;
///         }
///         while let Some((id, request)) = operation.next_request() {
///             operation.answer(id, Ok(perform(&request)));
///         }
///     }
/// }
/// ```
#[must_use = "an operation does nothing unless it is polled"]
pub struct Operation<'a, T> {
    future: Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>,
    exchange: Exchange,
}

/// What an operation cost so far. A request that it shares with an operation that has made it before is a cache hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationStats {
    /// Requests that were made.
    pub requests: u64,
    /// Bytes of all responses.
    pub bytes: u64,
    /// Blocks that were found in the cache, in a block store, or in the response to another operation.
    pub cache_hits: u64,
    /// The time from the beginning to the result, as `RemoteDb::run` measures it. Zero in [`Operation::stats`], which has no
    /// clock.
    pub elapsed: Duration,
}

impl<'a, T> Operation<'a, T> {
    /// Creates an operation from a future that makes its requests through the exchange.
    pub(crate) fn new<F>(start: impl FnOnce(Exchange) -> F) -> Operation<'a, T>
    where
        F: Future<Output = Result<T>> + Send + 'a,
    {
        let exchange = Exchange::default();
        Operation { future: Box::pin(start(exchange.clone())), exchange }
    }

    /// Advances the operation as far as the answers permit. Do not poll again after `Ready`.
    pub fn poll(&mut self) -> Poll<Result<T>> {
        self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) // only an answer wakes it
    }

    /// Takes a request that is to be performed.
    pub fn next_request(&mut self) -> Option<(RequestId, Request)> {
        self.exchange.state().to_send.pop_front()
    }

    /// Gives the operation the answer to a request. The next [`poll`](Operation::poll) uses it.
    pub fn answer(&mut self, id: RequestId, answer: Result<Response, Failure>) {
        let mut state = self.exchange.state();
        if let (Ok(response), Role::First) = (&answer, id.role) {
            state.stats.bytes += response.body.as_slice().len() as u64;
        }
        state.answers.insert(id.number, answer);
    }

    /// Returns what the operation cost so far.
    pub fn stats(&self) -> OperationStats {
        self.exchange.state().stats
    }
}

impl<T> fmt::Debug for Operation<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// A request to be made.
pub(crate) struct Outgoing {
    request: Request,
    role: Role,
    shared: Weak<SharedRequest>,
}

/// The requests of an operation and the answers to them.
#[derive(Clone, Default)]
pub(crate) struct Exchange(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next_number: u64,
    to_send: VecDeque<(RequestId, Request)>,
    answers: HashMap<u64, Result<Response, Failure>>,
    stats: OperationStats,
}

impl Exchange {
    /// Makes a request and waits for the answer.
    pub(crate) async fn fetch(&self, request: Request) -> Result<Response, Failure> {
        let number = self.state().send(request.into());
        poll_fn(|_| match self.state().answers.remove(&number) {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    /// Makes requests, in their order and as long as those in flight have at most [`IN_FLIGHT_BYTES`]; a single one may have
    /// more. Calls `f` with the position and the answer of each, in the order of arrival.
    ///
    /// Takes every answer, so no other future of the operation may wait for one meanwhile.
    pub(crate) async fn fetch_all(&self, requests: Vec<Outgoing>, mut f: impl FnMut(usize, Result<Response, Failure>)) {
        let mut left = requests.into_iter().enumerate().peekable();
        let mut waiting: HashMap<u64, (usize, u64)> = HashMap::new();
        let mut in_flight = 0;
        poll_fn(|_| {
            let arrived: Vec<_> = self.state().answers.drain().collect(); // `f` runs without the lock
            for (number, answer) in arrived {
                match waiting.remove(&number) {
                    Some((at, bytes)) => {
                        in_flight -= bytes;
                        f(at, answer);
                    }
                    None => debug_assert!(false, "an answer for which another future of the operation waits"),
                }
            }
            while let Some((at, next)) =
                left.next_if(|(_, next)| in_flight == 0 || in_flight.saturating_add(next.bytes()) <= IN_FLIGHT_BYTES)
            {
                let bytes = next.bytes();
                in_flight += bytes;
                waiting.insert(self.state().send(next), (at, bytes));
            }
            if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Counts a block that was found in the cache.
    pub(crate) fn count_cache_hit(&self) {
        self.state().stats.cache_hits += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl Outgoing {
    /// Creates a request that other operations share.
    pub(crate) fn shared(request: &Arc<SharedRequest>, role: Role) -> Outgoing {
        Outgoing { request: request.request.clone(), role, shared: Arc::downgrade(request) }
    }

    /// The bytes of the answer; zero for a whole object, whose length is not known.
    fn bytes(&self) -> u64 {
        match &self.request.wanted {
            Wanted::Bytes(range) => range.end.saturating_sub(range.start),
            Wanted::Whole { .. } => 0,
        }
    }
}

impl From<Request> for Outgoing {
    fn from(request: Request) -> Outgoing {
        Outgoing { request, role: Role::First, shared: Weak::new() }
    }
}

impl State {
    fn send(&mut self, Outgoing { request, role, shared }: Outgoing) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.stats.requests += u64::from(role == Role::First);
        self.to_send.push_back((RequestId { number, role, request: shared }, request));
        number
    }
}
