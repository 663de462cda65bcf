//! Reading one shard: key -> minishard -> row -> value.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::byte_range::ByteRange;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checks::{self, ChecksPlace};
use crate::format::encoding;
use crate::format::minishard_index::{Checkpoints, DecodedIndex, ROW_LEN, RawIndex, Row, SCAN_LIMIT, SearchableIndex};
use crate::format::shard_index::ShardIndexEntry;
use crate::layout::Layout;
use crate::shard::cache::{Cached, CachedIndex, MinishardCache};
use crate::shard::entries::{Pass, Rows, ShardEntries, ShardKeys};
use crate::shard::entry_blocks::EntryBlocks;
use crate::shard::extents::Extents;
use crate::shard::in_place::{self, InMemory, MinishardInPlace, ShardInPlace};
use crate::shard::minishard_lines::MinishardLines;
use crate::shard::minishard_pages::PagesOfShard;
use crate::spec::{Encoding, Location, MinishardNumber, ShardNumber, ShardingSpec};
use crate::storage::{AlignedBytes, Bytes, Holes, Storage, StorageKind, zeros_sum};

/// The shard index is read in blocks of this size where all of it is read.
const SHARD_INDEX_BLOCK: u64 = 64 << 10;

/// The most bytes that readers decode a gzip value to by default; writers store none of more.
pub(crate) const DEFAULT_MAX_VALUE_BYTES: u64 = 1 << 30;

/// The most bytes that readers decode a gzip minishard index to by default; writers store none of more.
pub(crate) const DEFAULT_MAX_INDEX_BYTES: u64 = 256 << 20;

/// What bounds a read and how far it is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOptions {
    pub(crate) max_value_bytes: u64,
    pub(crate) max_index_bytes: u64,
    pub(crate) verify_on_read: bool,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            max_value_bytes: DEFAULT_MAX_VALUE_BYTES,
            max_index_bytes: DEFAULT_MAX_INDEX_BYTES,
            verify_on_read: false,
        }
    }
}

/// One shard: its file, or its bytes in hand.
///
/// Usually reached through a [`Snapshot`](crate::Snapshot); by itself it serves who has the bytes of a single shard:
///
/// ```no_run
/// use sharddb::{Shard, ShardNumber, ShardingSpec};
///
/// let spec = ShardingSpec::from_json(&std::fs::read_to_string("sharding.json").unwrap())?;
/// let shard = Shard::from_bytes(spec, ShardNumber(0), std::fs::read("0.shard").unwrap());
/// for entry in shard.iter() {
///     let entry = entry?;
///     println!("{} has {} bytes", entry.key(), entry.value()?.len());
/// }
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone)]
pub struct Shard(Arc<ShardReader>);

/// The files of one shard, opened.
pub(crate) struct ShardFiles {
    /// The `.shard` file, or the `.index` file of the obsolete pair.
    shard_index: Storage,
    /// The `.data` file of the obsolete pair.
    data: Option<Storage>,
    /// The file with the data.
    path: PathBuf,
}

/// What a shard is read with. The methods below are the steps of the read path, in order.
pub(crate) struct ShardReader {
    pub(crate) number: ShardNumber,
    pub(crate) spec: ShardingSpec,
    /// `None`: written by somebody else.
    pub(crate) layout: Option<Layout>,
    files: ShardFiles,
    /// Where relative offsets count from, in the file with the data.
    base: u64,
    options: ReadOptions,
    /// Raw, in one file: lookups may read it as it lies, if it is in memory.
    in_place: bool,
    /// For lookups in place, and no answer depends on it.
    lines: MinishardLines,
    pages: Option<PagesOfShard>,
    cache: Arc<MinishardCache>,
    /// The CRC-32 that the manifest states for the shard index.
    shard_index_crc32: Option<u32>,
    shard_index_verified: OnceLock<()>,
    /// `None` inside: there are too many to be kept.
    extents: OnceLock<Option<Extents>>,
}

/// Where a key is stored: its row, with what it takes to read and check the value.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) minishard: MinishardNumber,
    pub(crate) row: Row,
    pub(crate) checks: ChecksPlace,
}

/// A minishard with keys, ready to be searched.
struct Minishard<'a> {
    /// Of a small raw index all that it takes, of a large one with what is cached.
    raw: RawIndex<'a>,
    cached: Option<Cached>,
    /// The end of the encoded index in the file.
    index_end: u64,
}

impl ShardFiles {
    /// Opens `<stem>.shard`.
    pub(crate) fn open(path: &Path, kind: StorageKind) -> Result<ShardFiles> {
        Ok(ShardFiles { shard_index: Storage::open(path, kind)?, data: None, path: path.to_path_buf() })
    }

