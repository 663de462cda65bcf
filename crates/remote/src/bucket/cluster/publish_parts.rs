//! The last step: a generation in the bucket, of the shards of all parts.
//!
//! ```text
//! publication-<digest>   copying      names the generation
//! gen-N-../..            info, minishard table, shards (copied by the server), and the manifest last
//! publication-<digest>   replacing
//! current                replaced if it is as it was at the beginning
//! publication-<digest>   published
//! spills, parts          removed
//! ```
//!
//! `info`, manifest and minishard table are composed by the local code, in a temporary store whose shards are sparse files
//! with a shard index and nothing else. The digest in the name is that of all receipts and options. A repeated publication
//! finds by the state and by the history in `current` whether its generation was current.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use sharddb::cluster::{PartPlan, PartReceipt, SpillReceipt, SpillSet};
use sharddb::internal::fs::disk;
use sharddb::internal::{Job, LocalGeneration, PartsDir, check_emptied, settings_of, shard_records};
use sharddb::store::Store;
use sharddb::write::{BuildOptions, Candidate};
use sharddb::{Content, Progress};
use sharddb_format::internal::ids::ShardNumber;
use sharddb_format::internal::manifest::ShardRecord;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::Bucket;
use crate::bucket::cluster::job::JobObjects;
use crate::bucket::cluster::mark::{Mark, State, mark_name};
use crate::bucket::cluster::mirror::{Copied, Mirror};
use crate::bucket::cluster::scratch::Scratch;
use crate::bucket::current::Current;
use crate::bucket::push::{Before, PushOptions, Upload, may_continue, next_name};
use crate::bucket_current::GenerationName;

/// Number of shard indexes that are read at a time.
const INDEXES_AT_A_TIME: usize = 32;

/// A generation of a partitioned build, as returned by [`Bucket::publish_parts`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishedParts {
    /// The name of the generation, which was made current.
    pub generation: String,
    /// The number of keys of the generation that was current before; `None` if there was none, if it has no readable manifest, or if
    /// an earlier call published.
    pub keys_before: Option<u64>,
    /// What it contains.
    pub content: Content,
}

impl Bucket {
    /// Publishes a generation of all parts, whose receipts are given in any order, and then removes the objects that the
    /// receipts of spills and parts name.
    ///
    /// The objects are the files that [`SpillSet::publish`](sharddb::cluster::SpillSet::publish) would write. The server copies the
    /// shards; those that it cannot copy are downloaded and uploaded. The receipts are checked as for a local store; of every
    /// shard the length and the checksum of its index. [`verify`](Self::verify) checks everything, except that manifests of meshes
    /// have their fragments, for which no value is read here: verify a copy.
    ///
    /// A repeated call with equal receipts and options returns the same result, without `keys_before`, and changes nothing, also if
    /// another generation was published since, or if the first call was killed at any moment. It is `Superseded` if the first call
    /// was killed while it replaced `current`, and then the generation was rolled back, or was perhaps replaced and removed
    /// by `gc`. That holds until [`clean_parts`](Self::clean_parts) removes the job. Another run of the job has other
    /// receipts, since its spills have other random bytes; with spills of earlier versions, which have none, a repeated call
    /// is `Superseded` unless its generation is current.
    ///
    /// Of the options, those of `info` and its sharding, emptiness, temporary directory, progress and cancellation apply. A key
    /// file is not supported, since all keys would have to be read.
    ///
    /// Cost: one request per shard to read its index and one to copy it. Disk: the shard indexes.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a missing, repeated or foreign receipt; `NotFound` or `Corrupt`, with the object, for a shard that
    /// is missing or not that of its receipt; `Unsupported` for a key file, or a store without conditional writes; `Locked` if
    /// another publisher replaced `current` meanwhile; `Superseded`; `Empty` like [`push`](Self::push), whose other errors are possible
    /// too. Nothing is published then, unless
    /// `current` was being replaced: repeat the call, which finds that.
    pub async fn publish_parts(
        &self,
        job: &str,
        plan: &PartPlan,
        spills: impl IntoIterator<Item = SpillReceipt>,
        parts: impl IntoIterator<Item = PartReceipt>,
        options: &BuildOptions,
    ) -> Result<PublishedParts> {
        let objects = JobObjects::new(job)?;
        if settings_of(options).ordered {
            let message = "expected a publication without a key file, found `ordered`: in a bucket all keys would have to \
                           be read; publish locally and push, or leave it out";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let scratch = Scratch::create(options)?;
        let store = scratch.path().join("store");
        let spills = SpillSet::new(plan, scratch.path(), spills)?;
        let job = Job::new(&spills, PartsDir::of_job(&store, job)?, parts, options)?;
        let mark = objects.object(&mark_name(job.digest()));
        let (options, progress) = (scratch.options(options), settings_of(options).progress.apart());
        let publication = Publication { bucket: self, objects, job, mark, store: &store, options, progress };
        let (generation, keys_before) = publication.publish().await?;
        // what stays takes only space, and a repeated call or `clean_parts` removes it
        _ = publication.remove_inputs().await;
        Ok(publication.result(&generation, keys_before))
    }
}

/// A publication of checked receipts.
struct Publication<'a> {
    bucket: &'a Bucket,
    objects: JobObjects,
    job: Job<'a>,
    /// The object with its state.
    mark: String,
    /// The temporary local store.
    store: &'a Path,
    options: BuildOptions,
    progress: Progress,
}

