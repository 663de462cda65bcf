//! 1,200 shards with random damage: each of 14,400 answers is TensorStore's, except that intact rows next to an
//! impossible one are read.
//!
//! An impossible row (out of order, or beyond 2^63 bytes) makes its minishard unreadable for TensorStore. ShardDb
//! limits the damage to the row's own key and to claims that a key is absent. A naive reader derives both answers from
//! the bytes, and they must equal TensorStore's and ShardDb's.

use sharddb_format::internal::ids::shard_number;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::common::naive::{Broken, NaiveRow, NaiveSpec};
use crate::common::{Answer, Storage, TempDir, assert_has_place, data, json, json_lines, number, text};
use serde_json::Value as Json;
use sharddb::shard::{Entry, Shard};
use sharddb::{ErrorKind, OpenOptions, Result, ShardingSpec};

/// A damaged shard, which is an entire data set, and TensorStore's answers.
struct Mutant {
    file: String,
    sharding: Json,
    bytes: Vec<u8>,
    tensorstore: BTreeMap<u64, Answer>,
    /// All ids, ascending; `None` for an error.
    tensorstore_listing: Option<Vec<u64>>,
}

impl Mutant {
    fn read(line: &Json) -> Mutant {
        let file = text(&line["file"]).to_string();
        let base = json(&data("fuzz").join(format!("{}.info", text(&line["base"]))));
        let answer = |said: &Json| match text(said) {
            "absent" => Answer::Absent,
            "error" => Answer::Error,
            sha256 => Answer::Value(sha256.to_string()),
        };
        let answers = line["keys"].as_object().unwrap();
        Mutant {
            sharding: base["sharding"].clone(),
            bytes: fs::read(data("fuzz").join(&file)).unwrap(),
            tensorstore: answers.iter().map(|(key, said)| (key.parse().unwrap(), answer(said))).collect(),
            tensorstore_listing: line["list"].as_array().map(|ids| ids.iter().map(number).collect()),
            file,
        }
    }

    fn all() -> Vec<Mutant> {
        let mutants: Vec<_> = json_lines(&data("fuzz/results.jsonl")).iter().map(Mutant::read).collect();
        assert_eq!(mutants.len(), 1200);
        mutants
    }

    fn naive(&self) -> NaiveSpec {
        NaiveSpec::of(&self.sharding)
    }

    /// The naive reader with ShardDb's rule: next to an impossible row no key is absent.
    fn lenient_answer(&self, key: u64) -> Answer {
        match self.naive().get(&self.bytes, key) {
            Ok(None) => self.strict_answer(key),
            Ok(Some(value)) => Answer::of_value(&value),
            Err(Broken) => Answer::Error,
        }
    }

    /// The naive reader with TensorStore's rule: an impossible row makes its minishard unreadable.
    fn strict_answer(&self, key: u64) -> Answer {
        let spec = self.naive();
        let minishard = spec.place(key).1;
        let spoiled = || -> Result<bool, Broken> {
            let (start, end) = spec.shard_index_entry(&self.bytes, minishard)?;
            let rows = spec.rows(&self.bytes, minishard)?;
            Ok(is_impossible(&spec, start, end) || rows.iter().any(|row| is_impossible(&spec, row.start, row.end)))
        };
        match self.naive().get(&self.bytes, key) {
            Ok(value) if spoiled() == Ok(false) => value.map_or(Answer::Absent, |value| Answer::of_value(&value)),
            _ => Answer::Error,
        }
    }

    /// All ids in storage order, with an error in place of each row or minishard that cannot be read.
    fn naive_listing(&self) -> Vec<Result<u64, Broken>> {
        let spec = self.naive();
        let mut listing = Vec::new();
        for minishard in 0..1 << spec.minishard_bits {
            if spec.shard_index_entry(&self.bytes, minishard).is_err() {
                listing.push(Err(Broken)); // one error for all entries that the shard index lacks
                break;
            }
            match spec.rows(&self.bytes, minishard) {
                Ok(rows) => listing.extend(rows.iter().map(|row| self.listed(*row))),
                Err(Broken) => listing.push(Err(Broken)),
            }
        }
        listing
    }

