//! A local read that fails is the error of a push or a pull: nothing is published, nothing that was there changes, and the
//! next attempt succeeds.

#![cfg(unix)]

use std::collections::HashMap;
use std::path::PathBuf;

use rustix::io::Errno;
use sharddb::internal::fs::disk::Watch;
use sharddb_format::{ErrorKind, Result};

use super::PushOptions;
use super::testing::{Fault, Server, build, current_directory, files, run};
use crate::common::TempDir;

const ERRORS: [Errno; 5] = [Errno::IO, Errno::ACCESS, Errno::MFILE, Errno::NFILE, Errno::STALE];

type Attempt = fn(&Scene) -> Result<()>;

/// What is tried, the scene before it, and the number of reads without which it succeeds. A push does without the lease of the
/// generation, which is found and opened, and a pull without the old target of `current`, and the removal of its directory,
/// which was moved. An interrupted attempt had made some requests.
type Case = (&'static str, fn() -> Scene, Attempt, usize);

const CASES: [Case; 4] = [
    ("push", Scene::before_push, Scene::push, 2),
    ("continued push", || Scene::before_push().interrupted(15, Scene::push), Scene::push, 2),
    ("pull", Scene::before_pull, Scene::pull, 3),
    ("continued pull", || Scene::before_pull().interrupted(5, Scene::pull), Scene::pull, 3),
];

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// There are fewer reads.
    None,
    Reported,
    /// The attempt succeeded all the same.
    Unneeded,
}

/// A bucket, a local store that is pushed to it, and one that is pulled from it.
struct Scene {
    directory: TempDir,
    server: Server,
}

impl Scene {
    /// A scene with version 1 everywhere, and a new version 2 in `store`.
    fn before_push() -> Scene {
        let scene = Scene { directory: TempDir::in_memory(), server: Server::new() };
        build(&scene.path("store"), 1);
        scene.push().unwrap();
        scene.pull().unwrap();
        build(&scene.path("store"), 2);
        scene
    }

    fn before_pull() -> Scene {
        let scene = Scene::before_push();
        scene.push().unwrap();
        scene
    }

    /// Makes an attempt that fails at a request.
    fn interrupted(self, request: u64, attempt: fn(&Scene) -> Result<()>) -> Scene {
        self.server.set_fault(Fault::From(request));
        attempt(&self).unwrap_err();
        self.server.set_fault(Fault::None);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn push(&self) -> Result<()> {
        let mut options = PushOptions::new();
        options.journal_dir(self.path("journals")).part_bytes(200); // less than a shard
        run(self.server.bucket().push_with(self.path("store"), &options)).map(drop)
    }

    fn pull(&self) -> Result<()> {
        run(self.server.bucket().pull(self.path("copy"))).map(drop)
    }

    /// Returns what must not change: the objects of the bucket, and the files of all local generations.
    fn content(&self) -> HashMap<String, Vec<u8>> {
        let local = ["store", "copy"].into_iter().flat_map(|store| {
            let files = files(&self.path(store)).into_iter().filter(|(name, _)| name.starts_with("gen-"));
            files.map(move |(name, bytes)| (format!("{store}/{name}"), bytes))
        });
        self.server.objects().into_iter().chain(local).collect()
    }

    /// Returns the files of the current generation of a local store.
    fn current(&self, store: &str) -> HashMap<String, Vec<u8>> {
        files(&current_directory(&self.path(store)))
    }

    /// Returns the files of the current generation of the bucket.
    fn published(&self) -> HashMap<String, Vec<u8>> {
        let current = run(self.server.bucket().current()).unwrap().unwrap();
        let name_of = |object: &str| object.strip_prefix(&current)?.strip_prefix('/').map(str::to_string);
        self.server.objects().into_iter().filter_map(|(object, bytes)| Some((name_of(&object)?, bytes))).collect()
    }
}

/// Each local read fails once: the first with each error, the others with one.
#[test]
fn one_failed_read_is_reported_and_changes_nothing() {
    for (name, scene, attempt, unneeded) in CASES {
        let effects = (0..).map(|nth| {
            let errors = if nth == 0 { &ERRORS[..] } else { &ERRORS[nth % ERRORS.len()..][..1] };
            errors.iter().fold(Effect::None, |_, error| effect_of(name, &scene(), attempt, nth, *error))
        });
        let effects: Vec<_> = effects.take_while(|effect| *effect != Effect::None).collect();
        assert!(effects.len() > 20, "{name} makes {} reads", effects.len());
        assert_eq!(effects.iter().filter(|effect| **effect == Effect::Unneeded).count(), unneeded, "{name}");
    }
}

/// Lets one read of an attempt fail.
fn effect_of(name: &str, scene: &Scene, attempt: Attempt, nth: usize, error: Errno) -> Effect {
    let (before, old, expected) = (scene.content(), scene.current("copy"), scene.current("store"));
    let watch = Watch::on(scene.directory.path());
    watch.fail_read(error.raw_os_error(), nth);
    println!("{name}: {error} at read {nth}"); // shown if it fails
    let result = attempt(scene);
    let effect = match (watch.heal(), &result) {
        (0, _) => Effect::None,
        (_, Ok(())) => Effect::Unneeded,
        (_, Err(_)) => Effect::Reported,
    };
    if let Err(reported) = result {
        assert_eq!(reported.kind(), ErrorKind::Io, "{reported}");
        assert_eq!(reported.raw_os_error(), Some(error.raw_os_error()), "{reported}");
        assert!(reported.path().is_some_and(|path| path.starts_with(scene.directory.path())), "{reported}");
        let after = scene.content();
        before.iter().for_each(|(name, bytes)| assert!(after.get(name) == Some(bytes), "{name} after {reported}"));
        let current = scene.current("copy");
        assert!(current == old || current == expected, "after {reported}"); // it may have been made current
        attempt(scene).unwrap();
    }
    assert!(scene.published() == expected);
    assert_eq!(scene.current("copy") == expected, name.ends_with("pull"));
    effect
}
