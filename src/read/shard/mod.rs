//! One shard: maps a key to its value. `generation` maps a key to its shard.
//!
//! ```text
//! handle         the handle of applications   reader, files, value
//! mapped         the fast path                minishards, probe
//! lookup         the general path             table_file, index_cache, stored_value, prefix, named_ranges
//! verify         verification of checksums    verification
//! entries, keys  walks                        rows, entry_blocks, budget
//! ```

mod budget;
mod entries;
mod entry_blocks;
mod files;
mod handle;
mod index_cache;
mod keys;
mod lookup;
mod mapped;
mod minishards;
mod named_ranges;
mod prefix;
mod probe;
mod reader;
mod rows;
mod stored_value;
mod table_file;
mod value;
mod verification;
mod verify;

pub(crate) use budget::{IndexBudget, ValueBudget, reserve_rows};
pub use entries::{Entry, ShardEntries};
pub(crate) use entry_blocks::EntryBlocks;
pub(crate) use files::ShardFiles;
pub use handle::Shard;
pub use index_cache::CacheStats;
pub(crate) use index_cache::MinishardCache;
pub(crate) use keys::Pass;
pub use keys::ShardKeys;
pub(crate) use mapped::{MappedMinishard, prefetch_index};
pub(crate) use named_ranges::{NamedRanges, NamedRangesBuilder};
pub(crate) use probe::Probe;
pub(crate) use reader::{KnownShard, ReadOptions, ShardReader};
pub(crate) use stored_value::FoundKey;
pub(crate) use table_file::TableFile;
pub use value::{Value, ValueLocation};
pub use verification::VerifyReads;
pub(crate) use verification::WholeShardVerified;
