//! The merge: combines the pairs of several sources in storage order, each key once. A source is a run or a generation, or
//! a part of one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::error::{Error, Result};
use crate::format::spec::ShardingSpec;
use crate::write::SortedPairs;
use crate::write::duplicates::Duplicates;
use crate::write::large::{self, LargeFileReader};
use crate::write::shard_file::{PairBytes, PairHeader, PieceSink};
use crate::write::shard_writer::duplicate_key;

/// Pairs in storage order.
pub(crate) trait MergeSource: PairBytes {
    /// Returns the next pair. Its batch orders the pairs of one key.
    fn next(&mut self) -> Result<Option<PairHeader>>;

    /// Notes that a pair that was returned is not copied.
    fn drop_pair(&mut self, _header: &PairHeader) {}

    /// Notes that a pair that was returned is copied, after those that were kept before it.
    fn keep_pair(&mut self, _header: &mut PairHeader) {}
}

/// A merge of several sources.
pub(crate) struct Merge<'a, S> {
    spec: ShardingSpec,
    duplicates: Duplicates,
    /// The file with the bytes of large pairs; `None` if they are not copied.
    large: Option<&'a LargeFileReader>,
    sources: Vec<S>,
    /// The next pair of each source.
    heads: BinaryHeap<Reverse<Head>>,
    dropped: u64,
}

/// The next pair of a source, ordered by place, key and batch number.
///
/// A run has each key once and contains all pairs of its batches, so (place, key, batch) is unique. If duplicates are
/// errors, batches are not numbered and ties do not matter. A generation has the number of the input as its batch.
struct Head {
    place: u64,
    header: PairHeader,
}

impl<'a, S: MergeSource> Merge<'a, S> {
    /// Merges sources, which may be given in any order.
    pub(crate) fn new(
        sources: impl Iterator<Item = S>,
        spec: ShardingSpec,
        duplicates: Duplicates,
        large: Option<&'a LargeFileReader>,
    ) -> Result<Merge<'a, S>> {
        let mut merge = Merge { spec, duplicates, large, sources: Vec::new(), heads: BinaryHeap::new(), dropped: 0 };
        for (number, mut source) in (0..).zip(sources) {
            merge.heads.extend(source.next()?.map(|header| Head::of(&spec, number, header)));
            merge.sources.push(source);
        }
        Ok(merge)
    }

    /// Removes the smallest pair and adds the next pair of its source to the heap.
    fn pop(&mut self) -> Result<Option<Head>> {
        let Some(mut top) = self.heads.peek_mut() else { return Ok(None) };
        let source = top.0.header.source;
        let next = self.sources.get_mut(source as usize).ok_or_else(no_source)?.next()?;
        Ok(Some(match next {
            Some(header) => std::mem::replace(&mut *top, Head::of(&self.spec, source, header)).0,
            None => PeekMut::pop(top).0,
        }))
    }

    fn drop_pair(&mut self, header: &PairHeader) -> Result<()> {
        self.dropped += 1;
        self.source(header)?.drop_pair(header);
        Ok(())
    }

    fn source(&mut self, header: &PairHeader) -> Result<&mut S> {
        self.sources.get_mut(header.source as usize).ok_or_else(no_source)
    }

    fn next_is(&self, head: &Head) -> bool {
        // equal keys have equal places, so they are adjacent
        self.heads.peek().is_some_and(|next| next.0.header.key == head.header.key && next.0.place == head.place)
    }
}

impl<S: MergeSource> SortedPairs for Merge<'_, S> {
    fn next(&mut self) -> Result<Option<(u64, PairHeader)>> {
        let Some(mut head) = self.pop()? else { return Ok(None) };
        while self.duplicates != Duplicates::KeepAll && self.next_is(&head) {
            let Some(later) = self.pop()? else { break };
            let dropped = match self.duplicates {
                Duplicates::Refuse => return Err(duplicate_key(head.header.key)),
                Duplicates::KeepLast => std::mem::replace(&mut head, later),
                Duplicates::KeepFirst | Duplicates::KeepAll => later,
            };
            self.drop_pair(&dropped.header)?;
        }
        let mut header = head.header;
        self.source(&header)?.keep_pair(&mut header);
        Ok(Some((head.place, header)))
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl<S: MergeSource> PairBytes for Merge<'_, S> {
    #[inline]
    fn pieces(&mut self, pair: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
        match pair.large {
            None => self.source(pair)?.pieces(pair, to),
            Some(position) => large::pieces(self.large, position, pair, to),
        }
    }
}

#[cold]
fn no_source() -> Error {
    Error::internal("a pair of a merge belongs to none of its sources")
}

impl Head {
    fn of(spec: &ShardingSpec, source: u32, header: PairHeader) -> Reverse<Head> {
        Reverse(Head { place: spec.packed_location(header.key), header: PairHeader { source, ..header } })
    }

