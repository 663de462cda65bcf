//! hashbrown and a blob: a hash table in memory from key to offset, rebuilt at each open, and one mapped file of
//! values.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use hashbrown::HashMap;
use memmap2::{Advice, Mmap};

use crate::engine::{Engine, Peer};
use crate::input::Input;
use crate::reader::{Reader, Result, head};
use crate::slices::AnyReader;

pub const PEER: Peer = Peer::new("hashbrown", load, open);

const BLOB: &str = "values";
/// A record per key: key u64le, length u32le. The values are in the same order without gaps.
const RECORDS: &str = "records";
const RECORD_LEN: usize = 12;

fn load(directory: &Path, input: &Input) -> Result<()> {
    let (mut records, mut blob) = (create(&directory.join(RECORDS))?, create(&directory.join(BLOB))?);
    input.for_each(|key, value| {
        records.write_all(&key.to_le_bytes())?;
        records.write_all(&u32::try_from(value.len())?.to_le_bytes())?;
        Ok(blob.write_all(value)?)
    })?;
    for file in [records, blob] {
        file.into_inner()?.sync_all()?;
    }
    File::open(directory)?.sync_all()?;
    Ok(())
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(1 << 20, File::create_new(path)?))
}

fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    let records = File::open(directory.join(RECORDS))?;
    let count = records.metadata()?.len() / RECORD_LEN as u64;
    let mut records = BufReader::with_capacity(1 << 20, records);
    let mut places = HashMap::with_capacity(usize::try_from(count)?);
    let (mut record, mut offset) = ([0; RECORD_LEN], 0_u64);
    for _ in 0..count {
        records.read_exact(&mut record)?;
        let [k0, k1, k2, k3, k4, k5, k6, k7, l0, l1, l2, l3] = record;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        places.insert(u64::from_le_bytes([k0, k1, k2, k3, k4, k5, k6, k7]), (offset, len));
        offset += u64::from(len);
    }
    Ok(Box::new(Opened { places, blob: map(&File::open(directory.join(BLOB))?)? }))
}

#[expect(unsafe_code, reason = "mapping is a promise to leave the file alone")]
pub(super) fn map(file: &File) -> Result<Mmap> {
    // SAFETY: the file is in a directory that this program created and does not edit.
    let map = unsafe { Mmap::map(file)? };
    map.advise(Advice::Random)?;
    Ok(map)
}

struct Opened {
    places: HashMap<u64, (u64, u32)>,
    blob: Mmap,
}

impl Opened {
    #[inline]
    fn value(&self, (offset, len): (u64, u32)) -> Result<&[u8]> {
        let start = offset as usize;
        self.blob
            .get(start..start + len as usize)
            .ok_or_else(|| "expected the value within the blob, found it cut".into())
    }
}

impl Engine for Opened {
    fn read(&self, work: &mut dyn FnMut(&mut dyn AnyReader) -> Result<()>) -> Result<()> {
        work(&mut MapReader(self))
    }

    fn request(&self, key: u64) -> Result<Option<u64>> {
        MapReader(self).get(key, head)
    }
}

struct MapReader<'a>(&'a Opened);

impl Reader for MapReader<'_> {
    #[inline]
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        match self.0.places.get(&key) {
            Some(place) => Ok(Some(f(self.0.value(*place)?))),
            None => Ok(None),
        }
    }

    fn scan(&mut self, mut f: impl FnMut(u64, &[u8])) -> Result<()> {
        for (key, place) in &self.0.places {
            f(*key, self.0.value(*place)?);
        }
        Ok(())
    }
}
