//! A model of the loader: the expected result of a build by the documentation, and the comparison with a real build.
//!
//! Included by the unit test `model_tests` and by the fuzz target `loader`, so it uses the public interface only.

pub(crate) mod case;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sharddb::{BulkLoader, ErrorKind, OnDuplicate, OpenOptions, Published, Snapshot, VerifyLevel};

use case::{Case, How, Pair};

/// A description of a difference between the model and the loader.
pub(crate) type Difference = String;

type Outcome<T> = Result<T, Difference>;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// Builds a case with both settings in an empty directory. Compares the builds with the model and with each other.
pub(crate) fn check(case: &Case, directory: &Path) -> Outcome<()> {
    let mut files = Vec::new();
    for (name, setting) in ["first", "second"].into_iter().zip(case.settings) {
        let store = directory.join(name);
        let generation = check_build(case, setting, &store).map_err(|what| format!("{name} build: {what}"))?;
        files.push(generation.map(|generation| files_of(&generation)).transpose().map_err(in_words)?);
    }
    ensure!(files[0] == files[1], "the builds differ in {}", differing(&files[0], &files[1]));
    Ok(())
}

/// Builds with one setting and compares with the model. Returns the directory of the generation, if one was expected.
fn check_build(case: &Case, setting: (u64, usize), store: &Path) -> Outcome<Option<PathBuf>> {
    let mut loader = case.options(setting).create(store).map_err(in_words)?;
    let inserted = insert_all(case, &mut loader);
    check_published(case, inserted.and_then(|()| loader.finish()), store)
}

/// Compares the result of a build with the model. Returns the directory of the generation, if one was expected.
pub(crate) fn check_published(
    case: &Case,
    published: sharddb::Result<Published>,
    store: &Path,
) -> Outcome<Option<PathBuf>> {
    let expected = case.expected();
    let dropped = (case.pairs.len() - expected.len()) as u64;
    if matches!(case.on_duplicate, OnDuplicate::Error) && dropped > 0 {
        check_refused(case, published, store)?;
        return Ok(None);
    }
    let published = published.map_err(in_words)?;
    let left: Vec<_> = names(store).into_iter().filter(|name| name.starts_with("tmp")).collect();
    ensure!(left.is_empty(), "expected no temporary files to be left, found {left:?}");
    let found = (published.content.keys, published.content.dropped);
    ensure!(
        found == (expected.len() as u64, dropped),
        "expected {} keys and {dropped} dropped, found {found:?}",
        expected.len()
    );
    ensure!(
        case.spec.is_none_or(|spec| spec == published.content.spec),
        "expected the given specification, found {}",
        published.content.spec
    );
    let db = OpenOptions::new().load(store).map_err(in_words)?;
    let snapshot = db.snapshot();
    check_lookups(case, &expected, &snapshot)?;
    check_walk(&expected, &snapshot)?;
    let report = snapshot.verify(VerifyLevel::Data).map_err(in_words)?;
    ensure!(report.findings().is_empty(), "verification found {:?}", report.findings());
    Ok(Some(store.join(published.generation.to_string())))
}

/// Inserts all pairs of a case.
pub(crate) fn insert_all(case: &Case, loader: &mut BulkLoader) -> sharddb::Result<()> {
    case.pairs.iter().try_for_each(|pair| insert(loader, pair))
}

fn insert(loader: &mut BulkLoader, pair: &Pair) -> sharddb::Result<()> {
    let (preamble, value) = (pair.preamble(), pair.value());
    match pair.how {
        How::Slices if preamble.is_empty() => loader.insert(pair.key, &value),
        How::Slices => loader.insert_with_preamble(pair.key, &preamble, &value),
        How::Reader { piece } => {
            let mut reader = Pieces { bytes: preamble.chain(&value[..]), piece };
            loader.insert_reader(pair.key, preamble.len() as u64, value.len() as u64, &mut reader)
        }
    }
}

/// A reader that returns at most `piece` bytes per call.
struct Pieces<R> {
    bytes: R,
    piece: usize,
}

impl<R: Read> Read for Pieces<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let len = to.len().min(self.piece);
        self.bytes.read(&mut to[..len])
    }
}

