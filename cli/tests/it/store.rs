//! Generations are listed, rolled back, collected and shipped; readers see complete generations only.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use crate::common::{Place, Start, command, generations, sharddb};
#[cfg(unix)]
use crate::process::{stop, unless_stalled, until_run};

/// A store with this many generations; in each, key 1 has its number as the value.
fn store_of(place: &Place, generations: u32) -> String {
    let store = place.text("store");
    for number in 1..=generations {
        let input = place.write("in.ndjson", format!("{{\"key\":1,\"text\":\"{number}\"}}\n"));
        sharddb(["build", &store, "--input", &input]).expect(0);
    }
    store
}

fn current(store: &str) -> String {
    sharddb(["get", store, "1"]).expect(0).text().to_string()
}

#[test]
fn generations_are_listed() {
    let place = Place::new();
    let store = store_of(&place, 2);
    assert_eq!(generations(&store), "gen-0000000001\ngen-0000000002  current\n");
    fs::create_dir(place.path("store/gen-0000000003")).unwrap();
    let listed = sharddb(["generations", &store]).expect(0);
    assert_eq!(
        listed.text().lines().last(),
        Some("gen-0000000003  -                     - keys        0 B  incomplete")
    );
}

#[test]
fn rollback_goes_back_and_forward() {
    let place = Place::new();
    let store = store_of(&place, 3);
    let run = sharddb(["rollback", &store]).expect_error(0, &["gen-0000000002 is current"]);
    assert_eq!(current(&store), "2");
    assert_eq!(run.text(), "");
    sharddb(["rollback", &store, "gen-0000000001"]).expect(0);
    assert_eq!(current(&store), "1");
    sharddb(["rollback", &store]).expect_error(0, &["gen-0000000002 is current"]);
    sharddb(["rollback", &store]).expect_error(2, &["before gen-0000000002"]);
    sharddb(["rollback", &store, "3"]).expect(0);
    assert_eq!(current(&store), "3");
    sharddb(["rollback", &store, "4"]).expect_error(4, &["gen-0000000004"]);
    sharddb(["rollback", &store, "newest"]).expect(2);
    assert_eq!(current(&store), "3");
}

#[test]
fn a_bad_generation_is_discarded() {
    let place = Place::new();
    let store = store_of(&place, 3);
    sharddb(["discard", &store, "3"]).expect_error(2, &["gen-0000000003", "roll back first"]);
    sharddb(["rollback", &store]).expect(0);
    sharddb(["discard", &store, "3"]).expect_error(0, &["removed gen-0000000003"]);
    assert_eq!(generations(&store), "gen-0000000001\ngen-0000000002  current\n");
    sharddb(["discard", &store, "gen-0000000003"]).expect_error(4, &["found none"]);
}

#[test]
fn gc_removes_what_nobody_reads() {
    let place = Place::new();
    let store = store_of(&place, 4);
    sharddb(["gc", &store, "--keep", "3"]).expect_error(0, &["removed gen-0000000001"]);
    let generation = place.text("store/gen-0000000002");

    let mut reader = command(["get-many", &store, "--keys", "-"]).stdin(Stdio::piped()).start();
    let (mut stdin, mut lines) = (reader.stdin.take().unwrap(), BufReader::new(reader.stdout.take().unwrap()).lines());
    writeln!(stdin, "1").unwrap();
    lines.next().unwrap().unwrap(); // it has generation 4 open
    if cfg!(target_os = "linux") {
        let listed = sharddb(["generations", &store]).expect(0);
        assert!(listed.text().lines().last().unwrap().ends_with("current, in use"), "{}", listed.text());
    }
    sharddb(["rollback", &store, "2"]).expect(0);
    if cfg!(target_os = "linux") {
        let run = sharddb(["gc", &store, "--dry-run"]).expect(0);
        for line in ["would remove gen-0000000003", "kept gen-0000000004: it is open"] {
            assert!(run.stderr.contains(line), "{}", run.stderr);
        }
    }
    let run = sharddb(["gc", &store]).expect(0);
    assert!(run.stderr.contains("removed gen-0000000003"), "{}", run.stderr);
    assert!(place.path("store/gen-0000000004").exists(), "read, and the newest");
    assert!(fs::exists(generation).unwrap(), "current");
    drop(stdin);
    assert!(reader.wait().success());
    sharddb(["rollback", &store, "4"]).expect(0);
    sharddb(["gc", &store]).expect_error(0, &["removed gen-0000000002"]);
    assert_eq!(generations(&store), "gen-0000000004  current\n");
}

