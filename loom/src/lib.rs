//! Readers, publishers and collectors of one store, in every order in which their calls to the system can meet.
//!
//! The protocol is the library's own code, the very files: how a reader finds and leases the current generation
//! (`store/lease.rs`), how `current` is swapped (`store/current.rs`), how a generation is collected (`store/gc.rs`).
//! The model is what they stand on: [`store::fs`] has the same functions on a disk in memory where every call is one
//! step that nothing can come between, as it is to the system; loom tries all orders of these steps. Threads stand for
//! processes here: they share nothing but the disk.
//!
//! Not modelled: crashes and syncs (the crash tests of the library replay those), and the content of a shard, which is one
//! number.

// The library's files are written for their place in it.
#![allow(dead_code, missing_docs, rustdoc::private_intra_doc_links, unused_imports)]

#[path = "../../src/error.rs"]
pub mod error;

#[path = "../../src/ids.rs"]
pub mod ids;

pub mod format {
    pub mod manifest {
        pub(crate) const FILE_NAME: &str = "manifest.json";
    }
}

pub mod store;
