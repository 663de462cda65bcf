//! A partitioned build has the bytes of a build by one loader, whatever its tasks, parts and memory, and whatever
//! crashes, fails or is repeated. A receipt that is lost, doubled or foreign is a named error, and nothing is
//! published.

use crate::ids::shard_number;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use quickcheck::QuickCheck;

use super::part_receipt::PartContent;
use super::*;
use crate::common::TempDir;
use crate::common::cluster::{Case, Pair, TOO_LITTLE, joined, small};
use crate::error::{ErrorKind, Result};
use crate::format::hash::HashFunction;
use crate::format::spec::ShardingSpec;
use crate::store::Store;
use crate::{BuildOptions, BulkLoader, OnDuplicate, OpenOptions, Profile, Published, VerifyLevel};

fn by_parts(case: &Case, store: &Path) -> Result<Published> {
    let job = job_directory(store, "1")?;
    let spills = case.spill_all(&job)?;
    let parts = case.build_parts(&spills, &job)?;
    spills.publish(store, "1", parts, &case.options)
}

/// Returns the bytes of all files below a directory.
pub(super) fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn add(directory: &Path, root: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(&path, root, files)
            } else {
                _ = files.insert(path.strip_prefix(root).unwrap().to_path_buf(), fs::read(&path).unwrap())
            }
        }
    }
    let mut all = BTreeMap::new();
    add(directory, directory, &mut all);
    all
}

/// Random pairs over random tasks, parts, memory, options and duplicates.
#[test]
fn has_the_bytes_of_a_build_by_one_loader() {
    fn holds(seed: u64) -> bool {
        let case = Case::random(seed);
        let (one, other) = (TempDir::new(), TempDir::new());
        let expected = case.by_loader(&one.path().join("store"));
        let store = other.path().join("store");
        match (by_parts(&case, &store), expected) {
            (Ok(published), Ok(expected)) => {
                assert_eq!(published, expected, "seed {seed}");
                let [found, expected] =
                    [&other, &one].map(|directory| files(&directory.path().join("store/gen-0000000001")));
                let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
                assert_eq!(names(&found), names(&expected), "seed {seed}");
                assert!(found == expected, "seed {seed}");
                let db = OpenOptions::new().open(&store).unwrap();
                assert!(db.snapshot().verify(VerifyLevel::Data).unwrap().is_clean(), "seed {seed}");
                let left = files(&store.join("parts-1"));
                assert!(left.len() == 1 && left.keys().all(|name| name.to_str().unwrap().starts_with("published-")));
            }
            (found, expected) => {
                let [found, expected] = [found.unwrap_err(), expected.unwrap_err()];
                assert_eq!((found.kind(), expected.kind()), (ErrorKind::DuplicateKey, ErrorKind::DuplicateKey));
                assert!(!Store::is_at(&store).unwrap());
            }
        }
        true
    }
    QuickCheck::new().tests(150).quickcheck(holds as fn(u64) -> bool);
}

/// A store with a generation, and a case whose spills and parts are in it.
pub(super) struct Scene {
    pub(super) directory: TempDir,
    pub(super) case: Case,
    pub(super) expected: BTreeMap<PathBuf, Vec<u8>>,
}

impl Scene {
    pub(super) fn new() -> Scene {
        let (directory, one, case) = (TempDir::in_memory(), TempDir::in_memory(), small("a"));
        case.by_loader(one.path()).unwrap();
        let mut loader = BulkLoader::create(directory.path().join("store")).unwrap();
        loader.insert(7, "old").unwrap();
        loader.finish().unwrap();
        Scene { directory, case, expected: files(&one.path().join("gen-0000000001")) }
    }

    pub(super) fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    pub(super) fn job(&self) -> PathBuf {
        self.store().join("parts-1")
    }

    pub(super) fn publish(&self, spills: &SpillSet, parts: Vec<PartReceipt>) -> Result<Published> {
        spills.publish(self.store(), "1", parts, &self.case.options)
    }

    /// Checks that the current generation has the bytes of a build by one loader.
    #[track_caller]
    pub(super) fn check_published(&self, published: &Published) {
        let current = Store::open(self.store()).unwrap().current().unwrap();
        assert_eq!(current, Some(published.generation));
        assert!(files(&self.store().join("current")) == self.expected);
    }

