//! Lists of keys: a file or standard input with one key per line.

use std::io::{BufRead, Read};

use sharddb::internal::key::Key;

use crate::failure::{Malformed, Place, Result};
use crate::input::mark;
use crate::input::stream::Stream;

/// The keys of a list, one per line, in order. A UTF-8 byte order mark at the beginning is skipped.
pub(crate) struct KeyList {
    stream: Stream,
    line: u64,
    /// The current line, or the beginning of a line that is too long.
    buffer: Vec<u8>,
    /// Whether the line continues after the end of `buffer`.
    is_cut: bool,
}

/// A line of a list that is not a key.
#[derive(Debug)]
pub(crate) struct BadLine {
    /// The text of the line; if it is too long, its beginning.
    pub(crate) text: String,
    /// What is wrong, and where.
    pub(crate) malformed: Malformed,
}

/// A line of a list: a key, or why it is none.
pub(crate) type Listed = Result<u64, Box<BadLine>>;

/// Upper bound on the length of a line, with room for white space around a key.
const LONGEST_LINE: u64 = 4096;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl KeyList {
    pub(crate) fn new(stream: Stream) -> KeyList {
        KeyList { stream, line: 0, buffer: Vec::new(), is_cut: false }
    }

    /// The next lines that have arrived; empty only at the end. Blank lines are left out.
    ///
    /// Does not wait for more lines once one has arrived, so a caller that writes one key at a time gets each answer.
    ///
    /// Errors: those of the stream.
    pub(crate) fn next_batch(&mut self) -> Result<Vec<Listed>> {
        let mut lines = Vec::new();
        while lines.is_empty() || self.stream.buffer().contains(&b'\n') {
            if !self.next_line()? {
                break;
            }
            lines.extend(self.parse_line()?);
        }
        Ok(lines)
    }

    fn next_line(&mut self) -> Result<bool> {
        self.buffer.clear();
        let read = (&mut self.stream).take(LONGEST_LINE).read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|error| self.stream.failure(error))?;
        self.line += 1;
        self.is_cut = read as u64 == LONGEST_LINE && !self.buffer.ends_with(b"\n");
        if self.line == 1 && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(read > 0)
    }

    /// Parses the current line; `None` if it is blank.
    fn parse_line(&mut self) -> Result<Option<Listed>> {
        if self.is_cut && self.skip_line()? {
            let message = format!("expected one key per line, found a line of more than {LONGEST_LINE} bytes");
            return Ok(Some(Err(self.bad_line(message))));
        }
        let text = String::from_utf8_lossy(&self.buffer);
        let text = text.trim();
        if let Some(mark) = mark::describe(&self.buffer).filter(|_| self.line == 1) {
            return Ok(Some(Err(self.bad_line(format!("expected a key, found {mark}")))));
        }
        let parse = || text.parse::<Key>().map(|key| key.0).map_err(|message| self.bad_line(message));
        Ok((!text.is_empty()).then(parse))
    }

    /// Skips to the end of the line; returns whether there was more of it.
    fn skip_line(&mut self) -> Result<bool> {
        let skipped = self.stream.skip_until(b'\n').map_err(|error| self.stream.failure(error))?;
        Ok(skipped > 0)
    }

    fn bad_line(&self, message: String) -> Box<BadLine> {
        let malformed = Malformed { message, input: self.stream.name().to_string(), place: Place::Line(self.line) };
        Box::new(BadLine { text: String::from_utf8_lossy(&self.buffer).trim().to_string(), malformed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Listed> {
        let mut list = KeyList::new(Stream::of_bytes("keys.txt", text.as_bytes()));
        let mut lines = Vec::new();
        loop {
            let batch = list.next_batch().unwrap();
            if batch.is_empty() {
                return lines;
            }
            lines.extend(batch);
        }
    }

    fn keys(text: &str) -> Vec<u64> {
        lines(text).into_iter().map(|line| line.map_err(|bad| bad.malformed.to_string()).unwrap()).collect()
    }

    #[test]
    fn a_list_has_a_key_a_line() {
        assert!(keys("").is_empty());
        assert!(keys("\n \n").is_empty());
        assert_eq!(keys("1\n0x2\r\n\n 3 \n4"), [1, 2, 3, 4]);
        assert_eq!(keys("\u{feff}1\n2"), [1, 2]);
        assert!(keys("\u{feff}").is_empty());
    }

    #[test]
    fn a_bad_line_is_named_and_the_rest_is_read() {
        let long = format!("1\n{}\n2", "1".repeat(5000));
        let marked = format!("\u{feff}{}\n2", "1".repeat(5000));
        let cases = [
            ("x", "x", 1, 0),
            ("1\n\n2 3\n4", "2 3", 3, 2),
            ("1\n\u{feff}2\n3", "\u{feff}2", 2, 2),
            ("\u{feff}\u{feff}1\n3", "\u{feff}1", 1, 1),
            (&long, &"1".repeat(4096), 2, 2),
            (&marked, &"1".repeat(4093), 1, 1),
        ];
        for (text, bad, at, good) in cases {
            let (found, rest): (Vec<_>, Vec<_>) = lines(text).into_iter().partition(Result::is_err);
            assert_eq!(rest.len(), good, "{text}");
            let [Err(found)] = &found[..] else { panic!("{found:?}") };
            assert_eq!(found.text, bad);
            let message = found.malformed.to_string();
            assert!(message.ends_with(&format!("(file keys.txt, line {at})")), "{message}");
        }
    }

    #[test]
    fn a_line_of_just_the_longest_length_is_read() {
        let padded = format!("{}7", " ".repeat(4094));
        assert_eq!(keys(&format!("{padded}\n8")), [7, 8]);
        assert_eq!(keys(&format!(" {padded}")), [7], "4096 bytes and the end");
        assert_eq!(keys(&format!("{}\n{padded}", " ".repeat(4095))), [7]);
    }
}
