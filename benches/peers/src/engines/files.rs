//! One file per key, about a thousand per directory: storage without an engine.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::engine::{Engine, Peer};
use crate::input::Input;
use crate::reader::{Reader, Result, head};
use crate::slices::AnyReader;

pub const PEER: Peer = Peer {
    can_hold: |data| data.keys <= 1_000_000,
    memory: |value_len| 1024 + value_len.next_multiple_of(4096),
    loads_once: true,
    ..Peer::new("files", load, open)
};

const DIRECTORIES: u64 = 1000;

fn load(directory: &Path, input: &Input) -> Result<()> {
    for number in 0..DIRECTORIES {
        fs::create_dir(directory.join(format!("{number:03}")))?;
    }
    let mut reader = FilesReader::new(directory);
    input.for_each(|key, value| Ok(fs::write(reader.path(key), value)?))?;
    rustix::fs::syncfs(File::open(directory)?)?; // a million fsyncs would take an hour
    Ok(())
}

fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(directory.to_path_buf())))
}

struct Opened(PathBuf);

impl Engine for Opened {
    fn read(&self, work: &mut dyn FnMut(&mut dyn AnyReader) -> Result<()>) -> Result<()> {
        work(&mut FilesReader::new(&self.0))
    }

    fn request(&self, key: u64) -> Result<Option<u64>> {
        FilesReader::new(&self.0).get(key, head)
    }
}

struct FilesReader {
    root: String,
    path: String,
}

impl FilesReader {
    fn new(directory: &Path) -> FilesReader {
        FilesReader { root: directory.to_string_lossy().into_owned(), path: String::new() }
    }

    fn path(&mut self, key: u64) -> &str {
        self.path.clear();
        // writing to a string does not fail
        let _ = write!(self.path, "{}/{:03}/{key}", self.root, key % DIRECTORIES);
        &self.path
    }
}

impl Reader for FilesReader {
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        match fs::read(self.path(key)) {
            Ok(value) => Ok(Some(f(&value))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn scan(&mut self, mut f: impl FnMut(u64, &[u8])) -> Result<()> {
        for directory in fs::read_dir(&self.root)? {
            for file in fs::read_dir(directory?.path())? {
                let file = file?;
                let key = file.file_name().to_string_lossy().parse()?;
                f(key, &fs::read(file.path())?);
            }
        }
        Ok(())
    }
}