#[test]
fn a_generation_is_shipped() {
    let place = Place::new();
    let store = store_of(&place, 2);
    let other = place.text("other");
    let from = place.text("store/current");
    sharddb(["publish", &other, "--from", &from]).expect_error(0, &["published gen-0000000001"]);
    assert_eq!(current(&other), "2");
    assert_eq!(current(&store), "2", "the source stays");
    sharddb(["publish", &other, "--from", &place.text("store/gen-0000000001")]).expect(0);
    assert_eq!(current(&other), "1");
    sharddb(["rollback", &other]).expect(0);
    assert_eq!(current(&other), "2");
}

#[test]
fn what_is_shipped_is_verified() {
    let place = Place::new();
    store_of(&place, 1);
    let copy = |name: &str| {
        for (file, bytes) in place.files("store/gen-0000000001") {
            place.write(&format!("{name}/{file}"), bytes);
        }
        place.text(name)
    };
    let other = place.text("other");
    let from = copy("flipped");
    let mut shard = fs::read(place.path("flipped/0.shard")).unwrap();
    *shard.last_mut().unwrap() ^= 1;
    place.write("flipped/0.shard", shard);
    sharddb(["publish", &other, "--from", &from]).expect_error(3, &["0.shard"]);

    let from = copy("missing");
    fs::remove_file(place.path("missing/0.shard")).unwrap();
    sharddb(["publish", &other, "--from", &from]).expect(3);

    let from = copy("unlisted");
    fs::remove_file(place.path("unlisted/manifest.json")).unwrap();
    sharddb(["publish", &other, "--from", &from]).expect_error(2, &["manifest"]);
    sharddb(["publish", &other, "--from", &place.text("nothing")]).expect_error(4, &["nothing"]);
    assert!(!place.path("other").exists(), "a store that was to be made is not left behind");

    let from = copy("good");
    sharddb(["publish", &other, "--from", &from, "--move"]).expect(0);
    assert!(!place.path("good").exists());
    assert_eq!(current(&other), "1");
}

/// The directory stays, and a message says so.
#[cfg(target_os = "linux")]
#[test]
fn a_generation_on_another_file_system_is_copied_and_said_to_stay() {
    use std::os::unix::fs::MetadataExt;

    let place = Place::new();
    store_of(&place, 1);
    let elsewhere = Path::new("/dev/shm").join(format!("sharddb-move-{}", std::process::id()));
    fs::create_dir(&elsewhere).unwrap();
    let device = |path: &Path| path.metadata().unwrap().dev();
    assert_ne!(device(&elsewhere), device(&place.path("")), "the test needs two file systems");
    for (name, bytes) in place.files("store/gen-0000000001") {
        fs::write(elsewhere.join(name), bytes).unwrap();
    }
    let run = sharddb(["publish", &place.text("other"), "--from", elsewhere.to_str().unwrap(), "--move"]).expect(0);
    let is_said = run.stderr.contains("was copied and is still there");
    let is_there = elsewhere.join("manifest.json").exists();
    fs::remove_dir_all(&elsewhere).unwrap();
    assert!(is_said && is_there, "{}", run.stderr);
    assert_eq!(current(&place.text("other")), "1");
}

/// One flipped bit in any file to be copied is refused.
#[test]
fn every_file_that_is_shipped_is_compared() {
    let place = Place::new();
    store_of(&place, 1);
    for (name, bytes) in place.files("store/gen-0000000001") {
        if name == "lease" || name == "minishards" {
            continue; // publish writes these anew
        }
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            for (file, bytes) in place.files("store/gen-0000000001") {
                place.write(&format!("copy/{file}"), bytes);
            }
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            let from = place.write(&format!("copy/{name}"), flipped);
            let from = from.strip_suffix(&format!("/{name}")).unwrap();
            for more in [&[][..], &["--move"]] {
                let other = place.text("other");
                let run = sharddb([&["publish", &other, "--from", from], more].concat()).expect(3);
                assert!(run.stderr.contains("copy"), "{}", run.stderr);
                sharddb(["get", &other, "1"]).expect(4);
            }
        }
    }
}

