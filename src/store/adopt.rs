//! Adopting a generation that was built elsewhere: verifies the checksum of every file, then publishes a copy or the
//! directory itself. Also opens a generation whose files are copied to a bucket.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::bytes::read_whole;
use crate::error::{Error, ErrorKind, Result};
use crate::format::info::{self, Info};
use crate::format::json;
use crate::format::manifest::{self, Manifest, ShardRecord};
use crate::format::spec::ShardingSpec;
use crate::fs;
use crate::store::lease::{Lease, LeasedGeneration};
use crate::store::lock::Lock;
use crate::store::moved::{self, MovedIn};
use crate::store::publish::{self, CompleteGeneration, PendingGeneration, SharedLock};
use crate::store::{CURRENT, GenerationId, LEASE, LOCK, contents, has_current, intact, no_current};
use crate::threads::progress::{Phase, Progress};

const SHARD_EXTENSION: &str = ".shard";

/// A complete generation, in the store or not, whose manifest is valid and matches `info` and the names of the shards.
pub(super) struct Foreign {
    directory: PathBuf,
    info: Vec<u8>,
    pub(super) manifest: Manifest,
    manifest_text: Vec<u8>,
    progress: Progress,
}

impl Foreign {
    /// Reads the manifest and `info`, and checks them and the names of the shards. Does not read other files.
    pub(super) fn open(directory: &Path, progress: Progress) -> Result<Foreign> {
        let directory = fs::canonical(directory)?;
        let path = directory.join(manifest::FILE_NAME);
        if !fs::is_file(&path)? {
            let message = "expected a generation with a manifest.json, as ShardDb writes it, found none";
            return Err(Error::invalid_input(message).at_path(&path));
        }
        let manifest_text = read_whole(&path, manifest::MAX_BYTES)?;
        let manifest = Manifest::parse(&manifest_text).map_err(|error| error.at_path(&path))?;
        let path = directory.join(info::FILE_NAME);
        let info = read_whole(&path, info::MAX_BYTES)?;
        manifest.check_info(&info).map_err(|error| error.at_path(&path))?;
        check_sharding(&manifest, &info).map_err(|error| error.at_path(&path))?;
        let foreign = Foreign { directory, info, manifest, manifest_text, progress };
        foreign.check_names()?;
        Ok(foreign)
    }

    /// Copies the generation into the store and verifies it. Does not publish the copy.
    pub(super) fn copy(&self, store: &Path, lock: &SharedLock) -> Result<CompleteGeneration> {
        let pending = PendingGeneration::begin(store, lock, None)?.with_shards_in(self.manifest.nested.clone())?;
        self.begin();
        intact::for_each_file(&self.manifest, |name, stated| {
            fs::copy_new(&self.directory.join(name), &pending.path().join(name), stated, &self.progress)
        })?;
        pending.complete_with(&self.info, &self.manifest, &self.manifest_text)
    }

    /// Publishes the directory itself by one rename, so that a crash leaves it complete at its old path or at the new
    /// one, which a record states then. Where it cannot be moved or made read-only, publishes a copy and leaves the
    /// directory in place.
    pub(super) fn publish_moved(&self, store: &Path, lock: &SharedLock) -> Result<GenerationId> {
        self.check_no_store()?;
        moved::check(store, publish::next_id(store, &*lock.begin_operation()?)?)?; // before the directory is changed
        match self.prepare_move(store, lock) {
            Err(error) if error.io_kind() == Some(io::ErrorKind::PermissionDenied) => {
                return self.copy(store, lock)?.publish(); // files of another user
            }
            prepared => prepared?,
        }
        self.installed_or_copied(store, lock, Foreign::install_recorded)
    }

    /// Installs the directory, with a record of it for as long as it is not current.
    fn install_recorded(&self, store: &Path, lock: &mut Lock) -> Result<GenerationId> {
        let id = publish::next_id(store, lock)?;
        moved::record(store, id, &self.directory)?;
        publish::install(store, lock, &self.directory).inspect(|_| moved::forget(store, id)).map_err(|error| {
            match moved::read_all(store) {
                Ok(all) if !all.iter().any(|record| record.id == id) => {
                    moved::forget(store, id);
                    error
                }
                _ => error.context(&MovedIn { id, from: self.directory.clone() }.to_string()),
            }
        })
    }

