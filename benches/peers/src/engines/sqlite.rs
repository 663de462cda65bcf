//! SQLite through rusqlite: the key is the rowid, the file is mapped, statements are prepared, one transaction.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{CachedStatement, Connection, OpenFlags};

use crate::engine::{Engine, Peer};
use crate::input::Input;
use crate::reader::{Reader, Result, head};
use crate::slices::AnyReader;

pub const PEER: Peer = Peer::new("sqlite", load, open);

const FILE: &str = "pairs.sqlite";
const SELECT: &str = "SELECT value FROM pairs WHERE key = ?1";

fn load(directory: &Path, input: &Input) -> Result<()> {
    let path = directory.join(FILE);
    let mut connection = Connection::open(&path)?;
    // nothing to roll back to; the file is synced once, at the end
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -262144;
         CREATE TABLE pairs (key INTEGER PRIMARY KEY, value BLOB NOT NULL);",
    )?;
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO pairs (key, value) VALUES (?1, ?2)")?;
        input.for_each_ascending(|key, value| Ok(insert.execute((rowid(key), value)).map(drop)?))?;
    }
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    File::open(&path)?.sync_all()?;
    File::open(directory)?.sync_all()?;
    Ok(())
}

/// Maps a key to a signed rowid of the same order.
fn rowid(key: u64) -> i64 {
    (key ^ 1 << 63).cast_signed()
}

fn key(rowid: i64) -> u64 {
    rowid.cast_unsigned() ^ 1 << 63
}

fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    let pool = Pool { path: directory.join(FILE), idle: Mutex::default() };
    pool.with(|_| Ok(()))?; // opens a connection now, not in the first reader
    Ok(Box::new(pool))
}

/// Idle connections. Each serves one thread at a time and keeps its map warm.
struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    fn with<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let connection = taken.map_or_else(|| connect(&self.path), Ok)?;
        let result = work(&connection);
        idle().push(connection);
        result
    }
}

fn connect(path: &Path) -> Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    let bytes = std::fs::metadata(path)?.len();
    connection.execute_batch(&format!("PRAGMA mmap_size = {bytes}; PRAGMA cache_size = -262144;"))?;
    Ok(connection)
}

impl Engine for Pool {
    fn read(&self, work: &mut dyn FnMut(&mut dyn AnyReader) -> Result<()>) -> Result<()> {
        self.with(|connection| {
            let transaction = connection.unchecked_transaction()?;
            work(&mut StatementReader { connection, select: connection.prepare_cached(SELECT)? })?;
            Ok(transaction.finish()?)
        })
    }

    fn request(&self, key: u64) -> Result<Option<u64>> {
        // a statement outside of a transaction is one
        self.with(|connection| {
            StatementReader { connection, select: connection.prepare_cached(SELECT)? }.get(key, head)
        })
    }
}

struct StatementReader<'a> {
    connection: &'a Connection,
    select: CachedStatement<'a>,
}

impl Reader for StatementReader<'_> {
    #[inline]
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let mut rows = self.select.query([rowid(key)])?;
        match rows.next()? {
            Some(row) => Ok(Some(f(row.get_ref(0)?.as_blob()?))),
            None => Ok(None),
        }
    }

    fn scan(&mut self, mut f: impl FnMut(u64, &[u8])) -> Result<()> {
        let mut select = self.connection.prepare("SELECT key, value FROM pairs")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            f(key(row.get(0)?), row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }
}
