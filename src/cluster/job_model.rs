//! A job whose name, input and receipts are used again: what a publication acknowledges becomes current, a retry never
//! brings back what was replaced or rolled back, and a run of an earlier input is not taken for a retry.

use std::collections::{BTreeSet, HashSet};
use std::fs;

use super::tests::Scene;
use super::*;
use crate::common::TempDir;
use crate::common::cluster::small;
use crate::error::ErrorKind;
use crate::fs::disk::{Fault, Watch};
use crate::store::{GenerationId, Store};
use crate::{BulkLoader, OpenOptions};

const JOB: &str = "night";

/// A run of the job: the receipts of all steps before the publication, and what is known of that.
struct Run {
    input: &'static str,
    spills: SpillSet,
    parts: Vec<PartReceipt>,
    /// The generation that its publication made current, or that it has acknowledged.
    generation: Option<GenerationId>,
    /// The number of other changes of the store before its last interrupted publication.
    interrupted_at: Option<usize>,
}

/// A store, and the runs of one job in it.
struct Model {
    directory: TempDir,
    runs: Vec<Run>,
    were_current: HashSet<GenerationId>,
    /// Generations that a rollback by one left.
    rolled_back: HashSet<GenerationId>,
    /// The number of changes of the store so far.
    changes: usize,
}

impl Model {
    fn new() -> Model {
        let mut model = Model {
            directory: TempDir::in_memory(),
            runs: Vec::new(),
            were_current: HashSet::new(),
            rolled_back: HashSet::new(),
            changes: 0,
        };
        model.load("first");
        model
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("store")
    }

    fn store(&self) -> Store {
        Store::open(self.path()).unwrap()
    }

    fn current(&self) -> GenerationId {
        self.store().current().unwrap().unwrap()
    }

    /// Returns the input of the current generation.
    fn input(&self) -> String {
        let db = OpenOptions::new().open(self.path()).unwrap();
        let value = String::from_utf8(db.get(7).unwrap().unwrap().to_vec()).unwrap();
        value.trim_start_matches("7:").split('/').next().unwrap().to_string()
    }

    /// Publishes a generation that is not of the job.
    fn load(&mut self, input: &str) {
        let mut loader = BulkLoader::create(self.path()).unwrap();
        loader.insert(7, input).unwrap();
        self.were_current.insert(loader.finish().unwrap().generation);
        self.changes += 1;
    }

    /// Makes all steps of the job but the publication.
    fn run(&mut self, input: &'static str) -> usize {
        let (case, job) = (small(input), job_directory(self.path(), JOB).unwrap());
        let spills = case.spill_all(&job).unwrap();
        let parts = case.build_parts(&spills, &job).unwrap();
        self.runs.push(Run { input, spills, parts, generation: None, interrupted_at: None });
        self.runs.len() - 1
    }

    /// Publishes a run, which fails from an operation on if one is given. Returns whether it did not fail.
    fn publish(&mut self, run: usize, fault: Option<usize>) -> bool {
        let before = self.current();
        let watch = Watch::on(self.directory.path());
        if let Some(nth) = fault {
            watch.fail(Fault::Broken, nth);
        }
        let Run { input, spills, parts, .. } = &self.runs[run];
        let published = spills.publish(self.path(), JOB, parts.clone(), &small(input).options);
        let has_failed = watch.heal() > 0;
        drop(watch);
        let (current, input) = (self.current(), self.input());
        let run = &mut self.runs[run];
        assert!(current == before || !self.rolled_back.contains(&current), "{current} is back");
        if current != before {
            assert_eq!((input.as_str(), run.generation), (run.input, None));
            run.generation = Some(current);
            self.were_current.insert(current);
        }
        match published {
            Ok(published) => {
                assert!(self.were_current.contains(&published.generation), "it was or is current");
                assert_eq!(*run.generation.get_or_insert(published.generation), published.generation);
            }
            Err(_) if has_failed => run.interrupted_at = Some(self.changes),
            Err(error) => {
                assert_eq!(current, before);
                assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
                assert!(error.path().is_some_and(|path| path.exists()), "the file to remove: {error}");
                assert!(run.interrupted_at.is_some_and(|at| at < self.changes), "nothing came between: {error}");
            }
        }
        !has_failed
    }

    /// Checks that a publication that was refused is made after its mark was removed, as the error says.
    fn check_way_out(&self, run: usize) {
        let Run { input, spills, parts, .. } = &self.runs[run];
        let copy = TempDir::in_memory();
        crate::fs::disk::Tree::read(self.directory.path()).write_to(copy.path());
        let (store, job) = (copy.path().join("store"), copy.path().join("store").join("parts-night"));
        let spills = SpillSet::new(spills.plan(), job, spills.receipts().to_vec()).unwrap();
        let publish = || spills.publish(&store, JOB, parts.clone(), &small(input).options);
        let Err(error) = publish() else { return };
        fs::remove_file(error.path().unwrap()).unwrap();
        let published = publish().unwrap();
        assert_eq!(Store::open(&store).unwrap().current().unwrap(), Some(published.generation));
    }

    fn roll_back(&mut self, to: Option<GenerationId>) {
        let before = self.current();
        let Ok(id) = self.store().writer().unwrap().rollback(to) else { return };
        if to.is_none() {
            self.rolled_back.insert(before);
        }
        self.rolled_back.remove(&id);
        self.were_current.insert(id);
        self.changes += 1;
    }

    fn collect(&mut self, keep: usize) {
        self.store().writer().unwrap().gc(keep).unwrap();
        self.changes += 1;
    }
}

