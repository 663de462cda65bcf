//! A cache of blocks in a local directory: a second run starts warm.
//!
//! ```text
//! directory/
//!   3f/3f5a0c9e81b2d467       a block; the name is half of the digest of its identity
//!   tmp-4711-0                a block that is being written
//!
//! block     integers are little endian
//!   magic "shardblk" | identity length u64 | bytes length u64 | crc32 u32 of all other bytes of the file
//!   identity   data set \n object \n start \n end
//!   bytes
//! ```
//!
//! Any number of processes may use the directory at once: a block is written under a name of its own and renamed. A file
//! that is not exactly the block that is looked for is a miss: damaged, of an unlucky digest, or of another program. Nothing
//! is synced, since the checksum finds what a crash left behind.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sharddb_format::digest::Digest;
use sharddb_format::{Error, Result};

use crate::block_store::{BlockId, BlockStore};

const MAGIC: [u8; 8] = *b"shardblk";

/// The length of the header: magic, two lengths, checksum.
const HEADER_LEN: usize = 28;

/// Start of the names of temporary files.
const TEMPORARY: &str = "tmp-";

/// Numbers the temporary files of this process.
static TEMPORARY_FILES: AtomicU64 = AtomicU64::new(0);

/// The parts of the capacity: the directory is measured again after one of them was written.
const PARTS: u64 = 16;

/// A block that is read again after this time counts as used then. Below it, a hit writes nothing.
const USED_RESOLUTION: Duration = Duration::from_secs(60);

/// Temporary files of this age belong to processes that ended.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A bounded cache of blocks in a directory, shared by processes.
///
/// Blocks that were not used for the longest time are removed first. Each process may exceed the capacity by a sixteenth of
/// it before it removes some. A directory that cannot be read or written makes lookups slower and changes no result.
///
/// ```
/// # fn main() -> sharddb::Result<()> {
/// use std::sync::Arc;
///
/// use sharddb_remote::{DiskCache, RemoteOptions};
///
/// # let directory = std::env::temp_dir().join(format!("sharddb-doc-disk-cache-{}", std::process::id()));
/// let cache = DiskCache::open(&directory, 1 << 30)?;
/// let mut options = RemoteOptions::new();
/// options.block_store(Arc::new(cache));
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DiskCache {
    directory: PathBuf,
    /// In bytes.
    capacity: u64,
    /// The bytes that this process wrote since it measured the directory.
    written: AtomicU64,
}

