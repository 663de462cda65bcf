//! Cold batches: the pages of many keys, asked for before the first of them is read.
//!
//! From a disk, a lookup is waiting: for the page of the shard index entry, for that of the minishard, for the rest of
//! the value. Here all keys go through these steps together. Each step asks the system for the pages of all keys, in the
//! order in which they lie in the files, and only then reads what the step before has asked for.

use crate::byte_range::ByteRange;
use crate::ids::MinishardNumber;
use crate::read::shard::ShardReader;
use crate::read::snapshot::Snapshot;

/// Pages are at least this large.
const PAGE: u64 = 4096;

/// The most that is asked for one index or one value, whatever length a broken file states.
const LONGEST: u64 = 16 << 20;

impl Snapshot {
    /// Asks the system for the pages that lookups of these keys will read, all of them at once; for batches of keys
    /// whose data is not in memory.
    ///
    /// A hint: it changes no result, and what is wrong shows in the lookup. It waits for the indexes of the keys, not for
    /// their values. Only mapped files have pages to ask for. Cost: up to three system calls a key, which buy nothing
    /// where all is in memory already; where it is not, the disk has many reads to do at a time in place of one. The
    /// pages of all keys should fit into memory together: give it some thousand keys at a time.
    ///
    /// ```no_run
    /// # fn main() -> sharddb::Result<()> {
    /// // SAFETY: nobody edits the files of this store.
    /// let snapshot = unsafe { sharddb::ShardDb::open("store")? }.snapshot();
    /// let keys = [1, 2, 3];
    /// snapshot.read_ahead(&keys);
    /// let values = snapshot.get_many(&keys);
    /// # Ok(()) }
    /// ```
    pub fn read_ahead(&self, keys: &[u64]) {
        let mut wanted: Vec<_> = keys.iter().filter_map(|key| self.wanted(*key)).collect();
        wanted.sort_unstable_by_key(|it| (it.shard.number, it.minishard));
        ask(&wanted, Wanted::entry, ShardReader::will_need_entries);
        ask(&wanted, Wanted::index, ShardReader::will_need_data);
        ask(&wanted, Wanted::rest_of_value, ShardReader::will_need_data);
    }

    /// Where a key belongs; `None` if its shard has no file or cannot be opened.
    fn wanted(&self, key: u64) -> Option<Wanted<'_>> {
        let (shard, minishard) = self.generation.route(key).ok()??;
        Some(Wanted { shard: shard.reader(), minishard, key })
    }
}

/// A key and where it belongs. The methods give what a lookup reads, step by step; `None` where it ends.
struct Wanted<'a> {
    shard: &'a ShardReader,
    minishard: MinishardNumber,
    key: u64,
}

impl Wanted<'_> {
    fn entry(&self) -> Option<ByteRange> {
        self.shard.wanted_entry(self.minishard)
    }

    fn index(&self) -> Option<ByteRange> {
        self.shard.minishard_index_range(self.minishard).ok()?
    }

    /// The value, without what shares a page with the index.
    fn rest_of_value(&self) -> Option<ByteRange> {
        let index = pages_of(self.index()?);
        let stored = self.shard.find(self.minishard, self.key).ok()??;
        let value = self.shard.value_range(stored.row).ok()?;
        let start = if (index.start..index.end).contains(&value.start) { index.end } else { value.start };
        (start < value.end).then_some(ByteRange { start, end: value.end })
    }
}

/// Asks for the range of each key; ranges whose pages touch are asked for together.
fn ask<'a>(
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

/// The pages of a range, the last one as if it were whole.
fn pages_of(range: ByteRange) -> ByteRange {
    let start = range.start - range.start % PAGE;
    let end = range.end.min(range.start.saturating_add(LONGEST));
    ByteRange { start, end: end.checked_next_multiple_of(PAGE).unwrap_or(end) }
}

/// Both ranges as one, if the second begins in the first or where it ends.
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
