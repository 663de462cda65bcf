//! Which databases and containers there are in the tree, and what the `info` beside them describes.

use std::collections::VecDeque;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sharddb::GenerationId;
use sharddb::container::bcolz::{BcolzArray, BcolzTable};
use sharddb::container::bloscpack::Bloscpack;

use crate::serve::request_path::{Platform, encode, parse};
use crate::serve::tree::{CURRENT, Place, Tree};

/// The largest `info` or `zarr.json` that is read.
const MAX_INFO_BYTES: u64 = 16 << 20;

/// The number of names that the member "key" of a nested object may have.
const MAX_KEY_NAMES: usize = 4;

/// Upper bounds on a search of the tree.
const MAX_DEPTH: usize = 12;
const MAX_DIRECTORIES: usize = 20_000;
const MAX_DATABASES: usize = 5_000;

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A store: its current generation.
    Store,
    /// One generation of a store, or a copy of one.
    Generation,
    /// Shards that another program wrote.
    Foreign,
    Zarr,
    Bcolz,
    Bloscpack,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Store => "store",
            Kind::Generation => "generation",
            Kind::Foreign => "foreign",
            Kind::Zarr => "zarr",
            Kind::Bcolz => "bcolz",
            Kind::Bloscpack => "bloscpack",
        }
    }
}

/// A database or container that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    /// Its path in URLs.
    pub(crate) names: Vec<String>,
    /// The path in URLs of the directory with the `info`; for a volume a prefix of `names`.
    pub(crate) data_set: Vec<String>,
    /// The directory with the `info`, or the container.
    pub(crate) place: Place,
    /// Where the `info` describes the shards, if that is not at the top.
    pub(crate) pointer: Option<String>,
}

impl Found {
    /// Returns the path that the library opens; `None` if a symbolic link leads out of the tree, or nothing is there.
    ///
    /// Errors: any other failure of the operating system.
    pub(crate) fn path(&self) -> io::Result<Option<PathBuf>> {
        match self.kind {
            Kind::Store => self.place.own_store(),
            _ => self.place.canonical(),
        }
    }

    /// Reads the `info`; `None` if there is none.
    ///
    /// Errors: those of [`read_json`].
    pub(crate) fn info(&self) -> io::Result<Option<Value>> {
        read_json(&self.place.join("info"))
    }
}

/// Returns the database or container at `names`; with `generation` in that generation of the store that it is in.
///
/// The shards that a nested object of an `info` describes are at the path of their directory.
///
/// Errors: those of opening a file that exists, such as that the process has no descriptors left.
pub(crate) fn find(tree: &Tree, names: &[String], generation: Option<GenerationId>) -> io::Result<Option<Found>> {
    let Some(id) = generation else { return find_named(tree, names) };
    let mut splits = (0..=names.len()).map(|len| names.split_at(len));
    let Some((store, inside)) = splits.find(|(store, _)| is_store(tree, store)) else { return Ok(None) };
    let inside = match inside.split_first() {
        Some((first, rest)) if first == CURRENT => rest,
        _ => inside,
    };
    let found = find_named(tree, &[store, &[id.to_string()], inside].concat())?;
    Ok(found.map(|found| Found { names: names.to_vec(), ..found }))
}

fn find_named(tree: &Tree, names: &[String]) -> io::Result<Option<Found>> {
    match find_here(tree, names)? {
        Some(found) => Ok(Some(found)),
        None => find_nested(tree, names),
    }
}

/// Whether a store is at `names`, and not one of its generations.
fn is_store(tree: &Tree, names: &[String]) -> bool {
    let generation = tree.resolve(names).and_then(|place| place.generation);
    generation.is_some_and(|generation| generation.is_whole && !generation.is_named)
}

fn find_here(tree: &Tree, names: &[String]) -> io::Result<Option<Found>> {
    let Some(place) = tree.resolve(names) else { return Ok(None) };
    let found = |kind, place| Found { kind, names: names.to_vec(), data_set: names.to_vec(), place, pointer: None };
    if let Some(generation) = &place.generation
        && generation.is_whole
    {
        let kind = if generation.is_named { Kind::Generation } else { Kind::Store };
        return Ok(place.join("info").open()?.map(|_| found(kind, place)));
    }
    let Some(path) = place.canonical()? else { return Ok(None) };
    if path.is_file() {
        place.open()?; // `is_at` reports a file that cannot be opened as one of another format
        return Ok(Bloscpack::is_at(&path).then(|| found(Kind::Bloscpack, place)));
    }
    if is_zarr_array(&place)? {
        return Ok(Some(found(Kind::Zarr, place)));
    }
    if BcolzArray::is_at(&path) && !BcolzTable::is_at(&path) {
        return Ok(Some(found(Kind::Bcolz, place)));
    }
    let info = read_json(&place.join("info"))?;
    let Some(info) = info.filter(|info| info.get("sharding").is_some_and(Value::is_object)) else { return Ok(None) };
    let kind = if info.get("sharddb").is_some() { Kind::Generation } else { Kind::Foreign };
    Ok(Some(found(kind, place)))
}

