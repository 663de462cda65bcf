//! One open directory of shards: its metadata, its shard files, and the shards that are opened so far.
//!
//! How a generation becomes the current one is in `store`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use crate::bytes::{StorageKind, explain_missing, read_whole, regular_len};
use crate::error::{Error, Result};
use crate::format::description::Texts;
use crate::format::info::{self, Info};
use crate::format::key_file::Tag;
use crate::format::layout::Layout;
use crate::format::manifest::{self, Manifest, ShardRecord};
use crate::format::spec::ShardingSpec;
use crate::fs::entry;
use crate::ids::{MinishardNumber, ShardNumber};
use crate::read::options::{GenerationOptions, OpenOptions};
use crate::read::shard::{
    FoundKey, KnownShard, MinishardCache, ReadOptions, Shard, ShardFiles, ShardReader, TableFile, TableSection, Value,
    ValueLocation, VerifyReads, WholeShardVerified,
};
use crate::read::sorted_keys::key_file::KeyFile;
use crate::store::{GenerationId, Lease};

/// The lease that protects a generation from removal, with the id of the generation and how it was opened.
pub(crate) struct Leased {
    /// The id of the generation; `None` outside of a store.
    pub(crate) id: Option<GenerationId>,
    /// Whether it was opened through `current`, and not by its own directory.
    pub(crate) follows: bool,
    pub(crate) lease: Lease,
}

/// One open directory of shards.
pub(crate) struct Generation {
    directory: PathBuf,
    shards_directory: PathBuf,
    /// The JSON pointer of the object in `info` that has "sharding"; empty for the top level.
    pointer: String,
    spec: ShardingSpec,
    layout: Option<Layout>,
    manifest: Option<Manifest>,
    /// In ascending order of shard numbers.
    slots: Box<[ShardSlot]>,
    table: Option<Arc<TableFile>>,
    key_file: Option<Arc<KeyFile>>,
    options: GenerationOptions,
    cache: Arc<MinishardCache>,
    leased: Option<Leased>,
}

/// A shard of the generation, opened at first use. The generation has the shards that the manifest lists or, without a
/// manifest, those that had a file when the generation was opened.
struct ShardSlot {
    number: ShardNumber,
    obsolete_pair: bool,
    whole_verified: Arc<WholeShardVerified>,
    /// Set when the file was compared with the manifest.
    compared: AtomicBool,
    shard: OnceLock<Shard>,
}

impl Generation {
    /// Opens a directory. Shards are opened at first use, unless they are loaded or `read_ahead_index` is set.
    ///
    /// Open shards of `previous` whose files this generation has too are not opened again; see
    /// [`take_shards`](Generation::take_shards).
    ///
    /// Cost: reads `info` and the manifest, or lists the directory if there is no manifest; with `check_shards` one
    /// system call per shard.
    pub(crate) fn open(
        directory: &Path,
        options: GenerationOptions,
        cache: Arc<MinishardCache>,
        leased: Option<Leased>,
        previous: Option<&Generation>,
    ) -> Result<Generation> {
        let (info, manifest) = match options.spec {
            Some(spec) => (with_spec(directory, spec), None),
            None => {
                let in_store = leased.as_ref().is_some_and(|leased| leased.follows);
                read_info(directory, options.pointer.as_deref(), in_store)?
            }
        };
        let shards_directory = directory.join(&info.shards);
        let slots = match &manifest {
            Some(manifest) => slots_of(manifest),
            None => list_shards(&shards_directory, &info.spec)?,
        };
        let table = manifest.as_ref().and_then(|manifest| {
            let stated = manifest.auxiliary(manifest::MINISHARDS)?;
            TableFile::open(directory, stated, manifest.shards.len(), options.storage)
        });
        let key_file = manifest.as_ref().and_then(|manifest| open_key_file(directory, manifest, options.storage));
        let key_file = key_file.and_then(Result::ok); // without it, ordered reads use the indexes
        let mut generation = Generation {
            directory: directory.to_path_buf(),
            table: table.map(Arc::new),
            key_file: key_file.map(Arc::new),
            shards_directory,
            pointer: info.pointer,
            spec: info.spec,
            // the manifest has a checksum, so its layout takes precedence
            layout: manifest.as_ref().map(|manifest| manifest.layout).or(info.layout),
            manifest,
            slots,
            options,
            cache,
            leased,
        };
        if generation.options.check_shards {
            generation.check_shards()?;
        }
        if let Some(previous) = previous {
            generation.take_shards(previous);
        }
        if matches!(generation.options.storage, StorageKind::Heap) || generation.options.read_ahead_index {
            // a shard that cannot be opened now returns its error when it is used
            generation.slots.iter().for_each(|slot| drop(generation.open_at_first_use(slot)));
        }
        Ok(generation)
    }