    /// Checks that the old generation is current.
    #[track_caller]
    fn check_old(&self) {
        let current = Store::open(self.store()).unwrap().current().unwrap();
        assert_eq!(current.unwrap().get(), 1);
    }

    /// Checks an error, and that nothing was published.
    #[track_caller]
    fn check_refused<T: std::fmt::Debug>(&self, result: Result<T>, kind: ErrorKind, words: &str) {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        self.check_old();
    }
}

#[test]
fn lost_doubled_and_foreign_receipts_are_named_and_nothing_is_published() {
    let scene = Scene::new();
    let (case, job) = (&scene.case, scene.job());
    let spills = case.spill_all(&job).unwrap();
    let parts = case.build_parts(&spills, &job).unwrap();
    let all_but = |left_out: usize| -> Vec<PartReceipt> {
        parts.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, part)| part.clone()).collect()
    };
    let part_of = |at: usize| parts[at].part();

    let lost = scene.publish(&spills, all_but(1));
    scene.check_refused(lost, ErrorKind::InvalidInput, &format!("found none of part {}", part_of(1)));
    scene.check_refused(scene.publish(&spills, vec![]), ErrorKind::InvalidInput, "none of part 0");

    // a spill less than the parts were built of
    let fewer = SpillSet::new(&case.plan, &job, spills.receipts()[1..].to_vec()).unwrap();
    scene.check_refused(scene.publish(&fewer, parts.clone()), ErrorKind::InvalidInput, "of other spills");

    // a part of fewer spills, next to the others
    let mut mixed = all_but(0);
    mixed.push(fewer.build_part(part_of(0), &job, &case.options).unwrap());
    scene.check_refused(scene.publish(&spills, mixed), ErrorKind::InvalidInput, "of other spills");

    // a part with other options
    for (change, words) in [("checks", "\"checks\":false"), ("policy", "\"on_duplicate\":\"last\"")] {
        let mut options = case.options.clone();
        match change {
            "checks" => _ = options.checks(false),
            _ => _ = options.on_duplicate(OnDuplicate::KeepLast),
        }
        let mut mixed = all_but(0);
        mixed.push(spills.build_part(part_of(0), &job, &options).unwrap());
        scene.check_refused(scene.publish(&spills, mixed.clone()), ErrorKind::InvalidInput, words);
        mixed.extend(parts.clone());
        scene.check_refused(scene.publish(&spills, mixed), ErrorKind::InvalidInput, "take either");
    }

    // another plan
    let other_plan = PartPlan::even(*case.plan.spec(), 4).unwrap();
    let other = SpillSet::new(&other_plan, &job, vec![]).unwrap();
    scene.check_refused(scene.publish(&other, parts.clone()), ErrorKind::InvalidInput, "of the plan");

    // receipts with digests of their own texts, and impossible contents
    let forged = |change: &dyn Fn(&mut PartContent)| {
        let mut content = parts[0].content.clone();
        change(&mut content);
        [all_but(0), vec![PartReceipt::new(content)]].concat()
    };
    let keys = forged(&|content| content.shards[0].keys = u64::MAX);
    scene.check_refused(scene.publish(&spills, keys), ErrorKind::InvalidInput, "2^64 keys");
    let shard = forged(&|content| {
        let number = &mut content.shards[0].number;
        *number = shard_number(number.get() ^ (1 << 1));
    });
    scene.check_refused(scene.publish(&spills, shard), ErrorKind::InvalidInput, "found another");
    let order = forged(&|content| content.shards.push(content.shards[0]));
    scene.check_refused(scene.publish(&spills, order), ErrorKind::InvalidInput, "ascending shards");
    let writer = forged(&|content| content.options.writer = "sharddb 0.0.1".to_string());
    scene.check_refused(scene.publish(&spills, writer), ErrorKind::InvalidInput, "sharddb 0.0.1");

    scene.check_refused(spills.build_part(3, &job, &case.options), ErrorKind::InvalidInput, "found 3");
    scene.check_refused(
        spills.publish(scene.store(), "2", parts.clone(), &case.options),
        ErrorKind::NotFound,
        "parts-2",
    );

    // equal receipts count as one
    let twice = parts.iter().chain(&parts).cloned().collect();
    scene.check_published(&scene.publish(&spills, twice).unwrap());
}

