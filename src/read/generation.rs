//! One open directory of shards: its metadata, its shard files, and the shards that are opened so far.
//!
//! How a generation becomes the current one is in `store`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::format::info::{self, Info};
use crate::format::layout::Layout;
use crate::format::manifest::{self, Manifest, ShardRecord};
use crate::format::spec::ShardingSpec;
use crate::ids::{MinishardNumber, ShardNumber};
use crate::read::options::{GenerationOptions, OpenOptions};
use crate::read::shard::{
    FoundKey, KnownShard, MinishardCache, Shard, ShardFiles, ShardReader, TableFile, Value, ValueLocation, VerifyReads,
    WholeShardVerified,
};
use crate::storage::{StorageKind, explain_missing, read_whole, regular_len};
use crate::store::{GenerationId, Lease};

/// The lease that protects a generation from removal, with what the generation is in its store.
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
    spec: ShardingSpec,
    layout: Option<Layout>,
    manifest: Option<Manifest>,
    /// In ascending order of shard numbers.
    slots: Box<[ShardSlot]>,
    table: Option<Arc<TableFile>>,
    options: GenerationOptions,
    cache: Arc<MinishardCache>,
    leased: Option<Leased>,
}

/// A shard that has a file. It is opened at first use.
struct ShardSlot {
    number: ShardNumber,
    obsolete_pair: bool,
    whole: Arc<WholeShardVerified>,
    shard: OnceLock<Shard>,
}