/// Finds shards that a nested object of the `info` of a directory above describes.
fn find_nested(tree: &Tree, names: &[String]) -> io::Result<Option<Found>> {
    for len in 1..=MAX_KEY_NAMES.min(names.len()) {
        let (data_set, key) = names.split_at(names.len() - len);
        let Some(place) = tree.resolve(data_set) else { continue };
        let Some(info) = read_json(&place.join("info"))? else { continue };
        let key = key.join("/");
        let described = nested_shardings(&info).into_iter().find(|(_, directory)| *directory == key);
        let Some((pointer, _)) = described else { continue };
        let kind = match &place.generation {
            Some(generation) if !generation.is_named => Kind::Store,
            Some(_) => Kind::Generation,
            None => Kind::Foreign,
        };
        let pointer = Some(pointer);
        return Ok(Some(Found { kind, names: names.to_vec(), data_set: data_set.to_vec(), place, pointer }));
    }
    Ok(None)
}

fn is_zarr_array(place: &Place) -> io::Result<bool> {
    let metadata = read_json(&place.join("zarr.json"))?;
    Ok(metadata.is_some_and(|metadata| metadata.get("node_type") == Some(&"array".into())))
}

/// Reads a file of JSON; `None` if there is none below the root, it is too large, or it is not JSON.
///
/// Errors: those of opening and reading it.
pub(crate) fn read_json(place: &Place) -> io::Result<Option<Value>> {
    Ok(read_json_file(place)?.map(|(value, _)| value))
}

/// Like [`read_json`], and returns the metadata of the file that was read.
pub(crate) fn read_json_file(place: &Place) -> io::Result<Option<(Value, Metadata)>> {
    let Some(file) = place.open()? else { return Ok(None) };
    let metadata = file.metadata()?;
    let mut text = Vec::new();
    let read = file.take(MAX_INFO_BYTES + 1).read_to_end(&mut text)?;
    let value = (read as u64 <= MAX_INFO_BYTES).then(|| serde_json::from_slice(&text).ok()).flatten();
    Ok(value.map(|value| (value, metadata)))
}

/// Returns the JSON pointer and the directory of each nested object of an `info` that describes shards.
pub(crate) fn nested_shardings(info: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    search_nested(info, "", 0, &mut found);
    found
}

fn search_nested(value: &Value, pointer: &str, depth: usize, found: &mut Vec<(String, String)>) {
    if depth > 8 {
        return;
    }
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    let members: Box<dyn Iterator<Item = (String, &Value)>> = match value {
        Value::Object(members) => {
            if depth > 0
                && members.get("sharding").is_some_and(Value::is_object)
                && let Some(key) = members.get("key").and_then(Value::as_str)
            {
                found.push((pointer.to_string(), key.to_string()));
            }
            Box::new(members.iter().map(|(name, member)| (escaped(name), member)))
        }
        Value::Array(elements) => Box::new(elements.iter().enumerate().map(|(at, element)| (at.to_string(), element))),
        _ => return,
    };
    for (name, member) in members {
        search_nested(member, &format!("{pointer}/{name}"), depth + 1, found);
    }
}

/// Returns an `info` without the members that describe shards, at every depth.
pub(crate) fn without_sharding(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(name, _)| name != "sharding" && name != "sharddb");
            Value::Object(members.map(|(name, member)| (name, without_sharding(member))).collect::<Map<_, _>>())
        }
        Value::Array(elements) => Value::Array(elements.into_iter().map(without_sharding).collect()),
        other => other,
    }
}