#[test]
fn lost_and_damaged_files_are_named_and_nothing_is_published() {
    let scene = Scene::new();
    let (case, job) = (&scene.case, scene.job());
    let spills = case.spill_all(&job).unwrap();
    let build = || spills.build_part(1, &job, &case.options);
    let file = job.join(spills.receipts()[2].file_name());
    let bytes = fs::read(&file).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();

    fs::remove_file(&file).unwrap();
    scene.check_refused(build(), ErrorKind::NotFound, name);
    fs::write(&file, &bytes[1..]).unwrap();
    scene.check_refused(build(), ErrorKind::Corrupt, name);
    fs::write(&file, vec![0; bytes.len()]).unwrap();
    scene.check_refused(build(), ErrorKind::Corrupt, name);
    fs::copy(job.join(spills.receipts()[1].file_name()), &file).unwrap();
    scene.check_refused(build(), ErrorKind::Corrupt, name);

    // every changed byte is noticed by the part whose section it is in, or by all parts
    let mut unnoticed = 0;
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x11;
        fs::write(&file, changed).unwrap();
        match build() {
            Ok(_) => unnoticed += 1,
            Err(error) => {
                assert!([ErrorKind::Corrupt, ErrorKind::Unsupported].contains(&error.kind()), "byte {at}: {error}");
                assert_eq!(error.path(), Some(&*file), "byte {at}: {error}");
            }
        }
    }
    let of_others = bytes.len() * 9 / 10;
    assert!(unnoticed > 0 && unnoticed < of_others, "{unnoticed} of {}", bytes.len());
    fs::write(&file, &bytes).unwrap();

    let parts = case.build_parts(&spills, &job).unwrap();
    let part = job.join(parts[0].directory_name());
    let shard = fs::read_dir(&part).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&shard).unwrap();
    let publish = || scene.publish(&spills, parts.clone());
    let name = shard.file_name().unwrap().to_str().unwrap();

    fs::write(&shard, &bytes[1..]).unwrap();
    scene.check_refused(publish(), ErrorKind::Corrupt, name);
    let mut changed = bytes.clone();
    changed[0] ^= 1;
    fs::remove_file(&shard).unwrap();
    fs::write(&shard, changed).unwrap();
    scene.check_refused(publish(), ErrorKind::Corrupt, name);
    fs::remove_file(&shard).unwrap();
    scene.check_refused(publish(), ErrorKind::Io, name);
    fs::write(&shard, &bytes).unwrap();
    fs::rename(&part, job.join("away")).unwrap();
    scene.check_refused(publish(), ErrorKind::NotFound, &parts[0].directory_name());
    fs::rename(job.join("away"), &part).unwrap();
    scene.check_published(&publish().unwrap());
}

