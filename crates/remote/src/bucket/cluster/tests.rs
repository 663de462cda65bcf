//! A partitioned build over a bucket has the bytes of a build by one loader, whatever is killed, repeated, lost or damaged,
//! and it reads each spill once.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::cluster::{Case, Pair, small};
use sharddb::Progress;
use sharddb::cluster::{PartPlan, PartReceipt, SpillReceipt};
use sharddb::internal::PERMITS_LITTLE_MEMORY;
use sharddb::internal::settings_of;
use sharddb::progress::Phase;
use sharddb::{BuildOptions, OnDuplicate};
use sharddb_format::Error;
use sharddb_format::internal::checksum::Checksum;
use sharddb_format::internal::hash::HashFunction;
use sharddb_format::internal::spec::{Encoding, ShardingSpec};
use sharddb_format::{ErrorKind, Result};

use super::PublishedParts;
use crate::Bucket;
use crate::PushOptions;
use crate::bucket::testing::{Copies, Fault, Server, build, current_directory, files, run};
use crate::common::TempDir;

const JOB: &str = "night";

/// A case whose spills are written into a local directory, and a bucket.
struct Scene {
    directory: TempDir,
    case: Case,
    server: Server,
    /// The files of a build by one loader, by name.
    expected: Result<HashMap<String, Vec<u8>>>,
}

impl Scene {
    fn new(mut case: Case) -> Scene {
        PERMITS_LITTLE_MEMORY.store(true, Ordering::Relaxed); // of the spills and parts of a case
        let directory = TempDir::new();
        let temp_dir = directory.path().join("temp");
        std::fs::create_dir(&temp_dir).unwrap();
        case.options.ordered(false).durable(false).temp_dir(temp_dir);
        let store = directory.path().join("one");
        let expected = case.by_loader(&store).map(|_| files(&current_directory(&store)));
        Scene { directory, case, server: Server::new(), expected }
    }

    /// Returns a scene with a generation in the bucket that is replaced.
    fn small() -> Scene {
        let scene = Scene::new(small("a"));
        scene.push_other();
        scene
    }

    /// Pushes another store.
    fn push_other(&self) -> String {
        run(push(self.server.bucket(), self.other_store(), self.journals())).unwrap()
    }

    fn other_store(&self) -> PathBuf {
        let store = self.directory.path().join("other");
        if !store.exists() {
            build(&store, 1);
        }
        store
    }

    fn journals(&self) -> PathBuf {
        self.directory.path().join("journals")
    }

    fn spills(&self) -> PathBuf {
        self.directory.path().join("spills")
    }

    fn put_spills(&self) -> Result<Vec<SpillReceipt>> {
        let put = |task| {
            let receipt = self.case.spill(&self.spills(), task)?;
            run(self.server.bucket().put_spill(JOB, self.spills(), &receipt, &self.case.options))?;
            receipt.to_string().parse()
        };
        (0..self.case.tasks.len()).rev().map(put).collect()
    }

    fn build_part(&self, spills: &[SpillReceipt], part: u64) -> Result<PartReceipt> {
        let Case { plan, options, .. } = &self.case;
        let receipt = run(self.server.bucket().build_part(JOB, plan, spills.to_vec(), part, options))?;
        receipt.to_string().parse()
    }

    fn build_parts(&self, spills: &[SpillReceipt]) -> Result<Vec<PartReceipt>> {
        (0..self.case.plan.parts()).rev().map(|part| self.build_part(spills, part)).collect()
    }

    fn publish(&self, spills: &[SpillReceipt], parts: &[PartReceipt]) -> Result<PublishedParts> {
        let Case { plan, options, .. } = &self.case;
        run(self.server.bucket().publish_parts(JOB, plan, spills.to_vec(), parts.to_vec(), options))
    }

    fn all_steps(&self) -> Result<PublishedParts> {
        let spills = self.put_spills()?;
        let parts = self.build_parts(&spills)?;
        self.publish(&spills, &parts)
    }

    fn current(&self) -> String {
        run(self.server.bucket().current()).unwrap().unwrap()
    }

