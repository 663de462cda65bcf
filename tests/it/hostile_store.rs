//! In a directory with arbitrary entries under the names that a store uses, no foreign file is changed or removed and
//! no call blocks forever: every operation returns an error or the right result.
//!
//! The entire directory, and the targets of links next to it, are compared before and after: names, kinds, bytes,
//! modes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::common::generations::{self as generation, id, publish, store_of};
use crate::common::{TempDir, mkfifo};
use sharddb::{BuildOptions, ErrorKind, Result, ShardDb, Store};

/// Upper bound on the run time of an operation. It only ends a test whose operation hangs, also on a busy disk.
const WATCHDOG: Duration = Duration::from_secs(300);

/// A directory entry: kind and content, mode.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    what: Vec<u8>,
    mode: u32,
}

/// All entries below a directory, except those that `is_own` names.
fn tree(root: &Path) -> BTreeMap<PathBuf, Node> {
    let mut nodes = BTreeMap::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let kind = metadata.file_type();
            let what = match kind {
                _ if kind.is_symlink() => path.read_link().unwrap().as_os_str().as_bytes().to_vec(),
                _ if kind.is_dir() => {
                    directories.push(path.clone());
                    b"directory".to_vec()
                }
                _ if kind.is_fifo() => b"fifo".to_vec(),
                _ => fs::read(&path).unwrap(),
            };
            nodes.insert(path.strip_prefix(root).unwrap().to_path_buf(), Node { what, mode: metadata.mode() });
        }
    }
    nodes
}

/// A directory `store`, and next to it a directory `outside` and a complete generation `built`.
struct Scene(TempDir);

impl Scene {
    fn new() -> Scene {
        let scene = Scene(TempDir::new());
        fs::create_dir(scene.store()).unwrap();
        fs::create_dir(scene.path("outside")).unwrap();
        for (name, text) in [("victim", "first line\nsecond line\n"), ("empty", ""), ("lines", "gen-0000000001\n")] {
            fs::write(scene.path("outside").join(name), text).unwrap();
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// Calls every operation of a store; returns the results by name.
    fn try_everything(&self) -> Vec<(&'static str, Result<()>)> {
        let (path, built) = (self.store(), TempDir::new());
        publish(built.path(), 2);
        let built_generation = generation::directory_of(built.path(), 1);
        let (done, wait) = channel();
        let thread = std::thread::spawn(move || {
            let path = path.as_path();
            let writer = || Store::open(path)?.writer();
            let operations: [(&str, &dyn Fn() -> Result<()>); 10] = [
                ("open", &|| ShardDb::open(path).map(drop)),
                ("generations", &|| Store::open(path).and_then(|store| store.generations()).map(drop)),
                ("gc", &|| writer().and_then(|writer| writer.gc(1)).map(drop)),
                ("rollback", &|| writer().and_then(|writer| writer.rollback(None)).map(drop)),
                ("rollback to", &|| writer().and_then(|writer| writer.rollback(Some(id(1)))).map(drop)),
                ("create", &|| Store::create(path).map(drop)),
                ("a build that fails", &|| build(path, false)),
                ("build", &|| build(path, true)),
                ("adopt", &|| Store::create(path)?.writer()?.adopt(&built_generation).map(drop)),
                ("adopt by moving", &|| {
                    Store::create(path)?.writer()?.adopt_by_moving(copy_of(&built_generation)).map(drop)
                }),
            ];
            for (name, operation) in operations {
                _ = done.send((name, operation()));
            }
            drop(built);
        });
        let mut results = Vec::new();
        loop {
            match wait.recv_timeout(WATCHDOG) {
                Ok(result) => results.push(result),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("an operation hangs; those before it: {results:?}"),
            }
        }
        thread.join().unwrap();
        results
    }
}

/// A copy of a generation, in a directory next to it that is removed with it.
fn copy_of(generation: &Path) -> PathBuf {
    let copy = generation.parent().unwrap().join("copies/of");
    fs::create_dir_all(&copy).unwrap();
    for name in generation::names(generation) {
        fs::write(copy.join(&name), fs::read(generation.join(&name)).unwrap()).unwrap();
    }
    copy
}

fn build(path: &Path, finish: bool) -> Result<()> {
    let mut options = BuildOptions::new();
    options.memory(16 << 20).threads(1);
    let mut loader = options.create(path)?;
    loader.insert(1, b"one")?;
    if finish {
        loader.finish()?;
    }
    Ok(())
}

/// Creates an entry of some kind at a path.
type Put = fn(&Scene, &Path);

/// The kinds of foreign entries that may be under a name of the store.
const KINDS: [(&str, Put); 10] = [
    ("a link to a file", |scene, path| symlink(scene.path("outside/victim"), path).unwrap()),
    ("a link to an empty file", |scene, path| symlink(scene.path("outside/empty"), path).unwrap()),
    ("a link to a directory", |scene, path| symlink(scene.path("outside"), path).unwrap()),
    ("a link to nothing", |scene, path| symlink(scene.path("outside/none"), path).unwrap()),
    ("a FIFO", |_, path| mkfifo(path)),
    ("a directory", |_, path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("1.tex"), "precious").unwrap();
    }),
    ("a hard link", |scene, path| fs::hard_link(scene.path("outside/victim"), path).unwrap()),
    ("a hard link to lines", |scene, path| fs::hard_link(scene.path("outside/lines"), path).unwrap()),
    ("a hard link to an empty file", |scene, path| fs::hard_link(scene.path("outside/empty"), path).unwrap()),
    ("a file", |_, path| fs::write(path, "pid=4711 host=alpha\n").unwrap()),
];

