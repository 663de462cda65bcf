//! Pairs of batches in storage order, read directly from memory.
//!
//! Sorting all pairs at once would miss the CPU cache at every step. The pairs of each batch are therefore first put
//! into the order of their bands. The pairs of one band, from all batches, are sorted when the band is read.
//!
//! Before shards are written, each batch is copied into several pieces, and each piece is freed after its last use. The
//! kernel can then use the freed pages for the page cache of the written files, which may be faster than pages that no
//! process has touched yet. A batch that is spilled is not copied, because its memory is reused for the next batch:
//! only its entries are put into order.

use std::ops::Range;
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::format::locks::lock;
use crate::format::spec::ShardingSpec;
use crate::prefetch;
use crate::write::arena::Arena;
use crate::write::bands::{Banding, Span};
use crate::write::batch::{Batch, Records};
use crate::write::duplicates::Duplicates;
use crate::write::large::{self, LargeFileReader};
use crate::write::run::MAX_HEADER;
use crate::write::shard_file::{PairBytes, PairHeader, PieceSink};
use crate::write::shard_writer::duplicate_key;
use crate::write::{Pairs, SortedPairs, pair_header};

/// Prefetch distance in pairs. The bytes of sorted pairs are spread over all batches.
const AHEAD: usize = 16;

/// Number of prefetched cache lines per pair: the header and the beginning of the value.
const AHEAD_LINES: usize = 3;

/// Maximum number of pieces per batch, a power of two; also the maximum number of threads that write shards from
/// memory. A piece usually still fills a huge page.
const PIECES: usize = 16;

/// Batches whose pairs are in the order of bands.
pub(crate) struct MemoryPairs<'a> {
    spec: ShardingSpec,
    duplicates: Duplicates,
    /// The file with the bytes of large pairs; `None` if they are not copied.
    large: Option<&'a LargeFileReader>,
    banding: Banding,
    headers_at_most: u64,
    bands_per_piece: usize,
    /// The numbers of the batches, in insertion order.
    numbers: Vec<u64>,
    /// For each group of bands, the pieces of all batches; empty once they are taken.
    pieces: Vec<Mutex<Vec<Piece>>>,
}

/// A batch with its pairs in the order of bands.
pub(crate) struct BandedBatch {
    number: u64,
    pairs: usize,
    bands_per_piece: usize,
    pieces: Vec<Piece>,
}

/// The pairs of a group of adjacent bands of a batch; within a band in insertion order.
struct Piece {
    bytes: Arena,
    /// Entries in the order of bands; `None` if the pairs themselves are in this order.
    entries: Option<Vec<Entry>>,
    /// The end of each band: an index into `entries`, or an offset into `bytes` if there are none.
    ends: Vec<usize>,
}

/// The key and the position of a pair in a piece.
#[derive(Clone, Copy, Default)]
struct Entry {
    key: u64,
    /// Offset of the header in the piece.
    offset: usize,
}

/// A pair of the band being sorted. Ordered by storage order, then by insertion order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SortEntry {
    place: u64,
    key: u64,
    piece: PieceId,
    /// Offset of the header in its piece. Fits into 32 bits, because a piece is no larger than a batch.
    offset: u32,
}

/// A piece, as the source of its pairs. Ascends with the batch, then with the group of bands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PieceId(u32);

impl PieceId {
    /// Returns the piece of a batch, by its index, with a group of bands.
    fn new(batch: usize, group: usize) -> Result<PieceId> {
        let id = u32::try_from(batch * PIECES + group);
        id.map(PieceId).map_err(|_| Error::internal("there are too many batches"))
    }

    fn batch(self) -> usize {
        self.0 as usize / PIECES
    }

    fn group(self) -> usize {
        self.0 as usize % PIECES
    }
}

