//! Downloading one object, chunk by chunk, and comparing it with the manifest.

use futures_util::StreamExt;
use object_store::{GetOptions, ObjectStore};

use crate::error::{Error, Result};
use crate::remote::bucket::root::Root;
use crate::remote::bucket::transfer::Transfer;

impl Root {
    /// Passes an object to `write`, chunk by chunk, but at most `stated` bytes.
    ///
    /// Errors: `Corrupt` if there is none, or it is longer; those of `write`; `Cancelled`; `Io`.
    pub(super) async fn download(
        &self,
        object: &str,
        stated: u64,
        transfer: &Transfer,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        transfer.check()?;
        let result = match self.store().get_opts(&self.path(object)?, GetOptions::default()).await {
            Err(object_store::Error::NotFound { .. }) => {
                let message = "expected an object that the manifest lists, found none";
                return Err(Error::corrupt(message).at_path(&self.place(object)));
            }
            result => result.map_err(|error| self.failed("download", object, error))?,
        };
        let (mut found, mut stream) = (0u64, result.into_stream());
        while let Some(chunk) = stream.next().await {
            transfer.check()?;
            let chunk = chunk.map_err(|error| self.failed("download", object, error))?;
            found = found.saturating_add(chunk.len() as u64);
            if found > stated {
                let message = format!("expected {stated} bytes as the manifest says, found more");
                return Err(Error::corrupt(message).at_path(&self.place(object)));
            }
            write(&chunk)?;
            transfer.add(chunk.len() as u64);
        }
        Ok(())
    }
}
