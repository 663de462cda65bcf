//! What is in place of lookups at a URL in a build without the feature `remote`: an error.

use std::path::Path;

use sharddb_container::KeySpace;
use sharddb_remote::{Operation, RemoteOptions, RemoteReader, RemoteSnapshot};

use crate::context::Context;
use crate::failure::Result;
use crate::remote::url::lacks_feature;

/// There is none in this build.
pub(crate) enum RemoteDatabase {}

impl RemoteDatabase {
    /// Returns `None` for a path.
    ///
    /// Errors: `Usage` for a URL.
    pub(crate) fn open(
        argument: &Path,
        _context: &Context,
        _set: impl FnOnce(&mut RemoteOptions) -> Result<()>,
    ) -> Result<Option<RemoteDatabase>> {
        lacks_feature(argument).map(|()| None)
    }

    pub(crate) fn reader(&self) -> &RemoteReader {
        match *self {}
    }

    pub(crate) fn url(&self) -> &str {
        match *self {}
    }

    pub(crate) fn key_space(&self) -> KeySpace {
        match *self {}
    }

    pub(crate) fn object_url(&self, _object: &str) -> String {
        match *self {}
    }

    pub(crate) fn shard_url(&self, _snapshot: &RemoteSnapshot, _file: &str) -> String {
        match *self {}
    }

    pub(crate) fn run<T: Send>(&self, _name: &str, _operation: Operation<'_, T>) -> Result<T> {
        match *self {}
    }
}