impl DiskCache {
    /// Opens a cache of `capacity` bytes in a directory of its own, which is created if it does not exist.
    ///
    /// Cost: lists the directory.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the directory has other files than those of a cache; `Io`.
    pub fn open(directory: impl AsRef<Path>, capacity: u64) -> Result<DiskCache> {
        let directory = directory.as_ref();
        let failed = |error| Error::io("open the cache", directory, error);
        match fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => check_is_cache(directory)?,
        }
        let cache = DiskCache { directory: directory.to_path_buf(), capacity, written: AtomicU64::new(0) };
        cache.shrink().map_err(failed)?;
        Ok(cache)
    }

    fn path_of(&self, identity: &str) -> PathBuf {
        let name = format!("{:.16}", Digest::of(identity.as_bytes()));
        self.directory.join(name.get(..2).unwrap_or_default()).join(name)
    }

    fn try_get(&self, block: &BlockId) -> io::Result<Option<Vec<u8>>> {
        let identity = identity_of(block);
        let path = self.path_of(&identity);
        if !fs::metadata(&path)?.is_file() {
            return Ok(None); // opening a FIFO would wait for a writer
        }
        let mut file = File::open(&path)?;
        let Some(mut bytes) = read_block(&mut file, &identity, block.range.end - block.range.start)? else {
            return Ok(None);
        };
        let now = SystemTime::now();
        let used = file.metadata()?.modified()?;
        if now.duration_since(used).is_ok_and(|age| age > USED_RESOLUTION) {
            File::options().append(true).open(&path)?.set_modified(now)?;
        }
        bytes.drain(..HEADER_LEN + identity.len());
        Ok(Some(bytes))
    }

    fn try_put(&self, block: &BlockId, bytes: &[u8]) -> io::Result<()> {
        let identity = identity_of(block);
        let path = self.path_of(&identity);
        if let Some(parent) = path.parent() {
            match fs::create_dir(parent) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let number = TEMPORARY_FILES.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!("{TEMPORARY}{}-{number}", process::id()));
        let written = write_block(&temporary, &identity, bytes).and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary); // the first error is returned
            return Err(error);
        }
        let len = (HEADER_LEN + identity.len() + bytes.len()) as u64;
        if self.written.fetch_add(len, Ordering::Relaxed) + len > self.capacity / PARTS {
            self.shrink()?;
        }
        Ok(())
    }

    /// Removes blocks, those first that were not used for the longest time, until the others fit the capacity. One that cannot
    /// be removed stays, and counts.
    fn shrink(&self) -> io::Result<()> {
        self.written.store(0, Ordering::Relaxed);
        let mut blocks = self.blocks()?;
        blocks.sort_unstable_by_key(|block| block.used);
        let mut bytes: u64 = blocks.iter().map(|block| block.len).sum();
        for block in blocks {
            if bytes <= self.capacity {
                break;
            }
            match fs::remove_file(&block.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {} // that of another user
                _ => bytes -= block.len,                                    // by this process or another one
            }
        }
        Ok(())
    }

    /// Lists all blocks in directories that can be read. Removes temporary files of processes that ended.
    fn blocks(&self) -> io::Result<Vec<StoredBlock>> {
        let mut blocks = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if is_temporary(&entry.file_name()) {
                remove_if_abandoned(&entry);
            } else if is_hex(&entry.file_name(), 2) {
                let Ok(inside) = fs::read_dir(entry.path()) else { continue };
                let inside = inside.flatten().filter(|entry| is_hex(&entry.file_name(), 16));
                blocks.extend(inside.filter_map(|entry| StoredBlock::of(&entry)));
            }
        }
        Ok(blocks)
    }
}

impl BlockStore for DiskCache {
    fn get(&self, block: &BlockId) -> Option<Vec<u8>> {
        self.try_get(block).ok().flatten()
    }

    fn put(&self, block: &BlockId, bytes: &[u8]) {
        let _ = self.try_put(block, bytes); // without the block, the next run reads it again
    }
}

/// A file of the cache.
struct StoredBlock {
    path: PathBuf,
    len: u64,
    used: SystemTime,
}

impl StoredBlock {
    /// `None` if another process has removed it, or if it is no file.
    fn of(entry: &fs::DirEntry) -> Option<StoredBlock> {
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(StoredBlock { path: entry.path(), len: metadata.len(), used: metadata.modified().ok()? })
    }
}

fn identity_of(block: &BlockId) -> String {
    format!("{}\n{}\n{}\n{}", block.data_set, block.object, block.range.start, block.range.end)
}

/// Reads a file that must have this identity and at most `most` bytes; `None` if it is another one or damaged.
fn read_block(file: &mut File, identity: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
    let len = file.metadata()?.len();
    let Some(bytes_len) = len.checked_sub((HEADER_LEN + identity.len()) as u64).filter(|len| *len <= most) else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(len).read_to_end(&mut bytes)?;
    let expected = header(identity, bytes_len, crc32_of(&bytes));
    let is_block = bytes.starts_with(&expected)
        && bytes.get(HEADER_LEN..).is_some_and(|rest| rest.starts_with(identity.as_bytes()));
    Ok(is_block.then_some(bytes))
}

