//! Minishards that nothing leads to any more, found by the check behind their index.
//!
//! ```text
//! raw index    at a multiple of 8; its first word is an id, whose hash tells shard and minishard; of whatever length
//!              n x 24 the sum of these and the bytes is the word behind them, that is it
//! gzip index   one member; the same, with the member's own length
//! ```

use crate::byte_range::ByteRange;
use crate::format::checks;
use crate::format::gzip;
use crate::format::layout::MINISHARD_ALIGNMENT;
use crate::format::minishard_index::{ROW_LEN, RawIndex};
use crate::format::spec::Encoding;
use crate::ids::{Location, MinishardNumber};
use crate::read::shard::ShardReader;

/// Lengths that are tried in one gap for each of its bytes, so that the time is linear in the gap; an index takes a try
/// for each of its rows of 24 bytes.
const TRIES_PER_BYTE: u64 = 4;

/// Lengths that are tried in one gap: seconds at most, also where there is nothing to find.
const MAX_TRIES: u64 = 1 << 26;

/// Bytes that are inflated in one gap for each of its bytes: what deflate can make of them, and some in vain.
const INFLATED_PER_BYTE: u64 = 2048;

/// A larger gap is not searched.
const MAX_GAP: u64 = 1 << 30;

/// How the header of a gzip index of ours begins.
const GZIP_HEADER: &[u8] = &[0x1f, 0x8b, 8, 0];

/// The minishards whose indexes lie in a gap, with the places of these.
pub(super) fn minishards(shard: &ShardReader, gap: ByteRange, cap: u64) -> Vec<(MinishardNumber, ByteRange)> {
    if gap.len() > MAX_GAP {
        return Vec::new();
    }
    let Ok(bytes) = shard.read(gap) else { return Vec::new() }; // nothing there can be proved
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
                len // the values behind it are passed quickly: they begin with no id of ours
            }
            None => MINISHARD_ALIGNMENT,
        };
        at = at.next_multiple_of(MINISHARD_ALIGNMENT);
    }
    found
}

/// The minishard whose raw index `bytes` begin with, and the length of that.
fn raw_index(shard: &ShardReader, bytes: &[u8], tries: &mut u64) -> Option<(MinishardNumber, u64)> {
    let location = location(shard, bytes)?;
    let (mut sum, mut id) = (checks::index_hasher(location), 0u64);
    let row_len = usize::try_from(ROW_LEN).ok()?;
    let (deltas, _) = bytes.as_chunks();
    for ((number, row), delta) in bytes.chunks_exact(row_len).enumerate().zip(deltas) {
        *tries = tries.checked_sub(1)?;
        // of an index with so many rows, this is the next id: ids ascend, and all are of one minishard
        let next = id.checked_add(u64::from_le_bytes(*delta)).filter(|next| number == 0 || *next > id)?;
        if shard.spec.locate(next) != location {
            return None;
        }
        id = next;
        sum.update(row);
        let len = (number + 1) * row_len;
        if is_check(sum.clone().finalize(), bytes.get(len..)?) {
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

/// The minishard whose gzip index `bytes` begin with, and the length of that.
fn gzip_index(shard: &ShardReader, bytes: &[u8], cap: u64, work: &mut u64) -> Option<(MinishardNumber, usize)> {
    let len = gzip::member_len(bytes, cap, work).ok()?;
    let (member, behind) = bytes.split_at_checked(len)?;
    let decoded = gzip::decode(member, cap).ok()?;
    RawIndex::view(&decoded).ok()?;
    let location = location(shard, &decoded)?;
    is_check(checks::of_index(location, member), behind).then_some((location.minishard, len))
}

/// Where the minishard of an index belongs by its first id, if that is in this shard.
fn location(shard: &ShardReader, index: &[u8]) -> Option<Location> {
    let first = index.first_chunk().map(|id| u64::from_le_bytes(*id))?;
    Some(shard.spec.locate(first)).filter(|location| location.shard == shard.number)
}

fn is_check(sum: u32, behind: &[u8]) -> bool {
    behind.first_chunk() == Some(&sum.to_le_bytes())
}