    /// Returns the names of the objects of the job.
    fn left(&self) -> Vec<String> {
        let objects = self.server.objects();
        let mut names: Vec<_> =
            objects.keys().filter_map(|name| name.strip_prefix("parts-night/").map(str::to_string)).collect();
        names.sort();
        names
    }

    /// Checks that a published generation has the bytes of a build by one loader, and that nothing else is left.
    #[track_caller]
    fn check_published(&self, published: &PublishedParts) {
        self.check_files(published);
        let left = self.left();
        assert!(left.len() == 1 && left[0].starts_with("publication-"), "{left:?}");
    }

    /// Checks that a published generation has the bytes of a build by one loader, and that nothing temporary is left.
    #[track_caller]
    fn check_files(&self, published: &PublishedParts) {
        let found = self.files_of(&published.generation);
        let expected = self.expected.as_ref().unwrap();
        let names = |files: &HashMap<String, Vec<u8>>| {
            let mut names: Vec<_> = files.keys().cloned().collect();
            names.sort();
            names
        };
        assert_eq!(names(&found), names(expected));
        assert!(found == *expected);
        let temporary: Vec<_> = std::fs::read_dir(self.directory.path().join("temp")).unwrap().collect();
        assert!(temporary.is_empty(), "{temporary:?}");
    }

    fn files_of(&self, generation: &str) -> HashMap<String, Vec<u8>> {
        let of = |name: &str| name.strip_prefix(generation)?.strip_prefix('/').map(str::to_string);
        self.server.objects().into_iter().filter_map(|(name, bytes)| Some((of(&name)?, bytes))).collect()
    }

    /// Returns the names of the generations that have a manifest.
    fn complete(&self) -> Vec<String> {
        let generations = run(self.server.bucket().generations()).unwrap();
        generations.into_iter().filter(|generation| generation.is_complete).map(|generation| generation.name).collect()
    }

    fn history(&self) -> Vec<String> {
        run(self.server.bucket().history()).unwrap().into_iter().map(|version| version.name).collect()
    }
}

async fn push(bucket: Bucket, store: PathBuf, journals: PathBuf) -> Result<String> {
    let mut options = PushOptions::new();
    options.journal_dir(journals);
    Ok(bucket.push_with(store, &options).await?.generation)
}

#[track_caller]
fn check_error<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, object: &str) {
    let error: Error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(object), "expected {object} in: {error}");
}

/// Returns what a repeated call returns.
fn repeated(published: &PublishedParts) -> PublishedParts {
    PublishedParts { keys_before: None, ..published.clone() }
}

#[test]
fn a_server_that_states_no_length_with_a_range_is_read() {
    let scene = Scene::small();
    scene.server.hide_lengths();
    scene.check_published(&scene.all_steps().unwrap());
}

/// The last phase of a publication counts the bytes that the server copies, and those of the texts.
#[test]
fn a_publication_reports_its_progress() {
    let scene = Scene::small();
    let published = scene.all_steps().unwrap();
    let bytes: usize = scene.files_of(&published.generation).values().map(Vec::len).sum();
    let progress = settings_of(&scene.case.options).progress;
    assert_eq!(progress.phase(), Phase::Copy);
    assert_eq!((progress.done(), progress.total()), (bytes as u64, bytes as u64));
}

/// Random pairs over random tasks, parts, memory, encodings, preambles, merge functions and duplicates.
#[test]
fn has_the_bytes_of_a_build_by_one_loader() {
    let (mut published, mut refused) = (0, 0);
    for seed in 0..40 {
        let scene = Scene::new(Case::random(seed));
        if seed % 3 == 0 {
            scene.server.set_copies([Copies::Unconditional, Copies::None][usize::from(seed % 2 == 0)]);
        }
        match (scene.all_steps(), &scene.expected) {
            (Ok(result), Ok(_)) => {
                scene.check_published(&result);
                assert_eq!(scene.current(), result.generation, "seed {seed}");
                published += 1;
            }
            (found, Err(expected)) => {
                assert_eq!(found.unwrap_err().kind(), expected.kind(), "seed {seed}");
                assert!(!scene.server.objects().contains_key("current"));
                refused += 1;
            }
            (found, Ok(_)) => panic!("seed {seed}: {found:?}"),
        }
    }
    assert!(published > 20 && refused > 0, "{published} {refused}");
}

