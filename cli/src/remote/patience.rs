//! How long the client waits for a server: by progress, so that a slow link takes its time and a hung server does not.
//!
//! ```text
//! request    begins to be answered within the patience, plus a second per 16 KiB that are sent
//! response   each 64 KiB of the body, or its end, within the patience
//! ```
//!
//! Both have 10 minutes more if the server copies an object or joins the parts of one: S3 sends the headers of such an
//! answer at once, and then spaces until it is done.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Method;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody};
use tokio::time::{Instant, Sleep, sleep};

/// The variable that sets the patience, in seconds.
pub(super) const VARIABLE: &str = "SHARDDB_REMOTE_TIMEOUT";

/// Bytes of a body that must arrive within the patience.
const PROGRESS: usize = 64 << 10;

/// Bytes per second below which an upload fails. A push sends 8 objects at a time, which need 1 Mbit/s.
const SLOWEST_UPLOAD: u64 = 16 << 10;

/// Time for a copy of up to 5 GB by the server, and for joining the parts of an object.
const SERVER_WORK: Duration = Duration::from_secs(600);

/// The time without progress after which a request fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience(pub(super) Duration);

impl Patience {
    /// Waits for the headers of a response. Its body fails by the rule of this module.
    pub(super) async fn wait(
        self,
        request: HttpRequest,
        execute: impl AsyncFnOnce(HttpRequest) -> Result<HttpResponse, HttpError>,
    ) -> Result<HttpResponse, HttpError> {
        let (limit, of_body) = (self.limit(&request), self.0.saturating_add(server_work(&request)));
        let response = tokio::time::timeout(limit, execute(request)).await;
        let response = response.map_err(|_| timed_out("an answer", limit))??;
        Ok(response.map(|body| HttpResponseBody::new(TimedBody::new(body, of_body))))
    }

    /// The time from the beginning of a request to the headers of its response.
    fn limit(self, request: &HttpRequest) -> Duration {
        let upload = Duration::from_secs(request.body().content_length() as u64 / SLOWEST_UPLOAD);
        self.0.saturating_add(upload).saturating_add(server_work(request))
    }
}

/// The time for what the server does besides sending and receiving.
fn server_work(request: &HttpRequest) -> Duration {
    let is_copy = request.headers().keys().any(|name| name.as_str().ends_with("-copy-source"));
    let is_join = request.method() == Method::POST && request.uri().query().is_some_and(|it| it.contains("uploadId="));
    if is_copy || is_join { SERVER_WORK } else { Duration::ZERO }
}

/// An error that the client repeats if the request can be repeated.
fn timed_out(what: &str, limit: Duration) -> HttpError {
    let message = format!("timed out: expected {what} within {} s; {VARIABLE} sets this time", limit.as_secs());
    HttpError::new_boxed(HttpErrorKind::Timeout, message.into())
}

/// A body that fails once it makes no progress.
///
/// The clock runs only while the reader waits, so that a busy reader is no slow server.
struct TimedBody {
    body: HttpResponseBody,
    patience: Duration,
    /// Bytes since the last [`PROGRESS`] of them.
    arrived: usize,
    /// What remains of the patience for the next [`PROGRESS`] bytes.
    left: Duration,
    waiting_since: Option<Instant>,
    deadline: Pin<Box<Sleep>>,
}

impl TimedBody {
    fn new(body: HttpResponseBody, patience: Duration) -> TimedBody {
        let deadline = Box::pin(sleep(patience));
        TimedBody { body, patience, arrived: 0, left: patience, waiting_since: None, deadline }
    }

