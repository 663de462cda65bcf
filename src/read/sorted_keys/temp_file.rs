//! A temporary file without a name: it is removed from its directory as soon as it is created.

use std::env;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::fs::disk;

/// The number of names to try: another process with the same number, in a container for example, may have taken some.
const NAMES: u64 = 1000;

/// A temporary file. Its space is released when its last handle is closed, also after a crash of the process.
#[derive(Clone)]
pub(crate) struct TempFile {
    pub(crate) file: Arc<File>,
    /// The path that it had, for messages.
    pub(crate) path: PathBuf,
}

impl TempFile {
    /// Creates a file in a directory; `None` is the directory for temporary files.
    ///
    /// Errors: `Io`, also on a platform without files (WebAssembly).
    pub(crate) fn create(directory: Option<&Path>) -> Result<TempFile> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if cfg!(target_family = "wasm") {
            // std has no such directory there, and panics
            return Err(Error::io("create", Path::new("a temporary file"), io::ErrorKind::Unsupported.into()));
        }
        let directory = directory.map_or_else(env::temp_dir, Path::to_path_buf);
        let mut tries = 0..NAMES;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!("{:x}{number:08x}.keys", std::process::id()));
            match disk::create_new(&path) {
                Ok(file) => {
                    disk::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
                    return Ok(TempFile { file: Arc::new(file), path });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries.next().is_some() => {}
                Err(error) => return Err(Error::io("create", &path, error)),
            }
        }
    }
}