fn write_block(path: &Path, identity: &str, bytes: &[u8]) -> io::Result<()> {
    let mut content = header(identity, bytes.len() as u64, 0);
    content.extend(identity.as_bytes());
    content.extend(bytes);
    let crc32 = crc32_of(&content).to_le_bytes();
    if let Some(place) = content.get_mut(HEADER_LEN - crc32.len()..HEADER_LEN) {
        place.copy_from_slice(&crc32);
    }
    File::options().write(true).create_new(true).open(path)?.write_all(&content)
}

fn header(identity: &str, bytes_len: u64, crc32: u32) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend((identity.len() as u64).to_le_bytes());
    header.extend(bytes_len.to_le_bytes());
    header.extend(crc32.to_le_bytes());
    header
}

/// Computes the checksum of the bytes of a file without its own field.
fn crc32_of(content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(content.get(..HEADER_LEN - 4).unwrap_or_default());
    hasher.update(content.get(HEADER_LEN..).unwrap_or_default());
    hasher.finalize()
}

/// Errors: `InvalidInput` if the directory has a file that is not of a cache.
fn check_is_cache(directory: &Path) -> Result<()> {
    let entries = fs::read_dir(directory).map_err(|error| Error::io("list", directory, error))?;
    for entry in entries {
        let name = entry.map_err(|error| Error::io("list", directory, error))?.file_name();
        if !is_temporary(&name) && !is_hex(&name, 2) {
            let message = format!(
                "expected an empty directory or a cache of blocks, found a directory with {}: choose a directory of its own",
                name.display()
            );
            return Err(Error::invalid_input(message).at_path(directory));
        }
    }
    Ok(())
}

fn is_temporary(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(TEMPORARY))
}

/// Whether a name has this number of hexadecimal digits.
fn is_hex(name: &std::ffi::OsStr, digits: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.to_str().is_some_and(|name| name.len() == digits && name.bytes().all(is_digit))
}

