//! A cache of blocks in a local directory: a second run starts warm.
//!
//! ```text
//! directory/
//!   CACHEDIR.TAG              the marker: a directory without it is changed only if it is empty
//!   3f/3f5a0c9e81b2d467       a block; the name is half of the digest of its identity
//!   tmp-6f0c93e2b1d84a57..    a block or the marker that is being written; 128 random bits, since containers share process ids
//!
//! block     integers are little endian
//!   magic "shardblk" | identity length u64 | bytes length u64 | crc32 u32 of all other bytes of the file
//!   identity   data set \n object \n start \n end
//!   bytes
//! ```
//!
//! Any number of processes may use the directory at once: a block is written under a name of its own and renamed. A file
//! that is not exactly the block that is looked for is a miss: damaged, of an unlucky digest, or of another program. Only a
//! file with an exact name and the magic is removed or replaced. Blocks are not synced, since the checksum finds what a
//! crash left behind.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sharddb_format::internal::digest::Digest;
use sharddb_format::internal::random::random_name;
use sharddb_format::{Error, Result};

use crate::block_store::{BlockId, BlockStore};

const MAGIC: [u8; 8] = *b"shardblk";

/// The length of the header: magic, two lengths, checksum.
const HEADER_LEN: usize = 28;

/// The name of the marker, by which programs that make backups recognise a cache (<https://bford.info/cachedir/>).
const MARKER: &str = "CACHEDIR.TAG";

/// The content of the marker: the signature of that convention, and what says that the cache is of this kind.
const MARKER_TEXT: &str =
    "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of blocks of sharddb, which may be removed.\n";

/// Start of the names of temporary files.
const TEMPORARY: &str = "tmp-";

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
    /// Whether the directory has the marker. Without it, nothing is kept.
    is_marked: bool,
    /// The bytes that this process wrote since it measured the directory.
    written: AtomicU64,
}

impl DiskCache {
    /// Opens a cache of `capacity` bytes in a directory of its own, which is created if it does not exist.
    ///
    /// An empty directory becomes a cache by a marker, the file `CACHEDIR.TAG`; if that cannot be written, nothing is kept.
    /// `lost+found` and names that begin with a dot are ignored.
    ///
    /// Cost: lists the directory.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the directory has other entries than those of a cache, or entries and no marker; `Io`.
    pub fn open(directory: impl AsRef<Path>, capacity: u64) -> Result<DiskCache> {
        let directory = directory.as_ref();
        let failed = |error| Error::io("open the cache", directory, error);
        match fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let is_marked = check_entries(directory)? || mark(directory).is_ok();
        let cache = DiskCache { directory: directory.to_path_buf(), capacity, is_marked, written: AtomicU64::new(0) };
        if is_marked {
            cache.shrink().map_err(failed)?;
        }
        Ok(cache)
    }

    fn path_of(&self, identity: &str) -> PathBuf {
        let name = format!("{:.16}", Digest::of(identity.as_bytes()));
        self.directory.join(name.get(..2).unwrap_or_default()).join(name)
    }

