//! Downloading one object, chunk by chunk, and comparing it with the manifest.

use futures_util::StreamExt;
use object_store::{GetOptions, GetRange, ObjectStore};
use sharddb::Progress;
use sharddb_format::{Error, Result};

use crate::bucket::root::Root;
use crate::store_error::is_missing_object;

/// A download that breaks off is continued if it had at least this many more bytes. Bounds the number of requests.
const MIN_PROGRESS: u64 = 1 << 20;

/// What has arrived of an object.
struct Arrived {
    bytes: u64,
    /// Of the first response. Later ones are of the same object.
    etag: Option<String>,
}

impl Root {
    /// Passes an object to `write`, chunk by chunk, but at most `stated` bytes.
    ///
    /// A large object takes longer than the retries of a client last. A broken connection is continued from the last byte,
    /// whenever it happens; without an ETag, the caller's checksum finds that the object was replaced.
    ///
    /// Errors: `Corrupt` if there is none, or it is longer; those of `write`; `Cancelled`; `Io`.
    pub(super) async fn download(
        &self,
        object: &str,
        stated: u64,
        progress: &Progress,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut arrived = Arrived { bytes: 0, etag: None };
        loop {
            let before = arrived.bytes;
            let read = self.download_rest(object, stated, progress, &mut arrived, &mut write).await;
            match read {
                Err(Broken::Connection(_)) if arrived.bytes == stated => return Ok(()),
                Err(Broken::Connection(_)) if arrived.bytes - before >= MIN_PROGRESS => {}
                Err(Broken::Connection(error)) => return Err(self.failed("download", object, error)),
                Err(Broken::Other(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Passes on the bytes after those that have arrived.
    async fn download_rest(
        &self,
        object: &str,
        stated: u64,
        progress: &Progress,
        arrived: &mut Arrived,
        write: &mut impl FnMut(&[u8]) -> Result<()>,
    ) -> std::result::Result<(), Broken> {
        progress.check()?;
        let rest = (arrived.bytes > 0).then_some(GetRange::Offset(arrived.bytes));
        let options = GetOptions { range: rest, if_match: arrived.etag.clone(), ..GetOptions::default() };
        let result = match self.store().get_opts(&self.path(object)?, options).await {
            Err(error) if is_missing_object(&error) => return Err(self.missing(object).into()),
            result => result.map_err(|error| self.failed("download", object, error))?,
        };
        arrived.etag = result.meta.e_tag.clone();
        let mut stream = result.into_stream();
        while let Some(chunk) = stream.next().await {
            progress.check()?;
            let chunk = chunk.map_err(Broken::Connection)?;
            arrived.bytes = arrived.bytes.saturating_add(chunk.len() as u64);
            if arrived.bytes > stated {
                let message = format!("expected {stated} bytes as the manifest says, found more");
                return Err(Error::corrupt(message).at_path(&self.place(object)).into());
            }
            write(&chunk)?;
            progress.add(chunk.len() as u64);
        }
        Ok(())
    }

    #[cold]
    fn missing(&self, object: &str) -> Error {
        Error::corrupt("expected an object that the manifest lists, found none").at_path(&self.place(object))
    }
}

/// Why a download did not reach the end.
enum Broken {
    /// After the response began.
    Connection(object_store::Error),
    Other(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Broken {
        Broken::Other(error)
    }
}
