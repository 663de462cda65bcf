//! Checks, without reading its data, that a generation can be opened: its manifest, `info`, and the lengths of its shards.

use std::io;
use std::path::Path;

use crate::bytes::read_whole;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::Checksum;
use crate::format::info;
use crate::format::manifest::{self, Manifest};
use crate::fs;
use crate::store::generation_id::GenerationId;

/// Returns why a generation cannot be opened; `None` if it can, or a later version wrote it, which cannot be judged.
///
/// Errors: `Io` if that cannot be determined: an error while reading is no damage.
pub(super) fn damage_of(store: &Path, id: GenerationId) -> Result<Option<Error>> {
    match check(store, id) {
        Ok(()) => Ok(None),
        Err(error) if is_damage(&error) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Returns whether an error of [`check`] says that the generation is damaged: a wrong or a missing file.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::TooLarge) || error.io_kind() == Some(io::ErrorKind::NotFound)
}

/// Checks that a generation can be opened. Does not judge one that a later version wrote.
///
/// Cost: reads the manifest and `info`, and one `stat` call per shard.
///
/// Errors: `Corrupt` or `Io` with the file that is damaged or missing.
pub(super) fn check(store: &Path, id: GenerationId) -> Result<()> {
    let directory = store.join(id.to_string());
    let Some(manifest) = manifest_of(&directory)? else { return Ok(()) };
    let path = directory.join(info::FILE_NAME);
    manifest.check_info(&read_whole(&path, info::MAX_BYTES)?).map_err(|error| error.at_path(&path))?;
    for shard in &manifest.shards {
        let path = manifest.shard_path(&directory, shard.number);
        check_len(&path, shard.bytes).map_err(|error| error.at_shard(shard.number))?;
    }
    Ok(())
}

/// Syncs a generation that a copy or a restore may have left in the page cache. Does nothing for one that a later version
/// wrote.
///
/// Cost: reads the manifest, and [`fs::sync_files`].
pub(super) fn sync(store: &Path, id: GenerationId) -> Result<()> {
    let directory = store.join(id.to_string());
    let Some(manifest) = manifest_of(&directory)? else { return Ok(()) };
    let mut files = [info::FILE_NAME, manifest::FILE_NAME].map(|name| directory.join(name)).to_vec();
    files.extend(manifest.shards.iter().map(|shard| manifest.shard_path(&directory, shard.number)));
    for path in manifest.auxiliary.iter().map(|file| directory.join(&file.name)) {
        // no result depends on one, so it may be missing, or a FIFO, whose opening would block
        if fs::is_file(&path)? {
            files.push(path);
        }
    }
    fs::sync_files(&files)?;
    sync_nested(&directory, &manifest)?;
    fs::fsync_dir(&directory)
}

/// Syncs the directories from that of the shards up to the generation's own, which the caller syncs.
pub(super) fn sync_nested(generation: &Path, manifest: &Manifest) -> Result<()> {
    let nested = manifest.shards_directory();
    let below = nested.ancestors().filter(|path| !path.as_os_str().is_empty());
    below.map(|path| generation.join(path)).try_for_each(|path| fs::fsync_dir(&path))
}

/// Reads the manifest of a generation; `None` if a later version wrote it.
fn manifest_of(directory: &Path) -> Result<Option<Manifest>> {
    let path = directory.join(manifest::FILE_NAME);
    match Manifest::parse(&read_whole(&path, manifest::MAX_BYTES)?) {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        manifest => manifest.map(Some).map_err(|error| error.at_path(&path)),
    }
}

/// Calls `f` with each shard and auxiliary file that a manifest lists: the path below the generation, and what is stated.
/// Adds the shard to its error.
pub(super) fn for_each_file(manifest: &Manifest, mut f: impl FnMut(&Path, Checksum) -> Result<()>) -> Result<()> {
    for shard in &manifest.shards {
        let path = manifest.shard_path(Path::new(""), shard.number);
        f(&path, manifest.checksum_of(shard)).map_err(|error| error.at_shard(shard.number))?;
    }
    manifest.auxiliary.iter().try_for_each(|file| f(Path::new(&file.name), file.checksum))
}

/// Checks that a file has the length that the manifest states.
///
/// Errors: `Corrupt`; `Io`.
pub(super) fn check_len(path: &Path, stated: u64) -> Result<()> {
    let len = fs::file_len(path)?;
    if len != stated {
        let message = format!("expected a file of {stated} bytes as the manifest says, found {len}");
        return Err(Error::corrupt(message).at_path(path));
    }
    Ok(())
}
