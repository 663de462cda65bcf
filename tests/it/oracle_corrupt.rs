//! Broken and odd data sets are read as TensorStore reads them, or as `corrupt-differences.tsv` says, key by key and
//! from every storage; never with a panic, an endless loop, or more memory than the caps allow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{
    Answer, Storage, TempDir, assert_has_place, data, expected, json, name, number, sets, sha256, text,
};
use crate::peak::peak_of;
use serde_json::Value as Json;
use sharddb::{Error, ErrorKind, OpenOptions, Snapshot};

/// Cap of decoded values and indexes in these tests, so that bombs end early.
const CAP: usize = 2 << 20;

/// Memory beyond the files and the caps: a decoder's window, the text of an error, the lists of the test.
const SMALL: usize = 256 << 10;

/// A broken data set, the damage, and the answers of TensorStore.
struct Case {
    name: String,
    directory: PathBuf,
    _scratch: Option<TempDir>,
    class: String,
    /// Keys that the damage touches.
    keys: Vec<u64>,
    /// Keys that the damage does not touch.
    ok_keys: Vec<u64>,
    /// The answers before the damage.
    expected: BTreeMap<u64, Answer>,
    tensorstore: Json,
}

impl Case {
    fn read(directory: &Path, results: &Json) -> Case {
        let probe = json(&directory.join("probe.json"));
        let keys = |member: &str| probe[member].as_array().unwrap().iter().map(number).collect();
        let scratch = what_repositories_lose(directory);
        Case {
            name: name(directory).to_string(),
            directory: scratch.as_ref().map_or(directory, TempDir::path).to_path_buf(),
            _scratch: scratch,
            class: text(&probe["class"]).to_string(),
            keys: keys("keys"),
            ok_keys: keys("ok_keys"),
            expected: expected(directory).into_iter().collect(),
            tensorstore: results[name(directory)]["ts"].clone(),
        }
    }

    /// The answers of TensorStore for all keys that it was given.
    fn tensorstore_answers(&self) -> BTreeMap<u64, Answer> {
        let parts = ["keys", "ok_keys", "absent"].iter().filter_map(|part| self.tensorstore.get(part)?.as_object());
        parts
            .flatten()
            .map(|(key, said)| (key.parse().unwrap(), self.answer(key.parse().unwrap(), text(said))))
            .collect()
    }

    fn answer(&self, key: u64, said: &str) -> Answer {
        match said {
            "absent" => Answer::Absent,
            "right value" => self.expected[&key].clone(),
            _ => match said.strip_prefix("VALUE ") {
                Some(value) => Answer::Value(sha256(&unhex(value.split(" B ").nth(1).unwrap()))),
                None => Answer::Error,
            },
        }
    }

    /// Whether TensorStore ran out of its time or memory.
    fn was_too_much_for_tensorstore(&self) -> bool {
        text(&self.tensorstore["open"]).starts_with("CRASH")
    }
}

/// Restores a directory entry that a repository cannot store; `None` if nothing is missing.
fn what_repositories_lose(directory: &Path) -> Option<TempDir> {
    let made: fn(&Path) = match name(directory) {
        "file_is_dir" => |path| fs::create_dir(path.join("0.shard")).unwrap(),
        #[cfg(unix)]
        "file_dangling_symlink" => |path| std::os::unix::fs::symlink("nowhere", path.join("0.shard")).unwrap(),
        #[cfg(target_os = "linux")]
        "names_stray" => |path| fs::write(path.join("0.SHARD"), "x").unwrap(),
        _ => return None,
    };
    let scratch = TempDir::copy_of(directory);
    made(scratch.path());
    Some(scratch)
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn cases() -> Vec<Case> {
    let results = json(&data("corrupt/results.json"));
    sets("corrupt").iter().map(|directory| Case::read(directory, &results)).collect()
}

/// A difference from TensorStore: case, "open", "list" or a key, TensorStore's answer, ShardDb's answer.
type Difference = [String; 4];

/// The accepted differences, each with its reason in a fifth column.
fn decided_differences() -> BTreeSet<Difference> {
    let table = fs::read_to_string(data("corrupt-differences.tsv")).unwrap();
    let row = |line: &str| -> Difference {
        let columns: Vec<_> = line.split('\t').collect();
        let [case, what, theirs, ours, reason] = columns[..] else { panic!("five columns: {line}") };
        assert!(!reason.is_empty(), "a reason: {line}");
        [case, what, theirs, ours].map(str::to_string)
    };
    table.lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

#[test]
fn every_case_is_answered_as_tensorstore_does_or_as_decided() {
    let cases = cases();
    assert_eq!(cases.len(), 114);
    let decided = decided_differences();
    for storage in Storage::ALL {
        let found: BTreeSet<Difference> = cases.iter().flat_map(|case| differences(case, storage)).collect();
        let lines = |rows: Vec<&Difference>| rows.iter().map(|row| row.join("\t")).collect::<Vec<_>>().join("\n");
        let new = lines(found.difference(&decided).collect());
        assert!(new.is_empty(), "{storage:?}: neither TensorStore's answer nor decided:\n{new}");
        let gone = lines(decided.difference(&found).collect());
        assert!(gone.is_empty(), "{storage:?}: rows of corrupt-differences.tsv that are no longer so:\n{gone}");
    }
}

/// Reads everything in one case; asserts that memory stays within the files and the caps.
fn differences(case: &Case, storage: Storage) -> Vec<Difference> {
    let (found, peak) = peak_of(|| ask(case, storage));
    let decoded = if case.class == "bomb" { CAP } else { 0 };
    let limit = case.bytes() + decoded + SMALL;
    assert!(peak <= limit, "{} {storage:?}: expected at most {limit} bytes held at once, found {peak}", case.name);
    found
}

fn ask(case: &Case, storage: Storage) -> Vec<Difference> {
    let mut options = OpenOptions::new();
    options.max_value_bytes(CAP as u64).max_index_bytes(CAP as u64);
    let mut found = Vec::new();
    let mut differ = |what: &str, theirs: &str, ours: &str| {
        if theirs != ours {
            found.push([&case.name, what, theirs, ours].map(str::to_string));
        }
    };
    let theirs = if case.tensorstore_opens() { "ok" } else { "error" };
    let snapshot = match storage.open(&options, &case.directory) {
        Ok(db) => db.snapshot(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{}: {error}", case.name);
            differ("open", theirs, "error");
            return found;
        }
    };
    differ("open", theirs, "ok");
    let ours = answers(case, &snapshot);
    for (key, theirs) in case.tensorstore_answers() {
        differ(&key.to_string(), &shown(&theirs), &shown(&ours[&key]));
    }
    let ours = listing(case, &snapshot);
    if !case.was_too_much_for_tensorstore() {
        differ("list", &case.tensorstore_listing(), &ours);
    }
    found
}

impl Case {
    /// The total length of the files, which bounds what may be read, whatever they state.
    fn bytes(&self) -> usize {
        let len = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().metadata().unwrap().len();
        fs::read_dir(&self.directory).unwrap().map(len).sum::<u64>().try_into().unwrap()
    }

    fn tensorstore_opens(&self) -> bool {
        text(&self.tensorstore["open"]) == "ok" || self.was_too_much_for_tensorstore()
    }

    /// TensorStore's listing: the keys, ascending, or an error.
    fn tensorstore_listing(&self) -> String {
        match self.tensorstore["list"].as_str() {
            Some(list) if !list.starts_with("ERR") => list.to_string(),
            _ => "error".to_string(),
        }
    }
}

fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Value(sha256) => format!("value {}", &sha256[..8]),
        Answer::Absent => "absent".to_string(),
        Answer::Error => "error".to_string(),
    }
}

