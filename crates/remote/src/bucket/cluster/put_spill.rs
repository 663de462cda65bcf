//! Uploading a spill.

use std::path::Path;

use object_store::{PutMode, PutOptions, PutPayloadMut};
use sharddb::Progress;
use sharddb::cluster::SpillReceipt;
use sharddb::internal::{Spill, memory_of, settings_of};
use sharddb::progress::Phase;
use sharddb::write::BuildOptions;
use sharddb_format::Result;
use sharddb_format::internal::checksum::ChecksumHasher;

use crate::bucket::Bucket;
use crate::bucket::cluster::job::JobObjects;
use crate::bucket::current::is_refused;
use crate::bucket::upload::PART_BYTES;

/// Maximum length of a spill that is sent in one request, which a broken connection repeats from its beginning.
const MOST_OF_ONE_PUT: u64 = 64 << 20;

/// Length of the blocks of memory that a payload consists of.
const PAYLOAD_BLOCK: usize = 1 << 20;

impl Bucket {
    /// Uploads the spill of a receipt, which a [`SpillWriter`](sharddb::cluster::SpillWriter) wrote into `directory`, for
    /// [`build_part`](Self::build_part). The local file stays.
    ///
    /// An object with the name and the length of the spill is success: the name has a digest of the content. The file is
    /// verified while it is read.
    ///
    /// Of the options, those of memory, progress and cancellation apply. Cost: one request if the spill has at most 64 MiB,
    /// and at most [`memory`](BuildOptions::memory) bytes. A larger one is read twice and uploaded in parts of at least 8 MiB,
    /// four at a time. Its creation is not conditional: two uploads at once write the same bytes.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such file; `Corrupt` if the file is damaged or not that of the receipt, or if the bucket has
    /// an object of this name and another length; `InvalidInput` for the name of a job; `Unsupported` for a store that
    /// cannot create objects conditionally; `Cancelled`; `Io`.
    pub async fn put_spill(
        &self,
        job: &str,
        directory: impl AsRef<Path>,
        receipt: &SpillReceipt,
        options: &BuildOptions,
    ) -> Result<()> {
        let object = JobObjects::new(job)?.object(&receipt.file_name());
        let spill = Spill::open(directory.as_ref(), receipt)?;
        let progress = settings_of(options).progress;
        progress.begin(Phase::Write, receipt.bytes());
        if receipt.bytes() <= memory_of(options).min(MOST_OF_ONE_PUT) {
            self.put_at_once(&object, &spill, receipt, progress).await?;
        } else {
            let path = directory.as_ref().join(receipt.file_name());
            self.put_in_parts(&object, &spill, (&path, receipt), progress).await?;
        }
        progress.add(receipt.bytes());
        Ok(())
    }

    async fn put_at_once(
        &self,
        object: &str,
        spill: &Spill,
        receipt: &SpillReceipt,
        progress: &Progress,
    ) -> Result<()> {
        let mut payload = PutPayloadMut::new().with_block_size(PAYLOAD_BLOCK);
        spill.read_verified(&mut |piece| {
            payload.extend_from_slice(piece);
            progress.check()
        })?;
        let put = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.root.store().put_opts(&self.root.path(object)?, payload.freeze(), put).await {
            Err(error) if is_refused(&error) => self.root.check_uploaded(object, receipt.bytes()).await,
            put => put.map(|_| ()).map_err(|error| self.root.failed("upload", object, error)),
        }
    }

    async fn put_in_parts(
        &self,
        object: &str,
        spill: &Spill,
        (path, receipt): (&Path, &SpillReceipt),
        progress: &Progress,
    ) -> Result<()> {
        if self.root.head(object).await?.is_some() {
            return self.root.check_uploaded(object, receipt.bytes()).await;
        }
        let mut hasher = ChecksumHasher::of_file();
        spill.read_verified(&mut |piece| {
            hasher.update(piece);
            progress.check()
        })?;
        self.root.upload_file(object, path, hasher.finish(), PART_BYTES, &progress.apart()).await.map(drop)
    }
}
