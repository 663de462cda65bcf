//! Small generations for the tests of the store.

use crate::ids::shard_number;
use std::fs;
use std::path::Path;

use crate::common::generations::names;
use crate::error::Result;
use crate::format::hash::HashFunction;
use crate::format::layout::Layout;
use crate::format::manifest::{Manifest, ShardRecord};
use crate::format::spec::ShardingSpec;
use crate::store::{GenerationId, PendingGeneration, Store, StoreWriter};

pub(crate) fn id(number: u64) -> GenerationId {
    GenerationId::new(number).unwrap()
}

/// The info and the shards of a small data set. Samples differ only in their `version`.
pub(super) struct Sample {
    pub(super) info: Vec<u8>,
    pub(super) manifest: Manifest,
    pub(super) shards: Vec<(String, Vec<u8>)>,
}

impl Sample {
    pub(super) fn new(version: u64) -> Sample {
        let sharding = ShardingSpec::new(HashFunction::Identity, 0, 1, 5).unwrap();
        let info = format!("{{\"version\": {version}, \"sharding\": {sharding}}}").into_bytes();
        let mut shards = Vec::new();
        let mut records = Vec::new();
        for number in [3, 0x1c].map(shard_number) {
            let bytes = format!("shard {} of version {version}", number.get()).into_bytes();
            records.push(ShardRecord::from_row((number.get(), bytes.len() as u64, 2, crc32fast::hash(&bytes), 0)));
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
