//! Reads in key order, which differs from the storage order.
//!
//! ```text
//! where sorted keys come from                                                modules
//!
//! the key file of the generation                                             sorted_keys::key_file
//! a narrow range, identity hash: the indexes of the minishards that can      candidates, scan
//!   hold it, sorted
//! otherwise: all indexes, read on all cores; sorted in memory, or by runs    scan, sorted_keys::sorter
//!   in a temporary file that are merged into a temporary key file
//! ```
//!
//! `key_range` iterates over the keys of any source, `range` adds a lookup for each, and `queries` has the methods of a
//! snapshot.

mod key_range;
mod options;
mod queries;
mod range;
pub(crate) mod scan;

pub use key_range::KeyRange;
pub use options::RangeOptions;
pub use range::{Range, RangeEntry};
