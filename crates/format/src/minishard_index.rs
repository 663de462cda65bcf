//! The minishard index: the keys of a minishard and the ranges of their values.
//!
//! ```text
//! decoded, 24 * n bytes of u64le (the format's text: a C-order array [3, n])
//!   array 0   n ids     delta encoded: id[i] = sum of ids[..=i]
//!   array 1   n gaps    the starts, delta encoded against the end of the preceding value:
//!                       start[i] = sum of gaps[..=i] + sum of sizes[..i], relative to the end of the shard index
//!   array 2   n sizes
//! ```
//!
//! Row `i` is the key `id[i]`, with the range of its value. All sums wrap: the gap of a value that is stored before the
//! value of the preceding row is "negative". A range is validated when it is resolved against the file.

use std::ops::Range;

use crate::byte_range::RelativeRange;
use crate::error::{Error, Result};

/// Bytes of a decoded index per key.
pub const ROW_LEN: u64 = 24;

/// Raw indexes of up to this many keys are scanned in place, without checkpoints. Also the rows per checkpoint.
pub const SCAN_LIMIT: usize = 64;

/// The entry of a key in a minishard index: its position, its id, and the stated range of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub number: usize,
    pub id: u64,
    pub value: RelativeRange,
}

/// A number as stored.
type Word = [u8; 8];

/// A view of a minishard index in its decoded form. A raw index is stored in this form.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexView<'a> {
    // INVARIANT: three arrays of equal length, one word per key, as stored: ids and gaps are deltas
    ids: &'a [Word],
    gaps: &'a [Word],
    sizes: &'a [Word],
}

impl<'a> IndexView<'a> {
    /// Views a decoded index.
    ///
    /// Errors: `Corrupt` if its length is not a multiple of 24.
    #[inline]
    pub fn view(bytes: &'a [u8]) -> Result<IndexView<'a>> {
        let rows = bytes.len() / 24;
        let words = bytes.as_chunks().0;
        if bytes.len().is_multiple_of(24)
            && let Some((ids, rest)) = words.split_at_checked(rows)
            && let Some((gaps, sizes)) = rest.split_at_checked(rows)
        {
            return Ok(IndexView { ids, gaps, sizes });
        }
        Err(bad_length(bytes.len()))
    }

    /// Returns the number of keys.
    #[inline]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the first row with this id. O(n); the ids may be in any order.
    #[inline]
    pub fn find(&self, id: u64) -> Option<Row> {
        let mut running = 0u64;
        for (number, delta) in self.ids.iter().enumerate() {
            running = running.wrapping_add(u64::from_le_bytes(*delta));
            if running == id {
                return Some(Row { number, id, value: self.value(number) });
            }
        }
        None
    }

    /// Returns the range of one row. O(`number`), because the starts are delta encoded.
    #[inline]
    fn value(&self, number: usize) -> RelativeRange {
        let mut end = 0u64;
        let mut range = RelativeRange { start: 0, end: 0 };
        for (gap, size) in self.gaps.iter().zip(self.sizes).take(number + 1) {
            range.start = end.wrapping_add(u64::from_le_bytes(*gap));
            end = range.start.wrapping_add(u64::from_le_bytes(*size));
        }
        range.end = end;
        range
    }

    /// Iterates over all rows in stored order.
    pub fn rows(&self) -> impl Iterator<Item = Row> + use<'a> {
        self.rows_from(RowsState::default())
    }

    /// Returns whether a miss proves absence: all ranges are possible. See [`SearchableIndex::miss_proves_absence`]. O(n).
    #[inline]
    pub fn miss_proves_absence(&self) -> bool {
        self.rows().all(|row| row.value.is_possible())
    }

    fn rows_from(self, mut state: RowsState) -> impl Iterator<Item = Row> + use<'a> {
        std::iter::from_fn(move || state.next(self))
    }
}

/// The error for a key that is not found in an index that does not prove its absence.
#[cold]
pub fn unproved_absence() -> Error {
    Error::corrupt(
        "minishard index is corrupt: expected value ranges with start <= end < 2^63, found one that is not: the key may \
         be missing because of this damage; run `sharddb verify`",
    )
}

#[cold]
fn bad_length(len: usize) -> Error {
    Error::corrupt(format!("expected the length of a minishard index to be a multiple of {ROW_LEN} bytes, found {len}"))
}

