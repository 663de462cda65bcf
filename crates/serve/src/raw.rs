//! `/TOKEN/raw/..`: files as they are, for clients of the format.

use axum::http::HeaderMap;

use crate::answer::{Answer, BYTES, JSON, Representation, Source};
use crate::databases::Databases;
use crate::file_tag::file_tag;
use crate::problem::{Problem, Result};
use crate::tree::Place;

/// Answers with a file. The path of a store is its current generation, resolved once for this request.
///
/// Errors: `not-found`; `io`.
pub(crate) fn answer(databases: &Databases, names: &[String], headers: &HeaderMap) -> Result<Answer> {
    // `gc` may remove the generation between the two steps; then there is a newer one
    let opened = open(databases, names)?.map_or_else(|| open(databases, names), |opened| Ok(Some(opened)))?;
    let representation = opened.ok_or_else(Problem::nothing_here)?;
    Ok(Answer::of(representation, headers))
}

fn open(databases: &Databases, names: &[String]) -> Result<Option<Representation>> {
    let Some(place) = databases.tree().resolve(names) else { return Ok(None) };
    represent(databases, &place, names.last().map_or("", String::as_str))
}

/// Opens the file at a place.
fn represent(databases: &Databases, place: &Place, name: &str) -> Result<Option<Representation>> {
    // before the file is opened: an old tag of new bytes costs the client one more request
    let of_generation = place.generation_path().map(|generation| databases.generation_tag(&generation)).transpose()?;
    let opened = place.open().map_err(|error| Problem::io("open", &place.path(), &error))?;
    let Some(file) = opened else { return Ok(None) };
    let metadata = file.metadata().map_err(|error| Problem::io("read", &place.path(), &error))?;
    let tag = of_generation.flatten().unwrap_or_else(|| file_tag(&metadata));
    let source = Source::File(file, 0..metadata.len());
    Ok(Some(Representation { tag, content_type: content_type(name), source }))
}

/// JSON for people who open the URL; other files are bytes, so that a browser runs nothing of them.
fn content_type(name: &str) -> &'static str {
    if name == "info" || name.ends_with(".json") { JSON } else { BYTES }
}
