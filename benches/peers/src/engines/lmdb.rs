//! LMDB through heed: integer keys, sorted and appended in one transaction, read without read-ahead in one transaction.
//!
//! Lookups of integer keys are some 10 % faster than those of big-endian keys, which are compared as bytes.

use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, IntegerComparator, PutFlags, RoTxn, WithTls};

use crate::engine::{Engine, Peer, paged};
use crate::input::Input;
use crate::reader::{Reader, Result, head};
use crate::slices::AnyReader;

pub const PEER: Peer = Peer { memory: paged, ..Peer::new("lmdb", load, open) };

/// Keys are the 8 bytes of a native integer; heed's integer type would allocate for each.
type Pairs = Database<'static, Bytes, Bytes, IntegerComparator>;

fn load(directory: &Path, input: &Input) -> Result<()> {
    // a value as long as a page takes two pages
    let data = input.data();
    let map_size = data.keys * 64 + data.value_bytes() * 5 / 2 + (1 << 30);
    let env = open_env(directory, map_size, EnvFlags::NO_MEM_INIT)?;
    let pairs: Pairs = env
        .create_databases_and_commit(env.write_txn()?, |opener, txn| {
            let created = opener.database_options().types::<Bytes, Bytes>().key_comparator().create(txn);
            created.map(CommitOrAbort::<_, ()>::Commit)
        })?
        .unwrap_commit();
    let mut txn = env.write_txn()?;
    input.for_each_ascending(|key, value| {
        Ok(pairs.put_with_flags(&mut txn, PutFlags::APPEND, &key.to_ne_bytes(), value)?)
    })?;
    txn.commit()?; // with fsync
    Ok(())
}

fn open(directory: &Path) -> Result<Box<dyn Engine>> {
    let map_size = std::fs::metadata(directory.join("data.mdb"))?.len();
    let env = open_env(directory, map_size, EnvFlags::READ_ONLY | EnvFlags::NO_READ_AHEAD)?;
    let pairs = env
        .open_databases_and_commit(env.read_txn()?, |opener, txn| {
            let opened = opener.database_options().types::<Bytes, Bytes>().key_comparator().open(txn);
            opened.map(CommitOrAbort::<_, ()>::Commit)
        })?
        .unwrap_commit()
        .ok_or("expected LMDB's unnamed database, found none")?;
    Ok(Box::new(Opened { env, pairs }))
}

#[expect(unsafe_code, reason = "heed asks for the promise that a map needs")]
fn open_env(directory: &Path, map_size: u64, flags: EnvFlags) -> Result<Env> {
    let map_size = usize::try_from(map_size.next_multiple_of(1 << 20))?;
    // SAFETY: the file is in a directory that this program created, and only LMDB edits it.
    Ok(unsafe { EnvOpenOptions::new().map_size(map_size).flags(flags).open(directory)? })
}

struct Opened {
    env: Env,
    pairs: Pairs,
}

impl Opened {
    fn reader(&self) -> Result<TransactionReader<'_>> {
        Ok(TransactionReader { txn: self.env.read_txn()?, pairs: self.pairs })
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

struct TransactionReader<'env> {
    txn: RoTxn<'env, WithTls>,
    pairs: Pairs,
}

impl Reader for TransactionReader<'_> {
    #[inline]
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        Ok(self.pairs.get(&self.txn, &key.to_ne_bytes())?.map(f))
    }

    fn scan(&mut self, mut f: impl FnMut(u64, &[u8])) -> Result<()> {
        for pair in self.pairs.iter(&self.txn)? {
            let (key, value) = pair?;
            f(u64::from_ne_bytes(key.try_into()?), value);
        }
        Ok(())
    }
}