fn remove_if_abandoned(entry: &fs::DirEntry) {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    if modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > ABANDONED)) {
        let _ = fs::remove_file(entry.path()); // the next process tries again
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::thread;

    use super::*;
    use crate::common::TempDir;

    fn block(object: &str, range: Range<u64>) -> BlockId {
        BlockId { data_set: "gen-0000000001-5c".to_string(), object: object.to_string(), range }
    }

    fn files(directory: &Path) -> Vec<PathBuf> {
        let of = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        of(directory).into_iter().flat_map(|path| if path.is_dir() { of(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn a_second_process_finds_the_block_and_no_other() {
        let directory = TempDir::new();
        DiskCache::open(directory.path(), 1 << 20).unwrap().put(&block("0.shard", 16..21), b"index");
        let cache = DiskCache::open(directory.path(), 1 << 20).unwrap();
        assert_eq!(cache.get(&block("0.shard", 16..21)).as_deref(), Some(&b"index"[..]));
        for other in [block("1.shard", 16..21), block("0.shard", 15..21), block("0.shard", 16..22)] {
            assert_eq!(cache.get(&other), None, "{other:?}");
        }
        let of_another_data_set = BlockId { data_set: "gen-0000000002-5c".to_string(), ..block("0.shard", 16..21) };
        assert_eq!(cache.get(&of_another_data_set), None);
    }

    #[test]
    fn a_block_may_be_shorter_than_its_range_and_not_longer() {
        let directory = TempDir::new();
        let cache = DiskCache::open(directory.path(), 1 << 20).unwrap();
        cache.put(&block("0.shard", 0..100), b"end of the object");
        assert_eq!(cache.get(&block("0.shard", 0..100)).as_deref(), Some(&b"end of the object"[..]));
        cache.put(&block("0.shard", 0..2), b"too long");
        assert_eq!(cache.get(&block("0.shard", 0..2)), None);
    }

    #[test]
    fn a_damaged_block_is_a_miss() {
        let directory = TempDir::new();
        let cache = DiskCache::open(directory.path(), 1 << 20).unwrap();
        let id = block("0.shard", 0..5);
        cache.put(&id, b"bytes");
        let [path] = files(directory.path()).try_into().unwrap();
        let intact = fs::read(&path).unwrap();
        for at in 0..intact.len() {
            let mut damaged = intact.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get(&id), None, "byte {at}");
            fs::write(&path, &intact[..at]).unwrap();
            assert_eq!(cache.get(&id), None, "cut at {at}");
        }
        fs::write(&path, &intact).unwrap();
        assert!(cache.get(&id).is_some());
    }

    #[test]
    fn the_least_recently_used_blocks_are_removed() {
        let directory = TempDir::new();
        let cache = DiskCache::open(directory.path(), 100_000).unwrap();
        let first = block("first", 0..1000);
        cache.put(&first, &[7; 1000]);
        let [path] = files(directory.path()).try_into().unwrap();
        for number in 0..200 {
            cache.put(&block(&format!("{number:x}.shard"), 0..1000), &[7; 1000]);
            // as if an hour passed between puts: the modification time is that of the last use
            for path in files(directory.path()) {
                let file = File::options().append(true).open(&path).unwrap();
                let earlier = file.metadata().unwrap().modified().unwrap() - Duration::from_secs(3600);
                file.set_modified(earlier).unwrap();
            }
            assert!(cache.get(&first).is_some(), "after {number}");
            let bytes: u64 = files(directory.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
            assert!(bytes <= 100_000 + 100_000 / PARTS + 1200, "{bytes} bytes");
        }
        assert!(path.exists());
        assert_eq!(cache.get(&block("0.shard", 0..1000)), None, "not used since");
        assert!(cache.get(&block("c7.shard", 0..1000)).is_some(), "the last one");
    }

    /// A file in place of a directory, and a directory in place of a block, which `remove_file` does not remove.
    #[test]
    fn what_cannot_be_removed_or_listed_does_not_stop_the_others() {
        let directory = TempDir::new();
        fs::write(directory.path().join("0f"), "not a directory").unwrap();
        fs::create_dir_all(directory.path().join("00/0000000000000000")).unwrap();
        let stuck = File::open(directory.path().join("00/0000000000000000")).unwrap();
        stuck.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        for _ in 0..2 {
            let cache = DiskCache::open(directory.path(), 20_000).unwrap();
            (0..100).for_each(|number| cache.put(&block(&format!("{number:x}.shard"), 0..1000), &[7; 1000]));
        }
        let bytes: u64 = files(directory.path())
            .iter()
            .filter(|path| path.is_file())
            .map(|path| path.metadata().unwrap().len())
            .sum();
        assert!((10_000..=20_000 + 20_000 / PARTS + 1200).contains(&bytes), "{bytes} bytes");
    }

    #[test]
    fn a_directory_of_another_use_is_refused() {
        let directory = TempDir::new();
        fs::write(directory.path().join("thesis.txt"), "text").unwrap();
        let error = DiskCache::open(directory.path(), 1 << 20).unwrap_err();
        assert_eq!(error.kind(), sharddb_format::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("thesis.txt"), "{error}");
        assert!(directory.path().join("thesis.txt").exists());
    }

    #[test]
    fn a_directory_that_vanished_changes_no_result() {
        let directory = TempDir::new();
        let cache = DiskCache::open(directory.path().join("cache"), 1 << 20).unwrap();
        fs::remove_dir_all(directory.path().join("cache")).unwrap();
        cache.put(&block("0.shard", 0..5), b"bytes");
        assert_eq!(cache.get(&block("0.shard", 0..5)), None);
    }

    #[test]
    fn threads_and_processes_share_it() {
        let directory = TempDir::new();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let cache = DiskCache::open(directory.path(), 50_000).unwrap();
                    for number in 0..300u64 {
                        let id = block("0.shard", number..number + 500);
                        let bytes = [number.to_le_bytes()[0]; 500];
                        cache.put(&id, &bytes);
                        assert!(cache.get(&id).is_none_or(|found| found == bytes));
                    }
                });
            }
        });
        assert!(!files(directory.path()).iter().any(|path| is_temporary(path.file_name().unwrap())));
    }
}
