//! Copying an object within the bucket, by the server if it can.

use futures_util::StreamExt;
use object_store::{CopyMode, CopyOptions, GetOptions, ObjectStore, PutMultipartOptions, PutPayload};
use sharddb::Progress;
use sharddb_format::internal::checksum::Checksum;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::root::Root;
use crate::bucket::upload::part_bytes;
use crate::store_error::is_missing_object;

/// Maximum length of an object that S3 copies in one request.
const MOST_OF_ONE_COPY: u64 = 5_000_000_000;

/// What the server did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerCopy {
    Done,
    Unsupported,
}

impl Root {
    /// Copies an object. One with the target's name and this length is success: the name is that of an earlier attempt.
    ///
    /// An object that the server cannot copy is downloaded and uploaded again, and only then compared with its checksum.
    ///
    /// Errors: `NotFound` if there is no such object; `Corrupt` if the target has another length, or other bytes were
    /// downloaded; `Cancelled`; `Io`.
    pub(in crate::bucket) async fn copy_object(
        &self,
        from: &str,
        to: &str,
        stated: Checksum,
        part: u64,
        progress: &Progress,
    ) -> Result<()> {
        progress.check()?;
        if stated.bytes > MOST_OF_ONE_COPY || self.copy_by_server(from, to, stated).await? == ServerCopy::Unsupported {
            return self.relay(from, to, stated, part, progress).await;
        }
        progress.add(stated.bytes);
        Ok(())
    }

    async fn copy_by_server(&self, from: &str, to: &str, stated: Checksum) -> Result<ServerCopy> {
        use object_store::Error::{AlreadyExists, NotImplemented, NotSupported, Precondition};
        let (source, target) = (self.path(from)?, self.path(to)?);
        // S3 copies conditionally only if the client is configured for it. An overwritten object has the same bytes.
        for mode in [CopyMode::Create, CopyMode::Overwrite] {
            match self.store().copy_opts(&source, &target, CopyOptions::new().with_mode(mode)).await {
                Ok(()) => return Ok(ServerCopy::Done),
                Err(AlreadyExists { .. } | Precondition { .. }) => {
                    self.check_uploaded(to, stated.bytes).await?;
                    return Ok(ServerCopy::Done);
                }
                Err(NotSupported { .. } | NotImplemented { .. }) => {}
                Err(error) if is_missing_object(&error) => return Err(self.lost_shard(from)),
                Err(error) => return Err(self.failed("copy", from, error)),
            }
        }
        Ok(ServerCopy::Unsupported)
    }

    /// Downloads an object and uploads it under another name, in bounded memory.
    async fn relay(&self, from: &str, to: &str, stated: Checksum, part: u64, progress: &Progress) -> Result<()> {
        if self.head(to).await?.is_some_and(|found| found.size == stated.bytes) {
            progress.add(stated.bytes);
            return Ok(());
        }
        if stated.bytes <= part {
            let (mut bytes, mut hasher) = (Vec::new(), stated.hasher());
            let append = |chunk: &[u8]| {
                bytes.extend_from_slice(chunk);
                hasher.update(chunk);
                Ok(())
            };
            self.download(from, stated.bytes, progress, append).await?;
            stated.check(hasher.finish()).map_err(|error| error.at_path(&self.place(from)))?;
            return self.upload_bytes(to, bytes).await.map(drop);
        }
        let begun = self.store().put_multipart_opts(&self.path(to)?, PutMultipartOptions::default()).await;
        let mut upload = begun.map_err(|error| self.failed("upload", to, error))?;
        if let Err(error) = self.relay_parts(from, &mut *upload, (stated, part), progress).await {
            _ = upload.abort().await; // the store keeps parts of an upload that is neither completed nor aborted
            return Err(error);
        }
        self.complete(to, &mut *upload, stated.bytes).await.map(drop)
    }

    async fn relay_parts(
        &self,
        from: &str,
        upload: &mut dyn object_store::MultipartUpload,
        (stated, part): (Checksum, u64),
        progress: &Progress,
    ) -> Result<()> {
        let part = usize::try_from(part_bytes(stated.bytes, part)).unwrap_or(usize::MAX);
        let mut hasher = stated.hasher();
        let result = match self.store().get_opts(&self.path(from)?, GetOptions::default()).await {
            Err(error) if is_missing_object(&error) => return Err(self.lost_shard(from)),
            result => result.map_err(|error| self.failed("read", from, error))?,
        };
        let (mut stream, mut buffer) = (result.into_stream(), Vec::new());
        while let Some(chunk) = stream.next().await {
            progress.check()?;
            let chunk = chunk.map_err(|error| self.failed("read", from, error))?;
            hasher.update(&chunk);
            if hasher.bytes() > stated.bytes {
                break;
            }
            progress.add(chunk.len() as u64);
            let mut chunk = &chunk[..];
            while let Some((head, rest)) = chunk.split_at_checked(part - buffer.len()) {
                buffer.extend_from_slice(head);
                self.send(upload, std::mem::take(&mut buffer), from).await?;
                chunk = rest;
            }
            buffer.extend_from_slice(chunk);
        }
        stated.check(hasher.finish()).map_err(|error| error.at_path(&self.place(from)))?;
        if !buffer.is_empty() {
            self.send(upload, buffer, from).await?;
        }
        Ok(())
    }

    async fn send(&self, upload: &mut dyn object_store::MultipartUpload, part: Vec<u8>, from: &str) -> Result<()> {
        upload.put_part(PutPayload::from(part)).await.map_err(|error| self.failed("copy", from, error))
    }

    /// Returns the error for a shard that the bucket lacks.
    #[cold]
    pub(super) fn lost_shard(&self, object: &str) -> Error {
        let message = "expected a shard of a part, found no such object: build the part again";
        Error::new(ErrorKind::NotFound, message).at_path(&self.place(object))
    }
}
