//! Checks, without reading its data, that a generation can be opened: its manifest, `info`, and the lengths of its shards.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::format::info;
use crate::format::manifest::{self, Manifest};
use crate::storage::read_whole;
use crate::store::fs;
use crate::store::generation_id::GenerationId;

/// Returns whether a generation can be opened. Also true for one that a later version wrote, which cannot be judged.
pub(super) fn is_intact(store: &Path, id: GenerationId) -> bool {
    check(store, id).is_ok()
}

/// Checks that a generation can be opened. Does not judge one that a later version wrote.
///
/// Cost: reads the manifest and `info`, and one `stat` call per shard.
///
/// Errors: `Corrupt` or `Io` with the file that is damaged or missing.
pub(super) fn check(store: &Path, id: GenerationId) -> Result<()> {
    let directory = store.join(id.to_string());
    let path = directory.join(manifest::FILE_NAME);
    let text = read_whole(&path, manifest::MAX_BYTES)?;
    let manifest = match Manifest::parse(&text) {
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        manifest => manifest.map_err(|error| error.at_path(&path))?,
    };
    let path = directory.join(info::FILE_NAME);
    manifest.check_info(&read_whole(&path, info::MAX_BYTES)?).map_err(|error| error.at_path(&path))?;
    for shard in &manifest.shards {
        let path = manifest.shard_path(&directory, shard.number);
        check_len(&path, shard.bytes).map_err(|error| error.at_shard(shard.number))?;
    }
    Ok(())
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
