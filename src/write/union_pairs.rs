//! The pairs of several native generations in the storage order of one specification, as stored.
//!
//! The generations have the hash and the preshift of the specification, and select as many bits of the hash or more. If
//! an input selects more bits, its shards are divided into parts: in one part, the additional highest bits are equal, so
//! that the other bits are in the order of the specification. Each part is a source of the merge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::generation::Generation;
use crate::write::duplicates::Duplicates;
use crate::write::shard_file::{PairBytes, PairHeader, PieceSink};
use crate::write::shard_writer::duplicate_key;
use crate::write::slices::{Span, place_bits};
use crate::write::stored_pairs::StoredPairs;
use crate::write::{Pairs, SortedPairs};

/// Several generations whose pairs can be merged as they are stored.
pub(crate) struct UnionPairs<'a> {
    /// In the order of insertion of their pairs. Each with the binary logarithm of its number of parts.
    inputs: Vec<(&'a Generation, u8)>,
    spec: ShardingSpec,
    duplicates: Duplicates,
}

impl<'a> UnionPairs<'a> {
    /// Combines generations; `None` if some have to be sorted, lack the `checks` that the new one has, or have more than
    /// `most` parts together.
    pub(crate) fn new(
        inputs: impl Iterator<Item = &'a Generation>,
        spec: ShardingSpec,
        duplicates: Duplicates,
        checks: bool,
        most: usize,
    ) -> Option<UnionPairs<'a>> {
        let has_checks = |input: &Generation| !checks || input.layout().is_some_and(|layout| layout.checks);
        let with_bits = |input: &'a Generation| Some((input, part_bits(input, &spec).filter(|_| has_checks(input))?));
        let inputs: Vec<_> = inputs.map(with_bits).collect::<Option<_>>()?;
        let parts = inputs.iter().try_fold(0_usize, |parts, (_, bits)| parts.checked_add(1 << bits));
        parts.is_some_and(|parts| parts <= most).then_some(UnionPairs { inputs, spec, duplicates })
    }

    /// Returns the number of parts of all inputs.
    pub(crate) fn parts(&self) -> usize {
        self.inputs.iter().map(|(_, bits)| 1 << bits).sum()
    }
}

/// Returns the binary logarithm of the number of parts of an input; `None` if its pairs have to be sorted.
fn part_bits(input: &Generation, spec: &ShardingSpec) -> Option<u8> {
    let own = input.spec();
    let same_hash = (own.hash_function(), own.preshift_bits()) == (spec.hash_function(), spec.preshift_bits());
    let same_encoding = own.data_encoding() == spec.data_encoding();
    let more_bits = place_bits(own).checked_sub(place_bits(spec))?;
    // a part consists of whole shards
    let divides = same_hash && same_encoding && more_bits <= own.shard_bits() && more_bits < 16;
    // whether any pair of an input with preambles has one, and so the layout, is known only after all are read
    let has_preambles = input.layout().is_none_or(|layout| layout.preambles);
    (divides && input.manifest().is_some() && !has_preambles).then_some(more_bits)
}

impl Pairs for UnionPairs<'_> {
    fn max_span_bits(&self) -> u8 {
        // a span of a part consists of whole shards of the input
        let bits = self.inputs.iter().map(|(input, part_bits)| input.spec().shard_bits() - part_bits);
        bits.min().unwrap_or_default().min(8)
    }

    fn span(&self, span: Span) -> Result<Box<dyn SortedPairs + '_>> {
        let mut union = UnionSpan {
            spec: self.spec,
            duplicates: self.duplicates,
            sources: Vec::new(),
            heads: BinaryHeap::new(),
            dropped: 0,
        };
        for (rank, (input, part_bits)) in (0..).zip(&self.inputs) {
            for part in 0..1_u64 << part_bits {
                let numbers = shards_of(input.spec(), *part_bits, part, span);
                let shards = input.shard_numbers().filter(|number| numbers.contains(&u128::from(number.0)));
                union.add(Source {
                    rank,
                    pairs: StoredPairs::new(input),
                    shards: shards.collect::<Vec<_>>().into_iter(),
                })?;
            }
        }
        Ok(Box::new(union))
    }
}

