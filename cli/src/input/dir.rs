//! `dir`: one file per key, named by the key in canonical decimal.
//!
//! ```text
//! 7                 the value of key 7
//! 7.gz              the value of key 7, compressed
//! 7 + 7.index       preamble (mesh fragments) in 7, and value (their manifest) in 7.index
//! info, .*, *.spatial, *.labels*, what --ignore names    no pairs: skipped and counted
//! ```
//!
//! Names take 8 bytes of memory per file. Keys are read in ascending order, so the order does not depend on the file
//! system.

use std::fs::{self, DirEntry, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use sharddb::internal::key;

use crate::failure::{Failure, Place, Result};
use crate::input::exact::{Exact, Outcome};
use crate::input::{Reading, SMALL, Sink, Skipped};

/// A directory whose file names have been listed.
pub(crate) struct Directory {
    path: PathBuf,
    names: Names,
}

impl Directory {
    /// Lists the names. O(n log n) for n files.
    ///
    /// Errors: `Malformed` for a name that is not allowed; `Io`.
    pub(crate) fn open(path: &Path, reading: &Reading) -> Result<Directory> {
        Ok(Directory { path: path.to_path_buf(), names: Names::list(path, reading)? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All keys, ascending.
    pub(crate) fn keys(&self) -> &[u64] {
        &self.names.keys
    }

    /// Passes the pairs to `sink`, in ascending order of keys.
    pub(crate) fn read(&self, reading: &Reading, sink: &mut dyn Sink) -> Result<Skipped> {
        reading.progress.add_total(Some(self.names.keys.len() as u64));
        for &key in &self.names.keys {
            reading.check_cancel()?;
            let bytes = read_pair(&self.path, key, &self.names, sink)?;
            reading.progress.add_done(1, bytes);
        }
        Ok(self.names.skipped.clone())
    }

    /// The path of the file with the value of a key. It may not exist.
    pub(crate) fn value_path(&self, key: u64) -> PathBuf {
        if self.names.index.binary_search(&key).is_ok() {
            return self.path.join(format!("{key}.index"));
        }
        match self.names.gzip.binary_search(&key) {
            Ok(_) => self.path.join(format!("{key}.gz")),
            Err(_) => self.path.join(key.to_string()),
        }
    }

    /// Replaces the content of `value` with the decompressed value of a key; returns whether its file exists.
    pub(crate) fn read_value(&self, key: u64, value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let path = self.value_path(key);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Failure::io("open", &path, error)),
        };
        if path.extension().is_some_and(|extension| extension == "gz") {
            MultiGzDecoder::new(file).read_to_end(value).map_err(|error| unreadable(&path, error))?
        } else {
            file.read_to_end(value).map_err(|error| Failure::io("read", &path, error))?
        };
        Ok(true)
    }
}

/// What a file is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Plain(u64),
    Gzip(u64),
    Index(u64),
    Skipped,
}

impl Name {
    /// Parses a file name; `None` if the name is not allowed in such a directory.
    fn parse(name: &str) -> Option<Name> {
        if name == "info" || name.starts_with('.') || name.ends_with(".spatial") || name.contains(".labels") {
            return Some(Name::Skipped);
        }
        if let Some(stem) = name.strip_suffix(".gz") {
            return key::canonical(stem).map(Name::Gzip);
        }
        if let Some(stem) = name.strip_suffix(".index") {
            return key::canonical(stem).map(Name::Index);
        }
        key::canonical(name).map(Name::Plain)
    }
}

/// The files of a directory by kind. Each list is ascending.
#[derive(Debug, Default)]
struct Names {
    /// Keys with a file `7` or `7.gz`.
    keys: Vec<u64>,
    /// Keys of the files `7.gz`; a subset of `keys`.
    gzip: Vec<u64>,
    /// Keys with a file `7.index`; a subset of `keys`.
    index: Vec<u64>,
    skipped: Skipped,
}

impl Names {
    fn list(path: &Path, reading: &Reading) -> Result<Names> {
        let failure = |error| Failure::io("list", path, error);
        let mut names = Names::default();
        for entry in fs::read_dir(path).map_err(failure)? {
            reading.check_cancel()?;
            names.add(&entry.map_err(failure)?, reading)?;
        }
        names.sort_and_check(path)?;
        Ok(names)
    }

    fn add(&mut self, entry: &DirEntry, reading: &Reading) -> Result<()> {
        let name = entry.file_name();
        if reading.ignores(&name.to_string_lossy()) {
            self.skipped.add(&entry.path());
            return Ok(());
        }
        let Some(name) = name.to_str().and_then(Name::parse) else {
            let message = "expected a file named by its key (7, 7.gz or 7.index, in canonical decimal), found another \
                           name: --ignore GLOB skips files";
            return Err(malformed(&entry.path(), message));
        };
        if name != Name::Skipped && !is_file(entry)? {
            return Err(malformed(&entry.path(), "expected a regular file, found another kind of file"));
        }
        match name {
            Name::Plain(key) => self.keys.push(key),
            Name::Gzip(key) => {
                self.keys.push(key);
                self.gzip.push(key);
            }
            Name::Index(key) => self.index.push(key),
            Name::Skipped => self.skipped.add(&entry.path()),
        }
        Ok(())
    }

    fn sort_and_check(&mut self, path: &Path) -> Result<()> {
        for list in [&mut self.keys, &mut self.gzip, &mut self.index] {
            list.sort_unstable();
        }
        let twice = |pair: &[u64]| matches!(pair, [a, b] if a == b);
        if let Some([key, ..]) = self.keys.windows(2).find(|pair| twice(pair)) {
            return Err(malformed(path, &format!("expected one of {key} and {key}.gz, found both")));
        }
        if let Some(key) = self.index.iter().find(|key| self.keys.binary_search(key).is_err()) {
            return Err(malformed(path, &format!("expected the file {key} beside {key}.index, found none")));
        }
        Ok(())
    }
}

/// Whether an entry is a regular file or a link to one. Needs no system call unless it is a link.
fn is_file(entry: &DirEntry) -> Result<bool> {
    let path = entry.path();
    let failure = |error| Failure::io("open", &path, error);
    let file_type = entry.file_type().map_err(failure)?;
    if file_type.is_symlink() {
        return Ok(fs::metadata(&path).map_err(failure)?.is_file());
    }
    Ok(file_type.is_file())
}

/// Passes the pair of a key to `sink`; returns the number of its bytes.
fn read_pair(dir: &Path, key: u64, names: &Names, sink: &mut dyn Sink) -> Result<u64> {
    let piece = match names.gzip.binary_search(&key) {
        Ok(_) => Piece::gzip(dir.join(format!("{key}.gz")))?,
        Err(_) => Piece::plain(dir.join(key.to_string()))?,
    };
    match names.index.binary_search(&key) {
        Ok(_) => insert(key, piece, Piece::plain(dir.join(format!("{key}.index")))?, sink),
        Err(_) => insert(key, Piece::default(), piece, sink),
    }
}

fn insert(key: u64, preamble: Piece, value: Piece, sink: &mut dyn Sink) -> Result<u64> {
    let (preamble_len, value_len) = (preamble.len(), value.len());
    if let (Body::Held(preamble), Body::Held(held)) = (&preamble.body, &value.body) {
        sink.insert(key, preamble, held).map_err(|failure| at(&value.path, failure))?;
        return Ok(preamble_len + value_len);
    }
    let (preamble_path, value_path) = (preamble.path, value.path);
    let mut preamble = Exact::new(preamble.body.into_reader(), preamble_len);
    let mut value = Exact::new(value.body.into_reader(), value_len);
    let inserted = sink.insert_reader(key, preamble_len, value_len, &mut (&mut preamble).chain(&mut value));
    for (outcome, path) in [(preamble.outcome(), &preamble_path), (value.outcome(), &value_path)] {
        match outcome {
            Outcome::Fine => {}
            Outcome::Short(_) => {
                return Err(malformed(path, "expected an unchanged file, found it shorter than when it was opened"));
            }
            Outcome::Failed(error) => return Err(unreadable(path, error)),
        }
    }
    inserted.map_err(|failure| at(&value_path, failure))?;
    Ok(preamble_len.saturating_add(value_len))
}

/// The content of one file.
#[derive(Default)]
struct Piece {
    path: PathBuf,
    body: Body,
}

enum Body {
    /// Up to [`SMALL`] bytes.
    Held(Vec<u8>),
    /// More than [`SMALL`] bytes, read when needed.
    Streamed { len: u64, reader: Box<dyn Read> },
}

impl Default for Body {
    fn default() -> Body {
        Body::Held(Vec::new())
    }
}

impl Body {
    fn into_reader(self) -> Box<dyn Read> {
        match self {
            Body::Held(bytes) => Box::new(io::Cursor::new(bytes)),
            Body::Streamed { reader, .. } => reader,
        }
    }
}

impl Piece {
    /// A file without compression.
    fn plain(path: PathBuf) -> Result<Piece> {
        let mut file = File::open(&path).map_err(|error| Failure::io("open", &path, error))?;
        let len = file.metadata().map_err(|error| Failure::io("read", &path, error))?.len();
        if len > SMALL {
            return Ok(Piece { path, body: Body::Streamed { len, reader: Box::new(file) } });
        }
        let held = read_small(&mut file).map_err(|error| Failure::io("read", &path, error))?;
        let held = held
            .ok_or_else(|| malformed(&path, "expected an unchanged file, found it longer than when it was opened"))?;
        Ok(Piece { path, body: Body::Held(held) })
    }

    /// A compressed file. Its decoded length is known only at its end, so a large file is decoded twice instead
    /// of being held in memory.
    fn gzip(path: PathBuf) -> Result<Piece> {
        let open = || File::open(&path).map(MultiGzDecoder::new).map_err(|error| Failure::io("open", &path, error));
        let mut decoder = open()?;
        if let Some(held) = read_small(&mut decoder).map_err(|error| unreadable(&path, error))? {
            return Ok(Piece { path, body: Body::Held(held) });
        }
        let rest = io::copy(&mut decoder, &mut io::sink()).map_err(|error| unreadable(&path, error))?;
        let body = Body::Streamed { len: SMALL + 1 + rest, reader: Box::new(open()?) };
        Ok(Piece { path, body })
    }

    fn len(&self) -> u64 {
        match &self.body {
            Body::Held(bytes) => bytes.len() as u64,
            Body::Streamed { len, .. } => *len,
        }
    }
}

/// Reads all of a reader; `None` if it has more than [`SMALL`] bytes, of which `SMALL + 1` are consumed.
fn read_small(reader: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = reader.take(SMALL + 1).read_to_end(&mut bytes)? as u64;
    Ok((read <= SMALL).then_some(bytes))
}

/// The failure of a read: an I/O error, or a broken gzip stream.
fn unreadable(path: &Path, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            malformed(path, &format!("expected gzip: {error}"))
        }
        _ => Failure::io("read", path, error),
    }
}

