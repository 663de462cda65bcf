//! Fixtures in archives, unpacked once per checkout: into `fixtures` in cargo's target directory, under the hash of the
//! archive. Tests only read them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

/// A file or directory of the test data of the workspace, or of the crate `container`. It may be in an archive.
pub(crate) fn data(path: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|above| above.join("Cargo.lock").exists());
    let (set, rest) = path.split_once('/').unwrap_or((path, ""));
    let mut homes = ["tests/data", "crates/container/tests/data"].map(|home| workspace.unwrap().join(home)).into_iter();
    let found = homes.find_map(|home| {
        let (plain, archive) = (home.join(path), home.join(format!("{set}.tar.gz")));
        if archive.exists() {
            // an empty path would add a slash
            return Some(if rest.is_empty() { unpacked(&archive) } else { unpacked(&archive).join(rest) });
        }
        plain.exists().then_some(plain)
    });
    found.unwrap_or_else(|| panic!("there are no test data {path}"))
}

/// The directory with the content of an archive `*.tar.gz`. Blocks while another thread or process unpacks.
pub(crate) fn unpacked(archive: &Path) -> PathBuf {
    static KNOWN: Mutex<BTreeMap<PathBuf, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(archive.to_path_buf()).or_insert_with(|| unpacked_in(&target().join("fixtures"), archive)).clone()
}

/// The target directory. Cargo names a directory in it to integration tests; the program of unit tests is in
/// `PROFILE/deps` of it.
fn target() -> PathBuf {
    match option_env!("CARGO_TARGET_TMPDIR") {
        Some(directory) => Path::new(directory).parent().unwrap().to_path_buf(),
        None => std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_path_buf(),
    }
}

/// Only a complete directory gets its name, so a process that is killed leaves none that is taken for one. A complete
/// directory is used without the lock, which another user may own.
fn unpacked_in(fixtures: &Path, archive: &Path) -> PathBuf {
    let bytes = fs::read(archive).unwrap();
    let directory = fixtures.join(name_of(&bytes));
    if directory.is_dir() {
        return directory;
    }
    fs::create_dir_all(fixtures).unwrap();
    let lock = File::options().append(true).create(true).open(fixtures.join("lock")).unwrap();
    lock.lock().unwrap();
    if !directory.is_dir() {
        let new = directory.with_extension("new");
        if new.exists() {
            fs::remove_dir_all(&new).unwrap(); // of a process that was killed
        }
        tar::Archive::new(flate2::read::GzDecoder::new(&*bytes)).unpack(&new).unwrap();
        make_read_only(&new);
        fs::rename(&new, &directory).unwrap();
    }
    directory
}

fn name_of(archive: &[u8]) -> String {
    Sha256::digest(archive).iter().take(8).fold(String::new(), |mut name, byte| {
        write!(name, "{byte:02x}").unwrap();
        name
    })
}

/// Makes the files below a directory read-only. The directories stay writable, so that any program can remove them.
fn make_read_only(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            make_read_only(&path);
        } else if metadata.is_file() {
            let mut permissions = metadata.permissions();
            permissions.set_readonly(true);
            fs::set_permissions(&path, permissions).unwrap();
        }
    }
}

/// Copies a directory with all that is in it. The copies are writable.
pub(crate) fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy_all(&path, &target) } else { fs::write(target, fs::read(path).unwrap()).unwrap() }
    }
}
