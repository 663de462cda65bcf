//! All byte ranges that the indexes of a shard name, in order: what lies between two of them is a gap.
//!
//! A gap directly before a value is its prefix (multi-resolution mesh fragments lie so), padding, or nothing that
//! anybody knows of; whoever copies values to another shard keeps it. Values may share bytes or have none: those that
//! begin at one place share the gap before it, but for an empty one, which lies before the others; a value that begins
//! within another has no gap.

use crate::byte_range::ByteRange;
use crate::error::{ErrorKind, Result};
use crate::format::checks::ChecksPlace;
use crate::shard::entries::Rows;
use crate::shard::reader::ShardReader;
use crate::shard::sections::MINISHARD_ALIGNMENT;
use crate::spec::Encoding;

/// The starts of all extents in a shard, in order, each with its reach: where the gap behind it and all before it begins.
pub(crate) struct Extents(Box<[(u64, u64)]>);

impl Extents {
    /// Reads all indexes of a shard; bad entries name nothing. Errors: `Io`.
    ///
    /// Cost: 16 bytes of memory a key.
    pub(crate) fn of(shard: &ShardReader) -> Result<Extents> {
        // our gzip layout puts the values first: their minishard begins aligned behind the checks of the one before
        let align = shard.layout.is_some() && shard.spec.minishard_index_encoding() == Encoding::Gzip;
        let gap_behind_index = |end: u64| if align { end.next_multiple_of(MINISHARD_ALIGNMENT) } else { end };

        let mut extents = vec![(0, gap_behind_index(shard.base()))];
        let mut rows = Rows::default();
        loop {
            match rows.next_minishard(shard) {
                Ok(Some(minishard)) => {
                    let end =
                        minishard.index.end + ChecksPlace::total_len(minishard.rows, shard.layout.unwrap_or_default());
                    extents.push((minishard.index.start, gap_behind_index(end)));
                    while let Some(row) = rows.next_row(shard) {
                        if let Ok(ByteRange { start, end }) = shard.value_range(row) {
                            extents.push((start, end));
                        }
                    }
                }
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::Io => return Err(error), // it may be read the next time
                Err(_) => {}
            }
        }
        extents.sort_unstable();
        let mut reach = 0;
        for (_, end) in &mut extents {
            reach = reach.max(*end); // an extent may reach past those that begin behind it
            *end = reach;
        }
        Ok(Extents(extents.into()))
    }

    /// Where the gap before a value begins; at the value itself if there is none.
    pub(crate) fn gap_start(&self, value: ByteRange) -> u64 {
        let lies_before = |(start, reach): &(u64, u64)| match value.len() {
            0 => *start < value.start,
            _ => *start < value.start || (*start, *reach) == (value.start, value.start),
        };
        let before = self.0.partition_point(lies_before);
        let gap = before.checked_sub(1).and_then(|at| self.0.get(at)).map_or(value.start, |(_, reach)| *reach);
        gap.min(value.start)
    }
}
