//! Chunks of Zarr arrays, as an array without shards, and of bcolz arrays and bloscpack files, by their number.

use std::io;

use axum::http::HeaderMap;
use serde_json::{Value, json as value};
use sharddb_container::Form;

use super::{decimal, json};
use crate::answer::Answer;
use crate::app::App;
use crate::chunks::Chunks;
use crate::database::Source as Opened;
use crate::document::Document;
use crate::file_tag::file_tag;
use crate::problem::{Problem, Result};
use crate::tree::Place;

/// Answers with the `zarr.json` of the array without shards: its chunks are the inner chunks.
///
/// Errors: `unsupported` if the shards are encoded as a whole, or nested.
pub(super) fn metadata(app: &App, directory: &[String], headers: &HeaderMap) -> Result<Answer> {
    let place = app.databases.tree().resolve(directory).ok_or_else(Problem::nothing_here)?;
    let (metadata, file) = Document::read(&place.join("zarr.json"), &app.budget)?;
    json(&file_tag(&file), &without_shards(metadata.value)?, headers, &app.budget)
}

/// Replaces the sharding codec by the codecs inside it. An array without shards and a group stay as they are.
fn without_shards(mut metadata: Value) -> Result<Value> {
    let codecs = metadata.get("codecs").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_sharding = |codec: &Value| codec.get("name") == Some(&"sharding_indexed".into());
    if !codecs.iter().any(is_sharding) {
        return Ok(metadata);
    }
    let unsupported =
        || Problem::unsupported("expected shards whose only codec is sharding_indexed, found others: use /raw/");
    let [sharding] = codecs.as_slice() else { return Err(unsupported()) };
    let configuration = sharding.get("configuration").ok_or_else(unsupported)?;
    let inner = configuration.get("codecs").and_then(Value::as_array).ok_or_else(unsupported)?;
    let chunk_shape = configuration.get("chunk_shape").ok_or_else(unsupported)?;
    if inner.iter().any(is_sharding) {
        return Err(unsupported());
    }
    let (grid, codecs) = (value!({"name": "regular", "configuration": {"chunk_shape": chunk_shape}}), inner.clone());
    let Value::Object(members) = &mut metadata else { return Err(unsupported()) };
    members.insert("chunk_grid".to_string(), grid);
    members.insert("codecs".to_string(), Value::Array(codecs));
    Ok(metadata)
}

/// Answers with the stored bytes of a chunk of a container above the path; `None` if there is none.
///
/// Errors: `not-found` for a name that is no chunk, or an absent one.
pub(super) fn chunk_of(app: &App, names: &[String], headers: &HeaderMap) -> Result<Option<Answer>> {
    let tree = app.databases.tree();
    let above = (0..names.len()).rev().map(|len| names.split_at(len));
    for (array, name) in above {
        let Some(place) = tree.resolve(array) else { continue };
        if !may_be_container(&place).map_err(|error| Problem::io("find", &place.path(), &error))? {
            continue;
        }
        let Some(database) = app.databases.find(array, None)? else { continue };
        let Opened::Container(chunks) = &database.source else { continue };
        let key = match (chunks, name) {
            (Chunks::Zarr(array), name) => array.key_of(name),
            (_, [number]) => decimal(number),
            _ => None,
        };
        let key = key.ok_or_else(Problem::nothing_here)?;
        let absent = || Problem::not_found(format!("the array has no chunk {key}"));
        let chunk = app.chunk(&database, chunks, key, Form::Encoded)?.ok_or_else(absent)?;
        return Ok(Some(Answer::of(chunk, headers)));
    }
    Ok(None)
}

/// Whether a container may be at a place, for a cheap test before the whole one.
fn may_be_container(place: &Place) -> io::Result<bool> {
    let has = |name: &str| place.join(name).metadata().map(|found| found.is_some());
    Ok(has("zarr.json")? || has("meta")? || place.metadata()?.is_some_and(|found| found.is_file()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Value, without_shards};

    fn sharded(codecs: &Value) -> Value {
        json!({"zarr_format": 3, "shape": [8], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}, "codecs": codecs})
    }

    #[test]
    fn the_chunks_of_shards_become_those_of_the_array() {
        let inner = json!([{"name": "bytes"}, {"name": "crc32c"}]);
        let configuration = json!({"chunk_shape": [2], "codecs": inner, "index_codecs": []});
        let metadata = sharded(&json!([{"name": "sharding_indexed", "configuration": configuration}]));
        let plain = without_shards(metadata).unwrap();
        assert_eq!(plain["chunk_grid"]["configuration"]["chunk_shape"], json!([2]));
        assert_eq!(plain["codecs"], inner);
        assert_eq!(without_shards(plain.clone()).unwrap(), plain);
    }

    #[test]
    fn shards_in_another_codec_or_in_shards_are_refused() {
        let shards = |codecs: Value| json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [2], "codecs": codecs}});
        for codecs in [
            json!([{"name": "transpose"}, shards(json!([]))]),
            json!([shards(json!([shards(json!([]))]))]),
            json!([{"name": "sharding_indexed"}]),
        ] {
            assert_eq!(without_shards(sharded(&codecs)).unwrap_err().status.as_u16(), 501, "{codecs}");
        }
    }
}
