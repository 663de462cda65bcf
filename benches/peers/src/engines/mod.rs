//! The engines, one a file, each tuned as its own documentation advises.

pub mod cdb64;
pub mod files;
pub mod hashbrown;
pub mod lmdb;
pub mod model;
pub mod redb;
pub mod sharddb;
pub mod sqlite;

use crate::engine::Peer;

/// The one that all are compared to.
pub const REFERENCE: &str = lmdb::PEER.name;

/// All engines, in the order of the report.
pub static PEERS: [Peer; 9] = [
    sharddb::PEER,
    sharddb::VERIFYING,
    sharddb::UNCHECKED,
    lmdb::PEER,
    redb::PEER,
    cdb64::PEER,
    sqlite::PEER,
    hashbrown::PEER,
    files::PEER,
];
