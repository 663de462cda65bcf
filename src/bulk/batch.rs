//! A batch: as many pairs as fit into a share of the memory; encoded, checked and sorted as one.

use crate::bulk::options::OnDuplicate;
use crate::bulk::record;
use crate::error::{Error, Result};
use crate::format::checks;
use crate::format::encoding::{GzipEncoder, max_encoded_len};
use crate::prefetch;
use crate::shard::{PairBytes, PairHeader, duplicate_key};
use crate::spec::{Encoding, ShardingSpec};
use crate::storage::Cursor;

/// How many pairs ahead the bytes of a sorted pair are asked for: they lie all over the batch.
pub(crate) const AHEAD: usize = 12;

/// Pairs one behind the other: header, prefix, value.
#[derive(Default)]
pub(crate) struct Batch {
    /// Batches are numbered in the order of their pairs.
    pub(crate) number: u64,
    bytes: Vec<u8>,
    pairs: usize,
    /// What the batch will take at most while it is encoded and sorted.
    cost: usize,
}

/// A pair of a batch, for sorting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortEntry {
    pub(crate) place: u64,
    pub(crate) key: u64,
    /// Of the header in the batch: the order of insertion.
    pub(crate) offset: usize,
}

impl Batch {
    /// An empty batch that reuses memory.
    pub(crate) fn new(number: u64, mut memory: Vec<u8>, capacity: usize) -> Batch {
        memory.clear();
        memory.reserve_exact(capacity); // pages that are not touched are not taken
        Batch { number, bytes: memory, pairs: 0, cost: 0 }
    }

    /// What a pair of these lengths adds to a batch's cost.
    pub(crate) fn cost_of(prefix_len: u64, value_len: u64, data_encoding: Encoding) -> u64 {
        let own = (record::MAX_LEN as u64).saturating_add(prefix_len).saturating_add(value_len);
        let encoded = match data_encoding {
            Encoding::Raw => 0,
            Encoding::Gzip => own.saturating_add(max_encoded_len(value_len) - value_len),
        };
        own.saturating_add(encoded).saturating_add(size_of::<SortEntry>() as u64)
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

    /// Adds a pair, whose bytes `read` appends.
    pub(crate) fn push(
        &mut self,
        header: &PairHeader,
        cost: usize,
        read: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let before = self.bytes.len();
        record::write(header, &mut self.bytes);
        if let Err(error) = read(&mut self.bytes) {
            self.bytes.truncate(before);
            return Err(error);
        }
        self.pairs += 1;
        self.cost += cost;
        Ok(())
    }

    /// Encodes and checks the values; `f` sees each header then.
    pub(crate) fn encode(mut self, data_encoding: Encoding, mut f: impl FnMut(&PairHeader)) -> Result<Batch> {
        match data_encoding {
            Encoding::Raw => {
                let mut offset = 0;
                while offset < self.bytes.len() {
                    let mut pair = Pair::read(&self.bytes, offset)?;
                    pair.header.value_check = checks::of_value(pair.header.key, pair.value(&self.bytes));
                    pair.header.prefix_sum = crc32fast::hash(pair.prefix(&self.bytes));
                    pair.rewrite_sums(&mut self.bytes);
                    f(&pair.header);
                    offset = pair.end;
                }
                Ok(self)
            }
            Encoding::Gzip => {
                let mut encoder = GzipEncoder::new();
                let mut encoded = Batch { bytes: Vec::with_capacity(self.bytes.len()), ..self.emptied() };
                let (mut value, mut offset) = (Vec::new(), 0);
                while offset < self.bytes.len() {
                    let pair = Pair::read(&self.bytes, offset)?;
                    value.clear();
                    encoder.encode(pair.value(&self.bytes), &mut value);
                    let header = PairHeader {
                        stored_len: value.len() as u64,
                        value_check: checks::of_value(pair.header.key, &value),
                        prefix_sum: crc32fast::hash(pair.prefix(&self.bytes)),
                        ..pair.header
                    };
                    record::write(&header, &mut encoded.bytes);
                    encoded.bytes.extend_from_slice(pair.prefix(&self.bytes));
                    encoded.bytes.extend_from_slice(&value);
                    f(&header);
                    offset = pair.end;
                }
                Ok(encoded)
            }
        }
    }

    fn emptied(&self) -> Batch {
        Batch { number: self.number, bytes: Vec::new(), pairs: self.pairs, cost: self.cost }
    }

    /// The pairs in storage order, each key once as `on_duplicate` says; and how many were dropped.
    pub(crate) fn sort(&self, spec: &ShardingSpec, on_duplicate: OnDuplicate) -> Result<(Vec<SortEntry>, u64)> {
        let mut entries = Vec::with_capacity(self.pairs);
        let mut offset = 0;
        while offset < self.bytes.len() {
            let pair = Pair::read(&self.bytes, offset)?;
            let key = pair.header.key;
            entries.push(SortEntry { place: spec.place(key), key, offset });
            offset = pair.end;
        }
        entries.sort_unstable();
        let before = entries.len();
        match on_duplicate {
            OnDuplicate::Error => {
                let mut by_key = entries.chunk_by(|one, next| one.key == next.key);
                if let Some([first, ..]) = by_key.find(|same| same.len() > 1) {
                    return Err(duplicate_key(first.key));
                }
            }
            OnDuplicate::KeepFirst => entries.dedup_by_key(|entry| entry.key),
            OnDuplicate::KeepLast => entries.dedup_by(|later, kept| {
                let same = later.key == kept.key;
                if same {
                    *kept = *later;
                }
                same
            }),
        }
        let dropped = (before - entries.len()) as u64;
        Ok((entries, dropped))
    }

    /// The header of a pair, and its prefix and value.
    #[inline]
    pub(crate) fn pair(&self, entry: &SortEntry) -> Result<(PairHeader, &[u8])> {
        let pair = Pair::read(&self.bytes, entry.offset)?;
        Ok((pair.header, self.bytes.get(pair.prefix_start..pair.end).unwrap_or_default()))
    }

    /// Asks for the beginning of a pair, for a read that follows.
    #[inline]
    pub(crate) fn prefetch(&self, entry: &SortEntry) {
        prefetch::lines(self.bytes.get(entry.offset..).unwrap_or_default(), 3);
    }

    /// The headers in the order of insertion, for a log.
    pub(crate) fn entries_in_order(&self) -> impl Iterator<Item = Result<SortEntry>> + '_ {
        let mut offset = 0;
        std::iter::from_fn(move || {
            if offset >= self.bytes.len() {
                return None;
            }
            let pair = Pair::read(&self.bytes, offset);
            let entry = pair.as_ref().map(|pair| SortEntry { place: 0, key: pair.header.key, offset });
            offset = pair.as_ref().map_or(self.bytes.len(), |pair| pair.end);
            Some(entry.map_err(|_| Error::corrupt("expected a whole pair in a batch")))
        })
    }

