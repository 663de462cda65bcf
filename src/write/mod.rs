//! Builds generations: the bulk loader, the shard file writer, and what they share.

// Sorter             pairs in any order -> pairs in storage order, in bounded memory
// ShardsTarget       pairs in storage order -> shard files, on several threads
// GenerationWriter   shard files -> minishard table, info, manifest: a candidate
// MergedPairs        sorted pairs with duplicates and a merge function -> pairs in storage order
// UnionPairs         several generations -> pairs in storage order
// UpdatedPairs       a generation and sorted changes -> pairs in storage order

mod arena;
mod available_memory;
mod bands;
mod batch;
pub(crate) mod candidate;
mod duplicates;
mod generation_writer;
mod key_file;
mod large;
mod loader;
mod memory_pairs;
mod memory_split;
mod merge;
mod merge_databases;
#[cfg(test)]
mod merge_databases_tests;
mod merge_function;
#[cfg(test)]
mod merge_function_tests;
mod merged_pairs;
mod minishard_table;
#[cfg(test)]
mod model_tests;
pub(crate) mod options;
mod pair_header;
#[cfg(test)]
mod replaced_tests;
mod run;
mod run_pairs;
mod shard_file;
mod shard_writer;
mod shards;
mod sorter;
mod spool;
mod stored_pairs;
mod union_pairs;
#[cfg(test)]
mod update_tests;
mod updated_pairs;
mod updater;
mod workers;

pub use candidate::{Candidate, Content, Published};
pub use loader::BulkLoader;
pub use merge_function::{MergeFunction, Values};
pub use options::{BuildOptions, OnDuplicate};
pub use shard_file::ShardSummary;
pub use shard_writer::ShardWriter;
pub use updater::{UpdateOptions, UpdateReport, Updater};

pub(crate) use generation_writer::GenerationWriter;
pub(crate) use pair_header::{MAX_VARINT, read_varint, write_varint};
pub(crate) use shards::{ShardsTarget, Written};
pub(crate) use sorter::{Sorter, Source};

use crate::error::Result;
use crate::write::bands::Span;
use crate::write::shard_file::{PairBytes, PairHeader};

/// All pairs of a build, readable in storage order span by span.
pub(crate) trait Pairs: Sync {
    /// Returns the largest `n` such that the pairs can be split into `2^n` spans.
    fn max_span_bits(&self) -> u8;

    /// Returns the pairs of one span. Must be called at most once per span, because it may free what it returns.
    fn span(&self, span: Span) -> Result<Box<dyn SortedPairs + '_>>;
}

/// Pairs in storage order, by place and then key; each key once, unless the source keeps duplicates.
///
/// The caller must [`copy`](PairBytes::copy) the bytes of every pair that is not deleted, once and in this order.
/// [`next`](Self::next) may run ahead of `copy`. How far does not matter, but a source may keep what was not copied in
/// memory, so it should be no more than the rest of a minishard and the first pair after it.
pub(crate) trait SortedPairs: PairBytes {
    /// Returns the place and the header of the next pair.
    fn next(&mut self) -> Result<Option<(u64, PairHeader)>>;

    /// Returns the number of pairs that were dropped because of a duplicate key.
    fn dropped(&self) -> u64;
}
