//! One shard: from a key to its value, and from sorted pairs to a file. Here `format` and `storage` meet.
//!
//! ```text
//! handle         what applications hold       reader, files, value
//! mapped         the short path               minishards, probe
//! lookup         the general path             table_file, index_cache, verification, prefix, extents
//! entries        walks                        entry_blocks, budget
//! writer         writing                      sections
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
mod sections;
mod table_file;
mod value;
mod verification;
mod writer;

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
pub use sections::ShardSummary;
pub(crate) use sections::{MINISHARD_ALIGNMENT, PairBytes, PairHeader, ShardSections, check_value_len};
pub(crate) use table_file::TableFile;
pub use value::{Value, ValueLocation};
pub use verification::VerifyReads;
pub(crate) use verification::WholeShard;
pub use writer::ShardWriter;
pub(crate) use writer::duplicate_key;
