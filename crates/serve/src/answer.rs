//! Answers: a status, headers, and a body that is made piece by piece while the client reads it.

use std::fs::File;
use std::io;
use std::ops::Range;

use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE, RETRY_AFTER,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use bytes::Bytes;

use crate::budget::{Budget, Share};
use crate::byte_range::{Wanted, wanted};
use crate::entity_tag::{EntityTag, Precondition};
use crate::problem::{Problem, Result};

/// The bytes that are read ahead of a client.
const PIECE_BYTES: u64 = 128 << 10;

pub(crate) const JSON: &str = "application/json";
pub(crate) const NDJSON: &str = "application/x-ndjson";
pub(crate) const BYTES: &str = "application/octet-stream";

/// An answer. Its body is not sent in answer to HEAD.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: AnswerBody,
}

/// The bytes of an answer.
pub(crate) enum AnswerBody {
    Bytes(Bytes),
    /// Made on a thread for blocking calls, one piece at a time.
    Pieces(Box<dyn Pieces>),
}

/// A body that is made piece by piece. A client that does not read costs one piece of memory and no thread.
pub(crate) trait Pieces: Send {
    /// Returns the next piece, which is not empty; `None` at the end.
    ///
    /// Errors: the connection is closed, so that the client sees that the body is not complete.
    fn next(&mut self) -> io::Result<Option<Bytes>>;
}

/// A complete representation of which a client may want a part.
pub(crate) struct Representation {
    pub(crate) tag: EntityTag,
    pub(crate) content_type: &'static str,
    pub(crate) source: Source,
}

/// Where the bytes of a representation are.
pub(crate) enum Source {
    /// In memory, with their share of the budget.
    Memory(Bytes, Share),
    /// A part of a file.
    File(File, Range<u64>),
}

impl Source {
    /// The text of a JSON value.
    ///
    /// Errors: `busy`, `too-large`.
    pub(crate) fn of_text(value: &serde_json::Value, budget: &Budget) -> Result<Source> {
        let text = value.to_string();
        let share = budget.reserve(text.len() as u64)?;
        Ok(Source::Memory(text.into(), share))
    }

    fn len(&self) -> u64 {
        match self {
            Source::Memory(bytes, _) => bytes.len() as u64,
            Source::File(_, range) => range.end - range.start,
        }
    }

    /// The bytes of a range of these bytes.
    fn part(self, range: Range<u64>) -> AnswerBody {
        match self {
            Source::Memory(bytes, share) => {
                let rest = slice(&bytes, range);
                if share.is_empty() {
                    AnswerBody::Bytes(rest)
                } else {
                    AnswerBody::Pieces(Box::new(SharedPieces { rest, _share: share }))
                }
            }
            Source::File(file, all) => {
                AnswerBody::Pieces(Box::new(FilePieces { file, rest: all.start + range.start..all.start + range.end }))
            }
        }
    }
}

/// The part of `bytes` that exists.
fn slice(bytes: &Bytes, range: Range<u64>) -> Bytes {
    let end = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(end(range.start)..end(range.end))
}

impl Answer {
    /// A JSON object that is not kept by caches. A long text has a share of the memory until it is sent.
    ///
    /// Errors: `busy`, `too-large`.
    pub(crate) fn json(value: &serde_json::Value, budget: &Budget) -> Result<Answer> {
        let source = Source::of_text(value, budget)?;
        let mut answer = Answer::of_bytes(StatusCode::OK, JSON, Bytes::new());
        answer.set(CACHE_CONTROL, "no-store");
        answer.set_number(CONTENT_LENGTH, source.len());
        answer.body = source.part(0..u64::MAX);
        Ok(answer)
    }

    /// Lines of JSON, of which the number of bytes is not known.
    pub(crate) fn lines(pieces: Box<dyn Pieces>) -> Answer {
        let mut answer = Answer::of_bytes(StatusCode::OK, NDJSON, Bytes::new());
        answer.headers.remove(CONTENT_LENGTH);
        answer.set(CACHE_CONTROL, "no-store");
        answer.body = AnswerBody::Pieces(pieces);
        answer
    }

