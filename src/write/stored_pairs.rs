//! The pairs of a native generation in storage order, as stored.

use std::collections::VecDeque;

use crate::byte_range::ByteRange;
use crate::error::{Error, Result};
use crate::ids::{Location, ShardNumber};
use crate::read::generation::Generation;
use crate::read::shard::{Rows, Shard, StoredPair, VerifyScope};
use crate::write::shard_file::{PairBytes, PairHeader, PieceSink};

/// The pairs of some shards of a generation. Values are not decoded; checks are compared while they are copied.
///
/// The shards must be entered in ascending order. Reads shards by positioned reads, unless they are in memory.
pub(crate) struct StoredPairs<'a> {
    generation: &'a Generation,
    /// The open shards in ascending order: those of which a pair may not be copied yet.
    shards: VecDeque<Shard>,
    /// Whether the last open shard is the current one. If not, the current one does not exist.
    is_open: bool,
    rows: Rows,
    /// The place and the key of the last pair.
    last: Option<(u64, u64)>,
    /// Bytes of the stored values so far.
    value_bytes: u64,
}

impl<'a> StoredPairs<'a> {
    /// The number of open shards that are read ahead: the reader is usually no further ahead of the copies.
    const READ_AHEAD: usize = 3;

    pub(crate) fn new(generation: &'a Generation) -> StoredPairs<'a> {
        let (shards, rows) = (VecDeque::new(), Rows::default());
        StoredPairs { generation, shards, is_open: false, rows, last: None, value_bytes: 0 }
    }

    /// Enters a shard, which may not exist. The following pairs are those of this shard.
    pub(crate) fn enter(&mut self, number: ShardNumber) -> Result<()> {
        self.rows = Rows::verifying(VerifyScope::Index);
        let shard = self.generation.open_shard_to_copy(number)?;
        self.is_open = shard.is_some();
        if let Some(shard) = shard {
            shard.reader().begin_pass();
            self.shards.push_back(shard);
            let behind = self.shards.len().checked_sub(1 + Self::READ_AHEAD).and_then(|behind| self.shards.get(behind));
            behind.iter().for_each(|shard| shard.reader().end_pass());
        }
        Ok(())
    }

    /// Returns the place and the header of the next pair of the current shard.
    ///
    /// Errors: `Corrupt` for a damaged index, or keys out of order or in the wrong place; `Io`.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, PairHeader)>> {
        let Some(shard) = self.shards.back().filter(|_| self.is_open) else { return Ok(None) };
        let reader = shard.reader();
        loop {
            if let Some(row) = self.rows.next_row(reader)
                && let Some(minishard) = self.rows.current()
            {
                let spec = self.generation.spec();
                let (place, here) =
                    (spec.packed_location(row.id), Location { shard: reader.number, minishard: minishard.number });
                if spec.location_of_hash(place) != here || self.last.is_some_and(|last| last >= (place, row.id)) {
                    let message = "expected the keys of a minishard in ascending order and in the minishard that they \
                                   hash to, found one elsewhere: salvage the database";
                    return Err(reader.at(minishard.number, Error::corrupt(message)).at_key(row.id));
                }
                self.last = Some((place, row.id));
                let pair = reader.stored_pair(&minishard.found(row))?;
                self.value_bytes += pair.value.len();
                return Ok(Some((place, StoredPairs::header(row.id, &pair))));
            }
            if self.rows.next_minishard(reader)?.is_none() {
                return Ok(None);
            }
        }
    }

    fn header(key: u64, pair: &StoredPair) -> PairHeader {
        PairHeader {
            value_check: pair.value_check,
            preamble_crc32: pair.preamble_check,
            locator: pair.value.start,
            ..PairHeader::new(key, pair.preamble_len, pair.value.len())
        }
    }

    /// Returns the bytes of the stored values of all pairs so far.
    pub(crate) fn value_bytes(&self) -> u64 {
        self.value_bytes
    }
}

impl PairBytes for StoredPairs<'_> {
    fn pieces(&mut self, header: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
        let Location { shard: number, minishard } = self.generation.spec().route(header.key);
        while self.shards.front().is_some_and(|shard| shard.number() < number) {
            self.shards.pop_front(); // pairs are copied in order, so all of this shard are copied or dropped
        }
        let shard = self.shards.front().filter(|shard| shard.number() == number);
        let shard = shard.ok_or_else(|| Error::internal("a pair belongs to a shard that is not open"))?;
        let pair = StoredPair {
            preamble_len: header.preamble_len,
            value: ByteRange { start: header.locator, end: header.locator + header.stored_len },
            value_check: header.value_check,
            preamble_check: header.preamble_crc32,
        };
        shard.reader().copy_pair(minishard, header.key, &pair, to)
    }
}
