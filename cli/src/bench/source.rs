//! The sources that are measured: a directory with one file per key, or a store.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use sharddb::Snapshot;

use crate::bench::disk_usage::DiskUsage;
use crate::database::Opening;
use crate::failure::{Failure, Result};
use crate::input::Directory;

/// A source of values.
pub(crate) trait Source {
    /// The heading of its column in the table.
    fn name(&self) -> &'static str;

    fn open(&self) -> Result<Box<dyn Reader + '_>>;

    /// The files that lookups of these keys read.
    fn files(&self, keys: &[u64]) -> Result<Vec<PathBuf>>;

    fn disk_usage(&self) -> Result<DiskUsage>;
}

/// Reads values. Lookups return the sum of all bytes of a value, which forces all of them to be read.
pub(crate) trait Reader {
    /// Replaces the content of `buffer` with the value of `key`; returns whether the key exists.
    fn read(&mut self, key: u64, buffer: &mut Vec<u8>) -> Result<bool>;

    /// The byte sum of a value; `None` if the key is absent.
    fn get(&mut self, key: u64) -> Result<Option<u64>>;

    /// The byte sum of many values; `None` if the source has no batch lookup.
    fn get_many(&mut self, keys: &[u64]) -> Result<Option<u64>>;

    /// Prefetches from the disk what lookups of these keys will read, if the source can.
    fn read_ahead(&mut self, keys: &[u64]);

    /// Calls `f` with the byte sum of every value until `f` breaks.
    fn scan(&mut self, f: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<()>;
}

/// A directory with one file per key.
pub(crate) struct Files(pub(crate) Directory);

struct FilesReader<'a> {
    directory: &'a Directory,
    buffer: Vec<u8>,
}

impl Source for Files {
    fn name(&self) -> &'static str {
        "one file per key"
    }

    fn open(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FilesReader { directory: &self.0, buffer: Vec::new() }))
    }

    fn files(&self, keys: &[u64]) -> Result<Vec<PathBuf>> {
        Ok(keys.iter().map(|key| self.0.value_path(*key)).collect())
    }

    fn disk_usage(&self) -> Result<DiskUsage> {
        DiskUsage::of(self.0.path())
    }
}

impl Reader for FilesReader<'_> {
    fn read(&mut self, key: u64, buffer: &mut Vec<u8>) -> Result<bool> {
        self.directory.read_value(key, buffer)
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let found = self.directory.read_value(key, &mut self.buffer)?;
        Ok(found.then(|| sum(&self.buffer)))
    }

    fn get_many(&mut self, _: &[u64]) -> Result<Option<u64>> {
        Ok(None)
    }

    fn read_ahead(&mut self, _: &[u64]) {}

    fn scan(&mut self, f: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<()> {
        for key in self.directory.keys() {
            if let Some(sum) = self.get(key)?
                && f(sum).is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

/// A store, or anything else that opens as a database.
pub(crate) struct Store<'a> {
    pub(crate) path: &'a Path,
    pub(crate) opening: &'a Opening,
}

struct StoreReader(Snapshot);

impl Source for Store<'_> {
    fn name(&self) -> &'static str {
        "ShardDb"
    }

    fn open(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(StoreReader(self.opening.open(self.path)?)))
    }

    fn files(&self, _: &[u64]) -> Result<Vec<PathBuf>> {
        let snapshot = self.opening.open(self.path)?;
        let directory = snapshot.shards_directory();
        let failure = |error| Failure::io("list", directory, error);
        let mut files = Vec::new();
        for entry in fs::read_dir(directory).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            if entry.file_type().map_err(failure)?.is_file() {
                files.push(entry.path());
            }
        }
        Ok(files)
    }

    fn disk_usage(&self) -> Result<DiskUsage> {
        DiskUsage::of(self.opening.open(self.path)?.directory())
    }
}

impl Reader for StoreReader {
    fn read(&mut self, key: u64, buffer: &mut Vec<u8>) -> Result<bool> {
        Ok(self.0.get_into(key, buffer)?)
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(self.0.get(key)?.as_deref().map(sum))
    }

    fn get_many(&mut self, keys: &[u64]) -> Result<Option<u64>> {
        let mut total = 0_u64;
        let failed = self.0.get_each(keys, |_, value| match value {
            Ok(value) => {
                total = total.wrapping_add(value.as_deref().map_or(0, sum));
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        });
        failed.break_value().map_or(Ok(Some(total)), |error| Err(error.into()))
    }

    fn read_ahead(&mut self, keys: &[u64]) {
        self.0.read_ahead(keys);
    }

    fn scan(&mut self, f: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<()> {
        for entry in self.0.iter() {
            if f(sum(&entry?.value()?)).is_break() {
                break;
            }
        }
        Ok(())
    }
}

fn sum(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks();
    let words = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(words, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}
