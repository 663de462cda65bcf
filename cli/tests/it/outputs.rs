//! An output that replaces a file keeps its place, its links and its mode, and never replaces a file of the input.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::common::{Place, foreign, foreign_shard, sharddb};

fn mode(place: &Place, name: &str) -> u32 {
    place.path(name).symlink_metadata().unwrap().mode() & 0o7777
}

/// The two subcommands that read a database and write a file by name: one writes lines, the other a picture.
fn write_to(db: &str, output: &str) -> [Vec<String>; 2] {
    let text = |args: &[&str]| args.iter().map(|arg| arg.to_string()).collect();
    [text(&["export", db, "--format", "ndjson", "--output", output]), text(&["info", db, "--plot", output])]
}

#[test]
fn a_link_stays_and_its_target_is_replaced() {
    let place = Place::new();
    fs::create_dir(place.path("elsewhere")).unwrap();
    for args in write_to(&foreign(&place), &place.text("link")) {
        let target = place.write("elsewhere/target", "before");
        symlink("elsewhere/target", place.path("link")).unwrap();
        let inode = place.path("elsewhere/target").metadata().unwrap().ino();
        sharddb(&args).expect(0);
        assert_eq!(fs::read_link(place.path("link")).unwrap().to_str(), Some("elsewhere/target"), "{args:?}");
        assert!(fs::read(&target).unwrap().len() > 10, "{args:?}");
        assert_ne!(place.path("elsewhere/target").metadata().unwrap().ino(), inode, "replaced, not written over");
        assert_eq!((place.names("elsewhere"), place.names(".").len()), (vec!["target".to_string()], 3));

        fs::remove_file(&target).unwrap(); // now the link dangles
        sharddb(&args).expect(0);
        assert!(place.path("link").is_symlink() && fs::read(&target).unwrap().len() > 10, "{args:?}");
        fs::remove_file(place.path("link")).unwrap();
    }
}

#[test]
fn a_private_file_stays_private() {
    let place = Place::new();
    let usual = place.write("usual", "");
    let usual = fs::metadata(usual).unwrap().mode() & 0o7777;
    for args in write_to(&foreign(&place), &place.text("file")) {
        for old in [0o600, 0o640, 0o444, 0o666, 0o4755] {
            place.write("file", "before");
            fs::set_permissions(place.path("file"), Permissions::from_mode(old)).unwrap();
            sharddb(&args).expect(0);
            assert_eq!(mode(&place, "file"), old & 0o777, "{old:o} {args:?}");
            assert!(fs::read(place.path("file")).unwrap().len() > 10);
            fs::remove_file(place.path("file")).unwrap();
        }
        sharddb(&args).expect(0);
        assert_eq!(mode(&place, "file"), usual, "a new one has the usual mode");
        fs::remove_file(place.path("file")).unwrap();
    }
}

#[test]
fn what_fails_leaves_the_old_file() {
    let place = Place::new();
    let (db, output) = (foreign(&place), place.write("out.bin", "before"));
    // bin cannot store the preamble of key 5
    sharddb(["export", &db, "--format", "bin", "--output", &output]).expect_error(2, &["key 5"]);
    assert_eq!(fs::read_to_string(&output).unwrap(), "before");
    assert_eq!(place.names("."), ["foreign", "out.bin"]);
}

/// By name, by a symbolic or hard link, and as a new file.
#[test]
fn a_file_of_the_source_is_never_replaced() {
    let place = Place::new();
    let db = foreign(&place);
    fs::hard_link(place.path("foreign/0.shard"), place.path("hard")).unwrap();
    symlink("foreign/0.shard", place.path("soft")).unwrap();
    symlink("foreign", place.path("directory")).unwrap();
    let before = place.files("foreign");
    for output in ["foreign/0.shard", "foreign/info", "hard", "soft", "directory/0.shard", "foreign/new", "foreign"] {
        for db in [&db, &place.text("directory")] {
            for args in write_to(db, &place.text(output)) {
                if output == "foreign" && args[0] == "export" {
                    continue; // a directory is not a target for a file
                }
                sharddb(&args).expect_error(2, &["expected an output outside of the input"]);
            }
            let out = place.text("out");
            sharddb(["salvage", db, &out, "--lost", &place.text(output)])
                .expect_error(2, &["expected an output outside of the input"]);
            assert!(!place.path("out").exists(), "refused before anything is made");
        }
    }
    let inside = place.text("foreign/out");
    sharddb(["export", &db, "--format", "dir", "--output", &inside]).expect_error(2, &["outside"]);
    sharddb(["salvage", &db, &inside]).expect_error(2, &["outside"]);
    assert!(place.files("foreign") == before);
    assert_eq!(fs::read(place.path("hard")).unwrap(), foreign_shard());
}

#[test]
fn a_store_is_not_made_inside_of_what_it_is_made_from() {
    let place = Place::new();
    let input = place.write("in/1", "x");
    let input = input.strip_suffix("/1").unwrap();
    sharddb(["build", &place.text("in/store"), "--input", input]).expect_error(2, &["outside"]);
    sharddb(["build", input, "--input", input]).expect_error(2, &["outside"]);
    assert_eq!(place.names("in"), ["1"]);
    let store = place.text("store");
    sharddb(["build", &store, "--input", input]).expect(0);
    let generation = place.text("store/gen-0000000001");
    let inside = place.text("store/gen-0000000001/store");
    sharddb(["publish", &inside, "--from", &generation]).expect_error(2, &["outside"]);
    assert!(!place.path("store/gen-0000000001/store").exists());
}

#[test]
fn a_device_is_written_to_as_it_is() {
    let place = Place::new();
    sharddb(["export", &foreign(&place), "--format", "ndjson", "--output", "/dev/null"]).expect(0);
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}
