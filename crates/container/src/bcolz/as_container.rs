//! The [`Container`] of a bcolz array: chunks by number.

use serde_json::{Map, Value as Json, json};
use sharddb::Value;
use sharddb::internal::fs::entry;
use sharddb::internal::{progress_of, report_of_files, value_location, value_of};
use sharddb::shard::ValueLocation;
use sharddb::verify::{VerifyLevel, VerifyReport};
use sharddb_format::internal::json;
use sharddb_format::{Error, Result};

use crate::bcolz::array::BcolzArray;
use crate::bcolz::chunks::{Chunks, Part};
use crate::bcolz::meta::{ARRAY_MEMBER, read_text};
use crate::{Container, Form, KeySpace, VerifyOptions, sealed};

impl sealed::Sealed for BcolzArray {}

impl Container for BcolzArray {
    fn get(&self, key: u64, form: Form) -> Result<Option<Value<'_>>> {
        if form == Form::Decoded {
            return Ok(self.decoded(key)?.map(Value::from));
        }
        let Some(place) = self.find(key)? else { return Ok(None) };
        let stored = place.file.stored(place.number).map_err(|error| error.at_key(key))?;
        Ok(stored.map(|chunk| value_of(chunk.bytes)))
    }

    fn locate(&self, key: u64) -> Result<Option<ValueLocation>> {
        let Some(place) = self.find(key)? else { return Ok(None) };
        let located = place.file.find_chunk(place.number).map_err(|error| error.at_key(key))?;
        Ok(located.map(|(range, _)| value_location(place.file.path().to_path_buf(), range)))
    }

    fn keys(&self) -> Box<dyn Iterator<Item = Result<u64>> + '_> {
        let Chunks::Shipped(files) = &self.chunks else { return Box::new((0..self.nchunks()).map(Ok)) };
        // bounded by the files, not by what the meta files state
        let there = || files.numbers().take_while(|key| *key < self.nchunks());
        let count = there().count() as u64;
        let missing = (count < self.nchunks()).then(|| {
            let message = format!("expected {} chunks, found files for {count} of them", self.nchunks());
            Err(Error::corrupt(message).at_path(&self.data))
        });
        Box::new(there().map(Ok).chain(missing))
    }

    fn key_space(&self) -> KeySpace {
        KeySpace::Linear { grid: vec![self.nchunks()] }
    }

    fn describe(&self) -> String {
        let shape: Vec<_> = self.shape().iter().map(u64::to_string).collect();
        format!(
            "{{\"format\": \"bcolz\", \"layout\": {}, \"keys\": {}, \"key_space\": {}, \"dtype\": {}, \"shape\": [{}], \
             \"chunk_rows\": {}, \"endianness\": {}, \"order\": {}, \"storage\": {}}}",
            json::quote(self.layout.as_str()),
            self.nchunks(),
            json::quote(&self.key_space().to_string()),
            json::quote(self.dtype()),
            shape.join(", "),
            self.chunk_rows,
            json::quote(self.byte_order.as_str()),
            json::quote(self.order.as_str()),
            Json::Object(self.own_storage()),
        )
    }

    fn verify_with(&self, level: VerifyLevel, options: &VerifyOptions) -> Result<VerifyReport> {
        let mut report = report_of_files(level);
        self.verify_into(&mut report, progress_of(options))?;
        Ok(report)
    }

    fn preserved(&self) -> Result<Option<(&'static str, String)>> {
        Ok(Some((ARRAY_MEMBER, preserved_array(self)?)))
    }
}

impl BcolzArray {
    /// Returns the members of `meta/storage` without the types of a table's columns, which each column would repeat.
    fn own_storage(&self) -> Map<String, Json> {
        let members = self.storage.members().iter();
        let own = members.filter(|(name, value)| *name != "dtype" || !value.is_object());
        own.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// Returns what an export needs besides the chunks: all meta files, and the number of chunks of each superchunk.
fn preserved_array(array: &BcolzArray) -> Result<String> {
    let mut storage = array.storage.members().clone();
    let mut sizes = array.sizes.file.members().clone();
    let mut files = Vec::new();
    if let Chunks::Superchunks(superchunks) = &array.chunks {
        // describes the column alone, not its table
        storage.insert("dtype".to_string(), Json::from(array.dtype()));
        sizes.insert("shape".to_string(), Json::from(array.shape()));
        sizes.insert("nbytes".to_string(), Json::from(array.rows.saturating_mul(array.row_len)));
        // only visible chunks are imported
        let nchunks = |part: &Part| array.nchunks().saturating_sub(part.first_key).min(part.file.len());
        let parts = superchunks.parts().iter().filter(|part| nchunks(part) > 0);
        let checksum = |part: &Part| part.file.header().checksum().as_str();
        files = parts.map(|part| json!({"nchunks": nchunks(part), "checksum": checksum(part)})).collect();
    }
    // the text, which is written back: as JSON, NaN would be a string, and long numbers would be rounded
    array.attributes()?;
    let path = array.attributes_path();
    let attributes = if entry::exists(&path)? { Json::from(read_text(&path)?) } else { json!({}) };
    Ok(json!({
        "layout": array.layout.as_str(), "storage": storage, "sizes": sizes, "attributes": attributes, "superchunks": files,
    })
    .to_string())
}