    fn order(&self) -> (u64, u64, u64, u32) {
        (self.place, self.header.key, self.header.batch, self.header.source)
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Head {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::bytes::{Cursor, Sink};
    use crate::common::TempDir;
    use crate::error::ErrorKind;
    use crate::format::hash::HashFunction;
    use crate::write::run::{MAX_HEADER, Run, run_path};

    /// A pair and the number of the batch that it was inserted in.
    type Inserted = (u64, Vec<u8>, u64);

    type Pair = (u64, Vec<u8>);

    const BATCHES: u64 = 8;

    /// Sorted pairs in memory.
    struct Sorted {
        spec: ShardingSpec,
        pairs: std::vec::IntoIter<Inserted>,
        value: Vec<u8>,
    }

    impl Sorted {
        fn of(spec: ShardingSpec, mut pairs: Vec<Inserted>) -> Sorted {
            pairs.sort_by_key(|(key, _, batch)| (spec.packed_location(*key), *key, *batch));
            Sorted { spec, pairs: pairs.into_iter(), value: Vec::new() }
        }
    }

    impl SortedPairs for Sorted {
        fn next(&mut self) -> Result<Option<(u64, PairHeader)>> {
            let Some((key, value, batch)) = self.pairs.next() else { return Ok(None) };
            let stored_len = value.len() as u64;
            self.value = value;
            let header = PairHeader { batch, ..PairHeader::new(key, 0, stored_len) };
            Ok(Some((self.spec.packed_location(key), header)))
        }

        fn dropped(&self) -> u64 {
            0
        }
    }

    impl PairBytes for Sorted {
        fn pieces(&mut self, _: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
            to(&self.value)
        }
    }

    fn value(key: u64, batch: u64) -> Vec<u8> {
        format!("{key} of batch {batch}").repeat(usize::try_from(1 + key % 40).unwrap()).into_bytes()
    }

    /// Merges one run per batch, since a run holds each key once; returns the pairs that survive, and how many do not.
    fn merged(duplicates: Duplicates, inserted: &[Inserted]) -> Result<(Vec<Pair>, u64)> {
        let directory = TempDir::new();
        let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 3, 4).unwrap();
        let mut runs = Vec::new();
        for run in 0..BATCHES {
            let pairs: Vec<_> = inserted.iter().filter(|(_, _, batch)| *batch == run).cloned().collect();
            let headers = (pairs.len() * MAX_HEADER) as u64;
            let mut sorted = Sorted::of(spec, pairs);
            runs.push(Run::write(run_path(directory.path(), run), spec, duplicates, headers, &mut sorted)?);
        }
        let open = runs.iter().map(Run::open).collect::<Result<Vec<_>>>()?;
        let sources = open.iter().map(|run| run.read(0..usize::MAX, 1 << 14));
        let mut merge = Merge::new(sources, spec, duplicates, None)?;
        let (mut pairs, mut places) = (Vec::new(), Vec::new());
        while let Some((place, header)) = merge.next()? {
            let sink = Sink::Memory(Arc::default());
            let mut copy = Cursor::new(sink.clone(), 0, 1 << 10);
            merge.copy(&header, &mut copy)?;
            copy.finish()?;
            pairs.push((header.key, sink.take_memory()));
            places.push((place, header.key));
        }
        assert!(places.is_sorted(), "storage order");
        Ok((pairs, merge.dropped()))
    }

    fn inserted() -> Vec<Inserted> {
        let keys = |batch| (0..200u64).map(move |number| number * (7 + batch) % 311);
        (0..BATCHES).flat_map(|batch| keys(batch).map(move |key| (key, value(key, batch), batch))).collect()
    }

    #[test]
    fn one_pair_of_each_key_survives_as_in_a_map() {
        let inserted = inserted();
        for (policy, keeps_first) in [(Duplicates::KeepFirst, true), (Duplicates::KeepLast, false)] {
            let mut expected = BTreeMap::new();
            for (key, value, _) in &inserted {
                if !keeps_first || !expected.contains_key(key) {
                    expected.insert(*key, value.clone());
                }
            }
            let (pairs, dropped) = merged(policy, &inserted).unwrap();
            assert_eq!(dropped, (inserted.len() - expected.len()) as u64);
            assert_eq!(pairs.len(), expected.len());
            assert!(pairs.into_iter().collect::<BTreeMap<_, _>>() == expected, "{policy:?}");
        }
    }

    #[test]
    fn a_duplicate_is_an_error_with_its_key() {
        let distinct: Vec<Inserted> = (0..500).map(|key| (key, value(key, key % 7), key % 7)).collect();
        let (pairs, dropped) = merged(Duplicates::Refuse, &distinct).unwrap();
        assert_eq!((pairs.len(), dropped), (500, 0));
        let twice = [distinct, vec![(77, value(77, 7), 7)]].concat();
        let error = merged(Duplicates::Refuse, &twice).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::DuplicateKey, Some(77)));
    }

    #[test]
    fn nothing_merges_to_nothing() {
        assert_eq!(merged(Duplicates::KeepLast, &[]).unwrap(), (Vec::new(), 0));
    }
}
