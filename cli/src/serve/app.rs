//! What all requests share.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sharddb::container::Container;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::serve::answer::{BYTES, Representation, Source};
use crate::serve::catalog::{Found, search};
use crate::serve::database::Pinned;
use crate::serve::databases::Databases;
use crate::serve::disk_calls::DiskCalls;
use crate::serve::entity_tag::EntityTag;
use crate::serve::file_tag::file_tag;
use crate::serve::problem::{Problem, Result};
use crate::serve::token::Token;

/// The memory for large values that are being sent, in KiB.
const BUDGET_KIB: u32 = 512 << 10;

/// Values up to this length do not count: the number of connections bounds them.
const SMALL_BYTES: u64 = 1 << 20;

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
    budget: Arc<Semaphore>,
    listed: Mutex<Option<(Instant, Arc<Vec<Found>>)>>,
}

impl App {
    pub(crate) fn new(databases: Databases, disk_calls: DiskCalls, token: Option<Token>, base: String) -> App {
        let budget = Arc::new(Semaphore::new(usize::try_from(BUDGET_KIB).unwrap_or(Semaphore::MAX_PERMITS)));
        App { databases, disk_calls, token, base, budget, listed: Mutex::default() }
    }

    /// Returns the databases in the tree. Searches it if the last search is older than a second.
    pub(crate) fn list(&self) -> Arc<Vec<Found>> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner); // one search at a time
        match &*listed {
            Some((when, found)) if when.elapsed() < LIST_AGE => Arc::clone(found),
            _ => {
                let found = Arc::new(search(self.databases.tree()));
                *listed = Some((Instant::now(), Arc::clone(&found)));
                found
            }
        }
    }

    /// Reserves memory for a large value, until it is sent; `None` for a small one.
    ///
    /// Errors: `busy` if other large values take it, `too-large` if it never fits.
    pub(crate) fn share(&self, bytes: u64) -> Result<Option<OwnedSemaphorePermit>> {
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let share = u32::try_from(bytes >> 10).ok().filter(|share| *share <= BUDGET_KIB);
        let share =
            share.ok_or_else(|| Problem::too_large(format!("expected at most 512 MiB, found {bytes} bytes")))?;
        Arc::clone(&self.budget).try_acquire_many_owned(share).map(Some).map_err(|_| Problem::busy())
    }

    /// Returns the value of a key; `None` if it is absent.
    ///
    /// Errors: those of the lookup; `busy`, `too-large`.
    pub(crate) fn value(&self, pinned: &Pinned, key: u64) -> Result<Option<Representation>> {
        let Some(value) = pinned.snapshot.get_owned(key)? else { return Ok(None) };
        let share = self.share(value.len() as u64)?;
        let tag = pinned.value_tag(key)?;
        Ok(Some(Representation { tag, content_type: BYTES, source: Source::Memory(Bytes::from(value), share) }))
    }

    /// The tag of the file that has a chunk.
    pub(crate) fn chunk_tag(&self, container: &dyn Container, key: u64) -> EntityTag {
        let location = container.locate(key).ok().flatten();
        file_tag(location.and_then(|location| fs::metadata(location.path()).ok()).as_ref())
    }

    /// The URL of a path below an area, such as `raw`.
    pub(crate) fn url(&self, area: &str, names: &[String]) -> String {
        let names = names.iter().map(|name| format!("/{}", crate::serve::request_path::encode(name)));
        format!("{}/{area}{}", self.base, names.collect::<String>())
    }
}