impl BandedBatch {
    /// Copies the pairs of a batch into several pieces, in the order of bands.
    pub(crate) fn in_pieces(batch: &Batch, spec: &ShardingSpec) -> Result<BandedBatch> {
        let banding = Banding::of(spec);
        let mut lens = vec![0; banding.count()];
        let mut records = Vec::with_capacity(batch.pairs());
        for record in batch.records() {
            let (key, bytes) = record?;
            let band = banding.band_of(spec.packed_location(key));
            records.push((band, bytes));
            *lens.get_mut(band).ok_or_else(no_band)? += bytes.len();
        }
        let bands_per_piece = (banding.count() / PIECES).max(1);
        let mut pieces = lens.chunks(bands_per_piece).map(Piece::new).collect::<Result<Vec<Piece>>>()?;
        for (band, bytes) in records {
            let piece = pieces.get_mut(band / bands_per_piece).ok_or_else(no_band)?;
            piece.push(band % bands_per_piece, bytes)?;
        }
        Ok(BandedBatch { number: batch.number, pairs: batch.pairs(), bands_per_piece, pieces })
    }

    /// Creates a single piece of the whole batch, without a copy, with entries in the order of bands.
    pub(crate) fn in_place(batch: Batch, spec: &ShardingSpec) -> Result<BandedBatch> {
        let banding = Banding::of(spec);
        let (mut lens, mut offset) = (vec![0; banding.count()], 0);
        let mut unordered = Vec::with_capacity(batch.pairs());
        for record in batch.records() {
            let (key, bytes) = record?;
            let band = banding.band_of(spec.packed_location(key));
            unordered.push((band, Entry { key, offset }));
            offset += bytes.len();
            *lens.get_mut(band).ok_or_else(no_band)? += 1;
        }
        let mut ends = starts_of(&lens); // all bands are empty; each entry moves the end of its band
        let mut entries = vec![Entry::default(); unordered.len()];
        for (band, entry) in unordered {
            let end = ends.get_mut(band).ok_or_else(no_band)?;
            *entries.get_mut(*end).ok_or_else(no_band)? = entry;
            *end += 1;
        }
        let (number, pairs) = (batch.number, batch.pairs());
        let piece = Piece { bytes: batch.into_memory(), entries: Some(entries), ends };
        Ok(BandedBatch { number, pairs, bands_per_piece: banding.count(), pieces: vec![piece] })
    }

    /// Returns the number of the batch.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// Returns the error for the number of a band or piece that does not exist.
#[cold]
fn no_band() -> Error {
    Error::internal("a pair belongs to a band that does not exist")
}

/// Returns the starts of consecutive bands of these lengths.
fn starts_of(lens: &[usize]) -> Vec<usize> {
    let starts = lens.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len)));
    starts.collect()
}

impl Piece {
    /// Creates a piece with room for bands of these lengths. All bands are empty, so each end is the start.
    fn new(lens: &[usize]) -> Result<Piece> {
        let len = lens.iter().sum();
        let mut bytes = Batch::memory(len)?;
        bytes.extend(len);
        Ok(Piece { bytes, entries: None, ends: starts_of(lens) })
    }

    /// Adds a pair to a band.
    #[inline]
    fn push(&mut self, band: usize, record: &[u8]) -> Result<()> {
        let end = self.ends.get_mut(band).ok_or_else(no_band)?;
        let start = std::mem::replace(end, *end + record.len());
        let room = self.bytes.bytes_mut().get_mut(start..*end).ok_or_else(no_band)?;
        room.copy_from_slice(record);
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Calls `visit` for each pair of a band, in insertion order.
    #[inline]
    fn visit(&self, band: usize, mut visit: impl FnMut(Entry) -> Result<()>) -> Result<()> {
        let start = band.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied()).ok_or_else(no_band)?;
        let end = *self.ends.get(band).ok_or_else(no_band)?;
        if let Some(entries) = &self.entries {
            return entries.get(start..end).ok_or_else(no_band)?.iter().try_for_each(|entry| visit(*entry));
        }
        let mut offset = start;
        for record in Records::of(self.bytes.get(start..end).ok_or_else(no_band)?) {
            let (key, bytes) = record?;
            visit(Entry { key, offset })?;
            offset += bytes.len();
        }
        Ok(())
    }

    #[inline]
    fn bytes_from(&self, offset: usize) -> &[u8] {
        self.bytes.get(offset..).unwrap_or_default()
    }
}