    /// Takes the open shards of `previous` whose files this generation has too, by hard links, with the same records in
    /// the manifest: their maps or bytes, their minishard maps, and what is verified of them.
    ///
    /// Both generations then have one open shard. It keeps its path and its minishard table until
    /// [`settle_shards`](Generation::settle_shards). Shards with positioned reads are not taken: they have no state that
    /// is worth it. Nor are loaded shards whose CRC-32 did not match.
    ///
    /// Cost: one system call per open shard of `previous` that has the same record.
    fn take_shards(&mut self, previous: &Generation) {
        let Some(manifest) = self.manifest.as_ref().filter(|_| previous.spec == self.spec) else { return };
        if previous.layout != self.layout {
            return;
        }
        for slot in &mut self.slots {
            let Some(old) = previous.slot(slot.number) else { continue };
            let record = previous.manifest.as_ref().and_then(|manifest| manifest.shard(slot.number));
            let path = self.shards_directory.join(self.spec.shard_file_name(slot.number));
            if let Some(shard) = old.shard.get()
                && record.is_some()
                && record == manifest.shard(slot.number)
                && shard.reader().can_move_to(&path)
            {
                slot.shard = OnceLock::from(shard.clone());
                slot.whole_verified = old.whole_verified.clone();
            }
        }
    }

    /// Makes the shards that were taken from another generation use the paths and the minishard table of this one. From
    /// then on, errors in snapshots of the other generation also name the files of this one.
    pub(crate) fn settle_shards(&self) {
        for slot in &self.slots {
            let path = self.shards_directory.join(self.spec.shard_file_name(slot.number));
            if let Some(shard) = slot.shard.get()
                && !slot.obsolete_pair
                && *shard.reader().files().path() != path
            {
                let crc32 = shard.reader().shard_index_crc32();
                shard.reader().move_to(path, crc32.and_then(|crc32| self.table_section(slot.number, crc32)));
            }
        }
    }

    /// Returns the section of the minishard table for a shard; `None` if there is no table, or it has no such section.
    fn table_section(&self, shard: ShardNumber, shard_index_crc32: u32) -> Option<TableSection> {
        TableFile::section(self.table.as_ref()?, &self.spec, shard, shard_index_crc32)
    }

    /// Creates a generation of one shard in memory, without a directory.
    pub(crate) fn of_shard(spec: ShardingSpec, layout: Layout, bytes: Vec<u8>) -> Generation {
        let options = OpenOptions::new().generation(StorageKind::Heap);
        let cache = Arc::new(MinishardCache::new(0));
        let number = ShardNumber(0);
        let (files, known) = (ShardFiles::from_bytes(bytes), KnownShard::default());
        let reader = ShardReader::new(number, spec, Some(layout), files, options.read, cache.clone(), known);
        let slot = ShardSlot { shard: OnceLock::from(Shard::new(reader)), ..ShardSlot::new(number) };
        Generation {
            directory: PathBuf::new(),
            shards_directory: PathBuf::new(),
            pointer: String::new(),
            spec,
            layout: Some(layout),
            manifest: None,
            slots: Box::new([slot]),
            table: None,
            key_file: None,
            options,
            cache,
            leased: None,
        }
    }