/// The type of a data set, for people and programs; `None` if the `info` does not state one.
pub(crate) fn type_of(info: &Value) -> Option<&'static str> {
    match info.get("@type").and_then(Value::as_str) {
        Some("neuroglancer_skeletons") => Some("skeletons"),
        Some("neuroglancer_legacy_mesh") => Some("mesh"),
        Some("neuroglancer_multilod_draco") => Some("multires_mesh"),
        Some("neuroglancer_annotations_v1") => Some("annotations"),
        Some("neuroglancer_multiscale_volume") => Some("volume"),
        _ => info.get("scales").is_some_and(Value::is_array).then_some("volume"),
    }
}

/// Searches the tree, breadth first. Symbolic links are not followed, and the content of a database is not searched.
pub(crate) fn search(tree: &Tree) -> Vec<Found> {
    let mut found = Vec::new();
    let mut queue: VecDeque<(Vec<String>, usize)> = tree.tops().into_iter().map(|names| (names, 0)).collect();
    let mut visited = 0;
    while let Some((names, depth)) = queue.pop_front() {
        visited += 1;
        if visited > MAX_DIRECTORIES || found.len() >= MAX_DATABASES {
            tracing::warn!("the list of databases is not complete: it ends after {visited} directories");
            break;
        }
        let here = find_here(tree, &names).unwrap_or_else(|error| {
            tracing::warn!("the list of databases is not complete: cannot look at {}: {error}", names.join("/"));
            None
        });
        if let Some(here) = here {
            found.push(here);
            continue;
        }
        let Some(place) = tree.resolve(&names) else { continue };
        let Some(path) = place.canonical().ok().flatten().filter(|path| path.is_dir()) else { continue };
        let info = read_json(&place.join("info")).ok().flatten();
        let inside: Vec<Vec<String>> =
            info.iter().flat_map(nested_shardings).filter_map(|(_, directory)| names_of(&directory)).collect();
        for directory in &inside {
            let nested: Vec<_> = names.iter().chain(directory).cloned().collect();
            found.extend(find_nested(tree, &nested).ok().flatten());
        }
        if depth < MAX_DEPTH {
            let others = entries(&path)
                .into_iter()
                .filter(|name| !inside.iter().any(|inside| inside == std::slice::from_ref(name)));
            queue.extend(others.map(|name| (names.iter().cloned().chain([name]).collect(), depth + 1)));
        }
    }
    found
}

/// The names of a member "key", if each is one that a request may have.
fn names_of(directory: &str) -> Option<Vec<String>> {
    let encoded: String = directory.split('/').map(|name| format!("/{}", encode(name))).collect();
    parse(&encoded, Platform::HERE).filter(|names| !names.is_empty() && names.join("/") == directory)
}

/// The directories in a directory that are no symbolic links, and the bloscpack files, by name. Those whose name no
/// request may have are left out.
fn entries(path: &Path) -> Vec<String> {
    let Ok(listing) = fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> = listing
        .flatten()
        .filter(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => true,
            Ok(kind) if kind.is_file() => Path::new(&entry.file_name()).extension().is_some_and(|it| it == "blp"),
            _ => false,
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| names_of(name).is_some_and(|names| names.len() == 1))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_objects_are_found_by_their_key() {
        let info = json!({"scales": [{"key": "s0", "sharding": {}}, {"key": "s1"}],
                          "a/b~": {"key": "x/y", "sharding": {}}, "sharding": {}, "key": "top"});
        let mut found = nested_shardings(&info);
        found.sort();
        let pair = |pointer: &str, directory: &str| (pointer.to_string(), directory.to_string());
        assert_eq!(found, [pair("/a~1b~0", "x/y"), pair("/scales/0", "s0")]);
    }

    #[test]
    fn a_key_that_leads_elsewhere_has_no_names() {
        assert_eq!(names_of("a/b"), Some(vec!["a".to_string(), "b".to_string()]));
        assert_eq!(names_of("8_8_8").map(|names| names.len()), Some(1));
        for key in ["", "..", "../a", "a/../b", "/a", "a/", "a//b", ".", "a\\b", "a\0"] {
            assert_eq!(names_of(key), None, "{key:?}");
        }
    }

    #[test]
    fn an_unsharded_info_keeps_everything_else() {
        let info = json!({"@type": "x", "sharding": {"a": 1}, "sharddb": {}, "scales": [{"key": "s0", "sharding": {}}],
                          "spatial": {"limit": 1e-9, "id": 18_446_744_073_709_551_615u64}});
        let expected = json!({"@type": "x", "scales": [{"key": "s0"}],
                              "spatial": {"limit": 1e-9, "id": 18_446_744_073_709_551_615u64}});
        assert_eq!(without_sharding(info), expected);
    }
}