/// All steps are killed at every request, from the first spill to the removal of the spills, and those that failed are
/// repeated.
#[test]
fn steps_that_were_killed_are_repeated() {
    for request in 0.. {
        let scene = Scene::small();
        scene.server.set_fault(Fault::From(request));
        let spills = scene.put_spills();
        let parts = spills.as_ref().map_err(Clone::clone).and_then(|spills| scene.build_parts(spills));
        let attempt = match (&spills, &parts) {
            (Ok(spills), Ok(parts)) => scene.publish(spills, parts),
            (Err(error), _) | (_, Err(error)) => Err(error.clone()),
        };
        scene.server.set_fault(Fault::None);
        if let Err(error) = &attempt {
            assert_eq!(error.kind(), ErrorKind::Io, "request {request}: {error}");
        }
        let spills = spills.unwrap_or_else(|_| scene.put_spills().unwrap());
        let parts = parts.unwrap_or_else(|_| scene.build_parts(&spills).unwrap());
        let published = scene.publish(&spills, &parts).unwrap();
        scene.check_files(&published);
        let of_receipt = |name: &String| spills.iter().any(|receipt| receipt.file_name() == *name);
        let (of_tasks, left): (Vec<_>, Vec<_>) = scene.left().into_iter().partition(|name| name.starts_with("task-"));
        assert!(!of_tasks.iter().any(of_receipt), "{of_tasks:?}");
        assert!(left.len() == 1 && left[0].starts_with("publication-"), "{left:?}");
        assert_eq!((scene.current(), scene.history().len()), (published.generation.clone(), 2), "request {request}");
        assert_eq!(scene.complete().len(), 2, "request {request}");
        assert!(attempt.as_ref().is_ok_and(|first| repeated(first) == repeated(&published)) || attempt.is_err());
        if attempt.is_ok() {
            assert!(request > 40, "{request}");
            break; // the last requests are those that remove the spills, whose errors are ignored
        }
    }
}

/// The reply to any one request of a publication is lost.
#[test]
fn a_lost_reply_of_a_publication_loses_nothing() {
    for request in 0.. {
        let scene = Scene::small();
        let spills = scene.put_spills().unwrap();
        let parts = scene.build_parts(&spills).unwrap();
        scene.server.set_fault(Fault::LostReply(request));
        _ = scene.publish(&spills, &parts);
        let is_last = scene.server.requests() <= request;
        scene.server.set_fault(Fault::None);
        let published = scene.publish(&spills, &parts).unwrap();
        scene.check_published(&published);
        assert_eq!((scene.current(), scene.history().len()), (published.generation, 2), "request {request}");
        if is_last {
            break;
        }
    }
}

#[test]
fn a_repeated_publication_changes_nothing() {
    let scene = Scene::small();
    let spills = scene.put_spills().unwrap();
    let parts = scene.build_parts(&spills).unwrap();
    let published = scene.publish(&spills, &parts).unwrap();
    assert_eq!((published.content.keys, published.keys_before, published.content.shards), (80, Some(40), 4));
    let published = repeated(&published);
    let before = scene.server.objects();
    assert_eq!(scene.publish(&spills, &parts).unwrap(), published);
    assert_eq!(scene.server.objects(), before);
    let other = scene.push_other();
    assert_eq!(scene.publish(&spills, &parts).unwrap(), published);
    assert_eq!(scene.current(), other);
}

/// Inputs A, B and A again under the name of one job.
#[test]
fn an_input_that_returns_is_published_again() {
    let mut scene = Scene::small();
    for input in ["a", "b", "a", "a"] {
        scene.case = Case { options: scene.case.options.clone(), ..small(input) };
        let spills = scene.put_spills().unwrap();
        let parts = scene.build_parts(&spills).unwrap();
        let before = scene.current();
        let published = scene.publish(&spills, &parts).unwrap();
        assert_ne!(published.generation, before);
        assert_eq!(scene.current(), published.generation);
        assert_eq!(scene.publish(&spills, &parts).unwrap(), repeated(&published), "a retry");
        let is_expected = scene.files_of(&published.generation) == *scene.expected.as_ref().unwrap();
        assert_eq!(is_expected, input == "a");
    }
}