    fn try_get(&self, block: &BlockId) -> io::Result<Option<Vec<u8>>> {
        let identity = identity_of(block);
        let path = self.path_of(&identity);
        if !fs::symlink_metadata(&path)?.is_file() {
            return Ok(None); // opening a FIFO would wait for a writer, and a link may lead to a file of another use
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
        if !self.is_marked || fs::symlink_metadata(&path).is_ok() && !is_own(&path, &MAGIC) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            match fs::create_dir(parent) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ if !fs::symlink_metadata(parent)?.is_dir() => return Ok(()), // a link, or a file
                _ => {}
            }
        }
        write_and_rename(&self.directory, &content_of(&identity, bytes), &path, |_| Ok(()))?;
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
            if !is_own(&block.path, &MAGIC) && fs::symlink_metadata(&block.path).is_ok() {
                bytes -= block.len; // of another program
                continue;
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
            } else if is_hex(&entry.file_name(), 2) && entry.file_type()?.is_dir() {
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

/// Returns the content of the file of a block.
fn content_of(identity: &str, bytes: &[u8]) -> Vec<u8> {
    let mut content = header(identity, bytes.len() as u64, 0);
    content.extend(identity.as_bytes());
    content.extend(bytes);
    let crc32 = crc32_of(&content).to_le_bytes();
    if let Some(place) = content.get_mut(HEADER_LEN - crc32.len()..HEADER_LEN) {
        place.copy_from_slice(&crc32);
    }
    content
}

/// Writes a temporary file of a cache, and renames it. `finish` is called with the complete file.
fn write_and_rename(
    directory: &Path,
    content: &[u8],
    path: &Path,
    finish: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = directory.join(format!("{TEMPORARY}{}", random_name()));
    let mut file = File::options().write(true).create_new(true).open(&temporary)?;
    let written = file.write_all(content).and_then(|()| finish(&file)).and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| _ = fs::remove_file(&temporary)) // it was created here; the first error is returned
}

/// Makes an empty directory a cache.
fn mark(directory: &Path) -> io::Result<()> {
    write_and_rename(directory, MARKER_TEXT.as_bytes(), &directory.join(MARKER), File::sync_all)
}

/// Returns whether a path is a file, and not a link to one, that begins with this text, or was cut by a crash: empty, or
/// zeros in place of the text.
fn is_own(path: &Path, text: &[u8]) -> bool {
    let read = || -> io::Result<Vec<u8>> {
        let mut head = Vec::new();
        if fs::symlink_metadata(path)?.is_file() {
            File::open(path)?.take(text.len() as u64).read_to_end(&mut head)?;
            return Ok(head);
        }
        Err(io::ErrorKind::Unsupported.into())
    };
    read().is_ok_and(|head| text.starts_with(&head) || head.iter().all(|byte| *byte == 0))
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

/// Checks that a directory has only the entries of a cache. Returns whether it has the marker, which it needs for others than
/// temporary files.
///
/// Errors: `InvalidInput`; `Io`.
fn check_entries(directory: &Path) -> Result<bool> {
    let failed = |error| Error::io("list", directory, error);
    let mut of_marked = None;
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name == MARKER || is_hex(&name, 2) {
            of_marked = Some(name);
        } else if !is_temporary(&name) && name != "lost+found" && !name.as_encoded_bytes().starts_with(b".") {
            return Err(no_cache(directory, &name));
        }
    }
    // after the list: another process may have made it a cache meanwhile
    let is_marked = has_marker(directory);
    match of_marked.filter(|_| !is_marked) {
        Some(name) => Err(no_cache(directory, &name)),
        None => Ok(is_marked),
    }
}

/// Returns whether a directory has the marker, exactly. Opens no other kind of file, and reads no longer one.
fn has_marker(directory: &Path) -> bool {
    let path = directory.join(MARKER);
    let is_as_long = |entry: fs::Metadata| entry.is_file() && entry.len() == MARKER_TEXT.len() as u64;
    fs::symlink_metadata(&path).is_ok_and(is_as_long) && fs::read(path).is_ok_and(|text| text == MARKER_TEXT.as_bytes())
}

fn no_cache(directory: &Path, found: &std::ffi::OsStr) -> Error {
    let message = format!(
        "expected an empty directory or a cache of blocks, found a directory with {}: choose a directory of its own",
        found.display()
    );
    Error::invalid_input(message).at_path(directory)
}

/// Whether a name is exactly one that a cache gives a temporary file.
fn is_temporary(name: &std::ffi::OsStr) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY));
    random.is_some_and(|random| is_hex(random.as_ref(), 32))
}

/// Whether a name has this number of hexadecimal digits.
fn is_hex(name: &std::ffi::OsStr, digits: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.to_str().is_some_and(|name| name.len() == digits && name.bytes().all(is_digit))
}

