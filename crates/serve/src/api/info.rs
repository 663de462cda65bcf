//! `info`: what a database is, its generations and its shards.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};
use sharddb::Store;
use sharddb::internal::time_as_iso_8601;
use sharddb_container::Container;

use crate::answer::Answer;
use crate::app::App;
use crate::catalog::Kind;
use crate::database::{Database, Source};
use crate::problem::{Problem, Result};
use crate::shard_files::ShardFile;

/// Upper bound on the memory of the JSON of a shard.
const SHARD_BYTES: u64 = 1 << 10;

pub(super) fn answer(app: &App, database: &Database) -> Result<Answer> {
    match &database.source {
        Source::Sharded(_) => sharded(app, database),
        Source::Container(chunks) => {
            Answer::json(&chunks.with(|container| of_container(database, container))?, &app.budget)
        }
    }
}

fn sharded(app: &App, database: &Database) -> Result<Answer> {
    let pinned = database.pinned()?;
    let snapshot = &pinned.snapshot;
    let files = ShardFile::list(snapshot).map_err(|error| Problem::io("list", snapshot.shards_directory(), &error))?;
    let stats = snapshot.stats();
    let _shards = app.budget.reserve(files.len() as u64 * SHARD_BYTES)?;
    // counted only where no manifest states it
    let survey = if stats.keys.is_none() { Some(pinned.survey()?) } else { None };
    let survey = survey.filter(|survey| survey.is_complete());
    let shards: Vec<Value> = files
        .iter()
        .map(|file| json!({"number": file.number.get(), "file": file.name, "bytes": file.bytes, "keys": file.keys}))
        .collect();
    let (generations, current) = generations(app, database)?;
    let mut described = json!({
        "path": database.found.names.join("/"),
        "kind": database.found.kind.as_str(),
        "native": snapshot.layout().is_some(),
        "spec": parse(&snapshot.spec().to_json())?,
        "sharding_at": snapshot.sharding_at(),
        "generation": snapshot.generation().map(|id| id.to_string()),
        "current": current,
        "generations": generations,
        "keys": stats.keys.or(survey.as_ref().map(|survey| survey.keys)),
        "value_bytes": stats.value_bytes.or(survey.as_ref().map(|survey| survey.value_bytes)),
        "file_bytes": files.iter().map(|file| file.bytes).sum::<u64>(),
        "type": pinned.data_type,
    });
    // json! would copy them
    let (info, _share) = pinned.info(&app.budget)?.into_value();
    described["shards"] = shards.into();
    described["info"] = info;
    Answer::json(&described, &app.budget)
}

/// Parses JSON that the library wrote.
fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| Problem::internal(format!("expected JSON from the library: {error}")))
}

/// The store that a database is in; `None` outside of stores.
pub(super) fn store(database: &Database) -> Result<Option<Store>> {
    let is_in_store = matches!(database.found.kind, Kind::Store | Kind::Generation);
    Ok(database.found.place.store().filter(|_| is_in_store).map(Store::open).transpose()?)
}

/// The generations of a store, oldest first, and the name of the current one.
fn generations(app: &App, database: &Database) -> Result<(Vec<Value>, Option<String>)> {
    let Some(store) = store(database)? else { return Ok((Vec::new(), None)) };
    let current = store.current()?.map(|id| id.to_string());
    let mut listed = Vec::new();
    for stored in store.generations()? {
        let path = store.generation_path(stored.id);
        let totals = stored.is_complete.then(|| store.totals(stored.id).ok()).flatten();
        let state = match (stored.is_complete, stored.is_current) {
            (false, _) => "incomplete",
            (true, true) => "current",
            (true, false) => "kept",
        };
        let file = if stored.is_complete { path.join("manifest.json") } else { path.clone() };
        let modified = fs::metadata(file).and_then(|metadata| metadata.modified()).ok();
        listed.push(json!({
            "name": stored.id.to_string(),
            "number": stored.id.get(),
            "state": state,
            "modified": modified.map(time_as_iso_8601),
            "keys": totals.map(|totals| totals.keys),
            "bytes": bytes_below(&path).ok(),
            "tag": app.databases.generation_tag(&path)?.map(|tag| tag.quoted()),
        }));
    }
    Ok((listed, current))
}

/// Returns the sum of the lengths of all files below a directory. Keeps one directory open, however deep they are.
fn bytes_below(directory: &Path) -> io::Result<u64> {
    let (mut bytes, mut directories) = (0, vec![directory.to_path_buf()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() { directories.push(entry.path()) } else { bytes += metadata.len() }
        }
    }
    Ok(bytes)
}

/// A container is described by its metadata, which is the member `info`.
fn of_container(database: &Database, container: &dyn Container) -> Result<Value> {
    Ok(json!({
        "path": database.found.names.join("/"),
        "kind": database.found.kind.as_str(),
        "native": false,
        "spec": null,
        "sharding_at": "",
        "generation": null,
        "current": null,
        "generations": [],
        "keys": null,
        "value_bytes": null,
        "file_bytes": null,
        "shards": [],
        "type": (database.found.kind != Kind::Bloscpack).then_some(database.found.kind.as_str()),
        "info": parse(&container.describe())?,
    }))
}
