//! The open databases and containers, by their path in URLs. Each is opened at its first use.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use sharddb::GenerationId;

use crate::serve::catalog::{Found, Kind, find};
use crate::serve::counters::Counters;
use crate::serve::database::Database;
use crate::serve::entity_tag::EntityTag;
use crate::serve::file_tag::{self, stamp};
use crate::serve::problem::{Problem, Result};
use crate::serve::tree::Tree;

/// Upper bound on the tags that are kept.
const MAX_TAGS: usize = 1024;

/// The time after which a generation that was requested by its number is closed.
const GENERATION_AGE: Duration = Duration::from_secs(60);

/// The path of a database in URLs, and the generation if one was named.
type Address = (Vec<String>, Option<GenerationId>);

/// All open databases.
pub(crate) struct Databases {
    tree: Arc<Tree>,
    max_value_bytes: u64,
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
            max_open,
            open: RwLock::default(),
            counters: RwLock::default(),
            tags: RwLock::default(),
        }
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the database at `names`, or one generation of the store there.
    ///
    /// Errors: `not-found` if there is no database, or no such generation; those of opening it.
    pub(crate) fn get(&self, names: &[String], generation: Option<GenerationId>) -> Result<Arc<Database>> {
        let address = (names.to_vec(), generation);
        let known = read(&self.open).get(&address).cloned();
        if let Some(database) = known.filter(|database| database.is_fresh()) {
            database.touch();
            return Ok(database);
        }
        let found = self.find(names, generation)?;
        let opened = found.map(|found| Database::open(found, self.max_value_bytes, self.counters(names)));
        let Some(opened) = opened else {
            write(&self.open).remove(&address);
            return Err(self.nothing_at(names, generation)?);
        };
        let mut closed = Vec::new(); // dropped after `open`: it closes files
        let mut open = write(&self.open);
        closed.extend(open.remove(&address));
        let opened = Arc::new(opened?);
        if open.len() >= self.max_open
            && let Some(oldest) = open.iter().max_by_key(|(_, database)| database.unused()).map(|it| it.0.clone())
        {
            closed.extend(open.remove(&oldest));
        }
        open.insert(address, Arc::clone(&opened));
        Ok(opened)
    }

    /// Returns what is at `names`.
    ///
    /// Errors: `io`.
    pub(crate) fn find(&self, names: &[String], generation: Option<GenerationId>) -> Result<Option<Found>> {
        find(&self.tree, names, generation).map_err(|error| Problem::io("open", Path::new(&names.join("/")), &error))
    }

    /// Why nothing was found: there is no database, or the database does not have the generation.
    ///
    /// Errors: `io`.
    fn nothing_at(&self, names: &[String], generation: Option<GenerationId>) -> Result<Problem> {
        let path = names.join("/");
        let here = generation.map_or(Ok(None), |_| self.find(names, None))?;
        let message = match (generation, here) {
            (Some(generation), Some(found)) if found.kind == Kind::Store => {
                format!("the store at {path:?} has no generation {}", generation.get())
            }
            (Some(_), Some(_)) => format!("the database at {path:?} has no generations: it is not a store"),
            _ => format!("no database is at {path:?}"),
        };
        Ok(Problem::not_found(message))
    }

    /// Closes generations that are no longer current, so that `gc` may remove them: of stores that no request refreshes,
    /// and those that were requested by their number some time ago.
    pub(crate) fn tidy(&self) {
        let is_old = |(_, generation): &Address, database: &mut Arc<Database>| {
            generation.is_some() && database.unused() >= GENERATION_AGE
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
    pub(crate) fn generation_tag(&self, directory: &Path) -> Option<EntityTag> {
        let stamp = stamp(&fs::metadata(directory.join("manifest.json")).ok()?);
        if let Some((_, tag)) = read(&self.tags).get(directory).filter(|(known, _)| *known == stamp) {
            return Some(tag.clone());
        }
        let tag = file_tag::generation_tag(directory)?;
        let mut tags = write(&self.tags);
        if tags.len() >= MAX_TAGS {
            tags.clear();
        }
        tags.insert(directory.to_path_buf(), (stamp, tag.clone()));
        Some(tag)
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
