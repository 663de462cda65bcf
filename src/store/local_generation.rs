//! A complete local generation as the source of a copy: its files with the checksums that its manifest states.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest::{self, Manifest};
use crate::fs;
use crate::store::adopt::Foreign;
use crate::store::has_current;
use crate::store::lease::{Lease, LeasedGeneration};
use crate::threads::progress::Progress;

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
            let message = "expected a generation with a manifest.json, as ShardDb writes it, found none: \
                           `sharddb import` makes one of foreign data";
            return Err(Error::invalid_input(message).at_path(&path));
        }
        let (directory, info, manifest, manifest_text) = Foreign::open(&path, Progress::default())?.into_parts();
        Ok(LocalGeneration { directory, info, manifest, manifest_text, _lease: lease })
    }
}
