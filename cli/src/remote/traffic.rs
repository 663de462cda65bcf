//! What the requests of a client cost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::BodyExt;
use object_store::client::{HttpRequest, HttpResponse, HttpResponseBody};

use crate::number::plural;

/// The number of requests, and the bytes of their bodies. Retries, redirects and requests for
/// credentials count; headers do not.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    /// Counts a request that is about to be made.
    pub(super) fn count_request(&self, request: &HttpRequest) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(request.body().content_length() as u64, Ordering::Relaxed);
    }

    /// Returns the response with a body that is counted while it arrives.
    pub(super) fn count_response(self: &Arc<Traffic>, response: HttpResponse) -> HttpResponse {
        let traffic = Arc::clone(self);
        response.map(|body| {
            HttpResponseBody::new(body.map_frame(move |frame| {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                traffic.received.fetch_add(bytes, Ordering::Relaxed);
                frame
            }))
        })
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let requests = plural(of(&self.requests), "request");
        write!(f, "{requests}, {} bytes sent, {} bytes received", of(&self.sent), of(&self.received))
    }
}