    /// Opens the obsolete `<stem>.index` and `<stem>.data`.
    pub(crate) fn open_pair(index: &Path, data: &Path, kind: StorageKind) -> Result<ShardFiles> {
        Ok(ShardFiles {
            shard_index: Storage::open(index, kind)?,
            data: Some(Storage::open(data, kind)?),
            path: data.to_path_buf(),
        })
    }

    fn data(&self) -> &Storage {
        self.data.as_ref().unwrap_or(&self.shard_index)
    }

    /// Both files of the obsolete pair, else the one.
    fn all(&self) -> impl Iterator<Item = &Storage> {
        std::iter::once(&self.shard_index).chain(&self.data)
    }

    /// The length of the file with the data.
    pub(crate) fn data_len(&self) -> u64 {
        self.data().len()
    }

    /// The holes of the file with the shard index; none that could be skipped in the obsolete pair, or in memory.
    pub(crate) fn shard_index_holes(&self) -> Holes {
        let path = if self.data.is_some() { Path::new("") } else { &self.path };
        Holes::of(path, self.shard_index.len())
    }

    /// The length of all files.
    pub(crate) fn len(&self) -> u64 {
        self.shard_index.len() + self.data.as_ref().map_or(0, Storage::len)
    }
}

impl Shard {
    pub(crate) fn new(reader: ShardReader) -> Shard {
        Shard(Arc::new(reader))
    }

    /// Whether there is another handle of this shard.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    #[inline]
    pub(crate) fn reader(&self) -> &ShardReader {
        &self.0
    }

    /// A shard from its bytes in memory, a foreign one: no checks.
    ///
    /// Nothing is read yet; bytes that are no shard show when they are asked.
    pub fn from_bytes(spec: ShardingSpec, number: ShardNumber, bytes: Vec<u8>) -> Shard {
        let files =
            ShardFiles { shard_index: Storage::Heap(AlignedBytes::from(bytes)), data: None, path: PathBuf::new() };
        let cache = Arc::new(MinishardCache::with_capacity(64 << 20));
        Shard(Arc::new(ShardReader::new(number, spec, None, files, ReadOptions::default(), cache, None)))
    }

    /// The shard's number.
    pub fn number(&self) -> ShardNumber {
        self.0.number
    }

    /// The value of a key, like [`Snapshot::get`](crate::Snapshot::get).
    ///
    /// A key of another shard is absent.
    pub fn get(&self, key: u64) -> Result<Option<Value<'_>>> {
        let Some(minishard) = self.0.minishard_of(key) else { return Ok(None) };
        self.0.get(minishard, key)
    }

    /// Whether a key is there; the value is not touched.
    pub fn contains(&self, key: u64) -> Result<bool> {
        let Some(minishard) = self.0.minishard_of(key) else { return Ok(false) };
        self.0.contains(minishard, key)
    }

    /// Where a key's value is stored.
    pub fn locate(&self, key: u64) -> Result<Option<ValueLocation>> {
        let Some(stored) = self.0.find(key)? else { return Ok(None) };
        self.0.value_location(stored.minishard, stored.row).map(Some)
    }

    /// The `n` bytes that lie directly before a key's value; they are never encoded.
    ///
    /// Errors: `InvalidInput` if the shard has fewer bytes before it.
    pub fn get_prefix(&self, key: u64, n: u64) -> Result<Option<Value<'_>>> {
        let Some(stored) = self.0.find(key)? else { return Ok(None) };
        self.0.prefix(&stored, n).map(Some)
    }

    /// All pairs in storage order, like [`Snapshot::iter`](crate::Snapshot::iter).
    pub fn iter(&self) -> ShardEntries<'_> {
        ShardEntries::new(self)
    }

    /// The number of keys, counted: reads all indexes and no values.
    ///
    /// Errors: the first bad minishard.
    pub fn count(&self) -> Result<u64> {
        let (_pass, mut rows, mut count) = (Pass::new(self), Rows::default(), 0);
        while let Some(minishard) = rows.next_minishard(&self.0)? {
            count += minishard.rows;
        }
        Ok(count)
    }

    /// The length of its file in bytes; of both for the obsolete pair.
    pub fn file_bytes(&self) -> u64 {
        self.0.files.len()
    }

    /// All keys in storage order.
    pub fn keys(&self) -> impl Iterator<Item = Result<u64>> + use<> {
        ShardKeys::new(self.clone())
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("number", &self.0.number).field("path", &self.0.files.path).finish()
    }
}

