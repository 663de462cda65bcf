//! The engines, one per file, each tuned as its documentation advises.

pub mod cdb64;
pub mod files;
pub mod hashbrown;
pub mod limit;
pub mod lmdb;
pub mod model;
pub mod redb;
pub mod sharddb;
pub mod sqlite;

use crate::engine::Peer;

/// The engine that all others are compared with.
pub const REFERENCE: &str = lmdb::PEER.name;

/// All engines, in the order of the report.
pub static PEERS: &[Peer] = &[
    sharddb::PEER,
    sharddb::NEVER,
    sharddb::ALWAYS,
    sharddb::OPEN,
    sharddb::LOADED,
    sharddb::READING_AHEAD,
    sharddb::UNCHECKED,
    lmdb::PEER,
    redb::PEER,
    cdb64::PEER,
    sqlite::PEER,
    hashbrown::PEER,
    files::PEER,
    limit::MAPPED,
    limit::PREAD,
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::model::Model;
    use super::*;
    use crate::data::{DataSet, Sampler};
    use crate::input::{Input, Order};
    use crate::reader::head;
    use crate::slices::{AnyReader, KINDS};

    /// Asserts that every readable engine, loaded in this order, answers like the model.
    fn all_agree(set: &str, order: Order) {
        let data: DataSet = set.parse().unwrap();
        for peer in PEERS.iter().filter(|peer| (peer.can_hold)(&data)) {
            let directory = scratch(&format!("{set}-{order:?}-{}", peer.name));
            (peer.load)(&directory, &Input::new(data, order)).unwrap();
            let Some(open) = peer.open else {
                fs::remove_dir_all(directory).unwrap();
                continue;
            };
            let engine = open(&directory).unwrap();

            let mut sampler = Sampler::new(data);
            for (kind, draw) in KINDS {
                let slice = draw(&mut sampler, 3000);
                let (expected, mut sum) = (Model::new(data).run(&slice).unwrap(), 0);
                engine.read(&mut |reader| reader.run(&slice).map(|found| sum = found)).unwrap();
                assert_eq!(sum, expected, "{} {kind}", peer.name);
            }

            let (mut value, present, absent) = (Vec::new(), data.key(7), data.key(data.keys));
            data.value_into(present, &mut value);
            assert_eq!(engine.request(present).unwrap(), Some(head(&value)), "{}", peer.name);
            assert_eq!(engine.request(absent).unwrap(), None, "{}", peer.name);
            drop(engine);
            fs::remove_dir_all(directory).unwrap();
        }
    }

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("sharddb-peers-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn all_agree_on_short_values() {
        all_agree("2kx8", Order::Any);
    }

    /// Values longer than a page of the page-based engines, in ascending order.
    #[test]
    fn all_agree_on_long_values() {
        all_agree("1kx5000", Order::Ascending);
    }

    #[test]
    fn all_agree_on_values_of_many_lengths() {
        all_agree("2kxlognormal", Order::Any);
    }
}