/// The names that a store uses and that a writer may leave.
const NAMES: [&str; 11] = [
    "lock",
    "current",
    "info",
    "gen-0000000001",
    "gen-0000000007",
    "tmp-gen-4711-18a3f",
    "tmp-gc-gen-0000000001",
    "tmp-current",
    "tmp-lock",
    "history",
    "tmp-history",
];

/// With foreign files next to it, no name makes the directory a store: nothing changes, whatever the entry is.
#[test]
fn nothing_changes_in_a_directory_of_somebody_else() {
    for name in NAMES {
        for (kind, make) in KINDS {
            let scene = Scene::new();
            if names_a_generation(name, kind) {
                continue; // then the directory is a store
            }
            make(&scene, &scene.store().join(name));
            fs::create_dir(scene.store().join("tmp-thesis")).unwrap();
            fs::write(scene.store().join("tmp-thesis/1.tex"), "precious").unwrap();
            let before = tree(scene.0.path());
            for (verb, result) in scene.try_everything() {
                let error = result.expect_err(verb);
                let path = error.path().unwrap();
                assert!(path.starts_with(scene.store()), "{name}, {kind}, {verb}: {error}");
                if verb != "open" {
                    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}, {kind}, {verb}: {error}");
                }
            }
            assert_eq!(tree(scene.0.path()), before, "{name}, {kind}");
        }
    }
}

/// As the only entry of a directory: a foreign entry stays unchanged, whether the directory is taken for a store or
/// not.
#[test]
fn nothing_of_somebody_else_changes_under_a_name_of_a_store() {
    for name in NAMES {
        for (kind, make) in KINDS {
            let scene = Scene::new();
            make(&scene, &scene.store().join(name));
            let before = tree(scene.0.path());
            scene.try_everything();
            // a file with other hard links, in place of a lock or a link of a store, is replaced by a file of the store
            let replaced = name == "lock" && kind.starts_with("a hard link to") || names_a_generation(name, kind);
            check_foreign(&before, &tree(scene.0.path()), name, kind, replaced);
        }
    }
}

