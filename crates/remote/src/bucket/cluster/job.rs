//! The names of the objects of a job.

use std::path::{Path, PathBuf};

use futures_util::future;
use futures_util::stream::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path as ObjectPath;
use sharddb::internal::PartsDir;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::cluster::mark::is_mark_name;
use crate::bucket::root::Root;

/// A job of a store in a bucket.
#[derive(Clone, Debug)]
pub(super) struct JobObjects {
    /// Relative to the prefix of the store.
    directory: String,
}

/// What an object of a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobObject {
    /// A spill, or a shard of a part.
    Data,
    /// The state of a publication.
    Mark,
}

impl JobObjects {
    /// Errors: `InvalidInput` unless the job is named by letters, digits, `.`, `_` and `-`.
    pub(super) fn new(job: &str) -> Result<JobObjects> {
        Ok(JobObjects { directory: PartsDir::name_of_job(job)? })
    }

    /// Returns the name of the directory.
    pub(super) fn directory(&self) -> &str {
        &self.directory
    }

    /// Returns the name of an object, relative to the prefix of the store.
    pub(super) fn object(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// Passes on the objects of this job, by their names in its directory.
    pub(super) async fn for_each(&self, root: &Root, mut to: impl FnMut(&str, ObjectMeta) -> Result<()>) -> Result<()> {
        self.for_each_below(root, "", &mut to).await
    }

    /// Like [`for_each`](Self::for_each), for the objects in a directory of this job.
    pub(super) async fn for_each_in(
        &self,
        root: &Root,
        directory: &str,
        mut to: impl FnMut(&str, ObjectMeta) -> Result<()>,
    ) -> Result<()> {
        self.for_each_below(root, &format!("/{directory}"), &mut to).await
    }

    async fn for_each_below(
        &self,
        root: &Root,
        below: &str,
        to: &mut impl FnMut(&str, ObjectMeta) -> Result<()>,
    ) -> Result<()> {
        let mut objects = root.store().list(Some(&root.path(&format!("{}{below}", self.directory))?));
        while let Some(meta) = objects.next().await {
            let meta = meta.map_err(|error| root.failed("list", &self.directory, error))?;
            let location = meta.location.clone();
            if let Some(name) = self.name_of(root, &location) {
                to(name, meta)?;
            }
        }
        Ok(())
    }

    /// Removes those objects of this job for whose names in its directory `is_wanted` holds, while they are listed. One that
    /// another process removes at the same time is success.
    pub(super) async fn remove(
        &self,
        root: &Root,
        is_wanted: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<()> {
        let (job, of) = (self.clone(), root.clone());
        let path = move |meta: ObjectMeta| {
            let is_wanted = job.name_of(&of, &meta.location).is_some_and(&is_wanted);
            future::ready(Ok(is_wanted.then_some(meta.location)))
        };
        let objects = root.store().list(Some(&root.path(&self.directory)?));
        root.delete_all(objects.try_filter_map(path).boxed(), &self.directory).await
    }

    /// Returns the name of an object in the directory of this job; `None` if it is elsewhere.
    fn name_of<'a>(&self, root: &Root, location: &'a ObjectPath) -> Option<&'a str> {
        root.name_of(location)?.strip_prefix(self.directory.as_str())?.strip_prefix('/')
    }

    /// Returns an error of the local code with the object of which a file in `directory` is a copy as its place.
    pub(super) fn at_object(&self, root: &Root, directory: &Path, error: Error) -> Error {
        let name = error.path().and_then(|path| path.strip_prefix(directory).ok()).and_then(Path::to_str);
        let object: Option<PathBuf> = name.map(|name| root.place(&self.object(name)));
        match object {
            // errors of the local disk keep the local path
            Some(object) if error.kind() != ErrorKind::Io => error.with_path(object),
            _ => error,
        }
    }
}

impl JobObject {
    /// Returns what the object of this name in the directory of a job is; `None` for a foreign object.
    pub(super) fn of(name: &str) -> Option<JobObject> {
        if PartsDir::is_spill_name(name) || PartsDir::is_shard_of_part(name) {
            return Some(JobObject::Data);
        }
        is_mark_name(name).then_some(JobObject::Mark)
    }
}
