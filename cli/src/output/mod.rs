//! Outputs: files that are replaced when they are complete, and the formats of `export`. `build` reads them back as the
//! same pairs.

mod encoder;
mod partial;
mod sources;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::entry::{exists, metadata_if_there};
use crate::failure::{Failure, Result};
pub(crate) use crate::output::encoder::{Encoder, Values};
use crate::output::partial::Partial;
pub(crate) use crate::output::sources::Sources;

const BUFFER: usize = 256 << 10;

/// An output of pairs in one of the formats.
pub(crate) struct Output {
    encoder: Encoder,
    sink: Sink,
    /// The pair that is being written.
    block: Vec<u8>,
}

enum Sink {
    Target(Target),
    /// A directory that gets its name when it is complete. The encoder writes its files.
    Dir(Partial),
}

impl Output {
    /// Opens an output: a path, or standard output for `-`.
    ///
    /// Errors: `Usage` for a directory on standard output, or one that exists and is not empty; those of [`Target::by_name`].
    pub(crate) fn open(path: &Path, form: Form) -> Result<Output> {
        let stream = |encoder| Target::by_name(path).map(|target| (encoder, Sink::Target(target)));
        let (encoder, sink) = match form {
            Form::Dir => {
                let partial = create_directory(path)?;
                (Encoder::Dir(partial.path().to_path_buf()), Sink::Dir(partial))
            }
            Form::Ndjson(values) => stream(Encoder::Ndjson(values))?,
            Form::Bin => stream(Encoder::Bin)?,
            Form::Bin2 => stream(Encoder::Bin2)?,
        };
        Ok(Output { encoder, sink, block: Vec::new() })
    }

    /// The encoder, for other threads.
    pub(crate) fn encoder(&self) -> Encoder {
        self.encoder.clone()
    }

    /// Writes a pair.
    ///
    /// Errors: `Usage` if the format cannot store a preamble; `Io`; `BrokenPipe`.
    pub(crate) fn write(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        self.encoder.encode(key, preamble, value, &mut block)?;
        self.write_block(&block)?;
        self.block = block;
        Ok(())
    }

    /// Writes encoded pairs.
    ///
    /// Errors: `Io`; `BrokenPipe`.
    pub(crate) fn write_block(&mut self, block: &[u8]) -> Result<()> {
        match &mut self.sink {
            Sink::Target(target) => target.write_all(block),
            Sink::Dir(_) => Ok(()),
        }
    }

    /// Completes the output and renames it to its path. An output that is dropped before is removed.
    pub(crate) fn finish(self) -> Result<()> {
        match self.sink {
            Sink::Target(target) => target.finish(),
            Sink::Dir(partial) => {
                sync_files(partial.path()).map_err(|error| Failure::io("sync", partial.path(), error))?;
                partial.keep()
            }
        }
    }
}

/// The format of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Dir,
    Ndjson(Values),
    Bin,
    Bin2,
}

/// Creates a directory for a file per key, or two if it has a preamble.
fn create_directory(target: &Path) -> Result<Partial> {
    if target == Path::new("-") {
        return Err(Failure::usage("--format dir writes a directory: name it with --output"));
    }
    let free = match fs::read_dir(target) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !exists(target)?,
    };
    if !free {
        return Err(Failure::usage(format!(
            "expected a new or empty directory, found something in {}",
            target.display()
        )));
    }
    Partial::directory(target)
}

/// Syncs all files of a directory with one call, because one call per file takes longer than writing them.
#[cfg(target_os = "linux")]
fn sync_files(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(directory)?)?)
}

/// Syncs all files of a directory.
#[cfg(not(target_os = "linux"))]
fn sync_files(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        File::options().write(true).open(entry?.path())?.sync_all()?;
    }
    Ok(())
}

/// A file being written, or standard output.
///
/// [`finish`](Target::finish) replaces a regular file; until then the old file stays. A file of another kind (a FIFO,
/// a device) is written to directly.
pub(crate) struct Target {
    writer: BufWriter<Destination>,
    /// `None` for standard output and for files that are not regular.
    partial: Option<Partial>,
    path: PathBuf,
}

