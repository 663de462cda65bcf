//! The pairs of several native generations in the storage order of one specification, as stored.
//!
//! The generations have the hash and the preshift of the specification, and select as many bits of the hash or more. If
//! an input selects more bits, its shards are divided into parts: in one part, the additional highest bits are equal, so
//! that the other bits are in the order of the specification. Each part is a source of the merge.

use std::ops::Range;

use crate::error::Result;
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::generation::Generation;
use crate::write::bands::{Span, place_bits};
use crate::write::duplicates::Duplicates;
use crate::write::merge::{Merge, MergeSource};
use crate::write::shard_file::{PairBytes, PairHeader, PieceSink};
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
        let mut sources = Vec::new();
        for (number, (input, part_bits)) in (0..).zip(&self.inputs) {
            for part in 0..1_u64 << part_bits {
                let numbers = shards_of(input.spec(), *part_bits, part, span);
                let shards = input.shard_numbers().filter(|number| numbers.contains(&u128::from(number.get())));
                let shards = shards.collect::<Vec<_>>().into_iter();
                sources.push(Source { number, pairs: StoredPairs::new(input), shards });
            }
        }
        Ok(Box::new(Merge::new(sources.into_iter(), self.spec, self.duplicates, None)?))
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
    /// The number of the input, which orders the pairs of a key.
    number: u64,
    pairs: StoredPairs<'a>,
    shards: std::vec::IntoIter<ShardNumber>,
}

impl MergeSource for Source<'_> {
    fn next(&mut self) -> Result<Option<PairHeader>> {
        loop {
            if let Some((_, header)) = self.pairs.next()? {
                return Ok(Some(PairHeader { batch: self.number, ..header }));
            }
            match self.shards.next() {
                Some(number) => self.pairs.enter(number)?,
                None => return Ok(None),
            }
        }
    }
}

impl PairBytes for Source<'_> {
    fn pieces(&mut self, pair: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
        self.pairs.pieces(pair, to)
    }
}
