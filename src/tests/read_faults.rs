//! A read that fails is an error of the operation: it is never taken for a missing, damaged or foreign file, nothing is
//! removed because of it, and no other generation becomes current.

#![cfg(unix)]

use rustix::io::Errno;

use crate::common::TempDir;
use crate::error::{ErrorKind, Result};
use crate::fs::disk::Watch;
use crate::store::testing::id;
use crate::store::{GenerationId, Store};
use crate::verify::FindingKind;
use crate::{BuildOptions, OpenOptions, VerifyLevel};

const KEYS: u64 = 20;

const ERRORS: [Errno; 5] = [Errno::IO, Errno::ACCESS, Errno::MFILE, Errno::NFILE, Errno::STALE];

/// What a verb does to a store with the generations 1, 2 and 3; returns the number of the current generation.
type Verb = fn(&Store) -> Result<u64>;

/// The verbs, and the generations that are there after each of them.
const VERBS: [(&str, Verb, &[u64]); 11] = [
    ("gc", collects, &[2, 3]),
    ("rollback", |store| Ok(store.writer()?.rollback(None)?.get()), &[1, 2, 3]),
    ("rollback to 1", |store| Ok(store.writer()?.rollback(GenerationId::new(1).ok())?.get()), &[1, 2, 3]),
    ("discard", |store| store.writer()?.discard(id(2)).map(|()| 3), &[1, 3]),
    ("history", |store| Ok(store.history()?.pop().unwrap().get()), &[1, 2, 3]),
    ("generations", lists, &[1, 2, 3]),
    ("removable", |store| store.removable(2).map(|ids| assert_eq!(ids, [id(1)])).map(|()| 3), &[1, 2, 3]),
    ("build", |store| build(store, 4), &[1, 2, 3, 4]),
    ("update", updates, &[1, 2, 3, 4]),
    ("verify", verifies, &[1, 2, 3]),
    ("adopt", |store| Ok(store.writer()?.adopt(store.path().with_file_name("other"))?.get()), &[1, 2, 3, 4]),
];

fn collects(store: &Store) -> Result<u64> {
    let report = store.writer()?.gc(2)?;
    if let Some(failed) = report.failed.into_iter().next() {
        return Err(std::sync::Arc::try_unwrap(failed.error).unwrap());
    }
    assert_eq!((report.removed, report.in_use), (vec![id(1)], vec![]));
    Ok(3)
}

fn lists(store: &Store) -> Result<u64> {
    let generations = store.generations()?;
    assert!(generations.iter().all(|generation| generation.is_complete));
    generations
        .iter()
        .try_for_each(|generation| store.totals(generation.id).map(|totals| assert_eq!(totals.keys, KEYS)))?;
    Ok(generations.iter().find(|generation| generation.is_current).unwrap().id.get())
}

fn build(store: &Store, label: u64) -> Result<u64> {
    let mut loader = BuildOptions::new().threads(1).create(store.path())?;
    (0..KEYS).try_for_each(|key| loader.insert(key, value(label, key)))?;
    Ok(loader.finish()?.generation.get())
}

/// Gives all keys the values of the label 4.
fn updates(store: &Store) -> Result<u64> {
    let mut updater = crate::write::UpdateOptions::new().threads(1).open(store.path())?;
    (0..KEYS).try_for_each(|key| updater.put(key, value(4, key)))?;
    Ok(updater.finish()?.0.generation.get())
}

/// Also opens the store. The error is that of the first finding.
fn verifies(store: &Store) -> Result<u64> {
    let snapshot = OpenOptions::new().open(store.path())?.snapshot();
    let report = snapshot.verify(VerifyLevel::Data)?;
    if let Some(finding) = report.findings().first() {
        let is_damage = [FindingKind::InfoMismatch, FindingKind::ManifestMismatch].contains(&finding.kind());
        assert!(!is_damage && report.findings().len() == 1, "{:?}", report.findings());
        let error = finding.error();
        let reported = std::io::Error::from_raw_os_error(error.raw_os_error().unwrap());
        return Err(crate::Error::io("verify", error.path().unwrap(), reported));
    }
    Ok(3)
}

