//! Uploading one object, in bounded memory: the checksum of the very bytes that are sent decides whether it is completed.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, PutMode, PutMultipartOptions, PutPayload};
use sharddb::Progress;
use sharddb::internal::fs::descriptors::open as open_descriptor;
use sharddb::internal::fs::disk;
use sharddb_format::internal::checksum::{Checksum, ChecksumHasher};
use sharddb_format::{Error, Result};

use crate::bucket::root::Root;

/// Default length of a part. Stores require at least 5 MiB.
pub(super) const PART_BYTES: u64 = 8 << 20;

/// Maximum number of parts of an object in S3.
const MOST_PARTS: u64 = 10_000;

/// Number of parts that are sent at a time.
const PARTS_IN_FLIGHT: usize = 4;

/// Returns the length of the parts of an object: all but the last have the same.
pub(super) fn part_bytes(object_bytes: u64, smallest: u64) -> u64 {
    let needed = object_bytes.div_ceil(MOST_PARTS);
    smallest.max(needed.next_multiple_of(1 << 20))
}

impl Root {
    /// Uploads bytes as a new object. An object of the same length is left as it is: its name is random, so it is that of
    /// an earlier attempt. Returns the ETag of the uploaded object, if the server states it.
    pub(super) async fn upload_bytes(&self, object: &str, bytes: Vec<u8>) -> Result<Option<String>> {
        let len = bytes.len() as u64;
        match self.put(&self.path(object)?, bytes, PutMode::Create).await {
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                self.check_uploaded(object, len).await.map(|()| None)
            }
            put => put.map(|put| put.e_tag).map_err(|error| self.failed("upload", object, error)),
        }
    }

    /// Uploads a file as a new object: at once if it has at most `smallest_part` bytes, else in parts. Returns its ETag, if
    /// the server states it.
    ///
    /// Errors: `Corrupt` if its bytes are not the stated ones: nothing is uploaded then; `Cancelled`; `Io`.
    pub(super) async fn upload_file(
        &self,
        object: &str,
        from: &Path,
        stated: Checksum,
        smallest_part: u64,
        progress: &Progress,
    ) -> Result<Option<String>> {
        let mut source = Source::open(from, stated)?;
        if stated.bytes <= smallest_part {
            let bytes = source.read(smallest_part)?;
            source.finish()?;
            progress.check()?;
            let etag = self.upload_bytes(object, bytes).await?;
            progress.add(stated.bytes);
            return Ok(etag);
        }
        let part = part_bytes(stated.bytes, smallest_part);
        self.upload_parts(object, source, part, progress).await
    }

    async fn upload_parts(
        &self,
        object: &str,
        source: Source<'_>,
        part: u64,
        progress: &Progress,
    ) -> Result<Option<String>> {
        let path: ObjectPath = self.path(object)?;
        let len = source.stated.bytes;
        let begun = self.store().put_multipart_opts(&path, PutMultipartOptions::default()).await;
        let mut upload = begun.map_err(|error| self.failed("upload", object, error))?;
        if let Err(error) = self.send_parts(object, &mut *upload, source, part, progress).await {
            _ = upload.abort().await; // the store keeps parts of an upload that is neither completed nor aborted
            return Err(error);
        }
        self.complete(object, &mut *upload, len).await
    }

    /// Joins the parts of an object. A failure is a success if the object has the stated length: only the reply was lost.
    /// Returns its ETag, if the server states it.
    pub(super) async fn complete(
        &self,
        object: &str,
        upload: &mut dyn MultipartUpload,
        stated: u64,
    ) -> Result<Option<String>> {
        let error = match upload.complete().await {
            Ok(put) => return Ok(put.e_tag),
            Err(error) => self.failed("upload", object, error),
        };
        self.check_uploaded(object, stated).await.map(|()| None).map_err(|_| error)
    }

    async fn send_parts(
        &self,
        object: &str,
        upload: &mut dyn MultipartUpload,
        mut source: Source<'_>,
        part: u64,
        progress: &Progress,
    ) -> Result<()> {
        let mut sent = FuturesUnordered::new();
        let fail = |error| self.failed("upload", object, error);
        loop {
            progress.check()?;
            let bytes = source.read(part)?;
            if bytes.is_empty() {
                break;
            }
            if sent.len() >= PARTS_IN_FLIGHT {
                sent.next().await.transpose().map_err(fail)?;
            }
            progress.add(bytes.len() as u64);
            sent.push(upload.put_part(PutPayload::from(bytes)));
        }
        source.finish()?; // before the last parts, so that a damaged file fails early
        while let Some(part) = sent.next().await {
            part.map_err(fail)?;
        }
        Ok(())
    }

    /// Checks that the bucket has an object of the stated length.
    ///
    /// Errors: `Corrupt` if it does not; `Io`.
    pub(super) async fn check_uploaded(&self, object: &str, stated: u64) -> Result<()> {
        match self.head(object).await? {
            Some(found) if found.size == stated => Ok(()),
            found => {
                let found = found.map_or("none".to_string(), |found| format!("one of {} bytes", found.size));
                let message = format!("expected an uploaded object of {stated} bytes, found {found}");
                Err(Error::corrupt(message).at_path(&self.place(object)))
            }
        }
    }
}

/// A local file that is read once, and compared with the checksum of the manifest.
struct Source<'a> {
    file: File,
    path: &'a Path,
    stated: Checksum,
    hasher: ChecksumHasher,
}

impl<'a> Source<'a> {
    fn open(path: &'a Path, stated: Checksum) -> Result<Source<'a>> {
        let file = disk::inspect(path, || open_descriptor(path)).map_err(|error| Error::io("open", path, error))?;
        Ok(Source { file, path, stated, hasher: stated.hasher() })
    }

    /// Reads the next bytes, at most `most`.
    fn read(&mut self, most: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let expected = most.min(self.stated.bytes.saturating_sub(self.hasher.bytes())); // without it the buffer would double
        let _ = bytes.try_reserve_exact(usize::try_from(expected).unwrap_or(0)); // a failed allocation shows in the read
        let read = disk::inspect(self.path, || (&self.file).take(most).read_to_end(&mut bytes));
        read.map_err(|error| Error::io("read", self.path, error))?;
        self.hasher.update(&bytes);
        Ok(bytes)
    }

    /// Errors: `Corrupt` if the bytes are not the stated ones.
    fn finish(mut self) -> Result<()> {
        self.read(1)?; // a file that is too long
        self.stated.check(self.hasher.finish()).map_err(|error| error.at_path(self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_at_most_ten_thousand_parts() {
        for bytes in [1, PART_BYTES + 1, 80 << 30, (10_000 * PART_BYTES) + 1, 5 << 40] {
            let part = part_bytes(bytes, PART_BYTES);
            assert!(part >= PART_BYTES && bytes.div_ceil(part) <= MOST_PARTS, "{bytes}");
        }
        assert_eq!(part_bytes(PART_BYTES + 1, PART_BYTES), PART_BYTES);
        assert_eq!(part_bytes((10_000 * PART_BYTES) + 1, PART_BYTES), PART_BYTES + (1 << 20));
    }
}
