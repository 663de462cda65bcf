//! Runs an operation on a transport, with several requests in flight.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use sharddb_format::{Error, Result};
use tokio::runtime::{Handle, Id};

use crate::object_store::transport::Transport;
use crate::{Failure, Operation, OperationStats, Request, RequestId, Response};

/// Maximum number of requests of one operation in flight, also of those that it shares.
///
/// Object stores answer that many at once without slowing down, and with more the first answers come later.
const IN_FLIGHT: usize = 48;

/// A request in flight. Each of the operations that share it polls it, and the last one that is dropped cancels it.
#[derive(Clone)]
struct Read {
    answer: Shared<BoxFuture<'static, Arc<Result<Response, Failure>>>>,
    /// The runtime on which it began, whose timers and connections it waits for.
    runtime: Option<Id>,
}

/// Runs an operation to its end. Returns what it cost too, also if it failed.
///
/// Dropping the future cancels the operation, and its requests unless other operations share them.
pub(crate) async fn drive<T>(transport: &Transport, mut operation: Operation<'_, T>) -> (Result<T>, OperationStats) {
    let mut in_flight = FuturesUnordered::new();
    let result = poll_fn(|context: &mut Context<'_>| {
        loop {
            if let Poll::Ready(result) = operation.poll() {
                return Poll::Ready(result);
            }
            while in_flight.len() < IN_FLIGHT
                && let Some((id, request)) = operation.next_request()
            {
                let answer = read(transport, &id, &request).answer;
                in_flight.push(answer.map(|answer| (id, answer)));
            }
            match in_flight.poll_next_unpin(context) {
                Poll::Ready(Some((id, answer))) => operation.answer(id, Result::clone(&answer)),
                Poll::Ready(None) => {
                    return Poll::Ready(Err(Error::internal("expected an operation with a request, found none")));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    (result, operation.stats())
}

/// Returns the read of a request. Operations share it if they run on one runtime: another one may have stopped.
fn read(transport: &Transport, id: &RequestId, request: &Request) -> Read {
    let runtime = Handle::try_current().ok().map(|handle| handle.id());
    let start = || {
        let (transport, request) = (transport.clone(), request.clone());
        let answer = async move { Arc::new(transport.perform(&request).await) };
        Read { answer: answer.boxed().shared(), runtime }
    };
    let read = id.shared(start);
    if read.runtime == runtime { read } else { start() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::object_store::ObjectStoreExt;
    use ::object_store::memory::InMemory;

    use super::*;
    use crate::Wanted;
    use crate::object_store::testing::{Recorder, block_on};

    #[test]
    fn at_most_48_requests_are_in_flight_and_each_answer_comes_once() {
        block_on(async {
            let store = InMemory::new();
            store.put(&"a".into(), (0..=255).collect::<Vec<u8>>().into()).await.unwrap();
            let recorder = Arc::new(Recorder::new(store));
            let transport = Transport::new(recorder.clone(), "", String::new()).unwrap();
            let operation = Operation::new(|exchange| async move {
                let requests = (0..200).map(|at| Request::new("a", Wanted::Bytes(at..at + 1)));
                let mut found = vec![None; 200];
                exchange.fetch_all(requests, |at, answer| found[at] = Some(answer.unwrap().body.as_slice()[0])).await;
                Ok(found)
            });
            let (found, stats) = drive(&transport, operation).await;
            assert_eq!(found.unwrap(), (0..200).map(Some).collect::<Vec<Option<u8>>>());
            assert_eq!((stats.requests, stats.bytes), (200, 200));
            assert_eq!(recorder.take_requests().len(), 200);
            assert_eq!(recorder.most_in_flight(), IN_FLIGHT);
        });
    }

    #[test]
    fn a_failed_operation_states_what_it_cost() {
        block_on(async {
            let transport = Transport::new(Arc::new(InMemory::new()), "", String::new()).unwrap();
            let operation: Operation<'_, ()> = Operation::new(|exchange| async move {
                let answer = exchange.fetch(Request::new("absent", Wanted::Whole { most: 9 })).await;
                assert!(matches!(answer, Err(Failure::NotFound)));
                Err(sharddb_format::Error::corrupt("expected an object, found none"))
            });
            let (result, stats) = drive(&transport, operation).await;
            assert!(result.is_err());
            assert_eq!((stats.requests, stats.bytes), (1, 0));
        });
    }
}
