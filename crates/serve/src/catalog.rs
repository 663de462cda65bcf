//! Which databases and containers there are in the tree, and what the `info` beside them describes.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File, FileType};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value};
use sharddb::GenerationId;
use sharddb_container::bcolz::{BcolzArray, BcolzTable};
use sharddb_container::bloscpack::Bloscpack;

use crate::description::Description;
use crate::document::MAX_BYTES;
use crate::request_path::{Platform, encode, parse};
use crate::tree::{CURRENT, Place, Tree, unless_absent};

/// The number of names that the member "key" of a nested object may have.
const MAX_KEY_NAMES: usize = 4;

/// Upper bounds on a search of the tree.
const MAX_DEPTH: usize = 12;
const MAX_DIRECTORIES: usize = 20_000;
const MAX_DATABASES: usize = 5_000;
const MAX_SEARCHED_BYTES: u64 = 256 << 20;

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
    /// The type of the data set when this was found; `None` if its `info` does not state one.
    pub(crate) data_type: Option<&'static str>,
    pub(crate) is_segmentation: bool,
}

impl Found {
    fn at(names: &[String], kind: Kind, place: Place, description: &Description) -> Found {
        Found {
            kind,
            names: names.to_vec(),
            data_set: names.to_vec(),
            place,
            pointer: None,
            data_type: description.data_type,
            is_segmentation: description.is_segmentation,
        }
    }

    /// The shards in a directory below a data set, which the object at `pointer` of its `info` describes.
    fn nested(
        data_set: &[String],
        directory: &[String],
        place: &Place,
        pointer: &str,
        description: &Description,
    ) -> Found {
        let kind = match &place.generation {
            Some(generation) if !generation.is_named => Kind::Store,
            Some(_) => Kind::Generation,
            None => Kind::Foreign,
        };
        let pointer = Some(pointer.to_string());
        let names = [data_set, directory].concat();
        Found { names, pointer, ..Found::at(data_set, kind, place.clone(), description) }
    }

    /// Returns the path that the library opens; `None` if a symbolic link leads out of the tree, or nothing is there.
    ///
    /// Errors: any other failure of the operating system.
    pub(crate) fn path(&self) -> io::Result<Option<PathBuf>> {
        match self.kind {
            Kind::Store => self.place.own_store(),
            _ => self.place.canonical(),
        }
    }
}

/// What a search finds at a path.
#[derive(Default)]
struct Here {
    found: Option<Found>,
    /// What the `info` of a directory says that is no database.
    description: Description,
    /// The bytes that were read.
    bytes: u64,
}

impl Here {
    fn of(found: Found, bytes: u64) -> Here {
        Here { found: Some(found), description: Description::default(), bytes }
    }
}

/// What a file says, and its length.
#[derive(Default)]
struct Described {
    description: Description,
    bytes: u64,
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
    Ok(look_at(tree, names)?.found)
}

fn look_at(tree: &Tree, names: &[String]) -> io::Result<Here> {
    let Some(place) = tree.resolve(names) else { return Ok(Here::default()) };
    if let Some(generation) = &place.generation
        && generation.is_whole
    {
        let kind = if generation.is_named { Kind::Generation } else { Kind::Store };
        let Some(file) = place.join("info").open()? else { return Ok(Here::default()) };
        let described = describe(file, None).unwrap_or_else(|error| {
            tracing::warn!("cannot read the info of {}: {error}", names.join("/")); // as opening the database does
            Described::default()
        });
        return Ok(Here::of(Found::at(names, kind, place, &described.description), described.bytes));
    }
    let Some(path) = place.canonical()? else { return Ok(Here::default()) };
    let nothing_said = Description::default();
    if place.metadata()?.is_some_and(|found| found.is_file()) {
        let is_bloscpack = is_format(Bloscpack::is_at(&path))?;
        let found = is_bloscpack.then(|| Found::at(names, Kind::Bloscpack, place, &nothing_said));
        return Ok(Here { found, ..Here::default() });
    }
    let metadata = described(&place.join("zarr.json"), None)?;
    if metadata.description.is_array {
        return Ok(Here::of(Found::at(names, Kind::Zarr, place, &nothing_said), metadata.bytes));
    }
    if is_format(BcolzArray::is_at(&path))? && !is_format(BcolzTable::is_at(&path))? {
        return Ok(Here::of(Found::at(names, Kind::Bcolz, place, &nothing_said), 0));
    }
    let Described { description, bytes } = described(&place.join("info"), None)?;
    let kind = if description.is_native { Kind::Generation } else { Kind::Foreign };
    let found = description.is_sharded.then(|| Found::at(names, kind, place, &description));
    Ok(Here { found, description, bytes: bytes + metadata.bytes })
}

/// Whether a path is of a format. A file that the server may not read is of none.
fn is_format(found: sharddb::Result<bool>) -> io::Result<bool> {
    Ok(unless_absent(found.map_err(io::Error::from))? == Some(true))
}

