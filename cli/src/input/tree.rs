//! `tree`: the files of a directory and, with `--recursive`, of its subdirectories, by key.
//!
//! A file takes 16 bytes of memory: its key, and the form of its name, which all names that are written alike share.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use sharddb::Store;

use crate::failure::{Failure, Place, Result};
use crate::input::names::{Name, NameOptions};
use crate::input::skipped::Why;
use crate::input::{Reading, Skipped};
use crate::printable::word;

/// The files that have a key, each key once.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The directory and its subdirectories. Forms refer to them.
    directories: Vec<PathBuf>,
    forms: Vec<Form>,
    /// One file per key, ascending.
    files: Vec<File>,
    /// The files with values whose preamble is in `files`, ascending.
    indexes: Vec<File>,
    skipped: Skipped,
}

#[derive(Clone, Copy, Debug)]
struct File {
    key: u64,
    /// An index into the forms.
    form: usize,
}

/// How a key is written as a path.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Form {
    /// An index into the directories.
    directory: usize,
    /// Before the digits: `0x` and zeros.
    before: String,
    digits: Digits,
    /// After the digits: suffixes.
    after: String,
}

/// The digits of a key without leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Digits {
    Decimal,
    Lower,
    Upper,
    /// Hex of both cases. The form has them.
    Mixed,
}

impl Digits {
    fn of(self, key: u64) -> String {
        match self {
            Digits::Decimal => key.to_string(),
            Digits::Lower => format!("{key:x}"),
            Digits::Upper => format!("{key:X}"),
            Digits::Mixed => String::new(),
        }
    }
}

impl Form {
    fn new(directory: usize, text: &str, name: Name<'_>) -> Form {
        let (digits, before) = [Digits::Decimal, Digits::Lower, Digits::Upper]
            .into_iter()
            .find_map(|digits| Some((digits, name.stem.strip_suffix(&digits.of(name.key))?)))
            .unwrap_or((Digits::Mixed, name.stem));
        let after = text.get(name.stem.len()..).unwrap_or_default();
        Form { directory, before: before.to_string(), digits, after: after.to_string() }
    }
}

impl Tree {
    /// Lists the files. O(n log n) for n files.
    ///
    /// Errors: `Malformed` for a name that is no key, a key with two files, or if all files are skipped; `Usage` for a
    /// database; `Io`.
    pub(super) fn list(path: &Path, reading: &Reading) -> Result<Tree> {
        let mut listing = Listing::new(path, &reading.names);
        let mut next = 0;
        while let Some(directory) = listing.tree.directories.get(next).cloned() {
            let failure = |error| Failure::io("list", &directory, error);
            for entry in fs::read_dir(&directory).map_err(failure)? {
                reading.check_cancel()?;
                listing.add(&entry.map_err(failure)?, next)?;
            }
            next += 1;
        }
        listing.finish(path)
    }

    /// All keys, ascending.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = u64> {
        self.files.iter().map(|file| file.key)
    }

    pub(super) fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// The file of a key; `None` if there is none.
    pub(super) fn file(&self, key: u64) -> Option<PathBuf> {
        self.path_of(key, &self.files)
    }

    /// The index of a key; `None` if there is none.
    pub(super) fn index(&self, key: u64) -> Option<PathBuf> {
        self.path_of(key, &self.indexes)
    }

    /// The path that a key has if all names are of one form, whether the file exists or not. Needs no search.
    pub(super) fn derived(&self, key: u64) -> Option<PathBuf> {
        match self.forms.as_slice() {
            [form] if form.digits != Digits::Mixed && self.indexes.is_empty() => self.path(File { key, form: 0 }),
            _ => None,
        }
    }

    fn path_of(&self, key: u64, files: &[File]) -> Option<PathBuf> {
        let at = files.binary_search_by_key(&key, |file| file.key).ok()?;
        self.path(*files.get(at)?)
    }

    fn path(&self, file: File) -> Option<PathBuf> {
        let Form { directory, before, digits, after } = self.forms.get(file.form)?;
        Some(self.directories.get(*directory)?.join(format!("{before}{}{after}", digits.of(file.key))))
    }

    fn sort_and_check(&mut self, root: &Path) -> Result<()> {
        for files in [&mut self.files, &mut self.indexes] {
            files.sort_unstable_by_key(|file| file.key);
        }
        let twice = |pair: &[File]| matches!(pair, [a, b] if a.key == b.key);
        let mut pairs = self.files.windows(2).chain(self.indexes.windows(2));
        if let Some([a, b]) = pairs.find(|pair| twice(pair)) {
            let mut paths = [self.path(*a), self.path(*b)].map(Option::unwrap_or_default);
            paths.sort();
            let [first, second] = paths.each_ref().map(|path| path.strip_prefix(root).unwrap_or(path).display());
            let message = format!(
                "expected one file per key, found key {} twice: {first} and {second}; --ignore GLOB skips files and \
                 directories",
                a.key
            );
            return Err(malformed(root, &message));
        }
        if let Some(index) = self.indexes.iter().find(|index| self.file(index.key).is_none()) {
            let path = self.path(*index).unwrap_or_default();
            let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
            let message =
                format!("expected the file {} beside {}, found none", name(&path.with_extension("")), name(&path));
            return Err(malformed(root, &message));
        }
        Ok(())
    }
}

