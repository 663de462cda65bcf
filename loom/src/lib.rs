//! Readers, publishers and collectors of one store, in every possible order of their system calls.
//!
//! The protocol is the library's own code, compiled from its files: how a reader finds and leases the current
//! generation (`src/store/lease.rs`), how `current` is swapped (`src/store/current.rs`), how a generation is collected
//! (`src/store/gc.rs`). The layer below is a model: [`fs`] has the same functions on a disk in memory, in which every
//! system call is one atomic step, and loom tries all orders of these steps. Threads stand for processes here: they
//! share nothing but the disk.
//!
//! Not modelled: crashes and syncs (the crash tests of the library cover those), and the content of a shard, which is a
//! single number.

// The library's files expect the module structure of the library.
#![allow(dead_code, missing_docs, rustdoc::private_intra_doc_links, unused_imports)]

use sharddb_format::internal as format;
pub use sharddb_format::internal::{error, ids};

pub mod fs;

pub mod store;

pub mod threads;
