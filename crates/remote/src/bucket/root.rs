//! The objects of a store by their names relative to its prefix. Errors name the object.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket_current::ServerTime;
use crate::store_error::{cause, is_missing_object, missing_bucket};

/// A prefix of an object store.
#[derive(Clone, Debug)]
pub(super) struct Root {
    store: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    name: String,
}

impl Root {
    pub(super) fn new(store: Arc<dyn ObjectStore>, prefix: ObjectPath) -> Root {
        let name = format!("{store}/{prefix}");
        Root { store, prefix, name }
    }

    pub(super) fn set_name(&mut self, name: String) {
        self.name = name;
    }

    /// Returns the name of the store.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    pub(super) fn prefix(&self) -> &ObjectPath {
        &self.prefix
    }

    /// Returns the full name of an object for messages.
    pub(super) fn place(&self, object: &str) -> PathBuf {
        PathBuf::from(format!("{}/{object}", self.name.trim_end_matches('/')))
    }

    /// Returns the path of an object. The names of a generation have no character that a path refuses or escapes.
    pub(super) fn path(&self, object: &str) -> Result<ObjectPath> {
        let full = if self.prefix.is_root() { object.to_string() } else { format!("{}/{object}", self.prefix) };
        ObjectPath::parse(full).map_err(|error| {
            Error::invalid_input(format!("expected the name of an object: {error}")).at_path(&self.place(object))
        })
    }

    /// Returns the name of an object relative to the prefix; `None` if it is outside.
    pub(super) fn name_of<'a>(&self, path: &'a ObjectPath) -> Option<&'a str> {
        if self.prefix.is_root() {
            return Some(path.as_ref());
        }
        path.as_ref().strip_prefix(self.prefix.as_ref())?.strip_prefix('/')
    }

    /// Returns the metadata of an object; `None` if there is none.
    pub(super) async fn head(&self, object: &str) -> Result<Option<ObjectMeta>> {
        match self.store.head(&self.path(object)?).await {
            Err(error) if is_missing_object(&error) => Ok(None),
            found => found.map(Some).map_err(|error| self.failed("read", object, error)),
        }
    }

    /// Returns a small object and its metadata; `None` if there is none.
    ///
    /// Errors: `TooLarge` if it has more than `most` bytes; `Io`.
    pub(super) async fn get(&self, object: &str, most: u64) -> Result<Option<(Vec<u8>, ObjectMeta)>> {
        let fail = |error| self.failed("read", object, error);
        let result = match self.store.get_opts(&self.path(object)?, GetOptions::default()).await {
            Err(error) if is_missing_object(&error) => return Ok(None),
            result => result.map_err(fail)?,
        };
        let meta = result.meta.clone();
        let too_large = || {
            let message = format!("expected an object of at most {most} bytes, found {} or more", meta.size);
            Error::new(ErrorKind::TooLarge, message).at_path(&self.place(object))
        };
        if meta.size > most {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        let mut stream = result.into_stream();
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk.map_err(fail)?);
            if bytes.len() as u64 > most {
                return Err(too_large());
            }
        }
        Ok(Some((bytes, meta)))
    }

    /// Writes an object on a condition.
    pub(super) async fn put(
        &self,
        object: &ObjectPath,
        bytes: Vec<u8>,
        mode: PutMode,
    ) -> object_store::Result<object_store::PutResult> {
        let options = PutOptions { mode, ..PutOptions::default() };
        self.store.put_opts(object, PutPayload::from(bytes), options).await
    }

    /// Deletes objects below `directory`. One that another process deletes at the same time is success.
    pub(super) async fn delete_all(
        &self,
        paths: BoxStream<'static, object_store::Result<ObjectPath>>,
        directory: &str,
    ) -> Result<()> {
        let mut deleted = self.store.delete_stream(paths);
        while let Some(deleted) = deleted.next().await {
            match deleted {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed("delete", directory, error)),
            }
        }
        Ok(())
    }

    /// Returns the time of the server at which an object was written.
    ///
    /// Errors: `Unsupported` if the store does not state a plausible one.
    pub(super) fn modified(&self, meta: &ObjectMeta) -> Result<ServerTime> {
        ServerTime::from_unix(meta.last_modified.timestamp()).ok_or_else(|| {
            let found = meta.last_modified.timestamp();
            let message = format!("expected a Last-Modified of the years 1970 to 9999, found {found} s after 1970");
            Error::new(ErrorKind::Unsupported, message).at_path(&self.place(self.name_of(&meta.location).unwrap_or("")))
        })
    }

    /// Returns the error of a request, with the place.
    pub(super) fn failed(&self, what: &str, object: &str, error: object_store::Error) -> Error {
        use object_store::Error::{
            AlreadyExists, NotFound, NotImplemented, NotSupported, PermissionDenied, Unauthenticated,
        };
        let place = self.place(object);
        if let Some(missing) = missing_bucket(&error) {
            return missing.at_path(&place);
        }
        let kind = match &error {
            NotSupported { .. } | NotImplemented { .. } => {
                return Error::new(ErrorKind::Unsupported, format!("cannot {what}: {}", cause(&error))).at_path(&place);
            }
            NotFound { .. } => io::ErrorKind::NotFound,
            AlreadyExists { .. } => io::ErrorKind::AlreadyExists,
            PermissionDenied { .. } | Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        };
        Error::io(what, &place, io::Error::new(kind, cause(&error)))
    }
}
