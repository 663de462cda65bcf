//! [`ShardWriter`]: the public interface for writing one shard from sorted pairs.
//!
//! It checks the order, encodes values and collects one minishard at a time. `shard_file` assigns positions and writes
//! the bytes. The bulk loader writes through `shard_file` directly, because its pairs are sorted and encoded already.
//! [`ShardDb::from_pairs`] writes its one shard with it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::bytes::Sink;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks;
use crate::format::gzip::GzipEncoder;
use crate::format::hash::HashFunction;
use crate::format::layout::{Layout, ValueAlignment};
use crate::format::spec::{Encoding, ShardingSpec};
use crate::fs::disk;
use crate::ids::{MinishardNumber, ShardNumber, minishard_number, shard_number};
use crate::read::database::ShardDb;
use crate::read::generation::Generation;
use crate::write::shard_file::{PairHeader, ShardFile, ShardSummary, check_value_len};

/// Average number of keys per minishard, as in the profile `local`, of [`ShardDb::from_pairs`].
const KEYS_IN_MEMORY: usize = 8;

/// Writes one shard from pairs in storage order.
///
/// Pairs must be inserted by ascending minishard, then by ascending key. The writer holds the pairs of one minishard in
/// memory. A writer that is dropped before [`finish`](ShardWriter::finish) removes its file.
///
/// ```
/// use sharddb::ShardingSpec;
/// use sharddb::write::ShardWriter;
/// use sharddb::shard::Shard;
/// use sharddb::spec::{HashFunction, Layout};
///
/// let spec = ShardingSpec::new(HashFunction::Identity, 0, 1, 0)?;
/// let path = std::env::temp_dir().join(format!("{}-{}", std::process::id(), spec.shard_file_name(spec.shard(0).unwrap())));
/// let mut writer = ShardWriter::create(&path, spec, spec.shard(0).unwrap(), Layout::default())?;
/// writer.insert(2, b"two")?; // minishard 0: the even keys
/// writer.insert(1, b"one")?; // minishard 1: the odd ones
/// assert_eq!(writer.finish()?.keys, 2);
///
/// let shard = Shard::from_bytes(spec, spec.shard(0).unwrap(), std::fs::read(&path).unwrap());
/// assert_eq!(shard.get(1)?.unwrap(), b"one");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[must_use = "nothing is there until `finish`"]
pub struct ShardWriter {
    file: ShardFile,
    encoder: GzipEncoder,
    /// The minishard whose pairs are being collected.
    minishard: MinishardNumber,
    pairs: Vec<PairHeader>,
    bytes: Vec<u8>,
    unfinished: Unfinished,
}

/// Removes a file when it is dropped.
struct Unfinished(Option<Sink>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(Sink::File(_, path)) = &self.0 {
            let _ = disk::remove_file(path);
        }
    }
}

impl ShardWriter {
    /// Creates the file of a shard, which must not exist.
    ///
    /// A `layout` other than the default must be stated in the manifest or in the member "sharddb" of `info`, because
    /// readers cannot detect it.
    ///
    /// # Errors
    ///
    /// `Io`, also if the file exists; `InvalidInput` for a shard number above that of the specification.
    pub fn create(
        path: impl AsRef<Path>,
        spec: ShardingSpec,
        number: ShardNumber,
        layout: Layout,
    ) -> Result<ShardWriter> {
        check_number(&spec, number)?;
        Ok(ShardWriter::new(ShardFile::create(path.as_ref(), spec, number, layout)?))
    }

