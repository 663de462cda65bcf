//! `/TOKEN/api/..`: lookups and descriptions as JSON. See docs/serve.md.

mod get_many;
mod info;
mod keys;
mod list;
mod locate;
mod stats;

use sharddb::internal::key::Key;
use sharddb_container::Form;

use crate::answer::Answer;
use crate::app::App;
use crate::database::{self, Database};
use crate::disk_calls::Cost;
use crate::problem::{Problem, Result};
use crate::request::{Query, Request};

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

/// Whether a path of the API is one for POST.
pub(crate) fn takes_body(names: &[String]) -> bool {
    matches!(operation(names), Some((_, Operation::GetMany)))
}

/// What answering a request may take.
pub(crate) fn cost(names: &[String], query: &Query) -> Cost {
    match operation(names) {
        Some((_, Operation::Get(_) | Operation::Locate(_))) => Cost::Lookup,
        Some((_, Operation::Keys)) if query.get("range").is_none() => Cost::Some,
        Some((_, Operation::GetMany)) => Cost::Some,
        Some(_) => Cost::Long,
        None if names.is_empty() => Cost::List,
        None => Cost::Some, // nothing is there
    }
}

/// Answers a request of the API.
///
/// Errors: `not-found`, `invalid-input`, and those of the lookup.
pub(crate) fn answer(app: &App, request: &Request) -> Result<Answer> {
    let budget = &app.budget;
    if request.names.is_empty() {
        return Answer::json(&list::json(app, &request.is_gone)?, budget);
    }
    let (names, operation) = operation(&request.names).ok_or_else(Problem::nothing_here)?;
    let database = app.databases.get(names, request.query.generation()?)?;
    match operation {
        Operation::Info => info::answer(app, &database),
        Operation::Stats => Answer::json(&stats::json(app, &database)?, budget),
        Operation::Keys => keys::answer(&database, &request.query, budget),
        Operation::GetMany => get_many::answer(&database, request, budget),
        Operation::Get(key) => get(app, &database, parse_key(&key)?, request),
        Operation::Locate(key) => Answer::json(&locate::json(&database, parse_key(&key)?, budget)?, budget),
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
        database::Source::Container(chunks) => app.chunk(database, chunks, key, Form::Decoded)?,
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
