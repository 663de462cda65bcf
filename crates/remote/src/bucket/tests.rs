//! Whatever fails and whoever else publishes: `current` names one complete generation, and nothing is lost.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use object_store::ObjectStoreExt;
use sharddb::Progress;
use sharddb::internal::fs::disk;
use sharddb::{BuildOptions, BulkLoader, ShardDb, Store};
use sharddb_format::{Error, ErrorKind};

use super::testing::{
    Conditions, Event, Fault, Server, build, current_directory, drive, files, remove_digests, run, value,
};
use super::*;
use crate::RemoteOptions;
use crate::bucket_current::BucketCurrent;
use crate::common::TempDir;

const NEVER: Duration = Duration::from_secs(u64::MAX);

/// Two local stores, each with one generation, and a directory for journals.
struct Local {
    directory: TempDir,
}

impl Local {
    fn new() -> Local {
        let local = Local { directory: TempDir::new() };
        build(&local.store(1), 1);
        build(&local.store(2), 2);
        local
    }

    fn store(&self, version: u64) -> PathBuf {
        self.directory.path().join(format!("store{version}"))
    }

    fn files(&self, version: u64) -> HashMap<String, Vec<u8>> {
        files(&current_directory(&self.store(version)))
    }

    fn options(&self) -> PushOptions {
        let mut options = PushOptions::new();
        options.journal_dir(self.directory.path().join("journals")).part_bytes(200); // less than a shard
        options
    }

    fn push(&self, server: &Server, version: u64) -> sharddb_format::Result<Pushed> {
        run(server.bucket().push_with(self.store(version), &self.options()))
    }

    fn copy(&self) -> PathBuf {
        self.directory.path().join("copy")
    }

    fn pull(&self, server: &Server) -> sharddb_format::Result<Pulled> {
        run(server.bucket().pull(self.copy()))
    }

    /// Returns the version of the generation that `current` names. Panics unless every byte of it is right, and a reader
    /// finds its values.
    fn version_of_current(&self, server: &Server) -> Option<u64> {
        let objects = server.objects();
        let current = BucketCurrent::parse(objects.get("current")?).unwrap();
        let found = files_of(&objects, current.generation.as_str());
        let version = (1..=2).find(|version| self.files(*version) == found);
        assert!(version.is_some(), "{} is not whole: {:?}", current.generation, found.keys());
        let reader = drive(&objects, RemoteOptions::new().open()).unwrap();
        let value = drive(&objects, reader.get(7)).unwrap().unwrap();
        assert_eq!(*value, *self::value(7, version?));
        assert!(drive(&objects, reader.get(40)).unwrap().is_none());
        version
    }
}

/// Returns the objects of a generation by their names in it.
fn files_of(objects: &HashMap<String, Vec<u8>>, generation: &str) -> HashMap<String, Vec<u8>> {
    let of = |name: &str| name.strip_prefix(generation)?.strip_prefix('/').map(str::to_string);
    objects.iter().filter_map(|(name, bytes)| Some((of(name)?, bytes.clone()))).collect()
}

/// Returns the names of the generations of which there are objects.
fn generations(server: &Server) -> Vec<String> {
    let mut names: Vec<_> =
        server.objects().keys().filter_map(|name| Some(name.split_once('/')?.0.to_string())).collect();
    names.sort();
    names.dedup();
    names
}

fn gc(server: &Server, older_than: u64) -> sharddb_format::Result<BucketGcReport> {
    run(server.bucket().gc(Duration::from_secs(older_than)))
}

fn current(server: &Server) -> String {
    run(server.bucket().current()).unwrap().unwrap()
}

fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn objects_are_the_files_of_the_generation() {
    let (local, server) = (Local::new(), Server::new());
    let first = local.push(&server, 1).unwrap();
    assert!(first.generation.starts_with("gen-0000000001-"), "{first:?}");
    assert_eq!((first.objects, first.skipped), (local.files(1).len() as u64, 0));
    assert_eq!(first.bytes, local.files(1).values().map(|file| file.len() as u64).sum::<u64>());
    assert_eq!(local.version_of_current(&server), Some(1));

    let second = local.push(&server, 2).unwrap();
    assert!(second.generation.starts_with("gen-0000000002-"), "{second:?}");
    assert_eq!(local.version_of_current(&server), Some(2));
    assert_eq!(files_of(&server.objects(), &first.generation), local.files(1), "never overwritten");
    assert_eq!(generations(&server), [first.generation, second.generation]);
    assert_eq!(server.objects().len(), 1 + local.files(1).len() + local.files(2).len(), "no other object remains");
}

/// A push of what is current in the bucket changes nothing there. It publishes if an object is missing, or another
/// generation is current.
#[test]
fn a_push_of_the_current_generation_publishes_nothing() {
    let (local, server) = (Local::new(), Server::new());
    let first = local.push(&server, 1).unwrap();
    assert_eq!((first.is_new, first.keys_before), (true, None));
    let objects = server.objects();
    let again = local.push(&server, 1).unwrap();
    let all = local.files(1).len() as u64;
    assert_eq!(again, Pushed { is_new: false, keys_before: Some(first.keys), skipped: all, ..first.clone() });
    assert!(server.objects() == objects, "nothing was written");

    let second = local.push(&server, 2).unwrap();
    assert_eq!((second.is_new, second.keys_before), (true, Some(first.keys)));
    let third = local.push(&server, 1).unwrap();
    assert!(third.is_new && third.generation != first.generation, "it is not the current one");

    let shard =
        server.objects().into_keys().find(|name| name.starts_with(&third.generation) && name.ends_with(".shard"));
    let shard = ObjectPath::from(format!("data/store/{}", shard.unwrap()));
    run(server.bucket().root.store().delete(&shard)).unwrap();
    let mended = local.push(&server, 1).unwrap();
    assert_eq!((mended.is_new, mended.keys_before), (true, Some(first.keys)));
    assert_eq!(local.version_of_current(&server), Some(1));

    // a manifest that cannot be read is no reason not to publish
    let manifest = ObjectPath::from(format!("data/store/{}/manifest.json", mended.generation));
    run(server.bucket().root.put(&manifest, b"{}".to_vec(), object_store::PutMode::Overwrite)).unwrap();
    let after = local.push(&server, 1).unwrap();
    assert_eq!((after.is_new, after.keys_before), (true, None));
}

#[test]
fn a_directory_is_pushed_like_a_store() {
    let (local, server) = (Local::new(), Server::new());
    run(server.bucket().push_with(current_directory(&local.store(2)), &local.options())).unwrap();
    assert_eq!(local.version_of_current(&server), Some(2));
}

