//! The limits: a bare read of the value alone, from a map and by one positioned read. The keys say where their values
//! are, which no database knows.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::Mmap;

use super::hashbrown::map;
use crate::data::{DataSet, Values};
use crate::engine::{Engine, Peer};
use crate::input::Input;
use crate::reader::{Reader, Result, head};
use crate::slices::AnyReader;

/// Reads from a map.
pub const MAPPED: Peer = Peer { can_hold, ..Peer::new("limit-mapped", load, open_mapped) };

/// One positioned read per value.
pub const PREAD: Peer = Peer { can_hold, ..Peer::new("limit-pread", load, open_positioned) };

fn can_hold(data: &DataSet) -> bool {
    matches!(data.values, Values::Fixed(_))
}

/// Writes the values in the order of their numbers, into a file of the set's name.
fn load(directory: &Path, input: &Input) -> Result<()> {
    let mut values = vec![0; usize::try_from(input.data().value_bytes())?];
    input.for_each(|key, value| {
        let start = usize::try_from(input.data().number(key))? * value.len();
        let place = values.get_mut(start..start + value.len()).ok_or("expected a key of the set, found another")?;
        place.copy_from_slice(value);
        Ok(())
    })?;
    let mut file = BufWriter::new(File::create_new(directory.join(input.data().to_string()))?);
    file.write_all(&values)?;
    file.into_inner()?.sync_all()?;
    Ok(())
}

fn open_mapped(directory: &Path) -> Result<Box<dyn Engine>> {
    let (data, file) = open(directory)?;
    Ok(Box::new(Opened { data, source: Source::Mapped(map(&file)?) }))
}

fn open_positioned(directory: &Path) -> Result<Box<dyn Engine>> {
    let (data, file) = open(directory)?;
    Ok(Box::new(Opened { data, source: Source::File(file) }))
}

fn open(directory: &Path) -> Result<(DataSet, File)> {
    let entry = fs::read_dir(directory)?.next().ok_or("expected a file of values, found none")??;
    Ok((entry.file_name().to_string_lossy().parse()?, File::open(entry.path())?))
}

enum Source {
    Mapped(Mmap),
    File(File),
}

struct Opened {
    data: DataSet,
    source: Source,
}

impl Engine for Opened {
    fn read(&self, work: &mut dyn FnMut(&mut dyn AnyReader) -> Result<()>) -> Result<()> {
        work(&mut ValueReader { opened: self, value: Vec::new() })
    }

    fn request(&self, key: u64) -> Result<Option<u64>> {
        ValueReader { opened: self, value: Vec::new() }.get(key, head)
    }
}

struct ValueReader<'a> {
    opened: &'a Opened,
    value: Vec<u8>,
}

impl Reader for ValueReader<'_> {
    #[inline]
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let data = &self.opened.data;
        if !data.contains(key) {
            return Ok(None);
        }
        let len = data.value_len(key);
        let start = data.number(key) * len;
        match &self.opened.source {
            Source::Mapped(map) => {
                let value = map.get(start as usize..(start + len) as usize);
                Ok(Some(f(value.ok_or("expected the value within the file, found it cut")?)))
            }
            Source::File(file) => {
                self.value.resize(len as usize, 0);
                file.read_exact_at(&mut self.value, start)?;
                Ok(Some(f(&self.value)))
            }
        }
    }

    fn scan(&mut self, mut f: impl FnMut(u64, &[u8])) -> Result<()> {
        let data = self.opened.data;
        data.keys().try_for_each(|key| self.get(key, |value| f(key, value)).map(drop))
    }
}
