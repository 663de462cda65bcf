//! One shard: from a key to its value. Here `format` and `storage` meet.
//!
//! ```text
//! handle         what applications hold       reader, files, value
//! mapped         the short path               minishards, probe
//! lookup         the general path             table_file, index_cache, verification, prefix, extents
//! entries        walks                        entry_blocks, budget
//! ```

mod budget;
mod entries;
mod entry_blocks;
mod extents;
mod files;
mod handle;
mod index_cache;
mod lookup;
mod mapped;
mod minishards;
mod prefix;
mod probe;
mod reader;
mod table_file;
mod value;
mod verification;

pub(crate) use budget::{IndexBudget, ValueBudget, reserve_rows};
pub use entries::{Entry, ShardEntries};
pub(crate) use entries::{Pass, ShardKeys};
pub(crate) use entry_blocks::EntryBlocks;
pub(crate) use extents::{Extents, ExtentsBuilder};
pub(crate) use files::ShardFiles;
pub use handle::Shard;
pub use index_cache::CacheStats;
pub(crate) use index_cache::MinishardCache;
pub(crate) use lookup::Stored;
pub(crate) use mapped::{MappedMinishard, prefetch_index};
pub(crate) use probe::Probe;
pub(crate) use reader::{ReadOptions, ShardReader, Stated};
pub(crate) use table_file::TableFile;
pub use value::{Value, ValueLocation};
pub use verification::VerifyReads;
pub(crate) use verification::WholeShard;