    /// Publishes a staging directory like [`publish_moved`](Self::publish_moved), without a record: it can be made again.
    pub(super) fn publish_staged(&self, store: &Path, lock: &SharedLock) -> Result<GenerationId> {
        self.prepare_move(store, lock)?;
        self.installed_or_copied(store, lock, |foreign, store, lock| publish::install(store, lock, &foreign.directory))
    }

    /// Installs the directory, or publishes a copy if the store is on another file system.
    fn installed_or_copied(
        &self,
        store: &Path,
        lock: &SharedLock,
        install: impl FnOnce(&Foreign, &Path, &mut Lock) -> Result<GenerationId>,
    ) -> Result<GenerationId> {
        // a statement of its own, so that the operation ends before `copy` begins another
        let installed = install(self, store, &mut *lock.begin_operation()?);
        match installed {
            Err(error) if fs::crosses_devices(&error) => self.copy(store, lock)?.publish(),
            installed => installed,
        }
    }

    /// Verifies all files, and makes the directory a complete, synced generation.
    fn prepare_move(&self, store: &Path, lock: &SharedLock) -> Result<()> {
        self.check_own_files()?;
        publish::check_publishable(store, lock)?;
        self.begin();
        intact::for_each_file(&self.manifest, |name, stated| {
            let path = self.directory.join(name);
            stated.check(fs::checksum(&path, stated, &self.progress)?).map_err(|error| error.at_path(&path))
        })?;
        self.complete()
    }

    /// Begins to read all shards and auxiliary files.
    fn begin(&self) {
        let shards = self.manifest.shards.iter().map(|shard| shard.bytes);
        let auxiliary = self.manifest.auxiliary.iter().map(|file| file.checksum.bytes);
        self.progress.begin(Phase::Copy, shards.chain(auxiliary).fold(0, u64::saturating_add));
    }

    /// Does the same as [`PendingGeneration::complete`] for files that may not be synced.
    ///
    /// Replaces an existing lease by a new file, since a hard link would share its lock with another generation.
    fn complete(&self) -> Result<()> {
        let lease = self.directory.join(LEASE);
        fs::remove_file(&lease)?;
        fs::write_new(&lease, b"")?;
        let mut files = Vec::new();
        intact::for_each_file(&self.manifest, |name, _| {
            files.push(self.directory.join(name));
            Ok(())
        })?;
        files.extend([info::FILE_NAME, manifest::FILE_NAME].map(|name| self.directory.join(name)));
        fs::sync_files(&files)?;
        files.iter().try_for_each(|path| fs::set_read_only(path))?;
        fs::create_dir_all(&self.directory.join(self.manifest.shards_directory()))?; // if there are no shards
        intact::sync_nested(&self.directory, &self.manifest)?;
        fs::fsync_dir(&self.directory)
    }

    /// Errors: `Corrupt` if a shard file that the manifest lists is missing, or the directory has another one.
    fn check_names(&self) -> Result<()> {
        let directory = self.directory.join(self.manifest.shards_directory());
        let is_lost = self.manifest.shards.is_empty() && !fs::exists(&directory)?; // by a copy that omits empty ones
        let names = if is_lost { Vec::new() } else { fs::names(&directory)? };
        let found: BTreeSet<_> = names.into_iter().filter(|name| name.ends_with(SHARD_EXTENSION)).collect();
        let name_of = |shard: &ShardRecord| self.manifest.sharding.shard_file_name(shard.number);
        let expected: BTreeSet<_> = self.manifest.shards.iter().map(name_of).collect();
        if let Some(name) = expected.difference(&found).next() {
            let message = "expected a shard file that the manifest lists, found none";
            return Err(Error::corrupt(message).at_path(&directory.join(name)));
        }
        if let Some(name) = found.difference(&expected).next() {
            let message = "expected only the shard files that the manifest lists, found another";
            return Err(Error::corrupt(message).at_path(&directory.join(name)));
        }
        Ok(())
    }

