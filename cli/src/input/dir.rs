//! `dir`: one file per key, named by the key.
//!
//! ```text
//! 7                 the value of key 7
//! 7.gz              the value of key 7, compressed
//! 7 + 7.index       preamble (mesh fragments) in 7, and value (their manifest) in 7.index
//! 7:0               the value of key 7: the manifest of a mesh as igneous names it. 7:0:BOX, a fragment, is skipped
//! info, .*, *.spatial, *.labels*, what --ignore names    no pairs: skipped and counted
//! ```
//!
//! [`NameOptions`](crate::input::NameOptions) add a suffix, subdirectories and other bases. Keys are read in ascending
//! order, so the order does not depend on the file system.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::failure::{Failure, Place, Result};
use crate::input::exact::{Exact, Outcome};
use crate::input::tree::Tree;
use crate::input::{Reading, SMALL, Sink, Skipped};

/// A directory whose file names have been listed.
pub(crate) struct Directory {
    path: PathBuf,
    tree: Tree,
}

impl Directory {
    /// Lists the names. O(n log n) for n files.
    ///
    /// Errors: `Malformed` for a name that is not allowed, or if all are skipped; `Io`.
    pub(crate) fn open(path: &Path, reading: &Reading) -> Result<Directory> {
        Ok(Directory { path: path.to_path_buf(), tree: Tree::list(path, reading)? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All keys, ascending.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = u64> {
        self.tree.keys()
    }

    /// The files without a pair.
    pub(crate) fn skipped(&self) -> &Skipped {
        self.tree.skipped()
    }

    /// Passes the pairs to `sink`, in ascending order of keys.
    pub(crate) fn read(&self, reading: &Reading, sink: &mut dyn Sink) -> Result<()> {
        reading.progress.add_total(Some(self.keys().len() as u64));
        for key in self.keys() {
            reading.check_cancel()?;
            let bytes = read_pair(&self.tree, key, sink)?;
            reading.progress.add_done(1, bytes);
        }
        Ok(())
    }

    /// The path of the file with the value of a key. It may not exist.
    pub(crate) fn value_path(&self, key: u64) -> PathBuf {
        let found = self.tree.derived(key).or_else(|| self.tree.index(key)).or_else(|| self.tree.file(key));
        found.unwrap_or_else(|| self.path.join(format!(".{key}"))) // hidden: not the file of another key
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
        if is_gzip(&path) {
            MultiGzDecoder::new(file).read_to_end(value).map_err(|error| unreadable(&path, error))?
        } else {
            file.read_to_end(value).map_err(|error| Failure::io("read", &path, error))?
        };
        Ok(true)
    }
}

fn is_gzip(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("gz"))
}

/// Passes the pair of a key to `sink`; returns the number of its bytes.
fn read_pair(tree: &Tree, key: u64, sink: &mut dyn Sink) -> Result<u64> {
    let path = tree.file(key).ok_or_else(|| Failure::Internal(format!("expected a file of key {key}, found none")))?;
    let piece = if is_gzip(&path) { Piece::gzip(path)? } else { Piece::plain(path)? };
    match tree.index(key) {
        Some(index) => insert(key, piece, Piece::plain(index)?, sink),
        None => insert(key, Piece::default(), piece, sink),
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
    use std::fs;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::input::NameOptions;
    use crate::input::testing::{Pair, Pairs, pair};

    fn read(path: &Path, reading: &Reading, sink: &mut dyn Sink) -> Result<Skipped> {
        let directory = Directory::open(path, reading)?;
        directory.read(reading, sink)?;
        Ok(directory.skipped().clone())
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
        assert_eq!((directory.keys().collect::<Vec<_>>(), value.as_slice()), (vec![2, 5, 9], &b""[..]));
    }

    #[test]
    fn reads_values_whose_names_are_not_their_keys() {
        let names = ["0010", "0xAb", "000C.gz", "000d", "000d.index", "f"];
        let gzip = gzip(b"000C.gz");
        let files = names.map(|name| (name, if name.ends_with("gz") { &gzip[..] } else { name.as_bytes() }));
        let (dir, mut reading) = (dir_of(&files), Reading::for_tests());
        reading.names =
            NameOptions { name_base: Some(crate::input::names::NameBase::Sixteen), ..NameOptions::default() };
        let directory = Directory::open(dir.path(), &reading).unwrap();
        let mut value = Vec::new();
        for (key, expected) in [(12, "000C.gz"), (13, "000d.index"), (15, "f"), (16, "0010"), (171, "0xAb")] {
            assert!(directory.read_value(key, &mut value).unwrap(), "{key}");
            assert_eq!(String::from_utf8_lossy(&value), expected, "{key}");
        }
        for absent in [0, 10, 14, 17, 0xa0, u64::MAX] {
            assert!(!directory.read_value(absent, &mut value).unwrap(), "{absent}");
        }
    }

    #[test]
    fn an_empty_directory_is_an_empty_input() {
        assert_eq!(read_all(&dir_of(&[])).unwrap(), (vec![], Skipped::default()));
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