/// A tree that is being listed.
struct Listing<'a> {
    options: &'a NameOptions,
    tree: Tree,
    forms: HashMap<Form, usize>,
    /// The first path that is neither skipped nor that of a key.
    other: Option<(PathBuf, Kind)>,
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file, or a link to one.
    File,
    Directory,
    /// A link to a directory.
    Link,
    Special,
}

impl Kind {
    /// Needs no system call unless the entry is a link.
    fn of(entry: &DirEntry) -> Result<Kind> {
        let failure = |error| Failure::io("open", &entry.path(), error);
        let of_link = entry.file_type().map_err(failure)?;
        let found =
            if of_link.is_symlink() { fs::metadata(entry.path()).map_err(failure)?.file_type() } else { of_link };
        Ok(match (found.is_file(), found.is_dir()) {
            (true, _) => Kind::File,
            (_, true) if of_link.is_symlink() => Kind::Link,
            (_, true) => Kind::Directory,
            _ => Kind::Special,
        })
    }
}

impl<'a> Listing<'a> {
    fn new(path: &Path, options: &'a NameOptions) -> Listing<'a> {
        let tree = Tree { directories: vec![path.to_path_buf()], ..Tree::default() };
        Listing { options, tree, forms: HashMap::new(), other: None }
    }

    fn add(&mut self, entry: &DirEntry, directory: usize) -> Result<()> {
        let file_name = entry.file_name();
        let text = file_name.to_string_lossy();
        if let Some(why) = self.options.skips(&text) {
            let is_tree = self.options.recursive && entry.file_type().is_ok_and(|found| found.is_dir());
            self.tree.skipped.add(match why {
                Why::Ignored(pattern) if is_tree => Why::IgnoredTree(pattern),
                why => why,
            });
            return Ok(());
        }
        let name = file_name.to_str().and_then(|name| self.options.parse(name));
        let skips_file = if name.is_none() { self.options.skips_file(&text) } else { None };
        match (Kind::of(entry)?, name, skips_file) {
            (Kind::Directory, ..) if self.options.recursive => self.tree.directories.push(entry.path()),
            (Kind::Link, ..) if self.options.recursive => self.tree.skipped.add(Why::Link),
            (_, _, Some(why)) => self.tree.skipped.add(why),
            (Kind::File, Some(name), _) => self.add_file(Form::new(directory, &text, name), name),
            (kind, ..) => self.add_other(entry.path(), kind),
        }
        Ok(())
    }

    fn add_file(&mut self, form: Form, name: Name<'_>) {
        let next = self.forms.len();
        let file = File { key: name.key, form: *self.forms.entry(form).or_insert(next) };
        if name.is_index { &mut self.tree.indexes } else { &mut self.tree.files }.push(file);
    }

    /// Keeps the smallest path: the order of a directory is arbitrary.
    fn add_other(&mut self, path: PathBuf, kind: Kind) {
        if self.other.as_ref().is_none_or(|(other, _)| path < *other) {
            self.other = Some((path, kind));
        }
    }

    fn finish(self, root: &Path) -> Result<Tree> {
        let Listing { options, mut tree, forms, other } = self;
        let has_keys = !tree.files.is_empty() || !tree.indexes.is_empty();
        if let Some((path, kind)) = other {
            refuse_database(root, &path)?;
            return Err(malformed(&path, &message(&path, kind, options, has_keys)));
        }
        if !has_keys && tree.skipped.files() > 0 {
            let message =
                format!("expected files that are named by their keys, found none and skipped {}", tree.skipped);
            return Err(malformed(root, &message));
        }
        let mut forms: Vec<_> = forms.into_iter().collect();
        forms.sort_unstable_by_key(|(_, at)| *at);
        tree.forms = forms.into_iter().map(|(form, _)| form).collect();
        tree.sort_and_check(root)?;
        Ok(tree)
    }
}

/// Refuses the directory if it is a store, and that of a path that is no key if it is a data set.
///
/// Errors: `Usage`.
fn refuse_database(root: &Path, other: &Path) -> Result<()> {
    let is_store = Store::open(root).is_ok();
    let directory = if is_store { root } else { other.parent().unwrap_or(root) };
    let is_shard = other.extension().is_some_and(|extension| extension == "shard");
    if is_store || (is_shard && fs::metadata(directory.join("info")).is_ok()) {
        return Err(Failure::usage(format!(
            "expected files that are named by their keys, found the database {}: sharddb import {} STORE",
            directory.display(),
            word(directory)
        )));
    }
    Ok(())
}

/// What is wrong with a path, and what the user can do.
fn message(path: &Path, kind: Kind, options: &NameOptions, has_keys: bool) -> String {
    match kind {
        Kind::File => {
            let name = path.file_name().and_then(OsStr::to_str);
            let advice = options.advice(name.unwrap_or_default(), has_keys);
            format!("expected a file named by its key {}, found another name: {advice}", options.expected())
        }
        Kind::Directory => "expected a regular file, found a directory: --recursive reads the files in it".to_string(),
        Kind::Link => {
            "expected a regular file, found a link to a directory, which is not followed: --ignore GLOB skips it"
                .to_string()
        }
        Kind::Special => "expected a regular file, found another kind of file: --ignore GLOB skips it".to_string(),
    }
}

fn malformed(path: &Path, message: &str) -> Failure {
    Failure::malformed(&path.display().to_string(), Place::Whole, message)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::input::names::NameBase;

    /// A directory of empty files.
    fn files(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        dir
    }

    fn list(dir: &tempfile::TempDir, names: &NameOptions) -> Result<Tree> {
        let mut reading = Reading::for_tests();
        reading.names.clone_from(names);
        Tree::list(dir.path(), &reading)
    }

    /// Each key and its path, and the number of skipped files.
    fn listed(dir: &tempfile::TempDir, names: &NameOptions) -> String {
        let tree = list(dir, names).unwrap();
        let mut text = String::new();
        for key in tree.keys() {
            write!(text, "{key} {} ", tree.file(key).unwrap().strip_prefix(dir).unwrap().display()).unwrap();
        }
        text + &tree.skipped().files().to_string()
    }

    #[track_caller]
    fn message(dir: &tempfile::TempDir, names: &NameOptions) -> String {
        match list(dir, names) {
            Err(Failure::Malformed(malformed)) => malformed.to_string(),
            other => panic!("expected a malformed directory, found {other:?}"),
        }
    }

    fn suffix(text: &str) -> NameOptions {
        NameOptions { suffix: Some(text.to_string()), ..NameOptions::default() }
    }

    fn base(base: NameBase) -> NameOptions {
        NameOptions { name_base: Some(base), ..NameOptions::default() }
    }

    fn recursive() -> NameOptions {
        NameOptions { recursive: true, ..NameOptions::default() }
    }

    fn ignore(pattern: &str) -> NameOptions {
        NameOptions { ignore: vec![glob::Pattern::new(pattern).unwrap()], ..NameOptions::default() }
    }

    #[test]
    fn every_form_leads_back_to_its_file() {
        let none = NameOptions::default();
        assert_eq!(listed(&files(&["10", "9.gz", "7:0", "0"]), &none), "0 0 7 7:0 9 9.gz 10 10 0");
        assert_eq!(listed(&files(&["10.json", "9.json.gz", "info"]), &suffix(".json")), "9 9.json.gz 10 10.json 1");
        let padded = ["0000", "007", "0018446744073709551615", "42"];
        let expected = "0 0000 7 007 42 42 18446744073709551615 0018446744073709551615 0";
        assert_eq!(listed(&files(&padded), &base(NameBase::Ten)), expected);
        let hex = ["0", "000a", "0xB", "0X0c.gz", "0xaB", "Ac", "ad", "10"];
        let expected = "0 0 10 000a 11 0xB 12 0X0c.gz 16 10 171 0xaB 172 Ac 173 ad 0";
        assert_eq!(listed(&files(&hex), &base(NameBase::Sixteen)), expected);
        let all = NameOptions { name_base: Some(NameBase::Sixteen), recursive: true, ..suffix(".bin") };
        assert_eq!(listed(&files(&["a/0F.bin", "b/c/10.bin"]), &all), "15 a/0F.bin 16 b/c/10.bin 0");
    }

    #[test]
    fn directories_are_read_as_a_whole() {
        let dir = files(&["1", "00/2", "a b/c/d/3", "4/5", "info/6", ".git/7", "old/8", "x.labels/info", "é/9.gz"]);
        let options = NameOptions { recursive: true, ..ignore("old") };
        assert_eq!(listed(&dir, &options), "1 1 2 00/2 3 a b/c/d/3 5 4/5 6 info/6 9 é/9.gz 3");
        let skipped = list(&dir, &options).unwrap().skipped().to_string();
        assert_eq!(skipped, "3 files: 1 subtree by --ignore old, 1 hidden, 1 info");
        assert_eq!(listed(&files(&["a/7", "b/7.index"]), &recursive()), "7 a/7 0");
    }

    #[test]
    fn deep_trees_take_no_stack() {
        let deep = format!("{}7", "d/".repeat(1000));
        assert_eq!(list(&files(&[&deep]), &recursive()).unwrap().keys().collect::<Vec<_>>(), [7]);
    }

    #[cfg(unix)]
    #[test]
    fn links_to_files_are_followed_and_links_to_directories_are_not() {
        use std::os::unix::fs::symlink;
        let dir = files(&["1", "sub/3"]);
        symlink("1", dir.path().join("2")).unwrap();
        symlink("there is no such", dir.path().join(".#hidden")).unwrap();
        for (target, link) in [("..", "sub/loop"), (".", "4"), ("sub", "other")] {
            symlink(target, dir.path().join(link)).unwrap();
        }
        assert_eq!(listed(&dir, &recursive()), "1 1 2 2 3 sub/3 4");
        fs::remove_dir_all(dir.path().join("sub")).unwrap();
        fs::remove_file(dir.path().join("other")).unwrap();
        assert!(message(&dir, &NameOptions::default()).contains("found a link to a directory, which is not followed"));
        symlink("there is no such", dir.path().join("5")).unwrap();
        assert!(matches!(list(&dir, &recursive()), Err(Failure::Io { .. })));
    }

    #[test]
    fn a_derived_path_exists_for_keys_only() {
        let tree = |names: &[&str], options: &NameOptions| list(&files(names), options).unwrap();
        let path = tree(&["7.json", "9.json"], &suffix(".json")).derived(8).unwrap();
        assert_eq!(path.file_name().unwrap(), "8.json");
        for names in [&["7", "8.gz"][..], &["7", "7.index"], &[]] {
            assert_eq!(tree(names, &NameOptions::default()).derived(9), None);
        }
        assert_eq!(tree(&["aB"], &base(NameBase::Sixteen)).derived(9), None);
    }

    #[test]
    fn skips_and_counts_what_holds_no_pair() {
        let dir = files(&[
            "1",
            "info",
            ".hidden",
            ".git/HEAD",
            "0-64_0-64_0-64.spatial",
            "0-64_0-64_0-64.labels",
            "0-64_0-64_0-64.labels.sf",
            "7:0",
            "7:0:0-64_0-64_0-64",
            "8:0:0-64_0-64_0-64.gz",
            "a.json",
            "b.json",
        ]);
        let tree = list(&dir, &ignore("*.json")).unwrap();
        assert_eq!(tree.keys().collect::<Vec<_>>(), [1, 7]);
        assert_eq!(
            tree.skipped().to_string(),
            "10 files: 2 by --ignore '*.json', 2 hidden, 1 info, 3 *.spatial or *.labels*, 2 mesh fragments (values are \
             the manifests KEY:0 that name them)"
        );
    }

    #[test]
    fn refuses_to_skip_all_files() {
        let message = |names: &[&str], options: &NameOptions| message(&files(names), options);
        assert!(
            message(&["7.json", "8.json", ".x"], &ignore("*.json"))
                .contains("found none and skipped 3 files: 2 by --ignore '*.json', 1 hidden")
        );
        assert!(message(&["info"], &NameOptions::default()).contains("skipped 1 file: 1 info"));
        assert!(message(&["7:0:0-1_0-1_0-1"], &NameOptions::default()).contains("skipped 1 file: 1 mesh fragment"));
        assert_eq!(listed(&files(&[]), &ignore("*")), "0");
    }

    #[test]
    fn refuses_other_names() {
        let refused = "007 +7 7.0 0x7 a 7.txt 7.index.gz 007.gz x.index 18446744073709551616 info.gz 7:1 7:00 é";
        for name in refused.split(' ').chain(["7 ", "a b"]) {
            let message = message(&files(&[name]), &NameOptions::default());
            assert!(
                message.contains("found another name") && message.contains(&format!("/{name})")),
                "{name}: {message}"
            );
        }
        let message = message(&files(&["7.json", "8"]), &suffix(".json"));
        assert!(
            message.contains("by its key and .json (in canonical decimal below 2^64), found another name: --ignore"),
            "{message}"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn names_that_are_no_text_are_no_keys() {
        use std::os::unix::ffi::OsStrExt;
        let name = |bytes| std::ffi::OsStr::from_bytes(bytes);
        let dir = files(&["1"]);
        fs::write(dir.path().join(name(b"7\xff.json")), "").unwrap();
        let message = message(&dir, &NameOptions::default());
        assert!(message.contains("found another name: --ignore GLOB skips files"), "{message}");
        assert_eq!(listed(&dir, &ignore("7*")), "1 1 1");
        fs::create_dir(dir.path().join(name(b"d\xff"))).unwrap();
        fs::write(dir.path().join(name(b"d\xff/2")), "").unwrap();
        let tree = list(&dir, &NameOptions { recursive: true, ..ignore("7*") }).unwrap();
        assert!(tree.file(2).unwrap().is_file());
    }

    /// Each step follows the advice of the one before.
    #[test]
    fn advice_leads_to_the_end() {
        let dir = files(&["00/0x1f.json", "01/2A.json.gz", "01/notes.txt", "info"]);
        let mut options = NameOptions::default();
        assert!(message(&dir, &options).contains("found a directory: --recursive reads the files in it"));
        options.recursive = true;
        let advice = "with --suffix .json and --name-base 16 it is the file of key 31";
        assert!(message(&dir, &options).contains(advice), "{}", message(&dir, &options));
        options.suffix = Some(".json".to_string());
        options.name_base = Some(NameBase::Sixteen);
        assert!(message(&dir, &options).contains("--ignore GLOB skips files"), "{}", message(&dir, &options));
        options.ignore = ignore("*.txt").ignore;
        assert_eq!(listed(&dir, &options), "31 00/0x1f.json 42 01/2A.json.gz 2");
    }

    #[test]
    fn a_directory_is_no_value() {
        let message = message(&files(&["7/x"]), &NameOptions::default());
        assert!(message.contains("expected a regular file, found a directory: --recursive"), "{message}");
    }

    #[test]
    fn refuses_two_files_for_one_key() {
        let ten = base(NameBase::Ten);
        let cases: [(&[&str], NameOptions, &str); 7] = [
            (&["7", "7.gz"], NameOptions::default(), "key 7 twice: 7 and 7.gz;"),
            (&["7", "7:0"], NameOptions::default(), "key 7 twice: 7 and 7:0;"),
            (&["7.json", "7.json.gz"], suffix(".json"), "key 7 twice: 7.json and 7.json.gz;"),
            (&["7", "0007"], ten, "key 7 twice: 0007 and 7;"),
            (&["f", "0xF"], base(NameBase::Sixteen), "key 15 twice: 0xF and f;"),
            (&["00/7", "01/7"], recursive(), "key 7 twice: 00/7 and 01/7;"),
            (&["7", "a/7.index", "7.index"], recursive(), "key 7 twice: 7.index and a/7.index;"),
        ];
        for (names, options, expected) in cases {
            let message = message(&files(names), &options);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn refuses_an_index_without_its_fragments() {
        let none = message(&files(&["7.index"]), &NameOptions::default());
        assert!(none.contains("expected the file 7 beside 7.index, found none"), "{none}");
        let hex = message(&files(&["0xF.index", "1"]), &base(NameBase::Sixteen));
        assert!(hex.contains("expected the file 0xF beside 0xF.index, found none"), "{hex}");
    }
}