#[test]
fn an_empty_generation_and_one_of_a_volume() {
    let (local, server) = (Local::new(), Server::new());
    let (empty, volume) = (local.directory.path().join("empty"), local.directory.path().join("volume"));
    BuildOptions::new().create(&empty).unwrap().finish().unwrap();
    let info = r#"{"type": "image", "scales": [{"key": "a b/8_8_8", "size": [64, 64, 64]}]}"#;
    let mut loader = BuildOptions::new().info(info).sharding_at("/scales/0").ordered(true).create(&volume).unwrap();
    loader.extend((0..9u64).map(|key| (key, format!("chunk {key}")))).unwrap();
    loader.finish().unwrap();
    for store in [empty, volume] {
        let pushed = run(server.bucket().push_with(&store, &local.options())).unwrap();
        let expected = files(&current_directory(&store));
        assert_eq!(files_of(&server.objects(), &pushed.generation), expected);
        let copy = store.with_extension("copy");
        run(server.bucket().pull(&copy)).unwrap();
        assert_eq!(files(&current_directory(&copy)), expected);
    }
    assert!(server.objects().keys().any(|name| name.ends_with("/a b/8_8_8/0.shard")), "{:?}", server.objects().keys());
}

#[test]
fn a_prefix_may_be_empty() {
    let local = Local::new();
    let objects = Arc::new(object_store::memory::InMemory::new());
    let bucket = Bucket::new(objects, "").unwrap();
    let pushed = run(bucket.push_with(local.store(1), &local.options())).unwrap();
    run(bucket.pull(local.copy())).unwrap();
    assert_eq!(files(&current_directory(&local.copy())), local.files(1));
    let listed = run(bucket.generations()).unwrap();
    assert_eq!(listed.iter().map(|generation| &generation.name).collect::<Vec<_>>(), [&pushed.generation]);
    assert_eq!(listed[0].objects, pushed.objects);
}

#[test]
fn a_foreign_data_set_in_the_bucket_is_not_covered() {
    let (local, server) = (Local::new(), Server::new());
    server.put_object("info", b"{}");
    let error = local.push(&server, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(server.objects().len(), 1);
}

#[test]
fn a_prefix_is_used_as_it_is_and_refused_if_no_path_has_it() {
    let local = Local::new();
    let objects = Arc::new(object_store::memory::InMemory::new());
    for prefix in ["ünï", "pct%2fx", "with space/b", "*"] {
        let bucket = Bucket::new(objects.clone(), prefix).unwrap();
        run(bucket.push_with(local.store(1), &local.options())).unwrap();
        let current = object_store::path::Path::parse(format!("{prefix}/current")).unwrap();
        assert!(run(object_store::ObjectStoreExt::head(&*objects, &current)).is_ok(), "{prefix}");
    }
    for prefix in ["a//b", "../x", "./x", "a/."] {
        let error = Bucket::new(objects.clone(), prefix).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{prefix}");
    }
}

/// An upload was interrupted, and two collections ran before the push that continues it replaces `current`: the first
/// removed its objects, and the second the note of that.
#[test]
fn a_push_that_slept_through_gc_publishes_nothing() {
    let (local, server) = (Local::new(), Server::new());
    local.push(&server, 1).unwrap();
    let requests = {
        let server = Server::new();
        local.push(&server, 1).unwrap();
        server.set_fault(Fault::None);
        local.push(&server, 2).unwrap();
        server.requests()
    };
    let bucket = server.bucket();
    server.before(requests - 1, async move {
        for _ in 0..2 {
            bucket.gc(Duration::ZERO).await.unwrap();
            let other = ObjectPath::from("data/store/gen-0000000007-ffffffffffffffffffffffffffffffff/info");
            bucket.root.put(&other, b"x".to_vec(), object_store::PutMode::Create).await.unwrap();
        }
    });
    let error = local.push(&server, 2).unwrap_err();
    assert!(server.has_run());
    assert_eq!(error.kind(), ErrorKind::GenerationGone, "{error}");
    assert_eq!(local.version_of_current(&server), Some(1));
    let text = BucketCurrent::parse(&server.objects()["current"]).unwrap();
    assert_eq!(text.removed.len(), 1, "the first one is forgotten, since it has no objects: {text:?}");
    local.push(&server, 2).unwrap();
    assert_eq!(local.version_of_current(&server), Some(2));
}

/// The publisher is killed at every request; a second attempt completes the upload under the same name.
#[test]
fn a_push_that_was_killed_is_continued() {
    let local = Local::new();
    let (mut resumed, mut killed) = (0, 0);
    for request in 0.. {
        let server = Server::new();
        local.push(&server, 1).unwrap();
        server.set_fault(Fault::From(request));
        let attempt = local.push(&server, 2);
        server.set_fault(Fault::None);
        if attempt.is_ok() {
            // the last requests are those that remove the probe, whose errors are ignored
            assert!(killed > 10, "{killed}");
            break;
        }
        killed += 1;
        assert_eq!(attempt.unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(local.version_of_current(&server), Some(1), "request {request}");
        let begun = generations(&server);
        let pushed = local.push(&server, 2).unwrap();
        assert_eq!(local.version_of_current(&server), Some(2), "request {request}");
        assert_eq!(generations(&server).len(), 2, "request {request}: the same name");
        assert!(begun.len() == 1 || begun[1] == pushed.generation);
        resumed = resumed.max(pushed.skipped);
        let versions = run(server.bucket().history()).unwrap();
        assert_eq!(
            versions.iter().map(|version| &version.name).collect::<Vec<_>>(),
            generations(&server).iter().collect::<Vec<_>>()
        );
    }
    assert_eq!(resumed, local.files(2).len() as u64, "all of them, if only current is missing");
}

/// Another program replaces an object between two attempts by other bytes of the same length.
#[test]
fn a_push_is_not_continued_with_an_object_of_another_content() {
    let local = Local::new();
    let mut replaced = 0;
    for request in 0.. {
        let server = Server::new();
        local.push(&server, 1).unwrap();
        server.set_fault(Fault::From(request));
        let attempt = local.push(&server, 2);
        server.set_fault(Fault::None);
        if attempt.is_ok() {
            break;
        }
        let Some(begun) = generations(&server).into_iter().nth(1) else { continue };
        let (name, mut bytes) = files_of(&server.objects(), &begun).into_iter().min().unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 1);
        server.put_object(&format!("{begun}/{name}"), &bytes);
        let pushed = local.push(&server, 2).unwrap();
        assert_eq!((local.version_of_current(&server), pushed.skipped), (Some(2), 0), "request {request}, {name}");
        assert_ne!(pushed.generation, begun);
        replaced += 1;
    }
    assert!(replaced > 5, "{replaced}");
}

/// The reply to any one request is lost, and the client gives up or repeats it.
#[test]
fn a_lost_reply_loses_nothing() {
    let local = Local::new();
    let count = |is_empty: bool, fault: fn(u64) -> Fault| {
        let expected = if is_empty { None } else { Some(1) };
        let mut succeeded = Vec::new();
        for request in 0.. {
            let server = Server::new();
            if !is_empty {
                local.push(&server, 1).unwrap();
            }
            server.set_fault(fault(request));
            let attempt = local.push(&server, 2);
            let is_last = server.requests() <= request;
            server.set_fault(Fault::None);
            if is_last {
                return (request, succeeded);
            }
            match attempt {
                Ok(_) => succeeded.push(request),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "request {request}: {error}");
                    assert_eq!(local.version_of_current(&server), expected);
                    local.push(&server, 2).unwrap();
                }
            }
            assert_eq!(local.version_of_current(&server), Some(2), "request {request}");
            assert_eq!(generations(&server).len(), if is_empty { 1 } else { 2 }, "request {request}");
        }
        unreachable!()
    };
    for is_empty in [true, false] {
        let (requests, succeeded) = count(is_empty, Fault::LostReply);
        assert!(succeeded.contains(&(requests - 1)), "current was written, which its id shows");
        let (requests, succeeded) = count(is_empty, Fault::Repeated);
        assert!(succeeded.contains(&(requests - 1)), "a repeated write of current looks like a conflict");
        assert!(succeeded.contains(&(requests - 2)), "the manifest exists already");
    }
}

