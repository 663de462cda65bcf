//! All ways to walk through a data set return the same pairs and errors in the same order, whatever is wrong with it.
//! A walk and the lookups during it agree.

use sharddb_format::internal::ids::shard_number;
use std::fs;
use std::ops::ControlFlow;

use crate::common::{Storage, TempDir, name, sets};
use sharddb::shard::Entry;
use sharddb::spec::Encoding;
use sharddb::{BuildOptions, OpenOptions, Result, ShardingSpec, Snapshot, VerifyReads};

/// The pairs and errors of a walk, in order.
type Told = Vec<Result<(u64, Vec<u8>), String>>;

fn tell(entry: Result<Entry<'_>>) -> Result<(u64, Vec<u8>), String> {
    let pair = entry.and_then(|entry| Ok((entry.key(), entry.value()?.to_vec())));
    pair.map_err(|error| error.to_string())
}

fn by_iter(snapshot: &Snapshot) -> Told {
    snapshot.iter().map(tell).collect()
}

fn by_scan(snapshot: &Snapshot) -> Told {
    let mut told = Told::new();
    let end = snapshot.scan(|pair| {
        told.push(pair.map(|(key, value)| (key, value.to_vec())).map_err(|error| error.to_string()));
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(end, ControlFlow::Continue(()));
    told
}

fn by_shards(snapshot: &Snapshot) -> Told {
    let of_shard = |shard: Result<sharddb::shard::Shard>| match shard {
        Ok(shard) => shard.iter().map(tell).collect(),
        Err(error) => vec![Err(error.to_string())],
    };
    snapshot.shards().flat_map(of_shard).collect()
}

fn by_pairs(snapshot: &Snapshot) -> Told {
    let pair = |pair: Result<(u64, sharddb::OwnedValue)>| {
        pair.map(|(key, value)| (key, value.to_vec())).map_err(|error| error.to_string())
    };
    snapshot.pairs().map(pair).collect()
}

/// Keys by iteration: an entry whose value cannot be decoded still has its key.
fn keys_by_iter(snapshot: &Snapshot) -> Vec<Result<u64, String>> {
    snapshot.iter().map(|entry| entry.map(|entry| entry.key()).map_err(|error| error.to_string())).collect()
}

fn all_ways_agree(snapshot: &Snapshot, place: &str) {
    // the walk opens shards itself first, and uses those of the snapshot afterwards
    let told = by_scan(snapshot);
    let keys: Vec<_> = snapshot.keys().map(|key| key.map_err(|error| error.to_string())).collect();
    assert_eq!(by_shards(snapshot), told, "{place}");
    assert_eq!(by_pairs(snapshot), told, "{place}");
    assert_eq!(by_iter(snapshot), told, "{place}");
    assert_eq!(keys_by_iter(snapshot), keys, "{place}");
    assert_eq!(by_scan(snapshot), told, "{place}: held");
    assert_eq!(by_shards(snapshot), told, "{place}: held");
}

#[test]
fn of_broken_and_odd_sets() {
    for directory in sets("corrupt") {
        for storage in Storage::ALL {
            for verify in [VerifyReads::Never, VerifyReads::Once, VerifyReads::Always] {
                let mut options = OpenOptions::new();
                options.max_value_bytes(2 << 20).max_index_bytes(2 << 20).verify_reads(verify);
                let Ok(db) = storage.open(&options, &directory) else { continue };
                all_ways_agree(&db.snapshot(), &format!("{} {storage:?}", name(&directory)));
            }
        }
    }
}

fn value_of(key: u64) -> Vec<u8> {
    // some are longer than one read-ahead
    let len = if key.is_multiple_of(500) { 300_000 } else { usize::try_from(key % 700).unwrap() };
    key.to_le_bytes().repeat(len / 8 + 1)
}

fn sets_of_ours() -> Vec<(TempDir, String)> {
    let mut sets = Vec::new();
    for index in [Encoding::Raw, Encoding::Gzip] {
        for data in [Encoding::Raw, Encoding::Gzip] {
            for minishard_bits in [0, 5, 9] {
                let spec =
                    ShardingSpec::new(sharddb::spec::HashFunction::MurmurHash3X86_128, 0, minishard_bits, 2).unwrap();
                let spec = spec.with_minishard_index_encoding(index).with_data_encoding(data);
                let scratch = TempDir::new();
                let mut loader = BuildOptions::new().spec(spec).create(scratch.path()).unwrap();
                (0..2000).for_each(|key| loader.insert(key, value_of(key)).unwrap());
                loader.finish().unwrap();
                sets.push((scratch, spec.to_string()));
            }
        }
    }
    sets
}

#[test]
fn of_every_encoding_and_size_of_minishards() {
    for (store, place) in sets_of_ours() {
        for storage in Storage::ALL {
            for options in [&mut OpenOptions::new(), OpenOptions::new().verify_reads(VerifyReads::Always).max_maps(1)] {
                let snapshot = storage.open(options, store.path()).unwrap().snapshot();
                all_ways_agree(&snapshot, &place);
                let mut told: Vec<_> = by_iter(&snapshot).into_iter().map(Result::unwrap).collect();
                told.sort();
                assert!(told.into_iter().eq((0..2000).map(|key| (key, value_of(key)))), "{place} {storage:?}");
            }
        }
    }
}

/// An error that recurs at each read of a shard must not make a walk endless.
#[test]
fn every_walk_ends_after_a_shard_index_that_fails_its_check() {
    let (store, _) = sets_of_ours().remove(1);
    let shard = store.path().join("gen-0000000001/0.shard");
    let mut bytes = fs::read(&shard).unwrap();
    bytes[0] ^= 1;
    fs::remove_file(&shard).unwrap(); // the file is read-only
    fs::write(&shard, bytes).unwrap();
    for storage in Storage::ALL {
        let snapshot =
            storage.open(OpenOptions::new().verify_reads(VerifyReads::Always), store.path()).unwrap().snapshot();
        let of_shard = snapshot.shard(shard_number(0)).unwrap().unwrap();
        assert_eq!(of_shard.iter().take(10).filter(Result::is_err).count(), 1, "{storage:?}");
        assert_eq!(snapshot.iter().take(2000).filter(Result::is_err).count(), 1, "{storage:?}");
        assert_eq!(snapshot.keys().take(2000).filter(Result::is_err).count(), 1, "{storage:?}");
        let mut errors = 0;
        _ = snapshot.scan(|pair| {
            errors += u32::from(pair.is_err());
            if errors == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(errors, 1, "{storage:?}");
    }
}

#[test]
fn a_scan_ends_where_it_is_broken() {
    let (store, _) = sets_of_ours().remove(0);
    let snapshot = Storage::Mapped.open(&OpenOptions::new(), store.path()).unwrap().snapshot();
    let mut met = 0;
    let end = snapshot.scan(|_| {
        met += 1;
        if met == 7 { ControlFlow::Break("enough") } else { ControlFlow::Continue(()) }
    });
    assert_eq!((end, met), (ControlFlow::Break("enough"), 7));
}

#[test]
fn several_scans_and_lookups_go_on_at_once() {
    let (store, _) = sets_of_ours().remove(1);
    for storage in Storage::ALL {
        let snapshot = storage.open(&OpenOptions::new(), store.path()).unwrap().snapshot();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for pair in by_scan(&snapshot) {
                        let (key, value) = pair.unwrap();
                        assert_eq!(snapshot.get(key).unwrap().unwrap(), value, "{storage:?}");
                    }
                });
            }
        });
    }
}