    pub(crate) fn of_bytes(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Answer {
        let mut answer = Answer { status, headers: HeaderMap::new(), body: AnswerBody::Bytes(Bytes::new()) };
        answer.set(CONTENT_TYPE, content_type);
        answer.set_number(CONTENT_LENGTH, bytes.len() as u64);
        answer.body = AnswerBody::Bytes(bytes);
        answer
    }

    /// Answers a request for a representation: all of it, a part, or its state only.
    pub(crate) fn of(representation: Representation, request: &HeaderMap) -> Answer {
        let Representation { tag, content_type, source } = representation;
        let len = source.len();
        let mut answer = Answer::of_bytes(StatusCode::OK, content_type, Bytes::new());
        answer.set(ACCEPT_RANGES, "bytes");
        answer.set(CACHE_CONTROL, "no-cache"); // may be kept, and is compared by its tag before each use
        answer.set(ETAG, &tag.quoted());
        match tag.precondition(request) {
            Precondition::Failed => return answer.without_body(StatusCode::PRECONDITION_FAILED),
            Precondition::NotModified => return answer.without_body(StatusCode::NOT_MODIFIED),
            Precondition::Met => {}
        }
        let mut ranges = request.get_all(RANGE).iter().filter(|_| tag.allows_range(request));
        let range = ranges.next().filter(|_| ranges.next().is_none()).and_then(|range| range.to_str().ok());
        let part = match wanted(range, len) {
            Wanted::Whole => 0..len,
            Wanted::Part(part) => {
                answer.status = StatusCode::PARTIAL_CONTENT;
                answer.set(CONTENT_RANGE, &format!("bytes {}-{}/{len}", part.start, part.end - 1));
                part
            }
            Wanted::Unsatisfiable => {
                answer.set(CONTENT_RANGE, &format!("bytes */{len}"));
                return answer.without_body(StatusCode::RANGE_NOT_SATISFIABLE);
            }
        };
        answer.set_number(CONTENT_LENGTH, part.end - part.start);
        answer.body = source.part(part);
        answer
    }

    fn without_body(mut self, status: StatusCode) -> Answer {
        self.status = status;
        self.headers.remove(CONTENT_TYPE);
        if status == StatusCode::NOT_MODIFIED {
            self.headers.remove(CONTENT_LENGTH);
        }
        self
    }

    pub(crate) fn set(&mut self, name: HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
    }

    fn set_number(&mut self, name: HeaderName, value: u64) {
        self.headers.insert(name, HeaderValue::from(value));
    }

    /// The bytes of the body that the headers state; `None` for the lines of many keys, which are made while they are sent.
    pub(crate) fn len(&self) -> Option<u64> {
        self.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Answer {
        let mut answer = Answer::of_bytes(problem.status, JSON, problem.body().into());
        answer.set(CACHE_CONTROL, "no-store");
        if problem.status == StatusCode::SERVICE_UNAVAILABLE {
            answer.set(RETRY_AFTER, "1");
        }
        answer
    }
}

/// A part of a file, read as the client takes it.
struct FilePieces {
    file: File,
    rest: Range<u64>,
}

impl Pieces for FilePieces {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let len = (self.rest.end - self.rest.start).min(PIECE_BYTES);
        if len == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; usize::try_from(len).unwrap_or(0)];
        read_exact_at(&self.file, &mut piece, self.rest.start)?;
        self.rest.start += len;
        Ok(Some(piece.into()))
    }
}

/// A large value in memory.
struct SharedPieces {
    rest: Bytes,
    _share: Share,
}

impl Pieces for SharedPieces {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let len = self.rest.len().min(usize::try_from(PIECE_BYTES).unwrap_or(usize::MAX));
        Ok((len > 0).then(|| self.rest.split_to(len)))
    }
}

/// Reads bytes at an offset. An error of kind `UnexpectedEof` states that the file is shorter.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

/// Reads bytes at an offset. An error of kind `UnexpectedEof` states that the file is shorter.
#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                buffer = buffer.split_at_mut(read).1;
                offset += read as u64;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(headers: &[(HeaderName, &str)]) -> Answer {
        let request = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        let source = Source::Memory(Bytes::from_static(b"0123456789"), Share::default());
        Answer::of(Representation { tag: EntityTag::new("t"), content_type: BYTES, source }, &request)
    }

    fn body(answer: Answer) -> Vec<u8> {
        match answer.body {
            AnswerBody::Bytes(bytes) => bytes.to_vec(),
            AnswerBody::Pieces(mut pieces) => {
                std::iter::from_fn(|| pieces.next().unwrap()).flat_map(|piece| piece.to_vec()).collect()
            }
        }
    }

    #[test]
    fn a_part_has_its_place_and_its_length() {
        let part = answer(&[(RANGE, "bytes=2-4")]);
        assert_eq!(part.status, StatusCode::PARTIAL_CONTENT);
        assert_eq!((&part.headers[CONTENT_RANGE], part.len()), (&HeaderValue::from_static("bytes 2-4/10"), Some(3)));
        assert_eq!(body(part), b"234");
        let all = answer(&[(RANGE, "bytes=2-4"), (RANGE, "bytes=6-7")]); // several ranges
        assert_eq!((all.status, all.len()), (StatusCode::OK, Some(10)));
        let none = answer(&[(RANGE, "bytes=10-")]);
        assert_eq!(none.status, StatusCode::RANGE_NOT_SATISFIABLE);
        assert_eq!((&none.headers[CONTENT_RANGE], none.len()), (&HeaderValue::from_static("bytes */10"), Some(0)));
    }

    #[test]
    fn conditions_are_checked_before_the_range() {
        use axum::http::header::{IF_MATCH, IF_NONE_MATCH, IF_RANGE};
        let status = |headers: &[(HeaderName, &str)]| answer(headers).status.as_u16();
        let range = (RANGE, "bytes=0-0");
        assert_eq!(status(&[(IF_NONE_MATCH, "\"t\""), range.clone()]), 304);
        assert_eq!(status(&[(IF_MATCH, "\"u\""), range.clone()]), 412);
        assert_eq!(status(&[(IF_RANGE, "\"t\""), range.clone()]), 206);
        assert_eq!(status(&[(IF_RANGE, "\"u\""), range]), 200);
    }

    #[test]
    fn a_file_is_sent_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(directory.path().join("f"), &bytes).unwrap();
        let file = || File::open(directory.path().join("f")).unwrap();
        let mut pieces = FilePieces { file: file(), rest: 1..bytes.len() as u64 - 1 };
        let read: Vec<Bytes> = std::iter::from_fn(|| pieces.next().unwrap()).collect();
        assert_eq!(read.concat(), bytes[1..bytes.len() - 1]);
        assert!(read.len() > 5 && read.iter().all(|piece| piece.len() as u64 <= PIECE_BYTES));
        let mut beyond = FilePieces { file: file(), rest: 0..bytes.len() as u64 + 1 };
        let error = std::iter::from_fn(|| Some(beyond.next())).find_map(std::result::Result::err).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "a file that shrank is not a complete body");
    }
}