/// Runs `next` after the reply to the last write of `attempt` was lost, and before `current` is read back.
fn with_a_successor<T>(
    server: &Server,
    requests: u64,
    attempt: impl FnOnce() -> sharddb_format::Result<T>,
    next: impl Future<Output = ()> + Send + 'static,
) -> sharddb_format::Result<T> {
    server.before(requests, next);
    server.set_fault(Fault::LostReply(requests - 1));
    let result = attempt();
    assert!(server.has_run());
    server.set_fault(Fault::None);
    result
}

/// The reply to the write of `current` is lost, and another publisher replaces it before it is read back: a push into an
/// empty bucket, a push after a generation, and a rollback.
#[test]
fn a_lost_reply_and_a_successor_are_a_success() {
    let local = Local::new();
    let publish_next = |server: &Server, version| {
        let (bucket, store, options) = (server.bucket(), local.store(version), local.options());
        async move { drop(bucket.push_with(store, &options).await.unwrap()) }
    };
    let history = |server: &Server| run(server.bucket().history()).unwrap();
    for generations in 0..=2 {
        let server_of = || {
            let server = Server::new();
            [1, 2][2 - generations..].iter().for_each(|version| drop(local.push(&server, *version).unwrap()));
            server.set_fault(Fault::None);
            server
        };
        let server = server_of();
        local.push(&server, 1).unwrap();
        let requests = server.requests();
        let server = server_of();
        let pushed = with_a_successor(&server, requests, || local.push(&server, 1), publish_next(&server, 2)).unwrap();
        let versions = history(&server);
        assert_eq!(versions.len(), generations + 2, "{versions:?}");
        assert_eq!(versions[generations].name, pushed.generation);
        assert_eq!(local.version_of_current(&server), Some(2));
    }

    let server_of = || {
        let server = Server::new();
        let names = [1, 2].map(|version| local.push(&server, version).unwrap().generation);
        server.set_fault(Fault::None);
        (server, names)
    };
    let rollback = |server: &Server| run(server.bucket().rollback(None));
    let (server, _) = server_of();
    rollback(&server).unwrap();
    let requests = server.requests();
    let (server, [first, second]) = server_of();
    let to = with_a_successor(&server, requests, || rollback(&server), publish_next(&server, 2)).unwrap();
    let versions = history(&server);
    assert_eq!((&to, &versions[0].name, &versions[1].name), (&first, &second, &first), "{versions:?}");

    // the successor of the generation before: the rollback did not happen, although its target is in the history
    let (server, [first, second]) = server_of();
    server.before(requests - 1, publish_next(&server, 1));
    assert_eq!(rollback(&server).unwrap_err().kind(), ErrorKind::Locked);
    assert!(server.has_run());
    let versions = history(&server);
    assert_eq!((&versions[0].name, &versions[1].name), (&first, &second), "{versions:?}");
}