/// A raw index of a few keys, searched in place without a branch that depends on the position of the key.
///
/// Such a branch would be mispredicted about every other time, and a misprediction delays the start of the next lookup.
#[derive(Clone, Copy, Debug)]
pub struct SmallIndex<'a> {
    // INVARIANT: with n rows, only the first min(n, 8) words of each array are of that array; the others are bytes that
    // follow it, by which neither `position` nor `miss_proves_absence` decides
    rows: usize,
    ids: &'a [Word; SmallIndex::SEARCHED],
    gaps: &'a [Word; SmallIndex::SEARCHED],
    sizes: &'a [Word; SmallIndex::SEARCHED],
}

impl<'a> SmallIndex<'a> {
    /// The number of rows that `find` searches.
    const SEARCHED: usize = 8;

    /// `FIRST[count]` is a mask that keeps the first `count` words and clears the others.
    const FIRST: [[u64; SmallIndex::SEARCHED]; SmallIndex::SEARCHED + 1] = {
        let mut masks = [[0; SmallIndex::SEARCHED]; SmallIndex::SEARCHED + 1];
        let mut at = 0;
        while at < masks.len() * SmallIndex::SEARCHED {
            let (count, word) = (at / SmallIndex::SEARCHED, at % SmallIndex::SEARCHED);
            masks[count][word] = if word < count { u64::MAX } else { 0 };
            at += 1;
        }
        masks
    };

    /// Maximum number of rows. `find` searches the first eight; with 9 to 16 rows, the caller scans after a miss. A
    /// minishard of the `local` profile rarely has more than eight.
    const MOST: usize = 16;

    /// Views the index of `rows` rows that begins at offset `start` of `body`, the bytes after the shard index.
    ///
    /// `None` if it has more than [`MOST`](Self::MOST) rows, or if `body` ends less than `REACH` bytes after `start`.
    #[inline]
    pub fn view(body: &'a [u8], start: u64, rows: u32) -> Option<SmallIndex<'a>> {
        const REACH: usize = 24 * SmallIndex::MOST; // the longest index; covers every word that is loaded
        let words: &[u8; REACH] = body.get(usize::try_from(start).ok()?..)?.first_chunk()?;
        let rows = usize::try_from(rows).ok().filter(|rows| *rows <= Self::MOST)?;
        let words = words.as_chunks().0;
        let array = |from: usize| words.get(from..)?.first_chunk();
        Some(SmallIndex { rows, ids: array(0)?, gaps: array(rows)?, sizes: array(2 * rows)? })
    }

    /// Returns the first row with this id, if it is one of the first eight rows.
    #[inline(always)]
    pub fn find(&self, id: u64) -> Option<Row> {
        let number = self.position(id)?;
        let (mut starts, mut end) = ([0u64; SmallIndex::SEARCHED], 0u64);
        for (start, (gap, size)) in starts.iter_mut().zip(self.gaps.iter().zip(self.sizes)) {
            *start = end.wrapping_add(u64::from_le_bytes(*gap));
            end = start.wrapping_add(u64::from_le_bytes(*size));
        }
        let start = *starts.get(number)?;
        let end = start.wrapping_add(u64::from_le_bytes(*self.sizes.get(number)?));
        Some(Row { number, id, value: RelativeRange { start, end } })
    }

    /// Returns the position of the first row with this id. If that is none of the first eight: `None`, or `Some(8)`.
    #[inline(always)]
    fn position(&self, id: u64) -> Option<usize> {
        let (mut running, mut before, mut count) = (0u64, 1, 0);
        for delta in self.ids {
            running = running.wrapping_add(u64::from_le_bytes(*delta));
            before = if running == id { 0 } else { before };
            count += before;
        }
        (count < self.rows).then_some(count)
    }

    /// Returns whether a miss in `find` proves absence: there are at most eight rows, and every number is small enough
    /// that all ranges are possible. See [`SearchableIndex::miss_proves_absence`].
    #[inline(always)]
    pub fn miss_proves_absence(&self) -> bool {
        let Some(mask) = Self::FIRST.get(self.rows) else { return false };
        let numbers = self.gaps.iter().zip(self.sizes).zip(mask);
        let bits = numbers
            .fold(0, |bits, ((gap, size), mask)| bits | (u64::from_le_bytes(*gap) | u64::from_le_bytes(*size)) & mask);
        bits < 1 << 58 // 8 gaps and 8 sizes: every end is below 2^62
    }
}

/// The position of a walk over the rows of an index: the sums of the deltas so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowsState {
    number: usize,
    id: u64,
    end: u64,
}

