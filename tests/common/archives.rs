//! Fixtures in archives: unpacked once per process and removed when it exits.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::Scratch;

/// The archives that this process has unpacked, by name.
static UNPACKED: Mutex<Vec<(String, Scratch)>> = Mutex::new(Vec::new());

/// The directory with the content of `tests/data/{name}.tar.gz`. Blocks while another thread unpacks.
pub(crate) fn unpacked(name: &str) -> PathBuf {
    let mut unpacked = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, directory)) = unpacked.iter().find(|(other, _)| other == name) {
        return directory.path().to_path_buf();
    }
    if unpacked.is_empty() {
        remove_at_exit();
    }
    let directory = Scratch::new();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.tar.gz"));
    unpack(&archive, directory.path());
    let path = directory.path().to_path_buf();
    unpacked.push((name.to_string(), directory));
    path
}

fn unpack(archive: &Path, directory: &Path) {
    let decoder = flate2::read::GzDecoder::new(File::open(archive).unwrap());
    tar::Archive::new(decoder).unpack(directory).unwrap();
}

/// Registers an `atexit` handler that removes the directories, since statics are never dropped. A killed process leaves
/// them.
#[expect(unsafe_code, reason = "std has no atexit")]
fn remove_at_exit() {
    extern "C" fn remove() {
        UNPACKED.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
    // SAFETY: `remove` does not unwind: a poisoned lock is taken anyway, and `Scratch` ignores errors on drop.
    let registered = unsafe { libc::atexit(remove) };
    assert_eq!(registered, 0);
}
