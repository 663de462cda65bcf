//! The shards of a generation.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use crate::bytes::{StorageKind, explain_missing, regular_len};
use crate::error::{Error, Result};
use crate::format::manifest::{Manifest, ShardRecord};
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::generation::{Generation, ShardSlot};
use crate::read::shard::{
    KnownShard, ReadOptions, Shard, ShardFiles, ShardReader, TableFile, TableSection, VerifyReads,
};

impl Generation {
    /// Takes the open shards of `previous` whose files this generation has too, by hard links, with the same records in
    /// the manifest: their maps or bytes, their minishard maps, and what is verified of them.
    ///
    /// Both generations then have one open shard. It keeps its path and its minishard table until
    /// [`settle_shards`](Generation::settle_shards). Shards with positioned reads are not taken: they have no state that
    /// is worth it. Nor are loaded shards whose CRC-32 did not match.
    ///
    /// Cost: one system call per open shard of `previous` that has the same record.
    pub(super) fn take_shards(&mut self, previous: &Generation) {
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

    pub(super) fn search_slot(&self, number: ShardNumber) -> Option<&ShardSlot> {
        self.slots.binary_search_by_key(&number, |slot| slot.number).ok().and_then(|at| self.slots.get(at))
    }

    /// Opens a shard for lookups. If threads do so concurrently, all get the one that was opened first.
    #[cold]
    pub(super) fn open_at_first_use<'a>(&'a self, slot: &'a ShardSlot) -> Result<&'a Shard> {
        let shard = self.open_slot(slot, self.options.storage)?;
        shard.reader().files().all().for_each(|file| file.set_access(self.options.access));
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
    pub(super) fn check_file(&self, shard: &Shard) -> Result<()> {
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

    /// Returns the path of the file from which a shard is read; `None` for a shard that is loaded or made in memory, and
    /// for an obsolete pair of files.
    pub(crate) fn shard_path(&self, number: ShardNumber) -> Option<PathBuf> {
        let slot = self.slot(number).filter(|slot| !slot.obsolete_pair)?;
        let is_loaded = matches!(self.options.storage, StorageKind::Heap);
        (!is_loaded).then(|| self.shards_directory.join(self.spec.shard_file_name(slot.number)))
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
}

impl ShardSlot {
    pub(super) fn new(number: ShardNumber) -> ShardSlot {
        ShardSlot {
            number,
            obsolete_pair: false,
            whole_verified: Arc::default(),
            compared: AtomicBool::new(false),
            shard: OnceLock::new(),
        }
    }
}

pub(super) fn check_file_len(record: &ShardRecord, found: u64, path: &Path) -> Result<()> {
    if record.bytes == found {
        return Ok(());
    }
    let message = format!("expected a file of {} bytes as the manifest says, found {found}", record.bytes);
    Err(Error::corrupt(message).at_path(path))
}

/// Returns the slots of the shards that a manifest lists.
pub(super) fn slots_of(manifest: &Manifest) -> Box<[ShardSlot]> {
    manifest.shards.iter().map(|record| ShardSlot::new(record.number)).collect()
}

/// Lists the shards that have files with names of the format. Ignores other files.
pub(super) fn list_shards(directory: &Path, spec: &ShardingSpec) -> Result<Box<[ShardSlot]>> {
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