/// A publication is killed at any request; then the store is changed, and the publication retried. What was current before
/// the change is not brought back, and another run of the job is published.
#[test]
fn a_retry_brings_back_nothing() {
    let collect = |scene: &Scene| _ = run(scene.server.bucket().gc(Duration::ZERO)).unwrap();
    let roll_back = |scene: &Scene| _ = run(scene.server.bucket().rollback(None));
    let push = |scene: &Scene| _ = scene.push_other();
    type Changes<'a> = &'a [&'a dyn Fn(&Scene)];
    let changes: [(bool, Changes<'_>); 4] =
        [(false, &[&roll_back]), (false, &[&push]), (true, &[&roll_back, &collect]), (true, &[&push, &collect])];
    for (at, (collects, changes)) in changes.into_iter().enumerate() {
        let mut were_current = 0;
        for request in 0.. {
            let scene = Scene::small();
            scene.push_other();
            let spills = scene.put_spills().unwrap();
            let parts = scene.build_parts(&spills).unwrap();
            let old = scene.current();
            scene.server.set_fault(Fault::From(request));
            let first = scene.publish(&spills, &parts);
            scene.server.set_fault(Fault::None);
            let was_current = scene.current() != old;
            were_current += usize::from(was_current);
            changes.iter().for_each(|change| change(&scene));
            let before = scene.current();
            match scene.publish(&spills, &parts) {
                Ok(published) => {
                    let expected = if was_current { before } else { published.generation };
                    assert_eq!(scene.current(), expected, "change {at}, request {request}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
                    assert_eq!(scene.current(), before, "change {at}, request {request}");
                    // what `gc` removed may have been current
                    assert!(was_current || collects, "change {at}, request {request}: {error}");
                }
            }
            let again = scene.all_steps().unwrap();
            assert_eq!(scene.current(), again.generation);
            if first.is_ok() {
                break;
            }
        }
        assert!(were_current > 1, "{were_current}");
    }
}

/// Spills of a version without random bytes: a new run is not told from a retry, so it is refused.
#[test]
fn without_random_bytes_a_publication_that_is_not_current_is_refused() {
    let scene = Scene::small();
    let of_earlier_version = |receipt: SpillReceipt| {
        let text = receipt.to_string();
        format!("{}}}", text.split_once(",\"run\"").unwrap().0).parse().unwrap()
    };
    let spills: Vec<SpillReceipt> = scene.put_spills().unwrap().into_iter().map(of_earlier_version).collect();
    let parts = scene.build_parts(&spills).unwrap();
    let published = scene.publish(&spills, &parts).unwrap();
    assert_eq!(scene.publish(&spills, &parts).unwrap(), repeated(&published));
    let other = scene.push_other();
    check_error(scene.publish(&spills, &parts), ErrorKind::Superseded, "/parts-night/publication-");
    assert_eq!(scene.current(), other);
}

/// Another call with the same receipts runs, from beginning to end, before any one request of the first.
#[test]
fn of_two_publications_of_the_same_parts_both_have_the_same_result() {
    for request in 0.. {
        let scene = Scene::small();
        let spills = scene.put_spills().unwrap();
        let parts = scene.build_parts(&spills).unwrap();
        let (bucket, result) = (scene.server.bucket(), Arc::new(Mutex::new(None)));
        let (plan, options, to) = (scene.case.plan.clone(), scene.case.options.clone(), result.clone());
        let (spills_of_other, parts_of_other) = (spills.clone(), parts.clone());
        scene.server.before(request, async move {
            let published = bucket.publish_parts(JOB, &plan, spills_of_other, parts_of_other, &options).await;
            *to.lock().unwrap() = Some(published);
        });
        let first = scene.publish(&spills, &parts);
        if !scene.server.has_run() {
            break;
        }
        let second = result.lock().unwrap().take().unwrap().unwrap();
        assert_eq!(repeated(&first.unwrap()), repeated(&second), "request {request}");
        scene.check_published(&second);
        assert_eq!((scene.current(), scene.history().len()), (second.generation, 2), "request {request}");
    }
}

/// Another generation is pushed before any one request of the publication, which then fails or comes first or last.
#[test]
fn a_publication_that_loses_is_repeated() {
    let mut lost = 0;
    for request in 0.. {
        let scene = Scene::small();
        let spills = scene.put_spills().unwrap();
        let parts = scene.build_parts(&spills).unwrap();
        let (bucket, store, journals) = (scene.server.bucket(), scene.directory.path().join("third"), scene.journals());
        build(&store, 2);
        scene.server.before(request, async move { _ = push(bucket, store, journals).await.unwrap() });
        let first = scene.publish(&spills, &parts);
        if !scene.server.has_run() {
            break;
        }
        if let Err(error) = first {
            assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
            lost += 1;
        }
        let published = scene.publish(&spills, &parts).unwrap();
        scene.check_published(&published);
        let history = scene.history();
        assert_eq!(history.len(), 3, "request {request}: once in the history");
        assert!(history[1..].contains(&published.generation), "{history:?}");
    }
    assert!(lost > 10, "{lost}");
}

/// The publisher is killed after it replaced `current`, and then another generation is published.
#[test]
fn a_publication_that_was_current_is_not_repeated() {
    let prepare = || {
        for request in 0.. {
            let scene = Scene::small();
            let old = scene.current();
            let spills = scene.put_spills().unwrap();
            let parts = scene.build_parts(&spills).unwrap();
            scene.server.set_fault(Fault::From(request));
            let attempt = scene.publish(&spills, &parts);
            scene.server.set_fault(Fault::None);
            if scene.current() != old {
                assert_eq!(attempt.unwrap_err().kind(), ErrorKind::Io);
                return (scene, spills, parts);
            }
        }
        unreachable!()
    };
    let (scene, spills, parts) = prepare();
    let generation = scene.current();
    let other = scene.push_other();
    let published = scene.publish(&spills, &parts).unwrap();
    assert_eq!((published.generation.clone(), scene.current()), (generation, other));
    scene.check_published(&published);

    let (scene, spills, parts) = prepare();
    let generation = scene.current();
    let other = scene.push_other();
    let report = run(scene.server.bucket().gc(Duration::ZERO)).unwrap();
    assert!(report.removed.contains(&generation));
    check_error(scene.publish(&spills, &parts), ErrorKind::Superseded, "/parts-night/publication-");
    assert_eq!(scene.current(), other);

    let (scene, spills, parts) = prepare();
    let previous = run(scene.server.bucket().rollback(None)).unwrap();
    check_error(scene.publish(&spills, &parts), ErrorKind::Superseded, "/parts-night/publication-");
    assert_eq!(scene.current(), previous);
}

/// A publication was interrupted while it copied, and its objects were collected: it begins again.
#[test]
fn a_publication_whose_objects_were_collected_begins_again() {
    let mut collected = 0;
    for request in [14, 17, 20] {
        let scene = Scene::small();
        let spills = scene.put_spills().unwrap();
        let parts = scene.build_parts(&spills).unwrap();
        scene.server.set_fault(Fault::From(request));
        scene.publish(&spills, &parts).unwrap_err();
        scene.server.set_fault(Fault::None);
        let before = scene.left();
        let report = run(scene.server.bucket().gc(Duration::ZERO)).unwrap();
        collected += report.removed.len();
        assert_eq!(scene.left(), before, "gc leaves jobs alone");
        let published = scene.publish(&spills, &parts).unwrap();
        scene.check_published(&published);
        assert_eq!(scene.current(), published.generation);
    }
    assert!(collected > 0);
}

/// A task ran twice with different output: the receipts decide, and the other object is for `clean_parts`.
#[test]
fn a_task_with_two_outputs_is_one_of_them() {
    let scene = Scene::small();
    let other = small("b").spill(&scene.spills(), 1).unwrap();
    run(scene.server.bucket().put_spill(JOB, scene.spills(), &other, &scene.case.options)).unwrap();
    let spills = scene.put_spills().unwrap();
    let both = [spills.clone(), vec![other.clone()]].concat();
    check_error(scene.build_part(&both, 0), ErrorKind::InvalidInput, "of task 1");
    let parts = scene.build_parts(&spills).unwrap();
    let published = scene.publish(&spills, &parts).unwrap();
    assert!(Ok(scene.files_of(&published.generation)) == scene.expected.clone().map_err(|_| ()));
    assert!(scene.left().contains(&other.file_name()));

    let generation = scene.files_of(&published.generation);
    scene.server.put_object("parts-night/notes", b"foreign");
    scene.server.set_time(1_000_100);
    let clean = |job, seconds| run(scene.server.bucket().clean_parts(job, Duration::from_secs(seconds)));
    assert_eq!(clean(Some(JOB), 101).unwrap().jobs, [""; 0]);
    assert_eq!(clean(None, 101).unwrap().jobs, [""; 0]);
    let cleaned = clean(None, 100).unwrap();
    assert_eq!((cleaned.jobs, cleaned.objects), (vec![JOB.to_string()], 2));
    assert_eq!(cleaned.foreign, ["test://data/store/parts-night/notes"]);
    assert_eq!(scene.left(), ["notes"]);
    assert!(scene.files_of(&published.generation) == generation);
    check_error(clean(Some(JOB), 0), ErrorKind::NotFound, "/parts-night");
    check_error(clean(Some("a/b"), 0), ErrorKind::InvalidInput, "a/b");
    assert_eq!(clean(None, 0).unwrap().jobs, [""; 0]);
}

#[test]
fn lost_and_damaged_spills_are_named() {
    let scene = Scene::small();
    let spills = scene.put_spills().unwrap();
    let name = format!("parts-night/{}", spills[0].file_name());
    let place = format!("test://data/store/{name}");
    let bytes = scene.server.objects()[&name].clone();
    scene.server.delete_object(&name);
    check_error(scene.build_part(&spills, 0), ErrorKind::NotFound, &place);
    for cut in [0, 1, 50, bytes.len() - 1] {
        scene.server.put_object(&name, &bytes[..cut]);
        check_error(scene.build_part(&spills, 0), ErrorKind::Corrupt, &place);
    }
    let other = scene.server.objects()[&format!("parts-night/{}", spills[1].file_name())].clone();
    assert_eq!(other.len(), bytes.len());
    scene.server.put_object(&name, &other);
    check_error(scene.build_part(&spills, 0), ErrorKind::Corrupt, &place);
    // the first byte is in a section of one part, the others in the table and the trailer, which all parts read
    for (at, parts) in [(0, 1), (bytes.len() - 70, 3), (bytes.len() - 1, 3)] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        scene.server.put_object(&name, &damaged);
        let failed: Vec<_> = (0..3).map(|part| scene.build_part(&spills, part)).filter(Result::is_err).collect();
        assert_eq!(failed.len(), parts, "byte {at}");
        failed.into_iter().for_each(|failed| check_error(failed, ErrorKind::Corrupt, &place));
    }
    scene.server.put_object(&name, &bytes);
    scene.build_parts(&spills).unwrap();
    check_error(scene.build_part(&spills, 3), ErrorKind::InvalidInput, "part");
}

/// A local spill that is lost or damaged is not uploaded, and an object of another length is not replaced.
#[test]
fn only_whole_spills_are_uploaded() {
    let scene = Scene::small();
    let receipt = scene.case.spill(&scene.spills(), 0).unwrap();
    let path = scene.spills().join(receipt.file_name());
    let bytes = std::fs::read(&path).unwrap();
    let put = |memory| {
        let mut options = scene.case.options.clone();
        run(scene.server.bucket().put_spill(JOB, scene.spills(), &receipt, options.memory(memory)))
    };
    for memory in [100, 1 << 20] {
        let mut damaged = bytes.clone();
        damaged[10] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        check_error(put(memory), ErrorKind::Corrupt, &receipt.file_name());
        std::fs::write(&path, &bytes[1..]).unwrap();
        check_error(put(memory), ErrorKind::Corrupt, &receipt.file_name());
        std::fs::remove_file(&path).unwrap();
        check_error(put(memory), ErrorKind::NotFound, &receipt.file_name());
        assert!(scene.left().is_empty());

        std::fs::write(&path, &bytes).unwrap();
        put(memory).unwrap();
        put(memory).unwrap();
        let name = format!("parts-night/{}", receipt.file_name());
        assert!(scene.server.objects()[&name] == bytes);
        scene.server.put_object(&name, &bytes[1..]);
        check_error(put(memory), ErrorKind::Corrupt, &receipt.file_name());
        scene.server.delete_object(&name);
    }
}

#[test]
fn lost_and_damaged_shards_and_receipts_are_named_and_nothing_is_published() {
    let scene = Scene::small();
    let old = scene.current();
    let spills = scene.put_spills().unwrap();
    let parts = scene.build_parts(&spills).unwrap();
    let name = scene.left().into_iter().find(|name| name.starts_with("part-")).unwrap();
    let (object, place) = (format!("parts-night/{name}"), format!("test://data/store/parts-night/{name}"));
    let bytes = scene.server.objects()[&object].clone();
    scene.server.delete_object(&object);
    check_error(scene.publish(&spills, &parts), ErrorKind::NotFound, &place);
    for cut in [0, 1, bytes.len() - 1] {
        scene.server.put_object(&object, &bytes[..cut]);
        check_error(scene.publish(&spills, &parts), ErrorKind::Corrupt, &place);
        check_error(scene.build_parts(&spills), ErrorKind::Corrupt, &place);
    }
    let mut damaged = bytes.clone();
    damaged[7] ^= 1;
    scene.server.put_object(&object, &damaged);
    check_error(scene.publish(&spills, &parts), ErrorKind::Corrupt, &place);
    scene.server.put_object(&object, &bytes);

    check_error(scene.publish(&spills, &parts[1..]), ErrorKind::InvalidInput, "found none of part");
    check_error(scene.publish(&spills[1..], &parts), ErrorKind::InvalidInput, "of other spills");
    let foreign = PartPlan::even(*scene.case.plan.spec(), 4).unwrap();
    let options = &scene.case.options;
    let of_other_plan = scene.server.bucket();
    let of_other_plan = run(of_other_plan.publish_parts(JOB, &foreign, spills.clone(), parts.clone(), options));
    check_error(of_other_plan, ErrorKind::InvalidInput, "plan");
    let mut ordered = options.clone();
    ordered.ordered(true);
    let bucket = scene.server.bucket();
    let ordered = run(bucket.publish_parts(JOB, &scene.case.plan, spills.clone(), parts.clone(), &ordered));
    check_error(ordered, ErrorKind::Unsupported, "key file");
    assert_eq!(scene.current(), old);
    assert_eq!(scene.complete(), [old]);

    let published = scene.publish(&spills, &parts).unwrap();
    scene.check_published(&published);
}

/// One request per spill; per spill and part, one for its end and one for its section; each byte is read once.
#[test]
fn requests_and_bytes_are_linear() {
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 3, 4).unwrap();
    let mut options = BuildOptions::new();
    options.spec(spec).threads(1);
    let (tasks, parts) = (10_u64, 5_u64);
    let pair = |task: u64, key: u64| Pair { key: key * tasks + task, preamble: vec![], value: vec![7; 500] };
    let scene = Scene::new(Case {
        plan: PartPlan::even(spec, parts).unwrap(),
        tasks: (0..tasks).map(|task| (0..400).map(|key| pair(task, key)).collect()).collect(),
        options,
        spill_memory: 64 << 20,
    });
    let spills = scene.put_spills().unwrap();
    assert_eq!(scene.server.requests(), tasks);
    assert!(scene.server.take_log().iter().all(|request| request.method == "put"));

    let receipts = scene.build_parts(&spills).unwrap();
    let log = scene.server.take_log();
    let gets: Vec<_> = log.iter().filter(|request| request.method == "get").collect();
    assert!(gets.iter().all(|request| request.object.starts_with("parts-night/task-")), "{gets:?}");
    assert_eq!(gets.len() as u64, 2 * tasks * parts, "two per spill and part");
    let (read, written): (u64, u64) =
        (gets.iter().map(|request| request.bytes).sum(), spills.iter().map(SpillReceipt::bytes).sum());
    let tables = tasks * parts * (parts * 24 + 60);
    assert!(read <= written * 105 / 100 + tables, "{read} of {written}");
    let shards = receipts.iter().map(PartReceipt::shards).sum::<u64>();
    assert_eq!(log.iter().filter(|request| request.method == "put").count() as u64, shards);

    let published = scene.publish(&spills, &receipts).unwrap();
    scene.check_published(&published);
    let log = scene.server.take_log();
    assert_eq!(log.iter().filter(|request| request.method == "copy").count() as u64, shards);
    let of_shards = log.iter().filter(|request| request.method == "get" && request.object.ends_with(".shard"));
    assert!(of_shards.clone().all(|request| request.bytes == spec.shard_index_len()));
    assert_eq!(of_shards.count() as u64, shards);
}

/// An object is copied by the server, or through this process in one request or in parts.
#[test]
fn copies_have_the_same_bytes() {
    let server = Server::new();
    let bucket = server.bucket();
    let bytes: Vec<u8> = (0..1000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    server.put_object("from", &bytes);
    let stated = Checksum::of(&bytes);
    let copy =
        |from: &str, to: &str, stated, part| run(bucket.root.copy_object(from, to, stated, part, &Progress::default()));
    for copies in [Copies::All, Copies::Unconditional, Copies::None] {
        server.set_copies(copies);
        for part in [100, 333, 1000, 5000] {
            copy("from", "to", stated, part).unwrap();
            assert!(server.objects()["to"] == bytes, "{copies:?} {part}");
            copy("from", "to", stated, part).unwrap();
            server.delete_object("to");
        }
        let lost = copy("nothing", "to", stated, 100).unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::NotFound, "{lost}");
    }
    for part in [100, 5000] {
        for wrong in [Checksum { crc32: 0, ..stated }, Checksum { bytes: 999, ..stated }] {
            assert_eq!(copy("from", "to", wrong, part).unwrap_err().kind(), ErrorKind::Corrupt);
            assert!(!server.objects().contains_key("to"));
        }
    }
}

/// Values of meshes stay in the bucket: their fragments are not looked for in the sparse files that the generation is composed of.
#[test]
fn meshes_are_published() {
    let mut case = small("a");
    let spec = case.plan.spec().with_minishard_index_encoding(Encoding::Gzip).with_data_encoding(Encoding::Gzip);
    case.plan = PartPlan::even(spec, 3).unwrap();
    case.options.spec(spec).info(r#"{"@type": "neuroglancer_multilod_draco"}"#).on_duplicate(OnDuplicate::KeepFirst);
    case.tasks.iter_mut().flatten().for_each(|pair| pair.preamble = b"fragments".to_vec());
    let scene = Scene::new(case);
    let published = scene.all_steps().unwrap();
    scene.check_published(&published);
}

/// The futures can be spawned on a runtime with threads.
#[test]
fn futures_are_send() {
    fn is_send<T: Send>(_: T) {}
    let scene = Scene::new(small("a"));
    let (bucket, Case { plan, options, .. }) = (scene.server.bucket(), &scene.case);
    let receipt = scene.case.spill(&scene.spills(), 0).unwrap();
    is_send(bucket.put_spill(JOB, scene.spills(), &receipt, options));
    is_send(bucket.build_part(JOB, plan, vec![receipt.clone()], 0, options));
    is_send(bucket.publish_parts(JOB, plan, vec![receipt], Vec::<PartReceipt>::new(), options));
    is_send(bucket.clean_parts(None, Duration::ZERO));
}

#[test]
fn a_job_with_too_many_foreign_objects_is_not_held_in_memory() {
    let scene = Scene::small();
    (0..=100_000).for_each(|number| scene.server.put_object(&format!("parts-night/{number}"), b""));
    let error = run(scene.server.bucket().clean_parts(Some(JOB), Duration::ZERO)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("more than 100000 others"), "{error}");
}
