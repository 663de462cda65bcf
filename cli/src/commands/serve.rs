//! `serve`: an HTTP server for a tree of databases.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sharddb_serve::{Redirect, Server, Urls};

use crate::context::{self, Context};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::limits;
use crate::remote::url::{path_or_url, refuse_url};
use crate::size::Size;

/// Databases that are open at a time, at most.
const MAX_DATABASES: u32 = 256;

/// Serve databases to a browser and to Neuroglancer, over HTTP
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb serve data                 every database below data, on a free port of this machine
  sharddb serve data --open          and open the page in a browser
  sharddb serve skeletons --port 8080 --bind 0.0.0.0 --base-url http://host.example:8080

Prints lines of a label, a tab and a URL: the page first, then raw (the files), and a layer source
for each data set that Neuroglancer draws (`cut -f 2` and `sed -n 's/^page\\t//p'` take the URLs).
Then serves until SIGINT or SIGTERM, and lets running answers end.

A store is served as its current generation, and follows each new one. The token in the URLs is
random and new in each run: whoever has a URL can read everything below the paths. There is no TLS:
for other machines put a proxy before it, and give the URL of the proxy with --base-url.

The URL of the page with api/PATH/get/KEY appended returns a value of the database at PATH. In the
sources, docs/serve.md documents all URLs. Standard error has the access log; with -q only warnings.

Exit codes: 0 stopped by a signal, 2 usage, 4 a path not found, an address in use and other I/O.")]
pub(crate) struct Args {
    /// Directories of databases, databases, or files. One directory is served at the top, others by their names
    #[arg(required = true, value_name = "PATH", value_parser = path_or_url())]
    paths: Vec<PathBuf>,
    /// The port; 0 is a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The address to listen on: 0.0.0.0 or :: for other machines too, whose URL --base-url states
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind: IpAddr,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// The URL under which clients reach this server, through a proxy, for the URLs that are printed and returned
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    base_url: Option<String>,
    /// Serve without a token in the URLs: every program and web page on this machine can then read the data
    #[arg(long)]
    no_token: bool,
    /// Connections at a time, at most a quarter of the files that the process may have open; more wait
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: u32,
    /// Close a connection without progress, also between two requests, after this number of seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    timeout: u32,
    /// After a signal, let running answers end for at most this number of seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    grace: u32,
    /// Upper bound on the decoded length of a value
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    max_value: Size,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        self.paths.iter().try_for_each(|path| refuse_url(path))?;
        let mut server = Server::new(self.paths.iter().cloned());
        server.address = self.bind;
        server.port = self.port;
        server.base_url.clone_from(&self.base_url);
        server.has_token = !self.no_token;
        server.is_quiet = context.quiet;
        server.max_value_bytes = self.max_value.0;
        server.bounds.connections = part_of_files(4, self.max_connections);
        server.bounds.databases = part_of_files(8, MAX_DATABASES);
        server.bounds.idle = Duration::from_secs(self.timeout.into());
        server.bounds.grace = Duration::from_secs(self.grace.into());
        let mut redirect = None; // until the end: the browser may read it late
        let _draining = context.interrupt.draining(server.bounds.grace);
        server.run(context.interrupt.cancel(), |urls, log| -> Result<()> {
            write_urls(urls)?;
            for path in &urls.empty {
                log.say(&format!(
                    "sharddb: found no data sets in {path:?}: the page shows them as soon as there are some"
                ));
            }
            if self.bind.is_unspecified() && self.base_url.is_none() {
                log.say(
                    "sharddb: the URLs are for this machine; for other machines give the one under which they reach \
                     it: --base-url http://NAME:PORT",
                );
            }
            if self.open {
                let file = redirect.insert(Redirect::to(&urls.page)?);
                if !open_in_browser(file.path()) {
                    log.say("sharddb: cannot open a browser: open the first URL");
                }
            }
            Ok(())
        })?;
        Ok(Exit::Done)
    }
}

/// Divides the files that the process may have open: a quarter is for connections and a quarter for the files that are
/// sent, an eighth for the leases of databases. The library keeps a quarter open.
fn part_of_files(divisor: u64, wanted: u32) -> usize {
    part(limits::open_files(), divisor, wanted)
}

fn part(open_files: Option<u64>, divisor: u64, wanted: u32) -> usize {
    let most = open_files.map_or(u64::MAX, |files| (files / divisor).max(1));
    usize::try_from(most.min(wanted.into())).unwrap_or(usize::MAX)
}

fn write_urls(urls: &Urls) -> Result<()> {
    let mut out = context::stdout();
    let layers = urls.layers.iter().map(|layer| ("layer", layer));
    for (label, url) in [("page", &urls.page), ("raw", &urls.raw)].into_iter().chain(layers) {
        writeln!(out, "{label}\t{url}").map_err(Failure::stdout)?;
    }
    context::flush(out)
}

/// Opens a page with the program that the desktop has for it. Returns whether that could be started.
fn open_in_browser(page: &Path) -> bool {
    let (program, first) = match std::env::consts::OS {
        "macos" => ("open", None),
        "windows" => ("rundll32", Some("url.dll,FileProtocolHandler")),
        _ => ("xdg-open", None),
    };
    let mut command = Command::new(program);
    command.args(first).arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    // so that no zombie is left
    let _ = std::thread::Builder::new().spawn(move || child.wait());
    true
}

fn parse_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let is_url = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && !text.contains(['?', '#', '"', '<', '>']);
    is_url
        .then(|| text.to_string())
        .ok_or_else(|| format!("expected a URL with http:// or https:// and a host, without ? and #, found \"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_left_for_other_uses() {
        assert_eq!(part(None, 4, 2048), 2048);
        assert_eq!(part(Some(1 << 20), 4, 2048), 2048);
        assert_eq!(part(Some(1024), 4, 2048), 256);
        assert_eq!(part(Some(0), 4, 1), 1);
    }

    #[test]
    fn base_urls_have_a_scheme_and_a_host() {
        for url in ["http://a", "https://a.org/x/", "http://127.0.0.1:80"] {
            assert_eq!(parse_url(url).as_deref(), Ok(url));
        }
        for url in
            ["", "a.org", "http://", "http:///x", "ftp://a", "http://a b", "http://a?b", "http://a#b", "http://a\n"]
        {
            assert!(parse_url(url).is_err(), "{url}");
        }
    }
}