impl<'a> MemoryPairs<'a> {
    /// Combines batches, which must be given in insertion order, since it decides between duplicates. All must be
    /// banded by this specification and into equally many pieces.
    ///
    /// Each pair can be read only once, because reading takes its piece.
    pub(crate) fn new(
        batches: Vec<BandedBatch>,
        spec: ShardingSpec,
        duplicates: Duplicates,
        large: Option<&'a LargeFileReader>,
    ) -> MemoryPairs<'a> {
        let banding = Banding::of(&spec);
        let pairs: usize = batches.iter().map(|batch| batch.pairs).sum();
        let bands_per_piece = batches.first().map_or(banding.count(), |batch| batch.bands_per_piece);
        let numbers = batches.iter().map(|batch| batch.number).collect();
        let mut pieces: Vec<Vec<Piece>> = (0..banding.count() / bands_per_piece).map(|_| Vec::new()).collect();
        for batch in batches {
            pieces.iter_mut().zip(batch.pieces).for_each(|(of_bands, piece)| of_bands.push(piece));
        }
        let pieces = pieces.into_iter().map(Mutex::new).collect();
        let headers_at_most = (pairs * MAX_HEADER) as u64;
        MemoryPairs { spec, duplicates, large, banding, headers_at_most, bands_per_piece, numbers, pieces }
    }

    /// Returns an upper bound on the bytes that the headers of all pairs take in a run.
    pub(crate) fn headers_at_most(&self) -> u64 {
        self.headers_at_most
    }

    /// Returns all pairs.
    pub(crate) fn all(&self) -> MemorySpan<'_> {
        self.memory_span(Span::ALL)
    }

    fn memory_span(&self, span: Span) -> MemorySpan<'_> {
        let bands = span.bands(self.banding.bits);
        MemorySpan { pairs: self, bands, held: Held::default(), sorted: Vec::new(), next: 0, dropped: 0 }
    }

    /// Returns the number of the batch of a piece.
    #[inline]
    fn number_of(&self, piece: PieceId) -> Result<u64> {
        let number = self.numbers.get(piece.batch()).copied();
        number.ok_or_else(|| Error::internal("a pair belongs to a batch that does not exist"))
    }

    /// Takes the pieces of one group of bands, from all batches.
    fn take_pieces(&self, group: usize) -> Result<Vec<Piece>> {
        let pieces = self.pieces.get(group).ok_or_else(no_band)?;
        Ok(std::mem::take(&mut *lock(pieces)))
    }
}

impl Pairs for MemoryPairs<'_> {
    fn max_span_bits(&self) -> u8 {
        self.banding.bits.saturating_sub(u8::try_from(self.bands_per_piece.ilog2()).unwrap_or(u8::MAX))
    }

    fn span(&self, span: Span) -> Result<Box<dyn SortedPairs + '_>> {
        Ok(Box::new(self.memory_span(span)))
    }
}

/// The pieces of the groups of bands that were read and not copied yet.
#[derive(Default)]
struct Held {
    /// The pieces of each group, in the order of batches; none for a group that is not held.
    groups: [Vec<Piece>; PIECES],
    /// The group that is being read.
    now: usize,
    /// All groups before this one are freed.
    first: usize,
}

impl Held {
    fn enter(&mut self, group: usize, pieces: Vec<Piece>) {
        self.now = group;
        if let Some(held) = self.groups.get_mut(group) {
            *held = pieces;
        }
    }

    #[inline]
    fn free_before(&mut self, group: usize) {
        if group > self.first {
            self.groups.iter_mut().take(group).skip(self.first).for_each(|pieces| *pieces = Vec::new());
            self.first = group;
        }
    }

    /// Returns the pieces of the current group.
    fn current(&self) -> &[Piece] {
        self.groups.get(self.now).map_or(&[], Vec::as_slice)
    }

    #[inline]
    fn piece(&self, id: PieceId) -> Result<&Piece> {
        let piece = self.groups.get(id.group()).and_then(|pieces| pieces.get(id.batch()));
        piece.ok_or_else(|| Error::internal("a pair belongs to a piece that was freed"))
    }
}

/// The pairs of one span, band by band.
pub(crate) struct MemorySpan<'a> {
    pairs: &'a MemoryPairs<'a>,
    /// The bands that are not read yet.
    bands: Range<usize>,
    held: Held,
    /// The pairs of the current band, sorted.
    sorted: Vec<SortEntry>,
    next: usize,
    dropped: u64,
}

