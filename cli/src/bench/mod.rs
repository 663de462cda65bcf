//! The parts of `bench`: what is measured, how, and how it is shown.
//!
//! ```text
//! random           keys in random order, the same in each run
//! source           one file per key, or a store, and what a lookup is in each
//! page_cache       dropping pages, to make lookups cold
//! disk_usage       the disk space of a directory
//! measure          the measurements, and percentiles of durations
//! table            rows and columns, as Markdown
//! ```

pub(crate) mod disk_usage;
pub(crate) mod measure;
pub(crate) mod page_cache;
pub(crate) mod random;
pub(crate) mod source;
pub(crate) mod table;