fn value(label: u64, key: u64) -> Vec<u8> {
    format!("{label}/{key}.").repeat(20).into_bytes()
}

/// Creates a store with the generations 1, 2 and 3, and beside it a generation with the values of the label 4.
fn scene() -> (TempDir, Store) {
    let directory = TempDir::in_memory();
    let store = Store::create(directory.path().join("store")).unwrap();
    (1..=3).for_each(|label| assert_eq!(build(&store, label).unwrap(), label));
    let other = Store::create(directory.path().join("elsewhere")).unwrap();
    build(&other, 4).unwrap();
    std::fs::rename(other.path().join("gen-0000000001"), directory.path().join("other")).unwrap();
    (directory, store)
}

fn numbers(store: &Store) -> Vec<u64> {
    store.generations().unwrap().iter().map(|generation| generation.id.get()).collect()
}

/// Checks that each generation is complete and has its values.
fn check_generations(store: &Store) {
    for number in &numbers(store) {
        let db = OpenOptions::new().open(store.generation_path(id(*number))).unwrap();
        assert!(db.snapshot().verify(VerifyLevel::Data).unwrap().is_clean());
        (0..KEYS).for_each(|key| assert_eq!(db.get(key).unwrap().unwrap(), value(*number, key)));
    }
}

/// Each read of each verb fails once, the first with each error, the others with one.
#[test]
fn one_failed_read_is_reported_and_changes_nothing() {
    let mut faults = 0;
    for (name, verb, left) in VERBS {
        for nth in 0.. {
            let errors = if nth == 0 { &ERRORS[..] } else { &ERRORS[nth % ERRORS.len()..][..1] };
            let failed = errors.iter().filter(|error| fails_at(name, verb, left, nth, **error)).count();
            faults += failed;
            if failed == 0 {
                assert!(nth > 3, "{name} makes {nth} reads");
                break;
            }
        }
    }
    println!("{faults} faults");
}

/// Each read of each verb fails with each error.
#[test]
#[ignore = "takes a minute"]
fn each_failed_read_is_reported_and_changes_nothing() {
    let mut faults = 0;
    for ((name, verb, left), error) in VERBS.iter().flat_map(|verb| ERRORS.map(|error| (*verb, error))) {
        faults += (0..).take_while(|nth| fails_at(name, verb, left, *nth, error)).count();
    }
    println!("{faults} faults");
}

/// Lets one read of a verb fail; returns false if the verb makes fewer reads.
fn fails_at(name: &str, verb: Verb, left: &[u64], nth: usize, error: Errno) -> bool {
    let (directory, store) = scene();
    let watch = Watch::on(directory.path());
    watch.fail_read(error.raw_os_error(), nth);
    println!("{name}: {error} at read {nth}"); // shown if it fails
    let result = verb(&store);
    let faults = watch.heal();
    match &result {
        Ok(current) => {
            assert_eq!(store.current().unwrap(), Some(id(*current)));
            assert_eq!(numbers(&store), left);
        }
        Err(reported) => {
            assert_eq!((faults, reported.kind()), (1, ErrorKind::Io), "{reported}");
            assert_eq!(reported.raw_os_error(), Some(error.raw_os_error()), "{reported}");
            assert!(reported.path().is_some_and(|path| path.starts_with(directory.path())), "{reported}");
            assert_eq!(store.current().unwrap(), Some(id(3)), "{reported}");
            // a generation whose removal has begun is no longer listed
            let found = numbers(&store);
            assert!(found == [1, 2, 3] || left.len() < 3 && found == left, "{found:?} after {reported}");
        }
    }
    check_generations(&store);
    assert!(build(&store, 5).unwrap() > 3, "the next writer works");
    faults > 0
}
