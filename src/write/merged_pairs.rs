//! Pairs of which a merge function combines those of each key.

use std::io::{self, Write};
use std::path::Path;

use crc32fast::Hasher;

use crate::error::{Error, Result};
use crate::format::checks;
use crate::format::gzip::GzipEncoder;
use crate::format::spec::Encoding;
use crate::write::bands::Span;
use crate::write::merge_function::{MergeFunction, ValueSource, Values};
use crate::write::shard_file::{PairBytes, PairHeader, PieceSink, check_value_len};
use crate::write::spool::Spool;
use crate::write::{Pairs, SortedPairs};

/// Length of the pieces in which merged values are read back, in bytes.
const PIECE: usize = 64 << 10;

/// Pairs with all duplicates, raw, and the function that combines them.
pub(crate) struct MergedPairs<'a> {
    pub(crate) pairs: &'a dyn Pairs,
    pub(crate) function: &'a MergeFunction,
    /// How merged values are stored.
    pub(crate) data_encoding: Encoding,
    pub(crate) spill_dir: &'a Path,
}

impl Pairs for MergedPairs<'_> {
    fn max_span_bits(&self) -> u8 {
        self.pairs.max_span_bits()
    }

    fn span(&self, span: Span) -> Result<Box<dyn SortedPairs + '_>> {
        let path = |name: &str| self.spill_dir.join(format!("{:x}.{name}", span.number));
        Ok(Box::new(MergedSpan {
            all: self,
            group: Group {
                pairs: self.pairs.span(span)?,
                next: None,
                key: None,
                first: Spool::new(&path("first")),
                count: 0,
                has_preamble: false,
            },
            merged: Spool::new(&path("merged")),
            raw: Spool::new(&path("raw")),
            encoder: GzipEncoder::new(),
        }))
    }
}

/// The merged pairs of one span.
struct MergedSpan<'a> {
    all: &'a MergedPairs<'a>,
    group: Group<'a>,
    /// The preambles and stored values that were merged and not copied yet.
    merged: Spool,
    /// A merged value before it is compressed.
    raw: Spool,
    encoder: GzipEncoder,
}

/// The pairs of one key.
struct Group<'a> {
    pairs: Box<dyn SortedPairs + 'a>,
    /// The next pair, of the current key or, at the end of the group, of another.
    next: Option<(u64, PairHeader)>,
    key: Option<u64>,
    /// The value of the first pair, if that has a preamble and so was read with it.
    first: Spool,
    /// Number of pairs of the key so far, `next` included.
    count: u64,
    has_preamble: bool,
}

impl Group<'_> {
    /// Enters the next key; returns its place and first header. Appends the preamble of its first pair to `preamble`.
    fn enter(&mut self, preamble: &mut Spool) -> Result<Option<(u64, PairHeader)>> {
        if self.next.is_none() {
            self.next = self.pairs.next()?;
        }
        let Some((place, header)) = self.next else { return Ok(None) };
        self.key = Some(header.key);
        self.count = 1;
        self.has_preamble = header.preamble_len > 0;
        if self.has_preamble {
            let (mut left, first) = (header.preamble_len, &mut self.first);
            self.pairs.pieces(&header, &mut |piece| {
                let of_preamble = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                let (of_preamble, of_value) = piece.split_at_checked(of_preamble).unwrap_or((piece, &[]));
                left -= of_preamble.len() as u64;
                preamble.push(of_preamble)?;
                first.push(of_value)
            })?;
        }
        Ok(Some((place, header)))
    }

    /// Returns the header of the next value of the key.
    fn current(&self) -> Option<PairHeader> {
        self.next.map(|(_, header)| header).filter(|header| Some(header.key) == self.key)
    }

    /// Steps to the next pair.
    ///
    /// Errors: `InvalidInput` if it belongs to the key, and one of its pairs has a preamble.
    fn step(&mut self) -> Result<()> {
        self.next = self.pairs.next()?;
        let Some(header) = self.current() else { return Ok(()) };
        self.count += 1;
        self.has_preamble |= header.preamble_len > 0;
        if self.has_preamble {
            let message = "expected no preambles among several pairs of a key to merge, found one";
            Err(Error::invalid_input(message).at_key(header.key))
        } else {
            Ok(())
        }
    }
}

