//! The HTTP server of `sharddb serve`: raw files, single objects, an API and a page.
//!
//! Layers, lowest first: `request_path`, `byte_range`, `entity_tag`, `bins` and `description` are pure functions; `tree`
//! finds files and never leaves its roots; `catalog` and `databases` find and open databases; `raw`, `objects`, `api` and
//! `page` answer requests on the threads that `disk_calls` chooses; `routes` and `listen` are asynchronous and touch no
//! file. `log` writes what all of them say.
//!
//! Not here: TLS and access control beyond the token, which a proxy adds. docs/serve.md documents the URLs.

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
mod distribution;
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
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) use listen::Bounds;
pub(crate) use log::Log;
pub(crate) use redirect::Redirect;
use token::Token;

use crate::context::Context;
use crate::entry::is_file;
use crate::failure::{Failure, Result};
use crate::foreign::is_data;
use crate::serve::app::App;
use crate::serve::databases::{Databases, GENERATION_AGE};
use crate::serve::disk_calls::{DiskCalls, Workers};
use crate::serve::tree::Tree;

/// How often generations that are no longer used are closed.
const TIDY: Duration = Duration::from_secs(5);

/// The time that blocking calls have to end after the last connection.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// What is served, and where.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// The URL that clients use instead of the address, without a token.
    pub(crate) base_url: Option<String>,
    pub(crate) has_token: bool,
    pub(crate) max_value_bytes: u64,
    pub(crate) bounds: Bounds,
}

impl Server {
    /// Serves until a signal arrives. Calls `ready` with the URLs once connections are accepted.
    ///
    /// Errors: `Io` for a path that does not exist or an address that is in use; those of `ready`.
    pub(crate) fn run(self, context: &Context, ready: impl FnOnce(&Urls, &Log) -> Result<()>) -> Result<()> {
        let log = Log::new(context.quiet);
        let _writer = log.write_to(std::io::stderr())?;
        log.collect();
        let tree = Tree::new(&self.paths, |path| Ok(is_data(path)? || is_file(&path.join("current/info"))?))?;
        let token = if self.has_token { Some(Token::random()?) } else { None };
        let workers = Workers::of_machine();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .worker_threads(workers.count())
            .max_blocking_threads(disk_calls::THREADS)
            .build()
            .map_err(Failure::thread)?;
        let _draining = context.interrupt.draining(self.bounds.grace);
        let served = runtime.block_on(self.serve(tree, token, workers, log.clone(), context, ready));
        runtime.shutdown_timeout(LAST_CALLS); // not the time of a disk that does not answer
        served.inspect(|()| log.say("sharddb: stopped"))
    }

    async fn serve(
        self,
        tree: Tree,
        token: Option<Token>,
        workers: Workers,
        log: Log,
        context: &Context,
        ready: impl FnOnce(&Urls, &Log) -> Result<()>,
    ) -> Result<()> {
        let address = SocketAddr::new(self.address, self.port);
        let failure = |source| Failure::Io { what: format!("listen on {address}"), source };
        let listener = tokio::net::TcpListener::bind(address).await.map_err(failure)?;
        let local = listener.local_addr().map_err(failure)?;
        let base = base(self.base_url.as_deref(), local, token.as_ref());
        let databases = Databases::new(Arc::new(tree), self.max_value_bytes, self.bounds.databases);
        let app = Arc::new(App::new(databases, DiskCalls::new(workers)?, token, base, log));
        let (listed, cancel) = (Arc::clone(&app), Arc::clone(context.interrupt.cancel()));
        let urls = tokio::task::spawn_blocking(move || Urls::of(&listed, &cancel)).await;
        let urls = urls.map_err(|error| Failure::Internal(format!("cannot list the databases: {error}")))?;
        ready(&urls, &app.log)?;
        tokio::spawn(tidy(Arc::clone(&app)));
        listen::serve(listener, routes::router(app), self.bounds, &context.interrupt).await;
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
pub(crate) struct Urls {
    /// The files.
    pub(crate) raw: String,
    pub(crate) page: String,
    /// What Neuroglancer takes as the source of a layer, each once.
    pub(crate) layers: Vec<String>,
}

impl Urls {
    /// Searches the tree, unless a signal arrives meanwhile.
    fn of(app: &App, cancel: &AtomicBool) -> Urls {
        let (mut layers, mut known) = (Vec::new(), HashSet::new());
        let found = app.list(cancel).unwrap_or_default();
        for layer in found.iter().filter_map(|found| api::layer(app, "raw", found)) {
            layers.extend(known.insert(layer.clone()).then_some(layer));
        }
        Urls { raw: app.url("raw", &[]), page: format!("{}/", app.base), layers }
    }
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
