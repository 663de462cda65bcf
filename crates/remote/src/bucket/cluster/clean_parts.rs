//! Removing what is left of partitioned builds.

use std::collections::BTreeSet;
use std::time::Duration;

use sharddb::internal::PartsDir;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::Bucket;
use crate::bucket::cluster::job::{JobObject, JobObjects};
use crate::bucket_current::ServerTime;

/// Maximum number of foreign objects that are named: bounds the memory.
const MOST_FOREIGN: usize = 100_000;

/// The result of [`Bucket::clean_parts`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketCleaned {
    /// The jobs whose objects were removed, ascending.
    pub jobs: Vec<String>,
    /// The number of objects that were removed.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The objects of these jobs that no partitioned build makes, with their full names. They stay.
    pub foreign: Vec<String>,
}

/// What a job has.
#[derive(Default)]
struct JobContent {
    objects: u64,
    bytes: u64,
    /// When the newest object was written.
    newest: Option<ServerTime>,
    foreign: Vec<String>,
}

impl Bucket {
    /// Removes the objects of a job, or of all jobs, whose newest object is at least this old: spills, shards of parts, and
    /// the states of publications.
    ///
    /// The age counts by the clock of the server, which is read by writing a small object. A job that is removed cannot be
    /// published any more, nor published again. Its processes must have ended. Generations are not touched, as
    /// [`gc`](Self::gc) does not touch jobs.
    ///
    /// Cost: lists the objects of the jobs, 1,000 per request.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such job; `InvalidInput` for a name that no job has; `TooLarge` for more than 100,000 foreign
    /// objects in a job; `Io`.
    pub async fn clean_parts(&self, job: Option<&str>, older_than: Duration) -> Result<BucketCleaned> {
        let jobs = match job {
            Some(job) => BTreeSet::from([job.to_string()]),
            None => self.jobs().await?,
        };
        let mut cleaned = BucketCleaned::default();
        if jobs.is_empty() {
            return Ok(cleaned);
        }
        let now = self.root.server_time().await?;
        for name in jobs {
            let objects = JobObjects::new(&name)?;
            let content = self.content(&objects).await?;
            let Some(newest) = content.newest else {
                match job {
                    Some(_) => return Err(self.no_job(&objects)),
                    None => continue, // a directory with foreign objects alone
                }
            };
            if Duration::from_secs(now.seconds_since(newest)) >= older_than {
                self.remove_job(&objects).await?;
                cleaned.jobs.push(name);
                cleaned.objects = cleaned.objects.saturating_add(content.objects);
                cleaned.bytes = cleaned.bytes.saturating_add(content.bytes);
                cleaned.foreign.extend(content.foreign);
            }
        }
        Ok(cleaned)
    }

    /// Lists the jobs of which there are objects.
    async fn jobs(&self) -> Result<BTreeSet<String>> {
        let listed = self.root.store().list_with_delimiter(Some(self.root.prefix())).await;
        let listed = listed.map_err(|error| self.root.failed("list", "", error))?;
        let names = listed.common_prefixes.iter().filter_map(|path| self.root.name_of(path));
        Ok(names.filter_map(PartsDir::job_of_name).map(str::to_string).collect())
    }

    async fn content(&self, job: &JobObjects) -> Result<JobContent> {
        let mut content = JobContent::default();
        let add = |name: &str, meta: object_store::ObjectMeta| {
            if JobObject::of(name).is_none() {
                if content.foreign.len() >= MOST_FOREIGN {
                    return Err(self.too_many_foreign(job));
                }
                content.foreign.push(self.root.place(&job.object(name)).display().to_string());
                return Ok(());
            }
            content.objects += 1;
            content.bytes = content.bytes.saturating_add(meta.size);
            content.newest = content.newest.max(Some(self.root.modified(&meta)?));
            Ok(())
        };
        job.for_each(&self.root, add).await?;
        Ok(content)
    }

    /// Removes the states last: parts without them could be published again.
    async fn remove_job(&self, job: &JobObjects) -> Result<()> {
        for kind in [JobObject::Data, JobObject::Mark] {
            job.remove(&self.root, move |name| JobObject::of(name) == Some(kind)).await?;
        }
        Ok(())
    }

    #[cold]
    fn too_many_foreign(&self, job: &JobObjects) -> Error {
        let message =
            format!("expected the objects of a job, found more than {MOST_FOREIGN} others: remove them first");
        Error::new(ErrorKind::TooLarge, message).at_path(&self.root.place(job.directory()))
    }

    #[cold]
    fn no_job(&self, job: &JobObjects) -> Error {
        let message = "expected objects of a job, found none";
        Error::new(ErrorKind::NotFound, message).at_path(&self.root.place(job.directory()))
    }
}