impl RowsState {
    /// Returns the next row of `index` in stored order.
    #[inline]
    pub fn next(&mut self, index: IndexView<'_>) -> Option<Row> {
        let number = self.number;
        let (id, gap, size) = (index.ids.get(number)?, index.gaps.get(number)?, index.sizes.get(number)?);
        self.id = self.id.wrapping_add(u64::from_le_bytes(*id));
        let start = self.end.wrapping_add(u64::from_le_bytes(*gap));
        self.end = start.wrapping_add(u64::from_le_bytes(*size));
        self.number += 1;
        Some(Row { number, id: self.id, value: RelativeRange { start, end: self.end } })
    }
}

/// Positions in a large raw index where a scan can begin: one every [`SCAN_LIMIT`] rows.
#[derive(Debug)]
pub struct Checkpoints {
    checkpoints: Box<[Checkpoint]>,
    /// Whether a miss proves absence: all ranges of the index are possible.
    miss_proves_absence: bool,
}

#[derive(Debug)]
struct Checkpoint {
    first_id: u64,
    before: RowsState,
}

impl Checkpoints {
    /// Computes the checkpoints of an index; `None` unless its ids strictly ascend. O(n).
    pub fn new(index: IndexView<'_>) -> Option<Checkpoints> {
        let mut checkpoints = Vec::with_capacity(index.len().div_ceil(SCAN_LIMIT));
        let mut state = RowsState::default();
        loop {
            let before = state;
            let Some(row) = state.next(index) else { break };
            if row.number > 0 && row.id <= before.id {
                return None;
            }
            if row.number % SCAN_LIMIT == 0 {
                checkpoints.push(Checkpoint { first_id: row.id, before });
            }
        }
        Some(Checkpoints { checkpoints: checkpoints.into(), miss_proves_absence: index.miss_proves_absence() })
    }

    /// Returns its size in memory, in bytes.
    pub fn size(&self) -> usize {
        size_of_val(&*self.checkpoints)
    }

    fn find(&self, index: IndexView<'_>, id: u64) -> Option<Row> {
        let block = self.checkpoints.partition_point(|checkpoint| checkpoint.first_id <= id).checked_sub(1)?;
        let mut rows = index.rows_from(self.checkpoints.get(block)?.before).take(SCAN_LIMIT);
        rows.find(|row| row.id == id)
    }

    fn row(&self, index: IndexView<'_>, number: usize) -> Option<Row> {
        let before = self.checkpoints.get(number / SCAN_LIMIT)?.before;
        index.rows_from(before).nth(number % SCAN_LIMIT)
    }
}

/// A copy of an index: its decoded rows sorted by id, equal ids in stored order.
#[derive(Debug)]
pub struct SortedIndex {
    /// Complete rows, so that finding the id also loads the range of its value.
    rows: Box<[Row]>,
    buckets: Buckets,
    /// Whether a miss proves absence: all ranges are possible.
    miss_proves_absence: bool,
}

impl SortedIndex {
    pub fn new(index: IndexView<'_>) -> SortedIndex {
        let mut rows: Box<[Row]> = index.rows().collect();
        if !rows.is_sorted_by_key(|row| row.id) {
            rows.sort_by_key(|row| row.id); // stable: the first of equal ids stays first
        }
        SortedIndex { buckets: Buckets::new(&rows), rows, miss_proves_absence: index.miss_proves_absence() }
    }

    /// Returns its size in memory, in bytes.
    pub fn size(&self) -> usize {
        size_of_val(&*self.rows) + size_of_val(&*self.buckets.begins)
    }

    /// Returns the row with this number. O(1) if ids ascend, else O(n).
    fn row(&self, number: usize) -> Option<Row> {
        let in_order = self.rows.get(number).filter(|row| row.number == number);
        in_order.or_else(|| self.rows.iter().find(|row| row.number == number)).copied()
    }

    fn find(&self, id: u64) -> Option<Row> {
        let bucket = self.rows.get(self.buckets.of(id)?)?;
        let row = bucket.get(bucket.partition_point(|row| row.id < id))?;
        (row.id == id).then_some(*row)
    }
}

/// Buckets of rows that are sorted by id, split by the leading bits of the ids.
///
/// Evenly spread ids give each bucket a few rows, in one or two cache lines, however many rows there are in total.
/// With other ids a bucket may have any number of rows. A bucket is searched by binary search.
#[derive(Debug)]
struct Buckets {
    first_id: u64,
    shift: u32,
    /// The first row of each bucket; the last element is the end of the last bucket.
    begins: Box<[usize]>,
}

impl Buckets {
    /// Target for the average number of rows per bucket. Evenly spread ids have between this and four times as many.
    const LEN: usize = 2;