impl MemorySpan<'_> {
    /// Returns the memory of the remaining pieces for reuse.
    pub(crate) fn into_memory(self) -> impl Iterator<Item = Arena> {
        self.held.groups.into_iter().flatten().map(|piece| piece.bytes)
    }

    fn prefetch(&self, entry: &SortEntry) {
        if let Ok(piece) = self.held.piece(entry.piece) {
            prefetch::lines(piece.bytes_from(entry.offset as usize), AHEAD_LINES);
        }
    }

    #[cold]
    fn next_band(&mut self) -> Result<bool> {
        let Some(band) = self.bands.next() else { return Ok(false) };
        let per_piece = self.pairs.bands_per_piece;
        let (group, band) = (band / per_piece, band % per_piece);
        if band == 0 {
            // every group is entered at its first band, because a span consists of whole groups (`max_span_bits`)
            let pieces = self.pairs.take_pieces(group)?;
            if pieces.iter().all(Piece::is_empty) {
                self.bands.start += per_piece - 1;
                self.sorted.clear();
                return Ok(true);
            }
            self.held.enter(group, pieces);
        }
        self.sort_band(band)?;
        self.next = 0;
        self.sorted.iter().take(AHEAD).for_each(|entry| self.prefetch(entry));
        Ok(true)
    }

    /// Sorts one band of the current pieces and drops duplicate keys.
    fn sort_band(&mut self, band: usize) -> Result<()> {
        let MemorySpan { pairs, sorted, .. } = self;
        sorted.clear();
        for (batch, piece) in self.held.current().iter().enumerate() {
            let id = PieceId::new(batch, self.held.now)?;
            piece.visit(band, |Entry { key, offset }| {
                let offset =
                    u32::try_from(offset).map_err(|_| Error::internal("a piece of a batch is larger than 4 GiB"))?;
                sorted.push(SortEntry { place: pairs.spec.packed_location(key), key, piece: id, offset });
                Ok(())
            })?;
        }
        sorted.sort_unstable();
        let before = sorted.len();
        deduplicate(sorted, pairs.duplicates)?;
        self.dropped += (before - sorted.len()) as u64;
        Ok(())
    }
}

fn deduplicate(sorted: &mut Vec<SortEntry>, duplicates: Duplicates) -> Result<()> {
    match duplicates {
        Duplicates::KeepAll => {}
        Duplicates::Refuse => {
            if let Some([first, ..]) = sorted.windows(2).find(|pair| matches!(pair, [a, b] if a.key == b.key)) {
                return Err(duplicate_key(first.key));
            }
        }
        Duplicates::KeepFirst => sorted.dedup_by_key(|entry| entry.key),
        Duplicates::KeepLast => sorted.dedup_by(|later, kept| {
            let same = later.key == kept.key;
            if same {
                *kept = *later;
            }
            same
        }),
    }
    Ok(())
}

impl SortedPairs for MemorySpan<'_> {
    fn next(&mut self) -> Result<Option<(u64, PairHeader)>> {
        loop {
            let Some(entry) = self.sorted.get(self.next) else {
                if self.next_band()? { continue } else { return Ok(None) }
            };
            if let Some(later) = self.sorted.get(self.next + AHEAD) {
                self.prefetch(later);
            }
            self.next += 1;
            let offset = entry.offset as usize;
            let (header, len) = pair_header::read(self.held.piece(entry.piece)?.bytes_from(offset))?;
            let batch = self.pairs.number_of(entry.piece)?;
            let header = PairHeader { batch, source: entry.piece.0, locator: (offset + len) as u64, ..header };
            return Ok(Some((entry.place, header)));
        }
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl PairBytes for MemorySpan<'_> {
    #[inline]
    fn pieces(&mut self, pair: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
        if let Some(position) = pair.large {
            return large::pieces(self.pairs.large, position, pair, to);
        }
        let start = usize::try_from(pair.locator).unwrap_or(usize::MAX);
        let len = usize::try_from(pair.inline_len()).unwrap_or(usize::MAX);
        let piece = PieceId(pair.source);
        self.held.free_before(piece.group());
        let bytes = self.held.piece(piece)?.bytes_from(start).get(..len);
        to(bytes.ok_or_else(|| Error::internal("a pair ends beyond its piece"))?)
    }
}
