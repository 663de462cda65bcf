//! A batch: pairs in memory in insertion order, encoded and checksummed as one unit.
//!
//! Each pair is a *record*: its header, as encoded by `pair_header`, its preamble and its value.

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::checks;
use crate::format::gzip::{GzipEncoder, max_encoded_len};
use crate::format::spec::Encoding;
use crate::plan::KeyStats;
use crate::write::arena::Arena;
use crate::write::pair_header;
use crate::write::shard_file::PairHeader;

/// Memory per pair for sorting, in bytes.
///
/// Putting a batch into the order of bands takes a band number, key and offset (24) and an `Entry` (16). Sorting a
/// band takes that `Entry` and a `SortEntry` (24). Only one band is sorted at a time, but it may contain all pairs.
const SORT_COST: usize = 40;

/// Records stored one after another.
#[derive(Default)]
pub(crate) struct Batch {
    /// The number of the batch. Batches are numbered in insertion order.
    pub(crate) number: u64,
    bytes: Arena,
    /// Buffer for the header of the pair being added.
    header: Vec<u8>,
    pairs: usize,
    /// The sum of the costs that were passed to `push`. If they are those of [`Batch::cost_of`], an upper bound on the
    /// memory of the batch in bytes, including the memory for sorting it.
    cost: usize,
}

/// Totals of encoded pairs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Whether any pair has a preamble.
    pub(crate) has_preambles: bool,
    /// Bytes of all preambles and stored values.
    pub(crate) stored_bytes: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, header: &PairHeader) {
        self.has_preambles |= header.preamble_len > 0;
        self.stored_bytes += header.preamble_len + header.stored_len;
    }

    pub(crate) fn merge(&mut self, other: Totals) {
        self.has_preambles |= other.has_preambles;
        self.stored_bytes += other.stored_bytes;
    }
}

impl Batch {
    /// Creates an empty batch with room for pairs of this total cost. Reuses `memory` if it is large enough.
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
    pub(crate) const LARGE_COST: usize = pair_header::MAX_LEN + SORT_COST;

    /// Returns an upper bound on the memory of a pair of these lengths, in bytes: its share of the batch's cost.
    pub(crate) fn cost_of(preamble_len: u64, value_len: u64, data_encoding: Encoding) -> u64 {
        let own = (pair_header::MAX_LEN as u64).saturating_add(preamble_len).saturating_add(value_len);
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

    /// Adds a pair and its cost. `fill` must fill its buffer with preamble and value; the buffer is empty for a large
    /// pair.
    ///
    /// Errors: those of `fill`; `Internal` if header and bytes do not fit into the memory. If `fill` panics, the batch
    /// contains a pair of arbitrary bytes.
    #[inline]
    pub(crate) fn push(
        &mut self,
        header: &PairHeader,
        cost: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let before = self.bytes.len();
        self.header.clear();
        pair_header::write(header, &mut self.header);
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

    /// Encodes the values and sets the checksums; returns the new batch and its totals. Adds each pair to `stats`.
    pub(crate) fn encode(self, data_encoding: Encoding, stats: Option<&mut KeyStats>) -> Result<(Batch, Totals)> {
        match data_encoding {
            Encoding::Raw => self.set_checksums(stats),
            Encoding::Gzip => self.compress(stats),
        }
    }

    fn set_checksums(mut self, mut stats: Option<&mut KeyStats>) -> Result<(Batch, Totals)> {
        let (mut totals, mut offset) = (Totals::default(), 0);
        while offset < self.bytes.len() {
            let mut pair = Pair::read(&self.bytes, offset)?;
            if pair.header.is_inline() {
                pair.header.value_check = checks::compute_value_check(pair.header.key, pair.value(&self.bytes));
                pair.header.preamble_crc32 = checks::compute_preamble_check(pair.preamble(&self.bytes));
                pair.rewrite_checksums(self.bytes.bytes_mut());
            }
            totals.add(&pair.header);
            count(&mut stats, &pair.header);
            offset = pair.end;
        }
        Ok((self, totals))
    }

    fn compress(self, mut stats: Option<&mut KeyStats>) -> Result<(Batch, Totals)> {
        let (mut totals, mut offset) = (Totals::default(), 0);
        let mut encoder = GzipEncoder::new();
        let mut encoded = Batch::new(self.number, Arena::default(), self.cost)?;
        let mut value = Vec::new();
        while offset < self.bytes.len() {
            let pair = Pair::read(&self.bytes, offset)?;
            let header = if pair.header.is_inline() {
                value.clear();
                encoder.encode(pair.value(&self.bytes), &mut value);
                encoded.push_encoded(&pair.header, pair.preamble(&self.bytes), &value)?
            } else {
                encoded.push(&pair.header, Batch::LARGE_COST, |_| Ok(()))?;
                pair.header
            };
            totals.add(&header);
            count(&mut stats, &header);
            offset = pair.end;
        }
        Ok((encoded, totals))
    }

    /// Adds a pair whose value is already encoded; returns its header.
    fn push_encoded(&mut self, raw: &PairHeader, preamble: &[u8], value: &[u8]) -> Result<PairHeader> {
        let header = PairHeader {
            stored_len: value.len() as u64,
            value_check: checks::compute_value_check(raw.key, value),
            preamble_crc32: checks::compute_preamble_check(preamble),
            ..*raw
        };
        let cost = Batch::cost_of(header.preamble_len, header.stored_len, Encoding::Raw);
        self.push(&header, usize::try_from(cost).unwrap_or(usize::MAX), |to| {
            copy_both(preamble, value, to);
            Ok(())
        })?;
        Ok(header)
    }

    /// Iterates over the key and the record of each pair, in insertion order.
    pub(crate) fn records(&self) -> Records<'_> {
        Records::of(&self.bytes)
    }
}

/// Iterates over records that are stored one after another, each with its key.
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

/// Fills `to` with a preamble and a value, which together have the length of `to`.
#[inline]
pub(crate) fn copy_both(preamble: &[u8], value: &[u8], to: &mut [u8]) {
    if let Some((preamble_to, value_to)) = to.split_at_mut_checked(preamble.len()) {
        preamble_to.copy_from_slice(preamble);
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
        stats.insert(header.key, header.preamble_len, header.stored_len);
    }
}

/// A record in a batch: its decoded header and the offsets of its parts.
struct Pair {
    header: PairHeader,
    start: usize,
    preamble_start: usize,
    value_start: usize,
    end: usize,
}

impl Pair {
    #[inline(always)]
    fn read(bytes: &[u8], start: usize) -> Result<Pair> {
        let (header, header_len) = pair_header::read(bytes.get(start..).unwrap_or_default())?;
        let to_usize = |len: u64| usize::try_from(len).unwrap_or(usize::MAX);
        let preamble_start = start + header_len;
        let end = preamble_start.saturating_add(to_usize(header.inline_len()));
        let value_start = preamble_start.saturating_add(to_usize(header.preamble_len)).min(end);
        if end > bytes.len() {
            return Err(Error::internal("a pair ends beyond its batch"));
        }
        Ok(Pair { header, start, preamble_start, value_start, end })
    }

    fn preamble<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.preamble_start..self.value_start).unwrap_or_default()
    }

    #[inline]
    fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.value_start..self.end).unwrap_or_default()
    }

    fn rewrite_checksums(&self, bytes: &mut [u8]) {
        let header = bytes.get_mut(self.start..self.preamble_start).unwrap_or_default();
        pair_header::set_checksums(header, &self.header);
    }
}
