//! Finds lost minishards, which no shard index entry leads to, by the check after their index.
//!
//! ```text
//! raw index    begins at a multiple of 8; its first u64 is an id, whose hash is the candidate shard and minishard;
//!              its length is the n x 24 for which the CRC-32 of shard, minishard and bytes equals the u32 after them
//! gzip index   one gzip member, whose length is known; its decoded first u64 and its CRC-32 are used likewise
//! ```

use crate::byte_range::ByteRange;
use crate::format::checks;
use crate::format::gzip;
use crate::format::layout::MINISHARD_ALIGNMENT;
use crate::format::minishard_index::{IndexView, ROW_LEN};
use crate::format::spec::Encoding;
use crate::ids::{Location, MinishardNumber};
use crate::read::shard::ShardReader;

/// Upper bound on the lengths tried in a gap, per byte of it, so that the time is linear. An index takes one try per
/// row of 24 bytes.
const TRIES_PER_BYTE: u64 = 4;

/// Upper bound on the lengths tried in a gap of any length. Limits a search without result to seconds.
const MAX_TRIES: u64 = 1 << 26;

/// Upper bound on the bytes inflated in a gap, per byte of it: twice the greatest ratio of deflate, so that failed
/// attempts leave room for the indexes.
const INFLATED_PER_BYTE: u64 = 2048;

/// Length in bytes of the largest gap that is searched.
const MAX_GAP: u64 = 1 << 30;

/// First bytes of a gzip index that ShardDb wrote: magic number, deflate, no flags.
const GZIP_HEADER: &[u8] = &[0x1f, 0x8b, 8, 0];

/// Returns the minishards whose indexes are in a gap, with the ranges of the indexes. Cost: linear in the gap's length.
pub(super) fn minishards(shard: &ShardReader, gap: ByteRange, cap: u64) -> Vec<(MinishardNumber, ByteRange)> {
    if gap.len() > MAX_GAP {
        return Vec::new();
    }
    let Ok(bytes) = shard.read(gap) else { return Vec::new() }; // unreadable bytes prove nothing
    match shard.spec.minishard_index_encoding() {
        Encoding::Raw => raw(shard, gap.start, &bytes),
        Encoding::Gzip => gzip(shard, gap.start, &bytes, cap),
    }
}

fn raw(shard: &ShardReader, gap_start: u64, bytes: &[u8]) -> Vec<(MinishardNumber, ByteRange)> {
    let mut found = Vec::new();
    let mut tries = MAX_TRIES.min((bytes.len() as u64).saturating_mul(TRIES_PER_BYTE));
    let mut at = gap_start.next_multiple_of(MINISHARD_ALIGNMENT) - gap_start;
    while tries > 0
        && let Some(rest) = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).filter(|rest| !rest.is_empty())
    {
        let start = gap_start + at;
        at += match raw_index(shard, rest, &mut tries) {
            Some((number, len)) => {
                found.push((number, ByteRange { start, end: start + len }));
                len // values after it cost little: a first word that is not an id of this shard ends the attempt
            }
            None => MINISHARD_ALIGNMENT,
        };
        at = at.next_multiple_of(MINISHARD_ALIGNMENT);
    }
    found
}

/// Returns the minishard and the length of the raw index at the start of `bytes`.
fn raw_index(shard: &ShardReader, bytes: &[u8], tries: &mut u64) -> Option<(MinishardNumber, u64)> {
    let location = location(shard, bytes)?;
    let (mut crc32, mut id) = (checks::index_hasher(location), 0u64);
    let row_len = usize::try_from(ROW_LEN).ok()?;
    let (deltas, _) = bytes.as_chunks();
    for ((number, row), delta) in bytes.chunks_exact(row_len).enumerate().zip(deltas) {
        *tries = tries.checked_sub(1)?;
        // if the index has this row, this is its id: ids ascend, and all belong to one minishard
        let next = id.checked_add(u64::from_le_bytes(*delta)).filter(|next| number == 0 || *next > id)?;
        if shard.spec.route(next) != location {
            return None;
        }
        id = next;
        crc32.update(row);
        let len = (number + 1) * row_len;
        if is_check(crc32.clone().finalize(), bytes.get(len..)?) {
            return Some((location.minishard, len as u64));
        }
    }
    None
}

fn gzip(shard: &ShardReader, gap_start: u64, bytes: &[u8], cap: u64) -> Vec<(MinishardNumber, ByteRange)> {
    let mut found = Vec::new();
    let (mut at, mut work) = (0, 0);
    let most = (bytes.len() as u64).saturating_mul(INFLATED_PER_BYTE);
    while work <= most
        && let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty())
    {
        let Some(next) = rest.windows(GZIP_HEADER.len()).position(|window| window == GZIP_HEADER) else { break };
        at += next;
        let member = bytes.get(at..).unwrap_or_default();
        at += match gzip_index(shard, member, cap, &mut work) {
            Some((number, len)) => {
                let start = gap_start + at as u64;
                found.push((number, ByteRange { start, end: start + len as u64 }));
                len
            }
            None => 1,
        };
    }
    found
}

/// Returns the minishard and the length of the gzip index at the start of `bytes`.
fn gzip_index(shard: &ShardReader, bytes: &[u8], cap: u64, work: &mut u64) -> Option<(MinishardNumber, usize)> {
    let len = gzip::member_len(bytes, cap, work).ok()?;
    let (member, after) = bytes.split_at_checked(len)?;
    let decoded = gzip::decode(member, cap).ok()?;
    IndexView::view(&decoded).ok()?;
    let location = location(shard, &decoded)?;
    is_check(checks::compute_index_check(location, member), after).then_some((location.minishard, len))
}

/// Returns the minishard to which the first id of a decoded index hashes, if it is in this shard.
fn location(shard: &ShardReader, index: &[u8]) -> Option<Location> {
    let first = index.first_chunk().map(|id| u64::from_le_bytes(*id))?;
    Some(shard.spec.route(first)).filter(|location| location.shard == shard.number)
}

/// Returns whether `after`, the bytes after an index, begin with this check.
fn is_check(check: u32, after: &[u8]) -> bool {
    after.first_chunk() == Some(&check.to_le_bytes())
}