    fn new(sorted: &[Row]) -> Buckets {
        let first_id = sorted.first().map_or(0, |row| row.id);
        let span = sorted.last().map_or(0, |row| row.id - first_id);
        let wanted_bits = (sorted.len() / Self::LEN).max(1).ilog2();
        let shift = (u64::BITS - span.leading_zeros()).saturating_sub(wanted_bits).min(u64::BITS - 1);
        let buckets = (span >> shift) + 1; // at most 2^wanted_bits; 2 if ids span 64 bits and wanted_bits is 0
        let begin = |bucket: u64| sorted.partition_point(|row| (row.id - first_id) >> shift < bucket);
        Buckets { first_id, shift, begins: (0..=buckets).map(begin).collect() }
    }

    /// Returns the rows of the bucket that an id belongs to; `None` if there is no such bucket.
    #[inline]
    fn of(&self, id: u64) -> Option<Range<usize>> {
        let bucket = usize::try_from(id.checked_sub(self.first_id)? >> self.shift).ok()?;
        match self.begins.get(bucket..)? {
            [start, end, ..] => Some(*start..*end),
            _ => None,
        }
    }
}

/// A minishard index in one of the forms that can be searched.
#[derive(Clone, Copy, Debug)]
pub enum SearchableIndex<'a> {
    /// A small raw index, scanned in place.
    Scanned(IndexView<'a>),
    /// A large raw index with ascending ids, scanned in place from a checkpoint.
    Checkpointed(IndexView<'a>, &'a Checkpoints),
    /// A sorted copy of any other index.
    Sorted(&'a SortedIndex),
}

impl SearchableIndex<'_> {
    /// Returns the first row with this id.
    #[inline]
    pub fn find(&self, id: u64) -> Option<Row> {
        match self {
            Self::Scanned(index) => index.find(id),
            Self::Checkpointed(index, checkpoints) => checkpoints.find(*index, id),
            Self::Sorted(index) => index.find(id),
        }
    }

    /// Returns the row with this number, in stored order.
    pub fn row(&self, number: usize) -> Option<Row> {
        match self {
            Self::Scanned(index) => index.rows().nth(number),
            Self::Checkpointed(index, checkpoints) => checkpoints.row(*index, number),
            Self::Sorted(index) => index.row(number),
        }
    }

    /// Calls `f` with every row, in stored order or by ascending id.
    pub fn for_each(&self, f: impl FnMut(Row)) {
        match self {
            Self::Scanned(index) | Self::Checkpointed(index, _) => index.rows().for_each(f),
            Self::Sorted(index) => index.rows.iter().copied().for_each(f),
        }
    }

    /// Returns whether a miss proves that the id is absent.
    ///
    /// It does not if a range is impossible: the bytes were damaged or misread, so the ids may be wrong too.
    #[inline]
    pub fn miss_proves_absence(&self) -> bool {
        match self {
            Self::Scanned(index) => index.miss_proves_absence(),
            Self::Checkpointed(_, checkpoints) => checkpoints.miss_proves_absence,
            Self::Sorted(index) => index.miss_proves_absence,
        }
    }

    /// Returns the number of keys.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Scanned(index) | Self::Checkpointed(index, _) => index.len(),
            Self::Sorted(index) => index.rows.len(),
        }
    }
}

/// Collects rows and encodes them as the deltas of the format's text.
///
/// Ranges are relative to the end of the shard index.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    ids: Vec<Word>,
    gaps: Vec<Word>,
    sizes: Vec<Word>,
    id: u64,
    end: u64,
}

impl IndexBuilder {
    pub fn push(&mut self, id: u64, value: RelativeRange) {
        let (id_delta, gap) = self.deltas(id, value);
        self.ids.push(id_delta.to_le_bytes());
        self.gaps.push(gap.to_le_bytes());
        self.sizes.push((value.end - value.start).to_le_bytes());
    }

    /// Returns the delta of the id and the gap of the next row, and advances past that row.
    pub fn deltas(&mut self, id: u64, value: RelativeRange) -> (u64, u64) {
        let deltas = (id.wrapping_sub(self.id), value.start.wrapping_sub(self.end));
        (self.id, self.end) = (id, value.end);
        deltas
    }