/// In a store: a foreign entry stays unchanged, and a publish is right or returns an error.
#[test]
fn nothing_of_somebody_else_changes_in_a_store() {
    for name in NAMES.into_iter().chain(["gen-0000000001/lease", "gen-0000000001/notes", "gen-0000000002/lease"]) {
        for (kind, make) in KINDS {
            let scene = Scene::new();
            store_of(&scene.store(), 2);
            let path = scene.store().join(name);
            match path.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&path).unwrap(),
                Ok(_) => fs::remove_file(&path).unwrap(),
                Err(_) => {}
            }
            make(&scene, &path);
            let before = tree(scene.0.path());
            scene.try_everything();
            let after = tree(scene.0.path());
            // an entry under the store's own name, with content or of a kind that a store may have, belongs to the
            // store
            let own = match name {
                "lock" | "history" => kind.starts_with("a hard link to"),
                "current" => kind.contains("link") || kind == "a file",
                "tmp-lock" | "tmp-current" | "tmp-history" => kind.starts_with("a hard link to"),
                _ if name.ends_with("/lease") => kind.starts_with("a hard link") || kind == "a file",
                // gc removes a link to a generation, as a link
                _ => kind.starts_with("a link"),
            };
            check_foreign(&before, &after, name, kind, own);
        }
    }
}

/// A file `current` with the name of a generation makes a store, even if it has other hard links.
fn names_a_generation(name: &str, kind: &str) -> bool {
    name == "current" && kind == "a hard link to lines"
}

/// Asserts that everything outside is unchanged, and the entry under the name too unless it is the store's own.
#[track_caller]
fn check_foreign(before: &BTreeMap<PathBuf, Node>, after: &BTreeMap<PathBuf, Node>, name: &str, kind: &str, own: bool) {
    let hostile = Path::new("store").join(name);
    for (path, node) in before {
        let watched = path.starts_with("outside") || !own && path.starts_with(&hostile);
        if watched {
            assert_eq!(after.get(path), Some(node), "{name}, {kind}: {}", path.display());
        }
    }
    let outside = |tree: &BTreeMap<PathBuf, Node>| tree.keys().filter(|path| path.starts_with("outside")).count();
    assert_eq!(outside(before), outside(after), "{name}, {kind}");
}

/// The first edition deleted every file that begins with `tmp-`, even in a build that failed.
#[test]
fn files_that_begin_with_tmp_stay_in_a_store() {
    let scene = Scene::new();
    store_of(&scene.store(), 2);
    for name in ["tmp-thesis", "tmp-gen-1", "tmp-gen-thesis", "tmp-gc-gen-1"] {
        fs::create_dir(scene.store().join(name)).unwrap();
        fs::write(scene.store().join(name).join("1.tex"), "precious").unwrap();
    }
    fs::write(scene.store().join("tmp-notes.txt"), "precious").unwrap();
    let mine = |tree: BTreeMap<PathBuf, Node>| {
        tree.into_iter().filter(|(path, _)| path.to_str().unwrap().starts_with("store/tmp-")).collect::<Vec<_>>()
    };
    let before = mine(tree(scene.0.path()));
    assert_eq!(before.len(), 9);
    for (verb, result) in scene.try_everything() {
        assert!(result.is_ok() || verb.starts_with("rollback"), "{verb}: {result:?}"); // gc leaves no earlier one
    }
    assert_eq!(mine(tree(scene.0.path())), before);
}

/// A directory of releases with a link to the latest of them.
#[test]
fn releases_with_a_link_are_no_store() {
    let scene = Scene::new();
    for release in 1..=3 {
        fs::create_dir_all(scene.store().join(format!("releases/{release}"))).unwrap();
    }
    fs::create_dir(scene.store().join("tmp-uploads")).unwrap();
    fs::write(scene.store().join("tmp-uploads/1.png"), "precious").unwrap();
    symlink("releases/3", scene.store().join("current")).unwrap();
    let before = tree(scene.0.path());
    for (verb, result) in scene.try_everything() {
        result.expect_err(verb);
    }
    assert_eq!(tree(scene.0.path()), before);
}