/// Finds shards that a nested object of the `info` of a directory above describes.
fn find_nested(tree: &Tree, names: &[String]) -> io::Result<Option<Found>> {
    for len in 1..=MAX_KEY_NAMES.min(names.len()) {
        let (data_set, directory) = names.split_at(names.len() - len);
        let Some(place) = tree.resolve(data_set) else { continue };
        let description = described(&place.join("info"), Some(&directory.join("/")))?.description;
        if let Some(nested) = description.nested.first() {
            return Ok(Some(Found::nested(data_set, directory, &place, &nested.pointer, &description)));
        }
    }
    Ok(None)
}

/// Returns what a file below the root says: nothing if there is none, it is too large, or it is not JSON.
///
/// Errors: those of opening and reading it.
fn described(place: &Place, directory: Option<&str>) -> io::Result<Described> {
    place.open()?.map_or(Ok(Described::default()), |file| describe(file, directory))
}

fn describe(file: File, directory: Option<&str>) -> io::Result<Described> {
    let bytes = file.metadata()?.len();
    if bytes > MAX_BYTES {
        return Ok(Described::default());
    }
    Ok(Described { description: Description::read(BufReader::new(file.take(MAX_BYTES)), directory)?, bytes })
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

/// Searches the tree, breadth first; `None` if it was cancelled. Symbolic links are not followed, and the content of a
/// database is not searched.
pub(crate) fn search(tree: &Tree, cancel: &AtomicBool) -> Option<Vec<Found>> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    let mut queue: VecDeque<(Vec<String>, usize)> = tree.tops().into_iter().map(|names| (names, 0)).collect();
    let (mut visited, mut bytes) = (0, 0);
    while let Some((names, depth)) = queue.pop_front() {
        if cancel.load(Ordering::Relaxed) {
            return None;
        }
        visited += 1;
        if visited > MAX_DIRECTORIES || bytes > MAX_SEARCHED_BYTES || found.len() >= MAX_DATABASES {
            tracing::warn!("the list of databases is not complete: it ends after {visited} directories");
            break;
        }
        let skip = |error: io::Error| {
            tracing::warn!("the list of databases is not complete: cannot look at {}: {error}", names.join("/"));
        };
        let here = look_at(tree, &names).map_err(skip).unwrap_or_default();
        bytes += here.bytes;
        if let Some(here) = here.found {
            found.extend(known.insert(here.names.clone()).then_some(here));
            continue;
        }
        let Some(place) = tree.resolve(&names) else { continue };
        let mut inside = HashSet::new();
        for nested in &here.description.nested {
            let Some(directory) = names_of(&nested.directory) else { continue };
            let nested = Found::nested(&names, &directory, &place, &nested.pointer, &here.description);
            if found.len() < MAX_DATABASES && known.insert(nested.names.clone()) {
                found.push(nested);
            }
            inside.extend(<[String; 1]>::try_from(directory).ok().map(|[name]| name));
        }
        if depth < MAX_DEPTH {
            let others = searched(&place).map_err(skip).unwrap_or_default();
            let others = others.into_iter().filter(|name| !inside.contains(name));
            queue.extend(others.map(|name| (names.iter().cloned().chain([name]).collect(), depth + 1)));
        }
    }
    Some(found)
}

/// The names of a member "key", if each is one that a request may have.
fn names_of(directory: &str) -> Option<Vec<String>> {
    let encoded: String = directory.split('/').map(|name| format!("/{}", encode(name))).collect();
    parse(&encoded, Platform::HERE).filter(|names| !names.is_empty() && names.join("/") == directory)
}

/// The directories in a directory that are no symbolic links, and the bloscpack files, by name.
///
/// Errors: those of [`entries`].
fn searched(place: &Place) -> io::Result<Vec<String>> {
    let is_bloscpack = |name: &str| Path::new(name).extension().is_some_and(|it| it == "blp");
    let found = entries(place)?.into_iter().flatten();
    let found = found.filter(|(name, kind)| kind.is_dir() || kind.is_file() && is_bloscpack(name));
    let mut names: Vec<String> = found.map(|(name, _)| name).collect();
    names.sort();
    Ok(names)
}

/// Reads the entries of a directory in no order, without those whose name no request may have. A symbolic link is an
/// entry of its own kind. Returns `None` if there is no directory, or a link leads out of the root.
///
/// Errors: those of listing a directory that the server may read.
pub(crate) fn entries(place: &Place) -> io::Result<Option<impl Iterator<Item = (String, FileType)> + use<>>> {
    let Some(path) = place.canonical()? else { return Ok(None) };
    let Some(listing) = unless_absent(fs::read_dir(path))? else { return Ok(None) };
    let named = |entry: fs::DirEntry| Some((entry.file_name().into_string().ok()?, entry.file_type().ok()?));
    let is_name = |name: &str| names_of(name).is_some_and(|names| names.len() == 1);
    Ok(Some(listing.flatten().filter_map(named).filter(move |(name, _)| is_name(name))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_search_is_cancelled() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::new(&[directory.path().to_path_buf()], |_| Ok(false)).unwrap();
        assert!(search(&tree, &AtomicBool::new(true)).is_none());
        assert!(search(&tree, &AtomicBool::new(false)).unwrap().is_empty());
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
