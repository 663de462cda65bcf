//! One shard: from a key to its value, and from sorted pairs to a file. Here `format` and `storage` meet.

mod budget;
mod cache;
mod entries;
mod entry_blocks;
mod extents;
pub(crate) mod in_place;
mod minishard_lines;
pub(crate) mod minishard_pages;
mod reader;
mod sections;
mod writer;

pub(crate) use budget::{IndexBudget, ValueBudget, reserve_rows};
pub use cache::CacheStats;
pub(crate) use cache::MinishardCache;
pub use entries::{Entry, ShardEntries};
pub(crate) use entries::{Pass, ShardKeys};
pub(crate) use entry_blocks::EntryBlocks;
pub(crate) use extents::{Extents, ExtentsBuilder};
pub(crate) use in_place::{InMemory, MinishardInPlace};
pub(crate) use reader::{ReadOptions, ShardFiles, ShardReader, Stored};
pub use reader::{Shard, Value, ValueLocation};
pub use sections::ShardSummary;
pub(crate) use sections::{MINISHARD_ALIGNMENT, PairBytes, PairHeader, ShardSections, check_value_len};
pub use writer::ShardWriter;
pub(crate) use writer::duplicate_key;