enum Destination {
    Stdout(StdoutLock<'static>),
    File(File),
    Gzip(Box<GzEncoder<File>>),
}

impl Target {
    /// Opens a path, or standard output for `-`.
    ///
    /// Errors: `Usage` if the path has no file name; `Io`.
    pub(crate) fn open(path: &Path) -> Result<Target> {
        Target::open_as(path, Destination::File)
    }

    fn open_as(path: &Path, destination: impl FnOnce(File) -> Destination) -> Result<Target> {
        if path == Path::new("-") {
            return Ok(Target::new(Destination::Stdout(io::stdout().lock()), None, path));
        }
        if metadata_if_there(path)?.is_some_and(|found| !found.is_file()) {
            let file = File::create(path).map_err(|error| Failure::io("create", path, error))?;
            return Ok(Target::new(destination(file), None, path));
        }
        let (partial, file) = Partial::file(path)?;
        Ok(Target::new(destination(file), Some(partial), path))
    }

    /// Like [`open`](Target::open), for records: a file whose name ends in `.gz` is compressed, as `build` reads it.
    ///
    /// Errors: `Usage` for `.zst`; those of [`open`](Target::open).
    pub(crate) fn by_name(path: &Path) -> Result<Target> {
        match path.extension().and_then(OsStr::to_str) {
            Some("gz") => {
                let encoder = |file| Destination::Gzip(Box::new(GzEncoder::new(file, Compression::default())));
                Target::open_as(path, encoder)
            }
            Some("zst") => Err(Failure::usage(format!(
                "zstd is read and not written: name {} with .gz, or write to - and pipe it into zstd",
                path.display()
            ))),
            _ => Target::open(path),
        }
    }

    fn new(destination: Destination, partial: Option<Partial>, path: &Path) -> Target {
        Target { writer: BufWriter::with_capacity(BUFFER, destination), partial, path: path.to_path_buf() }
    }

    /// Writes all bytes.
    ///
    /// Errors: `Io`; `BrokenPipe`.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).map_err(|error| failure(&self.path, error))
    }

    /// Flushes the buffer and syncs a regular file.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.writer.flush().map_err(|error| failure(&self.path, error))?;
        let file = match self.writer.get_mut() {
            Destination::Stdout(_) => return Ok(()),
            Destination::File(file) => file,
            Destination::Gzip(encoder) => {
                encoder.try_finish().map_err(|error| failure(&self.path, error))?;
                encoder.get_mut()
            }
        };
        match self.partial {
            Some(_) => file.sync_all().map_err(|error| failure(&self.path, error)),
            None => Ok(()),
        }
    }

    /// Like [`sync`](Target::sync), then renames a regular file to its path.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.sync()?;
        self.partial.map_or(Ok(()), Partial::keep)
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Destination::Stdout(stdout) => stdout.write(bytes),
            Destination::File(file) => file.write(bytes),
            Destination::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Destination::Stdout(stdout) => stdout.flush(),
            Destination::File(file) => file.flush(),
            Destination::Gzip(encoder) => encoder.flush(),
        }
    }
}

/// The failure of a write. A FIFO without a reader is a broken pipe.
fn failure(path: &Path, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
        _ if path == Path::new("-") => Failure::stdout(error),
        _ => Failure::io("write", path, error),
    }
}

#[cfg(test)]
mod tests {
    //! Pairs written in a format are read back unchanged.

    use std::fs;

    use super::*;
    use crate::input::testing::{Pair, Pairs, pair};
    use crate::input::{self, Encoded, Format, Input, Reading};

    const ALL: [Format; 4] = [Format::Dir, Format::Ndjson, Format::Bin, Format::Bin2];

    fn write(path: &Path, format: Format, pairs: &[Pair]) -> Result<()> {
        let mut output = Output::open(path, form(format))?;
        for Pair { key, preamble, value } in pairs {
            output.write(*key, preamble, value)?;
        }
        output.finish()
    }