/// Inputs A, B and A again, under one name, with and without cleaning.
#[test]
fn an_input_that_returns_is_published_again() {
    for cleans in [false, true] {
        let mut model = Model::new();
        for input in ["A", "B", "A", "A"] {
            let (run, before) = (model.run(input), model.current());
            assert!(model.publish(run, None));
            assert!(model.current() > before, "{input}");
            assert_eq!(model.input(), input);
            model.publish(run, None);
            assert_eq!(model.runs[run].generation, Some(model.current()), "a retry");
            if cleans {
                assert!(clean(model.path(), Some(JOB)).unwrap().foreign.is_empty());
            }
        }
    }
}

/// A publication is killed at any operation; then the store is changed, and the publication retried.
#[test]
fn a_retry_brings_back_nothing() {
    type Change = fn(&mut Model);
    let changes: [(&str, Change); 8] = [
        ("nothing", |_| {}),
        ("rollback", |model| model.roll_back(None)),
        ("rollback, gc", |model| {
            model.roll_back(None);
            model.collect(0);
        }),
        ("rollback by number", |model| model.roll_back(Some(GenerationId::new(1).unwrap()))),
        ("another", |model| model.load("other")),
        ("another, gc", |model| {
            model.load("other");
            model.collect(0);
        }),
        ("rollback, another, rollback", |model| {
            model.roll_back(None);
            model.load("other");
            model.roll_back(None);
        }),
        ("gc", |model| model.collect(5)),
    ];
    for (name, change) in changes {
        let (mut kinds, mut tried) = (BTreeSet::new(), 0);
        for nth in 0.. {
            println!("{name}, operation {nth}"); // shown if it fails
            let mut model = Model::new();
            let run = model.run("A");
            let is_over = model.publish(run, Some(nth));
            change(&mut model);
            let before = model.current();
            model.publish(run, None);
            model.check_way_out(run);
            kinds.insert(model.current() == before);
            model.publish(run, None);
            let again = model.run("A");
            model.publish(again, None);
            assert_eq!(model.input(), "A", "another run of the job");
            if is_over {
                break;
            }
            tried = nth;
        }
        assert!(tried > 30, "{name}: {tried}");
        assert_eq!(kinds.len(), 2, "{name}: a retry changes something, or nothing");
    }
}

/// Random sequences of runs, retries, kills, rollbacks, collections and other generations.
#[test]
fn random_sequences() {
    for seed in 0..60 {
        let mut state = 0x9e37_79b9_u64.wrapping_mul(2 * seed + 1);
        let mut below = |end: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            usize::try_from(state >> 33).unwrap() % end
        };
        let mut model = Model::new();
        for step in 0..25 {
            let latest = model.runs.len().saturating_sub(3);
            let operation = below(10);
            println!("seed {seed}, step {step}: operation {operation}"); // shown if it fails
            match operation {
                0..=1 => {
                    let run = model.run(["A", "B"][below(2)]);
                    model.publish(run, None);
                    assert_eq!(model.input(), model.runs[run].input);
                    model.changes += 1;
                }
                2..=3 => {
                    let (run, nth) = (model.run(["A", "B"][below(2)]), below(45));
                    model.publish(run, Some(nth));
                }
                4..=6 if !model.runs.is_empty() => {
                    let (run, before) = (latest + below(model.runs.len() - latest), model.current());
                    model.publish(run, None);
                    model.changes += usize::from(model.current() != before);
                }
                7 => model.roll_back(None),
                8 => {
                    let ids: Vec<_> = model.store().generations().unwrap().iter().map(|stored| stored.id).collect();
                    model.roll_back(Some(ids[below(ids.len())]));
                }
                _ if below(2) == 0 => model.collect(below(3)),
                _ => model.load("other"),
            }
        }
    }
}

/// Spills of a version without random bytes: a repeated publication says that its generation is not current, instead of
/// taking a new run for a retry.
#[test]
fn without_random_bytes_a_publication_that_is_not_current_is_refused() {
    let scene = Scene::new();
    let spills = scene.case.spill_all(&scene.job()).unwrap();
    let receipts = spills.receipts().iter().map(|receipt| SpillReceipt { run: None, ..receipt.clone() });
    let spills = SpillSet::new(&scene.case.plan, scene.job(), receipts).unwrap();
    let parts = scene.case.build_parts(&spills, &scene.job()).unwrap();
    let published = scene.publish(&spills, parts.clone()).unwrap();
    assert_eq!(scene.publish(&spills, parts.clone()).unwrap(), published, "it is current");
    Store::open(scene.store()).unwrap().writer().unwrap().rollback(None).unwrap();
    let error = scene.publish(&spills, parts.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
    fs::remove_file(error.path().unwrap()).unwrap();
    let error = scene.publish(&spills, parts).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "the way out: now it fails only since the parts are gone: {error}");
}

/// A store that was restored beside newer marks gives their numbers to other generations: the mark of a job is not believed,
/// and its spills and parts stay.
#[test]
fn a_mark_of_before_a_restoration_is_not_believed() {
    for with_other in [true, false] {
        let scene = Scene::new();
        let spills = scene.case.spill_all(&scene.job()).unwrap();
        let parts = scene.case.build_parts(&spills, &scene.job()).unwrap();
        let published = scene.publish(&spills, parts.clone()).unwrap();
        for name in ["current", "history", "lock"] {
            fs::remove_file(scene.store().join(name)).unwrap();
        }
        for id in [1, 2] {
            fs::remove_dir_all(scene.store().join(format!("gen-{id:010}"))).unwrap();
        }
        if with_other {
            for _ in 0..published.generation.get() {
                let mut loader = BulkLoader::create(scene.store()).unwrap();
                loader.insert(7, "other").unwrap();
                loader.finish().unwrap();
            }
        }
        let error = scene.publish(&spills, parts).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
        assert!(error.message().contains("restored"), "{error}");
    }
}
