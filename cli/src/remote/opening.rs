//! How to open DB at a URL: the options that paths do not have.

use sharddb::internal::generation_of_text;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use sharddb_remote::{DiskCache, RemoteOptions};

use crate::failure::{Failure, Result};
use crate::size::Size;

const HEADING: &str = "How to open DB at a URL";

/// The generation, the cache and the cost of a request of a data set at a URL.
#[derive(Clone, Debug, Args)]
pub(crate) struct RemoteOpening {
    /// The generation of a store in a bucket, by its name or number, as sharddb generations lists it. Default: the
    /// current one
    #[arg(long, help_heading = HEADING, value_name = "GENERATION", value_parser = parse_name)]
    generation: Option<String>,
    /// A directory of its own in which the blocks that lookups read are kept: a later run reads them from there.
    /// Processes may share it. It is created, or must be empty or such a directory; if it cannot be written to, nothing
    /// is kept
    #[arg(long, help_heading = HEADING, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// The bytes in --cache-dir, which each process may exceed by a sixteenth; blocks that were not used for the longest
    /// time are removed
    #[arg(long, help_heading = HEADING, value_name = "SIZE", default_value = "1GiB", requires = "cache_dir")]
    cache_size: Size,
    /// What a request costs, in bytes that arrive in the same time, from 16KiB to 2MiB: latency times bandwidth, divided by
    /// the requests in flight; or measured, by the times of the responses. A batch reads at most this many bytes in vain
    /// for each request that it saves. Default: 64KiB
    #[arg(long, help_heading = HEADING, value_name = "SIZE|measured")]
    request_cost: Option<RequestCost>,
}

/// What a request costs.
#[derive(Clone, Copy, Debug)]
enum RequestCost {
    Bytes(Size),
    Measured,
}

impl FromStr for RequestCost {
    type Err = String;

    fn from_str(text: &str) -> Result<RequestCost, String> {
        match text {
            "measured" => Ok(RequestCost::Measured),
            size => size.parse().map(RequestCost::Bytes).map_err(|error| format!("{error}; or \"measured\"")),
        }
    }
}

impl RemoteOpening {
    /// Refuses the options for a path.
    ///
    /// Errors: `Usage`.
    pub(crate) fn refuse_for_path(&self, path: &Path) -> Result<()> {
        let path = path.display();
        if self.cache_dir.is_some() {
            return Err(Failure::usage(format!("--cache-dir is for DB at a URL, found the path {path}: leave it out")));
        }
        if self.request_cost.is_some() {
            return Err(Failure::usage(format!(
                "--request-cost is for DB at a URL, found the path {path}: leave it out"
            )));
        }
        if let Some(generation) = &self.generation {
            return Err(Failure::usage(format!(
                "--generation is for DB at a URL, found the path {path}: name the directory of the generation instead, \
                 such as {path}/{generation}"
            )));
        }
        Ok(())
    }

    /// Sets the options of a data set at a URL.
    ///
    /// Errors: `InvalidInput` if the directory of the cache has other files; `Io` if it cannot be created or listed.
    pub(crate) fn set(&self, options: &mut RemoteOptions) -> Result<()> {
        if let Some(generation) = &self.generation {
            options.generation(generation);
        }
        if let Some(directory) = &self.cache_dir {
            options.block_store(Arc::new(DiskCache::open(directory, self.cache_size.0)?));
        }
        match self.request_cost {
            Some(RequestCost::Bytes(bytes)) => drop(options.request_cost(bytes.0)),
            Some(RequestCost::Measured) => drop(options.measure_request_cost(true)),
            None => {}
        }
        Ok(())
    }
}

/// Parses the name of a generation in a bucket; a number becomes the beginning of one.
fn parse_name(text: &str) -> Result<String, String> {
    Ok(generation_of_text(text).map_or_else(|_| text.to_string(), |id| id.to_string()))
}
