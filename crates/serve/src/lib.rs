//! An HTTP server for trees of [ShardDb](https://docs.rs/sharddb) databases and of the formats of `sharddb-container`: raw
//! files, single objects, an API and a page. The command `sharddb serve` is its user.
//!
//! Layers, lowest first: `request_path`, `byte_range`, `entity_tag`, `bins` and `description` are pure functions; `tree`
//! finds files and never leaves its roots; `catalog` and `databases` find and open databases; `raw`, `objects`, `api` and
//! `page` answer requests on the threads that `disk_calls` chooses; `routes` and `listen` are asynchronous and touch no
//! file. `log` writes what all of them say.
//!
//! Not here: TLS and access control beyond the token, which a proxy adds. docs/serve.md documents the URLs.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod answer;
mod api;
mod app;
mod bins;
mod budget;
mod byte_range;
mod catalog;
mod chunks;
mod counters;
mod database;
mod databases;
mod description;
mod disk_calls;
mod document;
mod entity_tag;
mod file_tag;
mod gzip;
mod listen;
mod log;
mod objects;
mod page;
mod problem;
mod raw;
mod redirect;
mod request;
mod request_path;
mod routes;
mod shard_files;
mod survey;
mod timed_stream;
mod token;
mod tree;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sharddb::internal::fs::entry::{is_dir, is_file};
use sharddb::{Error, Result};

use crate::app::App;
use crate::databases::{Databases, GENERATION_AGE};
use crate::disk_calls::{DiskCalls, Workers};
pub use crate::listen::Bounds;
pub use crate::log::Log;
pub use crate::redirect::Redirect;
use crate::token::Token;
use crate::tree::Tree;

/// How often generations that are no longer used are closed.
const TIDY: Duration = Duration::from_secs(5);

/// The time that blocking calls have to end after the last connection.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// What is served, and where.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
///
/// use sharddb_serve::Server;
///
/// let cancel = Arc::new(AtomicBool::new(false));
/// let mut server = Server::new([".".into()]);
/// server.is_quiet = true;
/// server.run::<sharddb::Error>(&cancel, |urls, _log| {
///     assert!(urls.page.starts_with("http://127.0.0.1:")); // connections are accepted from here on
///     assert_eq!(urls.empty, [std::path::Path::new(".")]); // this directory has no databases yet
///     cancel.store(true, Relaxed); // elsewhere: at a signal
///     Ok(())
/// })?;
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Server {
    /// Directories of databases, databases, or files. One directory is served at the top, others by their names.
    pub paths: Vec<PathBuf>,
    /// The address to listen on. Default: 127.0.0.1.
    pub address: IpAddr,
    /// The port; 0, the default, is a free one.
    pub port: u16,
    /// The URL that clients use instead of the address, without a token.
    pub base_url: Option<String>,
    /// Whether the URLs have a random token, without which nothing is served. Default: true.
    pub has_token: bool,
    /// Whether the log has warnings only.
    pub is_quiet: bool,
    /// Upper bound on the decoded length of a value. Default: 256 MiB.
    pub max_value_bytes: u64,
    /// What clients may take.
    pub bounds: Bounds,
}

impl Server {
    /// Creates a server of these paths with the defaults.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Server {
        Server {
            paths: paths.into_iter().collect(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            base_url: None,
            has_token: true,
            is_quiet: false,
            max_value_bytes: 256 << 20,
            bounds: Bounds::default(),
        }
    }

    /// Serves until `cancel` is set, then lets running answers end. Calls `ready` with the URLs once connections are accepted.
    ///
    /// The log goes to standard error, with what the process traces by the crate `tracing` unless it has a subscriber.
    ///
    /// # Errors
    ///
    /// `Io` for a path that does not exist, an address that is in use, and a thread that cannot be started; `InvalidInput` for
    /// two paths with one name; those of `ready`.
    pub fn run<E: From<Error>>(
        self,
        cancel: &Arc<AtomicBool>,
        ready: impl FnOnce(&Urls, &Log) -> Result<(), E>,
    ) -> Result<(), E> {
        let log = Log::new(self.is_quiet);
        let _writer = log.write_to(std::io::stderr())?;
        log.collect();
        let tree = Tree::new(&self.paths, is_database)?;
        let token = if self.has_token { Some(Token::random()?) } else { None };
        let workers = Workers::of_machine();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .worker_threads(workers.count())
            .max_blocking_threads(disk_calls::THREADS)
            .build()
            .map_err(|error| Error::io("start a thread", Path::new(""), error))?;
        let served = runtime.block_on(self.serve(tree, token, workers, log.clone(), cancel, ready));
        runtime.shutdown_timeout(LAST_CALLS); // not the time of a disk that does not answer
        served.inspect(|()| log.say("sharddb: stopped"))
    }