/// A publication returns its result again: after its files are gone, after other generations, and after a rollback.
#[test]
fn a_repeated_publication_changes_nothing() {
    let scene = Scene::new();
    let spills = scene.case.spill_all(&scene.job()).unwrap();
    let parts = scene.case.build_parts(&spills, &scene.job()).unwrap();
    let published = scene.publish(&spills, parts.clone()).unwrap();
    scene.check_published(&published);
    let before = files(&scene.store());
    assert_eq!(scene.publish(&spills, parts.clone()).unwrap(), published);
    assert!(files(&scene.store()) == before);

    let mut loader = BulkLoader::create(scene.store()).unwrap();
    loader.insert(7, "newer").unwrap();
    let newer = loader.finish().unwrap();
    assert_eq!(scene.publish(&spills, parts.clone()).unwrap(), published);
    let writer = Store::open(scene.store()).unwrap().writer().unwrap();
    assert_eq!(scene.publish(&spills, parts.clone()).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(writer.gc(0).unwrap().removed.len(), 2);
    drop(writer);
    assert_eq!(scene.publish(&spills, parts.clone()).unwrap(), published);
    assert_eq!(Store::open(scene.store()).unwrap().current().unwrap(), Some(newer.generation));

    // other options are another publication, whose files are gone
    let mut options = scene.case.options.clone();
    let other = spills.publish(scene.store(), "1", parts.clone(), options.ordered(true));
    assert_eq!(other.unwrap_err().kind(), ErrorKind::NotFound);

    assert_eq!(clean(scene.store(), None).unwrap().jobs, ["1"]);
    assert!(!scene.job().exists());
    assert_eq!(scene.publish(&spills, parts).unwrap_err().kind(), ErrorKind::NotFound);
}

/// A publication was killed before its generation had a name, and another writer took the number since.
#[test]
fn a_mark_of_a_number_that_another_writer_took_is_void() {
    let (done, scene) = (Scene::new(), Scene::new());
    let [(spills, parts), (other_spills, other_parts)] = [&done, &scene].map(|scene| {
        let spills = scene.case.spill_all(&scene.job()).unwrap();
        let parts = scene.case.build_parts(&spills, &scene.job()).unwrap();
        (spills, parts)
    });
    let published = done.publish(&spills, parts).unwrap();
    let mark = fs::read_dir(done.job()).unwrap().next().unwrap().unwrap();
    let name = mark.file_name().into_string().unwrap().replace("published", "publishing");
    fs::copy(mark.path(), scene.job().join(name)).unwrap();
    let mut loader = BulkLoader::create(scene.store()).unwrap();
    loader.insert(7, "of another writer").unwrap();
    assert_eq!(loader.finish().unwrap().generation, published.generation);
    let again = scene.publish(&other_spills, other_parts).unwrap();
    assert_eq!(again.generation.get(), published.generation.get() + 1);
    scene.check_published(&again);
}

/// A publication was killed at the swap of `current`, and another generation was published since: a repeated call returns
/// its result if the history shows that it was current, and else is an error. It never replaces the later generation.
#[test]
fn an_interrupted_publication_does_not_replace_a_later_one() {
    for (is_first, is_collected) in [(false, false), (false, true), (true, false)] {
        let scene = Scene::new();
        if is_first {
            fs::remove_dir_all(scene.store()).unwrap();
        }
        let spills = scene.case.spill_all(&scene.job()).unwrap();
        let parts = scene.case.build_parts(&spills, &scene.job()).unwrap();
        let published = scene.publish(&spills, parts.clone()).unwrap();
        let mark = fs::read_dir(scene.job()).unwrap().next().unwrap().unwrap();
        let interrupted = mark.file_name().into_string().unwrap().replace("published", "publishing");
        fs::rename(mark.path(), scene.job().join(&interrupted)).unwrap();
        let mut loader = BulkLoader::create(scene.store()).unwrap();
        loader.insert(7, "newer").unwrap();
        let newer = loader.finish().unwrap().generation;
        if is_collected {
            Store::open(scene.store()).unwrap().writer().unwrap().gc(0).unwrap();
        }
        let again = scene.publish(&spills, parts);
        if is_first || is_collected {
            let error = again.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
            assert!(error.to_string().contains(&interrupted), "{error}");
        } else {
            assert_eq!(again.unwrap(), published);
        }
        assert_eq!(Store::open(scene.store()).unwrap().current().unwrap(), Some(newer));
    }
}

/// Two attempts of a task with different output: the receipts decide which one is in the result, as a whole.
#[test]
fn a_task_that_ran_twice_is_in_the_result_once() {
    let scene = Scene::new();
    let job = scene.job();
    let other = small("b").spill(&job, 1).unwrap();
    let spills = scene.case.spill_all(&job).unwrap();
    assert_ne!(spills.receipts()[1].file_name(), other.file_name());
    let mixed: Vec<_> = spills.receipts().iter().chain([&other]).cloned().collect();
    scene.check_refused(SpillSet::new(&scene.case.plan, &job, mixed), ErrorKind::InvalidInput, "of task 1");
    let parts = scene.case.build_parts(&spills, &job).unwrap();
    scene.check_published(&scene.publish(&spills, parts).unwrap());
    assert!(job.join(other.file_name()).exists(), "only the files of the receipts are removed");
    let cleaned = clean(scene.store(), Some("1")).unwrap();
    assert_eq!((cleaned.jobs, cleaned.foreign, job.exists()), (vec!["1".to_string()], vec![], false));
}

/// Attempts of a task at the same time leave one file each; those of a part return equal receipts, and leave one directory.
#[test]
fn doubled_attempts_at_the_same_time_are_one() {
    let scene = Scene::new();
    let job = scene.job();
    let four = |work: &(dyn Fn() -> String + Sync)| {
        let results: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(results.iter().all(|result| *result == results[0]));
    };
    std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(|| scene.case.spill(&job, 1).unwrap())));
    let spills = scene.case.spill_all(&job).unwrap();
    (0..3).for_each(|part| four(&|| spills.build_part(part, &job, &scene.case.options).unwrap().to_string()));
    assert_eq!(fs::read_dir(&job).unwrap().count(), 4 + 3 + 3, "attempts of a task, spills, parts");
    let parts = scene.case.build_parts(&spills, &job).unwrap();
    let publish = || match scene.publish(&spills, parts.clone()) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Locked),
        Ok(published) => scene.check_published(&published),
    };
    std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(publish)));
    scene.check_published(&scene.publish(&spills, parts.clone()).unwrap());
    assert_eq!(Store::open(scene.store()).unwrap().generations().unwrap().len(), 2);
}

