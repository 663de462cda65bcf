//! redb: sorted pairs inserted through a cursor in one transaction, a cache for the entire file, one read transaction.

use std::ops::Bound;
use std::path::Path;

use redb::{Builder, ReadOnlyDatabase, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};

use crate::engine::{Engine, Peer, paged};
use crate::input::Input;
use crate::reader::{Reader, Result, head};
use crate::slices::AnyReader;

/// The file is in memory twice: in the page cache and in redb's own cache.
pub const PEER: Peer = Peer { memory: |value_len| 2 * paged(value_len), ..Peer::new("redb", load, open) };

const FILE: &str = "pairs.redb";
const PAIRS: TableDefinition<u64, &[u8]> = TableDefinition::new("pairs");

/// Upper bound on redb's cache; the rest of the file is in the page cache.
const MOST_CACHE: u64 = 4 << 30;

fn load(directory: &Path, input: &Input) -> Result<()> {
    let db = builder(input.data().value_bytes() * 2)?.create(directory.join(FILE))?;
    let txn = db.begin_write()?;
    {
        let mut pairs = txn.open_table(PAIRS)?;
        let mut end = pairs.upper_bound_mut(Bound::<u64>::Unbounded)?;
        input.for_each_ascending(|key, value| Ok(end.insert_before(key, value)?))?;
        end.close()?;
    }
    txn.commit()?; // with fsync
    Ok(())
}

fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    let path = directory.join(FILE);
    let cache = std::fs::metadata(&path)?.len() * 5 / 4;
    Ok(Box::new(Opened(builder(cache)?.open_read_only(path)?)))
}

fn builder(cache: u64) -> Result<Builder> {
    let mut builder = Builder::new();
    builder.set_cache_size(usize::try_from(cache.clamp(64 << 20, MOST_CACHE))?);
    Ok(builder)
}

struct Opened(ReadOnlyDatabase);

impl Opened {
    fn reader(&self) -> Result<TableReader> {
        Ok(TableReader(self.0.begin_read()?.open_table(PAIRS)?))
    }
}

impl Engine for Opened {
    fn read(&self, work: &mut dyn FnMut(&mut dyn AnyReader) -> Result<()>) -> Result<()> {
        work(&mut self.reader()?)
    }

    fn request(&self, key: u64) -> Result<Option<u64>> {
        self.reader()?.get(key, head)
    }
}

struct TableReader(ReadOnlyTable<u64, &'static [u8]>);

impl Reader for TableReader {
    #[inline]
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        Ok(self.0.get(key)?.map(|value| f(value.value())))
    }

    fn scan(&mut self, mut f: impl FnMut(u64, &[u8])) -> Result<()> {
        for pair in self.0.iter()? {
            let (key, value) = pair?;
            f(key.value(), value.value());
        }
        Ok(())
    }
}
