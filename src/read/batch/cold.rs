//! Cold batches: prefetches the pages of many keys before the first lookup.
//!
//! A lookup from a cold disk waits for up to three page reads in sequence: the shard index entry, the minishard, and
//! the rest of the value. Here all keys pass through these steps together. Each step asks the kernel to prefetch the
//! pages of all keys, in file order, before any of those pages is read.

use crate::byte_range::ByteRange;
use crate::ids::MinishardNumber;
use crate::read::shard::ShardReader;
use crate::read::snapshot::Snapshot;

/// Pages are at least this large.
const PAGE: u64 = 4096;

/// Upper bound on the prefetched bytes of one index or value, in case a damaged file states a huge length.
const LONGEST: u64 = 16 << 20;

impl Snapshot {
    /// Asks the kernel to prefetch the pages that lookups of these keys will read, for keys whose data is not in
    /// memory.
    ///
    /// This is a hint: it changes no result, and errors are left to the lookups. It waits for the indexes of the keys,
    /// but not for their values. It has no effect on data that is loaded.
    ///
    /// Cost: up to four system calls per key. They are wasted if the pages are in memory already; otherwise the disk
    /// serves many reads at a time instead of one. The pages of all keys should fit into memory together: pass a few
    /// thousand keys at a time.
    ///
    /// ```no_run
    /// # fn main() -> sharddb::Result<()> {
    /// // SAFETY: nobody edits the files of this store.
    /// let snapshot = unsafe { sharddb::ShardDb::open_mapped("store")? }.snapshot();
    /// let keys = [1, 2, 3];
    /// snapshot.read_ahead(&keys);
    /// let values = snapshot.get_many(&keys);
    /// # Ok(()) }
    /// ```
    pub fn read_ahead(&self, keys: &[u64]) {
        let mut wanted: Vec<_> = keys.iter().filter_map(|key| self.wanted(*key)).collect();
        wanted.sort_unstable_by_key(|it| (it.shard.number, it.minishard));
        prefetch_pages(&wanted, Wanted::entry, ShardReader::will_need_entries);
        prefetch_pages(&wanted, Wanted::index, ShardReader::will_need_data);
        prefetch_pages(&wanted, Wanted::rest_of_value, ShardReader::will_need_data);
    }

    /// Returns a key with its shard and minishard; `None` if the snapshot does not have the shard, or it cannot be
    /// opened.
    fn wanted(&self, key: u64) -> Option<Wanted<'_>> {
        let (shard, minishard) = self.generation.shard_of_key(key).ok()??;
        Some(Wanted { shard: shard.reader(), minishard, key })
    }
}

/// A key with its shard and minishard.
///
/// Each method returns the range that one step of a lookup reads, or `None` if the lookup does not take that step.
struct Wanted<'a> {
    shard: &'a ShardReader,
    minishard: MinishardNumber,
    key: u64,
}

impl Wanted<'_> {
    fn entry(&self) -> Option<ByteRange> {
        self.shard.wanted_entry(self.minishard)
    }

    /// Returns the range of the index or, if one positioned read returns the whole minishard, of that.
    fn index(&self) -> Option<ByteRange> {
        match self.shard.short(self.minishard) {
            Some(minishard) => Some(minishard.span()),
            None => self.shard.locate_index(self.minishard).ok()?,
        }
    }

    /// Returns the range of the value, without the bytes on pages of the index.
    fn rest_of_value(&self) -> Option<ByteRange> {
        if self.shard.short(self.minishard).is_some() {
            return None;
        }
        let index = pages_of(self.index()?);
        let found = self.shard.find(self.minishard, self.key).ok()??;
        let value = self.shard.value_range(found.row).ok()?;
        let start = if (index.start..index.end).contains(&value.start) { index.end } else { value.start };
        (start < value.end).then_some(ByteRange { start, end: value.end })
    }
}

/// Prefetches the range of each key. Ranges whose pages touch are merged into one request.
fn prefetch_pages<'a>(
    wanted: &[Wanted<'a>],
    range: impl Fn(&Wanted<'a>) -> Option<ByteRange>,
    will_need: impl Fn(&ShardReader, ByteRange),
) {
    let mut run: Option<(&ShardReader, ByteRange)> = None;
    for it in wanted {
        let Some(pages) = range(it).map(pages_of) else { continue };
        if let Some((shard, run)) = &mut run
            && std::ptr::eq(*shard, it.shard)
            && let Some(both) = union(*run, pages)
        {
            *run = both;
        } else if let Some((shard, done)) = run.replace((it.shard, pages)) {
            will_need(shard, done);
        }
    }
    if let Some((shard, last)) = run {
        will_need(shard, last);
    }
}

/// Extends a range to page boundaries, after limiting it to `LONGEST` bytes. It may end past the end of the file.
fn pages_of(range: ByteRange) -> ByteRange {
    let start = range.start - range.start % PAGE;
    let end = range.end.min(range.start.saturating_add(LONGEST));
    ByteRange { start, end: end.checked_next_multiple_of(PAGE).unwrap_or(end) }
}

/// Merges two ranges if the second begins within the first or at its end.
fn union(first: ByteRange, second: ByteRange) -> Option<ByteRange> {
    let touching = (first.start..=first.end).contains(&second.start);
    touching.then_some(ByteRange { start: first.start, end: first.end.max(second.end) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole_and_not_too_many() {
        let pages = |start, end| {
            let ByteRange { start, end } = pages_of(ByteRange { start, end });
            (start, end)
        };
        assert_eq!(pages(0, 16), (0, 4096));
        assert_eq!(pages(4095, 4096), (0, 4096));
        assert_eq!(pages(4095, 4097), (0, 8192));
        assert_eq!(pages(8192, u64::MAX), (8192, 8192 + LONGEST));
        assert_eq!(pages(u64::MAX - 1, u64::MAX), (u64::MAX - 4095, u64::MAX), "without overflow");
    }

    #[test]
    fn only_what_touches_is_asked_for_together() {
        let union_of = |first: (u64, u64), second: (u64, u64)| {
            let range = |(start, end)| ByteRange { start, end };
            union(range(first), range(second)).map(|both| (both.start, both.end))
        };
        assert_eq!(union_of((0, 4096), (0, 4096)), Some((0, 4096)), "the same");
        assert_eq!(union_of((0, 4096), (4096, 8192)), Some((0, 8192)), "the next");
        assert_eq!(union_of((0, 8192), (4096, 8192)), Some((0, 8192)), "within");
        assert_eq!(union_of((0, 4096), (8192, 12288)), None, "a page lies between");
        assert_eq!(union_of((8192, 12288), (0, 4096)), None, "before: another writer's order");
    }
}
