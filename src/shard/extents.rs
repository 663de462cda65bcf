//! All byte ranges that the indexes of a shard name, in order: what lies between two of them is a gap.
//!
//! A gap directly before a value is its prefix (multi-resolution mesh fragments lie so), padding, or nothing that
//! anybody knows of; whoever copies values to another shard keeps it.

use crate::byte_range::ByteRange;
use crate::error::Result;
use crate::format::checks::ChecksPlace;
use crate::shard::entries::Rows;
use crate::shard::reader::ShardReader;
use crate::shard::sections::MINISHARD_ALIGNMENT;
use crate::spec::Encoding;

/// The ends of all extents in a shard, each with the start of the gap behind it, in order.
pub(crate) struct Extents(Box<[(u64, u64)]>);

impl Extents {
    /// Reads all indexes of a shard; bad entries name nothing.
    ///
    /// Cost: 16 bytes of memory a key.
    pub(crate) fn of(shard: &ShardReader) -> Result<Extents> {
        // our gzip layout puts the values first: their minishard begins aligned behind the checks of the one before
        let align = shard.layout.is_some() && shard.spec.minishard_index_encoding() == Encoding::Gzip;
        let gap_behind_index = |end: u64| if align { end.next_multiple_of(MINISHARD_ALIGNMENT) } else { end };

        let mut ends = vec![(shard.base(), gap_behind_index(shard.base()))];
        let mut rows = Rows::default();
        loop {
            match rows.next_minishard(shard) {
                Ok(Some(minishard)) => {
                    let end = minishard.index.end + checks_len(shard, minishard.rows);
                    ends.push((end, gap_behind_index(end)));
                    while let Some(row) = rows.next_row(shard) {
                        if let Ok(ByteRange { end, .. }) = shard.value_range(row) {
                            ends.push((end, end));
                        }
                    }
                }
                Ok(None) => break,
                Err(_) => {}
            }
        }
        ends.sort_unstable();
        Ok(Extents(ends.into()))
    }

    /// Where the gap before a value begins; at the value itself if there is none.
    pub(crate) fn gap_start(&self, value: ByteRange) -> u64 {
        // an empty value ends where it starts: it is not what lies before itself
        let itself = usize::from(value.start == value.end);
        let before = self.0.partition_point(|(end, _)| *end <= value.start).saturating_sub(itself);
        let gap = before.checked_sub(1).and_then(|at| self.0.get(at)).map_or(value.start, |(_, gap)| *gap);
        gap.min(value.start)
    }
}

/// The length of the checks behind an index.
pub(crate) fn checks_len(shard: &ShardReader, rows: u64) -> u64 {
    match shard.layout {
        Some(layout) if layout.checks => ChecksPlace::total_len(rows, layout.prefixes),
        _ => 0,
    }
}
