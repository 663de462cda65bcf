//! Runs an operation on a transport, with several requests in flight.

use std::future::poll_fn;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::error::Result;
use crate::remote::object_store::transport::Transport;
use crate::remote::{Failure, Operation, OperationStats, Request, RequestId, Response};

/// Maximum number of requests of one operation in flight.
///
/// Object stores answer that many at once without slowing down, and with more the first answers come later.
const IN_FLIGHT: usize = 48;

/// Runs an operation to its end. Returns what it cost too, also if it failed.
///
/// Dropping the future cancels the operation and its requests.
pub(crate) async fn drive<T>(transport: &Transport, mut operation: Operation<'_, T>) -> (Result<T>, OperationStats) {
    let mut in_flight = FuturesUnordered::new();
    let result = poll_fn(|context: &mut Context<'_>| {
        loop {
            if let Poll::Ready(result) = operation.poll(context) {
                return Poll::Ready(result);
            }
            while in_flight.len() < IN_FLIGHT
                && let Some((id, request)) = operation.next_request()
            {
                in_flight.push(perform(transport, id, request));
            }
            match in_flight.poll_next_unpin(context) {
                Poll::Ready(Some((id, answer))) => operation.answer(id, answer),
                // with nothing in flight the operation waits for a response to another one, which wakes it
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    (result, operation.stats())
}

async fn perform(transport: &Transport, id: RequestId, request: Request) -> (RequestId, Result<Response, Failure>) {
    let answer = transport.perform(&request).await;
    (id, answer)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::object_store::ObjectStoreExt;
    use ::object_store::memory::InMemory;

    use super::*;
    use crate::remote::Wanted;
    use crate::remote::object_store::testing::{Recorder, block_on};

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
                Err(crate::error::Error::corrupt("expected an object, found none"))
            });
            let (result, stats) = drive(&transport, operation).await;
            assert!(result.is_err());
            assert_eq!((stats.requests, stats.bytes), (1, 0));
        });
    }
}
