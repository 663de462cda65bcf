//! Any sequence of builds, updates, merges, reshards, applied differences and rollbacks of a store is that of a
//! `BTreeMap` that does the same; updates, merges and reshards have the bytes of a full build.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use sharddb::diff::{ChangeKind, Diff};
use sharddb::spec::{Encoding, HashFunction};
use sharddb::write::UpdateOptions;
use sharddb::{BuildOptions, OnDuplicate, ShardDb, ShardingSpec, Snapshot, Store, VerifyLevel};

use crate::common::TempDir;

type Pairs = BTreeMap<u64, Vec<u8>>;

const KEYS: u64 = 400;

/// The numbers that a sequence is made of.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % end
    }

    fn bits(&mut self, end: u8) -> u8 {
        self.below(end.into()) as u8
    }

    fn value(&mut self) -> Vec<u8> {
        let (len, byte) = (self.below(60), self.below(256) as u8);
        (0..len).map(|at| byte.wrapping_add(at as u8)).collect()
    }

    /// Keys are dense, or spread over all numbers.
    fn key(&mut self, spread: bool) -> u64 {
        let key = self.below(KEYS);
        if spread { key.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { key }
    }

    fn pairs(&mut self, spread: bool, most: u64) -> Pairs {
        (0..self.below(most)).map(|_| (self.key(spread), self.value())).collect()
    }

    fn options(&mut self) -> BuildOptions {
        let mut options = BuildOptions::new();
        let encoding = |choice| if choice == 0 { Encoding::Gzip } else { Encoding::Raw };
        let hash = if self.below(3) == 0 { HashFunction::Identity } else { HashFunction::MurmurHash3X86_128 };
        if self.below(4) != 0 {
            let spec = ShardingSpec::new(hash, self.bits(3), self.bits(4), self.bits(4)).unwrap();
            let spec = spec.with_data_encoding(encoding(self.below(3)));
            options.spec(spec.with_minishard_index_encoding(encoding(self.below(3))));
        }
        options
            .allow_sparse(true)
            .allow_empty(true)
            .ordered(self.below(3) == 0)
            .checks(self.below(4) != 0)
            .threads(2)
            .durable(false);
        options
    }
}