    /// Checks that each shard of the manifest has a file of the stated length.
    ///
    /// Cost: one system call per shard.
    fn check_shards(&self) -> Result<()> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        for record in &manifest.shards {
            let path = self.shards_directory.join(self.spec.shard_file_name(record.number));
            let checked = regular_len(&path).and_then(|len| check_file_len(record, len, &path));
            checked.map_err(|error| explain_missing(error, &self.directory).at_shard(record.number))?;
        }
        Ok(())
    }

    /// Opens a damaged directory: all shards that have a file, with the specification of the manifest or else of
    /// `info`, whichever is intact. Also returns the manifest if it is intact; nothing was verified against it.
    ///
    /// Errors: those of `info` (`InvalidSpec`, for example) if neither is intact.
    pub(crate) fn open_damaged(
        directory: &Path,
        options: GenerationOptions,
        cache: Arc<MinishardCache>,
        leased: Option<Leased>,
    ) -> Result<(Generation, Option<Manifest>)> {
        let manifest = read_manifest(directory).ok().filter(|manifest| match options.pointer.as_deref() {
            Some(pointer) => pointer == manifest.pointer(),
            None => true,
        });
        let here = |spec, layout, manifest: Option<&Manifest>| Info {
            spec,
            layout,
            pointer: manifest.map(Manifest::pointer).unwrap_or_default().to_string(),
            shards: manifest.map(Manifest::shards_directory).unwrap_or_default(),
        };
        let info = match (options.spec, &manifest) {
            (Some(spec), Some(manifest)) if spec == manifest.sharding => {
                here(spec, Some(manifest.layout), Some(manifest))
            }
            (Some(spec), manifest) => here(spec, None, manifest.as_ref()),
            (None, Some(manifest)) => here(manifest.sharding, Some(manifest.layout), Some(manifest)),
            (None, None) => {
                let path = directory.join(info::FILE_NAME);
                let info =
                    read_whole(&path, info::MAX_BYTES).and_then(|text| Info::parse(&text, options.pointer.as_deref()));
                info.map_err(|error| error.at_path(&path))?
            }
        };
        let shards_directory = directory.join(&info.shards);
        let generation = Generation {
            directory: directory.to_path_buf(),
            slots: list_shards(&shards_directory, &info.spec)?,
            table: None,
            key_file: None,
            shards_directory,
            pointer: info.pointer,
            spec: info.spec,
            layout: info.layout,
            manifest: None,
            options,
            cache,
            leased,
        };
        Ok((generation, manifest))
    }

    #[inline]
    pub(crate) fn spec(&self) -> &ShardingSpec {
        &self.spec
    }

    pub(crate) fn layout(&self) -> Option<Layout> {
        self.layout
    }

    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// Returns the key file, if the generation has one that could be opened.
    pub(crate) fn key_file(&self) -> Option<&Arc<KeyFile>> {
        self.key_file.as_ref()
    }

    /// Opens the key file as it is on disk now; `None` if the manifest states none.
    pub(crate) fn open_key_file_apart(&self) -> Option<Result<KeyFile>> {
        open_key_file(&self.directory, self.manifest.as_ref()?, StorageKind::Positioned)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn shards_directory(&self) -> &Path {
        &self.shards_directory
    }

    pub(crate) fn pointer(&self) -> &str {
        &self.pointer
    }

    pub(crate) fn id(&self) -> Option<GenerationId> {
        self.leased.as_ref().and_then(|leased| leased.id)
    }

    /// Whether it was opened through `current`, so that a refresh may find another generation.
    pub(crate) fn follows(&self) -> bool {
        self.leased.as_ref().is_some_and(|leased| leased.follows)
    }

    /// Whether this is still generation `id` of the store at this path, leased by this process. Also true if the
    /// directory of the generation was removed and none took its place.
    pub(crate) fn is_still(&self, id: GenerationId, store: &Path) -> bool {
        let directory = store.join(id.to_string());
        // false if that cannot be determined: the caller opens the generation anew, which returns the error
        let is_of = |lease: &Lease| {
            lease.is_own() && lease.is_of(&directory).unwrap_or(false) || matches!(entry::exists(&directory), Ok(false))
        };
        self.id() == Some(id) && self.lease().is_some_and(is_of)
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.leased.as_ref().map(|leased| &leased.lease)
    }

    pub(crate) fn cache(&self) -> &Arc<MinishardCache> {
        &self.cache
    }

    pub(crate) fn options(&self) -> &GenerationOptions {
        &self.options
    }

    /// Returns the shard and the minishard that a key hashes to; `None` if the generation does not have that shard.
    /// Opens the shard at its first use.
    ///
    /// Errors: those of opening the shard, with the key.
    #[inline]
    pub(crate) fn shard_of_key(&self, key: u64) -> Result<Option<(&Shard, MinishardNumber)>> {
        let location = self.spec.route(key);
        match self.shard(location.shard) {
            Ok(Some(shard)) => Ok(Some((shard, location.minishard))),
            Ok(None) => Ok(None),
            Err(error) => Err(error.at_key(key)),
        }
    }

    /// Returns the value of a key. This is the hot path.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Result<Option<Value<'_>>> {
        let Some((shard, minishard)) = self.shard_of_key(key)? else { return Ok(None) };
        shard.reader().get(minishard, key)
    }

    /// Returns whether a key exists.
    #[inline]
    pub(crate) fn contains(&self, key: u64) -> Result<bool> {
        let Some((shard, minishard)) = self.shard_of_key(key)? else { return Ok(false) };
        shard.reader().contains(minishard, key)
    }

    /// Finds the row of a key.
    pub(crate) fn find(&self, key: u64) -> Result<Option<Found<'_>>> {
        let Some((shard, minishard)) = self.shard_of_key(key)? else { return Ok(None) };
        let found = shard.reader().find(minishard, key)?;
        Ok(found.map(|key| Found { shard, key }))
    }

    /// Returns the numbers of all shards of the generation, in ascending order: those that the manifest lists or,
    /// without a manifest, those that had a file when the generation was opened.
    pub(crate) fn shard_numbers(&self) -> impl ExactSizeIterator<Item = ShardNumber> + '_ {
        self.slots.iter().map(|slot| slot.number)
    }

    /// Whether the generation has the shard of this number.
    pub(crate) fn has_shard(&self, number: ShardNumber) -> bool {
        self.slot(number).is_some()
    }

    /// Returns the path of the file from which a shard is read; `None` for a shard that is loaded or made in memory, and
    /// for an obsolete pair of files.
    pub(crate) fn shard_path(&self, number: ShardNumber) -> Option<PathBuf> {
        let slot = self.slot(number).filter(|slot| !slot.obsolete_pair)?;
        match self.options.storage {
            StorageKind::Heap => None,
            StorageKind::Mapped { .. } | StorageKind::Positioned => {
                Some(self.shards_directory.join(self.spec.shard_file_name(slot.number)))
            }
        }
    }

    /// Returns the length of a shard's file with the data: that of the manifest or, without one, of the file now. 0 if
    /// it is not known.
    pub(crate) fn shard_len(&self, number: ShardNumber) -> u64 {
        if let Some(record) = self.manifest.as_ref().and_then(|manifest| manifest.shard(number)) {
            return record.bytes;
        }
        let Some(slot) = self.slot(number) else { return 0 };
        if let Some(shard) = slot.shard.get() {
            return shard.file_bytes();
        }
        let extension = if slot.obsolete_pair { "data" } else { "shard" };
        let path = self.shards_directory.join(format!("{}.{extension}", self.spec.shard_file_stem(number)));
        regular_len(&path).unwrap_or(0)
    }

    /// Returns the number of verified minishards in the open shards, which are not verified again.
    pub(crate) fn verified_minishards(&self) -> u64 {
        let open = self.slots.iter().filter_map(|slot| slot.shard.get());
        open.map(|shard| shard.reader().verified_minishards()).sum()
    }

    /// Returns the shard of this number, opening it at first use; `None` if the generation does not have it.
    #[inline]
    pub(crate) fn shard(&self, number: ShardNumber) -> Result<Option<&Shard>> {
        match self.slot(number) {
            Some(slot) => match slot.shard.get() {
                Some(shard) => Ok(Some(shard)),
                None => self.open_at_first_use(slot).map(Some),
            },
            None => Ok(None),
        }
    }

    /// Returns the slot of a shard. Tries the shard number as the position first, which is right if the generation has
    /// every shard; otherwise searches by binary search.
    #[inline]
    fn slot(&self, number: ShardNumber) -> Option<&ShardSlot> {
        let guess = usize::try_from(number.0).ok().and_then(|at| self.slots.get(at));
        match guess {
            Some(slot) if slot.number == number => guess,
            _ => self.search_slot(number),
        }
    }

    fn search_slot(&self, number: ShardNumber) -> Option<&ShardSlot> {
        self.slots.binary_search_by_key(&number, |slot| slot.number).ok().and_then(|at| self.slots.get(at))
    }

    /// Opens a shard for lookups. If threads do so concurrently, all get the one that was opened first.
    #[cold]
    fn open_at_first_use<'a>(&'a self, slot: &'a ShardSlot) -> Result<&'a Shard> {
        let shard = self.open_slot(slot, self.options.storage)?;
        Ok(slot.shard.get_or_init(|| shard))
    }

    /// Returns a shard for one pass: the one that lookups use if it is open, and mapped or loaded; else a separate one.
    pub(crate) fn shard_for_pass(&self, number: ShardNumber) -> Result<Option<Shard>> {
        let shard = match self.slot(number).and_then(|slot| slot.shard.get()) {
            Some(shard) if shard.reader().is_mapped_or_loaded() => Some(shard.clone()),
            _ => self.open_shard_apart(number)?,
        };
        shard.iter().try_for_each(|shard| self.check_before_pass(shard))?;
        Ok(shard)
    }

    /// Compares the file of a shard with the manifest before the first pass over it, if that is an option.
    pub(crate) fn check_before_pass(&self, shard: &Shard) -> Result<()> {
        if self.options.verify_files { self.check_file(shard) } else { Ok(()) }
    }

    /// Compares the file of a shard with the manifest, if there is one, at the first call.
    fn check_file(&self, shard: &Shard) -> Result<()> {
        let number = shard.reader().number;
        let Some(record) = self.manifest.as_ref().and_then(|manifest| manifest.shard(number)) else { return Ok(()) };
        let compared = self.slot(number).map(|slot| &slot.compared);
        if compared.is_some_and(|compared| compared.load(Ordering::Relaxed)) {
            return Ok(());
        }
        shard.reader().check_file(record.checksum(&self.spec))?;
        if let Some(compared) = compared {
            compared.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Opens a shard separately from the one that lookups use. A loaded generation has only one copy, which is
    /// returned.
    pub(crate) fn open_shard_apart(&self, number: ShardNumber) -> Result<Option<Shard>> {
        match (self.slot(number), self.options.storage) {
            (None, _) => Ok(None),
            // there is one copy in memory, and it is kept
            (_, StorageKind::Heap) => self.shard(number).map(|shard| shard.cloned()),
            (Some(slot), storage) => self.open_slot(slot, storage).map(Some),
        }
    }

    /// Opens a shard separately, to copy its pairs: with positioned reads that are verified, unless it is in memory.
    ///
    /// Errors: also `Corrupt` if the file belongs to another generation. Cost: reads the file at the first call, since a
    /// reshard opens a shard many times.
    pub(crate) fn open_shard_to_copy(&self, number: ShardNumber) -> Result<Option<Shard>> {
        let shard = match (self.slot(number), self.options.storage) {
            (Some(slot), StorageKind::Mapped { .. } | StorageKind::Positioned) => {
                let read = ReadOptions { verify_reads: VerifyReads::Once, ..self.options.read };
                self.open_slot_with(slot, StorageKind::Positioned, read).map(Some)
            }
            _ => self.open_shard_apart(number),
        }?;
        shard.iter().try_for_each(|shard| self.check_file(shard))?;
        Ok(shard)
    }

    fn open_slot(&self, slot: &ShardSlot, storage: StorageKind) -> Result<Shard> {
        self.open_slot_with(slot, storage, self.options.read)
    }

    fn open_slot_with(&self, slot: &ShardSlot, storage: StorageKind, read: ReadOptions) -> Result<Shard> {
        let record = self.manifest.as_ref().and_then(|manifest| manifest.shard(slot.number));
        let stem = self.spec.shard_file_stem(slot.number);
        let path = |extension: &str| self.shards_directory.join(format!("{stem}.{extension}"));
        let (files, has_stated_bytes) = match (slot.obsolete_pair, storage, record) {
            (true, ..) => ShardFiles::open_pair(&path("index"), &path("data"), storage).map(|files| (files, true)),
            (false, StorageKind::Heap, Some(record)) => self.load(slot, record, &path("shard")),
            (false, ..) => ShardFiles::open(&path("shard"), storage).map(|files| (files, true)),
        }
        .map_err(|error| explain_missing(error, &self.directory).at_shard(slot.number))?;

        if let Some(record) = record {
            check_file_len(record, files.len(), &path("shard")).map_err(|error| error.at_shard(slot.number))?;
        }
        let shard_index_crc32 = record.map(|record: &ShardRecord| record.shard_index_crc32);
        let table = shard_index_crc32.and_then(|crc32| self.table_section(slot.number, crc32));
        let known = KnownShard {
            shard_index_crc32,
            preambles_follow_padding: record.is_some_and(|record| record.digest.is_some()),
            table: ArcSwapOption::from_pointee(table),
            whole_verified: slot.whole_verified.clone(),
        };
        let cache = self.cache.clone();
        let reader = ShardReader::new(slot.number, self.spec, self.layout, files, read, cache, known);
        if !has_stated_bytes {
            reader.check_is_damaged()?;
        }
        let shard = Shard::new(reader);
        if self.options.read_ahead_index {
            shard.reader().will_need_shard_index();
        }
        if self.options.populate {
            shard.reader().populate(&|| true);
        }
        Ok(shard)
    }

    /// Reads a shard into memory and compares it with its record in the manifest. Also returns whether its bytes may be
    /// the stated ones: false for a shard with checks that has other bytes, unless verification is off. If it is damaged,
    /// lookups verify each minishard and report the damaged ones.
    ///
    /// Errors: `Corrupt` for other bytes in a shard without checks, unless verification is off; `Io`, `TooLarge`.
    fn load(&self, slot: &ShardSlot, record: &ShardRecord, path: &Path) -> Result<(ShardFiles, bool)> {
        let stated = record.checksum(&self.spec);
        let mut hasher = stated.hasher();
        let files = ShardFiles::load(path, &mut |chunk| hasher.update(chunk))?;
        match stated.check(hasher.finish()) {
            Ok(()) => slot.whole_verified.set_verified(),
            Err(_) if self.options.read.verify_reads == VerifyReads::Never => {}
            Err(_) if self.layout.is_some_and(|layout| layout.checks) => return Ok((files, false)),
            Err(error) => return Err(error.at_path(path)),
        }
        Ok((files, true))
    }

    /// Opens every shard, so that a missing file or a wrong length is reported now.
    pub(crate) fn open_all_shards(&self) -> Result<()> {
        self.slots.iter().try_for_each(|slot| match slot.shard.get() {
            Some(_) => Ok(()),
            None => self.open_at_first_use(slot).map(|_| ()),
        })
    }

    /// Takes the generation apart: its open shards, and the rest, which ends its lease when it is dropped.
    pub(crate) fn into_shards(mut self) -> (Vec<Shard>, Generation) {
        let slots = std::mem::take(&mut self.slots);
        (slots.into_iter().filter_map(|slot| slot.shard.into_inner()).collect(), self)
    }
}

/// A key that was found: its shard, and its row in the shard.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) key: FoundKey,
}

