//! A directory of this process for files that the targets write, on a file system in memory if there is one.

use std::fs;
use std::path::{Path, PathBuf};

/// Creates an empty directory, replacing an old one.
pub fn directory(name: &str) -> PathBuf {
    let path = root().join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn root() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let root = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    root.join(format!("sharddb-fuzz-{}", std::process::id()))
}

/// Removes the directories of this process.
pub fn remove() {
    let _ = fs::remove_dir_all(root());
}