    /// Appends the bytes of the index and clears the builder.
    pub fn drain_into(&mut self, bytes: &mut Vec<u8>) {
        for array in [&mut self.ids, &mut self.gaps, &mut self.sizes] {
            bytes.extend_from_slice(array.as_flattened());
            array.clear();
        }
        (self.id, self.end) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn range(start: u64, end: u64) -> RelativeRange {
        RelativeRange { start, end }
    }

    /// Ids 5, 9, 2^64-1; values at 100..110, 112..112 (two bytes of gap), 4..7 (before the others: a wrapped delta).
    const GOLDEN: [u64; 9] = [
        5,
        4,
        0u64.wrapping_sub(10), // ids
        100,
        2,
        4u64.wrapping_sub(112), // gaps
        10,
        0,
        3, // sizes
    ];

    #[test]
    fn golden_rows_both_ways() {
        let encoded = bytes(&GOLDEN);
        let rows: Vec<_> =
            IndexView::view(&encoded).unwrap().rows().map(|row| (row.number, row.id, row.value)).collect();
        let expected = [(0, 5, range(100, 110)), (1, 9, range(112, 112)), (2, u64::MAX, range(4, 7))];
        assert_eq!(rows, expected);

        let mut builder = IndexBuilder::default();
        expected.iter().for_each(|(_, id, value)| builder.push(*id, *value));
        let mut written = Vec::new();
        builder.drain_into(&mut written);
        assert_eq!(written, encoded);
    }

    #[test]
    fn a_small_index_must_be_complete() {
        let ids_gaps_sizes = [vec![1; 16], vec![0; 16], vec![2; 16]].concat();
        let encoded = bytes(&ids_gaps_sizes);
        assert_eq!(SmallIndex::view(&encoded, 0, 16).unwrap().find(3).unwrap().value, range(4, 6));
        assert!((0..encoded.len()).all(|len| SmallIndex::view(&encoded[..len], 0, 16).is_none()));
    }

    #[test]
    fn lengths_that_are_no_multiple_of_24_are_corrupt() {
        let encoded = bytes(&GOLDEN);
        for len in [1, 8, 23, 25, 71] {
            let error = IndexView::view(&encoded[..len]).err().unwrap();
            assert!(error.message().contains(&format!("found {len}")), "{error}");
        }
        assert_eq!(IndexView::view(&[]).unwrap().len(), 0);
    }

    /// All searchable forms return what a plain walk over the rows returns, for arbitrary words.
    #[test]
    fn every_form_finds_the_first_row_of_an_id() {
        fn agree(mut words: Vec<u64>, ascending: bool, long: bool, below: u8) -> bool {
            if long {
                words = words.iter().cycle().take(words.len() * 40).copied().collect();
            }
            if ascending {
                let third = words.len() / 3;
                words[..third].iter_mut().for_each(|word| *word = 1 + *word % 1000);
            }
            words.truncate(words.len() / 3 * 3);
            let rows = words.len() / 3;
            words[rows..].iter_mut().for_each(|word| *word >>= below % 64);
            let encoded = bytes(&words);
            let index = IndexView::view(&encoded).unwrap();
            let (sorted, checkpoints) = (SortedIndex::new(index), Checkpoints::new(index));
            let mut forms = vec![SearchableIndex::Scanned(index), SearchableIndex::Sorted(&sorted)];
            forms.extend(checkpoints.iter().map(|it| SearchableIndex::Checkpointed(index, it)));
            assert!(!ascending || forms.len() == 3);
            // the bytes after the small index repeat it
            let body = [&*encoded; 64].concat();
            let small = SmallIndex::view(&body, 0, u32::try_from(rows).unwrap());
            assert_eq!(small.is_some(), index.len() <= 16 && body.len() >= 384);
            let plain = rows <= 8 && words[rows..].iter().all(|word| *word < 1 << 58);
            assert!(
                small.is_none_or(|small| small.miss_proves_absence() == plain)
                    && (!plain || index.miss_proves_absence())
            );
            let beyond = IndexView::view(&body[..24 * 16.min(body.len() / 24)]).unwrap();
            let ids = beyond.rows().chain(index.rows()).flat_map(|row| [row.id, row.id.wrapping_add(1)]);
            let ids: Vec<u64> = ids.chain([0, u64::MAX]).collect();
            ids.iter().all(|id| {
                let expected = index.rows().find(|row| row.id == *id);
                forms.iter().all(|form| form.find(*id) == expected && form.len() == index.len())
                    && small.is_none_or(|small| small.find(*id) == expected.filter(|row| row.number < 8))
                    && forms.iter().all(|form| form.miss_proves_absence() == index.miss_proves_absence())
            })
        }
        quickcheck::QuickCheck::new().tests(300).quickcheck(agree as fn(Vec<u64>, bool, bool, u8) -> bool);
        let ascending: Vec<u64> = [vec![3; 200], vec![1; 200], vec![5; 200]].concat();
        assert!(agree(ascending, true, false, 0));
    }
}