/// A shard that is far longer than its manifest states takes long to copy. A signal during the copy leaves no files.
#[cfg(unix)]
#[test]
fn a_signal_stops_a_publication() {
    let place = Place::new();
    store_of(&place, 1);
    for (file, bytes) in place.files("store/gen-0000000001") {
        place.write(&format!("long/{file}"), bytes);
    }
    let shard = fs::File::options().write(true).open(place.path("long/0.shard")).unwrap();
    shard.set_len(1 << 40).unwrap(); // sparse
    let from = place.text("long");
    for signal in ["-INT", "-TERM"] {
        unless_stalled(|| {
            let place = Place::new(); // which is removed with what a late run has left
            let mut child = command(["publish", &place.text("other"), "--from", &from]).start();
            until_run(&mut child, || place.path("other").is_dir() && place.names("other").len() > 1);
            stop(signal, child, "sharddb: interrupted: nothing published\n")?;
            assert!(!place.path("other").exists(), "{signal}");
            Some(())
        });
    }
}

/// A generation that cannot be removed is named, and the others are still removed.
#[test]
fn gc_names_what_it_cannot_remove_and_goes_on() {
    let place = Place::new();
    let store = store_of(&place, 4);
    place.write("store/gen-0000000001/notes.txt", "mine");
    let run = sharddb(["gc", &store]).expect_error(4, &["gen-0000000001", "notes.txt", "removed gen-0000000002"]);
    assert!(run.stderr.contains("removed gen-0000000003"), "{}", run.stderr);
    assert_eq!(fs::read(place.path("store/gen-0000000001/notes.txt")).unwrap(), b"mine");
    let input = place.write("in.ndjson", "{\"key\":1,\"text\":\"x\"}\n");
    let run = sharddb(["build", &store, "--input", &input, "--keep", "1"]).expect_error(4, &["gen-0000000001"]);
    assert!(run.stderr.contains("published gen-0000000005") && run.stderr.contains("removed gen-0000000004"));
}

/// No subcommand turns a directory with foreign files into a store.
#[test]
fn no_store_is_made_where_something_else_is() {
    let place = Place::new();
    store_of(&place, 1);
    let (good, input) = (place.text("store/gen-0000000001"), place.write("in.ndjson", "{\"key\":1,\"text\":\"x\"}\n"));
    for (directory, file, named) in [
        ("zarr", "zarr.json", "found an array"),
        ("bcolz", "meta/sizes", "found an array"),
        ("home", "tmp-thesis/1.tex", "tmp-thesis"),
    ] {
        place.write(&format!("{directory}/{file}"), "mine");
        let path = place.text(directory);
        sharddb(["build", &path, "--input", &input]).expect_error(2, &[named]);
        sharddb(["publish", &path, "--from", &good]).expect_error(2, &[named]);
        for verb in ["gc", "rollback", "generations"] {
            sharddb([verb, &path]).expect_error(2, &["expected a store"]);
        }
        assert_eq!(fs::read(place.path(&format!("{directory}/{file}"))).unwrap(), b"mine");
        assert_eq!(place.names(directory).len(), 1);
    }
}

/// A killed writer may leave a store without a generation; the next writer uses it.
#[test]
fn a_store_without_a_generation_is_as_good_as_none() {
    let place = Place::new();
    store_of(&place, 1);
    let input = place.write("in.ndjson", "{\"key\":1,\"text\":\"x\"}\n");
    for verb in ["build", "publish", "salvage"] {
        place.write(&format!("{verb}/lock"), "");
        let path = place.text(verb);
        match verb {
            "build" => sharddb(["build", &path, "--input", &input]),
            "publish" => sharddb(["publish", &path, "--from", &place.text("store/gen-0000000001")]),
            _ => sharddb(["salvage", &place.text("store"), &path]),
        }
        .expect(0);
        assert_eq!(generations(&path), "gen-0000000001  current\n", "{verb}");
    }
    sharddb(["salvage", &place.text("store"), &place.text("build")]).expect_error(2, &["expected a new store"]);
}

#[test]
fn what_is_no_store_is_told() {
    let place = Place::new();
    let missing = place.text("missing");
    let empty = place.text("empty");
    fs::create_dir(&empty).unwrap();
    for verb in ["generations", "gc", "rollback"] {
        sharddb([verb, &missing]).expect_error(4, &["missing"]);
        sharddb([verb, &empty]).expect_error(4, &["empty"]);
    }
}