fn remove_if_abandoned(entry: &fs::DirEntry) {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    let is_own = is_own(&entry.path(), &MAGIC) || is_own(&entry.path(), MARKER_TEXT.as_bytes());
    if is_own && modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > ABANDONED)) {
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
        let paths = of(directory).into_iter().filter(|path| path.file_name() != Some(MARKER.as_ref()));
        paths.flat_map(|path| if path.is_dir() { of(&path) } else { vec![path] }).collect()
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
        DiskCache::open(directory.path(), 0).unwrap();
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

    /// Names that are nearly those of a cache, or are, with other content: before and after the directory became a cache.
    #[test]
    fn files_of_others_stay() {
        let long_ago = SystemTime::now() - 3 * ABANDONED;
        let put = |directory: &Path, name: &str, content: &str| {
            fs::create_dir_all(directory.join(name).parent().unwrap()).unwrap();
            fs::write(directory.join(name), content).unwrap();
            File::options().append(true).open(directory.join(name)).unwrap().set_modified(long_ago).unwrap();
        };
        let random = "tmp-0123456789abcdef0123456789abcdef";
        let near_misses = ["tmp-thesis.txt", "tmp-1-0", "tmp-", &format!("{random}0"), "CACHEDIR.TAG", "cachedir.tag"];
        let blocks = ["ab/0123456789abcdef", "ab/ab23456789abcdef", "ab/notes", "ab"];
        for name in near_misses.into_iter().chain(blocks) {
            let directory = TempDir::new();
            put(directory.path(), name, "text");
            let error = DiskCache::open(directory.path(), 0).unwrap_err();
            assert_eq!(error.kind(), sharddb_format::ErrorKind::InvalidInput, "{name}");
            assert_eq!(fs::read(directory.path().join(name)).unwrap(), b"text");
        }

        let directory = TempDir::new();
        let cache = DiskCache::open(directory.path(), 2000).unwrap();
        let id = block("0.shard", 0..1000);
        let place = cache.path_of(&identity_of(&id)).strip_prefix(directory.path()).unwrap().display().to_string();
        let of_others = [random, "ab/0123456789abcdef", "ab/ab23456789abcdef", "cd/notes", "tmp-thesis.txt", &place];
        of_others.iter().for_each(|name| put(directory.path(), name, "text"));
        (0..100).for_each(|number| cache.put(&block(&format!("{number:x}.shard"), 0..1000), &[7; 1000]));
        cache.put(&id, &[7; 1000]);
        assert_eq!(cache.get(&id), None, "not replaced");
        for name in of_others {
            assert_eq!(fs::read(directory.path().join(name)).unwrap(), b"text", "{name}");
        }
    }

    /// Neither a marker of another kind is read, nor is anything written through a link.
    #[cfg(unix)]
    #[test]
    fn links_and_other_kinds_of_files_are_not_followed() {
        use std::os::unix::fs::symlink;
        let (directory, elsewhere) = (TempDir::new(), TempDir::new());
        symlink("/dev/zero", directory.path().join(MARKER)).unwrap();
        DiskCache::open(directory.path(), 1000).unwrap_err();
        fs::remove_file(directory.path().join(MARKER)).unwrap();
        let long = File::create(directory.path().join(MARKER)).unwrap();
        long.set_len(1 << 40).unwrap();
        DiskCache::open(directory.path(), 1000).unwrap_err();
        fs::remove_file(directory.path().join(MARKER)).unwrap();
        let cache = DiskCache::open(directory.path(), 1 << 20).unwrap();
        let id = block("0.shard", 0..5);
        let path = cache.path_of(&identity_of(&id));
        symlink(elsewhere.path(), path.parent().unwrap()).unwrap();
        cache.put(&id, b"bytes");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    /// What processes that ended left is removed: a temporary file, an empty block, one that a crash left as zeros.
    #[test]
    fn what_a_crash_left_is_removed() {
        let directory = TempDir::new();
        let cache = DiskCache::open(directory.path(), 2000).unwrap();
        fs::create_dir(directory.path().join("ab")).unwrap();
        let left = [
            ("tmp-0123456789abcdef0123456789abcdef", &MAGIC[..]),
            ("tmp-ffffffffffffffffffffffffffffffff", b""),
            ("ab/ab23456789abcdef", b""),
            ("ab/abffffffffffffff", &[0; 3000]),
        ];
        for (name, content) in left {
            fs::write(directory.path().join(name), content).unwrap();
            let file = File::options().append(true).open(directory.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
        }
        (0..100).for_each(|number| cache.put(&block(&format!("{number:x}.shard"), 0..1000), &[7; 1000]));
        for (name, _) in left {
            assert!(!directory.path().join(name).exists(), "{name}");
        }
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
