//! The staging directory of a generation that is copied from elsewhere file by file: it survives a killed process, and
//! the next copy of the same generation continues.
//!
//! ```text
//! store/                        locked by the writer while the directory is filled
//! store.pull-NAME/              NAME is that of the source, with 128 random bits
//!   tmp-6f0c93e2b1d84a57..      files that are being written, with 128 random bits; removed by the next copy
//!   0.shard, minishards, ..     complete: the checksum matched before the rename
//!   info, manifest.json         written last; then the directory is moved into the store
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::bytes::read_whole;
use crate::error::{Error, Result};
use crate::format::checksum::{Checksum, ChecksumHasher};
use crate::format::info;
use crate::format::manifest::{self, Manifest, ShardRecord};
use crate::format::nested::NestedSharding;
use crate::format::random::random_name;
use crate::fs;
use crate::fs::disk;
use crate::ids::ShardNumber;
use crate::store::adopt::Foreign;
use crate::store::link::needs_copy;
use crate::store::{GenerationId, Store, StoreWriter, contents, generations, intact};
use crate::threads::progress::Progress;

const TEMPORARY_PREFIX: &str = "tmp-";

/// The staging directory of one generation.
#[derive(Debug)]
pub struct Staging {
    path: PathBuf,
}

impl Staging {
    /// Opens the directory next to a store, or creates it. The caller holds the lock of the store.
    ///
    /// `name` is one name of a path. Removes the temporary files of an earlier copy.
    pub fn open(store: &Path, name: &str, nested: Option<&NestedSharding>) -> Result<Staging> {
        let Some(beside) = store.file_name() else {
            let message = "expected the path of a store in a directory, found a root";
            return Err(Error::invalid_input(message).at_path(store));
        };
        let mut own_name = beside.to_os_string();
        own_name.push(format!(".pull-{name}"));
        let path = store.with_file_name(own_name);
        fs::create_dir_all(&path)?;
        for name in fs::names(&path)?.iter().filter(|name| is_temporary(name)) {
            if fs::is_real_file(&path.join(name))? {
                fs::remove_file(&path.join(name))?;
            }
        }
        let shards = nested.map(NestedSharding::directory).unwrap_or_default();
        fs::create_dir_all(&path.join(shards))?;
        Ok(Staging { path })
    }

    /// Returns whether a file is complete. Removes it if it has other bytes. Cost: reads the file.
    ///
    /// An earlier copy of the same generation wrote it, so checksums suffice.
    pub fn has(&self, name: &str, stated: Checksum) -> Result<bool> {
        let path = self.path.join(name);
        if !fs::exists(&path)? {
            return Ok(false);
        }
        if fs::is_real_file(&path)? && fs::checksum(&path, stated, &Progress::default())? == stated {
            return Ok(true);
        }
        fs::remove_file(&path).map(|()| false)
    }

    /// Adds a local file with the stated digest: as a hard link, or as a copy where it cannot be linked. Returns false if
    /// the file has other bytes, or no digest is stated.
    pub fn share(&self, from: &Path, name: &str, stated: Checksum) -> Result<bool> {
        if !fs::is_real_file(from)? || !stated.is_of_equal_bytes(fs::checksum(from, stated, &Progress::default())?) {
            return Ok(false);
        }
        let to = self.path.join(name);
        match disk::hard_link(from, &to) {
            Ok(()) => Ok(true),
            Err(error) if needs_copy(&error) => {
                let temporary = self.temporary();
                fs::copy_new(from, &temporary, stated, &Progress::default())?;
                fs::rename(&temporary, &to).map(|()| true)
            }
            Err(error) => Err(Error::io("link", from, error)),
        }
    }

    /// Begins a file.
    pub fn begin(&self, name: &str, stated: Checksum) -> Result<StagedFile> {
        let temporary = self.temporary();
        let file = disk::create_new(&temporary).map_err(|error| Error::io("create", &temporary, error))?;
        Ok(StagedFile { file, temporary, to: self.path.join(name), hasher: stated.hasher(), stated })
    }

    /// Adds `info` and the manifest, and publishes the directory, whose checksums are verified once more.
    ///
    /// Errors: those of [`StoreWriter::adopt_by_moving`]. The directory stays then, for the next copy. That it cannot be removed
    /// after the publication is none.
    pub fn publish(self, writer: &StoreWriter, info: &[u8], manifest: &[u8]) -> Result<GenerationId> {
        for (name, bytes) in [(info::FILE_NAME, info), (manifest::FILE_NAME, manifest)] {
            let path = self.path.join(name);
            fs::remove_file(&path)?; // of a copy that was killed before the move
            fs::write_new(&path, bytes)?;
        }
        let foreign = Foreign::open(&self.path, writer.progress.clone())?;
        let id = foreign.publish_staged(&writer.path, &writer.lock)?;
        _ = fs::remove(&self.path); // only where the store is on another file system, and has a copy now
        Ok(id)
    }

