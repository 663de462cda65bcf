//! Partitioned builds over a bucket: spills and parts are objects, and the publication is a generation in the bucket.
//!
//! ```text
//! PREFIX/parts-JOB/
//!   task-7-1c..                  a spill, byte for byte
//!   part-3-90../0.shard ..       the shards of a part
//!   publication-e1..             the state of a publication
//! ```
//!
//! The steps and the receipts are those of [`crate::cluster`], and so are the bytes: the local code reads the spills, writes
//! the shards and composes `info`, manifest and minishard table. This module moves bytes between the bucket and a temporary
//! local directory.
//!
//! ```text
//! module          what it has
//!
//! job             the names of the objects of a job
//! scratch         the temporary local directory
//! put_spill       a spill into the bucket
//! mirror          parts of an object at the same offsets of a sparse local file
//! build_part      sections of all spills -> shards of a part, in the bucket
//! mark            the object that records the state of a publication
//! publish_parts   shards of all parts -> a generation, which becomes current
//! copy            a shard into its generation, by the server
//! clean_parts     removing what is left of jobs
//! ```

mod build_part;
mod clean_parts;
mod copy;
mod job;
mod mark;
mod mirror;
mod publish_parts;
mod put_spill;
mod scratch;
#[cfg(test)]
mod tests;

pub use self::clean_parts::BucketCleaned;
pub use self::publish_parts::PublishedParts;
