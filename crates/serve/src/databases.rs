//! The open databases and containers, by their path in URLs. Each is opened at its first use.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use sharddb::GenerationId;

use crate::budget::Budget;
use crate::catalog::{Found, Kind, find};
use crate::counters::Counters;
use crate::database::Database;
use crate::entity_tag::EntityTag;
use crate::file_tag::{self, metadata_of, stamp};
use crate::problem::{Problem, Result};
use crate::tree::Tree;

/// Upper bound on the tags that are kept.
const MAX_TAGS: usize = 1024;

/// The time after which a generation that was requested by its number is closed.
pub(crate) const GENERATION_AGE: Duration = Duration::from_secs(60);

/// The path of a database in URLs, and the generation if one was named.
type Address = (Vec<String>, Option<GenerationId>);

/// All open databases.
pub(crate) struct Databases {
    tree: Arc<Tree>,
    max_value_bytes: u64,
    pub(crate) budget: Budget,
    /// Upper bound on `open`. The database that was not used for the longest time is closed for another one.
    max_open: usize,
    open: RwLock<HashMap<Address, Arc<Database>>>,
    /// Kept when a database is closed.
    counters: RwLock<HashMap<Vec<String>, Arc<Counters>>>,
    /// The tag of a manifest, with the stamp of the file.
    tags: RwLock<HashMap<PathBuf, (String, EntityTag)>>,
}

impl Databases {
    pub(crate) fn new(tree: Arc<Tree>, max_value_bytes: u64, max_open: usize) -> Databases {
        Databases {
            tree,
            max_value_bytes,
            budget: Budget::new(),
            max_open,
            open: RwLock::default(),
            counters: RwLock::default(),
            tags: RwLock::default(),
        }
    }

