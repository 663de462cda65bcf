//! Pairs of batches in storage order, straight from memory.
//!
//! A sort of all at once would miss the cache at every step. So the entries of each batch are first put into the order
//! of their slices; the entries of one slice, of all batches together, are then sorted when their turn comes.

use std::ops::Range;

use crate::bulk::arena::Arena;
use crate::bulk::batch::Batch;
use crate::bulk::options::OnDuplicate;
use crate::bulk::slices::{Slicing, Span};
use crate::bulk::{Pairs, SortedPairs, record};
use crate::error::{Error, Result};
use crate::prefetch;
use crate::shard::{PairBytes, PairHeader, duplicate_key};
use crate::spec::ShardingSpec;
use crate::storage::Cursor;

/// How many pairs ahead the bytes of a sorted pair are asked for: they lie all over the batches.
const AHEAD: usize = 16;

/// A header and the beginning of a value.
const AHEAD_LINES: usize = 3;

/// Batches whose pairs are known by slice.
pub(crate) struct MemoryPairs {
    spec: ShardingSpec,
    on_duplicate: OnDuplicate,
    slicing: Slicing,
    batches: Vec<SlicedBatch>,
}

/// A batch with its pairs by slice.
pub(crate) struct SlicedBatch {
    batch: Batch,
    /// In the order of slices, those of one slice in the order of insertion.
    entries: Vec<Entry>,
    /// Where the entries of each slice begin, and where the last end.
    starts: Vec<usize>,
}

/// A pair of a batch.
#[derive(Clone, Copy, Default)]
struct Entry {
    key: u64,
    /// Of the header in the batch.
    offset: usize,
}

/// A pair of a slice; the order of these is storage order, and of equal keys that of insertion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SortEntry {
    place: u64,
    key: u64,
    batch: u32,
    /// Of the header in the batch, which is never so large that this would not do.
    offset: u32,
}

impl SlicedBatch {
    /// Puts the entries of a batch into the order of slices.
    pub(crate) fn new(batch: Batch, spec: &ShardingSpec) -> Result<SlicedBatch> {
        let slicing = Slicing::of(spec);
        let mut in_order = Vec::with_capacity(batch.pairs());
        let mut starts = vec![0; slicing.count() + 1];
        for pair in batch.keys() {
            let (key, offset) = pair?;
            let slice = slicing.slice_of(spec.place(key));
            in_order.push((slice, Entry { key, offset }));
            if let Some(count) = starts.get_mut(slice + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut free = starts.clone();
        let mut entries = vec![Entry::default(); in_order.len()];
        for (slice, entry) in in_order {
            let at = free.get_mut(slice).map(|at| std::mem::replace(at, *at + 1));
            if let Some(place) = at.and_then(|at| entries.get_mut(at)) {
                *place = entry;
            }
        }
        Ok(SlicedBatch { batch, entries, starts })
    }

    /// The number of the batch.
    pub(crate) fn number(&self) -> u64 {
        self.batch.number
    }

    fn slice(&self, slice: usize) -> &[Entry] {
        let bounds = self.starts.get(slice).zip(self.starts.get(slice + 1));
        bounds.and_then(|(start, end)| self.entries.get(*start..*end)).unwrap_or_default()
    }
}

impl MemoryPairs {
    /// The pairs of batches in the order of insertion, which were sliced by this specification.
    pub(crate) fn new(batches: Vec<SlicedBatch>, spec: ShardingSpec, on_duplicate: OnDuplicate) -> MemoryPairs {
        MemoryPairs { spec, on_duplicate, slicing: Slicing::of(&spec), batches }
    }

    /// What the headers of all pairs take at most.
    pub(crate) fn headers_at_most(&self) -> u64 {
        self.batches.iter().map(|batch| (batch.entries.len() * record::MAX_LEN) as u64).sum()
    }

    /// The pairs of one slice in storage order, each key once; the number of those dropped.
    fn sort_slice(&self, slice: usize, sorted: &mut Vec<SortEntry>) -> Result<u64> {
        sorted.clear();
        for (number, batch) in (0..).zip(&self.batches) {
            sorted.extend(batch.slice(slice).iter().map(|entry| SortEntry {
                place: self.spec.place(entry.key),
                key: entry.key,
                batch: number,
                offset: u32::try_from(entry.offset).unwrap_or(u32::MAX), // batches are smaller
            }));
        }
        sorted.sort_unstable();
        let before = sorted.len();
        match self.on_duplicate {
            OnDuplicate::Error => {
                if let Some([first, ..]) = sorted.windows(2).find(|pair| matches!(pair, [a, b] if a.key == b.key)) {
                    return Err(duplicate_key(first.key));
                }
            }
            OnDuplicate::KeepFirst => sorted.dedup_by_key(|entry| entry.key),
            OnDuplicate::KeepLast => sorted.dedup_by(|later, kept| {
                let same = later.key == kept.key;
                if same {
                    *kept = *later;
                }
                same
            }),
        }
        Ok((before - sorted.len()) as u64)
    }

    #[inline]
    fn batch(&self, number: u32) -> Result<&Batch> {
        let batch = self.batches.get(number as usize).map(|sliced| &sliced.batch);
        batch.ok_or_else(|| Error::corrupt("expected a pair of a batch that there is"))
    }

    /// The memory, for other batches.
    pub(crate) fn into_memory(self) -> Vec<Arena> {
        self.batches.into_iter().map(|sliced| sliced.batch.into_memory()).collect()
    }
}

impl Pairs for MemoryPairs {
    fn max_span_bits(&self) -> u8 {
        self.slicing.bits
    }

    fn span(&self, span: Span) -> Result<Box<dyn SortedPairs + '_>> {
        let slices = span.slices(self.slicing.bits);
        Ok(Box::new(MemorySpan { pairs: self, slices, sorted: Vec::new(), next: 0, dropped: 0 }))
    }
}

/// The pairs of one span, slice by slice.
struct MemorySpan<'a> {
    pairs: &'a MemoryPairs,
    /// Those still to come.
    slices: Range<usize>,
    /// The slice at hand.
    sorted: Vec<SortEntry>,
    next: usize,
    dropped: u64,
}