impl ShardReader {
    pub(crate) fn new(
        number: ShardNumber,
        spec: ShardingSpec,
        layout: Option<Layout>,
        files: ShardFiles,
        options: ReadOptions,
        cache: Arc<MinishardCache>,
        shard_index_crc32: Option<u32>,
    ) -> ShardReader {
        let base = if files.data.is_some() { 0 } else { spec.shard_index_len() };
        let raw = spec.minishard_index_encoding() == Encoding::Raw && spec.data_encoding() == Encoding::Raw;
        let in_place = raw && files.data.is_none();
        let behind = match in_place {
            true => files.shard_index.in_memory().and_then(|bytes| (bytes.len() as u64).checked_sub(base)),
            false => None,
        };
        ShardReader {
            number,
            spec,
            layout,
            in_place,
            lines: behind.map_or_else(MinishardLines::none, |len| MinishardLines::new(spec.minishards(), len)),
            pages: None,
            files,
            base,
            options,
            cache,
            shard_index_crc32,
            shard_index_verified: OnceLock::new(),
            extents: OnceLock::new(),
        }
    }

    /// The same with what is written of where its minishards begin.
    pub(crate) fn with_pages(self, pages: Option<PagesOfShard>) -> ShardReader {
        ShardReader { pages, ..self }
    }

    /// The minishard that a key hashes to, if that is in this shard.
    fn minishard_of(&self, key: u64) -> Option<MinishardNumber> {
        let location = self.spec.locate(key);
        (location.shard == self.number).then_some(location.minishard)
    }

    /// Where a key of this shard is stored.
    fn find(&self, key: u64) -> Result<Option<Stored>> {
        match self.minishard_of(key) {
            Some(minishard) => self.find_in(minishard, key),
            None => Ok(None),
        }
    }