    /// The number of databases that may be open at a time.
    pub(crate) fn max_open(&self) -> usize {
        self.max_open
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the database at `names`, or one generation of the store there.
    ///
    /// Errors: `not-found` if there is no database, or no such generation; those of opening it.
    pub(crate) fn get(&self, names: &[String], generation: Option<GenerationId>) -> Result<Arc<Database>> {
        match self.find(names, generation)? {
            Some(database) => Ok(database),
            None => Err(self.nothing_at(names, generation)?),
        }
    }

    /// Like [`get`](Databases::get); `None` if there is no database, or no such generation.
    pub(crate) fn find(&self, names: &[String], generation: Option<GenerationId>) -> Result<Option<Arc<Database>>> {
        let address = (names.to_vec(), generation);
        let known = read(&self.open).get(&address).cloned();
        if let Some(database) = known.filter(|database| database.is_fresh()) {
            database.touch();
            return Ok(Some(database));
        }
        let Some(found) = self.found(names, generation)? else {
            write(&self.open).remove(&address);
            return Ok(None);
        };
        let opened = Arc::new(self.open_found(found)?);
        let mut closed = Vec::new(); // dropped after `open`: it closes files
        let mut open = write(&self.open);
        closed.extend(open.remove(&address));
        if open.len() >= self.max_open
            && let Some(oldest) = open.iter().max_by_key(|(_, database)| database.unused()).map(|it| it.0.clone())
        {
            closed.extend(open.remove(&oldest));
        }
        open.insert(address, Arc::clone(&opened));
        Ok(Some(opened))
    }

    fn open_found(&self, found: Found) -> Result<Database> {
        let counters = self.counters(&found.names);
        Database::open(found, self.max_value_bytes, counters, self.budget.clone())
    }

    /// Returns what is at `names`.
    ///
    /// Errors: `io`.
    fn found(&self, names: &[String], generation: Option<GenerationId>) -> Result<Option<Found>> {
        find(&self.tree, names, generation).map_err(|error| Problem::io("open", Path::new(&names.join("/")), &error))
    }

    /// Why nothing was found: there is no database, or the database does not have the generation.
    ///
    /// Errors: `io`.
    fn nothing_at(&self, names: &[String], generation: Option<GenerationId>) -> Result<Problem> {
        let path = names.join("/");
        let here = generation.map_or(Ok(None), |_| self.found(names, None))?;
        let message = match (generation, here) {
            (Some(generation), Some(found)) if found.kind == Kind::Store => {
                format!("the store at {path:?} has no generation {}", generation.get())
            }
            (Some(_), Some(_)) => format!("the database at {path:?} has no generations: it is not a store"),
            _ => format!("no database is at {path:?}"),
        };
        Ok(Problem::not_found(message))
    }

    /// Closes generations that are no longer current, so that `gc` may remove them: those of stores that no request
    /// refreshes, and those that a number in a request named if none did for `age`.
    pub(crate) fn tidy(&self, age: Duration) {
        let is_old = |_: &Address, database: &mut Arc<Database>| {
            database.found.kind == Kind::Generation && database.unused() >= age
        };
        let closed: Vec<_> = write(&self.open).extract_if(is_old).collect();
        drop(closed); // without the lock
        let stores: Vec<_> =
            read(&self.open).values().filter(|database| database.found.kind == Kind::Store).cloned().collect();
        for store in stores {
            let _ = store.pinned(); // the next request reports an error
        }
    }

    /// The counters of the database at `names`.
    fn counters(&self, names: &[String]) -> Arc<Counters> {
        Arc::clone(write(&self.counters).entry(names.to_vec()).or_insert_with(|| Arc::new(Counters::new())))
    }

    /// The counters of the database that a file belongs to; `None` if no database around it was used yet.
    pub(crate) fn counters_around(&self, names: &[String]) -> Option<Arc<Counters>> {
        let counters = read(&self.counters);
        (0..=names.len()).rev().find_map(|len| counters.get(names.get(..len)?).cloned())
    }

    /// The counters of the database at `names`; `None` if it was not used yet.
    pub(crate) fn counters_of(&self, names: &[String]) -> Option<Arc<Counters>> {
        read(&self.counters).get(names).cloned()
    }

    /// The tag of a generation, which is kept until its manifest changes; `None` without a manifest.
    ///
    /// Errors: those of reading the manifest.
    pub(crate) fn generation_tag(&self, directory: &Path) -> Result<Option<EntityTag>> {
        let Some(metadata) = metadata_of(&directory.join("manifest.json"))? else { return Ok(None) };
        let stamp = stamp(&metadata);
        if let Some((_, tag)) = read(&self.tags).get(directory).filter(|(known, _)| *known == stamp) {
            return Ok(Some(tag.clone()));
        }
        let Some(place) = self.tree.place_of(directory) else { return Ok(None) };
        let Some(tag) = file_tag::generation_tag(&place)? else { return Ok(None) };
        let mut tags = write(&self.tags);
        if tags.len() >= MAX_TAGS {
            tags.clear();
        }
        tags.insert(directory.to_path_buf(), (stamp, tag.clone()));
        Ok(Some(tag))
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use sharddb::BulkLoader;

    use super::*;

    fn publish(store: &Path, value: &[u8]) {
        let mut loader = BulkLoader::create(store).unwrap();
        loader.insert(7, value).unwrap();
        loader.finish().unwrap();
    }

    /// Each open generation has a lease.
    #[test]
    fn generations_that_a_number_named_are_closed() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        publish(&store, b"one");
        publish(&store, b"two");
        let tree = Tree::new(&[directory.path().to_path_buf()], |_| Ok(false)).unwrap();
        let databases = Databases::new(Arc::new(tree), 1 << 20, 8);
        let names = |path: &str| path.split('/').map(str::to_string).collect::<Vec<_>>();
        let by_path = databases.get(&names("store/gen-0000000001"), None).unwrap();
        databases.get(&names("store"), "gen-0000000001".parse().ok()).unwrap();
        let current = ["store", "store/current"].map(|path| databases.get(&names(path), None).unwrap());
        assert!(current.iter().all(|database| database.found.kind == Kind::Store));
        assert_eq!(by_path.found.kind, Kind::Generation);
        databases.tidy(GENERATION_AGE);
        assert_eq!(read(&databases.open).len(), 4);
        databases.tidy(Duration::ZERO);
        let mut open: Vec<_> = read(&databases.open).keys().map(|(names, _)| names.join("/")).collect();
        open.sort();
        assert_eq!(open, ["store", "store/current"]);
    }

    /// If the manifest were read first, its damage would be the answer.
    #[test]
    fn memory_for_a_manifest_is_reserved_before_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        publish(&store, b"one");
        let manifest = store.join("gen-0000000001/manifest.json");
        std::fs::remove_file(&manifest).unwrap();
        std::fs::File::create(&manifest).unwrap().set_len(2 << 20).unwrap();
        let tree = Tree::new(&[directory.path().to_path_buf()], |_| Ok(false)).unwrap();
        let mut databases = Databases::new(Arc::new(tree), 1 << 20, 8);
        let status = |databases: &Databases, path: &str| {
            let names: Vec<_> = path.split('/').map(str::to_string).collect();
            databases.get(&names, None).err().map(|problem| problem.status.as_u16())
        };
        let paths = ["store", "store/gen-0000000001"];
        assert_eq!(paths.map(|path| status(&databases, path)), [Some(500); 2]);
        databases.budget = Budget::with_kib(1024);
        assert_eq!(paths.map(|path| status(&databases, path)), [Some(503); 2]);
    }
}
