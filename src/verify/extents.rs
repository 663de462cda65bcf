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

use crate::ids::{MinishardNumber, minishard_number};
use std::fmt;

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::format::layout::{Layout, MINISHARD_ALIGNMENT};
use crate::format::spec::Encoding;
use crate::read::shard::reserve_rows;

/// The byte ranges that the indexes of one shard name.
#[derive(Default)]
pub(super) struct Extents(Vec<Extent>);

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
        reserve_rows(&mut self.0, rows.saturating_add(1), file_len)
    }

    /// Adds those of the next minishards. Returns false, and adds nothing, if that are more than
    /// [`reserve`](Self::reserve) allows.
    pub(super) fn append(&mut self, mut more: Extents, file_len: u64) -> bool {
        let fits = reserve_rows(&mut self.0, more.0.len() as u64, file_len).is_ok();
        if fits {
            self.0.append(&mut more.0);
        }
        fits
    }

    /// Returns all extents, sorted by start, then end.
    pub(super) fn into_sorted(self) -> Vec<Extent> {
        let mut extents = self.0;
        extents.sort_unstable_by_key(|extent| (extent.start, extent.end));
        extents
    }

    /// Adds a minishard index with its checks.
    pub(super) fn push_index(&mut self, minishard: MinishardNumber, range: ByteRange) {
        self.0.push(Extent::new(ExtentKind::MinishardIndex, minishard, 0, range));
    }

    pub(super) fn push_value(&mut self, minishard: MinishardNumber, key: u64, range: ByteRange) {
        self.0.push(Extent::new(ExtentKind::Value, minishard, key, range));
    }
}

impl Extent {
    pub(super) fn new(kind: ExtentKind, minishard: MinishardNumber, key: u64, range: ByteRange) -> Extent {
        let minishard = u32::try_from(minishard.get()).unwrap_or(u32::MAX); // there are at most 2^32
        Extent { start: range.start, end: range.end, key, minishard, kind }
    }

    pub(super) fn is_value(&self) -> bool {
        self.kind == ExtentKind::Value
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Adds the minishard, offset and key of this extent to an error.
    pub(super) fn at(&self, error: Error) -> Error {
        let error = error.at_minishard(minishard_number(self.minishard.into())).at_offset(self.start);
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
