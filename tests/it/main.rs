//! The integration tests, as one program, which compiles and links once. Its tests are threads of one process, so a
//! test must not change or exhaust a resource of the process; it starts a child for that (`common::children`).
//!
//! The tests next to this directory have processes of their own: `bounds` exhausts maps and descriptors, `concurrency`
//! counts them, and `fork` forks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a failed expectation fails the test, and cut numbers are pseudo-random"
)]

mod amplification;
mod api;
mod batches;
mod bulk;
mod candidate;
#[allow(dead_code, reason = "some of it is for the tests next to this directory")]
#[path = "../common/mod.rs"]
mod common;
mod diff;
mod every_byte;
#[cfg(unix)]
mod hostile_store;
mod interop;
mod iter;
mod mixed_files;
mod oracle_corrupt;
mod oracle_fuzz;
mod oracle_public;
mod ordered;
#[path = "../common/peak.rs"]
mod peak;
mod preambles;
mod reader_model;
mod refresh;
mod reuse;
mod salvage;
mod sequences;
mod slices;
mod store_v1;
mod synthesis;
#[cfg(target_os = "linux")]
mod system_calls;
mod verify;
mod verify_reads;
mod volume;
mod watch;

/// Counts the memory of each thread, for the tests that bound it.
#[global_allocator]
static ALLOCATOR: peak::PeakAlloc = peak::PeakAlloc;
