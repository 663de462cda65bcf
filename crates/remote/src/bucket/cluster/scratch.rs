//! A temporary local directory, removed when it is dropped.

use std::path::{Path, PathBuf};

use sharddb::internal::fs::disk;
use sharddb::internal::fs::owning_process::OwningProcess;
use sharddb::internal::{PartsDir, settings_of};
use sharddb::write::BuildOptions;
use sharddb_format::Result;
use sharddb_format::internal::random::random_name;

/// A directory that no other process uses, in [`BuildOptions::temp_dir`] or that of the operating system. A process that is
/// killed leaves it.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    owner: OwningProcess,
}

impl Scratch {
    /// Errors: `Io`.
    pub(super) fn create(options: &BuildOptions) -> Result<Scratch> {
        let parent = settings_of(options).temp_dir.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = parent.join(format!("sharddb-parts-{}", random_name()));
        let path = disk::with_syncs_if(false, || PartsDir::create(&path))?.path().to_path_buf();
        Ok(Scratch { path, owner: OwningProcess::this_process() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the options for building here. Nothing here has to survive a crash.
    pub(super) fn options(&self, options: &BuildOptions) -> BuildOptions {
        let mut options = options.clone();
        options.durable(false).temp_dir(&self.path);
        options
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.owner.is_this_process() {
            _ = disk::remove_dir_all(&self.path);
        }
    }
}
