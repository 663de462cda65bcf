//! The inputs of `build` and `plan`: pairs from directories, lines and binary records.
//!
//! Every reader passes its pairs to a [`Sink`] one by one and holds at most one small record, so inputs may be larger
//! than memory. A malformed record is an error that names its place.

mod binary;
mod compression;
mod csv;
mod dir;
mod exact;
mod key_list;
mod mark;
mod names;
pub(crate) mod ndjson;
pub(crate) mod patch;
mod pipe;
mod progress;
mod skipped;
mod stream;
mod tree;

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::context::Context;
use crate::failure::{Failure, Result};

pub(crate) use compression::Compression;
pub(crate) use dir::Directory;
pub(crate) use key_list::{BadLine, KeyList};
pub(crate) use names::NameOptions;
pub(crate) use progress::InputProgress;
pub(crate) use skipped::Skipped;
pub(crate) use stream::Stream;

/// Records with more bytes than this are streamed instead of held in memory.
pub(crate) const SMALL: u64 = 1 << 20;

/// A consumer of pairs.
pub(crate) trait Sink {
    /// Inserts a pair that is in memory.
    fn insert(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()>;

    /// Inserts a large pair. `reader` yields the preamble, then the value, and nothing else.
    fn insert_reader(&mut self, key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()>;
}

/// The formats of pairs in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One file per key, named by the key
    Dir,
    /// One JSON object per line
    Ndjson,
    /// Key, length (u64 little endian), bytes
    Bin,
    /// Key, preamble length, length (u64 little endian), preamble, bytes
    Bin2,
    /// One row per key, under a row with the names of the columns
    Csv,
}

impl Format {
    const ALL: [Format; 5] = [Format::Dir, Format::Ndjson, Format::Bin, Format::Bin2, Format::Csv];

    /// The name on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Format::Dir => "dir",
            Format::Ndjson => "ndjson",
            Format::Bin => "bin",
            Format::Bin2 => "bin2",
            Format::Csv => "csv",
        }
    }

    /// The format that a file name implies.
    pub(crate) fn of_name(path: &Path) -> Option<Format> {
        match path.extension().and_then(OsStr::to_str)? {
            "ndjson" | "jsonl" => Some(Format::Ndjson),
            "bin" => Some(Format::Bin),
            "bin2" => Some(Format::Bin2),
            "csv" => Some(Format::Csv),
            _ => None,
        }
    }
}

/// A format of pairs, and how the file or stream is compressed: `ndjson`, `bin.zst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) format: Format,
    pub(crate) compression: Compression,
}

impl Encoded {
    /// Every format, and every compression of those that are streams, by name.
    pub(crate) const NAMES: [&str; 13] = [
        "dir",
        "ndjson",
        "ndjson.gz",
        "ndjson.zst",
        "bin",
        "bin.gz",
        "bin.zst",
        "bin2",
        "bin2.gz",
        "bin2.zst",
        "csv",
        "csv.gz",
        "csv.zst",
    ];

    /// The format of one of [`NAMES`](Encoded::NAMES).
    pub(crate) fn named(name: &str) -> Option<Encoded> {
        Encoded::NAMES.iter().find(|known| **known == name)?;
        let (format, extension) = name.split_once('.').unwrap_or((name, ""));
        let compression = match extension {
            "gz" => Compression::Gzip,
            "zst" => Compression::Zstd,
            _ => Compression::None,
        };
        let format = Format::ALL.into_iter().find(|known| known.as_str() == format)?;
        Some(Encoded { format, compression })
    }
}

/// The columns of a CSV file, by name or by number from 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    /// The column of keys. Default: the one named "key", or else the first.
    pub(crate) key: Option<String>,
    /// The column of values. Default: all others, as a JSON object.
    pub(crate) value: Option<String>,
    /// The first row is data, and the columns have numbers only.
    pub(crate) no_header: bool,
}

/// Settings and state that all readers share.
pub(crate) struct Reading {
    /// The longest line that is held in memory.
    pub(crate) longest_line: u64,
    /// The member of a line that is the key; the entire line is then the value. `None` for records with a value member.
    pub(crate) key_field: Option<String>,
    /// How the names of files in directories are read.
    pub(crate) names: NameOptions,
    /// The columns of CSV.
    pub(crate) columns: Columns,
    /// How far the inputs are read.
    pub(crate) progress: Arc<InputProgress>,
    /// The cancel flag.
    pub(crate) cancel: Arc<AtomicBool>,
}

impl Reading {
    /// Settings for a list of keys, which reports no progress.
    pub(crate) fn of_list(context: &Context) -> Reading {
        let cancel = Arc::clone(context.interrupt.cancel());
        Reading {
            longest_line: 0,
            key_field: None,
            names: NameOptions::default(),
            columns: Columns::default(),
            progress: Arc::default(),
            cancel,
        }
    }

    /// Returns an error once the cancel flag is set.
    ///
    /// Errors: `Cancelled` after a signal.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(Failure::Cancelled) } else { Ok(()) }
    }
}

