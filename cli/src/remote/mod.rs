//! Data sets in object stores and on web servers: the argument DB or STORE as a URL.
//!
//! ```text
//! module      what it has
//!
//! url         URLs: what the command takes, and what it names in errors
//! database    lookups in a data set at a URL
//! opening     the options of a data set at a URL: generation, cache
//! bucket      a store of generations at a URL: push, pull, and the subcommands about generations
//! bucket_parts  builds in parts at a URL                                                        feature remote
//! clients     the client for a URL, with credentials from the environment and the usual files   feature remote
//! aws_files   ~/.aws/credentials and ~/.aws/config                                              feature remote
//! connector   HTTP: redirects, credentials, bounded answers                                     feature remote
//! paged       listings that end                                                                 feature remote
//! patience    how long the client waits for a server                                            feature remote
//! traffic     requests and bytes of a client                                                    feature remote
//! ```

#[cfg(feature = "remote")]
mod aws_files;
#[cfg_attr(not(feature = "remote"), path = "bucket_absent.rs")]
mod bucket;
#[cfg(feature = "remote")]
mod bucket_parts;
#[cfg(feature = "remote")]
mod clients;
#[cfg(feature = "remote")]
mod connector;
#[cfg_attr(not(feature = "remote"), path = "database_absent.rs")]
mod database;
mod opening;
#[cfg(feature = "remote")]
mod paged;
#[cfg(feature = "remote")]
mod patience;
#[cfg(feature = "remote")]
mod traffic;
pub(crate) mod url;

use crate::context::Context;

pub(crate) use bucket::RemoteStore;
pub(crate) use database::RemoteDatabase;
pub(crate) use opening::RemoteOpening;

/// How a subcommand was called.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "only stores at a URL read it"))]
pub(crate) struct Call<'a> {
    pub(crate) context: &'a Context,
    /// Whether to print one JSON object.
    pub(crate) json: bool,
}