impl MemorySpan<'_> {
    fn prefetch(&self, entry: &SortEntry) {
        if let Ok(batch) = self.pairs.batch(entry.batch) {
            prefetch::lines(batch.bytes_from(entry.offset as usize), AHEAD_LINES);
        }
    }

    #[cold]
    fn next_slice(&mut self) -> Result<bool> {
        let Some(slice) = self.slices.next() else { return Ok(false) };
        self.dropped += self.pairs.sort_slice(slice, &mut self.sorted)?;
        self.next = 0;
        self.sorted.iter().take(AHEAD).for_each(|entry| self.prefetch(entry));
        Ok(true)
    }
}

impl SortedPairs for MemorySpan<'_> {
    fn next(&mut self) -> Result<Option<(u64, PairHeader)>> {
        loop {
            let Some(entry) = self.sorted.get(self.next) else {
                match self.next_slice()? {
                    true => continue,
                    false => return Ok(None),
                }
            };
            if let Some(later) = self.sorted.get(self.next + AHEAD) {
                self.prefetch(later);
            }
            self.next += 1;
            let (header, bytes_start) = self.pairs.batch(entry.batch)?.pair(entry.offset as usize)?;
            let header = PairHeader { source: entry.batch, skip: bytes_start as u64, ..header };
            return Ok(Some((entry.place, header)));
        }
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl PairBytes for MemorySpan<'_> {
    fn copy(&mut self, pair: &PairHeader, to: &mut Cursor) -> Result<()> {
        let start = usize::try_from(pair.skip).unwrap_or(usize::MAX);
        let len = usize::try_from(pair.prefix_len + pair.stored_len).unwrap_or(usize::MAX);
        let bytes = self.pairs.batch(pair.source)?.bytes_from(start).get(..len);
        to.write(bytes.ok_or_else(|| Error::corrupt("expected a whole pair in a batch"))?)
    }
}
