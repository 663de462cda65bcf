//! Reads the objects of one generation: makes requests, and checks each answer before its bytes are used.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sharddb_format::{Error, ErrorKind, Result};

use crate::identity::{Identities, Identity, Replaced};
use crate::operation::Exchange;
use crate::request::{Body, Failure, RemoteValue, Request, Response, Wanted, too_large};
use crate::request_cost::{MeasuredCost, RequestCost};

/// Requests and bytes of all operations of a reader, and what the requests cost.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    requests: AtomicU64,
    bytes: AtomicU64,
    cache_hits: AtomicU64,
    request_cost: Option<MeasuredCost>,
}

/// The objects of a generation, or of a directory of foreign data.
pub(crate) struct Objects {
    /// The name of the data set for errors, `s3://bucket/store`; may be empty.
    root: Arc<str>,
    identities: Identities,
    was_replaced: AtomicBool,
    totals: Arc<Totals>,
}

/// A byte range of an object that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) object: String,
    /// Not empty.
    pub(crate) range: Range<u64>,
    /// The number of bytes without which the answer is too short. Less than the range only if the length of the object
    /// is not known.
    pub(crate) needed: u64,
}

/// Why an object was not read.
#[derive(Clone, Debug)]
pub(crate) enum Unread {
    /// There is no such object.
    Missing,
    /// The object still has the ETag of the request.
    Unchanged,
    Failed(Error),
}

impl Span {
    /// A range that the object must have.
    pub(crate) fn exact(object: String, range: Range<u64>) -> Span {
        let needed = range.end.saturating_sub(range.start);
        Span { object, range, needed }
    }

    pub(crate) fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Returns the span of a request of `range` that covers this span, and needs its bytes.
    pub(crate) fn within(&self, range: &Range<u64>) -> Option<Span> {
        let needed_end = self.range.start.saturating_add(self.needed);
        let is_covered = range.start <= self.range.start && self.range.end <= range.end;
        let needed = needed_end.saturating_sub(range.start);
        is_covered.then(|| Span { object: self.object.clone(), range: range.clone(), needed })
    }

    /// Returns the bytes of this span from the response to a request that covers it. `None` if the response has fewer
    /// than those needed.
    pub(crate) fn value_of(&self, requested: &Span, body: &Body) -> Option<RemoteValue> {
        let offset = |at: u64| usize::try_from(at.checked_sub(requested.range.start)?).ok();
        let start = offset(self.range.start)?;
        let end = offset(self.range.end)?.min(body.as_slice().len());
        RemoteValue::of(body, start..end).filter(|bytes| bytes.len() as u64 >= self.needed)
    }
}

impl Totals {
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn cache_hits(&self) -> u64 {
        self.cache_hits.load(Ordering::Relaxed)
    }

    /// Counts a request that is about to be made.
    fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Creates totals of nothing, which measure what a request costs if `measure` is set.
    pub(crate) fn new(measure: bool) -> Totals {
        Totals { request_cost: measure.then(MeasuredCost::default), ..Totals::default() }
    }

    /// Returns what a request costs, if that is measured and enough times of responses are known.
    pub(crate) fn request_cost(&self) -> Option<RequestCost> {
        self.request_cost.as_ref()?.get()
    }

    fn count_response(&self, response: &Response) {
        self.bytes.fetch_add(response.body.as_slice().len() as u64, Ordering::Relaxed);
        if let Some(cost) = &self.request_cost {
            cost.observe(response);
        }
    }

    pub(crate) fn count_cache_hit(&self) {
        self.cache_hits.fetch_add(1, Ordering::Relaxed);
    }
}

impl Objects {
    pub(crate) fn new(root: Arc<str>, totals: Arc<Totals>) -> Objects {
        Objects { root, identities: Identities::default(), was_replaced: AtomicBool::new(false), totals }
    }

    /// Returns the totals that requests are added to.
    pub(crate) fn totals(&self) -> &Arc<Totals> {
        &self.totals
    }

    /// Returns what the responses about an object stated; `None` if there was none.
    pub(crate) fn identity(&self, object: &str) -> Option<Identity> {
        self.identities.get(object)
    }

    /// Returns the name of an object for errors.
    pub(crate) fn path(&self, object: &str) -> PathBuf {
        match self.root.trim_end_matches('/') {
            "" => PathBuf::from(object),
            root => PathBuf::from(format!("{root}/{object}")),
        }
    }

    /// Reads a whole object of at most `most` bytes, unless it has the ETag `if_none_match`.
    pub(crate) async fn read_whole(
        &self,
        exchange: &Exchange,
        object: &str,
        most: u64,
        if_none_match: Option<String>,
    ) -> Result<Response, Unread> {
        let answer = exchange.fetch(self.request_whole(object, most, if_none_match)).await;
        self.accept_whole(object, most, answer)
    }

    /// Makes the request for a whole object, and counts it.
    pub(crate) fn request_whole(&self, object: &str, most: u64, if_none_match: Option<String>) -> Request {
        self.totals.count_request();
        Request { if_none_match, ..Request::new(object, Wanted::Whole { most }) }
    }

    /// Checks the answer to a request for a whole object.
    ///
    /// Errors: `TooLarge`; `Io` if it does not have the length that it states.
    pub(crate) fn accept_whole(
        &self,
        object: &str,
        most: u64,
        answer: Result<Response, Failure>,
    ) -> Result<Response, Unread> {
        let response = self.checked(object, self.counted(answer))?;
        let found = response.body.as_slice().len() as u64;
        let stated = response.object_len.unwrap_or(found);
        if found.max(stated) > most {
            return Err(Unread::Failed(too_large(most, &found.max(stated)).at_path(&self.path(object))));
        }
        if stated != found {
            return Err(Unread::Failed(self.wrong_length(object, &(0..stated), found)));
        }
        Ok(response)
    }