impl<'a> Found<'a> {
    #[inline]
    pub(crate) fn reader(&self) -> &'a ShardReader {
        self.shard.reader()
    }

    pub(crate) fn value_location(&self) -> Result<ValueLocation> {
        self.reader().value_location(self.key.minishard, self.key.row)
    }
}

impl ShardSlot {
    fn new(number: ShardNumber) -> ShardSlot {
        ShardSlot {
            number,
            obsolete_pair: false,
            whole_verified: Arc::default(),
            compared: AtomicBool::new(false),
            shard: OnceLock::new(),
        }
    }
}

/// Reads `info` and, for a native generation, its manifest, which states where the shards are described. Checks that the
/// two agree.
fn read_info(directory: &Path, pointer: Option<&str>, in_store: bool) -> Result<(Info, Option<Manifest>)> {
    let texts = Texts {
        info_path: &directory.join(info::FILE_NAME),
        manifest_path: &directory.join(manifest::FILE_NAME),
        info: &read_whole(&directory.join(info::FILE_NAME), info::MAX_BYTES)?,
    };
    texts.describe(read_manifest(directory), pointer, |info| !in_store && is_without_manifest(directory, info))
}

/// Returns whether a directory whose manifest cannot be read is foreign, or a native one that lost its manifest.
fn is_without_manifest(directory: &Path, info: &Info) -> bool {
    info.layout.is_none() || matches!(entry::exists(&directory.join(manifest::FILE_NAME)), Ok(false))
}

