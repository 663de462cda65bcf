//! A candidate is a complete generation that no reader of the store finds before it is published, and that leaves no
//! files behind if it is not published.

use crate::common::generations::{self as generation, id, store_of};
use crate::common::{self, Storage, TempDir};
use sharddb::{BulkLoader, Candidate, ErrorKind, ShardDb, Store, VerifyLevel};

/// A candidate with a label, in a store.
fn candidate(store: &TempDir, label: u64) -> Candidate {
    let mut loader = generation::options(label).create(store.path()).unwrap();
    generation::insert_all(&mut loader, label);
    loader.finish_unpublished().unwrap()
}

#[expect(unsafe_code, reason = "mapping needs the promise")]
fn open(storage: Storage, candidate: &Candidate) -> ShardDb {
    match storage {
        // SAFETY: no test edits the files of this store.
        Storage::Mapped => unsafe { ShardDb::open_mapped(candidate.path()) }.unwrap(),
        Storage::Positioned => ShardDb::open(candidate.path()).unwrap(),
        Storage::Loaded => ShardDb::load(candidate.path()).unwrap(),
    }
}

#[test]
fn is_validated_before_any_reader_finds_it() {
    let store = TempDir::new();
    store_of(store.path(), 1);
    let db = ShardDb::open(store.path()).unwrap();
    let candidate = candidate(&store, 2);
    assert!(candidate.verify(VerifyLevel::Data).unwrap().is_clean());
    generation::check(&ShardDb::open(candidate.path()).unwrap().snapshot(), 2);
    assert_eq!(db.refresh().unwrap(), None);
    assert_eq!(Store::open(store.path()).unwrap().history().unwrap(), [id(1)]);
    let keys = candidate.content().keys;
    let published = candidate.publish().unwrap();
    assert_eq!((published.generation, published.content.keys), (id(2), keys));
    assert_eq!(db.refresh().unwrap(), Some(id(2)));
    generation::check(&db.snapshot(), 2);
}

/// Publishing renames the directory while a database has it open.
#[test]
fn what_was_opened_before_publishing_is_read_after_it() {
    for storage in Storage::ALL {
        let store = TempDir::new();
        let candidate = candidate(&store, 3);
        let db = open(storage, &candidate);
        let published = candidate.publish().unwrap();
        generation::check_batch(&db.snapshot(), 3);
        generation::check_iteration(&db.snapshot(), 3);
        let writer = Store::open(store.path()).unwrap().writer().unwrap();
        assert!(writer.gc(0).unwrap().removed.is_empty(), "{} is current", published.generation);
    }
}

/// A shard that cannot be opened is a finding, and no reason not to verify the others.
#[test]
fn the_damage_of_a_candidate_is_a_finding() {
    let store = TempDir::new();
    let candidate = candidate(&store, 4);
    let shards = common::directory_bytes(candidate.path()).into_keys().filter(|name| name.ends_with(".shard"));
    let shard = candidate.path().join(shards.min().unwrap());
    std::fs::remove_file(&shard).unwrap();
    let report = candidate.verify(VerifyLevel::Data).unwrap();
    assert!(report.findings().iter().any(|finding| finding.path() == Some(&*shard)), "{report}");
    assert_eq!(ShardDb::open(candidate.path()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn dropped_it_is_removed_and_the_next_writer_may_begin() {
    let store = TempDir::new();
    let stored = store_of(store.path(), 1);
    let rejected = candidate(&store, 2);
    assert_eq!(stored.writer().unwrap_err().kind(), ErrorKind::Locked);
    let directory = rejected.path().to_path_buf();
    assert!(directory.join("manifest.json").exists());
    drop(rejected);
    assert!(!directory.exists());
    assert_eq!(stored.generations().unwrap().len(), 1);
    generation::check(&ShardDb::open(store.path()).unwrap().snapshot(), 1);
    stored.writer().unwrap();
}

/// A store that was created for a candidate is removed with it.
#[test]
fn a_rejected_first_build_leaves_no_store() {
    let parent = TempDir::new();
    let path = parent.path().join("store");
    let mut loader = BulkLoader::create(&path).unwrap();
    loader.insert(1, b"one").unwrap();
    drop(loader.finish_unpublished().unwrap());
    assert!(!path.exists());
}

#[test]
fn adoption_has_a_candidate_too() {
    let (source, store) = (TempDir::new(), TempDir::new());
    store_of(source.path(), 5);
    let writer = Store::create(store.path()).unwrap().writer().unwrap();
    let candidate = writer.adopt_unpublished(source.path().join("current")).unwrap();
    assert!(candidate.verify(VerifyLevel::Data).unwrap().is_clean());
    assert_eq!(candidate.publish().unwrap().generation, id(1));
    generation::check(&ShardDb::open(store.path()).unwrap().snapshot(), 5);
}