impl Generation {
    /// Opens a directory. Shards are opened at first use, unless they are loaded or `read_ahead_index` is set.
    ///
    /// Cost: reads `info` and the manifest, or lists the directory if there is no manifest; with `check_shards` one
    /// system call per shard.
    pub(crate) fn open(
        directory: &Path,
        options: GenerationOptions,
        cache: Arc<MinishardCache>,
        leased: Option<Leased>,
    ) -> Result<Generation> {
        let (info, manifest) = match options.spec {
            Some(spec) => (Info { spec, layout: None, shards: PathBuf::new() }, None),
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
        let generation = Generation {
            directory: directory.to_path_buf(),
            table: table.map(Arc::new),
            shards_directory,
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
        if matches!(generation.options.storage, StorageKind::Heap) || generation.options.read_ahead_index {
            // a shard that cannot be opened now returns its error when it is used
            generation.slots.iter().for_each(|slot| drop(generation.touch(slot)));
        }
        Ok(generation)
    }

    /// Creates a generation of one shard in memory, without a directory.
    pub(crate) fn of_shard(spec: ShardingSpec, layout: Layout, bytes: Vec<u8>) -> Generation {
        let options = OpenOptions::new().generation(StorageKind::Heap);
        let cache = Arc::new(MinishardCache::with_capacity(0));
        let number = ShardNumber(0);
        let (files, stated) = (ShardFiles::from_bytes(bytes), KnownShard::default());
        let reader = ShardReader::new(number, spec, Some(layout), files, options.read, cache.clone(), stated);
        let slot = ShardSlot { shard: OnceLock::from(Shard::new(reader)), ..ShardSlot::new(number) };
        Generation {
            directory: PathBuf::new(),
            shards_directory: PathBuf::new(),
            spec,
            layout: Some(layout),
            manifest: None,
            slots: Box::new([slot]),
            table: None,
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
        let top = options.pointer.as_deref().is_none_or(str::is_empty);
        let manifest = read_whole(&directory.join(manifest::FILE_NAME), manifest::MAX_BYTES)
            .and_then(|text| Manifest::parse(&text));
        let manifest = manifest.ok().filter(|_| top);
        let here = |spec, layout| Info { spec, layout, shards: PathBuf::new() };
        let info = match (options.spec, &manifest) {
            (Some(spec), Some(manifest)) if spec == manifest.sharding => here(spec, Some(manifest.layout)),
            (Some(spec), _) => here(spec, None),
            (None, Some(manifest)) => here(manifest.sharding, Some(manifest.layout)),
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
            shards_directory,
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

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn shards_directory(&self) -> &Path {
        &self.shards_directory
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
        let is_of = |lease: &Lease| lease.is_own() && lease.is_of(&directory) || !directory.exists();
        self.id() == Some(id) && self.lease().is_some_and(is_of)
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.leased.as_ref().map(|leased| &leased.lease)
    }

    pub(crate) fn cache(&self) -> &MinishardCache {
        &self.cache
    }

    pub(crate) fn options(&self) -> &GenerationOptions {
        &self.options
    }

    /// Returns the shard and the minishard that a key hashes to; `None` if that shard has no file.
    #[inline]
    pub(crate) fn route(&self, key: u64) -> Result<Option<(&Shard, MinishardNumber)>> {
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
        let Some((shard, minishard)) = self.route(key)? else { return Ok(None) };
        shard.reader().get(minishard, key)
    }

    /// Returns whether a key exists.
    #[inline]
    pub(crate) fn contains(&self, key: u64) -> Result<bool> {
        let Some((shard, minishard)) = self.route(key)? else { return Ok(false) };
        shard.reader().contains(minishard, key)
    }

    /// Finds the row of a key.
    pub(crate) fn find(&self, key: u64) -> Result<Option<Found<'_>>> {
        let Some((shard, minishard)) = self.route(key)? else { return Ok(None) };
        let stored = shard.reader().find(minishard, key)?;
        Ok(stored.map(|stored| Found { shard, stored }))
    }

    /// Returns the numbers of all shards that have a file, in ascending order.
    pub(crate) fn shard_numbers(&self) -> impl ExactSizeIterator<Item = ShardNumber> + '_ {
        self.slots.iter().map(|slot| slot.number)
    }

    /// Returns the number of verified minishards in the open shards, which are not verified again.
    pub(crate) fn verified_minishards(&self) -> u64 {
        let open = self.slots.iter().filter_map(|slot| slot.shard.get());
        open.map(|shard| shard.reader().verified_minishards()).sum()
    }

    /// Returns the shard of this number, opening it at first use; `None` if it has no file.
    #[inline]
    pub(crate) fn shard(&self, number: ShardNumber) -> Result<Option<&Shard>> {
        match self.slot(number) {
            Some(slot) => match slot.shard.get() {
                Some(shard) => Ok(Some(shard)),
                None => self.touch(slot).map(Some),
            },
            None => Ok(None),
        }
    }

    /// Returns the slot of a shard. If all shards have a file, the number is the position; otherwise a binary search.
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

    #[cold]
    fn touch<'a>(&'a self, slot: &'a ShardSlot) -> Result<&'a Shard> {
        let shard = self.open_slot(slot, self.options.storage)?;
        Ok(slot.shard.get_or_init(|| shard))
    }

    /// Returns a shard for one pass: the one that lookups use if it is open and in memory, else a separate one.
    pub(crate) fn shard_for_pass(&self, number: ShardNumber) -> Result<Option<Shard>> {
        match self.slot(number).and_then(|slot| slot.shard.get()) {
            Some(shard) if shard.reader().is_in_memory() => Ok(Some(shard.clone())),
            _ => self.open_shard_apart(number),
        }
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

    fn open_slot(&self, slot: &ShardSlot, storage: StorageKind) -> Result<Shard> {
        let record = self.manifest.as_ref().and_then(|manifest| manifest.shard(slot.number));
        let stem = self.spec.shard_file_stem(slot.number);
        let path = |extension: &str| self.shards_directory.join(format!("{stem}.{extension}"));
        let files = match (slot.obsolete_pair, storage, record) {
            (true, ..) => ShardFiles::open_pair(&path("index"), &path("data"), storage),
            (false, StorageKind::Heap, Some(record)) => self.load(slot, record, &path("shard")),
            (false, ..) => ShardFiles::open(&path("shard"), storage),
        }
        .map_err(|error| explain_missing(error, &self.directory).at_shard(slot.number))?;

        if let Some(record) = record {
            check_file_len(record, files.len(), &path("shard")).map_err(|error| error.at_shard(slot.number))?;
        }
        let shard_index_crc32 = record.map(|record: &ShardRecord| record.shard_index_crc32);
        let stated = KnownShard {
            shard_index_crc32,
            table: self
                .table
                .as_ref()
                .and_then(|table| TableFile::section(table, &self.spec, slot.number, shard_index_crc32?)),
            whole: slot.whole.clone(),
        };
        let cache = self.cache.clone();
        let reader = ShardReader::new(slot.number, self.spec, self.layout, files, self.options.read, cache, stated);
        let shard = Shard::new(reader);
        if self.options.read_ahead_index {
            shard.reader().will_need_shard_index();
        }
        if self.options.populate {
            shard.reader().populate(&|| true);
        }
        Ok(shard)
    }

    /// Reads a shard into memory and verifies its CRC-32 against the manifest.
    ///
    /// A damaged shard with checks is returned all the same: lookups verify each minishard and report the damaged ones.
    ///
    /// Errors: `Corrupt` for a damaged shard without checks, unless verification is off; `Io`, `TooLarge`.
    fn load(&self, slot: &ShardSlot, record: &ShardRecord, path: &Path) -> Result<ShardFiles> {
        let (files, crc32) = ShardFiles::load(path)?;
        let has_checks = self.layout.is_some_and(|layout| layout.checks);
        if crc32 == record.crc32 {
            slot.whole.set_verified();
        } else if !has_checks && self.options.read.verify_reads != VerifyReads::Never {
            let expected = record.crc32;
            let message = format!("expected CRC-32 {expected:08x} as the manifest says, found {crc32:08x}");
            return Err(Error::corrupt(message).at_path(path));
        }
        Ok(files)
    }

    /// Opens every shard, so that a missing file or a wrong length is reported now.
    pub(crate) fn touch_all(&self) -> Result<()> {
        self.slots.iter().try_for_each(|slot| match slot.shard.get() {
            Some(_) => Ok(()),
            None => self.touch(slot).map(|_| ()),
        })
    }

    /// Closes the generation. Returns the shards that are still referenced, by an `OwnedValue` for example.
    pub(crate) fn close(self) -> Vec<Shard> {
        self.cache.clear(); // the remaining shards keep the cache alive, but no lookup uses it
        self.slots.into_iter().filter_map(|slot| slot.shard.into_inner()).filter(Shard::is_shared).collect()
        // the lease is released last, with the rest of `self`
    }
}

/// A key that was found: its shard and its row.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) stored: FoundKey,
}

impl<'a> Found<'a> {
    #[inline]
    pub(crate) fn reader(&self) -> &'a ShardReader {
        self.shard.reader()
    }

    pub(crate) fn value_location(&self) -> Result<ValueLocation> {
        self.reader().value_location(self.stored.minishard, self.stored.row)
    }
}

impl ShardSlot {
    fn new(number: ShardNumber) -> ShardSlot {
        ShardSlot { number, obsolete_pair: false, whole: Arc::default(), shard: OnceLock::new() }
    }
}

/// Reads `info` and, for a native generation, its manifest. Checks that the two agree.
fn read_info(directory: &Path, pointer: Option<&str>, in_store: bool) -> Result<(Info, Option<Manifest>)> {
    let path = directory.join(info::FILE_NAME);
    let text = read_whole(&path, info::MAX_BYTES)?;
    let info = Info::parse(&text, pointer).map_err(|error| error.at_path(&path))?;
    if info.layout.is_none() && Manifest::parse(&text).is_ok() {
        return Err(
            Error::corrupt("expected the info of a data set, found the manifest of a generation").at_path(&path)
        );
    }
    let top = pointer.is_none_or(str::is_empty) && info.shards.as_os_str().is_empty();
    if !top {
        return Ok((info, None));
    }
    let manifest_path = directory.join(manifest::FILE_NAME);
    let manifest = match read_whole(&manifest_path, manifest::MAX_BYTES).and_then(|text| Manifest::parse(&text)) {
        Ok(manifest) => manifest,
        // no manifest, or a foreign file of that name: this is not a generation of a store
        Err(_) if !in_store && (info.layout.is_none() || manifest_path.symlink_metadata().is_err()) => {
            return Ok((info, None));
        }
        Err(error) => return Err(error.at_path(&manifest_path)),
    };
    manifest
        .check_info(&text)
        .and_then(|()| manifest.check_sharding(&info.spec))
        .map_err(|error| error.at_path(&path))?;
    Ok((info, Some(manifest)))
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
