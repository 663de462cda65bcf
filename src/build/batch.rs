//! A batch: pairs in memory in insertion order, encoded and checked as one unit.

use std::path::Path;

use crate::build::arena::Arena;
use crate::build::record;
use crate::build::shard_body::PairHeader;
use crate::error::{Error, Result};
use crate::format::checks;
use crate::format::gzip::{GzipEncoder, max_encoded_len};
use crate::format::spec::Encoding;
use crate::plan::KeyStats;

/// Memory per pair for sorting, in bytes: its slice and position (24) and the entry of its piece (16), later that entry and
/// the one of the slice being sorted (24). A slice may contain all pairs.
const SORT_COST: usize = 40;

/// Pairs stored one after another, each as header, prefix and value.
#[derive(Default)]
pub(crate) struct Batch {
    /// Batches are numbered in insertion order.
    pub(crate) number: u64,
    bytes: Arena,
    /// Buffer for the header of the pair being added.
    header: Vec<u8>,
    pairs: usize,
    /// Upper bound on the memory of the batch in bytes, including what sorting it takes.
    cost: usize,
}

/// Summary of encoded pairs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) prefixes: bool,
    pub(crate) stored_bytes: u64,
}

impl Seen {
    pub(crate) fn see(&mut self, header: &PairHeader) {
        self.prefixes |= header.prefix_len > 0;
        self.stored_bytes += header.prefix_len + header.stored_len;
    }

    pub(crate) fn merge(&mut self, other: Seen) {
        self.prefixes |= other.prefixes;
        self.stored_bytes += other.stored_bytes;
    }
}

impl Batch {
    /// Creates an empty batch with room for pairs of this cost. Reuses `memory` if it is large enough.
    pub(crate) fn new(number: u64, mut memory: Arena, capacity: usize) -> Result<Batch> {
        memory.truncate(0);
        if memory.capacity() < capacity {
            memory = Batch::memory(capacity)?;
        }
        Ok(Batch { number, bytes: memory, ..Batch::default() })
    }

    /// Allocates memory for a batch or a piece of this capacity.
    pub(crate) fn memory(capacity: usize) -> Result<Arena> {
        Arena::with_capacity(capacity)
            .map_err(|error| Error::io("allocate memory for a batch of pairs", Path::new(""), error))
    }

    /// Returns the memory that contains the pairs.
    pub(crate) fn into_memory(self) -> Arena {
        self.bytes
    }

    /// The cost of a large pair, of which the batch holds only the header.
    pub(crate) const LARGE_COST: usize = record::MAX_LEN + SORT_COST;

    /// Returns the cost of a pair of these lengths: its share of the batch's cost.
    pub(crate) fn cost_of(prefix_len: u64, value_len: u64, data_encoding: Encoding) -> u64 {
        let own = (record::MAX_LEN as u64).saturating_add(prefix_len).saturating_add(value_len);
        let encoded = match data_encoding {
            Encoding::Raw => 0,
            Encoding::Gzip => own.saturating_add(max_encoded_len(value_len) - value_len),
        };
        own.saturating_add(encoded).saturating_add(SORT_COST as u64)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs == 0
    }

    pub(crate) fn pairs(&self) -> usize {
        self.pairs
    }

    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    /// Adds a pair. `fill` must fill its buffer with prefix and value; the buffer is empty for a large pair.
    ///
    /// Errors: those of `fill`; `Internal` if header and bytes do not fit into the memory. If `fill` panics, the batch contains a
    /// pair of arbitrary bytes.
    #[inline]
    pub(crate) fn push(
        &mut self,
        header: &PairHeader,
        cost: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let before = self.bytes.len();
        self.header.clear();
        record::write(header, &mut self.header);
        let len = usize::try_from(header.inline_len()).unwrap_or(usize::MAX);
        let room = self.bytes.extend(self.header.len().saturating_add(len));
        let (head, rest) = room.and_then(|room| room.split_at_mut_checked(self.header.len())).ok_or_else(no_room)?;
        head.copy_from_slice(&self.header);
        if let Err(error) = fill(rest) {
            self.bytes.truncate(before);
            return Err(error);
        }
        self.pairs += 1;
        self.cost += cost;
        Ok(())
    }

    /// Encodes the values and computes their checks; returns the new batch and a summary. Adds each pair to `stats`.
    pub(crate) fn encode(self, data_encoding: Encoding, stats: Option<&mut KeyStats>) -> Result<(Batch, Seen)> {
        match data_encoding {
            Encoding::Raw => self.check(stats),
            Encoding::Gzip => self.compress(stats),
        }
    }