    /// The value of a key, in the minishard that it hashes to: the read path.
    #[inline]
    pub(crate) fn get(&self, number: MinishardNumber, key: u64) -> Result<Option<Value<'_>>> {
        let minishard = self.minishard_asked_for(number);
        if self.options.verify_on_read {
            return self.get_verified(number, key);
        }
        match minishard.and_then(|minishard| in_place::value(minishard, key)) {
            Some(value) => Ok(value.map(Value::borrowed_from)),
            None => self.get_any(number, key),
        }
    }

    /// The same where its minishard has been asked for, and is to be verified or does not lie in memory as usual.
    pub(crate) fn get_staged(&self, number: MinishardNumber, key: u64) -> Result<Option<Value<'_>>> {
        match self.options.verify_on_read {
            true => self.get_verified(number, key),
            false => self.get_any(number, key),
        }
    }

    /// Whether a key is there, in the minishard that it hashes to.
    #[inline]
    pub(crate) fn contains(&self, number: MinishardNumber, key: u64) -> Result<bool> {
        let value = match self.options.verify_on_read {
            true => None, // would be verified, and for that read
            false => self.minishard_asked_for(number).and_then(|minishard| in_place::value(minishard, key)),
        };
        match value {
            Some(value) => Ok(value.is_some()),
            None => Ok(self.find_in(number, key)?.is_some()),
        }
    }

    /// A minishard as it lies in memory, asked for before its shard index entry has come.
    #[inline]
    fn minishard_asked_for(&self, number: MinishardNumber) -> InMemory<MinishardInPlace<'_>> {
        let shard = self.in_place()?;
        let asked_for = self.prefetch_minishard(shard, number);
        let minishard = shard.minishard(number)?;
        minishard.iter().filter(|minishard| !minishard.begins_in(asked_for)).for_each(MinishardInPlace::prefetch);
        Some(minishard)
    }

    /// Asks for a minishard before its entry has come: for its lines if they are remembered, else for its page, probably.
    /// The line asked for, if any.
    #[inline]
    fn prefetch_minishard(&self, shard: ShardInPlace<'_>, number: MinishardNumber) -> Option<u64> {
        let position = self.lines.position(number.0);
        match position {
            Some(position) => shard.prefetch_at(position),
            None => {
                shard.prefetch_page(number, self.spec.minishard_bits());
                self.learn_lines(number);
            }
        }
        position
    }

    /// Reads a page of the shard index, from a disk maybe: the minishard is asked for meanwhile.
    #[cold]
    fn learn_lines(&self, number: MinishardNumber) {
        let pages = self.pages.as_ref().and_then(|pages| pages.of(number));
        pages.into_iter().for_each(|pages| self.files.shard_index.will_need(pages));
        let index_of = |number| Some(self.in_place()?.minishard(MinishardNumber(number))??.index());
        self.lines.learn(number.0, index_of);
    }

    /// With `verify_on_read`: from memory if it is as its checks say, or has none; else by the other path, which checks as well.
    #[inline(never)]
    fn get_verified(&self, number: MinishardNumber, key: u64) -> Result<Option<Value<'_>>> {
        match self.checked_in_place(number, key) {
            Some(value) => Ok(value.map(Value::borrowed_from)),
            None => self.get_any(number, key),
        }
    }

    fn checked_in_place(&self, number: MinishardNumber, key: u64) -> InMemory<&[u8]> {
        if self.shard_index_crc32.is_some() && self.shard_index_verified.get().is_none() {
            return None; // to be compared first
        }
        match (self.in_place()?.minishard(number)?, self.layout) {
            (None, _) => Some(None),
            (Some(minishard), Some(Layout { checks: true, .. })) => minishard.get_checked(key, self.location(number)),
            (Some(minishard), _) => minishard.get(key),
        }
    }

    /// The shard as it lies in memory, if it may be read so; not verified.
    #[inline]
    pub(crate) fn in_place(&self) -> Option<ShardInPlace<'_>> {
        match self.in_place {
            true => ShardInPlace::new(self.files.shard_index.in_memory()?, to_usize(self.base)),
            false => None,
        }
    }

    /// The bytes behind the shard index, where values are given as they lie: in memory, raw, not to be verified.
    pub(crate) fn values_in_place(&self) -> Option<&[u8]> {
        match self.options.verify_on_read {
            true => None,
            false => self.in_place().map(|shard| shard.behind()),
        }
    }

    #[inline(never)]
    pub(crate) fn get_any(&self, number: MinishardNumber, key: u64) -> Result<Option<Value<'_>>> {
        match self.find_in(number, key)? {
            Some(stored) => self.value(&stored).map(Some),
            None => Ok(None),
        }
    }

    /// Where a key is stored, in the minishard that it hashes to: by any index, read, decoded, verified and cached as
    /// it needs.
    pub(crate) fn find_in(&self, number: MinishardNumber, key: u64) -> Result<Option<Stored>> {
        let Some(minishard) = self.minishard(number).map_err(|error| error.at_key(key))? else { return Ok(None) };
        let index = minishard.index();
        match index.find(key) {
            Some(row) => {
                let checks = ChecksPlace { index_end: minishard.index_end, rows: index.len() as u64 };
                Ok(Some(Stored { minishard: number, row, checks }))
            }
            None if index.can_tell_absence() => Ok(None),
            None => Err(self.cannot_tell_absence(number, key)),
        }
    }

    #[cold]
    fn cannot_tell_absence(&self, number: MinishardNumber, key: u64) -> Error {
        let message = "expected byte ranges in order and below 2^63 in the minishard index, found others: \
                       whether it has the key cannot be told";
        self.at(number, Error::corrupt(message).at_key(key))
    }

    /// A minishard, ready to be searched; `None` if it has no keys.
    fn minishard(&self, number: MinishardNumber) -> Result<Option<Minishard<'_>>> {
        if self.options.verify_on_read {
            return self.verified_minishard(number).map_err(|error| self.at(number, error));
        }
        match (self.files.data().in_memory(), self.spec.minishard_index_encoding()) {
            (Some(bytes), Encoding::Raw) => self.minishard_in_place(number, bytes),
            _ => self.cached_minishard(number),
        }
        .map_err(|error| self.at(number, error))
    }

    /// A raw minishard index is searched where it lies.
    fn minishard_in_place<'a>(&'a self, number: MinishardNumber, bytes: &'a [u8]) -> Result<Option<Minishard<'a>>> {
        let Some(range) = self.minishard_index_range(number)? else { return Ok(None) };
        let from_index = bytes.get(to_usize(range.start)..).unwrap_or_default();
        let index = RawIndex::view(from_index.get(..to_usize(range.len())).unwrap_or_default())
            .map_err(|error| error.at_offset(range.start))?;
        let cached = (index.len() > SCAN_LIMIT).then(|| self.large_index_in_place(number, index, range.end));
        Ok(Some(Minishard { raw: index, cached, index_end: range.end }))
    }

    /// A large raw index gets checkpoints, or is sorted if its ids do not ascend.
    fn large_index_in_place(&self, number: MinishardNumber, index: RawIndex<'_>, index_end: u64) -> Cached {
        let location = self.location(number);
        self.cache.get(location).unwrap_or_else(|| {
            let new = match Checkpoints::new(index) {
                Some(checkpoints) => CachedIndex::Checkpoints(checkpoints),
                None => CachedIndex::Decoded(DecodedIndex::new(index), index_end),
            };
            self.cache.insert(location, new)
        })
    }

    /// A minishard index that has to be read or decoded is kept decoded.
    fn cached_minishard(&self, number: MinishardNumber) -> Result<Option<Minishard<'static>>> {
        let location = self.location(number);
        if let Some(cached) = self.cache.get(location)
            && let Some(CachedIndex::Decoded(_, index_end)) = cached.index()
        {
            return Ok(Some(Minishard { raw: RawIndex::default(), index_end: *index_end, cached: Some(cached) }));
        }
        let Some(range) = self.minishard_index_range(number)? else { return Ok(None) };
        let encoded = self.read_minishard_index(range)?;
        let decoded = self.decode_minishard_index(&encoded)?;
        let view =
            RawIndex::view(decoded.as_deref().unwrap_or(&encoded)).map_err(|error| error.at_offset(range.start))?;
        if self.options.verify_on_read {
            self.verify_minishard_index(number, range, &encoded, view.len() as u64)?;
        }
        let cached = self.cache.insert(location, CachedIndex::Decoded(DecodedIndex::new(view), range.end));
        Ok(Some(Minishard { raw: RawIndex::default(), index_end: range.end, cached: Some(cached) }))
    }

    /// With `verify_on_read`: small raw indexes are checked each time, others when they are decoded.
    fn verified_minishard(&self, number: MinishardNumber) -> Result<Option<Minishard<'_>>> {
        self.verify_shard_index()?;
        let in_place = match (self.files.data().in_memory(), self.spec.minishard_index_encoding()) {
            (Some(bytes), Encoding::Raw) => Some(bytes),
            _ => None,
        };
        let Some(bytes) = in_place else { return self.cached_minishard(number) };
        let Some(range) = self.minishard_index_range(number)? else { return Ok(None) };
        if range.len() > SCAN_LIMIT as u64 * ROW_LEN {
            return self.cached_minishard(number);
        }
        let minishard = self.minishard_in_place(number, bytes)?;
        let encoded = range.of(bytes).unwrap_or_default();
        self.verify_minishard_index(number, range, encoded, range.len() / ROW_LEN)?;
        Ok(minishard)
    }

    /// Where the encoded minishard index lies; `None` if the minishard has no keys.
    #[inline]
    pub(crate) fn minishard_index_range(&self, number: MinishardNumber) -> Result<Option<ByteRange>> {
        let entry = self.files.shard_index.read(ShardIndexEntry::position(number), 1)?;
        match ShardIndexEntry::read(&entry) {
            Some(entry) => self.resolve_minishard_index(number, entry),
            None => Err(Error::corrupt("expected a shard index entry of 16 bytes, found fewer")),
        }
    }

    #[inline]
    pub(crate) fn resolve_minishard_index(
        &self,
        number: MinishardNumber,
        entry: ShardIndexEntry,
    ) -> Result<Option<ByteRange>> {
        let Some(stated) = entry.minishard_index() else { return Ok(None) };
        match stated.resolve(self.base, self.files.data().len()) {
            Some(range) => Ok(Some(range)),
            None => Err(self.bad_shard_index_entry(number, stated.start, stated.end)),
        }
    }

    #[cold]
    fn bad_shard_index_entry(&self, number: MinishardNumber, start: u64, end: u64) -> Error {
        let behind = self.files.data().len().saturating_sub(self.base);
        Error::corrupt(format!(
            "expected a minishard index within the {behind} bytes behind the shard index, found {start}..{end}"
        ))
        .at_offset(ShardIndexEntry::position(number).start)
    }

    /// The encoded minishard index; one that is not in memory must be below the cap.
    pub(crate) fn read_minishard_index(&self, range: ByteRange) -> Result<Bytes<'_>> {
        let data = self.files.data();
        let cap = self.options.max_index_bytes;
        if data.in_memory().is_none() && range.len() > cap {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("expected a minishard index of at most {cap} bytes, found {}: raise the cap", range.len()),
            ));
        }
        data.read(range, 1)
    }

    /// The decoded minishard index, where it differs from the encoded one.
    pub(crate) fn decode_minishard_index(&self, encoded: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.spec.minishard_index_encoding() {
            Encoding::Raw => Ok(None),
            Encoding::Gzip => encoding::decode(encoded, self.options.max_index_bytes).map(Some),
        }
    }

    /// Where a row's value lies in the file.
    #[inline]
    pub(crate) fn value_range(&self, row: Row) -> Result<ByteRange> {
        match row.value.resolve(self.base, self.files.data().len()) {
            Some(range) => Ok(range),
            None => Err(self.bad_value_range(row)),
        }
    }

    /// Whether the value lies in the file; an error that says where it does not.
    #[inline]
    pub(crate) fn check_range(&self, stored: &Stored) -> Result<()> {
        match self.value_range(stored.row) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.at(stored.minishard, error)),
        }
    }

    #[cold]
    fn bad_value_range(&self, row: Row) -> Error {
        let behind = self.files.data().len().saturating_sub(self.base);
        let (start, size) = (row.value.start, row.value.end.wrapping_sub(row.value.start));
        Error::corrupt(format!(
            "expected a value within the {behind} bytes behind the shard index, found {size} bytes at {start}"
        ))
        .at_key(row.id)
    }

    /// The decoded value of a row.
    pub(crate) fn value(&self, stored: &Stored) -> Result<Value<'_>> {
        let value = self.value_of_row(stored.row, stored.checks);
        value.map_err(|error| self.at(stored.minishard, error).at_key(stored.row.id))
    }

    pub(crate) fn value_of_row(&self, row: Row, checks: ChecksPlace) -> Result<Value<'_>> {
        let encoded = self.encoded_value(row, checks)?;
        match self.spec.data_encoding() {
            Encoding::Raw => Ok(Value(encoded)),
            Encoding::Gzip => self.decode_value(&encoded),
        }
    }

    fn decode_value(&self, encoded: &[u8]) -> Result<Value<'static>> {
        let decoded = encoding::decode(encoded, self.options.max_value_bytes)?;
        AlignedBytes::from_vec(decoded, self.alignment()).map(|bytes| Value(Bytes::Owned(bytes)))
    }

    /// Bytes behind the shard index, whatever they are.
    pub(crate) fn read(&self, range: ByteRange) -> Result<Bytes<'_>> {
        self.files.data().read(range, 1)
    }

    /// The bytes of a value or a prefix. How long it is, only an index says, and a file may be long and hold nothing.
    fn read_at_most_cap(&self, range: ByteRange, alignment: usize) -> Result<Bytes<'_>> {
        self.check_cap(range)?;
        self.files.data().read(range, alignment)
    }

    /// Errors: `TooLarge` if memory would be needed for more bytes than a stored value may have.
    pub(crate) fn check_cap(&self, range: ByteRange) -> Result<()> {
        let cap = match self.spec.data_encoding() {
            Encoding::Raw => self.options.max_value_bytes,
            Encoding::Gzip => encoding::max_stored_len(self.options.max_value_bytes),
        };
        if range.len() > cap && self.files.data().in_memory().is_none() {
            let message = format!("expected at most {cap} bytes to read at once, found {}: raise the cap", range.len());
            return Err(Error::new(ErrorKind::TooLarge, message).at_offset(range.start));
        }
        Ok(())
    }

    /// The stored bytes of a row's value.
    pub(crate) fn encoded_value(&self, row: Row, checks: ChecksPlace) -> Result<Bytes<'_>> {
        let encoded = self.read_at_most_cap(self.value_range(row)?, self.alignment())?;
        if self.options.verify_on_read {
            self.verify_value(row, checks, &encoded)?;
        }
        Ok(encoded)
    }

    /// The `n` bytes before a row's value.
    pub(crate) fn prefix(&self, stored: &Stored, n: u64) -> Result<Value<'_>> {
        let prefix = self.prefix_of_row(stored.row, stored.checks, n);
        prefix.map_err(|error| self.at(stored.minishard, error).at_key(stored.row.id))
    }

    fn prefix_of_row(&self, row: Row, checks: ChecksPlace, n: u64) -> Result<Value<'_>> {
        let end = self.value_range(row)?.start;
        let before = end - self.base;
        if n > before {
            let message = format!("expected a prefix of at most the {before} bytes before the value, found {n}");
            return Err(Error::invalid_input(message));
        }
        let prefix = ByteRange { start: end - n, end };
        if self.verifies_prefixes() {
            let gap = self.gap_before(row)?;
            if prefix.start < gap.start {
                let message = format!("expected a prefix of at most {} bytes, found {n}", gap.len());
                return Err(Error::invalid_input(message));
            }
            self.verify_prefix(row, checks, gap)?;
        }
        self.read_at_most_cap(prefix, 1).map(Value)
    }

    /// The prefix of a row as far as the shard can tell: all bytes between its value and what lies before it.
    pub(crate) fn whole_prefix(&self, row: Row, checks: ChecksPlace) -> Result<Bytes<'_>> {
        if self.layout.is_some_and(|layout| !layout.prefixes) {
            return Ok(Bytes::Borrowed(&[]));
        }
        let gap = self.gap_before(row)?;
        if self.verifies_prefixes() {
            self.verify_prefix(row, checks, gap)?;
        }
        self.read_at_most_cap(gap, 1)
    }

    /// Whether prefixes have checks, and reads compare them.
    fn verifies_prefixes(&self) -> bool {
        self.options.verify_on_read && self.layout.is_some_and(|layout| layout.checks && layout.prefixes)
    }

    /// The bytes between a row's value and what an index names before it.
    pub(crate) fn gap_before(&self, row: Row) -> Result<ByteRange> {
        let value = self.value_range(row)?;
        let extents = match self.extents.get() {
            Some(extents) => extents,
            None => {
                let new = Extents::of(self)?;
                self.extents.get_or_init(|| new)
            }
        };
        match extents {
            Some(extents) => Ok(ByteRange { start: extents.gap_start(value), end: value.start }),
            None => Err(Error::new(
                ErrorKind::TooLarge,
                "expected fewer keys in a shard of that length, found too many to know what is before a value",
            )),
        }
    }

    /// With `verify_on_read`, and a manifest: the shard index, once.
    pub(crate) fn verify_shard_index(&self) -> Result<()> {
        let Some(stated) = self.shard_index_crc32.filter(|_| self.options.verify_on_read) else { return Ok(()) };
        if self.shard_index_verified.get().is_some() {
            return Ok(());
        }
        let found = self.compute_shard_index_crc32()?;
        if found != stated {
            let message = format!("expected a shard index with CRC-32 {stated:08x}, found {found:08x}");
            return Err(Error::corrupt(message).at_offset(0));
        }
        self.shard_index_verified.get_or_init(|| ());
        Ok(())
    }

    /// The CRC-32 of the shard index.
    pub(crate) fn compute_shard_index_crc32(&self) -> Result<u32> {
        let (mut hasher, mut end) = (crc32fast::Hasher::new(), 0);
        let mut blocks = EntryBlocks::default();
        while let Some((first, block)) = blocks.next(self)? {
            let start = ShardIndexEntry::position(first).start;
            hasher.combine(&zeros_sum(start - end));
            hasher.update(&block);
            end = start + block.len() as u64;
        }
        hasher.combine(&zeros_sum(self.spec.shard_index_len().saturating_sub(end)));
        Ok(hasher.finalize())
    }

    /// With `verify_on_read`: what a walk checks of a minishard that it enters.
    pub(crate) fn verify_entered(&self, number: MinishardNumber, range: ByteRange, rows: u64) -> Result<()> {
        if !self.options.verify_on_read {
            return Ok(());
        }
        let encoded = self.read_minishard_index(range)?;
        self.verify_minishard_index(number, range, &encoded, rows)
    }

    pub(crate) fn verify_minishard_index(
        &self,
        number: MinishardNumber,
        range: ByteRange,
        encoded: &[u8],
        rows: u64,
    ) -> Result<()> {
        let checks = ChecksPlace { index_end: range.end, rows };
        let found = || checks::of_index(self.location(number), encoded);
        self.verify(checks.of_index(), "minishard index", found)
    }

    pub(crate) fn verify_value(&self, row: Row, checks: ChecksPlace, encoded: &[u8]) -> Result<()> {
        self.verify(checks.of_value(row.number), "value", || checks::of_value(row.id, encoded))
    }

    pub(crate) fn verify_prefix(&self, row: Row, checks: ChecksPlace, gap: ByteRange) -> Result<()> {
        let prefix = self.read_at_most_cap(gap, 1)?;
        self.verify(checks.of_prefix(row.number), "prefix", || checks::of_prefix(&prefix))
    }

    fn verify(&self, place: Option<ByteRange>, what: &str, found: impl FnOnce() -> u32) -> Result<()> {
        if !self.layout.is_some_and(|layout| layout.checks) {
            return Ok(());
        }
        let place =
            place.ok_or_else(|| Error::corrupt("expected checks behind the index, found the end of the file"))?;
        let stored = self.files.data().read(place, 1)?;
        let stated = stored.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let found = found();
        if stated != found {
            let message = format!("expected a {what} with check {stated:08x}, found {found:08x}");
            return Err(Error::corrupt(message).at_offset(place.start));
        }
        Ok(())
    }

    /// Where a row's value is stored.
    pub(crate) fn value_location(&self, number: MinishardNumber, row: Row) -> Result<ValueLocation> {
        let range = self.value_range(row).map_err(|error| self.at(number, error).at_key(row.id))?;
        Ok(ValueLocation::new(self.files.path.clone(), range))
    }

    /// The bytes of the shard index from an entry on, up to a block of them; empty at the end.
    pub(crate) fn shard_index_block(&self, first: MinishardNumber) -> Result<Bytes<'_>> {
        let start = ShardIndexEntry::position(first).start;
        let end = (start + SHARD_INDEX_BLOCK).min(self.spec.shard_index_len()).min(self.files.shard_index.len());
        if end < self.spec.shard_index_len() && end.saturating_sub(start) < 16 {
            let message = format!(
                "expected a shard index of {} bytes, found a file of {}",
                self.spec.shard_index_len(),
                self.files.shard_index.len()
            );
            return Err(self.at(first, Error::corrupt(message).at_offset(start)));
        }
        self.files.shard_index.read(ByteRange { start, end: end.max(start) }, 1).map_err(|error| self.at(first, error))
    }

    /// Whether all bytes can be had without reading.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.files.all().all(|storage| storage.in_memory().is_some())
    }

    /// A pass over the shard begins: what is mapped is read ahead from now on.
    pub(crate) fn begin_pass(&self) {
        self.files.all().for_each(Storage::begin_pass);
    }

    /// A pass over the shard is over.
    pub(crate) fn end_pass(&self) {
        self.files.all().for_each(Storage::end_pass);
    }

    /// Where in the file bytes lie that were borrowed from it.
    pub(crate) fn range_of(&self, bytes: &[u8]) -> Option<ByteRange> {
        let file = self.files.data().in_memory()?;
        let start = u64::try_from(bytes.as_ptr().addr().checked_sub(file.as_ptr().addr())?).ok()?;
        Some(ByteRange { start, end: start + bytes.len() as u64 })
    }

    /// The bytes of a range, if they can be had without reading.
    pub(crate) fn in_memory(&self, range: ByteRange) -> Option<&[u8]> {
        self.files.data().in_memory().and_then(|bytes| range.of(bytes))
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn files(&self) -> &ShardFiles {
        &self.files
    }

    /// Reads all pages of a mapped shard.
    pub(crate) fn populate(&self) {
        self.files.shard_index.populate();
        self.files.data.iter().for_each(Storage::populate);
    }

    /// Asks the system for the whole shard index.
    pub(crate) fn will_need_shard_index(&self) {
        self.files.shard_index.will_need(ByteRange { start: 0, end: self.spec.shard_index_len() });
    }

    /// Where the shard index entry of a minishard stands.
    pub(crate) fn entry_range(&self, minishard: MinishardNumber) -> ByteRange {
        ShardIndexEntry::position(minishard)
    }

    /// Asks the system for pages of the file with the shard index.
    pub(crate) fn will_need_entries(&self, range: ByteRange) {
        self.files.shard_index.will_need(range);
    }

    /// Asks the system for pages of the file with the data.
    pub(crate) fn will_need_data(&self, range: ByteRange) {
        self.files.data().will_need(range);
    }

    #[inline]
    fn location(&self, minishard: MinishardNumber) -> Location {
        Location { shard: self.number, minishard }
    }

    #[inline]
    fn alignment(&self) -> usize {
        self.layout.map_or(1, |layout| to_usize(layout.value_alignment.get()))
    }

    /// Adds this shard as the place of an error.
    #[cold]
    pub(crate) fn at(&self, minishard: MinishardNumber, error: Error) -> Error {
        let error = error.at_shard(self.number).at_minishard(minishard);
        if self.files.path.as_os_str().is_empty() { error } else { error.at_path(&self.files.path) }
    }
}

