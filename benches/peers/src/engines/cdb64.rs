//! cdb with 64-bit offsets, mapped. Its writer does not buffer, so a buffer is added.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use cdb64::{Cdb, CdbHash, CdbWriter};

use crate::engine::{Engine, Peer};
use crate::input::Input;
use crate::reader::{Reader, Result, head};
use crate::slices::AnyReader;

pub const PEER: Peer = Peer::new("cdb64", load, open);

const FILE: &str = "pairs.cdb";

fn load(directory: &Path, input: &Input) -> Result<()> {
    let mut writer = CdbWriter::<_, CdbHash>::new(Appending::new(File::create_new(directory.join(FILE))?))?;
    input.for_each(|key, value| Ok(writer.put(&key.to_le_bytes(), value)?))?;
    writer.finalize()?;
    writer.into_inner()?.buffer.into_inner()?.sync_all()?;
    Ok(())
}

/// A buffered file that keeps its buffer on a seek to the current position, because the writer seeks before each pair.
struct Appending {
    buffer: BufWriter<File>,
    position: u64,
}

impl Appending {
    fn new(file: File) -> Appending {
        Appending { buffer: BufWriter::with_capacity(1 << 20, file), position: 0 }
    }
}

impl Write for Appending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.buffer.write(bytes)?;
        self.position += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.buffer.flush()
    }
}

impl Seek for Appending {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if to != SeekFrom::Start(self.position) {
            self.position = self.buffer.seek(to)?;
        }
        Ok(self.position)
    }
}

fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Opened(Cdb::open_mmap(directory.join(FILE))?)))
}

struct Opened(Cdb<File, CdbHash>);

impl Engine for Opened {
    fn read(&self, work: &mut dyn FnMut(&mut dyn AnyReader) -> Result<()>) -> Result<()> {
        work(&mut CdbReader(&self.0))
    }

    fn request(&self, key: u64) -> Result<Option<u64>> {
        CdbReader(&self.0).get(key, head)
    }
}

struct CdbReader<'a>(&'a Cdb<File, CdbHash>);

impl Reader for CdbReader<'_> {
    #[inline]
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        Ok(self.0.get(&key.to_le_bytes())?.map(|value| f(&value)))
    }

    fn scan(&mut self, mut f: impl FnMut(u64, &[u8])) -> Result<()> {
        for pair in self.0.iter() {
            let (key, value) = pair?;
            f(u64::from_le_bytes(key.as_slice().try_into()?), &value);
        }
        Ok(())
    }
}
