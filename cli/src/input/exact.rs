//! A reader of an exact number of bytes that records its errors.
//!
//! A sink that reads from it converts every error into its own error type. The recorded outcome then says whether the
//! input ended early or could not be read.

use std::io::{self, Read};

/// A reader of exactly the next `left` bytes of another reader.
pub(crate) struct Exact<R> {
    reader: R,
    left: u64,
    outcome: Outcome,
}

/// The outcome of the reads so far.
#[derive(Debug, Default)]
pub(crate) enum Outcome {
    /// No error.
    #[default]
    Fine,
    /// The end, with this many bytes still expected.
    Short(u64),
    /// An error while reading.
    Failed(io::Error),
}

impl<R: Read> Exact<R> {
    pub(crate) fn new(reader: R, len: u64) -> Exact<R> {
        Exact { reader, left: len, outcome: Outcome::Fine }
    }

    pub(crate) fn outcome(self) -> Outcome {
        self.outcome
    }

    /// Records `error` and returns a copy of it for the sink.
    fn fail(&mut self, error: io::Error) -> io::Error {
        let told = io::Error::new(error.kind(), error.to_string());
        self.outcome = Outcome::Failed(error);
        told
    }
}

impl<R: Read> Read for Exact<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        let Some(buf) = buf.get_mut(..most).filter(|buf| !buf.is_empty()) else { return Ok(0) };
        match self.reader.read(buf) {
            Ok(0) => {
                self.outcome = Outcome::Short(self.left);
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(read) => {
                self.left = self.left.saturating_sub(read as u64);
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => Err(self.fail(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_its_length() {
        let mut exact = Exact::new(&b"abcdef"[..], 4);
        let mut read = Vec::new();
        exact.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"abcd");
        assert!(matches!(exact.outcome(), Outcome::Fine));
    }

    #[test]
    fn remembers_an_early_end() {
        let mut exact = Exact::new(&b"abc"[..], 5);
        assert_eq!(exact.read_to_end(&mut Vec::new()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(matches!(exact.outcome(), Outcome::Short(2)));
    }

    #[test]
    fn remembers_an_error() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("disk on fire"))
            }
        }
        let mut exact = Exact::new(Broken, 1);
        assert!(exact.read(&mut [0]).is_err());
        assert!(matches!(exact.outcome(), Outcome::Failed(error) if error.to_string() == "disk on fire"));
    }
}
