//! The binary formats: records without anything between them.
//!
//! ```text
//! bin   | key u64le | length u64le | bytes |
//! bin2  | key u64le | preamble length u64le | length u64le | preamble | bytes |
//! ```

use std::io::Read;

use crate::failure::{Failure, Place, Result};
use crate::input::exact::{Exact, Outcome};
use crate::input::{SMALL, Sink, Stream};

/// The header of a record.
#[derive(Clone, Copy)]
struct Head {
    /// The byte offset of the record.
    at: u64,
    key: u64,
    preamble_len: u64,
    value_len: u64,
}

/// Reads `bin` to its end.
pub(crate) fn read_bin(stream: &mut Stream, sink: &mut dyn Sink) -> Result<()> {
    let mut body = Vec::new();
    loop {
        let at = stream.offset();
        let Some([key, value_len]) = read_words(stream)? else { return Ok(()) };
        read_record(stream, Head { at, key, preamble_len: 0, value_len }, &mut body, sink)?;
    }
}

/// Reads `bin2` to its end.
pub(crate) fn read_bin2(stream: &mut Stream, sink: &mut dyn Sink) -> Result<()> {
    let mut body = Vec::new();
    loop {
        let at = stream.offset();
        let Some([key, preamble_len, value_len]) = read_words(stream)? else { return Ok(()) };
        read_record(stream, Head { at, key, preamble_len, value_len }, &mut body, sink)?;
    }
}

/// The next `N` words; `None` at the end of the stream.
///
/// Errors: `Malformed` if the stream ends within them.
fn read_words<const N: usize>(stream: &mut Stream) -> Result<Option<[u64; N]>> {
    let at = stream.offset();
    let mut words = [[0; 8]; N];
    let bytes = words.as_flattened_mut();
    let (expected, found) = (bytes.len(), stream.fill(bytes)?);
    if found == 0 {
        return Ok(None);
    }
    if found < expected {
        let message = format!("expected a record, which begins with {expected} bytes, found the end after {found}");
        return Err(Failure::malformed(stream.name(), Place::Byte(at), message));
    }
    Ok(Some(words.map(u64::from_le_bytes)))
}

fn read_record(stream: &mut Stream, head: Head, body: &mut Vec<u8>, sink: &mut dyn Sink) -> Result<()> {
    let len = body_len(stream, head)?;
    if len > SMALL {
        return stream_record(stream, head, len, sink);
    }
    body.clear();
    let read = stream.take(len).read_to_end(body).map_err(|error| stream.failure(error))? as u64;
    if read < len {
        return Err(truncated(stream, head, len, read));
    }
    // the preamble is not longer than the body, so `min` never applies
    let (preamble, value) = body.split_at(usize::try_from(head.preamble_len).unwrap_or(0).min(body.len()));
    sink.insert(head.key, preamble, value).map_err(|failure| failure.at(stream.name(), Place::Byte(head.at)))
}

fn stream_record(stream: &mut Stream, head: Head, len: u64, sink: &mut dyn Sink) -> Result<()> {
    let mut exact = Exact::new(&mut *stream, len);
    let inserted = sink.insert_reader(head.key, head.preamble_len, head.value_len, &mut exact);
    match exact.outcome() {
        Outcome::Fine => inserted.map_err(|failure| failure.at(stream.name(), Place::Byte(head.at))),
        Outcome::Short(left) => Err(truncated(stream, head, len, len - left)),
        Outcome::Failed(error) => Err(stream.failure(error)),
    }
}

/// The length of preamble and value. Refuses a length beyond the end of the file, before anything is allocated for it.
fn body_len(stream: &Stream, head: Head) -> Result<u64> {
    let len = head.preamble_len.checked_add(head.value_len);
    if let Some(len) = len.filter(|len| stream.rest().is_none_or(|rest| *len <= rest)) {
        return Ok(len);
    }
    let lengths = match head.preamble_len {
        0 => format!("{} bytes", head.value_len),
        preamble_len => format!("{preamble_len} and {} bytes", head.value_len),
    };
    let most = stream.rest().map_or("less than 2^64 in all".to_string(), |rest| format!("{rest} up to the end"));
    let message = format!("expected the {lengths} of key {}, found {most}", head.key);
    Err(Failure::malformed(stream.name(), Place::Byte(head.at), message))
}

