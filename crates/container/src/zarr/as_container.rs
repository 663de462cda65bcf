//! The [`Container`] of a Zarr array: inner chunks by number.

use sharddb::Value;
use sharddb::internal::{progress_of, value_location};
use sharddb::shard::ValueLocation;
use sharddb::verify::{VerifyLevel, VerifyReport};
use sharddb_format::internal::json;
use sharddb_format::{Error, ErrorKind, Result};

use crate::zarr::array::ZarrArray;
use crate::zarr::keys::ZarrKeys;
use crate::zarr::metadata::{INFO_MEMBER, json_list};
use crate::zarr::verify::verify;
use crate::{Container, Form, KeySpace, VerifyOptions, sealed};

impl sealed::Sealed for ZarrArray {}

impl Container for ZarrArray {
    fn get(&self, key: u64, form: Form) -> Result<Option<Value<'_>>> {
        let value = match form {
            Form::Encoded => self.encoded(key),
            Form::Decoded => self.decoded(key),
        };
        value.map_err(|error| error.at_key(key))
    }

    fn locate(&self, key: u64) -> Result<Option<ValueLocation>> {
        let Some((shard, range)) = self.find(key).map_err(|error| error.at_key(key))? else { return Ok(None) };
        if shard.is_wrapped() {
            let message = "expected a chunk that is a range of a file, found a shard that is compressed as a whole";
            return Err(Error::new(ErrorKind::Unsupported, message).at_path(shard.path()).at_key(key));
        }
        Ok(Some(value_location(shard.path().to_path_buf(), range)))
    }

    fn keys(&self) -> Box<dyn Iterator<Item = Result<u64>> + '_> {
        match self.shard_numbers() {
            Ok(numbers) => Box::new(ZarrKeys::new(self, numbers)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn key_space(&self) -> KeySpace {
        KeySpace::Linear { grid: self.metadata().chunk_grid() }
    }

    /// Describes the array by members of `zarr.json`, and by the shapes of shards, chunks and grid.
    fn describe(&self) -> String {
        let text = |name: &str| self.metadata().member(name).map_or("null", |value| value.get()).to_string();
        let shards =
            if self.metadata().is_sharded() { json_list(self.metadata().shard_shape()) } else { "null".to_string() };
        let members = [
            ("format", json::quote("zarr_v3")),
            ("shape", json_list(self.metadata().shape())),
            ("data_type", text("data_type")),
            ("shard_shape", shards),
            ("chunk_shape", json_list(self.metadata().chunk_shape())),
            ("grid", json_list(&self.metadata().chunk_grid())),
            ("key_space", json::quote(&self.key_space().to_string())),
            ("fill_value", text("fill_value")),
            ("codecs", text("codecs")),
            ("dimension_names", text("dimension_names")),
            ("attributes", text("attributes")),
        ];
        let members: Vec<_> = members.iter().map(|(name, value)| format!("{}: {value}", json::quote(name))).collect();
        format!("{{{}}}", members.join(", "))
    }

    fn verify_with(&self, level: VerifyLevel, options: &VerifyOptions) -> Result<VerifyReport> {
        verify(self, level, progress_of(options))
    }

    fn preserved(&self) -> Result<Option<(&'static str, String)>> {
        Ok(Some((INFO_MEMBER, self.metadata().to_json().to_string())))
    }

    fn fill_chunk(&self, key: u64) -> Result<Option<Value<'_>>> {
        if self.metadata().grid.place(key).is_none() {
            return Ok(None);
        }
        let (shape, cap) = (self.metadata().chunk_shape(), self.options.max_chunk_bytes);
        self.metadata().elements.filled(shape, cap).map(|bytes| Some(Value::from(bytes)))
    }
}
