//! What the reader asks of an object store, and the answers: no I/O is done here.

use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sharddb_format::{Error, ErrorKind};

/// A read of one object, or of a byte range of it.
///
/// Whoever performs it checks nothing: the reader compares lengths, ETags and checksums.
///
/// ```
/// use sharddb_remote::{Request, Wanted};
///
/// let request = Request::new("gen-0000000001/0.shard", Wanted::Bytes(0..16));
/// assert_eq!(request.if_match, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The object: names separated by `/`, relative to the root of the data set.
    pub object: String,
    /// The bytes to read.
    pub wanted: Wanted,
    /// A strong ETag: the read fails with [`Failure::Replaced`] if the object has another one now. Send it as
    /// `If-Match` where the store supports it; the reader compares the ETag of the response in any case.
    pub if_match: Option<String>,
    /// An ETag: the read fails with [`Failure::Unchanged`] if the object still has it. Send it as `If-None-Match`.
    pub if_none_match: Option<String>,
}

/// The bytes of an object that a [`Request`] reads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wanted {
    /// All of it. An object of more than `most` bytes is not transferred: the answer is a `TooLarge` error.
    Whole {
        /// Maximum length in bytes.
        most: u64,
    },
    /// A range that is not empty. Its end may be after the end of the object: then the response is shorter.
    Bytes(Range<u64>),
}

/// The answer to a [`Request`] that succeeded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Response {
    /// The bytes, without a content encoding of the transfer.
    pub body: Body,
    /// The ETag of the object, quoted as in the header, if the store has ETags.
    pub etag: Option<String>,
    /// The length of the whole object in bytes, if the response states it.
    pub object_len: Option<u64>,
    /// How long it took, if that was measured.
    pub timing: Option<Timing>,
}

/// How long a [`Response`] took: [`RemoteOptions::measure_request_cost`](crate::RemoteOptions::measure_request_cost) uses it.
///
/// ```
/// use std::time::Duration;
/// use sharddb_remote::{Body, Response, Timing};
///
/// let mut response = Response::new(Body::new(b"bytes"), None, None);
/// response.timing = Some(Timing { wait: Duration::from_millis(20), transfer: Duration::from_millis(1) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the request to the head of the response, with all retries.
    pub wait: Duration,
    /// From the head to the end of the body.
    pub transfer: Duration,
}

impl Response {
    /// Creates a response.
    pub fn new(body: Body, etag: Option<String>, object_len: Option<u64>) -> Response {
        Response { body, etag, object_len, timing: None }
    }
}

/// Why a [`Request`] failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// There is no such object: 404.
    NotFound,
    /// The object does not have the ETag of [`Request::if_match`]: 412.
    Replaced,
    /// The object still has the ETag of [`Request::if_none_match`]: 304.
    Unchanged,
    /// Anything else, after the retries of the client: no permission, a timeout, a server without ranges.
    Other(Error),
}

impl Failure {
    /// Returns the failure of a client with an I/O error while doing `what` ("read", for example).
    pub fn io(what: &str, error: io::Error) -> Failure {
        Failure::Other(Error::io(what, Path::new(""), error))
    }

    /// Returns the failure for an object of `found` bytes that is larger than [`Wanted::Whole`] permits.
    pub fn too_large(most: u64, found: u64) -> Failure {
        Failure::Other(too_large(most, &found))
    }
}

/// Returns the error for an object that is larger than [`Wanted::Whole`] permits, without a place.
pub(crate) fn too_large(most: u64, found: &dyn fmt::Display) -> Error {
    let message = format!(
        "expected an object of at most {most} bytes, found {found}: it is not of a data set, or damaged; check the address"
    );
    Error::new(ErrorKind::TooLarge, message)
}

/// Bytes of a response, shared without a copy.
///
/// ```
/// use sharddb_remote::Body;
///
/// let body = Body::new(vec![1, 2, 3]);
/// assert_eq!(body.clone().as_slice(), [1, 2, 3]);
/// ```
#[derive(Clone)]
pub struct Body(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Body {
    /// Wraps bytes: a `Vec<u8>`, or what an HTTP client returns.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Body {
        Body(Arc::new(bytes))
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes)", self.as_slice().len())
    }
}

/// A value: bytes of a response, or decoded from one. Cheap to clone.
///
/// It dereferences to `[u8]`. It may share the response with other bytes, at most as many as its own.
///
/// ```
/// # use sharddb_remote::RemoteValue;
/// let value = RemoteValue::from(b"the answer".to_vec());
/// assert_eq!(value.len(), 10);
/// ```
#[derive(Clone)]
pub struct RemoteValue {
    body: Body,
    range: Range<usize>,
}

impl RemoteValue {
    /// Returns the bytes `range` of a response; `None` if it does not have them.
    pub(crate) fn of(body: &Body, range: Range<usize>) -> Option<RemoteValue> {
        body.as_slice().get(range.clone()).is_some().then(|| RemoteValue { body: body.clone(), range })
    }

    /// Returns all bytes of a response.
    pub(crate) fn all(body: Body) -> RemoteValue {
        let range = 0..body.as_slice().len();
        RemoteValue { body, range }
    }

    /// Returns the bytes as a response of their own. Copies them unless they are all of it, so that they do not keep their
    /// neighbours in memory.
    pub(crate) fn into_body(self) -> Body {
        if self.len() == self.body.as_slice().len() { self.body } else { Body::new(self.to_vec()) }
    }

    /// Copies the value if it is less than half of its response, so that it does not keep the other bytes in memory.
    pub(crate) fn without_neighbours(self) -> RemoteValue {
        if self.len() < self.body.as_slice().len() / 2 { RemoteValue::from(self.to_vec()) } else { self }
    }
}

/// Converts without a copy: the `Bytes` owns the value.
#[cfg(feature = "object_store")]
impl From<RemoteValue> for bytes::Bytes {
    fn from(value: RemoteValue) -> bytes::Bytes {
        bytes::Bytes::from_owner(value)
    }
}

impl Deref for RemoteValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.body.as_slice().get(self.range.clone()).unwrap_or_default() // in bounds, see `of`
    }
}

impl AsRef<[u8]> for RemoteValue {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for RemoteValue {
    fn from(bytes: Vec<u8>) -> RemoteValue {
        RemoteValue::all(Body::new(bytes))
    }
}

impl fmt::Debug for RemoteValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteValue({} bytes)", self.len())
    }
}

impl Request {
    /// Creates a request without conditions.
    pub fn new(object: impl Into<String>, wanted: Wanted) -> Request {
        Request { object: object.into(), wanted, if_match: None, if_none_match: None }
    }
}
