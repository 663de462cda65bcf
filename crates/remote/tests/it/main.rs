//! Lookups in an object store without I/O: a model of a bucket performs the requests, and counts them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "tests")]

#[allow(dead_code, reason = "most of it is for tests/it")]
#[path = "../../../../tests/common/mod.rs"]
mod common;

mod batches;
mod block_stores;
mod bucket;
mod equality;
mod faults;
mod flights;
mod refresh;
mod requests;
mod scans;
mod stores;
mod tables;
