//! The bytes that the removal of generations frees: those of files without a name elsewhere.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::path::Path;

use sharddb::GenerationId;

/// The files of generations before their removal.
#[derive(Debug, Default)]
pub(crate) struct Files(Vec<File>);

#[derive(Debug)]
struct File {
    generation: GenerationId,
    bytes: u64,
    /// Identifies the file among those with several names; `None` for one that has a single name.
    shared: Option<Shared>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shared {
    device: u64,
    inode: u64,
    names: u64,
}

impl Files {
    /// Adds the files of a generation. What cannot be read is left out: its removal reports the error.
    pub(crate) fn add(&mut self, generation: GenerationId, directory: &Path) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => self.add(generation, &entry.path()),
                Ok(metadata) => {
                    self.0.push(File { generation, bytes: metadata.len(), shared: shared(&metadata) });
                }
                Err(_) => {}
            }
        }
    }

    /// The length of all files of a generation.
    pub(crate) fn bytes_of(&self, generation: GenerationId) -> u64 {
        self.0.iter().filter(|file| file.generation == generation).map(|file| file.bytes).sum()
    }

    /// The bytes that the removal of some generations frees.
    pub(crate) fn freed_by(&self, removed: &[GenerationId]) -> u64 {
        let mut names: BTreeMap<Shared, u64> = BTreeMap::new();
        let mut freed = 0;
        for file in self.0.iter().filter(|file| removed.contains(&file.generation)) {
            let last_name = file.shared.is_none_or(|shared| {
                let removed = names.entry(shared).or_default();
                *removed += 1;
                *removed == shared.names
            });
            if last_name {
                freed += file.bytes;
            }
        }
        freed
    }
}

#[cfg(unix)]
fn shared(metadata: &Metadata) -> Option<Shared> {
    use std::os::unix::fs::MetadataExt;
    let shared = Shared { device: metadata.dev(), inode: metadata.ino(), names: metadata.nlink() };
    (shared.names > 1).then_some(shared)
}

#[cfg(not(unix))]
fn shared(_: &Metadata) -> Option<Shared> {
    None
}