    /// Begins a shard in memory, for [`finish_in_memory`](ShardWriter::finish_in_memory).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a shard number above that of the specification.
    ///
    /// ```
    /// use sharddb::ShardingSpec;
    /// use sharddb::write::ShardWriter;
    /// use sharddb::shard::Shard;
    /// use sharddb::spec::{HashFunction, Layout};
    ///
    /// let spec = ShardingSpec::new(HashFunction::Identity, 0, 0, 0)?;
    /// let mut writer = ShardWriter::in_memory(spec, spec.shard(0).unwrap(), Layout::default())?;
    /// writer.insert(1, "one")?;
    /// let (_summary, bytes) = writer.finish_in_memory()?;
    /// assert_eq!(Shard::from_bytes(spec, spec.shard(0).unwrap(), bytes).get(1)?.unwrap(), b"one");
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn in_memory(spec: ShardingSpec, number: ShardNumber, layout: Layout) -> Result<ShardWriter> {
        check_number(&spec, number)?;
        Ok(ShardWriter::new(ShardFile::new(Sink::Memory(Arc::default()), spec, number, layout)))
    }

    fn new(file: ShardFile) -> ShardWriter {
        ShardWriter {
            unfinished: Unfinished(Some(file.sink().clone())),
            file,
            encoder: GzipEncoder::new(),
            minishard: minishard_number(0),
            pairs: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Adds a pair. Encodes the value with the data encoding of the specification.
    ///
    /// # Errors
    ///
    /// `OutOfOrder` if the key belongs to another shard or precedes the last key in storage order; `DuplicateKey` if it
    /// equals the last key; `TooLarge` for a gzip value or a gzip minishard index that readers refuse by default; `Io`.
    pub fn insert(&mut self, key: u64, value: impl AsRef<[u8]>) -> Result<()> {
        self.insert_with_preamble(key, &[], value.as_ref())
    }

    /// Adds a pair with a preamble: bytes that are stored directly before the value and are never encoded.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](ShardWriter::insert); `InvalidInput` for a preamble if the layout has no preambles, or
    /// if it begins with a zero byte and values are aligned.
    pub fn insert_with_preamble(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        check_value_len(key, value.len() as u64, self.file.spec().data_encoding())?;
        let minishard = self.check_order(key)?;
        if !preamble.is_empty() && !self.file.layout().preambles {
            let message =
                "expected no preamble, because the layout has none: create the writer with a layout with `preambles`";
            return Err(Error::invalid_input(message).at_key(key));
        }
        self.file.layout().value_alignment.check_preamble(preamble).map_err(|error| error.at_key(key))?;
        if minishard != self.minishard {
            self.flush_minishard()?;
            self.minishard = minishard;
        }
        self.bytes.extend_from_slice(preamble);
        let start = self.bytes.len();
        match self.file.spec().data_encoding() {
            Encoding::Raw => self.bytes.extend_from_slice(value),
            Encoding::Gzip => self.encoder.encode(value, &mut self.bytes),
        }
        let stored = self.bytes.get(start..).unwrap_or_default();
        self.pairs.push(PairHeader {
            value_check: checks::compute_value_check(key, stored),
            preamble_crc32: checks::compute_preamble_check(preamble),
            ..PairHeader::new(key, preamble.len() as u64, stored.len() as u64)
        });
        Ok(())
    }

    fn check_order(&self, key: u64) -> Result<MinishardNumber> {
        let location = self.file.spec().route(key);
        if location.shard != self.file.number() {
            let (own, other) = (self.file.number().get(), location.shard.get());
            let message = format!("expected a key of shard {own:x}, found one of shard {other:x}");
            return Err(Error::new(ErrorKind::OutOfOrder, message).at_key(key));
        }
        let Some(last) = self.pairs.last() else {
            return if location.minishard < self.minishard { Err(out_of_order(key)) } else { Ok(location.minishard) };
        };
        match (location.minishard, key).cmp(&(self.minishard, last.key)) {
            std::cmp::Ordering::Greater => Ok(location.minishard),
            std::cmp::Ordering::Equal => Err(duplicate_key(key)),
            std::cmp::Ordering::Less => Err(out_of_order(key)),
        }
    }

    fn flush_minishard(&mut self) -> Result<()> {
        if !self.pairs.is_empty() {
            self.file.write_minishard(self.minishard, &self.pairs, &mut &self.bytes[..])?;
            self.pairs.clear();
            self.bytes.clear();
            self.minishard = minishard_number(self.minishard.get() + 1); // the next pair belongs to a later minishard
        }
        Ok(())
    }

    /// Writes the last minishard and the shard index, and syncs the file.
    ///
    /// # Errors
    ///
    /// `Io`, and `TooLarge` for a gzip minishard index that readers refuse by default. The file is removed then.
    pub fn finish(self) -> Result<ShardSummary> {
        Ok(self.finish_and_sync()?.0)
    }

    /// Finishes a shard like [`finish`](ShardWriter::finish), and returns the bytes of one that was begun
    /// [in memory](ShardWriter::in_memory). For a file, the returned bytes are empty.
    ///
    /// # Errors
    ///
    /// Those of [`finish`](ShardWriter::finish).
    pub fn finish_in_memory(self) -> Result<(ShardSummary, Vec<u8>)> {
        let (summary, sink) = self.finish_and_sync()?;
        Ok((summary, sink.take_memory()))
    }

    fn finish_and_sync(mut self) -> Result<(ShardSummary, Sink)> {
        self.flush_minishard()?;
        let (summary, sink) = self.file.finish()?;
        sink.sync()?;
        self.unfinished.0 = None;
        Ok((summary, sink))
    }
}

impl ShardDb {
    /// Creates a database in memory, for tests and small tables. Writes no files.
    ///
    /// The database has one shard and no generation; [`refresh`](ShardDb::refresh) finds nothing new. Sorts the pairs
    /// in O(n log n). While the database is created, the values are in memory twice.
    ///
    /// # Errors
    ///
    /// `DuplicateKey` if two pairs have the same key.
    ///
    /// ```
    /// let db = sharddb::ShardDb::from_pairs([(7, "seven"), (3, "three")])?;
    /// assert_eq!(db.get(7)?.unwrap(), b"seven");
    /// assert!(db.get(8)?.is_none());
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn from_pairs<V: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (u64, V)>) -> Result<ShardDb> {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        let minishard_bits = (pairs.len() / KEYS_IN_MEMORY).checked_ilog2().unwrap_or(0).try_into().unwrap_or(u8::MAX);
        let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, 0)?;
        let layout = Layout::new(true, false, ValueAlignment::One);
        pairs.sort_unstable_by_key(|(key, _)| (spec.route(*key).minishard, *key));
        let mut writer = ShardWriter::in_memory(spec, shard_number(0), layout)?;
        for (key, value) in pairs {
            writer.insert(key, value)?;
        }
        let (_, bytes) = writer.finish_in_memory()?;
        Ok(ShardDb::of_generation(Generation::of_shard(spec, layout, bytes)))
    }
}