#[cfg(test)]
impl Reading {
    pub(crate) fn for_tests() -> Reading {
        Reading {
            longest_line: 64 << 20,
            key_field: None,
            names: NameOptions::default(),
            columns: Columns::default(),
            progress: Arc::default(),
            cancel: Arc::default(),
        }
    }
}

/// One input: a path or standard input, and its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    /// `None` = standard input.
    path: Option<PathBuf>,
    format: Format,
    compression: Compression,
}

impl Input {
    /// The inputs that the user named; `-` is standard input.
    ///
    /// Errors: `Usage` if the format is neither given nor implied by a name, or does not fit the input; `Io` if a path
    /// does not exist.
    pub(crate) fn resolve_all(paths: &[PathBuf], encoded: Option<Encoded>) -> Result<Vec<Input>> {
        let inputs: Vec<_> = paths.iter().map(|path| Input::resolve_prefixed(path, encoded)).collect::<Result<_>>()?;
        if inputs.iter().filter(|input| input.path.is_none()).count() > 1 {
            return Err(Failure::usage("expected standard input (-) once, found it more than once"));
        }
        Ok(inputs)
    }

    /// Resolves `bin2:PATH`, or a path without a format.
    fn resolve_prefixed(path: &Path, encoded: Option<Encoded>) -> Result<Input> {
        let prefixed = path.to_str().and_then(|text| text.split_once(':'));
        match prefixed.and_then(|(name, path)| Some((Encoded::named(name)?, path))) {
            Some((_, "")) => Err(Failure::usage(format!("expected a path after the format, found {}", path.display()))),
            Some((encoded, path)) => Input::resolve(Path::new(path), Some(encoded)),
            None => Input::resolve(path, encoded),
        }
    }

    fn resolve(path: &Path, encoded: Option<Encoded>) -> Result<Input> {
        if is_stdin(path) {
            return match encoded {
                Some(Encoded { format: Format::Dir, .. }) => {
                    Err(Failure::usage("standard input cannot be a directory: give its path"))
                }
                Some(Encoded { format, compression }) => Ok(Input { path: None, format, compression }),
                None => Err(Failure::usage(
                    "the format of standard input is not known: add --format ndjson, csv, bin or bin2, with .gz or \
                     .zst if it is compressed",
                )),
            };
        }
        let metadata = fs::metadata(path).map_err(|error| Failure::io("open", path, error))?;
        let (named, plain) = Compression::of_name(path);
        let found = if metadata.is_dir() { Some(Format::Dir) } else { Format::of_name(plain) };
        let Some(format) = encoded.map(|encoded| encoded.format).or(found) else {
            let is_parquet = plain.extension().is_some_and(|extension| extension == "parquet" || extension == "arrow");
            let message = match (path.display(), is_parquet) {
                (path, true) => {
                    format!("{path} is a table: sharddb.Loader.extend of the Python package reads it, with pyarrow")
                }
                (path, false) => {
                    format!("the format of {path} does not follow from its name: add --format ndjson, csv, bin or bin2")
                }
            };
            return Err(Failure::usage(message));
        };
        match (metadata.is_dir(), format) {
            (true, Format::Dir) => {}
            (true, _) => {
                let message =
                    format!("{} is a directory: expected --format dir, found {}", path.display(), format.as_str());
                return Err(Failure::usage(message));
            }
            (false, Format::Dir) => {
                return Err(Failure::usage(format!(
                    "--format dir expects a directory, found the file {}",
                    path.display()
                )));
            }
            (false, _) => {}
        }
        let stated = encoded.map_or(Compression::None, |encoded| encoded.compression);
        let compression = if stated == Compression::None { named } else { stated };
        Ok(Input { path: Some(path.to_path_buf()), format, compression })
    }

    /// The name for messages: the path as the user wrote it.
    pub(crate) fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "standard input".to_string(), |path| path.display().to_string())
    }

    /// Whether it is standard input.
    pub(crate) fn is_stdin(&self) -> bool {
        self.path.is_none()
    }

    /// Its path if it is a directory.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.path.as_deref().filter(|_| self.format == Format::Dir)
    }

    /// Whether the input can be read a second time: a directory or a regular file.
    pub(crate) fn is_rereadable(&self) -> bool {
        self.path.as_ref().and_then(|path| path.metadata().ok()).is_some_and(|found| found.is_file() || found.is_dir())
    }

    /// The format of the input.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// The steps of reading it, in the unit of [`InputProgress`]; `None` if unknown.
    fn steps(&self) -> Option<u64> {
        let path = self.path.as_ref()?;
        match self.format {
            Format::Dir => None, // listed when it is read
            _ => path.metadata().ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len()),
        }
    }

    /// The changes at a path or, for `-`, on standard input. A name that ends in .gz or .zst is that of a compressed file.
    ///
    /// Errors: those of [`resolve_all`](Input::resolve_all).
    pub(crate) fn of_patch(path: &Path) -> Result<Input> {
        Input::resolve_prefixed(path, Some(Encoded { format: Format::Ndjson, compression: Compression::None }))
    }

    /// Opens the file or standard input, decompressed.
    ///
    /// Errors: `Io`, also for a directory.
    pub(crate) fn open(&self, reading: &Reading) -> Result<Stream> {
        let stream = match &self.path {
            Some(path) => Stream::open(path, reading)?,
            None => Stream::stdin(reading)?,
        };
        Ok(stream.decompressed(self.compression))
    }

    /// Passes every pair to `sink`.
    ///
    /// Errors: `Malformed` with the place of the record; `Io`; those of the sink.
    pub(crate) fn read(&self, reading: &Reading, sink: &mut dyn Sink) -> Result<Skipped> {
        if let (Format::Dir, Some(path)) = (self.format, &self.path) {
            let directory = Directory::open(path, reading)?;
            directory.read(reading, sink)?;
            return Ok(directory.skipped().clone());
        }
        let mut stream = self.open(reading)?;
        match (self.format, &reading.key_field) {
            (Format::Bin, _) => binary::read_bin(&mut stream, sink)?,
            (Format::Bin2, _) => binary::read_bin2(&mut stream, sink)?,
            (Format::Csv, _) => csv::read(&mut stream, reading.longest_line, &reading.columns, sink)?,
            (_, key_field) => ndjson::read(&mut stream, reading.longest_line, key_field.as_deref(), sink)?,
        }
        Ok(Skipped::default())
    }
}