/// Returns the shards of one part of an input that are in a span.
fn shards_of(input: &ShardingSpec, part_bits: u8, part: u64, span: Span) -> Range<u128> {
    let of_part = input.shard_bits() - part_bits;
    let of_span = u32::from(of_part - span.bits);
    let low = u128::from(part) << of_part | (span.number as u128) << of_span;
    low..low + (1 << of_span)
}

/// Some shards of one input.
struct Source<'a> {
    /// The rank of the input, which orders the pairs of a key.
    rank: u32,
    pairs: StoredPairs<'a>,
    shards: std::vec::IntoIter<ShardNumber>,
}

impl Source<'_> {
    fn next(&mut self) -> Result<Option<PairHeader>> {
        loop {
            if let Some((_, header)) = self.pairs.next()? {
                return Ok(Some(header));
            }
            match self.shards.next() {
                Some(number) => self.pairs.enter(number)?,
                None => return Ok(None),
            }
        }
    }
}

/// The union in one span.
struct UnionSpan<'a> {
    spec: ShardingSpec,
    duplicates: Duplicates,
    sources: Vec<Source<'a>>,
    /// The next pair of each source.
    heads: BinaryHeap<Reverse<Head>>,
    dropped: u64,
}

/// The next pair of a source: its place, key, rank of the input, index of the source, and header.
#[derive(PartialEq, Eq)]
struct Head {
    order: (u64, u64, u32, u32),
    header: PairHeader,
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> UnionSpan<'a> {
    fn add(&mut self, mut source: Source<'a>) -> Result<()> {
        let index = u32::try_from(self.sources.len()).map_err(|_| no_source())?;
        if let Some(header) = source.next()? {
            self.heads.push(Reverse(self.head(index, source.rank, header)));
        }
        self.sources.push(source);
        Ok(())
    }

    fn head(&self, index: u32, rank: u32, header: PairHeader) -> Head {
        let order = (self.spec.packed_location(header.key), header.key, rank, index);
        Head { order, header: PairHeader { source: index, ..header } }
    }

    /// Removes the smallest pair and adds the next pair of its source.
    fn pop(&mut self) -> Result<Option<Head>> {
        let Some(Reverse(Head { order: (_, _, rank, index), .. })) = self.heads.peek() else { return Ok(None) };
        let (rank, index) = (*rank, *index);
        let next = self.sources.get_mut(index as usize).ok_or_else(no_source)?.next()?;
        let next = next.map(|header| self.head(index, rank, header));
        let Some(mut top) = self.heads.peek_mut() else { return Ok(None) };
        Ok(Some(match next {
            Some(next) => std::mem::replace(&mut *top, Reverse(next)).0,
            None => PeekMut::pop(top).0,
        }))
    }
}

impl SortedPairs for UnionSpan<'_> {
    fn next(&mut self) -> Result<Option<(u64, PairHeader)>> {
        let Some(mut head) = self.pop()? else { return Ok(None) };
        let key = head.header.key;
        while self.duplicates != Duplicates::KeepAll && self.heads.peek().is_some_and(|next| next.0.header.key == key) {
            let Some(later) = self.pop()? else { break };
            match self.duplicates {
                Duplicates::Refuse => return Err(duplicate_key(key)),
                Duplicates::KeepLast => head = later,
                Duplicates::KeepFirst | Duplicates::KeepAll => {}
            }
            self.dropped += 1;
        }
        Ok(Some((head.order.0, head.header)))
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl PairBytes for UnionSpan<'_> {
    fn pieces(&mut self, pair: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
        self.sources.get_mut(pair.source as usize).ok_or_else(no_source)?.pairs.pieces(pair, to)
    }
}

#[cold]
fn no_source() -> Error {
    Error::internal("a pair of a union belongs to none of its sources")
}