/// The first build of a store: nothing is there but the directory of the job.
#[test]
fn a_job_may_come_before_its_store() {
    let directory = TempDir::new();
    let (store, case) = (directory.path().join("new/store"), small("a"));
    assert_eq!(clean(&store, None).unwrap_err().kind(), ErrorKind::NotFound);
    let published = by_parts(&case, &store).unwrap();
    assert_eq!((published.generation.get(), published.content.keys), (1, 80));
    let given_up = directory.path().join("given up");
    case.spill(&job_directory(&given_up, "2").unwrap(), 0).unwrap();
    assert_eq!(Store::open(&given_up).unwrap_err().kind(), ErrorKind::NotFound);
    let cleaned = clean(&given_up, None).unwrap();
    assert!(cleaned.jobs.is_empty() && cleaned.left == ["2"], "it is not published: {cleaned:?}");
    assert_eq!(clean(&given_up, Some("1")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(clean(&given_up, Some("2")).unwrap().jobs, ["2"]);
    assert!(!job_directory(&given_up, "2").unwrap().exists());
}

#[test]
fn no_tasks_and_empty_tasks_are_an_empty_generation() {
    for tasks in [0, 2] {
        let directory = TempDir::new();
        let case = Case { tasks: (0..tasks).map(|_| vec![]).collect(), ..small("a") };
        let published = by_parts(&case, &directory.path().join("store")).unwrap();
        assert_eq!((published.content.keys, published.content.shards), (0, 0));
    }
}

#[test]
fn a_writer_that_is_dropped_or_fails_leaves_nothing() {
    let directory = TempDir::new();
    let job = directory.path().join("parts-1");
    let mut options = BuildOptions::new();
    options.memory(TOO_LITTLE);
    let plan = PartPlan::for_counts(100, 100, Profile::Local, 3).unwrap();
    let create = || SpillWriter::create(&job, &plan, 0, &options).unwrap();
    let left = || fs::read_dir(&job).unwrap().count();

    let mut spill = create();
    spill.insert(7, vec![0; 5 << 20]).unwrap();
    assert_eq!(left(), 1);
    drop(spill);
    assert_eq!(left(), 0);

    let mut spill = create();
    let error = spill.insert_reader(7, 0, 10, &mut &b"short"[..]).unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Io, Some(7)));
    spill.insert(8, "after it").unwrap();
    assert_eq!(spill.finish().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(left(), 0);

    let error = create().insert_reader(7, 0, 1 << 63, &mut &b""[..]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let error = create().insert_reader(7, u64::MAX, 1, &mut &b""[..]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);

    let progress = crate::Progress::new();
    options.progress(&progress);
    let mut spill = SpillWriter::create(&job, &plan, 0, &options).unwrap();
    progress.cancel();
    assert_eq!(spill.insert(7, "").unwrap_err().kind(), ErrorKind::Cancelled);
    drop(spill);
    assert_eq!(left(), 0);
}

/// A spill takes at most 1.05 times its pairs, with many parts and several runs.
#[test]
fn a_spill_is_hardly_larger_than_its_pairs() {
    let directory = TempDir::new();
    let plan = PartPlan::for_counts(1_000_000, 100_000_000, Profile::Local, 64).unwrap();
    let mut options = BuildOptions::new();
    options.memory(8 << 20).durable(false);
    let mut spill = SpillWriter::create(directory.path(), &plan, 0, &options).unwrap();
    spill.extend((0..200_000_u64).map(|key| (key, [7; 100]))).unwrap();
    let receipt = spill.finish().unwrap();
    assert!(receipt.bytes() * 100 < 200_000 * (8 + 100) * 105, "{} bytes", receipt.bytes());
}

/// A part of more runs than it may open files, on more threads than it may use.
#[cfg(unix)]
#[test]
fn a_part_opens_at_most_64_files() {
    let directory = TempDir::new();
    use crate::common::children::{limited_child, run};
    run(limited_child("ulimit -n 64", "cluster::tests::child_builds_a_part", directory.path())).assert_passed();
    assert!(directory.path().join("store/current").exists());
}

#[cfg(unix)]
#[test]
#[ignore = "the process of a_part_opens_at_most_64_files"]
fn child_builds_a_part() {
    let Some(directory) = crate::common::children::child_directory() else { return };
    let files: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).take(64).collect();
    assert!(files.len() < 64, "the limit is active");
    drop(files);
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 3, 7).unwrap();
    // more than 16 runs, of which a merge may open a quarter of the limit, and memory for more than 30 threads
    let pairs =
        |task: u64| (0..200).map(move |key| Pair { key: key * 7 + task, preamble: vec![], value: vec![7; 4000] });
    let mut options = BuildOptions::new();
    options.spec(spec).threads(64).durable(false).memory(15 << 20).on_duplicate(joined());
    let case = Case {
        plan: PartPlan::even(spec, 1).unwrap(),
        tasks: (0..100).map(|task| pairs(task).collect()).collect(),
        options,
        spill_memory: 15 << 20,
    };
    by_parts(&case, &directory.join("store")).unwrap();
}

