//! A request that several operations wait for, because each of them needs some of its bytes.

use std::any::Any;
use std::ops::Range;
use std::sync::{OnceLock, Weak};

use crate::request::Request;

/// The request, and what an adapter performs it with. It belongs to the operations that wait for the answer.
pub(crate) struct SharedRequest {
    pub(crate) request: Request,
    /// The bytes that it reads.
    pub(crate) range: Range<u64>,
    read: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// Which operation makes a request: the first one counts it, the others count cache hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    First,
    Joined,
}

/// Identifies a request among those of its operation.
///
/// Operations of one reader that need the same bytes at the same time have one request each, and none of them waits for
/// another. An adapter performs it once for all of them if it keeps the read with [`shared`](RequestId::shared).
#[derive(Clone, Debug)]
pub struct RequestId {
    pub(crate) number: u64,
    pub(crate) role: Role,
    /// Dead from the start for a request that is not shared.
    pub(crate) request: Weak<SharedRequest>,
}

impl SharedRequest {
    pub(crate) fn new(request: Request, range: Range<u64>) -> SharedRequest {
        SharedRequest { request, range, read: OnceLock::new() }
    }
}

impl RequestId {
    /// Returns the read that performs the request: what `start` has returned for the first of the operations that share it.
    ///
    /// It is kept until each of these operations has used the answer, or is dropped. Any of them may be dropped or may not be
    /// driven any more, so a read must end without the operation that has started it: a future that all poll, for example.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use sharddb_remote::{Operation, RequestId, Request, Response};
    ///
    /// fn answer<T>(operation: &mut Operation<'_, T>, id: RequestId, read: impl Fn() -> Response) {
    ///     let response: Arc<Response> = id.shared(|| Arc::new(read()));
    ///     operation.answer(id, Ok((*response).clone()));
    /// }
    /// ```
    pub fn shared<T: Any + Clone + Send + Sync>(&self, start: impl Fn() -> T) -> T {
        let request = self.request.upgrade();
        let kept = request.as_ref().and_then(|request| request.read.get_or_init(|| Box::new(start())).downcast_ref());
        kept.cloned().unwrap_or_else(start) // not shared, or kept by another kind of adapter
    }
}