/// Checks that a build with duplicate keys failed, named one of them, and left nothing of a new store.
fn check_refused(case: &Case, published: sharddb::Result<Published>, store: &Path) -> Outcome<()> {
    let mut once = BTreeSet::new();
    let again: BTreeSet<u64> = case.pairs.iter().map(|pair| pair.key).filter(|key| !once.insert(*key)).collect();
    let error = match published {
        Ok(published) => return Err(format!("expected a duplicate key to be refused, found {published:?}")),
        Err(error) => error,
    };
    let named = error.key().is_some_and(|key| again.contains(&key));
    ensure!(
        error.kind() == ErrorKind::DuplicateKey && named,
        "expected one of the duplicate keys to be named: {error}"
    );
    ensure!(!store.exists(), "expected a new store to be removed, found {:?}", names(store));
    Ok(())
}

fn check_lookups(case: &Case, expected: &BTreeMap<u64, Pair>, snapshot: &Snapshot) -> Outcome<()> {
    for (key, pair) in expected {
        let value = snapshot.get(*key).map_err(in_words)?;
        let found = value.as_ref().map(|value| value.to_vec());
        ensure!(found == Some(pair.value()), "key {key}: expected the value of {pair:?}, found {}", in_short(found));
        let preamble = snapshot.get_preamble(*key, pair.preamble_len as u64).map_err(in_words)?;
        let found = preamble.map(|preamble| preamble.to_vec());
        ensure!(
            found == Some(pair.preamble()),
            "key {key}: expected the preamble of {pair:?}, found {}",
            in_short(found)
        );
        let location = snapshot.locate(*key).map_err(in_words)?;
        let aligned = location.as_ref().is_some_and(|location| location.range.start.is_multiple_of(case.alignment));
        ensure!(aligned, "key {key}: expected a multiple of {} bytes, found {location:?}", case.alignment);
        for near in [key.wrapping_sub(1), key.wrapping_add(1), key ^ 1 << 63] {
            let found = snapshot.contains(near).map_err(in_words)?;
            ensure!(found == expected.contains_key(&near), "key {near}: expected {}, found {found}", !found);
        }
    }
    Ok(())
}

/// Checks that a walk returns each key once with its value, by shard, then minishard, then key.
fn check_walk(expected: &BTreeMap<u64, Pair>, snapshot: &Snapshot) -> Outcome<()> {
    let walked: sharddb::Result<Vec<_>> = snapshot
        .iter()
        .map(|entry| {
            let entry = entry?;
            Ok((entry.key(), entry.value()?.to_vec()))
        })
        .collect();
    let walked = walked.map_err(in_words)?;
    let storage_order = |key: &u64| -> (u64, u64, u64) {
        let location = snapshot.spec().route(*key);
        (location.shard.get(), location.minishard.get(), *key)
    };
    let mut keys: Vec<u64> = expected.keys().copied().collect();
    keys.sort_unstable_by_key(storage_order);
    ensure!(walked.iter().map(|(key, _)| key).eq(&keys), "expected a walk in storage order over {} keys", keys.len());
    for (key, value) in walked {
        ensure!(expected[&key].value() == value, "key {key}: expected another value in the walk");
    }
    let mut ranged = snapshot.range(..).map(|entry| entry.map(|entry| entry.key()));
    ensure!(
        expected.keys().all(|key| matches!(ranged.next(), Some(Ok(found)) if found == *key)),
        "expected all keys in the range"
    );
    ensure!(ranged.next().is_none(), "expected no more keys in the range");
    Ok(())
}

/// Returns the content of every file of a generation, by name.
fn files_of(generation: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    names(generation).into_iter().map(|name| fs::read(generation.join(&name)).map(|bytes| (name, bytes))).collect()
}

/// Returns the names of all files that differ.
fn differing(first: &Option<BTreeMap<String, Vec<u8>>>, second: &Option<BTreeMap<String, Vec<u8>>>) -> String {
    let (Some(first), Some(second)) = (first, second) else { return "one that failed".to_string() };
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let differing = names.into_iter().filter(|name| first.get(*name) != second.get(*name));
    differing.map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn in_words(error: impl Display) -> Difference {
    error.to_string()
}

/// Returns the length and the first bytes of a value, as text.
fn in_short(value: Option<Vec<u8>>) -> String {
    value.map_or("nothing".to_string(), |value| format!("{} bytes: {:?}", value.len(), &value[..value.len().min(16)]))
}