/// A change of a store, with its name.
type Act = (&'static str, fn(&mut Sequence));

/// A store, what it must contain, and the same for each of its generations.
struct Sequence {
    scratch: TempDir,
    draw: Draw,
    spread: bool,
    pairs: Pairs,
    /// How the current generation was built; `None` if it is not that of a full build with these options.
    options: Option<BuildOptions>,
    history: BTreeMap<u64, (Pairs, Option<BuildOptions>)>,
}

impl Sequence {
    fn new(seed: u64) -> Sequence {
        let mut draw = Draw(seed);
        let spread = draw.below(2) == 0;
        let scratch = TempDir::new();
        Sequence { scratch, draw, spread, pairs: Pairs::new(), options: None, history: BTreeMap::new() }
    }

    fn store(&self) -> PathBuf {
        self.scratch.path().join("store")
    }

    fn snapshot(&self) -> Snapshot {
        ShardDb::open(self.store()).unwrap().snapshot()
    }

    fn build(&mut self) {
        let options = self.draw.options();
        self.pairs = self.draw.pairs(self.spread, KEYS);
        build(&options, &self.store(), &self.pairs);
        self.options = Some(options);
    }

    fn update(&mut self) {
        let mut updater = UpdateOptions::new().durable(false).allow_empty(true).open(self.store()).unwrap();
        for _ in 0..self.draw.below(80) {
            let key = self.draw.key(self.spread);
            if self.draw.below(3) == 0 {
                updater.delete(key).unwrap();
                self.pairs.remove(&key);
            } else {
                let value = self.draw.value();
                updater.put(key, &value).unwrap();
                self.pairs.insert(key, value);
            }
        }
        let (published, _) = updater.finish().unwrap();
        if let Some(options) = &mut self.options {
            options.spec(published.content.spec); // a full build would plan another one for other pairs
        }
    }

    fn merge(&mut self) {
        let (options, other) = (self.draw.options(), self.draw.pairs(self.spread, KEYS));
        let path = self.scratch.path().join("other");
        build(&self.draw.options(), &path, &other);
        let inputs = [self.snapshot(), ShardDb::open(&path).unwrap().snapshot()];
        let policy = if self.draw.below(2) == 0 { OnDuplicate::KeepFirst } else { OnDuplicate::KeepLast };
        for (key, value) in other {
            let old = self.pairs.entry(key).or_insert_with(|| value.clone());
            if matches!(policy, OnDuplicate::KeepLast) {
                *old = value;
            }
        }
        self.rewrite(options, policy, &inputs);
        fs::remove_dir_all(path).unwrap();
    }

    fn reshard(&mut self) {
        let options = self.draw.options();
        self.rewrite(options, OnDuplicate::Error, &[self.snapshot()]);
    }

    fn rewrite(&mut self, mut options: BuildOptions, policy: OnDuplicate, inputs: &[Snapshot]) {
        let published = options.on_duplicate(policy).merge(self.store(), inputs).unwrap().publish().unwrap();
        options.on_duplicate(OnDuplicate::Error).spec(published.content.spec);
        if inputs.iter().all(Snapshot::is_ordered) {
            options.ordered(true); // a merge keeps the key file that all inputs have
        }
        self.options = Some(options);
    }

    /// Builds other pairs, and applies the differences to the store.
    fn apply_a_difference(&mut self) {
        let path = self.scratch.path().join("other");
        let wanted: Pairs = match self.draw.below(2) {
            0 => self.draw.pairs(self.spread, KEYS),
            _ => self.pairs.iter().filter(|(key, _)| *key % 5 != 0).map(|(key, value)| (*key, value.clone())).collect(),
        };
        build(&self.draw.options(), &path, &wanted);
        let (old, new) = (self.snapshot(), ShardDb::open(&path).unwrap().snapshot());
        let mut updater =
            UpdateOptions::new().durable(false).allow_empty(true).strict(true).open(self.store()).unwrap();
        let outcome = Diff::between(&old, &new).run(|change| {
            let change = change.unwrap();
            match change.kind() {
                ChangeKind::Removed => updater.delete(change.key()).unwrap(),
                _ => updater.put(change.key(), change.new_value().unwrap().unwrap()).unwrap(),
            }
            ControlFlow::<()>::Continue(())
        });
        let ControlFlow::Continue(totals) = outcome else { unreachable!("no change ends the comparison") };
        let only_in = |one: &Pairs, other: &Pairs| one.keys().filter(|key| !other.contains_key(key)).count() as u64;
        assert_eq!((totals.added, totals.removed), (only_in(&wanted, &self.pairs), only_in(&self.pairs, &wanted)));
        let (published, report) = updater.finish().unwrap();
        assert_eq!((report.added, report.replaced, report.deleted), (totals.added, totals.changed, totals.removed));
        if let Some(options) = &mut self.options {
            options.spec(published.content.spec);
        }
        self.pairs = wanted;
        fs::remove_dir_all(path).unwrap();
    }

    fn roll_back(&mut self) {
        let store = Store::open(self.store()).unwrap();
        let ids: Vec<_> = store.generations().unwrap().iter().map(|stored| stored.id).collect();
        let to = ids[self.draw.below(ids.len() as u64) as usize];
        store.writer().unwrap().rollback(Some(to)).unwrap();
        (self.pairs, self.options) = self.history[&to.get()].clone();
    }

    fn step(&mut self, number: u64) -> &'static str {
        let acts: [Act; 7] = [
            ("build", Sequence::build),
            ("update", Sequence::update),
            ("update", Sequence::update),
            ("merge", Sequence::merge),
            ("reshard", Sequence::reshard),
            ("diff and apply", Sequence::apply_a_difference),
            ("rollback", Sequence::roll_back),
        ];
        let (name, act) = if number == 0 { acts[0] } else { acts[self.draw.below(7) as usize] };
        act(self);
        name
    }

    fn check(&mut self, what: &str) {
        let snapshot = self.snapshot();
        let found: Pairs =
            snapshot.iter().map(|entry| entry.unwrap()).map(|it| (it.key(), it.value().unwrap().to_vec())).collect();
        assert!(found == self.pairs, "{what}");
        assert!(snapshot.verify(VerifyLevel::Data).unwrap().is_clean(), "{what}");
        if let Some(options) = &self.options {
            let whole = self.scratch.path().join("whole");
            build(options, &whole, &self.pairs);
            let expected = files_of(&ShardDb::open(&whole).unwrap().snapshot());
            assert!(files_of(&snapshot) == expected, "{what}: the bytes are not those of a full build");
            fs::remove_dir_all(whole).unwrap();
        }
        let id = snapshot.generation().unwrap().get();
        self.history.insert(id, (self.pairs.clone(), self.options.clone()));
    }
}

fn build(options: &BuildOptions, store: &Path, pairs: &Pairs) {
    let mut loader = options.create(store).unwrap();
    loader.extend(pairs.iter().map(|(key, value)| (*key, value))).unwrap();
    loader.finish().unwrap();
}

/// The files of a generation, without its lease.
fn files_of(snapshot: &Snapshot) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(snapshot.directory()).unwrap().map(|entry| entry.unwrap());
    let files = files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()));
    files.filter(|(name, _)| name != "lease").collect()
}

#[test]
fn any_sequence_of_changes_is_that_of_a_map() {
    for seed in 0..50 {
        let mut sequence = Sequence::new(seed);
        for number in 0..12 {
            let name = sequence.step(number);
            sequence.check(&format!("sequence {seed}, step {number}: {name}"));
        }
    }
}