fn read_manifest(directory: &Path) -> Result<Manifest> {
    read_whole(&directory.join(manifest::FILE_NAME), manifest::MAX_BYTES).and_then(|text| Manifest::parse(&text))
}

/// Returns the description of the shards in a directory by a specification of the caller. They are in the directory
/// itself, or in that of its manifest.
fn with_spec(directory: &Path, spec: ShardingSpec) -> Info {
    let manifest = read_manifest(directory).ok();
    let shards = manifest.map(|manifest| manifest.shards_directory()).unwrap_or_default();
    Info { spec, layout: None, pointer: String::new(), shards }
}

/// Opens the key file that a manifest states; `None` if it states none.
fn open_key_file(directory: &Path, manifest: &Manifest, storage: StorageKind) -> Option<Result<KeyFile>> {
    let stated = manifest.auxiliary(manifest::KEYS)?;
    let shards = manifest.shards.iter().map(|shard| (shard.number, shard.keys, shard.crc32));
    Some(KeyFile::open(directory, stated, (manifest.keys, Tag::of_shards(shards)), storage))
}

fn check_file_len(record: &ShardRecord, found: u64, path: &Path) -> Result<()> {
    if record.bytes == found {
        return Ok(());
    }
    let message = format!("expected a file of {} bytes as the manifest says, found {found}", record.bytes);
    Err(Error::corrupt(message).at_path(path))
}

/// Returns the slots of the shards that a manifest lists.
fn slots_of(manifest: &Manifest) -> Box<[ShardSlot]> {
    manifest.shards.iter().map(|record| ShardSlot::new(record.number)).collect()
}

/// Lists the shards that have files with names of the format. Ignores other files.
fn list_shards(directory: &Path, spec: &ShardingSpec) -> Result<Box<[ShardSlot]>> {
    let listing = fs::read_dir(directory).map_err(|error| Error::io("list", directory, error))?;
    let mut slots = Vec::new();
    for entry in listing {
        let name = entry.map_err(|error: io::Error| Error::io("list", directory, error))?.file_name();
        let Some((stem, extension)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
        let obsolete_pair = match extension {
            "shard" => false,
            "index" => true,
            _ => continue,
        };
        if let Some(number) = spec.shard_of_file_stem(stem) {
            slots.push(ShardSlot { obsolete_pair, ..ShardSlot::new(number) });
        }
    }
    // a .shard file takes precedence over an obsolete pair of the same number
    slots.sort_unstable_by_key(|slot| (slot.number, slot.obsolete_pair));
    slots.dedup_by_key(|slot| slot.number);
    Ok(slots.into())
}