/// Two collections run before any one request of a download or a verification: the first removes the generation, the second
/// the note of that.
#[test]
fn a_generation_that_gc_removes_while_it_is_read_is_gone_and_not_damaged() {
    let local = Local::new();
    let pull = |server: &Server, name: &str| {
        run(server.bucket().pull_with(local.copy(), PullOptions::new().generation(name))).map(drop)
    };
    let verify = |server: &Server, name: &str, level| {
        let report = run(server.bucket().verify_with(level, BucketVerifyOptions::new().generation(name)))?;
        assert!(report.findings.is_empty(), "{report:?}");
        Ok(())
    };
    type Read<'a> = &'a dyn Fn(&Server, &str) -> sharddb_format::Result<()>;
    let reads: [Read<'_>; 3] =
        [&pull, &|server, name| verify(server, name, BucketVerifyLevel::Lengths), &|server, name| {
            verify(server, name, BucketVerifyLevel::Data)
        }];
    for (index, read) in reads.into_iter().enumerate() {
        for collections in [1, 2] {
            let mut gone = 0;
            for request in 0.. {
                let server = Server::new();
                let first = local.push(&server, 1).unwrap().generation;
                local.push(&server, 2).unwrap();
                let bucket = server.bucket();
                server.before(request, async move {
                    for _ in 0..collections {
                        bucket.gc(Duration::ZERO).await.unwrap();
                    }
                    let other = ObjectPath::from("data/store/gen-0000000007-ffffffffffffffffffffffffffffffff/info");
                    bucket.root.put(&other, b"x".to_vec(), object_store::PutMode::Create).await.unwrap();
                    if collections == 2 {
                        bucket.gc(Duration::ZERO).await.unwrap();
                    }
                });
                let result = read(&server, &first);
                let has_run = server.has_run();
                _ = std::fs::remove_dir_all(local.copy());
                match result {
                    Err(error) if error.kind() == ErrorKind::GenerationGone => {
                        assert!(error.to_string().contains(&first), "{error}");
                        gone += 1;
                    }
                    // before the manifest is read, and after the note was removed: the name is as good as any other
                    Err(error) if error.kind() == ErrorKind::NotFound && request == 0 && collections == 2 => {}
                    Err(error) => panic!("read {index}, request {request}: {error}"),
                    Ok(()) => {}
                }
                if !has_run {
                    break;
                }
            }
            assert!(gone >= 1, "read {index}");
        }
    }
}

/// A large object arrives over connections that break, with every retry of the client used up.
#[test]
fn a_download_is_continued_from_the_last_byte() {
    let server = Server::new();
    let object: Vec<u8> = (0..5 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
    server.put_object("large", &object);
    let root = server.bucket().root;
    let download = |stated: u64| {
        let mut found = Vec::new();
        let write = |chunk: &[u8]| {
            found.extend_from_slice(chunk);
            Ok(())
        };
        let downloaded = run(root.download("large", stated, &Progress::default(), write));
        downloaded.map(|()| found)
    };
    server.break_bodies_after(Some(2 << 20));
    assert!(download(5 << 20).unwrap() == object);
    let ranges: Vec<_> = server.take_log().iter().filter(|it| it.method == "get").map(|it| it.bytes).collect();
    assert_eq!(ranges, [5 << 20, 3 << 20, 1 << 20]);
    server.break_bodies_after(Some(100)); // no progress
    assert_eq!(download(5 << 20).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(server.take_log().len(), 1);
    server.break_bodies_after(None);
    assert_eq!(download(5).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Another publisher runs, from beginning to end, before any one request of the first: into an empty bucket, and after a
/// generation.
#[test]
fn of_two_publishers_one_wins_and_the_other_has_an_error() {
    let local = Local::new();
    let base = local.directory.path().join("base");
    BuildOptions::new().create(&base).unwrap().finish().unwrap();
    for is_empty in [true, false] {
        let (mut lost, mut won) = (0, 0);
        for request in 0.. {
            let server = Server::new();
            if !is_empty {
                run(server.bucket().push_with(&base, &local.options())).unwrap();
            }
            let (bucket, options, other) = (server.bucket(), local.options(), local.store(2));
            let result = Arc::new(Mutex::new(None));
            let to = result.clone();
            server.before(request, async move {
                let pushed = bucket.push_with(other, &options).await;
                *to.lock().unwrap() = Some(pushed);
            });
            let first = local.push(&server, 1);
            if !server.has_run() {
                break;
            }
            let second = result.lock().unwrap().take().unwrap().unwrap();
            match first {
                Ok(first) => {
                    won += 1;
                    assert_eq!((current(&server), local.version_of_current(&server)), (first.generation, Some(1)));
                }
                Err(error) => {
                    lost += 1;
                    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
                    assert!(error.message().contains("another publisher"), "{error}");
                    let now = (current(&server), local.version_of_current(&server));
                    assert_eq!(now, (second.generation.clone(), Some(2)));
                    local.push(&server, 1).unwrap();
                    assert_eq!(local.version_of_current(&server), Some(1), "the next attempt follows the winner");
                }
            }
            let names: Vec<_> =
                run(server.bucket().history()).unwrap().into_iter().map(|version| version.name).collect();
            assert!(names.contains(&second.generation), "no generation is lost: {names:?}");
        }
        assert!(lost > 5, "{lost}");
        assert_eq!(won, 1, "the other one ended before current was read");
    }
}

#[test]
fn a_store_without_conditional_writes_is_refused_before_the_upload() {
    for conditions in [Conditions::Ignored, Conditions::UpdateRefused] {
        let (local, server) = (Local::new(), Server::with(conditions));
        let error = local.push(&server, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(server.objects(), HashMap::new(), "{conditions:?}");
    }
}

#[test]
fn a_damaged_local_file_is_not_published() {
    for name in ["0.shard", "3.shard", "keys"] {
        for part_bytes in [200, 1 << 20] {
            let (local, server) = (Local::new(), Server::new());
            let path = current_directory(&local.store(1)).join(name);
            damage(&path);
            let mut options = local.options();
            let error = run(server.bucket().push_with(local.store(1), options.part_bytes(part_bytes))).unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*path)), "{error}");
            assert!(!server.objects().keys().any(|object| object.ends_with(name) || object.contains("manifest")));
            assert!(!server.objects().contains_key("current"));
        }
    }
    let (local, server) = (Local::new(), Server::new());
    std::fs::remove_file(current_directory(&local.store(1)).join("1.shard")).unwrap();
    assert_eq!(local.push(&server, 1).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_foreign_directory_is_refused() {
    let (local, server) = (Local::new(), Server::new());
    let directory = current_directory(&local.store(1));
    std::fs::remove_file(directory.join("manifest.json")).unwrap();
    let error = run(server.bucket().push_with(&directory, &local.options())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("sharddb import"), "{error}");
    let missing = local.directory.path().join("missing");
    let error = run(server.bucket().push_with(&missing, &local.options())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(server.requests(), 0);
}

#[test]
fn progress_ends_at_its_total_and_a_flag_cancels() {
    let (local, server) = (Local::new(), Server::new());
    let progress = Progress::new();
    progress.cancel();
    let mut options = local.options();
    options.progress(&progress);
    let error = run(server.bucket().push_with(local.store(1), &options)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(server.objects(), HashMap::new());
    let progress = Progress::new();
    options.progress(&progress);
    let pushed = run(server.bucket().push_with(local.store(1), &options)).unwrap();
    assert_eq!((progress.done(), progress.total()), (pushed.bytes, pushed.bytes));

    let mut options = PullOptions::new();
    progress.cancel();
    options.progress(&progress);
    let error = run(server.bucket().pull_with(local.copy(), &options)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let progress = Progress::new();
    options.progress(&progress);
    run(server.bucket().pull_with(local.copy(), &options)).unwrap();
    assert_eq!(progress.done(), progress.total());
    assert!(progress.total() > 0);
}

/// The server's clock is in January 1970, that of this machine is not.
#[test]
fn gc_counts_from_the_successor_by_the_clock_of_the_server() {
    let (local, server) = (Local::new(), Server::new());
    // the clock of this machine, by which the dry run goes, is right: 3400 s after this
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 3400;
    let push = |time, version| {
        server.set_time(start + time);
        local.push(&server, version).unwrap().generation
    };
    let (first, second, third) = (push(1000, 1), push(2000, 2), push(3000, 1));
    let times: Vec<_> = run(server.bucket().history()).unwrap().into_iter().map(|version| version.replaced).collect();
    let at = |seconds| Some(UNIX_EPOCH + Duration::from_secs(start + seconds));
    assert_eq!(times, [at(2000), at(3000), None]);

    server.set_time(start + 3400);
    assert_eq!(gc(&server, 1401).unwrap(), BucketGcReport::default());
    server.take_log();
    let dry = run(server.bucket().gc_with(Duration::from_secs(1400), BucketGcOptions::new().dry_run(true))).unwrap();
    assert!(server.take_log().iter().all(|logged| logged.method == "get"));
    assert_eq!(dry.removed, std::slice::from_ref(&first));
    assert_eq!(dry.objects, local.files(1).len() as u64);
    assert_eq!(
        run(server.bucket().gc_with(Duration::ZERO, BucketGcOptions::new().keep_listed(true))).unwrap(),
        BucketGcReport::default()
    );
    assert_eq!(generations(&server), [first.clone(), second.clone(), third.clone()]);

    assert_eq!(gc(&server, 1400).unwrap(), dry);
    assert_eq!(generations(&server), [second.clone(), third.clone()]);
    // `current` was written again, but that is no publication
    server.set_time(start + 3500);
    assert_eq!(gc(&server, 501).unwrap(), BucketGcReport::default());
    assert_eq!(gc(&server, 500).unwrap().removed, [second]);
    server.set_time(1 << 33);
    assert_eq!(gc(&server, 0).unwrap(), BucketGcReport::default(), "the current one stays");
    assert_eq!((current(&server), local.version_of_current(&server)), (third, Some(1)));
}

#[test]
fn gc_removes_unfinished_uploads_by_their_newest_object() {
    let (local, server) = (Local::new(), Server::new());
    assert_eq!(gc(&server, 0).unwrap_err().kind(), ErrorKind::NotFound);
    let published = local.push(&server, 1).unwrap();
    server.set_time(2_000_000);
    server.set_fault(Fault::From(10));
    local.push(&server, 2).unwrap_err();
    server.set_fault(Fault::None);
    let unfinished = generations(&server).pop().unwrap();
    assert_ne!(unfinished, published.generation);
    let (probe, new_probe) = (format!("probe-{}", "0".repeat(32)), format!("probe-{}", "1".repeat(32)));
    server.put_object(&new_probe, b"x");
    server.set_time(2_000_000 - 24 * 3600);
    server.put_object(&probe, b"x");
    for foreign in ["notes", "gen-0000000009/info", "gen-0000000009-xyz/info", "other/gen-0000000009"] {
        server.put_object(foreign, b"x");
    }
    server.set_time(2_000_100);
    assert_eq!(gc(&server, 101).unwrap(), BucketGcReport::default());
    let listed = run(server.bucket().generations()).unwrap();
    let states: Vec<_> = listed.iter().map(|generation| (generation.state, generation.is_complete)).collect();
    assert_eq!(states, [(BucketState::Current, true), (BucketState::Unfinished, false)]);

    let before = server.objects().len();
    let report = gc(&server, 100).unwrap();
    assert_eq!(report.removed, [unfinished]);
    assert_eq!(server.objects().len() as u64, before as u64 - report.objects);
    assert!(server.objects().contains_key("gen-0000000009-xyz/info"), "foreign names stay");
    assert!(!server.objects().contains_key(&probe) && server.objects().contains_key(&new_probe));
    let pushed = local.push(&server, 2).unwrap();
    assert_eq!(pushed.skipped, 0, "under a new name");
    assert_eq!(local.version_of_current(&server), Some(2));
}

/// A collector is killed at every request; the next one removes the rest, whatever its age.
#[test]
fn gc_that_was_killed_is_continued() {
    let local = Local::new();
    let mut killed = 0;
    for request in 0.. {
        let server = Server::new();
        let first = local.push(&server, 1).unwrap().generation;
        local.push(&server, 2).unwrap();
        server.set_fault(Fault::From(request));
        let attempt = gc(&server, 0);
        server.set_fault(Fault::None);
        assert_eq!(local.version_of_current(&server), Some(2), "request {request}");
        if attempt.is_ok() {
            break;
        }
        killed += 1;
        let objects = files_of(&server.objects(), &first);
        assert!(objects == local.files(1) || !objects.contains_key("manifest.json"), "request {request}");
        let is_announced = !run(server.bucket().history()).unwrap().iter().any(|version| version.name == first);
        if is_announced {
            assert_eq!(run(server.bucket().rollback(Some(&first))).unwrap_err().kind(), ErrorKind::NotFound);
            run(server.bucket().gc_with(NEVER, BucketGcOptions::new().keep_listed(true))).unwrap();
        } else {
            gc(&server, 0).unwrap();
        }
        assert_eq!(generations(&server), [current(&server)], "request {request}");
    }
    assert!(killed > 10, "{killed}");
}

/// gc runs before any one request of a push. With an age of 0 it takes the push for an unfinished upload.
#[test]
fn gc_while_pushing() {
    let local = Local::new();
    for older_than in [0, 3600] {
        let mut gone = 0;
        for request in 0.. {
            let server = Server::new();
            local.push(&server, 1).unwrap();
            let bucket = server.bucket();
            server.before(request, async move {
                bucket.gc(Duration::from_secs(older_than)).await.unwrap();
            });
            let pushed = local.push(&server, 2);
            if !server.has_run() {
                break;
            }
            match pushed {
                Ok(pushed) => assert_eq!(pushed.generation, current(&server)),
                Err(error) => {
                    gone += 1;
                    assert_eq!(error.kind(), ErrorKind::GenerationGone, "{error}");
                    assert_eq!(local.version_of_current(&server), Some(1));
                    local.push(&server, 2).unwrap();
                }
            }
            assert_eq!(local.version_of_current(&server), Some(2), "{older_than} s, request {request}");
        }
        assert_eq!(gone > 0, older_than == 0, "{gone}");
    }
}

/// A push pauses before it replaces `current`, a collector runs up to any one of its requests, the push ends, and then the
/// collector does.
#[test]
fn a_push_ends_during_a_collection() {
    let local = Local::new();
    let requests = {
        let server = Server::new();
        local.push(&server, 1).unwrap();
        server.set_fault(Fault::None);
        local.push(&server, 2).unwrap();
        server.requests()
    };
    let mut outcomes = std::collections::BTreeSet::new();
    for pause in 0.. {
        let server = Server::new();
        local.push(&server, 1).unwrap();
        let (push_paused, gc_paused, push_ended) = (Event::default(), Event::default(), Event::default());
        let (paused, resumed) = (push_paused.clone(), gc_paused.clone());
        server.before(requests - 1, async move {
            paused.cause();
            resumed.wait().await;
        });
        let (paused, resumed) = (gc_paused.clone(), push_ended.clone());
        server.before(requests + pause, async move {
            // otherwise gc has ended, and this is a request of the push
            if !paused.has_happened() {
                paused.cause();
                resumed.wait().await;
            }
        });
        let (bucket, options) = (server.bucket(), local.options());
        let mut is_last = false;
        let (pushed, collected) = run(futures_util::future::join(
            async {
                let pushed = bucket.push_with(local.store(2), &options).await;
                push_ended.cause();
                pushed
            },
            async {
                push_paused.wait().await;
                let collected = bucket.gc(Duration::ZERO).await;
                is_last = !gc_paused.has_happened();
                gc_paused.cause();
                collected
            },
        ));
        let expected = if pushed.is_ok() { 2 } else { 1 };
        assert_eq!(local.version_of_current(&server), Some(expected), "gc paused at {pause}");
        let kind = |error: Error| error.kind().as_str();
        outcomes.insert((pushed.map(|_| ()).map_err(kind), collected.map(|_| ()).map_err(kind)));
        if is_last {
            break;
        }
    }
    let expected = [(Ok(()), Ok(())), (Ok(()), Err("locked")), (Err("generation-gone"), Ok(()))];
    assert!(outcomes.iter().all(|outcome| expected.contains(outcome)), "{outcomes:?}");
    assert!(outcomes.len() >= 2, "{outcomes:?}");
}

/// gc with an age of 0 runs before any one request of a rollback, and the other way around.
#[test]
fn gc_while_rolling_back() {
    let local = Local::new();
    let mut outcomes = std::collections::BTreeSet::new();
    for gc_first in [false, true] {
        for request in 0.. {
            let server = Server::new();
            let first = local.push(&server, 1).unwrap().generation;
            local.push(&server, 2).unwrap();
            let bucket = server.bucket();
            let result = if gc_first {
                server.before(request, async move { _ = bucket.rollback(Some(&first)).await });
                run(server.bucket().gc(Duration::ZERO)).map(|_| ())
            } else {
                server.before(request, async move { _ = bucket.gc(Duration::ZERO).await });
                run(server.bucket().rollback(Some(&first))).map(|_| ())
            };
            if !server.has_run() {
                break;
            }
            assert!(local.version_of_current(&server).is_some(), "gc first: {gc_first}, request {request}");
            outcomes.insert(result.map_err(|error| error.kind().as_str()));
        }
    }
    assert!(outcomes.contains(&Ok(())) && outcomes.contains(&Err("locked")), "{outcomes:?}");
    assert!(!outcomes.contains(&Err("internal")), "{outcomes:?}");
}

/// As in a local store: a generation that a rollback left does not count for the next one.
#[test]
fn rollback_follows_the_history() {
    let (local, server) = (Local::new(), Server::new());
    let names: Vec<_> = [1, 2, 1].map(|version| local.push(&server, version).unwrap().generation).into();
    let bucket = server.bucket();
    let rollback = |to: Option<&str>| run(bucket.rollback(to));
    assert_eq!(rollback(None).unwrap(), names[1]);
    assert_eq!(local.version_of_current(&server), Some(2));
    let fourth = local.push(&server, 1).unwrap().generation;
    assert!(fourth.starts_with("gen-0000000004-"), "numbers ascend: {fourth}");
    assert_eq!(rollback(None).unwrap(), names[1], "the generation before 4 is 2");
    assert_eq!(rollback(None).unwrap(), names[0]);
    assert_eq!(rollback(None).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(rollback(Some(&names[2])).unwrap(), names[2]);
    assert_eq!(rollback(None).unwrap(), names[0], "a rollback to a given one is an entry");
    assert_eq!(rollback(Some(&names[0])).unwrap(), names[0], "it is current already");
    for (to, kind) in [
        ("gen-0000000001", ErrorKind::InvalidInput),
        ("../x", ErrorKind::InvalidInput),
        ("gen-0000000001-00000000000000000000000000000000", ErrorKind::NotFound),
    ] {
        assert_eq!(rollback(Some(to)).unwrap_err().kind(), kind, "{to}");
    }
    server.delete_object(&format!("{fourth}/2.shard"));
    let error = rollback(Some(&fourth)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&format!("test://data/store/{fourth}/2.shard")), "{error}");
}

#[test]
fn a_rollback_begins_the_age_of_what_it_replaces() {
    let (local, server) = (Local::new(), Server::new());
    server.set_time(1000);
    let first = local.push(&server, 1).unwrap().generation;
    server.set_time(2000);
    let second = local.push(&server, 2).unwrap().generation;
    server.set_time(9000);
    run(server.bucket().rollback(None)).unwrap();
    server.set_time(9010);
    assert_eq!(gc(&server, 11).unwrap(), BucketGcReport::default());
    assert_eq!(gc(&server, 10).unwrap().removed, [second]);
    assert_eq!((current(&server), local.version_of_current(&server)), (first, Some(1)));
}

/// Every request of a rollback fails, or loses its reply.
#[test]
fn a_rollback_that_was_killed_changes_nothing_or_all() {
    let local = Local::new();
    for fault in [Fault::From, Fault::LostReply, Fault::Repeated] as [fn(u64) -> Fault; 3] {
        for request in 0.. {
            let server = Server::new();
            local.push(&server, 1).unwrap();
            local.push(&server, 2).unwrap();
            server.set_fault(fault(request));
            let result = run(server.bucket().rollback(None));
            let is_last = server.requests() <= request;
            server.set_fault(Fault::None);
            let expected = if result.is_ok() { 1 } else { 2 };
            assert_eq!(local.version_of_current(&server), Some(expected), "{:?}", fault(request));
            if is_last {
                break;
            }
        }
    }
}

/// A pull that finds its generation, in a store that was copied or that a killed pull left unsynced, says so after a sync.
#[test]
fn a_generation_that_is_current_already_survives_a_power_cut() {
    let (local, server) = (Local::new(), Server::new());
    local.push(&server, 1).unwrap();
    assert!(local.pull(&server).unwrap().is_new);
    let root = local.copy();
    let mut disk = disk::Disk::unsynced(&disk::Tree::read(&root));
    let watch = disk::Watch::on(&root);
    assert!(!local.pull(&server).unwrap().is_new);
    watch.take_steps().iter().for_each(|step| disk.apply(step));
    for loss in disk::Loss::all() {
        let found = TempDir::in_memory();
        disk.after(loss).write_to(found.path());
        assert_eq!(files(&current_directory(found.path())), local.files(1), "{loss:?}");
    }
}

#[test]
fn a_pulled_generation_is_equal() {
    let (local, server) = (Local::new(), Server::new());
    local.push(&server, 1).unwrap();
    let pulled = local.pull(&server).unwrap();
    assert_eq!((pulled.id.get(), pulled.resumed, pulled.shared), (1, 0, 0));
    assert_eq!(pulled.downloaded, local.files(1).len() as u64 - 2);
    assert_eq!(files(&current_directory(&local.copy())), local.files(1));
    let db = ShardDb::open(local.copy()).unwrap();
    assert_eq!(db.get(7).unwrap().unwrap(), value(7, 1));

    let again = local.pull(&server).unwrap();
    assert_eq!((again.id.get(), again.downloaded), (1, 0), "it is current already");
    local.push(&server, 2).unwrap();
    let second = local.pull(&server).unwrap();
    assert_eq!((second.id.get(), second.shared), (2, 1), "one shard is the same in both");
    assert_eq!(second.downloaded, local.files(2).len() as u64 - 3);
    assert_eq!(files(&current_directory(&local.copy())), local.files(2));
    let first = run(server.bucket().history()).unwrap().remove(0).name;
    run(server.bucket().pull_with(local.copy(), PullOptions::new().generation(first))).unwrap();
    assert_eq!(files(&current_directory(&local.copy())), local.files(1));
    assert_eq!(Store::open(local.copy()).unwrap().generations().unwrap().len(), 3);
}

/// A local generation that has lost a file is not taken for the one in the bucket, and does not lend that file.
#[test]
fn a_pull_mends_a_generation_that_has_lost_a_shard() {
    let (local, server) = (Local::new(), Server::new());
    local.push(&server, 1).unwrap();
    local.pull(&server).unwrap();
    let shard = |name: &str| current_directory(&local.copy()).join(name);
    let name = local.files(1).into_keys().find(|name| name.ends_with(".shard")).unwrap();
    std::fs::remove_file(shard(&name)).unwrap();
    let mended = local.pull(&server).unwrap();
    assert_eq!((mended.is_new, mended.id.get()), (true, 2));
    assert_eq!(files(&current_directory(&local.copy())), local.files(1));
    std::fs::remove_file(shard(&name)).unwrap();
    std::fs::write(shard(&name), b"short").unwrap();
    assert!(local.pull(&server).unwrap().is_new);
    assert_eq!(files(&current_directory(&local.copy())), local.files(1));
}

#[test]
fn an_empty_generation_replaces_no_keys_unless_allowed() {
    let (local, server) = (Local::new(), Server::new());
    let empty = local.directory.path().join("empty");
    BulkLoader::create(&empty).unwrap().finish().unwrap();
    let nothing = run(server.bucket().push_with(&empty, &local.options())).unwrap();
    assert_eq!((nothing.is_new, nothing.keys, nothing.keys_before), (true, 0, None), "there was nothing to lose");
    local.push(&server, 1).unwrap();
    local.pull(&server).unwrap();
    let objects = server.objects();
    let error = run(server.bucket().push_with(&empty, &local.options())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty);
    assert!(error.to_string().contains("keys: nothing was published"), "{error}");
    assert!(server.objects() == objects, "nothing was written");
    let emptied = run(server.bucket().push_with(&empty, local.options().allow_empty(true))).unwrap();
    assert!(emptied.is_new && emptied.keys == 0);

    let error = local.pull(&server).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty);
    assert_eq!(files(&current_directory(&local.copy())), local.files(1));
    assert!(run(server.bucket().pull_with(local.copy(), PullOptions::new().allow_empty(true))).unwrap().is_new);
    assert_eq!(ShardDb::open(local.copy()).unwrap().snapshot().key_count(), Some(0));
}

/// Values that end with their own CRC-32 give two versions equal lengths and checksums.
#[test]
fn equal_checksums_are_not_taken_for_equal_bytes() {
    for with_digests in [true, false] {
        let local = Local::new();
        let directory = |version| current_directory(&local.store(version));
        let manifest = |version| std::fs::read_to_string(directory(version).join("manifest.json")).unwrap();
        let before_digests = |version| manifest(version).split_once("\"digests\"").unwrap().0.to_string();
        assert!(before_digests(1) == before_digests(2) && manifest(1) != manifest(2));
        if !with_digests {
            [1, 2].iter().for_each(|version| remove_digests(&directory(*version)));
            assert_eq!(manifest(1), manifest(2));
        }
        let server = Server::new();
        for version in [1, 2, 1] {
            local.push(&server, version).unwrap();
            assert_eq!(local.version_of_current(&server), Some(version), "{with_digests}");
            assert!(local.pull(&server).unwrap().is_new);
            assert!(
                files(&current_directory(&local.copy())) == local.files(version),
                "version {version}, {with_digests}"
            );
        }
        assert_eq!(local.pull(&server).unwrap().is_new, !with_digests);

        // a push that was killed is not continued with the files of the other version
        for request in 0..20 {
            let server = Server::new();
            server.set_fault(Fault::From(request));
            _ = local.push(&server, 1);
            server.set_fault(Fault::None);
            local.push(&server, 2).unwrap();
            assert_eq!(local.version_of_current(&server), Some(2), "request {request}, {with_digests}");
        }
    }
}

/// The download is killed at every request; a second one continues.
#[test]
fn a_pull_that_was_killed_is_continued() {
    let (local, server) = (Local::new(), Server::new());
    local.push(&server, 1).unwrap();
    let mut resumed = 0;
    for request in 0.. {
        server.set_fault(Fault::From(request));
        let attempt = local.pull(&server);
        server.set_fault(Fault::None);
        if attempt.is_ok() {
            break;
        }
        assert_eq!(attempt.unwrap_err().kind(), ErrorKind::Io);
        assert!(!Store::is_at(local.copy()).unwrap(), "nothing is published");
        let pulled = local.pull(&server).unwrap();
        assert_eq!(pulled.downloaded + pulled.resumed, local.files(1).len() as u64 - 2);
        resumed = resumed.max(pulled.resumed);
        assert_eq!(files(&current_directory(&local.copy())), local.files(1));
        std::fs::remove_dir_all(local.copy()).unwrap();
        let names = local.directory.names();
        assert!(!names.iter().any(|name| name.contains("pull")), "no directory remains: {names:?}");
    }
    assert!(resumed > 0);
}

/// The staging directory stands beside entries that a store has, too.
#[test]
fn a_pull_beside_entries_of_a_deployment() {
    let (local, server) = (Local::new(), Server::new());
    local.push(&server, 1).unwrap();
    std::fs::write(local.directory.path().join("lock"), "").unwrap();
    std::os::unix::fs::symlink("releases/1", local.directory.path().join("current")).unwrap();
    local.pull(&server).unwrap();
    assert_eq!(files(&current_directory(&local.copy())), local.files(1));
}

/// The local disk fails at any operation of a download: once, for good, or because it is full.
#[test]
fn a_pull_survives_a_failing_disk() {
    let (local, server) = (Local::new(), Server::new());
    local.push(&server, 1).unwrap();
    local.pull(&server).unwrap();
    let store = local.directory.path().join("before");
    std::fs::rename(local.copy(), &store).unwrap();
    local.push(&server, 2).unwrap();
    let files = [local.files(1), local.files(2)];
    for fault in [disk::Fault::Once, disk::Fault::Broken, disk::Fault::Full] {
        let mut failed = 0;
        for operation in (0..).step_by(3) {
            copy(&store, &local.copy());
            let watch = disk::Watch::on(local.directory.path());
            watch.fail(fault, operation);
            let attempt = local.pull(&server);
            let is_last = watch.heal() == 0;
            drop(watch);
            let now = super::testing::files(&current_directory(&local.copy()));
            assert!(files.contains(&now), "{fault:?} at {operation}: the old or the new one, whole");
            assert!(attempt.is_err() || now == files[1]);
            failed += usize::from(attempt.is_err());
            local.pull(&server).unwrap();
            assert_eq!(super::testing::files(&current_directory(&local.copy())), files[1], "{fault:?} at {operation}");
            std::fs::remove_dir_all(local.copy()).unwrap();
            if is_last {
                break;
            }
        }
        assert!(failed > 5, "{failed}");
    }
}

/// Copies a local store, of which all files may be written again.
fn copy(from: &Path, to: &Path) {
    let writer_of = |path: &Path| Store::create(path).unwrap().writer().unwrap();
    writer_of(to).adopt(current_directory(from)).unwrap();
}

#[test]
fn a_damaged_object_is_named_and_not_published() {
    let (local, server) = (Local::new(), Server::new());
    let generation = local.push(&server, 1).unwrap().generation;
    let whole = server.objects();
    let damages: [fn(&mut Vec<u8>); 4] =
        [|bytes| bytes[5] ^= 1, |bytes| bytes.truncate(9), |bytes| bytes.push(0), |bytes| bytes.clear()];
    let staging = local.directory.path().join(format!("copy.pull-{generation}"));
    for name in ["1.shard", "keys", "info", "manifest.json"] {
        let object = format!("{generation}/{name}");
        for change in damages {
            let mut bytes = whole[&object].clone();
            change(&mut bytes);
            _ = std::fs::remove_dir_all(&staging);
            server.put_object(&object, &bytes);
            let error = local.pull(&server).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(&format!("test://data/store/{object}")), "{error}");
            assert!(!Store::is_at(local.copy()).unwrap());
        }
        server.delete_object(&object);
        _ = std::fs::remove_dir_all(&staging);
        let error = local.pull(&server).unwrap_err();
        assert!(error.to_string().contains(&format!("test://data/store/{object}")), "{error}");
        server.put_object(&object, &whole[&object]);
    }
    local.pull(&server).unwrap();
    assert_eq!(files(&current_directory(&local.copy())), local.files(1));
}

/// A manifest whose checksum is right, but whose names lead out of the generation.
#[test]
fn a_hostile_manifest_writes_nothing() {
    let (local, server) = (Local::new(), Server::new());
    let generation = local.push(&server, 1).unwrap().generation;
    let object = format!("{generation}/manifest.json");
    let text = String::from_utf8(server.objects()[&object].clone()).unwrap();
    let before = local.directory.names();
    let changes = [
        (
            "\"format_version\": 1,",
            "\"format_version\": 2,\n\"nested\": {\"sharding_at\": \"/a\", \"shards_in\": \"../x\"},",
        ),
        ("[\"keys\",", "[\"../keys\","),
        ("[\"keys\",", "[\"lock\","),
        ("\n[0,", "\n[18446744073709551615,"),
    ];
    for (from, to) in changes {
        let (head, _) = text.rsplit_once("\"crc32\"").unwrap();
        assert!(head.contains(from), "{from}");
        let head = head.replacen(from, to, 1);
        let text = format!("{head}\"crc32\": {}\n}}\n", crc32fast::hash(head.as_bytes()));
        server.put_object(&object, text.as_bytes());
        let error = local.pull(&server).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{to}: {error}");
        assert_eq!(local.directory.names(), before, "{to}");
    }
}

/// A damaged shard of a local generation is not linked into the new one, and a damaged resumed file is downloaded again.
#[test]
fn damaged_local_files_are_not_reused() {
    let (local, server) = (Local::new(), Server::new());
    local.push(&server, 1).unwrap();
    local.pull(&server).unwrap();
    damage(&current_directory(&local.copy()).join("0.shard"));
    let generation = local.push(&server, 2).unwrap().generation;
    let staging = local.directory.path().join(format!("copy.pull-{generation}"));
    std::fs::create_dir(&staging).unwrap();
    std::fs::write(staging.join("1.shard"), "x").unwrap();
    std::fs::write(staging.join("tmp-0123456789abcdef0123456789abcdef"), "x").unwrap();
    let pulled = local.pull(&server).unwrap();
    assert_eq!((pulled.shared, pulled.resumed), (0, 0));
    assert_eq!(files(&current_directory(&local.copy())), local.files(2));
}

#[test]
fn verify_names_every_damaged_object() {
    let (local, server) = (Local::new(), Server::new());
    let generation = local.push(&server, 1).unwrap().generation;
    let verify = |level| run(server.bucket().verify(level));
    for level in [BucketVerifyLevel::Lengths, BucketVerifyLevel::Data] {
        let report = verify(level).unwrap();
        assert!(report.findings.is_empty(), "{report:?}");
        assert_eq!((report.objects, report.generation), (local.files(1).len() as u64, generation.clone()));
    }
    let object = |name: &str| format!("{generation}/{name}");
    let mut bytes = server.objects()[&object("0.shard")].clone();
    bytes[3] ^= 1;
    server.put_object(&object("0.shard"), &bytes);
    server.put_object(&object("1.shard"), b"short");
    server.delete_object(&object("2.shard"));
    server.put_object(&object("notes"), b"foreign");
    let named = |findings: &[Error]| {
        let name = |error: &Error| error.path().unwrap().file_name().unwrap().to_str().unwrap().to_string();
        let mut names: Vec<_> = findings.iter().map(name).collect();
        names.sort();
        names
    };
    assert_eq!(named(&verify(BucketVerifyLevel::Lengths).unwrap().findings), ["1.shard", "2.shard", "notes"]);
    let found = verify(BucketVerifyLevel::Data).unwrap().findings;
    assert_eq!(named(&found), ["0.shard", "1.shard", "2.shard", "notes"]);
    assert!(found.iter().all(|error| error.kind() == ErrorKind::Corrupt));
    server.delete_object(&object("manifest.json"));
    assert_eq!(verify(BucketVerifyLevel::Data).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_damaged_or_foreign_current_is_an_error_and_stays() {
    let (local, server) = (Local::new(), Server::new());
    for (text, kind) in [
        ("", ErrorKind::Corrupt),
        ("gen-0000000001", ErrorKind::Unsupported),
        ("gen-0000000001\n", ErrorKind::Unsupported),
        ("{}", ErrorKind::Corrupt),
        ("<html>", ErrorKind::Corrupt),
    ] {
        server.put_object("current", text.as_bytes());
        let bucket = server.bucket();
        let errors = [
            local.push(&server, 1).unwrap_err(),
            local.pull(&server).unwrap_err(),
            gc(&server, 0).unwrap_err(),
            run(bucket.rollback(None)).unwrap_err(),
            run(bucket.generations()).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), kind, "{text:?}: {error}");
            assert!(error.to_string().contains("test://data/store/current"), "{error}");
            let advice = error.to_string().contains("a copy of a local store, whose current names gen-0000000001");
            assert_eq!(advice, kind == ErrorKind::Unsupported, "{error}");
        }
        assert_eq!(server.objects().len(), 1, "{text:?}");
    }
    server.put_object("current", &vec![b' '; (1 << 20) + 1]);
    assert_eq!(run(server.bucket().current()).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn futures_can_be_sent_to_other_threads() {
    fn is_send<T: Send>(_: T) {}
    let bucket = Server::new().bucket();
    let (push, pull) = (PushOptions::new(), PullOptions::new());
    is_send(bucket.push_with("x", &push));
    is_send(bucket.pull_with("x", &pull));
    is_send(bucket.gc(NEVER));
    is_send(bucket.verify(BucketVerifyLevel::Data));
    is_send(bucket.rollback(None));
    is_send(bucket.generations());
}

#[test]
fn a_chosen_generation_is_served_until_gc_removes_it() {
    let (local, server) = (Local::new(), Server::new());
    let (first, second) = (local.push(&server, 1).unwrap().generation, local.push(&server, 2).unwrap().generation);
    let open = |name: &str| drive(&server.objects(), RemoteOptions::new().root_name("s3://b").generation(name).open());
    for (name, version) in [(first.as_str(), 1), ("gen-0000000001", 1), (second.as_str(), 2), ("gen-0000000002", 2)] {
        let reader = open(name).unwrap();
        assert!(!drive(&server.objects(), reader.refresh()).unwrap(), "{name}");
        let value = drive(&server.objects(), reader.get(7)).unwrap().unwrap();
        assert_eq!(*value, super::testing::value(7, version), "{name}");
    }
    let other = format!("gen-0000000001-{}", "0".repeat(32));
    for name in ["gen-0000000003", "gen", "gen-1", "", &other] {
        let error = open(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{name}");
        assert!(
            error.to_string().contains("in the history") && error.to_string().contains("s3://b/current"),
            "{error}"
        );
    }

    let reader = open("gen-0000000001").unwrap();
    server.set_time(2_000_000);
    assert_eq!(gc(&server, 0).unwrap().removed, std::slice::from_ref(&first));
    assert_eq!(drive(&server.objects(), reader.get(7)).unwrap_err().kind(), ErrorKind::GenerationGone);
    for name in [first.as_str(), "gen-0000000001"] {
        let error = open(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::GenerationGone, "{name}");
        assert!(error.to_string().contains("gc removed it"), "{error}");
    }
    // a reader that has an old `current`
    server.delete_object(&format!("{second}/manifest.json"));
    assert_eq!(open("gen-0000000002").unwrap_err().kind(), ErrorKind::GenerationGone);
    server.delete_object("current");
    let error = open("gen-0000000002").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("found none"), "{error}");
}
