//! Lookups in a data set at a URL.

use std::path::Path;
use std::time::{Duration, Instant};

use sharddb_container::KeySpace;
use sharddb_remote::{BlockingDb, Operation, RemoteOptions, RemoteReader, RemoteSnapshot};

use crate::context::{Context, warn};
use crate::failure::Result;
use crate::number::plural;
use crate::remote::clients::{Client, client};
use crate::remote::url::url_of;

/// A data set at a URL, opened.
pub(crate) struct RemoteDatabase {
    db: BlockingDb,
    url: String,
    is_verbose: bool,
}

impl RemoteDatabase {
    /// Opens the data set at a URL; `None` if the argument is a path.
    ///
    /// Errors: `Usage`, those of `set`, and those of [`BlockingDb::open`].
    pub(crate) fn open(
        argument: &Path,
        context: &Context,
        set: impl FnOnce(&mut RemoteOptions) -> Result<()>,
    ) -> Result<Option<RemoteDatabase>> {
        let Some(url) = url_of(argument)? else { return Ok(None) };
        let Client { store, prefix, .. } = client(&url)?;
        let mut options = RemoteOptions::new();
        set(options.root_name(url.to_string()))?;
        let start = Instant::now();
        let db = BlockingDb::open_with(store, &prefix, &options)?;
        let elapsed = start.elapsed();
        let opened = RemoteDatabase { db, url: url.to_string(), is_verbose: context.verbose };
        let stats = opened.db.stats();
        opened.report("open", (stats.requests, stats.bytes, stats.cache_hits), elapsed);
        Ok(Some(opened))
    }

    /// The reader, whose operations [`run`](RemoteDatabase::run) takes.
    pub(crate) fn reader(&self) -> &RemoteReader {
        self.db.reader()
    }

    /// The URL of the data set.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What `--at` selects keys by: nothing yet.
    pub(crate) fn key_space(&self) -> KeySpace {
        KeySpace::Opaque
    }

    /// The URL of an object of the data set.
    pub(crate) fn object_url(&self, object: &str) -> String {
        format!("{}/{object}", self.url)
    }

    /// The URL of a shard, also of one that has no object.
    pub(crate) fn shard_url(&self, snapshot: &RemoteSnapshot, file: &str) -> String {
        match snapshot.generation() {
            Some(generation) => self.object_url(&format!("{generation}/{file}")),
            None => self.object_url(file),
        }
    }

    /// Runs an operation; with `-v`, reports what it cost.
    ///
    /// Errors: those of the operation.
    pub(crate) fn run<T: Send>(&self, name: &str, operation: Operation<'_, T>) -> Result<T> {
        let (result, cost) = self.db.run(operation);
        self.report(name, (cost.requests, cost.bytes, cost.cache_hits), cost.elapsed);
        Ok(result?)
    }

    fn report(&self, name: &str, (requests, bytes, hits): (u64, u64, u64), elapsed: Duration) {
        if self.is_verbose {
            let snapshot = self.db.snapshot();
            let generation = snapshot.generation().map_or_else(String::new, |it| format!(", {it}"));
            let (requests, hits) = (plural(requests, "request"), plural(hits, "cache hit"));
            let seconds = elapsed.as_secs_f64();
            warn(format_args!("sharddb: {name}: {requests}, {bytes} bytes, {hits}, {seconds:.3} s{generation}"));
        }
    }
}