/// What an earlier call did.
enum Earlier {
    Nothing,
    /// It began a generation, which was never current.
    Begun(Mark),
    /// Its generation was made current.
    WasCurrent(Mark),
}

impl Publication<'_> {
    /// Returns the generation that was made current, by this call or an earlier one, and the number of keys before this call.
    async fn publish(&self) -> Result<(GenerationName, Option<u64>)> {
        let published = self.publish_or_fail().await;
        let Err(error) = published else { return published };
        if error.kind() == ErrorKind::Superseded {
            return Err(error);
        }
        // another call with the same receipts may have completed meanwhile
        match self.bucket.root.mark(&self.mark).await {
            Ok(Some(mark)) if mark.state == State::Published => Ok((mark.generation, None)),
            _ => Err(error),
        }
    }

    async fn publish_or_fail(&self) -> Result<(GenerationName, Option<u64>)> {
        let root = &self.bucket.root;
        let mark = root.mark(&self.mark).await?;
        let is_retry = self.job.is_of_one_run();
        if let Some(mark) = mark.as_ref().filter(|mark| is_retry && mark.state == State::Published) {
            return Ok((mark.generation.clone(), None));
        }
        let base = root.current().await?;
        let begun = match self.earlier(base.as_ref(), mark, is_retry)? {
            Earlier::WasCurrent(mark) => return Ok((self.complete(&mark).await?, None)),
            Earlier::Begun(mark) => Some(mark),
            Earlier::Nothing => None,
        };
        if base.is_none() {
            self.bucket.check_is_no_data_set().await?;
        }
        let keys_before = match &base {
            Some(base) => Before::read(self.bucket, base.generation()).await?.keys,
            None => None,
        };
        if let Some(base) =
            base.as_ref().filter(|_| self.job.content().keys == 0 && !settings_of(&self.options).allow_empty)
        {
            check_emptied(base.generation(), keys_before)?;
        }
        root.check_conditions().await?;
        let candidate = self.compose().await?;
        let local = LocalGeneration::open(candidate.path())?;
        let push = PushOptions::phase_of(&self.options);
        let mut upload = Upload::new(self.bucket, &local, &push, next_name(base.as_ref())?);
        upload.copy_shards(self.shard_objects());
        let mark = self.begin(base.as_ref(), &mut upload, begun).await?;
        upload.run().await?;
        if !upload.is_complete().await? {
            return Err(upload.removed());
        }
        let mark = match mark.state {
            State::Copying => root.write_mark(&self.mark, Some(&mark), State::Replacing, &mark.generation).await?,
            State::Replacing | State::Published => mark,
        };
        upload.publish(base).await?;
        Ok((self.complete(&mark).await?, keys_before))
    }

    /// Records that the generation was current.
    async fn complete(&self, mark: &Mark) -> Result<GenerationName> {
        self.bucket.root.write_mark(&self.mark, Some(mark), State::Published, &mark.generation).await?;
        Ok(mark.generation.clone())
    }

    /// Returns what an earlier call did, given `current`.
    ///
    /// Errors: `Superseded` if it was rolled back, if that cannot be known, or if it was published and is not current, and the
    /// spills do not show whether this is a retry or another run of the job.
    fn earlier(&self, base: Option<&Current>, mark: Option<Mark>, is_retry: bool) -> Result<Earlier> {
        let Some(mark) = mark else { return Ok(Earlier::Nothing) };
        let is_current = base.is_some_and(|base| base.generation() == &mark.generation);
        if is_current {
            return Ok(Earlier::WasCurrent(mark));
        }
        if mark.state == State::Published {
            let why = "an earlier run of the job published the same, and it is not current";
            return Err(self.superseded(&mark.generation, why));
        }
        let Some(base) = base else { return Ok(Earlier::Begun(mark)) };
        if let Some(entry) = base.text.before.iter().find(|entry| entry.generation == mark.generation) {
            return if is_retry && !entry.rolled_back {
                Ok(Earlier::WasCurrent(mark))
            } else {
                Err(self.superseded(&mark.generation, "it was rolled back or replaced"))
            };
        }
        if mark.state == State::Replacing && base.text.removed.contains(&mark.generation) {
            Err(self.superseded(&mark.generation, "it was removed, and may have been current before"))
        } else {
            Ok(Earlier::Begun(mark))
        }
    }

    /// Decides the name of the generation: that of an earlier call, if its objects can be continued, or a new one.
    ///
    /// Errors: `Superseded` if the objects are gone and may have been current; `Locked`.
    async fn begin(&self, base: Option<&Current>, upload: &mut Upload<'_>, begun: Option<Mark>) -> Result<Mark> {
        let root = &self.bucket.root;
        if let Some(mark) = &begun {
            if may_continue(base, &mark.generation) {
                upload.resume(mark.generation.clone(), &HashMap::new()).await?;
            }
            if upload.generation == mark.generation {
                return Ok(mark.clone());
            }
            if mark.state == State::Replacing {
                return Err(self.superseded(&mark.generation, "it was removed, and may have been current before"));
            }
        }
        root.write_mark(&self.mark, begun.as_ref(), State::Copying, &upload.generation).await
    }

    /// The generation of an earlier call is not current, and must not become current by a repeated one.
    #[cold]
    fn superseded(&self, generation: &GenerationName, why: &str) -> Error {
        let message = format!(
            "these parts were {generation}, which is not published again: {why}. To publish them all the same, remove this \
             object and publish again, after the job from its spills on if they are gone; otherwise clean the parts of this job"
        );
        Error::new(ErrorKind::Superseded, message).at_path(&self.bucket.root.place(&self.mark))
    }

    /// Returns the shards of all parts by their objects.
    fn shard_objects(&self) -> HashMap<ShardNumber, String> {
        let of_shard = |(name, shard): (String, ShardRecord)| (shard.number, self.objects.object(&name));
        self.shards().map(of_shard).collect()
    }

    /// Returns the shards of all parts, and their names in the job.
    fn shards(&self) -> impl Iterator<Item = (String, ShardRecord)> {
        let spec = self.job.spills().plan().spec();
        self.job.parts().iter().flat_map(move |part| {
            let directory = part.directory_name();
            let name = move |number| format!("{directory}/{}", spec.shard_file_name(number));
            shard_records(part).iter().map(move |shard| (name(shard.number), *shard))
        })
    }

    /// Composes the generation in the temporary store, with shards that are sparse files.
    ///
    /// Errors: `NotFound` or `Corrupt`, with the object, for a shard that is lost or another; those of the options.
    async fn compose(&self) -> Result<Candidate> {
        let directory = self.store.join(self.objects.directory());
        for part in self.job.parts() {
            let path = directory.join(part.directory_name());
            disk::with_syncs_if(false, || PartsDir::create(&path))?;
        }
        let shards: Vec<_> = self.shards().collect();
        let indexes = stream::iter(shards).map(|(name, shard)| self.mirror_index(&directory, name, shard));
        indexes.buffer_unordered(INDEXES_AT_A_TIME).try_collect::<()>().await?;
        let compose = || self.job.write(&Store::create(self.store)?.writer()?, &self.options);
        let composed = disk::with_syncs_if(false, compose);
        composed.map_err(|error| self.objects.at_object(&self.bucket.root, &directory, error))
    }

    /// Copies a shard index into a sparse file that is as long as its shard.
    async fn mirror_index(&self, directory: &Path, name: String, shard: ShardRecord) -> Result<()> {
        let root = &self.bucket.root;
        let object = self.objects.object(&name);
        let place = root.place(&object);
        let mirror = Mirror::create(root, object.clone(), directory.join(&name), &self.progress)?;
        let index = self.job.spills().plan().spec().shard_index_len().min(shard.bytes);
        let copied = match index {
            0 => Copied::Done, // the local code finds that the index is missing
            _ => mirror.copy(0..index, shard.bytes).await?,
        };
        let error = match copied {
            Copied::Done => return mirror.set_len(shard.bytes),
            Copied::Missing => root.lost_shard(&object),
            Copied::OtherLength(found) => {
                let message = format!(
                    "expected the shard of {} bytes that the receipt of its part states, found one of {found}: build the \
                     part again",
                    shard.bytes
                );
                Error::corrupt(message).at_path(&place)
            }
        };
        Err(error.at_shard(shard.number))
    }

    /// Removes the objects that the receipts name.
    async fn remove_inputs(&self) -> Result<()> {
        let spills = self.job.spills().receipts().iter().map(SpillReceipt::file_name);
        let named: HashSet<String> = spills.chain(self.shards().map(|(name, _)| name)).collect();
        self.objects.remove(&self.bucket.root, move |name| named.contains(name)).await
    }

    fn result(&self, generation: &GenerationName, keys_before: Option<u64>) -> PublishedParts {
        PublishedParts { generation: generation.to_string(), keys_before, content: self.job.content() }
    }
}
