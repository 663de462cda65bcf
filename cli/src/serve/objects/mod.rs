//! `/TOKEN/objects/..`: the data sets as unsharded ones, with one URL per object. ShardDb looks the objects up.

mod annotations;
mod arrays;
mod meshes;
mod volumes;

use axum::http::HeaderMap;
use serde_json::Value;
use sharddb::Snapshot;

use crate::serve::answer::{Answer, BYTES, JSON, Representation, Source};
use crate::serve::app::App;
use crate::serve::catalog::{type_of, without_sharding};
use crate::serve::database::{Database, Pinned};
use crate::serve::file_tag::file_tag;
use crate::serve::problem::{Problem, Result};
use crate::serve::request::Request;
use crate::serve::tree::Place;
use crate::serve::{catalog, raw};

/// Answers with an `info` without sharding, an object, or a plain file that is no shard.
///
/// Errors: `not-found` also for a name that no object can have; those of the lookup.
pub(crate) fn answer(app: &App, request: &Request) -> Result<Answer> {
    let Some((name, directory)) = request.names.split_last() else { return Err(Problem::nothing_here()) };
    match name.as_str() {
        "info" => return info(app, directory, &request.headers),
        "zarr.json" => return arrays::metadata(app, directory, &request.headers),
        _ => {}
    }
    if let Some(chunk) = arrays::chunk_of(app, &request.names, &request.headers)? {
        return Ok(chunk);
    }
    if app.databases.find(directory, None)?.is_some() {
        let database = app.databases.get(directory, None)?;
        return object(app, &database, name, &request.headers);
    }
    match name.ends_with(".shard") {
        true => Err(Problem::nothing_here()),
        false => raw::answer(&app.databases, &request.names, &request.headers),
    }
}

/// Answers with the `info` of a directory, without the members that describe shards.
fn info(app: &App, directory: &[String], headers: &HeaderMap) -> Result<Answer> {
    let place = app.databases.tree().resolve(directory).ok_or_else(Problem::nothing_here)?;
    let info = read(&place.join("info"))?.ok_or_else(Problem::nothing_here)?;
    let generation = place.generation_path().and_then(|path| app.databases.generation_tag(&path));
    let tag = generation.unwrap_or_else(|| {
        let file = place.join("info").open().ok().flatten();
        file_tag(file.and_then(|file| file.metadata().ok()).as_ref())
    });
    let source = Source::Memory(without_sharding(info).to_string().into(), None);
    Ok(Answer::of(Representation { tag: tag.part("objects"), content_type: JSON, source }, headers))
}

/// Reads a file of JSON; `None` if there is none.
///
/// Errors: `io`.
fn read(place: &Place) -> Result<Option<Value>> {
    catalog::read_json(place).map_err(|error| Problem::io("read", &place.path(), &error))
}

/// Answers with one object of a database.
fn object(app: &App, database: &Database, name: &str, headers: &HeaderMap) -> Result<Answer> {
    let pinned = database.pinned()?;
    let snapshot = &pinned.snapshot;
    // of this generation, also if another one becomes current meanwhile
    let info = info_of(snapshot).unwrap_or_default();
    let described = info.pointer(snapshot.sharding_at()).unwrap_or(&info);
    match type_of(&info) {
        Some("multires_mesh") => meshes::answer(app, &pinned, name, headers),
        Some("volume") => value(app, &pinned, volumes::key(described, name), headers),
        Some("annotations") => value(app, &pinned, annotations::key(described, name), headers),
        _ => value(app, &pinned, decimal(name), headers),
    }
}

/// The `info` of a snapshot.
fn info_of(snapshot: &Snapshot) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(snapshot.directory().join("info")).ok()?).ok()
}

/// Answers with the value of a key; `None` is the key of a name that no object has.
fn value(app: &App, pinned: &Pinned, key: Option<u64>, headers: &HeaderMap) -> Result<Answer> {
    let key = key.ok_or_else(Problem::nothing_here)?;
    let representation = app.value(pinned, key)?.ok_or_else(|| absent(key))?;
    Ok(Answer::of(representation, headers))
}

fn absent(key: u64) -> Problem {
    Problem::not_found(format!("no object has the key {key}"))
}

/// Parses a decimal number as clients of the format write it: without a sign and without zeros at its beginning.
fn decimal(text: &str) -> Option<u64> {
    let number = text.parse::<u64>().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Bytes in memory as a representation.
fn bytes(tag: crate::serve::entity_tag::EntityTag, bytes: bytes::Bytes) -> Representation {
    Representation { tag, content_type: BYTES, source: Source::Memory(bytes, None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_one_name() {
        assert_eq!(decimal("0"), Some(0));
        assert_eq!(decimal("18446744073709551615"), Some(u64::MAX));
        for text in ["", "00", "01", "+1", "-1", "0x1", "18446744073709551616", "1.index", " 1"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }
}