    fn form(format: Format) -> Form {
        match format {
            Format::Dir => Form::Dir,
            Format::Ndjson => Form::Ndjson(Values::Base64),
            Format::Bin => Form::Bin,
            Format::Bin2 => Form::Bin2,
            Format::Csv => panic!("csv is not written"),
        }
    }

    fn read(path: &Path, format: Format) -> Vec<Pair> {
        let mut pairs = Pairs::default();
        let encoded = Encoded { format, compression: input::Compression::None };
        let inputs = Input::resolve_all(&[path.to_path_buf()], Some(encoded)).unwrap();
        inputs[0].read(&Reading::for_tests(), &mut pairs).unwrap();
        pairs.0
    }

    fn pairs() -> Vec<Pair> {
        let every_byte: Vec<u8> = (0..=255).collect();
        vec![
            pair(0, b"", b""),
            pair(7, b"", &every_byte),
            pair(1 << 60, b"", b"\n"),
            pair(u64::MAX, b"", &vec![1; 3 << 20]),
        ]
    }

    fn pairs_with_preambles() -> Vec<Pair> {
        let mut pairs = pairs();
        pairs[1].preamble = b"fragments\0".to_vec();
        pairs[3].preamble = vec![2; 2 << 20];
        pairs
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        for format in ALL {
            let path = dir.path().join(format.as_str());
            write(&path, format, &pairs()).unwrap();
            assert!(read(&path, format) == pairs(), "{format:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "nothing else is left behind");
    }

    #[test]
    fn preambles_are_written_too() {
        let dir = tempfile::tempdir().unwrap();
        for format in [Format::Dir, Format::Ndjson, Format::Bin2] {
            let path = dir.path().join(format.as_str());
            write(&path, format, &pairs_with_preambles()).unwrap();
            assert!(read(&path, format) == pairs_with_preambles(), "{format:?}");
        }
    }

    #[test]
    fn bin_refuses_to_drop_a_preamble() {
        let dir = tempfile::tempdir().unwrap();
        let error = write(&dir.path().join("a"), Format::Bin, &pairs_with_preambles()).unwrap_err();
        assert!(
            matches!(&error, Failure::Usage(message) if message.contains("key 7") && message.contains("bin2")),
            "{error}"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "what was begun is removed");
    }

    #[test]
    fn golden_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let written = |format: Format, preamble: &[u8]| {
            let path = dir.path().join("golden");
            write(&path, format, &[pair(258, preamble, b"v")]).unwrap();
            fs::read(path).unwrap()
        };
        assert_eq!(written(Format::Bin, b""), b"\x02\x01\0\0\0\0\0\0\x01\0\0\0\0\0\0\0v");
        assert_eq!(written(Format::Bin2, b"p"), b"\x02\x01\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0pv");
        assert_eq!(written(Format::Ndjson, b""), b"{\"key\":\"258\",\"value_b64\":\"dg==\"}\n");
        assert_eq!(
            written(Format::Ndjson, b"p"),
            b"{\"key\":\"258\",\"preamble_b64\":\"cA==\",\"value_b64\":\"dg==\"}\n"
        );
    }

    #[test]
    fn a_directory_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("out");
        fs::create_dir(&target).unwrap();
        write(&target, Format::Dir, &[pair(1, b"", b"x")]).unwrap();
        assert!(matches!(write(&target, Format::Dir, &[]), Err(Failure::Usage(_))));
        assert_eq!(fs::read(target.join("1")).unwrap(), b"x");
        assert!(matches!(Output::open(Path::new("-"), Form::Dir), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_file_is_replaced_only_when_complete() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a.bin");
        fs::write(&target, b"before").unwrap();
        let mut output = Output::open(&target, Form::Bin).unwrap();
        output.write(1, b"", b"x").unwrap();
        drop(output);
        assert_eq!(fs::read(&target).unwrap(), b"before");
        write(&target, Format::Bin, &[]).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"");
    }
}
