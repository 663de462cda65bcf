//! Helpers of the store's tests: temporary directories and small generations.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::format::hash::HashFunction;
use crate::format::layout::Layout;
use crate::format::manifest::{Manifest, ShardRecord};
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::store::{GenerationId, PendingGeneration, Store, StoreWriter};

/// Bytes that end with their own CRC-32. A CRC-32 of a text around them depends only on their length.
pub(crate) fn with_own_crc32(bytes: &[u8]) -> Vec<u8> {
    [bytes, &crc32fast::hash(bytes).to_le_bytes()].concat()
}

/// A new temporary directory, removed on drop.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        TempDir::new_in(&std::env::temp_dir())
    }

    /// In a file system in memory if there is one, for tests that check what is requested of a disk, not the disk.
    pub(crate) fn in_memory() -> TempDir {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }
    }

    pub(crate) fn new_in(parent: &Path) -> TempDir {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let parent = parent.canonicalize().unwrap();
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("sharddb-test-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                // of a killed process that had this id, or of a live one in another container
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => {
                    created.unwrap();
                    return TempDir(path);
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the names in it, ascending.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.0)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn id(number: u64) -> GenerationId {
    GenerationId::new(number).unwrap()
}

/// The info and the shards of a small data set. Samples differ only in their `version`.
pub(super) struct Sample {
    pub(super) info: Vec<u8>,
    pub(super) manifest: Manifest,
    shards: Vec<(String, Vec<u8>)>,
}

impl Sample {
    pub(super) fn new(version: u64) -> Sample {
        let sharding = ShardingSpec::new(HashFunction::Identity, 0, 1, 5).unwrap();
        let info = format!("{{\"version\": {version}, \"sharding\": {sharding}}}").into_bytes();
        let mut shards = Vec::new();
        let mut records = Vec::new();
        for number in [3, 0x1c].map(ShardNumber) {
            let bytes = format!("shard {} of version {version}", number.0).into_bytes();
            records.push(ShardRecord::from_row((number.0, bytes.len() as u64, 2, crc32fast::hash(&bytes), 0)));
            shards.push((sharding.shard_file_name(number), bytes));
        }
        let info_crc32 = crc32fast::hash(&info);
        let layout = Layout::default();
        let manifest = Manifest {
            sharding,
            nested: None,
            info_crc32,
            info_digest: None,
            layout,
            keys: 4,
            value_bytes: 0,
            auxiliary: Vec::new(),
            shards: records,
        };
        Sample { info, manifest, shards }
    }

    pub(super) fn write_shards(&self, directory: &Path) {
        for (name, bytes) in &self.shards {
            fs::write(directory.join(name), bytes).unwrap();
        }
    }

    /// Writes a complete generation, as if built outside of a store.
    pub(super) fn write_all(&self, directory: &Path) {
        self.write_shards(directory);
        fs::write(directory.join("info"), &self.info).unwrap();
        fs::write(directory.join("manifest.json"), self.manifest.to_json()).unwrap();
    }

    pub(super) fn begin(&self, writer: &StoreWriter) -> PendingGeneration {
        let pending = writer.begin(None).unwrap();
        self.write_shards(pending.path());
        pending
    }

    pub(super) fn publish(&self, writer: &StoreWriter) -> GenerationId {
        publish(self.begin(writer), &self.info, &self.manifest).unwrap()
    }
}

pub(super) fn publish(pending: PendingGeneration, info: &[u8], manifest: &Manifest) -> Result<GenerationId> {
    pending.complete(info, manifest)?.publish()
}

/// Returns the version of the sample in a directory. Panics unless every byte of it is right.
pub(super) fn version_of(generation: &Path) -> u64 {
    let info = fs::read(generation.join("info")).unwrap();
    let version = (1..100).find(|version| Sample::new(*version).info == info).expect("an info of a sample");
    let sample = Sample::new(version);
    assert_eq!(Manifest::parse(&fs::read(generation.join("manifest.json")).unwrap()).unwrap(), sample.manifest);
    assert_eq!(fs::read(generation.join("lease")).unwrap(), b"");
    assert_eq!(names(generation), ["03.shard", "1c.shard", "info", "lease", "manifest.json"]);
    for (name, bytes) in &sample.shards {
        assert_eq!(&fs::read(generation.join(name)).unwrap(), bytes, "{name}");
    }
    for name in names(generation) {
        assert!(generation.join(&name).metadata().unwrap().permissions().readonly(), "{name}");
    }
    version
}

/// Creates a store with the generations 1 to `n`, the last of which is current. Generation i has sample i.
pub(super) fn store_of(directory: &Path, n: u64) -> Store {
    let store = Store::create(directory).unwrap();
    let writer = store.writer().unwrap();
    for version in 1..=n {
        assert_eq!(Sample::new(version).publish(&writer), id(version));
    }
    store
}

/// Returns the numbers of the generations in a store.
pub(super) fn numbers(store: &Store) -> Vec<u64> {
    store.generations().unwrap().iter().map(|generation| generation.id.get()).collect()
}