    /// The memory, for another batch.
    pub(crate) fn into_memory(self) -> Vec<u8> {
        self.bytes
    }
}

/// Where a pair of a batch lies.
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
        let value_start = prefix_start.saturating_add(to_usize(header.prefix_len));
        let end = value_start.saturating_add(to_usize(header.stored_len));
        Ok(Pair { header, start, prefix_start, value_start, end })
    }

    fn prefix<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.prefix_start..self.value_start).unwrap_or_default()
    }

    #[inline]
    fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.value_start..self.end).unwrap_or_default()
    }

    fn rewrite_sums(&self, bytes: &mut [u8]) {
        let header = bytes.get_mut(self.start..self.prefix_start).unwrap_or_default();
        record::set_sums(header, &self.header);
    }
}

/// The pairs of one batch in storage order, straight from memory.
pub(crate) struct SortedBatch<'a> {
    batch: &'a Batch,
    entries: &'a [SortEntry],
    next: usize,
    copied: usize,
}

impl<'a> SortedBatch<'a> {
    pub(crate) fn new(batch: &'a Batch, entries: &'a [SortEntry]) -> SortedBatch<'a> {
        SortedBatch { batch, entries, next: 0, copied: 0 }
    }
}

impl super::SortedPairs for SortedBatch<'_> {
    fn next(&mut self) -> Result<Option<(u64, PairHeader)>> {
        let Some(entry) = self.entries.get(self.next) else { return Ok(None) };
        self.next += 1;
        if let Some(later) = self.entries.get(self.next + AHEAD) {
            self.batch.prefetch(later);
        }
        self.batch.pair(entry).map(|(header, _)| Some((entry.place, header)))
    }
}

impl PairBytes for SortedBatch<'_> {
    fn copy(&mut self, _: &PairHeader, to: &mut Cursor) -> Result<()> {
        let Some(entry) = self.entries.get(self.copied) else { return Ok(()) };
        self.copied += 1;
        to.write(self.batch.pair(entry)?.1)
    }
}
