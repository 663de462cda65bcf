//! The byte ranges that the indexes of a shard name, and the gaps between them.
//!
//! ```text
//! | shard index | index 0, checks | pad, value | pad, value | pad | index 1, checks | ...      raw indexes
//! | shard index | pad, value | pad, value | index 0, checks | pad, value | ... | index 1, checks    gzip indexes
//! ```
//!
//! - pad before a value: to the value alignment (gzip: before the first value of a minishard, to 8 and then to the value
//!   alignment)
//! - pad before a raw index: to 8
//!
//! A native shard has only these gaps, with two exceptions: in a data set with preambles, any bytes may precede a value;
//! and a zero byte separates two consecutive empty values. In a foreign shard, a gap may contain any data of the program
//! that wrote it.

use std::collections::BTreeMap;
use std::fmt;

use crate::ids::{MinishardNumber, minishard_number};

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::layout::{Layout, MINISHARD_ALIGNMENT};
use crate::format::spec::Encoding;
use crate::read::shard::{check_rows, reserve_rows};

/// What is kept of the byte ranges that the indexes of one shard name.
pub(super) enum Extents {
    /// The ends of chains.
    Chains(Chains),
    /// All of them.
    All(Vec<Extent>),
}

/// Extents that were compared with the one before them: where each follows another, as writers store those of a minishard and
/// most store all, only the ends of the chain are kept.
#[derive(Default)]
pub(super) struct Chains {
    /// The chain of the last extent.
    current: Option<Chain>,
    /// The others, by the end of their last extent.
    others: BTreeMap<u64, Chain>,
    /// Those of other ranges of minishards.
    complete: Vec<Chain>,
    extents: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Chain {
    pub(super) first: Extent,
    pub(super) last: Extent,
}

/// What an extent does to the chains.
pub(super) enum Link {
    /// It begins one.
    Begins,
    /// It follows this extent.
    Follows(Extent),
    /// It overlaps others, or there would be too many chains.
    Breaks,
}

/// A byte range of a file, with the kind of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    key: u64,
    minishard: u32,
    kind: ExtentKind,
}

