//! What `bench` is made of: what is measured, with what, and how it is shown.
//!
//! ```text
//! random           keys in no order, the same at each run
//! source           one file a key, or a store: what a lookup is
//! page_cache       what makes a lookup cold
//! disk_usage       what a directory takes
//! measure          the measurements themselves
//! latencies        many durations, and their percentiles
//! scratch          a directory that goes when it is done
//! table            rows and columns, as Markdown
//! ```

pub(crate) mod disk_usage;
pub(crate) mod latencies;
pub(crate) mod measure;
pub(crate) mod page_cache;
pub(crate) mod random;
pub(crate) mod scratch;
pub(crate) mod source;
pub(crate) mod table;
