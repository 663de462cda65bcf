//! What all requests share.

use std::fs::File;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sharddb::internal::lock;
use sharddb_container::Form;

use crate::answer::{BYTES, Representation, Source};
use crate::budget::{Budget, SMALL_BYTES};
use crate::catalog::{Found, search};
use crate::chunks::{Chunk, Chunks};
use crate::database::{Database, Pinned, Read};
use crate::databases::Databases;
use crate::disk_calls::DiskCalls;
use crate::log::Log;
use crate::problem::{Problem, Result};
use crate::token::Token;

/// A list of databases is at most this old.
const LIST_AGE: Duration = Duration::from_secs(1);

/// The state of the server.
pub(crate) struct App {
    pub(crate) databases: Databases,
    pub(crate) disk_calls: DiskCalls,
    /// The first name of every path; `None` with --no-token.
    pub(crate) token: Option<Token>,
    /// The URL of the server with the token, without a slash at its end.
    pub(crate) base: String,
    pub(crate) budget: Budget,
    pub(crate) log: Log,
    listed: Mutex<Option<(Instant, Arc<Vec<Found>>)>>,
}

impl App {
    pub(crate) fn new(
        databases: Databases,
        disk_calls: DiskCalls,
        token: Option<Token>,
        base: String,
        log: Log,
    ) -> App {
        let budget = databases.budget.clone();
        App { databases, disk_calls, token, base, budget, log, listed: Mutex::default() }
    }

    /// Returns the databases in the tree; `None` if this was cancelled. Searches the tree if the last search is older than
    /// a second.
    pub(crate) fn list(&self, cancel: &AtomicBool) -> Option<Arc<Vec<Found>>> {
        let mut listed = lock(&self.listed); // one search at a time
        match &*listed {
            Some((when, found)) if when.elapsed() < LIST_AGE => Some(Arc::clone(found)),
            _ => {
                let found = Arc::new(search(self.databases.tree(), cancel)?);
                *listed = Some((Instant::now(), Arc::clone(&found)));
                Some(found)
            }
        }
    }

    /// Returns the value of a key; `None` if it is absent.
    ///
    /// Errors: those of the lookup; `busy`, `too-large`.
    pub(crate) fn value(&self, pinned: &Pinned, key: u64) -> Result<Option<Representation>> {
        let Some(read) = pinned.read(key, &self.budget)? else { return Ok(None) };
        let Read { bytes, share, tag, file } = read;
        let source = match file.filter(|location| location.stored_len() > SMALL_BYTES) {
            // it is verified; a slow client holds an open file instead of memory
            Some(location) => {
                let file = File::open(&location.path).map_err(|error| Problem::io("open", &location.path, &error))?;
                Source::File(file, location.range.clone())
            }
            None => Source::Memory(Bytes::from(bytes), share),
        };
        Ok(Some(Representation { tag, content_type: BYTES, source }))
    }

    /// Returns a chunk of a container; `None` if it is absent.
    ///
    /// Errors: those of [`Database::chunk`].
    pub(crate) fn chunk(
        &self,
        database: &Database,
        chunks: &Chunks,
        key: u64,
        form: Form,
    ) -> Result<Option<Representation>> {
        let chunk = database.chunk(chunks, key, form, &self.budget)?;
        Ok(chunk.map(|Chunk { bytes, share, tag }| {
            let source = Source::Memory(Bytes::from(bytes), share);
            Representation { tag, content_type: BYTES, source }
        }))
    }

    /// The URL of a path below an area, such as `raw`.
    pub(crate) fn url(&self, area: &str, names: &[String]) -> String {
        let names = names.iter().map(|name| format!("/{}", crate::request_path::encode(name)));
        format!("{}/{area}{}", self.base, names.collect::<String>())
    }
}