/// The answers of ShardDb. The different kinds of lookups must agree.
fn answers(case: &Case, snapshot: &Snapshot) -> BTreeMap<u64, Answer> {
    let keys: Vec<u64> = case.expected.keys().chain(&case.keys).copied().collect();
    let batch = snapshot.get_many(&keys);
    let mut answers = BTreeMap::new();
    let mut buffer = Vec::new();
    for (key, from_batch) in keys.iter().zip(batch) {
        let place = format!("{}: key {key}", case.name);
        let result = snapshot.get(*key);
        if let Err(error) = &result {
            assert_error(case, error, *key);
        }
        let answer = Answer::of(result);
        assert_eq!(Answer::of(from_batch), answer, "{place}");
        let into = snapshot.get_into(*key, &mut buffer).map(|found| found.then_some(&buffer));
        assert_eq!(Answer::of(into), answer, "{place}");
        match (&answer, snapshot.contains(*key), snapshot.locate(*key)) {
            (Answer::Value(_), Ok(true), Ok(Some(_))) | (Answer::Absent, Ok(false), Ok(None)) => {}
            // the index may be intact and the value not
            (Answer::Error, Ok(true) | Err(_), Ok(Some(_)) | Err(_)) => {}
            other => panic!("{place}: {other:?}"),
        }
        answers.insert(*key, answer);
    }
    for key in &case.ok_keys {
        assert_eq!(answers[key], case.expected[key], "{}: key {key} was not touched", case.name);
    }
    if case.was_too_much_for_tensorstore() {
        case.keys.iter().for_each(|key| assert_eq!(answers[key], Answer::Error, "{}: key {key}", case.name));
    }
    answers
}

/// Asserts that the error has the kind of its cause, and a place.
fn assert_error(case: &Case, error: &Error, key: u64) {
    let kind = match (case.name.as_str(), case.class.as_str()) {
        ("file_is_dir", _) => ErrorKind::Io,
        (_, "bomb") => ErrorKind::TooLarge,
        _ => ErrorKind::Corrupt,
    };
    assert_eq!(error.kind(), kind, "{}: {error}", case.name);
    assert_eq!(error.key(), Some(key), "{}: {error}", case.name);
    assert_has_place(error);
}

/// ShardDb's listing: the keys, ascending, or an error. Keys that were not touched are listed in either case.
fn listing(case: &Case, snapshot: &Snapshot) -> String {
    let (mut keys, mut errors) = (Vec::new(), 0);
    for entry in snapshot.iter().take(10_000) {
        match entry {
            Ok(entry) => keys.push(entry.key()),
            Err(error) => {
                assert_has_place(&error);
                errors += 1;
            }
        }
    }
    assert!(keys.len() + errors < 10_000, "{}: the iteration ends", case.name);
    case.ok_keys.iter().for_each(|key| assert!(keys.contains(key), "{}: key {key} is listed", case.name));
    assert_eq!(snapshot.keys().filter_map(Result::ok).collect::<Vec<_>>(), keys, "{}", case.name);
    assert_eq!(snapshot.keys().filter(Result::is_err).count(), errors, "{}", case.name);
    if errors > 0 {
        return "error".to_string();
    }
    keys.sort_unstable();
    keys.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// With default options no index is inflated past 256 MiB.
#[test]
fn an_index_bomb_ends_at_the_default_cap() {
    let directory = data("corrupt/bomb_msi_1g");
    let snapshot = Storage::Mapped.open(&OpenOptions::new(), &directory).unwrap().snapshot();
    let (error, peak) = peak_of(|| snapshot.get(0).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(peak <= (256 << 20) + SMALL, "found {peak} bytes held at once");
}