    fn check(mut self, mut stats: Option<&mut KeyStats>) -> Result<(Batch, Seen)> {
        let (mut seen, mut offset) = (Seen::default(), 0);
        while offset < self.bytes.len() {
            let mut pair = Pair::read(&self.bytes, offset)?;
            if pair.header.large.is_none() {
                pair.header.value_check = checks::of_value(pair.header.key, pair.value(&self.bytes));
                pair.header.prefix_crc32 = checks::of_prefix(pair.prefix(&self.bytes));
                pair.rewrite_checksums(self.bytes.bytes_mut());
            }
            seen.see(&pair.header);
            count(&mut stats, &pair.header);
            offset = pair.end;
        }
        Ok((self, seen))
    }

    fn compress(self, mut stats: Option<&mut KeyStats>) -> Result<(Batch, Seen)> {
        let (mut seen, mut offset) = (Seen::default(), 0);
        let mut encoder = GzipEncoder::new();
        let mut encoded = Batch::new(self.number, Arena::default(), self.cost)?;
        let mut value = Vec::new();
        while offset < self.bytes.len() {
            let pair = Pair::read(&self.bytes, offset)?;
            let header = match pair.header.large {
                Some(_) => {
                    encoded.push(&pair.header, Batch::LARGE_COST, |_| Ok(()))?;
                    pair.header
                }
                None => {
                    value.clear();
                    encoder.encode(pair.value(&self.bytes), &mut value);
                    encoded.push_encoded(&pair.header, pair.prefix(&self.bytes), &value)?
                }
            };
            seen.see(&header);
            count(&mut stats, &header);
            offset = pair.end;
        }
        Ok((encoded, seen))
    }

    /// Adds a pair whose value is already encoded; returns its header.
    fn push_encoded(&mut self, raw: &PairHeader, prefix: &[u8], value: &[u8]) -> Result<PairHeader> {
        let header = PairHeader {
            stored_len: value.len() as u64,
            value_check: checks::of_value(raw.key, value),
            prefix_crc32: checks::of_prefix(prefix),
            ..*raw
        };
        let cost = Batch::cost_of(header.prefix_len, header.stored_len, Encoding::Raw);
        self.push(&header, usize::try_from(cost).unwrap_or(usize::MAX), |to| {
            copy_both(prefix, value, to);
            Ok(())
        })?;
        Ok(header)
    }

    /// Iterates over the key and the bytes of each pair, including its header, in insertion order.
    pub(crate) fn records(&self) -> Records<'_> {
        Records::of(&self.bytes)
    }
}

/// Iterates over pairs that are stored one after another.
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Records<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Records<'a> {
        Records { bytes, offset: 0 }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(u64, &'a [u8])>;

    #[inline]
    fn next(&mut self) -> Option<Result<(u64, &'a [u8])>> {
        if self.offset >= self.bytes.len() {
            return None;
        }
        let record = Pair::read(self.bytes, self.offset).ok().and_then(|pair| {
            let record = self.bytes.get(self.offset..pair.end)?;
            Some((pair.header.key, record))
        });
        self.offset = record.map_or(self.bytes.len(), |(_, record)| self.offset + record.len());
        Some(record.ok_or_else(|| Error::corrupt("a batch contains an incomplete pair")))
    }
}

/// Fills `to` with a prefix and a value, which together have the length of `to`.
#[inline]
pub(crate) fn copy_both(prefix: &[u8], value: &[u8], to: &mut [u8]) {
    if let Some((prefix_to, value_to)) = to.split_at_mut_checked(prefix.len()) {
        prefix_to.copy_from_slice(prefix);
        value_to.copy_from_slice(value);
    }
}

#[cold]
fn no_room() -> Error {
    Error::internal("a pair does not fit into the batch that was made for it")
}

#[inline]
fn count(stats: &mut Option<&mut KeyStats>, header: &PairHeader) {
    if let Some(stats) = stats {
        stats.insert(header.key, header.prefix_len, header.stored_len);
    }
}

/// The position of a pair in a batch.
struct Pair {
    header: PairHeader,
    start: usize,
    prefix_start: usize,
    value_start: usize,
    end: usize,
}

impl Pair {
    #[inline]
    fn read(bytes: &[u8], start: usize) -> Result<Pair> {
        let (header, header_len) = record::read(bytes.get(start..).unwrap_or_default())?;
        let to_usize = |len: u64| usize::try_from(len).unwrap_or(usize::MAX);
        let prefix_start = start + header_len;
        let end = prefix_start.saturating_add(to_usize(header.inline_len()));
        let value_start = prefix_start.saturating_add(to_usize(header.prefix_len)).min(end);
        if end > bytes.len() {
            return Err(Error::internal("a pair ends beyond its batch"));
        }
        Ok(Pair { header, start, prefix_start, value_start, end })
    }

    fn prefix<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.prefix_start..self.value_start).unwrap_or_default()
    }

    #[inline]
    fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.value_start..self.end).unwrap_or_default()
    }

    fn rewrite_checksums(&self, bytes: &mut [u8]) {
        let header = bytes.get_mut(self.start..self.prefix_start).unwrap_or_default();
        record::set_checksums(header, &self.header);
    }
}