    async fn serve<E: From<Error>>(
        self,
        tree: Tree,
        token: Option<Token>,
        workers: Workers,
        log: Log,
        cancel: &Arc<AtomicBool>,
        ready: impl FnOnce(&Urls, &Log) -> Result<(), E>,
    ) -> Result<(), E> {
        let address = SocketAddr::new(self.address, self.port);
        let failure = |source| Error::io(&format!("listen on {address}"), Path::new(""), source);
        let listener = tokio::net::TcpListener::bind(address).await.map_err(failure)?;
        let local = listener.local_addr().map_err(failure)?;
        let base = base(self.base_url.as_deref(), local, token.as_ref());
        let databases = Databases::new(Arc::new(tree), self.max_value_bytes, self.bounds.databases);
        let app = Arc::new(App::new(databases, DiskCalls::new(workers)?, token, base, log));
        let (listed, ended) = (Arc::clone(&app), Arc::clone(cancel));
        let urls = tokio::task::spawn_blocking(move || Urls::of(&listed, &self.paths, &ended)).await;
        let urls = urls.map_err(|error| Error::internal(format!("cannot list the databases: {error}")))?;
        ready(&urls, &app.log)?;
        tokio::spawn(tidy(Arc::clone(&app)));
        listen::serve(listener, routes::router(app), self.bounds, cancel).await;
        Ok(())
    }
}

/// Closes generations that are no longer used, as long as the runtime lives.
async fn tidy(app: Arc<App>) {
    loop {
        tokio::time::sleep(TIDY).await;
        let app = Arc::clone(&app);
        let _ = tokio::task::spawn_blocking(move || app.databases.tidy(GENERATION_AGE)).await;
    }
}

/// The URLs to show.
#[derive(Debug)]
#[non_exhaustive]
pub struct Urls {
    /// The files.
    pub raw: String,
    /// The page.
    pub page: String,
    /// What Neuroglancer takes as the source of a layer, each once.
    pub layers: Vec<String>,
    /// The directories among the served paths in which no database and no container was found.
    pub empty: Vec<PathBuf>,
}

impl Urls {
    /// Searches the tree, unless `cancel` is set meanwhile.
    fn of(app: &App, paths: &[PathBuf], cancel: &AtomicBool) -> Urls {
        let (mut layers, mut known) = (Vec::new(), HashSet::new());
        let found = app.list(cancel);
        let tops = app.databases.tree().tops();
        let is_empty = |(path, top): &(&PathBuf, &Vec<String>)| {
            is_dir(path).unwrap_or(false)
                && found.as_ref().is_some_and(|all| !all.iter().any(|found| found.names.starts_with(top)))
        };
        let empty = paths.iter().zip(&tops).filter(is_empty).map(|(path, _)| path.clone()).collect();
        let found = found.unwrap_or_default();
        for layer in found.iter().filter_map(|found| api::layer(app, "raw", found)) {
            layers.extend(known.insert(layer.clone()).then_some(layer));
        }
        Urls { raw: app.url("raw", &[]), page: format!("{}/", app.base), layers, empty }
    }
}

/// Whether a path is one database or container, and not a directory of them.
fn is_database(path: &Path) -> Result<bool> {
    for file in ["info", "zarr.json", "meta/sizes", "current/info"] {
        if is_file(&path.join(file))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The URL of the server with its token, without a slash at its end. A server that listens on all addresses is at the
/// loopback address for programs of this machine.
fn base(given: Option<&str>, local: SocketAddr, token: Option<&Token>) -> String {
    let ip = match local.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let local = SocketAddr::new(ip, local.port());
    let host = given.map_or_else(|| format!("http://{local}"), |url| url.trim_end_matches('/').to_string());
    token.map_or_else(|| host.clone(), |token| format!("{host}/{}", token.as_str()))
}

/// The time after which something in a test that normally takes a moment has hung.
#[cfg(test)]
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_begin_with_what_clients_can_reach() {
        let local: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        assert_eq!(base(None, local, None), "http://127.0.0.1:8080");
        assert_eq!(base(None, "[::1]:80".parse().unwrap(), None), "http://[::1]:80");
        assert_eq!(base(None, "0.0.0.0:80".parse().unwrap(), None), "http://127.0.0.1:80");
        assert_eq!(base(None, "[::]:80".parse().unwrap(), None), "http://[::1]:80");
        assert_eq!(base(Some("https://a.org/data/"), local, None), "https://a.org/data");
        let token = Token::random().unwrap();
        assert_eq!(base(Some("https://a.org"), local, Some(&token)), format!("https://a.org/{}", token.as_str()));
    }
}