    /// Errors: `InvalidInput` for a generation of a store, whose readers find it by its path.
    fn check_no_store(&self) -> Result<()> {
        let parent = self.directory.parent().unwrap_or(&self.directory);
        if fs::exists(&parent.join(CURRENT))? || fs::exists(&parent.join(LOCK))? {
            let message =
                "expected a directory outside of any store, found one in a store: copy it instead of moving it";
            return Err(Error::invalid_input(message).at_path(&self.directory));
        }
        Ok(())
    }

    /// Errors: `InvalidInput` for links, whose targets must not become read-only and may change later, and for foreign
    /// files, with which gc would never remove the generation.
    fn check_own_files(&self) -> Result<()> {
        let Some(path) = contents::foreign_in_generation(&self.directory)? else { return Ok(()) };
        let found = if fs::is_link(&path)? { "a link" } else { "another entry" };
        let message = format!(
            "expected only the regular files of a generation in a directory to move, found {found}: take it away, or copy \
             the directory instead of moving it"
        );
        Err(Error::invalid_input(message).at_path(&path))
    }
}

/// A complete generation: the current one of a store, or a directory with a manifest. Leased while this lives.
#[derive(Debug)]
pub struct LocalGeneration {
    /// Where it is.
    pub directory: PathBuf,
    /// The bytes of `info`.
    pub info: Vec<u8>,
    /// The manifest.
    pub manifest: Manifest,
    /// The bytes of `manifest.json`, which may have members that [`Manifest`] lacks.
    pub manifest_text: Vec<u8>,
    _lease: Option<Lease>,
}

impl LocalGeneration {
    /// Opens the current generation of a store, or a generation by its directory. Reads `info` and the manifest.
    ///
    /// Errors: `InvalidInput` for a foreign directory, which has no manifest; `NotFound` if nothing is there, or nothing was
    /// published; `Corrupt` if `info`, the manifest and the names of the shards do not match; `Unsupported`; `Io`.
    pub fn open(path: &Path) -> Result<LocalGeneration> {
        if !fs::is_dir(path)? {
            let message = "expected a store or a generation, found no directory";
            return Err(Error::new(ErrorKind::NotFound, message).at_path(path));
        }
        let (path, lease) = if has_current(path)? {
            let LeasedGeneration { path, lease, .. } = LeasedGeneration::acquire_current(path)?;
            (path, Some(lease))
        } else {
            let lease = Lease::is_offered_by(path)?.then(|| Lease::acquire(path)).transpose()?;
            (path.to_path_buf(), lease)
        };
        if !fs::is_file(&path.join(manifest::FILE_NAME))? {
            if fs::exists(&path.join(LOCK))? {
                return Err(no_current(&path));
            }
            let message = "expected a generation with a manifest.json, as ShardDb writes it, found none: \
                           `sharddb import` makes one of foreign data";
            return Err(Error::invalid_input(message).at_path(&path));
        }
        let Foreign { directory, info, manifest, manifest_text, .. } = Foreign::open(&path, Progress::default())?;
        Ok(LocalGeneration { directory, info, manifest, manifest_text, _lease: lease })
    }
}

/// Checks the specification in an `info`, and the directory of the shards, against the manifest.
fn check_sharding(manifest: &Manifest, info: &[u8]) -> Result<()> {
    if manifest.nested.is_some() {
        let found = Info::parse(info, Some(manifest.pointer()))?;
        manifest.check_directory(&found)?;
        return manifest.check_sharding(&found.spec);
    }
    let Some(sharding) = json::pointer(json::parse(info)?, "/sharding")? else {
        return Err(Error::invalid_spec("expected a member \"sharding\" in info, found none"));
    };
    manifest.check_sharding(&ShardingSpec::from_json(sharding.get())?)
}
