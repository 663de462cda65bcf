//! STORE is a store or a place for a new one: no subcommand creates files in a foreign directory or leaves any behind.

#[cfg(unix)]
use crate::common::{Place, Start, data, foreign, sharddb};
#[cfg(unix)]
use crate::limits::limited;
use std::fs;

fn content(path: &str) -> Vec<u8> {
    fs::read(data(path)).unwrap()
}

/// Directories of other programs or of the user.
fn occupied(place: &Place) -> Vec<String> {
    place.write("zarr3/zarr.json", content("zarr/arrays/zp_1d_u8_raw_end.zarr/zarr.json"));
    place.write("zarr2/.zarray", "{}");
    place.write("zarr2/0.0", "chunk");
    place.write("bcolz/meta/sizes", content("bcolz/b121_i4_setitem/meta/sizes"));
    place.write("bcolz/meta/storage", content("bcolz/b121_i4_setitem/meta/storage"));
    place.write("table/__rootdirs__", "{}");
    place.write("files/notes.txt", "precious");
    place.write("scratch/tmp-thesis/1.tex", "precious");
    place.write("locked/lock", "pid=4711 host=alpha");
    place.write("deploy/releases/1/x", "precious");
    place.write("deploy/current/x", "precious");
    ["zarr3", "zarr2", "bcolz", "table", "files", "scratch", "locked", "deploy", "foreign"].map(String::from).to_vec()
}

#[test]
fn nothing_is_made_in_the_directory_of_something_else() {
    let place = Place::new();
    let db = foreign(&place);
    let input = place.write("in.ndjson", "{\"key\":1,\"text\":\"x\"}\n");
    let whole = place.text("whole");
    sharddb(["build", &whole, "--input", &input]).expect(0);
    let from = place.text("whole/gen-0000000001");
    place.write("array.zarr/zarr.json", content("zarr/arrays/zp_1d_u8_raw_end.zarr/zarr.json"));
    let array = place.text("array.zarr");
    for name in occupied(&place) {
        let store = place.text(&name);
        let before = place.files(&name);
        for args in [
            &["build", &store, "--input", &input][..],
            &["build", &store, "--input", &place.write("bad.ndjson", "{")],
            &["import", &array, &store],
            &["publish", &store, "--from", &from],
            &["salvage", &whole, &store],
            &["gc", &store],
            &["rollback", &store],
        ] {
            let run = sharddb(args).expect(2);
            assert!(run.stderr.contains(&name) && run.stdout.is_empty(), "{args:?}: {}", run.stderr);
            assert!(place.files(&name) == before, "{args:?}");
        }
    }
    assert_eq!(sharddb(["keys", &db]).expect(0).text().lines().count(), 4);
}

#[test]
fn a_directory_without_files_of_anyone_is_a_place() {
    let place = Place::new();
    let input = place.write("in.ndjson", "{\"key\":1,\"text\":\"x\"}\n");
    fs::create_dir(place.path("empty")).unwrap();
    fs::create_dir_all(place.path("disk/lost+found")).unwrap();
    place.write("hidden/.DS_Store", "x");
    for name in ["empty", "disk", "hidden", "new", "new2/deep/er"] {
        sharddb(["build", &place.text(name), "--input", &input]).expect(0);
        assert_eq!(sharddb(["get", &place.text(name), "1"]).expect(0).text(), "x", "{name}");
    }
    assert_eq!(place.names("hidden"), [".DS_Store", "current", "gen-0000000001", "history", "lock"]);
}

#[test]
fn what_fails_leaves_no_directory() {
    let place = Place::new();
    let whole = place.text("whole");
    let input = place.write("in.ndjson", "{\"key\":1,\"text\":\"x\"}\n");
    sharddb(["build", &whole, "--input", &input]).expect(0);
    for (file, bytes) in place.files("whole/gen-0000000001") {
        place.write(&format!("flipped/{file}"), bytes);
    }
    let mut shard = fs::read(place.path("flipped/0.shard")).unwrap();
    *shard.last_mut().unwrap() ^= 1;
    place.write("flipped/0.shard", shard);
    place.write("bad.zarr/zarr.json", content("zarr/arrays/zp_1d_u8_raw_end.zarr/zarr.json"));
    place.write("bad.zarr/c/0", "no shard");
    let (bad, flipped, array) = (place.write("bad.ndjson", "{"), place.text("flipped"), place.text("bad.zarr"));
    let before = place.names(".");
    let store = place.text("store");
    for args in [
        &["build", &store, "--input", &bad][..],
        &["publish", &store, "--from", &flipped],
        &["import", &array, &store],
        &["salvage", &bad, &store],
    ] {
        let run = sharddb(args);
        assert!(matches!(run.code, Some(3 | 4)), "{args:?}: {run:?}");
        assert_eq!(place.names("."), before, "{args:?}");
    }
}

/// The first run fails at the file size limit, the second one succeeds.
#[cfg(unix)]
#[test]
fn a_salvage_that_failed_is_repeated() {
    let place = Place::new();
    let input = place.write("in/7", vec![b'x'; 100_000]);
    let (whole, out) = (place.text("whole"), place.text("out"));
    sharddb(["build", &whole, "--input", input.strip_suffix("/7").unwrap()]).expect(0);
    limited("ulimit -f 4", &["salvage", &whole, &out]).run().expect_error(4, &["0.shard"]);
    assert!(!place.path("out").exists());
    sharddb(["salvage", &whole, &out]).expect(0);
    assert_eq!(sharddb(["get", &out, "7"]).expect(0).stdout.len(), 100_000);
}