impl ValueSource for Group<'_> {
    fn next_len(&mut self) -> Result<Option<u64>> {
        Ok(self.current().map(|header| header.stored_len))
    }

    fn read_next(&mut self, to: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Some(header) = self.current() else { return Err(Error::internal("a key has no further value to merge")) };
        match header.preamble_len {
            0 => self.pairs.pieces(&header, to)?,
            _ => read_all(&mut self.first, to)?,
        }
        self.step()
    }
}

/// Passes on all bytes of a queue.
fn read_all(queue: &mut Spool, to: &mut PieceSink<'_>) -> Result<()> {
    read_exactly(queue, queue.len(), to)
}

fn read_exactly(queue: &mut Spool, mut len: u64, to: &mut PieceSink<'_>) -> Result<()> {
    use std::io::Read;
    let mut buffer = [0; PIECE];
    while len > 0 {
        let take = usize::try_from(len).unwrap_or(usize::MAX).min(PIECE);
        let piece = buffer.get_mut(..take).unwrap_or_default();
        queue.read_exact(piece).map_err(|error| Error::io("read a merged value", Path::new(""), error))?;
        to(piece)?;
        len -= take as u64;
    }
    Ok(())
}

/// Writes a merged value to a queue and computes its check.
struct Output<'a> {
    to: &'a mut Spool,
    check: &'a mut Hasher,
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check.update(bytes);
        self.to.push(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MergedSpan<'_> {
    /// Calls the function for a key, and appends the stored value to the merged ones. Returns its length and check.
    fn merge(&mut self, key: u64) -> Result<(u64, u32)> {
        let before = self.merged.len();
        let mut check = checks::value_hasher(key);
        match self.all.data_encoding {
            Encoding::Raw => {
                let mut output = Output { to: &mut self.merged, check: &mut check };
                self.all.function.call(key, &mut Values::of(&mut self.group), &mut output)?;
            }
            Encoding::Gzip => {
                let mut output = Output { to: &mut self.raw, check: &mut Hasher::new() };
                self.all.function.call(key, &mut Values::of(&mut self.group), &mut output)?;
                self.compress(key, &mut check)?;
            }
        }
        while self.group.current().is_some() {
            self.group.read_next(&mut |_| Ok(()))?; // values that the function did not read
        }
        Ok((self.merged.len() - before, check.finalize()))
    }

    fn compress(&mut self, key: u64, check: &mut Hasher) -> Result<()> {
        let len = self.raw.len();
        check_value_len(key, len, Encoding::Gzip)?;
        let mut push = |piece: &[u8]| {
            check.update(piece);
            self.merged.push(piece)
        };
        let failed = |error| Error::io("compress a merged value", Path::new(""), error);
        self.encoder.encode_reader(&mut self.raw, len, &mut push, &failed)
    }
}

impl SortedPairs for MergedSpan<'_> {
    fn next(&mut self) -> Result<Option<(u64, PairHeader)>> {
        let Some((place, first)) = self.group.enter(&mut self.merged)? else { return Ok(None) };
        let (stored_len, value_check) = self.merge(first.key).map_err(|error| error.at_key(first.key))?;
        let header = PairHeader {
            value_check,
            preamble_crc32: first.preamble_crc32,
            ..PairHeader::new(first.key, first.preamble_len, stored_len)
        };
        Ok(Some((place, header)))
    }

    fn dropped(&self) -> u64 {
        self.group.pairs.dropped()
    }
}

impl PairBytes for MergedSpan<'_> {
    fn pieces(&mut self, pair: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
        read_exactly(&mut self.merged, pair.preamble_len + pair.stored_len, to)
    }
}
