//! The reduce step: the shards of one part, from its sections of all spills in the bucket.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use sharddb::cluster::{PartPlan, PartReceipt, SpillReceipt, SpillSet};
use sharddb::internal::fs::disk;
use sharddb::internal::{PartBuild, Spill, settings_of, shard_records};
use sharddb::progress::Phase;
use sharddb::write::BuildOptions;
use sharddb_format::internal::manifest::ShardRecord;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::Bucket;
use crate::bucket::cluster::job::JobObjects;
use crate::bucket::cluster::mirror::mirror_spill;
use crate::bucket::cluster::scratch::Scratch;
use crate::bucket::upload::PART_BYTES;

/// Number of spills that are read at a time. Bounds the disk space: their sections of one part.
const SPILLS_AT_A_TIME: usize = 8;

/// Number of shards of at most one part of an upload that are uploaded at a time.
const SHARDS_AT_A_TIME: usize = 8;

impl Bucket {
    /// Builds a part of the spills that [`put_spill`](Self::put_spill) uploaded, and uploads its shards.
    ///
    /// The receipt and the shards are those of [`SpillSet::build_part`], and so are the options that apply. A part that an
    /// earlier attempt uploaded, whole or in part, is continued. [`publish_parts`](Self::publish_parts) needs the receipts of
    /// all parts.
    ///
    /// Builds on the calling thread and those of the options, in a directory in
    /// [`temp_dir`](BuildOptions::temp_dir), which needs space for the shards of the part, for its sections of 8 spills, and
    /// for what exceeds the memory. A killed process leaves this directory.
    ///
    /// Cost: two requests per spill, one more per additional run; reads the section tables of all spills and the sections
    /// of this part, once.
    ///
    /// # Errors
    ///
    /// `NotFound` for a missing spill; `Corrupt` for a spill that is damaged or not that of its receipt, with its object;
    /// `InvalidInput` for the receipts of another plan, two of one task, another number of a part, or the name of a job;
    /// those of [`SpillSet::build_part`] and of uploading.
    pub async fn build_part(
        &self,
        job: &str,
        plan: &PartPlan,
        spills: impl IntoIterator<Item = SpillReceipt>,
        part: u64,
        options: &BuildOptions,
    ) -> Result<PartReceipt> {
        let job = JobObjects::new(job)?;
        plan.shards(part)?;
        let scratch = Scratch::create(options)?;
        let mirrors = scratch.path().join("spills");
        disk::create_dir(&mirrors).map_err(|error| Error::io("create the directory", &mirrors, error))?;
        let spills = SpillSet::new(plan, &mirrors, spills)?;
        let out = scratch.path().join("part");
        let receipt = self.build_from(&job, &spills, (part, &out), &scratch.options(options)).await?;
        self.upload_part(&job, plan, (&receipt, &out), options).await?;
        Ok(receipt)
    }

    /// Builds a part in the directory `out`.
    async fn build_from(
        &self,
        job: &JobObjects,
        spills: &SpillSet,
        (part, out): (u64, &Path),
        options: &BuildOptions,
    ) -> Result<PartReceipt> {
        let (progress, parts) = (settings_of(options).progress.apart(), spills.plan().parts());
        let directory = spills.directory();
        let mut build = PartBuild::begin(spills, part, out, options)?;
        for receipts in spills.receipts().chunks(SPILLS_AT_A_TIME) {
            // all of them before the first is read, since reading blocks the thread of the downloads
            let of_job = (&self.root, job);
            let mirror = |receipt| mirror_spill(of_job, (part, parts), receipt, directory, &progress);
            let mirrors = stream::iter(receipts.to_vec()).map(mirror).buffer_unordered(SPILLS_AT_A_TIME);
            mirrors.try_collect::<()>().await?;
            for receipt in receipts {
                let read = Spill::open(directory, receipt).and_then(|spill| build.read(&spill));
                read.map_err(|error| job.at_object(&self.root, directory, error))?;
                let path = directory.join(receipt.file_name());
                disk::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
            }
        }
        build.finish()
    }

    /// Uploads the shards that the bucket lacks.
    async fn upload_part(
        &self,
        job: &JobObjects,
        plan: &PartPlan,
        (receipt, out): (&PartReceipt, &Path),
        options: &BuildOptions,
    ) -> Result<()> {
        let (progress, directory) = (settings_of(options).progress, receipt.directory_name());
        progress.begin(Phase::Write, receipt.file_bytes());
        let name_of = |shard: &ShardRecord| format!("{directory}/{}", plan.spec().shard_file_name(shard.number));
        let wanted: HashSet<String> = shard_records(receipt).iter().map(name_of).collect();
        let found = self.lengths_of_part(job, &directory, &wanted).await?;
        let mut missing = Vec::new();
        for shard in shard_records(receipt) {
            match found.get(&name_of(shard)) {
                Some(len) if *len == shard.bytes => progress.add(shard.bytes),
                Some(len) => return Err(self.other_shard(job, &name_of(shard), shard, *len)),
                None => missing.push(*shard),
            }
        }
        let upload = async |shard: ShardRecord| {
            let (name, stated) = (name_of(&shard), shard.checksum(plan.spec()));
            let (object, from) = (job.object(&name), out.join(&name));
            let uploaded = self.root.upload_file(&object, &from, stated, PART_BYTES, &progress.apart()).await;
            progress.add(shard.bytes);
            uploaded.map(drop).map_err(|error| error.at_shard(shard.number))
        };
        let (small, large): (Vec<_>, Vec<_>) = missing.into_iter().partition(|shard| shard.bytes <= PART_BYTES);
        let uploads = stream::iter(small).map(&upload).buffer_unordered(SHARDS_AT_A_TIME);
        uploads.try_collect::<()>().await?;
        for shard in large {
            upload(shard).await?; // one at a time: its parts are sent together
        }
        Ok(())
    }

    /// Returns the lengths of the wanted shards of a part by their names in the job.
    async fn lengths_of_part(
        &self,
        job: &JobObjects,
        directory: &str,
        wanted: &HashSet<String>,
    ) -> Result<HashMap<String, u64>> {
        let mut lengths = HashMap::new();
        let insert = |name: &str, meta: object_store::ObjectMeta| {
            lengths.extend(wanted.get(name).map(|name| (name.clone(), meta.size)));
            Ok(())
        };
        job.for_each_in(&self.root, directory, insert).await?;
        Ok(lengths)
    }

    #[cold]
    fn other_shard(&self, job: &JobObjects, name: &str, shard: &ShardRecord, found: u64) -> Error {
        let message = format!(
            "expected this name to be free or that of an equal shard of {} bytes, found an object of {found}: remove it",
            shard.bytes
        );
        Error::new(ErrorKind::Corrupt, message).at_path(&self.root.place(&job.object(name))).at_shard(shard.number)
    }
}
