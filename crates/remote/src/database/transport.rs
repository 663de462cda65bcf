//! Performs requests of the reader on an `ObjectStore`.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ::object_store::path::Path as ObjectPath;
use ::object_store::{Attribute, GetOptions, GetRange, GetResult, ObjectStore};
use futures_util::StreamExt;
use sharddb_format::{Error, ErrorKind};

use crate::request::too_large;
use crate::store_error::{cause, contains, missing_bucket};
use crate::{Body, Failure, Request, Response, Timing, UnknownLength, Wanted};

/// Memory that is reserved for a body before its first bytes arrive; a server may announce any length.
const RESERVED: u64 = 1 << 20;

/// An object store, and the prefix under which the objects of a data set are.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    store: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    /// What errors name before the object: `s3://bucket/store`.
    root_name: String,
}

impl Transport {
    /// Performs requests under `prefix`, whose names are separated by `/`.
    ///
    /// Errors: `InvalidInput` if the prefix is not a path of the crate `object_store`: an empty name, `.` or `..`.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, prefix: &str, root_name: String) -> Result<Transport, Error> {
        let parsed = ObjectPath::parse(prefix).map_err(|error| {
            Error::invalid_input(format!("expected names separated by /, found the prefix '{prefix}': {error}"))
        })?;
        let root_name = if root_name.is_empty() { store_name(&*store, &parsed) } else { root_name };
        Ok(Transport { store, prefix: parsed, root_name })
    }

    /// Performs a request.
    ///
    /// The body is at most as long as the request permits, whatever the server sends. Retries are those of the store.
    pub(crate) async fn perform(&self, request: &Request) -> Result<Response, Failure> {
        let location = self.location(&request.object).map_err(|error| self.failure(request, &error))?;
        let start = Instant::now();
        let got = self.store.get_opts(&location, options_of(request)).await;
        let wait = start.elapsed();
        let got = got.map_err(|error| self.failure(request, &error))?;
        let is_gzip = self.is_gzip(request, &got).map_err(Failure::Other)?;
        let has_len = got.extensions.get::<UnknownLength>().is_none();
        let (etag, object_len) = (got.meta.e_tag.clone(), has_len.then_some(got.meta.size));
        let stored = self.body(request, got).await.map_err(Failure::Other)?;
        let timing = Timing { wait, transfer: start.elapsed().saturating_sub(wait) };
        let mut response = if is_gzip {
            let body = self.decoded(request, stored.as_slice()).map_err(Failure::Other)?;
            Response::new(body, etag, None) // the stored length is not that of the body
        } else {
            Response::new(stored, etag, object_len)
        };
        response.timing = (!is_gzip).then_some(timing); // of the bytes that were transferred
        Ok(response)
    }

    fn location(&self, object: &str) -> Result<ObjectPath, ::object_store::Error> {
        let path = if self.prefix.is_root() { object.to_string() } else { format!("{}/{object}", self.prefix) };
        Ok(ObjectPath::parse(path)?)
    }

    /// Reads the body of a response, as it is stored.
    async fn body(&self, request: &Request, got: GetResult) -> Result<Body, Error> {
        let expected = self.body_len(request, &got)?;
        let mut body = Vec::new();
        let mut stream = got.into_stream();
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|error| self.broken(request, &error))?;
            if body.is_empty() && piece.len() as u64 == expected {
                return Ok(Body::new(piece)); // without a copy
            }
            if body.is_empty() {
                body.reserve(usize::try_from(expected.min(RESERVED)).unwrap_or(0));
            }
            body.extend_from_slice(&piece);
            if body.len() as u64 > expected {
                return Err(self.wrong_len(request, expected, &format_args!("more")));
            }
        }
        if (body.len() as u64) < expected {
            return Err(self.wrong_len(request, expected, &body.len()));
        }
        Ok(Body::new(body))
    }

    /// The length of the body that the response announces, if the request permits it.
    fn body_len(&self, request: &Request, got: &GetResult) -> Result<u64, Error> {
        let announced = got.range.end.checked_sub(got.range.start);
        match &request.wanted {
            Wanted::Whole { most } => match announced {
                Some(len) if len <= *most => Ok(len),
                _ => Err(self.at(request, too_large(*most, &got.meta.size))),
            },
            Wanted::Bytes(range) => match announced {
                Some(len) if got.range.start == range.start && got.range.end <= range.end => Ok(len),
                _ => Err(self.wrong_range(request, range, &got.range)),
            },
        }
    }

    /// Whether the body has to be decoded.
    ///
    /// Errors: `Unsupported` for an encoding that cannot be undone: any in a range.
    fn is_gzip(&self, request: &Request, got: &GetResult) -> Result<bool, Error> {
        let Some(encoding) = got.attributes.get(&Attribute::ContentEncoding) else { return Ok(false) };
        match (encoding.as_ref().trim(), &request.wanted) {
            ("" | "identity" | "aws-chunked", _) => Ok(false),
            ("gzip" | "x-gzip", Wanted::Whole { .. }) => Ok(true),
            (other, _) => {
                let message = format!(
                    "expected stored bytes, found Content-Encoding {other}, in which byte ranges have no meaning: \
                     upload the object without it"
                );
                Err(self.at(request, Error::new(ErrorKind::Unsupported, message)))
            }
        }
    }

    /// Undoes a content encoding of gzip.
    fn decoded(&self, request: &Request, body: &[u8]) -> Result<Body, Error> {
        let most = match request.wanted {
            Wanted::Whole { most } => most,
            Wanted::Bytes(_) => 0, // refused by `is_gzip`
        };
        let mut bytes = Vec::new();
        let mut decoder = flate2::read::MultiGzDecoder::new(body).take(most.saturating_add(1));
        decoder.read_to_end(&mut bytes).map_err(|error| {
            self.at(request, Error::corrupt(format!("expected Content-Encoding gzip, found damaged gzip: {error}")))
        })?;
        if bytes.len() as u64 > most {
            return Err(self.at(request, too_large(most, &"more after gzip is decoded")));
        }
        Ok(Body::new(bytes))
    }

    /// Maps an error of the store.
    fn failure(&self, request: &Request, error: &::object_store::Error) -> Failure {
        use ::object_store::Error as E;

        if let Some(missing) = missing_bucket(error) {
            return Failure::Other(self.at(request, missing));
        }
        match error {
            E::NotFound { .. } => Failure::NotFound,
            E::Precondition { .. } if request.if_match.is_some() => Failure::Replaced,
            // some stores answer 412 to If-None-Match, R2 for example
            E::NotModified { .. } | E::Precondition { .. } if request.if_none_match.is_some() => Failure::Unchanged,
            error => Failure::Other(self.broken(request, error)),
        }
    }

    /// The error of a request that failed for good.
    fn broken(&self, request: &Request, error: &(dyn StdError + 'static)) -> Error {
        use ::object_store::Error as E;

        let kind = match error.downcast_ref::<E>() {
            _ if is_range_ignored(error) => return self.at(request, ignores_ranges(request)),
            _ if contains(error, "416 Range Not Satisfiable") => return self.at(request, ends_before(request)),
            Some(E::PermissionDenied { .. } | E::Unauthenticated { .. }) => io::ErrorKind::PermissionDenied,
            Some(E::InvalidPath { .. }) => io::ErrorKind::InvalidInput,
            _ if contains(error, "timed out") => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        self.io(request, kind, cause(error))
    }

    fn wrong_range(&self, request: &Request, range: &Range<u64>, found: &Range<u64>) -> Error {
        let message = format!(
            "expected bytes {}..{} or the first of them, found bytes {}..{}",
            range.start, range.end, found.start, found.end
        );
        self.io(request, io::ErrorKind::InvalidData, message)
    }

    fn wrong_len(&self, request: &Request, expected: u64, found: &dyn fmt::Display) -> Error {
        self.io(request, io::ErrorKind::UnexpectedEof, format!("expected {expected} bytes, found {found}"))
    }

    fn io(&self, request: &Request, kind: io::ErrorKind, message: String) -> Error {
        let what = match &request.wanted {
            Wanted::Whole { .. } => "read the object".to_string(),
            Wanted::Bytes(range) => format!("read bytes {}..{}", range.start, range.end),
        };
        Error::io(&what, Path::new(&self.url(&request.object)), io::Error::new(kind, message))
    }

    fn at(&self, request: &Request, error: Error) -> Error {
        error.at_path(Path::new(&self.url(&request.object)))
    }

    /// How errors name the root of the data set.
    pub(crate) fn root_name(&self) -> &str {
        &self.root_name
    }

    /// How errors name an object.
    fn url(&self, object: &str) -> String {
        format!("{}/{object}", self.root_name.trim_end_matches('/'))
    }
}

/// What errors name if the caller gave no name: the store's own description.
fn store_name(store: &dyn ObjectStore, prefix: &ObjectPath) -> String {
    if prefix.is_root() { store.to_string() } else { format!("{store}/{prefix}") }
}

fn options_of(request: &Request) -> GetOptions {
    let range = match &request.wanted {
        Wanted::Whole { .. } => None,
        Wanted::Bytes(range) => Some(GetRange::Bounded(range.clone())),
    };
    let (if_match, if_none_match) = (request.if_match.clone(), request.if_none_match.clone());
    GetOptions { range, if_match, if_none_match, ..GetOptions::default() }
}

/// The object is shorter than an index or a manifest states.
fn ends_before(request: &Request) -> Error {
    let range = range_of(request);
    Error::corrupt(format!(
        "expected {range}, found an object that ends before them (status 416); run `sharddb verify`"
    ))
}

fn range_of(request: &Request) -> String {
    match &request.wanted {
        Wanted::Bytes(range) => format!("bytes {}..{}", range.start, range.end),
        Wanted::Whole { .. } => "a range".to_string(),
    }
}

fn ignores_ranges(request: &Request) -> Error {
    let range = range_of(request);
    let message = format!(
        "the server ignores Range requests: expected {range} with status 206, found the whole object with status 200; \
         serve the data set with a server that supports Range, or copy it to a local disk"
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// Whether the server answered a range with the whole object. `object_store` has no variant for it.
fn is_range_ignored(error: &(dyn StdError + 'static)) -> bool {
    contains(error, "Range request not supported") || contains(error, "non-partial response")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::object_store::memory::InMemory;
    use ::object_store::{Error as StoreError, GetResultPayload, ObjectStoreExt, PutOptions, PutPayload};
    use futures_util::stream;

    use super::*;
    use crate::database::testing::{Recorder, block_on};

    /// A store with the object `store/a`, of the bytes 0 to 99, and a transport to `store`.
    async fn hundred() -> (Arc<Recorder<InMemory>>, Transport) {
        let recorder = Arc::new(Recorder::new(InMemory::new()));
        recorder.put(&"store/a".into(), (0..100).collect::<Vec<u8>>().into()).await.unwrap();
        let transport = Transport::new(recorder.clone(), "store", "s3://bucket/store".to_string()).unwrap();
        (recorder, transport)
    }

    fn bytes(range: Range<u64>) -> Request {
        Request::new("a", Wanted::Bytes(range))
    }

    fn whole(most: u64) -> Request {
        Request::new("a", Wanted::Whole { most })
    }

    fn other(answer: Result<Response, Failure>) -> Error {
        match answer {
            Err(Failure::Other(error)) => error,
            answer => panic!("expected another failure, found {answer:?}"),
        }
    }

    /// The answer with other bytes, of which only the stream knows.
    fn with_body(answer: ::object_store::Result<GetResult>, pieces: Vec<&'static [u8]>) -> GetResult {
        let pieces = pieces.into_iter().map(|piece| Ok(PutPayload::from_static(piece).into()));
        GetResult { payload: GetResultPayload::Stream(Box::pin(stream::iter(pieces))), ..answer.unwrap() }
    }

    #[test]
    fn a_range_comes_with_the_etag_and_the_length_of_the_object() {
        block_on(async {
            let (recorder, transport) = hundred().await;
            let response = transport.perform(&bytes(10..13)).await.unwrap();
            assert_eq!(response.body.as_slice(), [10, 11, 12]);
            assert_eq!((response.etag.as_deref(), response.object_len), (Some("\"0\""), Some(100)));
            let response = transport.perform(&bytes(98..200)).await.unwrap();
            assert_eq!(response.body.as_slice(), [98, 99]);
            let seen = recorder.take_requests();
            assert_eq!((seen[0].object.as_str(), seen[0].range.clone()), ("store/a", Some(10..13)));
            assert_eq!(seen.len(), 2);
        });
    }

    #[test]
    fn a_length_that_is_marked_as_unknown_is_not_passed_on() {
        block_on(async {
            let (recorder, transport) = hundred().await;
            recorder.change(|_, _, answer| {
                let mut answer = answer?;
                answer.meta.size = answer.range.end;
                answer.extensions.insert(UnknownLength);
                Ok(answer)
            });
            for (range, expected) in [(10..13, &[10, 11, 12][..]), (98..200, &[98, 99])] {
                let response = transport.perform(&bytes(range)).await.unwrap();
                assert_eq!((response.body.as_slice(), response.object_len), (expected, None));
            }
        });
    }

    #[test]
    fn a_whole_object_is_not_transferred_if_it_is_too_long() {
        block_on(async {
            let (_, transport) = hundred().await;
            assert_eq!(transport.perform(&whole(100)).await.unwrap().body.as_slice().len(), 100);
            let error = other(transport.perform(&whole(99)).await);
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            assert_eq!(
                error.to_string(),
                "expected an object of at most 99 bytes, found 100: it is not of a data set, or damaged; check the address \
                 (file s3://bucket/store/a)"
            );
        });
    }

    #[test]
    fn conditions_are_sent_and_their_failures_distinguished() {
        block_on(async {
            let (recorder, transport) = hundred().await;
            let with = |if_match: Option<&str>, if_none_match: Option<&str>| Request {
                if_match: if_match.map(str::to_string),
                if_none_match: if_none_match.map(str::to_string),
                ..bytes(0..1)
            };
            assert!(transport.perform(&with(Some("\"0\""), None)).await.is_ok());
            assert!(matches!(transport.perform(&with(Some("\"7\""), None)).await, Err(Failure::Replaced)));
            assert!(matches!(transport.perform(&with(None, Some("\"0\""))).await, Err(Failure::Unchanged)));
            assert!(transport.perform(&with(None, Some("\"7\""))).await.is_ok());
            let absent = Request::new("b", Wanted::Whole { most: 9 });
            assert!(matches!(transport.perform(&absent).await, Err(Failure::NotFound)));
            let seen = recorder.take_requests();
            assert_eq!((seen[1].if_match.as_deref(), seen[2].if_none_match.as_deref()), (Some("\"7\""), Some("\"0\"")));
        });
    }

    #[test]
    fn names_that_leave_the_prefix_are_not_requested() {
        block_on(async {
            let (recorder, transport) = hundred().await;
            for object in ["../a", "x/../../a", "x//a", "."] {
                let error = other(transport.perform(&Request::new(object, Wanted::Bytes(0..1))).await);
                assert_eq!(error.io_kind(), Some(io::ErrorKind::InvalidInput), "{object}");
            }
            assert_eq!(recorder.take_requests(), []);
            let error = Transport::new(recorder, "a/../b", String::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        });
    }

    #[test]
    fn a_body_that_is_not_as_long_as_announced_is_an_error() {
        block_on(async {
            let (recorder, transport) = hundred().await;
            let cases: [(Vec<&[u8]>, &str); 3] = [
                (vec![b"abc"], "expected 4 bytes, found 3"),
                (vec![b"ab", b"cde", b"never read"], "expected 4 bytes, found more"),
                (vec![], "expected 4 bytes, found 0"),
            ];
            for (pieces, message) in cases {
                recorder.change(move |_, _, answer| Ok(with_body(answer, pieces.clone())));
                let error = other(transport.perform(&bytes(4..8)).await);
                assert_eq!(error.kind(), ErrorKind::Io);
                assert_eq!(error.to_string(), format!("cannot read bytes 4..8: {message} (file s3://bucket/store/a)"));
            }
            recorder.change(|_, _, answer| Ok(with_body(answer, vec![b"a", b"", b"bcd"])));
            assert_eq!(transport.perform(&bytes(4..8)).await.unwrap().body.as_slice(), b"abcd");
        });
    }

    #[test]
    fn another_range_than_the_requested_one_is_an_error() {
        block_on(async {
            let (recorder, transport) = hundred().await;
            for (start, end) in [(0, 4), (5, 9), (4, 9), (8, 4)] {
                let found = Range { start, end };
                let range = found.clone();
                recorder.change(move |_, _, answer| Ok(GetResult { range: range.clone(), ..answer.unwrap() }));
                let error = other(transport.perform(&bytes(4..8)).await).to_string();
                let expected = format!("found bytes {}..{} (file s3://bucket/store/a)", found.start, found.end);
                assert!(error.ends_with(&expected), "{error}");
            }
        });
    }

    #[test]
    fn a_length_that_a_server_invents_reserves_little_memory() {
        block_on(async {
            let (recorder, transport) = hundred().await;
            recorder.change(|_, _, answer| {
                let mut answer = with_body(answer, vec![b"a"]);
                (answer.range, answer.meta.size) = (0..u64::MAX, u64::MAX);
                Ok(answer)
            });
            let error = other(transport.perform(&whole(u64::MAX)).await).to_string();
            assert!(error.contains("expected 18446744073709551615 bytes, found 1"), "{error}");
        });
    }

    #[test]
    fn the_wait_for_the_head_is_stated() {
        block_on(async {
            let latency = Duration::from_millis(20);
            let store = Recorder::with_latency(InMemory::new(), latency);
            store.put(&"a".into(), vec![0; 100].into()).await.unwrap();
            let transport = Transport::new(Arc::new(store), "", String::new()).unwrap();
            let timing = transport.perform(&bytes(0..100)).await.unwrap().timing.unwrap();
            assert!(timing.wait >= latency, "{timing:?}");
        });
    }

    #[test]
    fn gzip_of_the_transfer_is_undone_for_whole_objects_alone() {
        block_on(async {
            let (recorder, transport) = hundred().await;
            let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            io::Write::write_all(&mut member, &[7; 1000]).unwrap();
            let mut options = PutOptions::default();
            options.attributes.insert(Attribute::ContentEncoding, "gzip".into());
            recorder.put_opts(&"store/a".into(), member.finish().unwrap().into(), options).await.unwrap();
            let response = transport.perform(&whole(1000)).await.unwrap();
            assert_eq!(response.body.as_slice(), [7; 1000]);
            assert_eq!(response.object_len, None, "the store knows the encoded length");
            assert_eq!(response.timing, None, "and the time of the encoded bytes");
            let error = other(transport.perform(&whole(999)).await);
            assert_eq!(error.kind(), ErrorKind::TooLarge);
            let error = other(transport.perform(&bytes(0..4)).await);
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("Content-Encoding gzip"), "{error}");
        });
    }

    #[test]
    fn other_errors_name_object_range_and_cause_in_one_short_line() {
        block_on(async {
            let (recorder, transport) = hundred().await;
            recorder.change(|_, _, _| {
                Err(StoreError::Generic { store: "S3", source: format!("503:\n  {}", "é".repeat(5000)).into() })
            });
            let error = other(transport.perform(&bytes(4..8)).await);
            let text = error.to_string();
            assert!(text.starts_with("cannot read bytes 4..8: Generic S3 error: 503: é"), "{text}");
            assert!(text.ends_with("é [cut] (file s3://bucket/store/a)"), "{text}");
            assert!(text.chars().count() < 700 && !text.contains('\n'));

            recorder
                .change(|_, _, _| Err(StoreError::PermissionDenied { path: "a".to_string(), source: "403".into() }));
            let error = other(transport.perform(&whole(100)).await);
            assert_eq!(error.io_kind(), Some(io::ErrorKind::PermissionDenied));
            assert!(error.to_string().starts_with("cannot read the object: "), "{error}");
        });
    }
}