fn check_number(spec: &ShardingSpec, number: ShardNumber) -> Result<()> {
    if number <= spec.max_shard() {
        return Ok(());
    }
    let message = format!("expected a shard number up to {:x}, found {:x}", spec.max_shard().get(), number.get());
    Err(Error::invalid_input(message))
}

impl fmt::Debug for ShardWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardWriter").field("path", &self.file.sink().path()).finish_non_exhaustive()
    }
}

fn out_of_order(key: u64) -> Error {
    Error::new(ErrorKind::OutOfOrder, "expected pairs by ascending minishard and key, found one out of order")
        .at_key(key)
}

pub(crate) fn duplicate_key(key: u64) -> Error {
    Error::new(ErrorKind::DuplicateKey, "expected each key once, found it again: choose to keep the first or the last")
        .at_key(key)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ids::{minishard_number, shard_number};
    use crate::write::shard_file::PairBytes;
    use crate::write::shard_file::PieceSink;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("sharddb-writer-{}-{name}.shard", std::process::id()))
    }

    fn written(
        name: &str,
        spec: ShardingSpec,
        layout: Layout,
        pairs: &[(u64, &[u8], &[u8])],
    ) -> (Vec<u8>, ShardSummary) {
        let path = path(name);
        let mut writer = ShardWriter::create(&path, spec, shard_number(0), layout).unwrap();
        for (key, preamble, value) in pairs {
            writer.insert_with_preamble(*key, preamble, value).unwrap();
        }
        let summary = writer.finish().unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(summary.bytes, bytes.len() as u64);
        assert_eq!(summary.crc32, crc32fast::hash(&bytes));
        let index_len = usize::try_from(spec.shard_index_len()).unwrap();
        assert_eq!(summary.shard_index_crc32, crc32fast::hash(&bytes[..index_len]));
        (bytes, summary)
    }

    fn identity(minishard_bits: u8) -> ShardingSpec {
        ShardingSpec::new(HashFunction::Identity, 0, minishard_bits, 0).unwrap()
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The layout byte by byte: 4 minishards, of which 1 and 3 have keys; two empty values are separated by one byte.
    #[test]
    fn golden_raw() {
        let pairs: [(u64, &[u8], &[u8]); 4] = [(1, b"", b"abc"), (5, b"", b""), (9, b"", b""), (3, b"", b"z")];
        let (bytes, summary) = written("raw", identity(2), Layout::default(), &pairs);
        let expected = [
            words(&[0, 0, 0, 72, 0, 0, 80, 104]), // shard index
            words(&[1, 4, 4]),                    // minishard 1: ids 1, 5, 9
            words(&[72, 0, 1]),                   // starts: 72; directly after the value before; one byte further
            words(&[3, 0, 0]),                    // sizes
            b"abc\0".to_vec(),                    // values of minishard 1, and the byte that separates 5 and 9
            vec![0; 4],                           // minishard 3 begins at a multiple of 8
            words(&[3, 104, 1]),                  // minishard 3: id 3 at 104, 1 byte
            b"z".to_vec(),
        ];
        assert_eq!(bytes, expected.concat());
        assert_eq!((summary.keys, summary.value_bytes), (4, 4));
    }

    /// Checks after the index, alignment and preambles, in a shard of one minishard.
    #[test]
    fn golden_checks_preambles_alignment() {
        let layout = Layout::new(true, true, ValueAlignment::Sixteen);
        let pairs: [(u64, &[u8], &[u8]); 2] = [(7, b"P", b"value"), (8, b"", b"v")];
        let (bytes, _) = written("checks", identity(0), layout, &pairs);
        // index at 16..64, checks at 64..84, the first value at 96 after its preamble, the second at 112
        let index = words(&[7, 1, 80, 11, 5, 1]);
        let crc = |parts: &[&[u8]]| crc32fast::hash(&parts.concat()).to_le_bytes().to_vec();
        let expected = [
            words(&[0, 48]),
            index.clone(),
            crc(&[&words(&[0, 0]), &index]),
            crc(&[&words(&[7]), b"value"]),
            crc(&[&words(&[8]), b"v"]),
            crc(&[&[0; 11], b"P"]),
            crc(&[&[0; 11]]),
            vec![0; 11],
            b"Pvalue".to_vec(),
            vec![0; 11],
            b"v".to_vec(),
        ];
        assert_eq!(bytes, expected.concat());
    }

    /// A minishard written through cursors has the same bytes as one written from memory.
    #[test]
    fn minishards_of_many_keys_have_the_same_bytes() {
        for encoding in [Encoding::Raw, Encoding::Gzip] {
            for (checks, preambles) in [(false, false), (true, false), (true, true)] {
                let layout = Layout::new(checks, preambles, ValueAlignment::Eight);
                let spec = identity(1).with_minishard_index_encoding(encoding);
                let values: Vec<Vec<u8>> = (0..50_000usize).map(|i| vec![i.to_le_bytes()[0]; i % 7]).collect();
                let preamble = |i: usize| if preambles && i.is_multiple_of(3) { &b"pre"[..] } else { b"" };
                let pairs: Vec<PairHeader> = (0..values.len())
                    .map(|i| PairHeader {
                        key: 2 * i as u64,
                        preamble_len: preamble(i).len() as u64,
                        stored_len: values[i].len() as u64,
                        value_check: checks::compute_value_check(2 * i as u64, &values[i]),
                        preamble_crc32: crc32fast::hash(preamble(i)),
                        batch: 0,
                        is_deleted: false,
                        large: None,
                        source: 0,
                        locator: 0,
                    })
                    .collect();
                let bytes: Vec<u8> = (0..values.len()).flat_map(|i| [preamble(i), &values[i]].concat()).collect();
                let write = |many_keys: bool| {
                    let name = format!("many-{encoding:?}-{checks}-{preambles}-{many_keys}");
                    let path = path(&name);
                    let mut file = ShardFile::create(&path, spec, shard_number(0), layout).unwrap();
                    let mut source = &bytes[..];
                    let scratch = path.with_extension("scratch");
                    if many_keys {
                        let mut headers = pairs.iter().copied().map(Ok);
                        let keys = pairs.len() as u64;
                        let minishard = minishard_number(0);
                        file.write_minishard_of_many_keys(minishard, keys, &mut headers, &mut source, &scratch)
                    } else {
                        file.write_minishard(minishard_number(0), &pairs, &mut source)
                    }
                    .unwrap();
                    let one_more = PairHeader { key: 1, preamble_len: 0, stored_len: 0, ..pairs[0] };
                    file.write_minishard(minishard_number(1), &[one_more], &mut &b""[..]).unwrap();
                    let (summary, _) = file.finish().unwrap();
                    let bytes = fs::read(&path).unwrap();
                    assert_eq!(summary.crc32, crc32fast::hash(&bytes));
                    fs::remove_file(&path).unwrap();
                    assert!(!scratch.exists());
                    (bytes, summary)
                };
                assert!(write(true) == write(false), "{encoding:?} index, {checks}, {preambles}");
            }
        }
    }

    #[test]
    fn refuses_what_is_out_of_order() {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 1, 1).unwrap();
        let path = path("order");
        let mut writer = ShardWriter::create(&path, spec, shard_number(0), Layout::default()).unwrap();
        let kind = |result: Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(writer.insert(2, b"")), ErrorKind::OutOfOrder, "a key of shard 1");
        writer.insert(8, b"").unwrap();
        assert_eq!(kind(writer.insert(8, b"")), ErrorKind::DuplicateKey);
        assert_eq!(kind(writer.insert(4, b"")), ErrorKind::OutOfOrder, "a smaller key");
        writer.insert(1, b"").unwrap();
        assert_eq!(kind(writer.insert(12, b"")), ErrorKind::OutOfOrder, "a key of the minishard before");
        assert_eq!(kind(writer.insert_with_preamble(5, b"p", b"")), ErrorKind::InvalidInput);
        drop(writer);
        assert!(!path.exists(), "an unfinished shard is removed");
        assert!(ShardWriter::create(&path, spec, shard_number(2), Layout::default()).is_err());
    }

    /// A source that returns fewer bytes than stated causes an error before anything is published.
    #[test]
    fn a_source_that_gives_too_few_bytes_is_an_internal_error() {
        struct Short;
        impl PairBytes for Short {
            fn pieces(&mut self, _: &PairHeader, to: &mut PieceSink<'_>) -> Result<()> {
                to(b"four")
            }
        }
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 0, 0).unwrap();
        let header = |key| PairHeader::new(key, 0, 5);
        for many_keys in [false, true] {
            let path = path(&format!("short-{many_keys}"));
            let mut file = ShardFile::create(&path, spec, shard_number(0), Layout::default()).unwrap();
            let pairs = [header(3), header(9)];
            let error = if many_keys {
                let mut headers = pairs.iter().copied().map(Ok);
                let scratch = path.with_extension("scratch");
                file.write_minishard_of_many_keys(minishard_number(0), 2, &mut headers, &mut Short, &scratch)
            } else {
                file.write_minishard(minishard_number(0), &pairs, &mut Short)
            }
            .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal);
            assert!(error.to_string().contains("key 3"), "{error}");
            fs::remove_file(&path).unwrap();
        }
    }
}
