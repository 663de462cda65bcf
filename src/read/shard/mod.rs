//! One shard: maps a key to its value. `generation` maps a key to its shard.
//!
//! ```text
//! module         what it has                  its parts
//!
//! handle         the handle of applications   reader, files, value
//! fast_path      the fast path                minishard_map, lookup
//! one_read       by one positioned read
//! lookup         the general path             places, table_file, index_cache, stored_value, preamble, named_ranges
//! verify         verification of checksums    verification
//! whole_file     a file against its manifest
//! entries, keys  walks                        rows, entry_blocks, walk_budget
//! stored_pair    copies of pairs as stored
//! ```

mod entries;
mod entry_blocks;
mod fast_path;
mod files;
mod handle;
mod index_cache;
mod keys;
mod lookup;
mod minishard_map;
mod named_ranges;
mod one_read;
mod places;
mod preamble;
mod reader;
mod rows;
mod stored_pair;
mod stored_value;
mod table_file;
mod value;
mod verification;
mod verify;
mod walk_budget;
mod whole_file;

pub use entries::{Entry, ShardEntries};
pub(crate) use entry_blocks::{ALL_MINISHARDS, EntryBlocks};
pub(crate) use fast_path::{FastMinishard, Probe, prefetch_index};
pub(crate) use files::ShardFiles;
pub use handle::Shard;
pub use index_cache::CacheStats;
pub(crate) use index_cache::MinishardCache;
pub(crate) use keys::Pass;
pub use keys::ShardKeys;
pub(crate) use named_ranges::{NamedRanges, NamedRangesBuilder};
pub(crate) use one_read::{MOST_AT_ONCE, ShortMinishard};
pub(crate) use reader::{KnownShard, ReadOptions, ShardReader};
pub(crate) use rows::Rows;
pub(crate) use stored_pair::StoredPair;
pub(crate) use stored_value::FoundKey;
pub(crate) use table_file::{TableFile, TableSection};
pub(crate) use value::as_bytes;
pub use value::{Value, ValueLocation, value_location, value_of};
pub use verification::VerifyReads;
pub(crate) use verification::{VerifyScope, WholeShardVerified};
pub(crate) use walk_budget::{IndexBudget, ValueBudget, check_rows, most_rows, reserve_rows};
pub(crate) use whole_file::Summed;