mod crashes {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fs::disk::{Disk, Fault, Loss, Tree, Watch};

    /// The receipts of the steps that were acknowledged, and the result of the publication.
    #[derive(Clone, Default)]
    struct Progress {
        spills: Vec<SpillReceipt>,
        parts: Vec<PartReceipt>,
        published: Option<Published>,
    }

    const TASKS: usize = 3;
    const PARTS: usize = 3;

    /// All steps: the tasks, the parts, the publication.
    const STEPS: usize = TASKS + PARTS + 1;

    impl Progress {
        fn steps(&self) -> usize {
            self.spills.len() + self.parts.len() + usize::from(self.published.is_some())
        }

        /// Makes the next step.
        fn step(&mut self, scene: &Scene) -> Result<()> {
            let job = scene.job();
            if self.spills.len() < TASKS {
                self.spills.push(scene.case.spill(&job, self.spills.len())?);
                return Ok(());
            }
            let spills = SpillSet::new(&scene.case.plan, &job, self.spills.clone())?;
            if self.parts.len() < PARTS {
                self.parts.push(spills.build_part(self.parts.len() as u64, &job, &scene.case.options)?);
                return Ok(());
            }
            self.published = Some(scene.publish(&spills, self.parts.clone())?);
            Ok(())
        }

        /// Makes the remaining steps, repeats the last, and checks the result.
        fn finish(mut self, scene: &Scene) {
            let published = self.published.clone();
            while self.steps() < STEPS {
                self.step(scene).unwrap();
            }
            self.step(scene).unwrap();
            let found = self.published.unwrap();
            assert!(published.is_none_or(|published| published == found));
            scene.check_published(&found);
            assert_eq!(Store::open(scene.store()).unwrap().generations().unwrap().len(), 2);
            clean(scene.store(), Some("1")).unwrap();
            let names =
                fs::read_dir(scene.store()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let names: Vec<_> = names.filter(|name| name.starts_with("parts-") || name.starts_with("tmp-")).collect();
            assert_eq!(names, [""; 0]);
        }
    }

