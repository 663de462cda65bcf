//! `/TOKEN/objects/..`: the data sets as unsharded ones, with one URL per object. ShardDb looks the objects up.

mod annotations;
mod arrays;
mod meshes;
mod volumes;

use axum::http::HeaderMap;
use serde_json::Value;

use crate::answer::{Answer, JSON, Representation, Source};
use crate::app::App;
use crate::budget::Budget;
use crate::catalog::without_sharding;
use crate::database::{Database, Pinned};
use crate::document::Document;
use crate::entity_tag::EntityTag;
use crate::file_tag::file_tag;
use crate::problem::{Problem, Result};
use crate::raw;
use crate::request::Request;

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
    if let Some(database) = app.databases.find(directory, None)? {
        return object(app, &database, name, &request.headers);
    }
    if name.ends_with(".shard") {
        Err(Problem::nothing_here())
    } else {
        raw::answer(&app.databases, &request.names, &request.headers)
    }
}

/// Answers with the `info` of a directory, without the members that describe shards.
fn info(app: &App, directory: &[String], headers: &HeaderMap) -> Result<Answer> {
    let place = app.databases.tree().resolve(directory).ok_or_else(Problem::nothing_here)?;
    let generation = place.generation_path().map(|path| app.databases.generation_tag(&path)).transpose()?;
    let (info, metadata) = Document::read(&place.join("info"), &app.budget)?;
    let tag = generation.flatten().unwrap_or_else(|| file_tag(&metadata));
    json(&tag, &without_sharding(info.value), headers, &app.budget)
}

/// Answers with JSON that is made of a file with this tag.
///
/// Errors: `busy`, `too-large`.
fn json(tag: &EntityTag, value: &Value, headers: &HeaderMap, budget: &Budget) -> Result<Answer> {
    let source = Source::of_text(value, budget)?;
    Ok(Answer::of(Representation { tag: tag.part("objects"), content_type: JSON, source }, headers))
}

/// Answers with one object of a database.
fn object(app: &App, database: &Database, name: &str, headers: &HeaderMap) -> Result<Answer> {
    let pinned = database.pinned()?;
    let key_of = match pinned.data_type {
        Some("multires_mesh") => return meshes::answer(app, &pinned, name, headers),
        Some("volume") => volumes::key,
        Some("annotations") => annotations::key,
        _ => return value(app, &pinned, decimal(name), headers),
    };
    let info = pinned.info(&app.budget)?;
    let described = info.value.pointer(pinned.snapshot.sharding_at()).unwrap_or(&info.value);
    value(app, &pinned, key_of(described, name), headers)
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
