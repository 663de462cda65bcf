//! `/TOKEN/api/..`: lookups and descriptions as JSON. See docs/serve.md.

mod get_many;
mod info;
mod keys;
mod list;
mod locate;
mod stats;

use sharddb::container::Form;

use crate::key::Key;
use crate::serve::answer::{Answer, BYTES, Representation, Source};
use crate::serve::app::App;
use crate::serve::database::{self, Database};
use crate::serve::problem::{Problem, Result};
use crate::serve::request::Request;

pub(crate) use list::layer;

/// What is wanted of a database.
enum Operation {
    Info,
    Stats,
    Keys,
    GetMany,
    Get(String),
    Locate(String),
}

/// Splits the names after `api` into those of the database and the operation.
fn operation(names: &[String]) -> Option<(&[String], Operation)> {
    let (last, database) = names.split_last()?;
    let operation = match last.as_str() {
        "info" => Operation::Info,
        "stats" => Operation::Stats,
        "keys" => Operation::Keys,
        "get-many" => Operation::GetMany,
        key => {
            let (verb, database) = database.split_last()?;
            return match verb.as_str() {
                "get" => Some((database, Operation::Get(key.to_string()))),
                "locate" => Some((database, Operation::Locate(key.to_string()))),
                _ => None,
            };
        }
    };
    Some((database, operation))
}

/// The database that a path of the API is about, for its counters.
pub(crate) fn database_of(names: &[String]) -> Option<&[String]> {
    operation(names).map(|(database, _)| database)
}

/// Whether a path of the API is about one key, so that its answer is a lookup.
pub(crate) fn is_lookup(names: &[String]) -> bool {
    matches!(operation(names), Some((_, Operation::Get(_) | Operation::Locate(_))))
}

/// Answers a request of the API.
///
/// Errors: `not-found`, `invalid-input`, and those of the lookup.
pub(crate) fn answer(app: &App, request: &Request) -> Result<Answer> {
    let operation = operation(&request.names);
    if request.is_post && !matches!(operation, Some((_, Operation::GetMany))) {
        return Err(Problem::method());
    }
    if request.names.is_empty() {
        return Ok(Answer::json(&list::json(app)));
    }
    let (names, operation) = operation.ok_or_else(Problem::nothing_here)?;
    let database = app.databases.get(names, request.query.generation()?)?;
    match operation {
        Operation::Info => Ok(Answer::json(&info::json(app, &database)?)),
        Operation::Stats => Ok(Answer::json(&stats::json(&database)?)),
        Operation::Keys => keys::answer(&database, &request.query),
        Operation::GetMany => get_many::answer(&database, request),
        Operation::Get(key) => get(app, &database, parse_key(&key)?, request),
        Operation::Locate(key) => Ok(Answer::json(&locate::json(&database, parse_key(&key)?)?)),
    }
}

/// Parses a key: decimal or 0x hex.
fn parse_key(text: &str) -> Result<u64> {
    text.parse::<Key>().map(|key| key.0).map_err(Problem::invalid)
}

/// Answers with the decoded bytes of a value or a chunk.
fn get(app: &App, database: &Database, key: u64, request: &Request) -> Result<Answer> {
    let representation = match &database.source {
        database::Source::Sharded(_) => app.value(&*database.pinned()?, key)?,
        database::Source::Container(container) => match container.get(key, Form::Decoded)? {
            None => None,
            Some(chunk) => {
                let share = app.share(chunk.len() as u64)?;
                let source = Source::Memory(bytes::Bytes::from_owner(chunk.into_owned()), share);
                let tag = app.chunk_tag(&**container, key).part(key);
                Some(Representation { tag, content_type: BYTES, source })
            }
        },
    };
    let representation = representation.ok_or_else(|| Problem::not_found(format!("key {key} is absent")))?;
    Ok(Answer::of(representation, &request.headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_follows_the_database() {
        let names = |path: &str| -> Vec<String> { path.split('/').map(str::to_string).collect() };
        for (path, database) in [
            ("a/info", Some("a")),
            ("a/b/stats", Some("a/b")),
            ("a/get/5", Some("a")),
            ("get/get/5", Some("get")),
            ("a/locate/0x5", Some("a")),
            ("a/get-many", Some("a")),
            ("a/get/info", Some("a/get")),
            ("a/other/5", None),
            ("a", None),
        ] {
            let names = names(path);
            assert_eq!(database_of(&names).map(|names| names.join("/")).as_deref(), database, "{path}");
        }
    }
}
