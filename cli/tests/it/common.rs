//! Runs the built command, as a shell would.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::archives::{self, copy_all};
use crate::process::output_with_input;
pub(crate) use crate::process::{Run, Start, until};

impl Run {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// The lines of standard output as JSON.
    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Run {
        assert_eq!(self.code, Some(code), "stderr: {}", self.stderr);
        self
    }

    /// Asserts the exit code, the parts of standard error, and that standard output is empty.
    #[track_caller]
    pub(crate) fn expect_error(self, code: i32, parts: &[&str]) -> Run {
        let run = self.expect(code);
        assert!(parts.iter().all(|part| run.stderr.contains(part)), "expected {parts:?} in: {}", run.stderr);
        assert_eq!(String::from_utf8_lossy(&run.stdout), "");
        run
    }
}

/// The command under test: the program that `SHARDDB` names, such as that of the Python package, or the one that cargo built.
pub(crate) fn program() -> OsString {
    std::env::var_os("SHARDDB").unwrap_or_else(|| env!("CARGO_BIN_EXE_sharddb").into())
}

pub(crate) fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn sharddb<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    command(args).run()
}

pub(crate) fn sharddb_with_input<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, input: &[u8]) -> Run {
    output_with_input(&mut command(args), input).into()
}

/// A temporary directory, with short paths to its content.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }

    /// Copies a data set of the test data.
    pub(crate) fn copy(&self, from: &str, to: &str) {
        copy_all(data(from).as_ref(), &self.path(to));
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), bytes).unwrap();
        self.text(name)
    }

    /// All files below a directory, with their paths and bytes.
    pub(crate) fn files(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        collect(&self.path(name), &self.path(name), &mut files);
        files.sort();
        files
    }

    /// The names in a directory, sorted.
    pub(crate) fn names(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_string();
            files.push((name, fs::read(&path).unwrap()));
        }
    }
}

/// The generations of a store, one per line, with the one that is current.
#[track_caller]
pub(crate) fn generations(store: &str) -> String {
    let run = sharddb(["generations", store, "--json"]).expect(0);
    let listed: Vec<serde_json::Value> = serde_json::from_str(run.text()).unwrap();
    let line = |it: &serde_json::Value| {
        let name = it["generation"].as_str().unwrap();
        match it["state"].as_str().unwrap() {
            "current" => format!("{name}  current\n"),
            "incomplete" => format!("{name}  incomplete\n"),
            _ => format!("{name}\n"),
        }
    };
    listed.iter().map(line).collect()
}

pub(crate) const SHARDING: &str = r#"{"@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0, "minishard_bits": 1, "shard_bits": 1}"#;

/// A foreign data set: keys 0, 4, 8 in minishard 0 and 5 in minishard 1 of shard 0; shard 1 is empty. The value of 4
/// is empty, and that of 5 has 3 bytes before it that no index names.
pub(crate) fn foreign_shard() -> Vec<u8> {
    let words: [&[u64]; 3] = [
        &[11, 83, 83, 107],           // shard index: ranges of the minishard indexes
        &[0, 4, 4, 0, 0, 0, 3, 0, 2], // ids (deltas), gaps before the values, lengths
        &[5, 8, 3],
    ];
    let [shard_index, minishard_0, minishard_1] =
        words.map(|words| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
    [shard_index, b"abc".to_vec(), b"de".to_vec(), b"pre".to_vec(), b"xyz".to_vec(), minishard_0, minishard_1].concat()
}

/// A bare directory with `foreign_shard` and an info.
pub(crate) fn foreign(place: &Place) -> String {
    place.write("foreign/info", format!("{{\"@type\": \"x\", \"sharding\": {SHARDING}}}"));
    place.write("foreign/0.shard", foreign_shard());
    place.text("foreign")
}

/// The path of a data set in the test data, unpacked if it is in an archive.
pub(crate) fn data(path: &str) -> String {
    archives::data(path).to_str().unwrap().to_string()
}
