//! The merge: combines pairs of several runs in storage order, each key once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::build::SortedPairs;
use crate::build::options::OnDuplicate;
use crate::build::run::RunReader;
use crate::build::shard_body::{PairBytes, PairHeader};
use crate::build::shard_writer::duplicate_key;
use crate::error::{Error, Result};
use crate::format::spec::ShardingSpec;
use crate::storage::Cursor;

/// A merge of several sources.
pub(crate) struct Merge {
    spec: ShardingSpec,
    on_duplicate: OnDuplicate,
    runs: Vec<RunReader>,
    /// The next pair of each run.
    heads: BinaryHeap<Reverse<Head>>,
    dropped: u64,
}

/// The next pair of a run, ordered by place, key and batch number. At most one run has a pair of this key and batch.
struct Head {
    place: u64,
    header: PairHeader,
}

impl Merge {
    /// Merges sources, which may be given in any order.
    pub(crate) fn new(
        sources: impl Iterator<Item = RunReader>,
        spec: ShardingSpec,
        on_duplicate: OnDuplicate,
    ) -> Result<Merge> {
        let mut merge = Merge { spec, on_duplicate, runs: Vec::new(), heads: BinaryHeap::new(), dropped: 0 };
        for (source, mut reader) in (0..).zip(sources) {
            if let Some(head) = merge.head(source, &mut reader)? {
                merge.heads.push(Reverse(head));
            }
            merge.runs.push(reader);
        }
        Ok(merge)
    }

    fn head(&self, source: u32, reader: &mut RunReader) -> Result<Option<Head>> {
        let Some(header) = reader.next()? else { return Ok(None) };
        Ok(Some(Head { place: self.spec.place(header.key), header: PairHeader { source, ..header } }))
    }

    /// Removes the smallest pair and adds the next pair of its run to the heap.
    fn pop(&mut self) -> Result<Option<Head>> {
        let Some(mut top) = self.heads.peek_mut() else { return Ok(None) };
        let source = top.0.header.source;
        let next = self.runs.get_mut(source as usize).ok_or_else(no_source)?.next()?;
        Ok(Some(match next {
            Some(header) => {
                let place = self.spec.place(header.key);
                let next = Reverse(Head { place, header: PairHeader { source, ..header } });
                std::mem::replace(&mut *top, next).0
            }
            None => PeekMut::pop(top).0,
        }))
    }

    fn drop_pair(&mut self, header: &PairHeader) -> Result<()> {
        self.dropped += 1;
        self.run(header)?.drop_pair(header);
        Ok(())
    }

    fn run(&mut self, header: &PairHeader) -> Result<&mut RunReader> {
        self.runs.get_mut(header.source as usize).ok_or_else(no_source)
    }

    fn next_is(&self, head: &Head) -> bool {
        // equal keys have equal places, so they are adjacent
        self.heads.peek().is_some_and(|next| next.0.header.key == head.header.key && next.0.place == head.place)
    }
}

impl SortedPairs for Merge {
    fn next(&mut self) -> Result<Option<(u64, PairHeader)>> {
        let Some(mut head) = self.pop()? else { return Ok(None) };
        while self.next_is(&head) {
            let Some(later) = self.pop()? else { break };
            let dropped = match self.on_duplicate {
                OnDuplicate::Error => return Err(duplicate_key(head.header.key)),
                OnDuplicate::KeepFirst => later,
                OnDuplicate::KeepLast => std::mem::replace(&mut head, later),
            };
            self.drop_pair(&dropped.header)?;
        }
        let mut header = head.header;
        self.run(&header)?.keep_pair(&mut header);
        Ok(Some((head.place, header)))
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl PairBytes for Merge {
    fn copy(&mut self, pair: &PairHeader, to: &mut Cursor) -> Result<()> {
        self.run(pair)?.copy(pair, to)
    }
}

#[cold]
fn no_source() -> Error {
    Error::internal("a pair of a merge belongs to none of its sources")
}

impl Head {
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