    /// Reads a range of an object.
    pub(crate) async fn read(&self, exchange: &Exchange, span: &Span) -> Result<Body, Unread> {
        let answer = exchange.fetch(self.request(span)).await;
        self.accept(span, self.counted(answer))
    }

    /// Makes the request for a range of an object, and counts it.
    pub(crate) fn request(&self, span: &Span) -> Request {
        self.totals.count_request();
        let identity = self.identity(&span.object);
        let if_match = identity.as_ref().and_then(Identity::strong_etag).map(str::to_string);
        Request { if_match, ..Request::new(span.object.clone(), Wanted::Bytes(span.range.clone())) }
    }

    /// Checks the answer to a request for a range: that it is of the object that was read before, and has the right
    /// length.
    ///
    /// Errors: `GenerationGone` if the object was replaced; `Corrupt` if it ends before the range; `Io` if the answer is
    /// too short or too long; those of the client.
    pub(crate) fn accept(&self, span: &Span, answer: Result<Response, Failure>) -> Result<Body, Unread> {
        let response = self.checked(&span.object, answer)?;
        let found = response.body.as_slice().len() as u64;
        if found == span.len() {
            return Ok(response.body);
        }
        let end = span.range.start.saturating_add(found);
        let is_whole_rest = response.object_len.is_none_or(|len| len == end);
        if found < span.len() && found >= span.needed && is_whole_rest {
            return Ok(response.body);
        }
        Err(self.too_short(span, response.object_len, found))
    }

    /// Returns the bytes of a span from the accepted answer to a request that covers it.
    ///
    /// Errors: `Corrupt` if the object ends before them; `Io` if that is not known; those of the answer.
    pub(crate) fn part(
        &self,
        span: &Span,
        requested: &Span,
        answer: &Result<Body, Unread>,
    ) -> Result<RemoteValue, Unread> {
        let body = answer.as_ref().map_err(Unread::clone)?;
        span.value_of(requested, body).ok_or_else(|| {
            let end = requested.range.start.saturating_add(body.as_slice().len() as u64);
            let len = self.identity(&span.object).and_then(|identity| identity.len);
            self.too_short(span, len, end.saturating_sub(span.range.start))
        })
    }

    /// Returns the error for a span of which `found` bytes were found, in an object of `object_len` bytes if that is known.
    fn too_short(&self, span: &Span, object_len: Option<u64>, found: u64) -> Unread {
        let needed_end = span.range.start.saturating_add(span.needed);
        Unread::Failed(match object_len {
            Some(len) if len < needed_end => {
                let Range { start, end: _ } = span.range;
                let message =
                    format!("expected an object with the bytes {start}..{needed_end}, found one of {len} bytes");
                Error::corrupt(message).at_path(&self.path(&span.object))
            }
            _ => self.wrong_length(&span.object, &span.range, found),
        })
    }

    /// Counts the bytes of the answer to a request that was counted.
    pub(crate) fn counted(&self, answer: Result<Response, Failure>) -> Result<Response, Failure> {
        answer.inspect(|response| self.totals.count_response(response))
    }

    /// Compares the identity of the object of a response.
    fn checked(&self, object: &str, answer: Result<Response, Failure>) -> Result<Response, Unread> {
        let response = answer.map_err(|failure| match failure {
            Failure::NotFound => Unread::Missing,
            Failure::Unchanged => Unread::Unchanged,
            Failure::Replaced => {
                let identity = self.identity(object).and_then(|identity| identity.etag);
                let expected = identity.map_or("the same object".to_string(), |etag| format!("the ETag {etag}"));
                Unread::Failed(self.replaced(object, &Replaced { expected, found: "another one".to_string() }))
            }
            Failure::Other(error) => Unread::Failed(error.at_path(&self.path(object))),
        })?;
        match self.identities.learn(object, &response) {
            Ok(()) => Ok(response),
            Err(replaced) => Err(Unread::Failed(self.replaced(object, &replaced))),
        }
    }

    /// Whether a response was about another object than the first response.
    pub(crate) fn was_replaced(&self) -> bool {
        self.was_replaced.load(Ordering::Relaxed)
    }

    fn replaced(&self, object: &str, replaced: &Replaced) -> Error {
        self.was_replaced.store(true, Ordering::Relaxed);
        let Replaced { expected, found } = replaced;
        let message = format!(
            "the object was replaced while it was in use: expected {expected}, found {found}: refresh, or open it again"
        );
        Error::new(ErrorKind::GenerationGone, message).at_path(&self.path(object))
    }

    fn wrong_length(&self, object: &str, range: &Range<u64>, found: u64) -> Error {
        let Range { start, end } = range;
        let expected = end.saturating_sub(*start);
        let message = format!(
            "expected {expected} bytes, the range {start}..{end} of the object, found {found}: the response was cut or is \
             of another range; try again"
        );
        Error::new(ErrorKind::Io, message).at_path(&self.path(object))
    }

    /// The error for an object of a generation that is missing.
    pub(crate) fn gone(&self, object: &str) -> Error {
        let message = "expected an object of this generation, found none: the generation was removed, or is not complete; \
                       refresh, or open it again";
        Error::new(ErrorKind::GenerationGone, message).at_path(&self.path(object))
    }
}