/// Adds the file of a value to the refusal of a sink.
fn at(value: &Path, failure: Failure) -> Failure {
    failure.at(&value.display().to_string(), Place::Whole)
}

fn malformed(path: &Path, message: &str) -> Failure {
    Failure::malformed(&path.display().to_string(), Place::Whole, message)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::input::testing::{Pair, Pairs, pair};

    fn read(path: &Path, reading: &Reading, sink: &mut dyn Sink) -> Result<Skipped> {
        Directory::open(path, reading)?.read(reading, sink)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn dir_of(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        dir
    }

    fn read_all(dir: &tempfile::TempDir) -> Result<(Vec<Pair>, Skipped)> {
        let mut pairs = Pairs::default();
        let skipped = read(dir.path(), &Reading::for_tests(), &mut pairs)?;
        Ok((pairs.0, skipped))
    }

    fn message(dir: &tempfile::TempDir) -> String {
        match read_all(dir) {
            Err(Failure::Malformed(malformed)) => malformed.to_string(),
            other => panic!("expected a malformed directory, found {other:?}"),
        }
    }

    #[test]
    fn reads_pairs_in_ascending_order_of_keys() {
        let compressed = gzip(b"nine");
        let two_members = [gzip(b"two "), gzip(b"members")].concat();
        let dir = dir_of(&[
            ("10", b"ten"),
            ("9.gz", &compressed),
            ("2", b""),
            ("18446744073709551615", b"last"),
            ("5", b"fragments"),
            ("5.index", b"manifest"),
            ("6.gz", &two_members),
            ("6.index", b""),
        ]);
        let expected = [
            pair(2, b"", b""),
            pair(5, b"fragments", b"manifest"),
            pair(6, b"two members", b""),
            pair(9, b"", b"nine"),
            pair(10, b"", b"ten"),
            pair(u64::MAX, b"", b"last"),
        ];
        assert_eq!(read_all(&dir).unwrap(), (expected.to_vec(), Skipped::default()));
    }

    #[test]
    fn reads_values_one_by_one() {
        let dir = dir_of(&[("9.gz", &gzip(b"nine")), ("2", b""), ("5", b"fragments"), ("5.index", b"manifest")]);
        let directory = Directory::open(dir.path(), &Reading::for_tests()).unwrap();
        let mut value = b"before".to_vec();
        for (key, expected) in [(9, &b"nine"[..]), (2, b""), (5, b"manifest")] {
            assert!(directory.read_value(key, &mut value).unwrap());
            assert_eq!(value, expected, "{key}");
        }
        assert!(!directory.read_value(7, &mut value).unwrap());
        assert_eq!((directory.keys(), value.as_slice()), (&[2, 5, 9][..], &b""[..]));
    }

    #[test]
    fn an_empty_directory_is_an_empty_input() {
        assert_eq!(read_all(&dir_of(&[])).unwrap(), (vec![], Skipped::default()));
    }

    #[test]
    fn skips_and_counts_what_holds_no_pair() {
        let dir = dir_of(&[
            ("info", b"{}"),
            (".hidden", b""),
            ("0-64_0-64_0-64.spatial", b""),
            ("0-64_0-64_0-64.labels", b""),
            ("0-64_0-64_0-64.labels.sf", b""),
            ("1", b"x"),
        ]);
        fs::create_dir(dir.path().join(".git")).unwrap();
        let (pairs, skipped) = read_all(&dir).unwrap();
        assert_eq!((pairs, skipped.files()), (vec![pair(1, b"", b"x")], 6));
    }

    #[test]
    fn refuses_other_names() {
        for name in [
            "007",
            "+7",
            "7.0",
            "0x7",
            "a",
            "7.txt",
            "7.index.gz",
            "007.gz",
            "x.index",
            "18446744073709551616",
            "info.gz",
            "7:0",
            "é",
        ] {
            let message = message(&dir_of(&[(name, b"")]));
            assert!(
                message.contains("found another name") && message.contains(&format!("/{name})")),
                "{name}: {message}"
            );
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn refuses_names_that_are_no_text() {
        use std::os::unix::ffi::OsStrExt;
        let dir = dir_of(&[]);
        fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"7\xff")), b"").unwrap();
        assert!(message(&dir).contains("found another name"));
    }

    #[test]
    fn refuses_what_is_no_file() {
        let dir = dir_of(&[]);
        fs::create_dir(dir.path().join("7")).unwrap();
        assert!(message(&dir).contains("expected a regular file"));
    }

    #[cfg(unix)]
    #[test]
    fn follows_links_to_files_only() {
        let dir = dir_of(&[("1", b"x")]);
        std::os::unix::fs::symlink(dir.path().join("1"), dir.path().join("2")).unwrap();
        assert_eq!(read_all(&dir).unwrap().0, [pair(1, b"", b"x"), pair(2, b"", b"x")]);
        std::os::unix::fs::symlink(dir.path(), dir.path().join("3")).unwrap();
        assert!(message(&dir).contains("expected a regular file"));
    }

    #[test]
    fn refuses_two_files_for_one_value() {
        let message = message(&dir_of(&[("7", b""), ("7.gz", &gzip(b""))]));
        assert!(message.contains("expected one of 7 and 7.gz, found both"), "{message}");
    }

    #[test]
    fn refuses_an_index_without_its_fragments() {
        let message = message(&dir_of(&[("7.index", b"")]));
        assert!(message.contains("expected the file 7 beside 7.index, found none"), "{message}");
    }

    #[test]
    fn refuses_broken_gzip() {
        let good = gzip(b"value");
        let mut wrong_crc = good.clone();
        let at = wrong_crc.len() - 8;
        wrong_crc[at] ^= 1;
        let trailing = [&good[..], b"x"].concat();
        for (case, bytes) in [
            ("empty", &b""[..]),
            ("no gzip", b"value"),
            ("truncated", &good[..good.len() - 1]),
            ("wrong CRC", &wrong_crc),
            ("trailing", &trailing),
        ] {
            let message = message(&dir_of(&[("7.gz", bytes)]));
            assert!(message.contains("expected gzip") && message.contains("7.gz"), "{case}: {message}");
        }
    }

    #[test]
    fn streams_what_is_large() {
        let large: Vec<u8> = (0..=250).cycle().take((1 << 20) + 5).collect();
        let compressed = gzip(&large);
        let dir = dir_of(&[
            ("1", &large),
            ("2.gz", &compressed),
            ("3", &large),
            ("3.index", b"m"),
            ("4", b"f"),
            ("4.index", &large),
        ]);
        let expected = [pair(1, b"", &large), pair(2, b"", &large), pair(3, &large, b"m"), pair(4, b"f", &large)];
        assert!(read_all(&dir).unwrap().0 == expected);
    }

    #[test]
    fn a_large_broken_gzip_is_named() {
        let compressed = gzip(&vec![7; 3 << 20]);
        let message = message(&dir_of(&[("2.gz", &compressed[..compressed.len() - 9])]));
        assert!(message.contains("expected gzip") && message.contains("2.gz"), "{message}");
    }

    #[test]
    fn a_missing_directory_is_an_io_error() {
        let error = read(Path::new("there/is/no/such"), &Reading::for_tests(), &mut Pairs::default()).unwrap_err();
        assert!(matches!(error, Failure::Io { .. }), "{error}");
    }

    #[test]
    fn stops_when_asked() {
        let reading = Reading::for_tests();
        reading.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        let error = read(dir_of(&[("1", b"x")]).path(), &reading, &mut Pairs::default()).unwrap_err();
        assert!(matches!(error, Failure::Cancelled), "{error}");
    }
}