    fn temporary(&self) -> PathBuf {
        self.path.join(format!("{TEMPORARY_PREFIX}{}", random_name()))
    }
}

/// Returns whether a name is exactly one of [`Staging::temporary`].
fn is_temporary(name: &str) -> bool {
    let random = name.strip_prefix(TEMPORARY_PREFIX);
    random.is_some_and(|random| random.len() == 32 && contents::is_lowercase_hex(random))
}

/// A file of a staging directory that is being written.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    temporary: PathBuf,
    to: PathBuf,
    hasher: ChecksumHasher,
    stated: Checksum,
}

impl StagedFile {
    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = disk::write_all_at(&self.file, &self.temporary, self.hasher.bytes(), bytes);
        written.map_err(|error| Error::io("write", &self.temporary, error))?;
        self.hasher.update(bytes);
        Ok(())
    }

    /// Gives the file its name, if its bytes are the stated ones. Does not sync it: publishing does, and the next copy
    /// compares the checksum again.
    ///
    /// Errors: `Corrupt` if they are not; `Io`.
    pub fn finish(self) -> Result<()> {
        if let Err(error) = self.stated.check(self.hasher.finish()) {
            _ = fs::remove_file(&self.temporary); // the next copy removes it, too
            return Err(error);
        }
        drop(self.file); // Windows does not rename an open file
        fs::rename(&self.temporary, &self.to)
    }
}

/// Returns the paths of local shard files that have the bytes of shards of another generation, by their number: those
/// with equal records, if these have a digest and the files their length.
///
/// Cost: reads the manifest of every complete generation. A damaged one is passed over.
///
/// Errors: `Io`.
pub fn shards_like(store: &Store, wanted: &Manifest) -> Result<HashMap<ShardNumber, PathBuf>> {
    let mut found = HashMap::new();
    for id in generations(store.path())? {
        let directory = store.generation_path(id);
        let text = manifest_text(&directory)?;
        let Some(manifest) = text.and_then(|text| Manifest::parse(&text).ok()) else { continue };
        let is_wanted = |shard: &&ShardRecord| shard.digest.is_some() && wanted.shard(shard.number) == Some(*shard);
        for shard in manifest.shards.iter().filter(is_wanted) {
            let path = manifest.shard_path(&directory, shard.number);
            match intact::check_len(&path, shard.bytes) {
                Ok(()) => _ = found.insert(shard.number, path), // the newest generation wins
                Err(error) if intact::is_damage(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// Returns the current generation, synced, if it has the files of a generation with this manifest: if the manifests have
/// the same text, with the digests of all files.
pub fn current_with(store: &Store, manifest: &Manifest, wanted: &[u8]) -> Result<Option<GenerationId>> {
    if !manifest.has_all_digests() {
        return Ok(None);
    }
    let Some(id) = store.current()? else { return Ok(None) };
    let text = manifest_text(&store.generation_path(id))?;
    if text.is_none_or(|text| text != wanted) {
        return Ok(None);
    }
    if intact::damage_of(store.path(), id)?.is_some() {
        return Ok(None); // a file is missing or cut off, and the pull mends that
    }
    intact::sync(store.path(), id)?; // a copy or a restore may have left it in the page cache
    Ok(Some(id))
}

/// Reads the manifest of a local generation; `None` if it is no file of a possible length.
///
/// Errors: `Io` if the read fails.
fn manifest_text(generation: &Path) -> Result<Option<Vec<u8>>> {
    match read_whole(&generation.join(manifest::FILE_NAME), manifest::MAX_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if intact::is_damage(&error) || error.raw_os_error().is_none() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;
    use crate::common::TempDir;

    #[test]
    fn removes_its_own_temporary_files_and_no_others() {
        let directory = TempDir::new();
        let path = directory.path().join("store.pull-gen-1");
        let own = "tmp-0123456789abcdef0123456789abcdef";
        create_dir_all(path.join("tmp-ffffffffffffffffffffffffffffffff")).unwrap();
        let of_others = ["tmp-notes", "tmp-", "tmp-2024", "tmp-0123456789abcdef", &format!("{own}0"), "0.shard"];
        of_others.iter().chain(&[own]).for_each(|name| write(path.join(name), "x").unwrap());
        Staging::open(&directory.path().join("store"), "gen-1", None).unwrap();
        assert_eq!(fs::names(&path).unwrap().len(), of_others.len() + 1);
        assert!(of_others.iter().all(|name| path.join(name).exists()));
    }
}
