//! `keys`: a page of keys, in the order of a range or in storage order, and where the next page begins.

use std::fmt;
use std::io::ErrorKind;
use std::ops::Bound;
use std::str::FromStr;

use serde_json::json;
use sharddb::Snapshot;
use sharddb::internal::key_range::ParsedKeyRange;
use sharddb::read::RangeOptions;
use sharddb_container::Container;

use crate::answer::Answer;
use crate::budget::Budget;
use crate::database::{Database, Pinned, Source};
use crate::problem::{Problem, Result};
use crate::request::Query;
use crate::shard_files::ShardFile;

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 10_000;

/// The memory for sorting the keys of a range. More are sorted in files.
const SORT_MEMORY: u64 = 64 << 20;

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cursor {
    /// In order: at this key or after it.
    Key(u64),
    /// In storage order: in this shard of a [generation](Pinned::name), after this number of keys.
    Stored { shard: u64, skip: usize, generation: String },
    /// In a container: after this number of keys.
    Chunk(usize),
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cursor::Key(key) => write!(f, "k{key}"),
            Cursor::Stored { shard, skip, generation } => write!(f, "s{shard:x}-{skip}-{generation}"),
            Cursor::Chunk(skip) => write!(f, "c{skip}"),
        }
    }
}

impl FromStr for Cursor {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Cursor> {
        let wrong =
            || Problem::invalid("expected the cursor that \"next\" of the page before states, found another text");
        let stored = |text: &str| {
            let mut parts = text.splitn(3, '-');
            let shard = u64::from_str_radix(parts.next()?, 16).ok()?;
            let skip = parts.next()?.parse().ok()?;
            Some(Cursor::Stored { shard, skip, generation: parts.next()?.to_string() })
        };
        let cursor = match text.split_at_checked(1) {
            Some(("k", key)) => key.parse().ok().map(Cursor::Key),
            Some(("c", skip)) => skip.parse().ok().map(Cursor::Chunk),
            Some(("s", text)) => stored(text),
            _ => None,
        };
        cursor.ok_or_else(wrong)
    }
}

/// A page.
struct Page {
    keys: Vec<u64>,
    next: Option<Cursor>,
}

/// Answers with a page of at most `limit` keys.
///
/// Errors: `invalid-input`; `generation-gone` for a cursor in storage order of another generation; those of the indexes.
pub(super) fn answer(database: &Database, query: &Query, budget: &Budget) -> Result<Answer> {
    let limit = query.get("limit").map_or(Ok(DEFAULT_LIMIT), parse_limit)?;
    let cursor = query.get("cursor").map(str::parse).transpose()?;
    let range =
        query.get("range").map(|range| range.parse::<ParsedKeyRange>().map_err(Problem::invalid)).transpose()?;
    let page = match (&database.source, range) {
        (Source::Sharded(_), Some(range)) => in_order(&database.pinned()?.snapshot, range, cursor, limit)?,
        (Source::Sharded(_), None) => stored(&*database.pinned()?, cursor, parse_place(query)?, limit)?,
        (Source::Container(open), None) => open.with(|container| chunks(container, cursor, limit))?,
        (Source::Container(_), Some(_)) => {
            return Err(Problem::unsupported("a range is for databases, found a container of another format"));
        }
    };
    let keys: Vec<String> = page.keys.iter().map(u64::to_string).collect();
    Answer::json(&json!({"keys": keys, "next": page.next.map(|next| next.to_string())}), budget)
}

fn parse_limit(text: &str) -> Result<usize> {
    let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| Problem::invalid(format!("expected a limit from 1 to {MAX_LIMIT}, found {text:?}")))
}

/// The shard and the number of its keys before the first page: the parameters `shard` (hex) and `skip`.
fn parse_place(query: &Query) -> Result<(u64, usize)> {
    let shard = query.get("shard").map_or(Some(0), |text| u64::from_str_radix(text, 16).ok());
    let skip = query.get("skip").map_or(Some(0), |text| text.parse().ok());
    let wrong = || Problem::invalid("expected a shard in hex and a number of keys to skip, found another text");
    shard.zip(skip).ok_or_else(wrong)
}

fn wrong_cursor() -> Problem {
    Problem::invalid("expected a cursor of the same request, found one of another: leave it out")
}

fn in_order(snapshot: &Snapshot, range: ParsedKeyRange, cursor: Option<Cursor>, limit: usize) -> Result<Page> {
    let (start, end) = range.bounds();
    let start = match cursor {
        None => start,
        Some(Cursor::Key(key)) if range.contains(key) => Bound::Included(key),
        Some(_) => return Err(wrong_cursor()),
    };
    let mut options = RangeOptions::new();
    options.memory(SORT_MEMORY).threads(1);
    let keys = snapshot.key_range_with((start, end), &options).take(limit + 1);
    let mut keys = keys.collect::<sharddb::Result<Vec<u64>>>()?;
    let next = if keys.len() > limit { keys.pop().map(Cursor::Key) } else { None };
    Ok(Page { keys, next })
}

/// A page in storage order, after `cursor` or else from `place`.
fn stored(pinned: &Pinned, cursor: Option<Cursor>, place: (u64, usize), limit: usize) -> Result<Page> {
    let snapshot = &pinned.snapshot;
    let (first, mut skip) = match cursor {
        None => place,
        Some(Cursor::Stored { shard, skip, generation }) if generation == pinned.name() => (shard, skip),
        Some(Cursor::Stored { .. }) => {
            return Err(Problem::gone(
                "the cursor is of another generation: begin again without it, or name its generation",
            ));
        }
        Some(_) => return Err(wrong_cursor()),
    };
    let files = ShardFile::list(snapshot).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Problem::not_found("the generation no longer exists"),
        _ => Problem::io("list", snapshot.shards_directory(), &error),
    })?;
    let mut keys = Vec::new();
    for file in files.iter().filter(|file| file.number.get() >= first) {
        let here = if file.number.get() == first { std::mem::take(&mut skip) } else { 0 };
        let Some(shard) = snapshot.shard(file.number)? else { continue };
        for (at, key) in shard.keys().enumerate().skip(here) {
            if keys.len() == limit {
                let next = Cursor::Stored { shard: file.number.get(), skip: at, generation: pinned.name().to_string() };
                return Ok(Page { keys, next: Some(next) });
            }
            keys.push(key?);
        }
    }
    Ok(Page { keys, next: None })
}

fn chunks(container: &dyn Container, cursor: Option<Cursor>, limit: usize) -> Result<Page> {
    let skip = match cursor {
        None => 0,
        Some(Cursor::Chunk(skip)) => skip,
        Some(_) => return Err(wrong_cursor()),
    };
    let mut keys = container.keys().skip(skip).take(limit + 1).collect::<sharddb::Result<Vec<u64>>>()?;
    let has_more = keys.len() > limit;
    keys.truncate(limit);
    Ok(Page { keys, next: has_more.then(|| Cursor::Chunk(skip + limit)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_back() {
        let stored = |generation: &str| Cursor::Stored { shard: 0x3f, skip: 12, generation: generation.to_string() };
        for cursor in [Cursor::Key(u64::MAX), stored("gen-0000000007-1c291ca3"), stored(""), Cursor::Chunk(5)] {
            assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }
        for text in ["", "k", "x1", "s1", "s1-2", "sg-1-", "s1-g-3", "c-1", "é"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn limits_are_bounded() {
        assert_eq!(parse_limit("10000").unwrap(), 10_000);
        for text in ["0", "10001", "-1", "", "x"] {
            assert!(parse_limit(text).is_err(), "{text}");
        }
    }
}