impl Minishard<'_> {
    #[inline]
    fn index(&self) -> SearchableIndex<'_> {
        match self.cached.as_ref().and_then(Cached::index) {
            Some(CachedIndex::Checkpoints(checkpoints)) => SearchableIndex::Checkpointed(self.raw, checkpoints),
            Some(CachedIndex::Decoded(decoded, _)) => SearchableIndex::Decoded(decoded),
            None => SearchableIndex::Scanned(self.raw),
        }
    }
}

/// Ranges of what is in memory fit.
#[inline]
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A value: borrowed from the map or the memory it lies in, else read or decoded for the occasion.
///
/// Dereferences to its bytes. With a value alignment, they begin at a multiple of it in either case.
pub struct Value<'a>(Bytes<'a>);

impl<'a> Value<'a> {
    /// Whether the bytes are borrowed: nothing was copied.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.0, Bytes::Borrowed(_))
    }

    /// The bytes for as long as the snapshot lives, if they are borrowed from it.
    pub fn borrowed(&self) -> Option<&'a [u8]> {
        match self.0 {
            Bytes::Borrowed(bytes) => Some(bytes),
            Bytes::Owned(_) => None,
        }
    }

    #[inline]
    pub(crate) fn borrowed_from(bytes: &'a [u8]) -> Value<'a> {
        Value(Bytes::Borrowed(bytes))
    }

    pub(crate) fn from_bytes(bytes: Bytes<'a>) -> Value<'a> {
        Value(bytes)
    }

    pub(crate) fn into_bytes(self) -> Bytes<'a> {
        self.0
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&&self[..]).finish()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value<'_> {
    fn eq(&self, other: &T) -> bool {
        self[..] == *other.as_ref()
    }
}

/// Where a value is stored: which file, which bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueLocation {
    path: PathBuf,
    range: ByteRange,
}

#[expect(clippy::len_without_is_empty, reason = "a stored length, not a collection")]
impl ValueLocation {
    pub(crate) fn new(path: PathBuf, range: ByteRange) -> ValueLocation {
        ValueLocation { path, range }
    }

    /// The file; empty for a shard from bytes in hand.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The absolute offset of the value's first byte in the file.
    pub fn offset(&self) -> u64 {
        self.range.start
    }

    /// The stored length in bytes: of the encoded value.
    pub fn len(&self) -> u64 {
        self.range.len()
    }
}
