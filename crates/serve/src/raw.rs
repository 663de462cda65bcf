//! `/TOKEN/raw/..`: files as they are, for clients of the format; the names in a directory, for people.

use std::fs::FileType;
use std::io;
use std::path::Path;

use axum::http::HeaderMap;
use serde_json::json;
use sharddb::GenerationId;

use crate::answer::{Answer, BYTES, JSON, Representation, Source};
use crate::app::App;
use crate::catalog::entries;
use crate::databases::Databases;
use crate::file_tag::file_tag;
use crate::problem::{Problem, Result};
use crate::tree::{CURRENT, Place, Tree};

/// Upper bound on the names in a list.
const MAX_NAMES: usize = 20_000;

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

/// Answers with the names in a directory; with a file for the path of a file.
///
/// Errors: `not-found`; `io`; `busy`.
pub(crate) fn list(app: &App, names: &[String], headers: &HeaderMap) -> Result<Answer> {
    let found = names_in(app.databases.tree(), names);
    let found = found.map_err(|error| Problem::io("list", Path::new(&names.join("/")), &error))?;
    let Some(mut found) = found else { return answer(&app.databases, names, headers) };
    let is_complete = found.len() <= MAX_NAMES;
    found.truncate(MAX_NAMES);
    found.sort();
    Answer::json(&json!({"names": found, "complete": is_complete}), &app.budget)
}

/// Returns up to one more than [`MAX_NAMES`] names, in no order. A store has the files of its current generation and the
/// directories of its generations. `None` if there is no directory.
fn names_in(tree: &Tree, names: &[String]) -> io::Result<Option<Vec<String>>> {
    let Some(place) = tree.resolve(names) else { return Ok(names.is_empty().then(|| mounts(tree))) };
    let Some(files) = entries(&place)? else { return Ok(None) };
    let is_store = place.generation.as_ref().is_some_and(|it| it.is_whole && !it.is_named)
        && names.last().is_none_or(|name| name != CURRENT);
    let store = place.own_store()?.filter(|_| is_store).and_then(|store| place.place_of(&store));
    let generations = store.map(|store| entries(&store)).transpose()?.flatten();
    let generations =
        generations.into_iter().flatten().filter(|(name, kind)| kind.is_dir() && name.parse::<GenerationId>().is_ok());
    let all = files.chain(generations).filter_map(|(name, kind)| listed(&place, name, kind));
    Ok(Some(all.take(MAX_NAMES + 1).collect()))
}

/// The names at the top, if several paths are served or one that is a database.
fn mounts(tree: &Tree) -> Vec<String> {
    let listed = |names: Vec<String>| {
        let metadata = tree.resolve(&names)?.metadata().ok()??;
        Some(if metadata.is_dir() { format!("{}/", names.concat()) } else { names.concat() })
    };
    tree.tops().into_iter().filter_map(listed).collect()
}

/// Returns the name of an entry, with a slash after that of a directory; `None` if no request reaches it.
fn listed(place: &Place, name: String, kind: FileType) -> Option<String> {
    if kind.is_dir() {
        return Some(name + "/");
    }
    let is_reached = kind.is_file() || kind.is_symlink() && matches!(place.join(&name).open(), Ok(Some(_)));
    is_reached.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::new(&[directory.path().to_path_buf()], |_| Ok(false)).unwrap();
        for number in 0..MAX_NAMES + 2 {
            std::fs::write(directory.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(names_in(&tree, &[]).unwrap().unwrap().len(), MAX_NAMES + 1);
        assert_eq!(names_in(&tree, &["0".to_string()]).unwrap(), None);
    }
}