    /// Checks that the old generation or the new one is current, and complete.
    fn check_current(scene: &Scene, acknowledged: bool) {
        let current = Store::open(scene.store()).unwrap().current().unwrap().unwrap();
        assert!(current.get() > 1 || !acknowledged);
        if current.get() > 1 {
            assert!(files(&scene.store().join("current")) == scene.expected);
        }
        let db = OpenOptions::new().open(scene.store()).unwrap();
        assert!(db.snapshot().verify(VerifyLevel::Data).unwrap().is_clean());
    }

    /// After a crash at any operation, what was acknowledged is intact, and the remaining steps give the same bytes.
    #[test]
    fn any_crash_can_be_continued() {
        let scene = Scene::new();
        let watch = Watch::on(scene.directory.path());
        let mut disk = Disk::of(&Tree::read(scene.directory.path()));
        let mut tried = BTreeSet::new();
        let mut progress = Progress::default();
        let mut found = Scene::new();
        let mut crash = |disk: &Disk, progress: &Progress, place: &str| {
            for loss in Loss::all() {
                let tree = disk.after(loss);
                if tried.insert((progress.steps(), tree.clone())) {
                    println!("crash {place}, {loss:?}"); // shown if it fails
                    found.directory = TempDir::new_in(found.directory.path().parent().unwrap());
                    tree.write_to(found.directory.path());
                    check_current(&found, progress.published.is_some());
                    progress.clone().finish(&found);
                }
            }
        };
        crash(&disk, &progress, "before the first step");
        while progress.steps() < STEPS {
            let before = progress.clone();
            progress.step(&scene).unwrap();
            let changes = watch.take_steps();
            for (at, change) in changes.iter().enumerate() {
                disk.apply(change);
                crash(
                    &disk,
                    &before,
                    &format!("in step {} after change {} of {}, {change:.120?}", before.steps(), at + 1, changes.len()),
                );
            }
            crash(&disk, &progress, &format!("after step {}", before.steps()));
        }
        drop(watch);
        assert!(tried.len() > 200, "{} different states", tried.len());
        println!("{} different states", tried.len());
    }

    /// A publication that is acknowledged survives, though nothing was synced before: a store and parts that were copied from
    /// other hosts.
    #[test]
    fn a_publication_survives_though_its_parts_were_never_synced() {
        let scene = Scene::new();
        let mut progress = Progress::default();
        while progress.published.is_none() {
            let mut disk = Disk::unsynced(&Tree::read(scene.directory.path()));
            let watch = Watch::on(scene.directory.path());
            progress.step(&scene).unwrap();
            if progress.published.is_some() {
                watch.take_steps().iter().for_each(|change| disk.apply(change));
                for loss in Loss::all() {
                    println!("{loss:?}"); // shown if it fails
                    let mut found = Scene::new();
                    found.directory = TempDir::new_in(found.directory.path().parent().unwrap());
                    disk.after(loss).write_to(found.directory.path());
                    check_current(&found, true);
                }
            }
        }
    }

    /// A fault in any operation is reported, changes nothing that is visible, and the step can be repeated.
    #[test]
    fn any_fault_can_be_repeated() {
        for fault in [Fault::Once, Fault::Full, Fault::Broken] {
            for step in 0..STEPS {
                let failed = (0..).take_while(|nth| {
                    let scene = Scene::new();
                    let mut progress = Progress::default();
                    (0..step).for_each(|_| progress.step(&scene).unwrap());
                    let watch = Watch::on(scene.directory.path());
                    watch.fail(fault, *nth);
                    println!("step {step}: {fault:?} at operation {nth}"); // shown if it fails
                    let result = progress.step(&scene);
                    let faults = watch.heal();
                    if let Err(error) = &result {
                        assert!(faults > 0, "{error}");
                        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                        assert!(error.path().is_some_and(|path| path.starts_with(scene.directory.path())), "{error}");
                        assert_eq!(progress.steps(), step);
                    }
                    check_current(&scene, progress.published.is_some());
                    progress.finish(&scene);
                    faults > 0
                });
                assert!(failed.count() > 0, "step {step}: {fault:?} never comes");
            }
        }
    }
}