// the documentation of `Snapshot::verify` states this size
const _: () = assert!(size_of::<Extent>() == 32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtentKind {
    ShardIndex,
    /// A minishard index with its checks.
    MinishardIndex,
    Value,
}

/// A byte range that no index names.
#[derive(Clone, Copy)]
pub(super) struct Gap {
    pub(super) range: ByteRange,
    /// The extent that ends where the gap begins. Extents are ordered by offset, so it may belong to any minishard.
    pub(super) previous: Extent,
    /// The extent that begins where the gap ends; `None` at the end of the file.
    pub(super) next: Option<Extent>,
}

impl Extents {
    /// Reserves memory for an index and its rows. Errors: `TooLarge`.
    pub(super) fn reserve(&mut self, rows: u64, file_len: u64) -> Result<()> {
        let more = rows.saturating_add(1);
        match self {
            Extents::All(all) => reserve_rows(all, more, file_len),
            Extents::Chains(chains) => check_rows(chains.extents.saturating_add(more), file_len),
        }
    }

    /// Adds the chains of the next minishards. Returns false if the extents are more than [`reserve`](Self::reserve) allows,
    /// or if all are kept.
    pub(super) fn append(&mut self, more: Extents, file_len: u64) -> bool {
        let (Extents::Chains(chains), Extents::Chains(more)) = (self, more) else { return false };
        chains.extents = chains.extents.saturating_add(more.extents);
        chains.complete.extend(more.into_sorted());
        check_rows(chains.extents, file_len).is_ok()
    }
}

impl Default for Extents {
    fn default() -> Extents {
        Extents::Chains(Chains::default())
    }
}

impl Chains {
    /// Adds an extent to the nearest chain that ends before it. Begins one if its bytes do not follow immediately and there are
    /// fewer than `most`.
    pub(super) fn link(&mut self, extent: Extent, most: usize) -> Link {
        self.extents += 1;
        if let Some(current) = &mut self.current
            && (current.last.end == extent.start || most == 1 && current.last.end < extent.start)
        {
            return Link::Follows(std::mem::replace(&mut current.last, extent));
        }
        if let Some(current) = self.current.take()
            && self.others.insert(current.last.end, current).is_some()
        {
            return Link::Breaks;
        }
        let has_room = self.others.len() < most;
        let nearest = self.others.range(..=extent.start).next_back().map(|(end, _)| *end);
        let followed = nearest.filter(|end| *end == extent.start || !has_room);
        let (chain, link) = match followed.and_then(|end| self.others.remove(&end)) {
            Some(chain) => (Chain { last: extent, ..chain }, Link::Follows(chain.last)),
            None if has_room => (Chain { first: extent, last: extent }, Link::Begins),
            None => return Link::Breaks,
        };
        self.current = Some(chain);
        link
    }

    /// Returns the chains, sorted by their first extent.
    pub(super) fn into_sorted(self) -> Vec<Chain> {
        let mut chains = self.complete;
        chains.extend(self.current.into_iter().chain(self.others.into_values()));
        chains.sort_unstable_by_key(|chain| (chain.first.start, chain.last.end));
        chains
    }
}

impl Extent {
    pub(super) fn new(kind: ExtentKind, minishard: MinishardNumber, key: u64, range: ByteRange) -> Extent {
        let minishard = u32::try_from(minishard.get()).unwrap_or(u32::MAX); // there are at most 2^32
        Extent { start: range.start, end: range.end, key, minishard, kind }
    }

    pub(super) fn minishard(&self) -> MinishardNumber {
        minishard_number(self.minishard.into())
    }

    pub(super) fn is_value(&self) -> bool {
        self.kind == ExtentKind::Value
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Adds the minishard, offset and key of this extent to an error.
    pub(super) fn at(&self, error: Error) -> Error {
        let error = error.at_minishard(self.minishard()).at_offset(self.start);
        if self.is_value() { error.at_key(self.key) } else { error }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ExtentKind::ShardIndex => f.write_str("the shard index"),
            ExtentKind::MinishardIndex => write!(f, "the index of minishard {}", self.minishard),
            ExtentKind::Value => write!(f, "key {}", self.key),
        }
    }
}

impl Gap {
    /// Returns where the writer's padding would end if it began at the start of this gap; this may be after the gap.
    pub(super) fn padding_end(&self, layout: Layout, index_encoding: Encoding) -> u64 {
        let start = self.range.start;
        let Some(next) = self.next else { return start };
        let begins_minishard = match index_encoding {
            Encoding::Raw => !next.is_value(),
            Encoding::Gzip => next.is_value() && !self.previous.is_value(),
        };
        let start = if begins_minishard { start.next_multiple_of(MINISHARD_ALIGNMENT) } else { start };
        // In a data set with preambles, the padding that aligns a value precedes its preamble. The length of a preamble is
        // not stored, so both count as the preamble. Its check, if there is one, covers both.
        if !next.is_value() || layout.preambles {
            return start;
        }
        // the writer separates two consecutive empty values by a byte, so that their ranges differ
        let both_empty = self.previous.is_value() && self.previous.is_empty() && next.is_empty();
        let start = start + u64::from(both_empty);
        start + layout.value_alignment.padding(start)
    }

    /// Returns whether a preamble may follow the padding: any bytes are then valid.
    pub(super) fn may_hold_preamble(&self, layout: Layout) -> bool {
        layout.preambles && self.next.is_some_and(|next| next.is_value())
    }
}

/// The gaps in a foreign shard, which are reported in one note.
#[derive(Default)]
pub(super) struct Unnamed {
    pub(super) bytes: u64,
    pub(super) gaps: u64,
    pub(super) first: Option<u64>,
}

impl Unnamed {
    pub(super) fn add(&mut self, range: ByteRange) {
        self.bytes += range.len();
        self.gaps += 1;
        self.first = Some(self.first.map_or(range.start, |first| first.min(range.start)));
    }

    pub(super) fn merge(&mut self, other: Unnamed) {
        self.bytes += other.bytes;
        self.gaps += other.gaps;
        self.first = self.first.into_iter().chain(other.first).min();
    }
}