    /// Accounts for bytes that arrived.
    fn advance(&mut self, bytes: usize) {
        if let Some(since) = self.waiting_since.take() {
            // if the time is over, but the deadline did not fire, the thread was busy: nobody knows when the bytes came
            self.left = self.left.checked_sub(since.elapsed()).filter(|left| !left.is_zero()).unwrap_or(self.patience);
        }
        self.arrived = self.arrived.saturating_add(bytes);
        if self.arrived >= PROGRESS {
            (self.arrived, self.left) = (0, self.patience);
        }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref().map(Bytes::len));
            self.advance(bytes.unwrap_or(0));
            return Poll::Ready(frame);
        }
        if self.waiting_since.is_none() {
            let now = Instant::now();
            let deadline = now + self.left;
            self.waiting_since = Some(now);
            self.deadline.as_mut().reset(deadline);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Some(Err(timed_out(&format!("{} KiB of a response", PROGRESS >> 10), self.patience))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use object_store::client::HttpRequestBody;

    use super::*;

    const PATIENCE: Patience = Patience(Duration::from_secs(30));

    /// A body of equal pieces. Each arrives after a pause, which begins when the previous one is taken.
    struct Pieces {
        left: usize,
        bytes: usize,
        pause: Duration,
        next: Pin<Box<Sleep>>,
    }

    impl Pieces {
        fn new(left: usize, bytes: usize, pause: u64) -> Pieces {
            let pause = Duration::from_secs(pause);
            Pieces { left, bytes, pause, next: Box::pin(sleep(pause)) }
        }
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = HttpError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            ready!(self.next.as_mut().poll(context));
            self.left -= 1;
            self.next = Box::pin(sleep(self.pause));
            Poll::Ready(Some(Ok(Frame::data(vec![0; self.bytes].into()))))
        }
    }

    /// Waits for an answer that begins after `pause` seconds, and reads its body with a pause after each piece. Returns
    /// the bytes, or the error, and the seconds.
    async fn answer(pause: u64, body: impl FnOnce() -> Pieces, reading: u64) -> (Result<usize, String>, u64) {
        let begun = Instant::now();
        let request = http::Request::new(HttpRequestBody::empty());
        let answered = PATIENCE.wait(request, async |_| {
            sleep(Duration::from_secs(pause)).await;
            Ok(HttpResponse::new(HttpResponseBody::new(body())))
        });
        let mut bytes = 0;
        let read = async {
            let mut body = answered.await?.into_body();
            while let Some(frame) = body.frame().await {
                bytes += frame?.data_ref().map_or(0, Bytes::len);
                sleep(Duration::from_secs(reading)).await;
            }
            Ok::<(), HttpError>(())
        };
        let read = read.await.map_err(|error| format!("{error:?}"));
        (read.map(|()| bytes), begun.elapsed().as_secs())
    }

    /// In virtual time.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_makes_progress_is_waited_for() {
        let slow = answer(29, || Pieces::new(10, PROGRESS, 29), 0).await;
        assert_eq!(slow, (Ok(10 * PROGRESS), 29 + 10 * 29));
        // two pieces make 64 KiB
        let halves = answer(0, || Pieces::new(10, PROGRESS / 2, 14), 0).await;
        assert_eq!(halves, (Ok(10 * PROGRESS / 2), 10 * 14));
        let busy_reader = answer(0, || Pieces::new(10, 1, 0), 1000).await;
        assert_eq!(busy_reader, (Ok(10), 10 * 1000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_makes_none_is_not() {
        let message = |what: &str| format!("timed out: expected {what} within 30 s");
        for (pause, body, what, seconds) in [
            (31, (1, 1, 0), "an answer", 30),
            (0, (1, 1, 31), "64 KiB of a response", 30),
            (7, (1000, 1, 9), "64 KiB of a response", 7 + 30), // no piece arrives at the deadline itself
            (0, (10, PROGRESS / 2, 16), "64 KiB of a response", 30),
            (0, (3, PROGRESS, 31), "64 KiB of a response", 30),
        ] {
            let (read, after) = answer(pause, || Pieces::new(body.0, body.1, body.2), 0).await;
            assert!(read.as_ref().is_err_and(|error| error.contains(&message(what))), "{body:?}: {read:?}");
            assert_eq!(after, seconds, "{body:?}");
        }
    }

    fn limit(method: Method, uri: &str, header: Option<&str>, bytes: usize) -> u64 {
        let mut request = http::Request::new(HttpRequestBody::from(vec![0; bytes]));
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap();
        if let Some(name) = header {
            request.headers_mut().insert(http::HeaderName::try_from(name).unwrap(), "x".parse().unwrap());
        }
        Patience(Duration::from_secs(30)).limit(&request).as_secs()
    }

    #[test]
    fn an_upload_has_time_for_its_bytes_and_a_copy_for_those_of_the_server() {
        assert_eq!(limit(Method::GET, "http://h/x", None, 0), 30);
        assert_eq!(limit(Method::PUT, "http://h/x", None, 8 << 20), 30 + 512);
        for header in ["x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source"] {
            assert_eq!(limit(Method::PUT, "http://h/x", Some(header), 0), 630, "{header}");
        }
        assert_eq!(limit(Method::POST, "http://h/x?uploadId=7", None, 100), 630);
        assert_eq!(limit(Method::POST, "http://h/x?delete", None, 100), 30);
    }
}