/// Passes every pair of the inputs to `sink`, in their order.
///
/// Errors: those of [`Input::read`].
pub(crate) fn read_all(inputs: &[Input], reading: &Reading, sink: &mut dyn Sink) -> Result<Skipped> {
    // so that the part that is done never shrinks when another input begins; a single one announces itself
    if inputs.len() > 1 {
        reading.progress.announce(inputs.iter().map(Input::steps).sum());
    }
    let mut skipped = Skipped::default();
    for input in inputs {
        skipped.absorb(input.read(reading, sink)?);
    }
    Ok(skipped)
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::testing::{Pairs, pair};
    use super::*;

    #[test]
    fn formats_are_plain_from_names() {
        let cases = [
            ("a.ndjson", Some(Format::Ndjson)),
            ("dir.x/a.b.jsonl", Some(Format::Ndjson)),
            ("a.bin", Some(Format::Bin)),
            ("a.bin2", Some(Format::Bin2)),
            ("a.csv", Some(Format::Csv)),
            ("a.json", None),
            ("a", None),
            (".bin", None),
        ];
        for (name, format) in cases {
            assert_eq!(Format::of_name(Path::new(name)), format, "{name}");
        }
    }

    fn resolve(paths: &[&Path], format: Option<Format>) -> Result<Vec<Input>> {
        let encoded = format.map(|format| Encoded { format, compression: Compression::None });
        Input::resolve_all(&paths.iter().map(|path| path.to_path_buf()).collect::<Vec<_>>(), encoded)
    }

    #[test]
    fn every_name_has_its_format() {
        for name in Encoded::NAMES {
            let Encoded { format, compression } = Encoded::named(name).unwrap();
            assert_eq!(format!("{}{}", format.as_str(), compression.extension()), name);
        }
        for name in ["", "bin.", "dir.gz", "bin.xz", "BIN", "bin.gz.gz", "C"] {
            assert_eq!(Encoded::named(name), None, "{name}");
        }
    }

    #[test]
    fn a_given_format_wins() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.bin");
        fs::write(&file, b"{\"key\":1,\"text\":\"x\"}").unwrap();
        let inputs = resolve(&[&file], Some(Format::Ndjson)).unwrap();
        let mut pairs = Pairs::default();
        inputs[0].read(&Reading::for_tests(), &mut pairs).unwrap();
        assert_eq!(pairs.0, [pair(1, b"", b"x")]);
    }

    #[test]
    fn what_does_not_fit_is_a_usage_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.txt");
        fs::write(&file, b"").unwrap();
        let stdin = Path::new("-");
        let cases: [(&[&Path], Option<Format>); 6] = [
            (&[&file], None),
            (&[stdin], None),
            (&[stdin], Some(Format::Dir)),
            (&[stdin, stdin], Some(Format::Bin)),
            (&[&file], Some(Format::Dir)),
            (&[dir.path()], Some(Format::Bin)),
        ];
        for (paths, format) in cases {
            let error = resolve(paths, format).unwrap_err();
            assert!(matches!(error, Failure::Usage(_)), "{paths:?} {format:?}: {error}");
        }
    }

    #[test]
    fn a_missing_path_is_an_io_error_whatever_its_format() {
        let missing = Path::new("there/is/no/such");
        for format in [None, Some(Format::Dir), Some(Format::Bin)] {
            assert!(matches!(resolve(&[missing], format), Err(Failure::Io { .. })));
        }
    }

    #[test]
    fn progress_covers_all_inputs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.bin");
        fs::write(&file, [0; 32]).unwrap();
        let reading = Reading::for_tests();
        let inputs = resolve(&[&file, &file], None).unwrap();
        assert_eq!(reading.progress.fraction(), None);
        inputs[0].read(&reading, &mut Pairs::default()).unwrap();
        assert_eq!(reading.progress.fraction(), Some(1.0));
    }
}