fn truncated(stream: &Stream, head: Head, expected: u64, found: u64) -> Failure {
    let message = format!("expected the {expected} bytes of key {}, found the end after {found}", head.key);
    Failure::malformed(stream.name(), Place::Byte(head.at), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::testing::{Pair, Pairs, pair};

    fn record(words: &[u64], body: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(body);
        bytes
    }

    fn bin(stream: &mut Stream) -> Result<Vec<Pair>> {
        let mut pairs = Pairs::default();
        read_bin(stream, &mut pairs).map(|()| pairs.0)
    }

    fn bin2(stream: &mut Stream) -> Result<Vec<Pair>> {
        let mut pairs = Pairs::default();
        read_bin2(stream, &mut pairs).map(|()| pairs.0)
    }

    #[test]
    fn reads_bin() {
        #[rustfmt::skip]
        let bytes = [
            1, 0, 0, 0, 0, 0, 0, 0,                                 // key 1
            3, 0, 0, 0, 0, 0, 0, 0,                                 // 3 bytes
            b'a', b'b', b'c',
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,         // key 2^64 - 1
            0, 0, 0, 0, 0, 0, 0, 0,                                 // none
        ];
        let expected = [pair(1, b"", b"abc"), pair(u64::MAX, b"", b"")];
        assert_eq!(bin(&mut Stream::of_bytes("a.bin", &bytes)).unwrap(), expected);
        assert_eq!(bin(&mut Stream::of_pipe("-", &bytes)).unwrap(), expected);
        assert_eq!(bin(&mut Stream::of_bytes("empty.bin", b"")).unwrap(), []);
    }

    #[test]
    fn reads_bin2() {
        #[rustfmt::skip]
        let bytes = [
            2, 1, 0, 0, 0, 0, 0, 0,                                 // key 258
            2, 0, 0, 0, 0, 0, 0, 0,                                 // 2 bytes before it
            1, 0, 0, 0, 0, 0, 0, 0,                                 // 1 byte
            b'p', b'q', b'v',
            7, 0, 0, 0, 0, 0, 0, 0,                                 // key 7
            0, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let expected = [pair(258, b"pq", b"v"), pair(7, b"", b"")];
        assert_eq!(bin2(&mut Stream::of_bytes("a.bin2", &bytes)).unwrap(), expected);
    }

    #[test]
    fn streams_what_is_large() {
        let large = vec![9; (1 << 20) + 1];
        let bytes = [record(&[5, large.len() as u64], &large), record(&[6, 1], b"x")].concat();
        let expected = [pair(5, b"", &large), pair(6, b"", b"x")];
        assert!(bin(&mut Stream::of_bytes("a.bin", &bytes)).unwrap() == expected);
        let bytes = record(&[5, 2, large.len() as u64 - 2], &large);
        let expected = [pair(5, &large[..2], &large[2..])];
        assert!(bin2(&mut Stream::of_pipe("-", &bytes)).unwrap() == expected);
    }

    /// One case for each way to be wrong, with the byte offset of the record.
    #[test]
    fn names_the_record_that_is_wrong() {
        let good = record(&[1, 3], b"abc");
        let after_good = |rest: &[u8]| [&good[..], rest].concat();
        let large = record(&[8, SMALL + 2], &[0; 1 << 20]);
        let at_19 = "byte 19)";
        let cases: [(&str, Stream, &[&str]); 8] = [
            ("half a head", Stream::of_bytes("f", &after_good(&[0; 7])), &["16 bytes", "after 7", at_19]),
            ("a head short of a byte", Stream::of_pipe("f", &after_good(&[0; 15])), &["after 15", at_19]),
            (
                "length beyond the file",
                Stream::of_bytes("f", &after_good(&record(&[9, 4], b"abc"))),
                &["4 bytes of key 9", "found 3", at_19],
            ),
            ("length beyond all files", Stream::of_bytes("f", &record(&[9, u64::MAX], b"")), &["found 0", "byte 0)"]),
            (
                "pipe ends early",
                Stream::of_pipe("f", &after_good(&record(&[9, 4], b"abc"))),
                &["4 bytes of key 9", "after 3", at_19],
            ),
            ("pipe ends early in a large one", Stream::of_pipe("f", &after_good(&large)), &["after 1048576", at_19]),
            (
                "pipe that promises everything",
                Stream::of_pipe("f", &record(&[9, u64::MAX], b"abc")),
                &["after 3", "byte 0)"],
            ),
            ("large one beyond the file", Stream::of_bytes("f", &after_good(&large)), &["found 1048576", at_19]),
        ];
        for (case, mut stream, parts) in cases {
            let Err(Failure::Malformed(malformed)) = bin(&mut stream) else {
                panic!("{case}: expected a malformed record")
            };
            let message = malformed.to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{case}: {message}");
        }
    }

    #[test]
    fn names_the_bin2_record_that_is_wrong() {
        let cases: [(&str, Vec<u8>, &str); 4] = [
            ("half a head", vec![0; 23], "begins with 24 bytes, found the end after 23 (file f, byte 0)"),
            (
                "preamble beyond the file",
                record(&[1, 9, 1], b"abc"),
                "the 9 and 1 bytes of key 1, found 3 up to the end (file f, byte 0)",
            ),
            ("sum beyond 2^64", record(&[1, u64::MAX, 1], b"abc"), "found 3 up to the end (file f, byte 0)"),
            ("ends in the value", record(&[1, 2, 2], b"abc"), "2 and 2 bytes of key 1, found 3"),
        ];
        for (case, bytes, part) in cases {
            let message = bin2(&mut Stream::of_bytes("f", &bytes)).unwrap_err().to_string();
            assert!(message.contains(part), "{case}: {message}");
        }
        let message = bin2(&mut Stream::of_pipe("f", &record(&[1, u64::MAX, 1], b"abc"))).unwrap_err().to_string();
        assert!(message.contains("less than 2^64 in all (file f, byte 0)"), "{message}");
    }

    #[test]
    fn good_records_before_a_bad_one_are_handed_on() {
        let mut pairs = Pairs::default();
        let bytes = [record(&[1, 3], b"abc"), vec![0; 3]].concat();
        assert!(read_bin(&mut Stream::of_bytes("f", &bytes), &mut pairs).is_err());
        assert_eq!(pairs.0, [pair(1, b"", b"abc")]);
    }
}
