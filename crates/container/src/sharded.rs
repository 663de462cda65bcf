//! ShardDb's own data sets as a [`Container`]: a thin wrapper of [`Snapshot`].

use std::fs::File;
use std::io::Read;

use serde_json::value::RawValue;
use sharddb::shard::ValueLocation;
use sharddb::verify::{VerifyLevel, VerifyReport};
use sharddb::{Snapshot, Value};
use sharddb_format::Result;
use sharddb_format::internal::spec::Encoding;
use sharddb_format::internal::{info, json};

use crate::{Container, Form, KeySpace, VerifyOptions, sealed};

impl sealed::Sealed for Snapshot {}

impl Container for Snapshot {
    #[inline]
    fn get(&self, key: u64, form: Form) -> Result<Option<Value<'_>>> {
        match (form, self.spec().data_encoding()) {
            // raw values are stored as they are: the lookup's fast path applies
            (Form::Decoded, _) | (Form::Encoded, Encoding::Raw) => Snapshot::get(self, key),
            (Form::Encoded, Encoding::Gzip) => self.get_encoded(key),
        }
    }

    fn locate(&self, key: u64) -> Result<Option<ValueLocation>> {
        Snapshot::locate(self, key)
    }

    fn keys(&self) -> Box<dyn Iterator<Item = Result<u64>> + '_> {
        Box::new(Snapshot::keys(self))
    }

    /// Returns `Morton` for a scale of a precomputed volume, `Opaque` otherwise.
    fn key_space(&self) -> KeySpace {
        volume_grid(self).map_or(KeySpace::Opaque, |grid| KeySpace::Morton { grid })
    }

    fn describe(&self) -> String {
        let keys = self.key_count().map_or("null".to_string(), |keys| keys.to_string());
        let generation = self.generation().map_or("null".to_string(), |id| json::quote(&id.to_string()));
        format!(
            "{{\"format\": \"neuroglancer_uint64_sharded_v1\", \"generation\": {generation}, \"keys\": {keys}, \
             \"key_space\": {}, \"sharding\": {}}}",
            json::quote(&self.key_space().to_string()),
            self.spec().to_json()
        )
    }

    fn verify_with(&self, level: VerifyLevel, options: &VerifyOptions) -> Result<VerifyReport> {
        Snapshot::verify_with(self, level, options)
    }
}

/// Returns the number of chunks along x, y and z if the shards are a scale of a precomputed volume.
fn volume_grid(snapshot: &Snapshot) -> Option<Vec<u64>> {
    let mut bytes = Vec::new();
    File::open(snapshot.directory().join(info::FILE_NAME)).ok()?.take(info::MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let scales = json::elements(json::pointer(json::parse(&bytes).ok()?, "/scales").ok()??)?;
    scales.iter().filter_map(|scale| json::members(scale)).find_map(|scale| {
        let key = json::string(json::member(&scale, "key").ok()??)?;
        (snapshot.directory().join(key) == snapshot.shards_directory()).then(|| grid_of_scale(&scale)).flatten()
    })
}

fn grid_of_scale(scale: &[(String, &RawValue)]) -> Option<Vec<u64>> {
    let size = numbers(json::member(scale, "size").ok()??)?;
    let chunk_sizes = json::elements(json::member(scale, "chunk_sizes").ok()??)?;
    let [chunk_size] = chunk_sizes.as_slice() else { return None };
    let chunk_size = numbers(chunk_size)?;
    let fits = size.len() == chunk_size.len() && !chunk_size.contains(&0);
    fits.then(|| size.iter().zip(&chunk_size).map(|(size, chunk)| size.div_ceil(*chunk)).collect())
}

fn numbers(value: &RawValue) -> Option<Vec<u64>> {
    json::elements(value)?.iter().map(|element| element.get().parse().ok()).collect()
}