    /// The listing with TensorStore's rules, ascending. Any error fails the entire listing, including a duplicate id in
    /// a minishard and an empty minishard at an impossible offset. An empty file has no keys.
    fn strict_listing(&self) -> Result<Vec<u64>, Broken> {
        let spec = self.naive();
        let mut ids = Vec::new();
        for minishard in 0..1 << spec.minishard_bits {
            if self.bytes.is_empty() {
                break;
            }
            let (start, end) = spec.shard_index_entry(&self.bytes, minishard)?;
            spec.stored(&self.bytes, start, end)?;
            let rows = spec.rows(&self.bytes, minishard)?;
            let unique: BTreeSet<u64> = rows.iter().map(|row| row.id).collect();
            if unique.len() < rows.len() {
                return Err(Broken);
            }
            for row in rows {
                ids.push(self.listed(row)?);
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    fn listed(&self, row: NaiveRow) -> Result<u64, Broken> {
        self.naive().stored(&self.bytes, row.start, row.end).map(|_| row.id)
    }
}

/// Whether a range cannot be in any file: TensorStore's offsets have 63 bits.
fn is_impossible(spec: &NaiveSpec, start: u64, end: u64) -> bool {
    start > end || u128::from(end) + u128::from(spec.base()) > i64::MAX as u128
}

#[test]
fn the_naive_reader_says_what_tensorstore_says_but_for_whole_rows() {
    for mutant in Mutant::all() {
        for (key, theirs) in &mutant.tensorstore {
            assert_eq!(mutant.strict_answer(*key), *theirs, "{}: key {key}", mutant.file);
            let ours = mutant.lenient_answer(*key);
            let whole_row = *theirs == Answer::Error && matches!(ours, Answer::Value(_));
            assert!(ours == *theirs || whole_row, "{}: key {key}", mutant.file);
        }
        assert_eq!(mutant.strict_listing().ok(), mutant.tensorstore_listing, "{}", mutant.file);
    }
}

#[test]
fn every_mutant_from_a_file() {
    let scratch = TempDir::new();
    for mutant in Mutant::all() {
        let info = serde_json::json!({ "sharding": mutant.sharding });
        fs::write(scratch.path().join("info"), info.to_string()).unwrap();
        fs::write(scratch.path().join("0.shard"), &mutant.bytes).unwrap();
        for storage in Storage::ALL {
            let snapshot = storage.open(&OpenOptions::new(), scratch.path()).unwrap().snapshot();
            let place = format!("{} {storage:?}", mutant.file);
            for key in mutant.tensorstore.keys() {
                assert_answer(&mutant, *key, snapshot.get(*key), &place);
            }
            let keys: Vec<u64> = mutant.tensorstore.keys().copied().collect();
            for (key, value) in keys.iter().zip(snapshot.get_many(&keys)) {
                assert_answer(&mutant, *key, value, &place);
            }
            assert_listing(&mutant, snapshot.iter(), &place);
        }
    }
}

#[test]
fn every_mutant_from_bytes_in_hand() {
    for mutant in Mutant::all() {
        let spec = ShardingSpec::from_json(&mutant.sharding.to_string()).unwrap();
        let shard = Shard::from_bytes(spec, shard_number(0), mutant.bytes.clone());
        for key in mutant.tensorstore.keys() {
            assert_answer(&mutant, *key, shard.get(*key), &mutant.file);
        }
        assert_listing(&mutant, shard.iter(), &mutant.file);
    }
}

fn assert_answer<T: AsRef<[u8]>>(mutant: &Mutant, key: u64, result: Result<Option<T>>, place: &str) {
    if let Err(error) = &result {
        assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(key)), "{place}: {error}");
        assert_has_place(error);
    }
    assert_eq!(Answer::of(result), mutant.lenient_answer(key), "{place}: key {key}");
}

fn assert_listing<'a>(mutant: &Mutant, entries: impl Iterator<Item = Result<Entry<'a>>>, place: &str) {
    let expected = mutant.naive_listing();
    let mut listing = Vec::new();
    for entry in entries.take(expected.len() + 1) {
        if let Err(error) = &entry {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{place}: {error}");
            assert_has_place(error);
        }
        listing.push(entry.map(|entry| entry.key()).map_err(|_| Broken));
    }
    assert_eq!(listing, expected, "{place}");
}
