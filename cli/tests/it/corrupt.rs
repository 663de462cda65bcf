//! Whatever a file contains, a subcommand ends with a documented exit code, and with a message unless the code is 0.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{data, sharddb};

fn data_sets(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.join("info").exists()).collect()
}

#[test]
fn broken_data_sets_end_with_a_code_and_words() {
    let mut broken = 0;
    for path in data_sets(data("corrupt").as_ref()) {
        if path.file_name().unwrap().to_str().unwrap().starts_with("bomb_") {
            continue; // inflates to gigabytes; the tests of the library cover it
        }
        let db = path.to_str().unwrap();
        let export = ["export", db, "--format", "bin2", "--output", "/dev/null"];
        for args in [&["keys", db][..], &["info", db], &export, &["-q", "verify", db]] {
            let run = sharddb(args);
            let told =
                run.stderr.starts_with("sharddb: ") || run.text().lines().any(|line| line.starts_with("error: "));
            match run.code {
                Some(0) => assert_eq!(run.stderr, "", "{args:?}"),
                Some(3 | 4) => assert!(told, "{args:?}: {run:?}"),
                _ => panic!("{args:?}: {run:?}"),
            }
            broken += usize::from(run.code != Some(0));
        }
    }
    assert!(broken > 100, "found {broken} failures only: is it the right data?");
}

#[test]
fn data_sets_of_other_writers_are_exported_without_a_word() {
    for path in data_sets(data("public").as_ref()) {
        let db = path.to_str().unwrap();
        let keys = sharddb(["keys", db]).expect(0);
        let exported = sharddb(["export", db, "--format", "ndjson"]).expect(0);
        assert_eq!((keys.stderr.as_str(), exported.stderr.as_str()), ("", ""), "{db}");
        assert_eq!(keys.text().lines().count(), exported.text().lines().count(), "{db}");
    }
}
