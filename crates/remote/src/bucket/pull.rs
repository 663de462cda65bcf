//! Downloading a generation into a local store.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use sharddb::Progress;
use sharddb::internal::{Staging, check_emptied, current_with, shards_like};
use sharddb::progress::Phase;
use sharddb::store::{GenerationId, Store, WriterOptions};
use sharddb_format::internal::ids::ShardNumber;
use sharddb_format::{Error, Result};

use crate::bucket::Bucket;
use crate::bucket::objects::{GenerationObject, objects, total_bytes};
use crate::bucket_current::GenerationName;

/// Number of objects that are downloaded at a time.
const OBJECTS_IN_FLIGHT: usize = 8;

/// Options of [`Bucket::pull_with`].
///
/// ```
/// use sharddb_remote::PullOptions;
///
/// let mut options = PullOptions::new();
/// options.generation("gen-0000000001-0123456789abcdef0123456789abcdef");
/// ```
#[derive(Clone, Debug, Default)]
pub struct PullOptions {
    progress: Progress,
    generation: Option<String>,
    allow_empty: bool,
}

impl PullOptions {
    /// Creates the default options.
    pub fn new() -> PullOptions {
        PullOptions::default()
    }

    /// Sets the generation, by its name in the bucket. Default: the current one.
    pub fn generation(&mut self, name: impl Into<String>) -> &mut PullOptions {
        self.generation = Some(name.into());
        self
    }

    /// Sets whether a generation without keys may replace a local one with keys. Default: false, which is an error of kind `Empty`.
    pub fn allow_empty(&mut self, allow: bool) -> &mut PullOptions {
        self.allow_empty = allow;
        self
    }

    /// Sets the progress that the download reports, and that cancels it: the next pull continues. Default: none.
    pub fn progress(&mut self, progress: &Progress) -> &mut PullOptions {
        self.progress = progress.clone();
        self
    }
}

/// A generation that was downloaded, as returned by [`Bucket::pull`].
///
/// See [`Bucket`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pulled {
    /// The generation of the local store, which is current now.
    pub id: GenerationId,
    /// The name of the generation in the bucket.
    pub generation: String,
    /// Whether it was published. If not, it was current already, and its files were not compared.
    pub is_new: bool,
    /// The number of objects that were downloaded, without `info` and the manifest.
    pub downloaded: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The number of files that an earlier attempt had downloaded.
    pub resumed: u64,
    /// The number of shards that a local generation had: hard links, or copies.
    pub shared: u64,
}

impl Bucket {
    /// Downloads a generation into the store at `to`, which is created if nothing is there, and publishes it.
    ///
    /// The new local generation has the same files, byte for byte, under the next local number. Shards that a local
    /// generation has, by length, checksums and digest, are linked. Files are downloaded to a directory next to the store,
    /// `STORE.pull-NAME`; an interrupted pull is continued by the next one of the same generation. Everything is compared
    /// with the manifest before it is published. If the current local generation has the same manifest, and its shards are there with
    /// their lengths, nothing changes, and their bytes are not compared: [`Snapshot::verify`](sharddb::Snapshot::verify) does that.
    ///
    /// A manifest without digests, which version 0.1.0 wrote, does not tell files apart that have equal checksums. Its
    /// generation is downloaded each time.
    ///
    /// The store is locked for writing meanwhile.
    ///
    /// Cost: reads downloaded and linked files once or twice. Memory: the manifest and one chunk per download.
    ///
    /// # Errors
    ///
    /// `Corrupt` if an object is missing or has other bytes than its manifest states: its name is in the error, and nothing
    /// is published; `NotFound` if nothing was published to the bucket, or the generation is not complete; `Empty` if it has no keys and the
    /// current local one has some or cannot be read, unless that is [allowed](PullOptions::allow_empty); `GenerationGone`
    /// if `gc` removed it, also meanwhile; `Locked` if the local store has another writer; `InvalidInput` if `to` is not a store, or for
    /// a name that is not one of a generation; `Unsupported`; `TooLarge`; `Cancelled`; `Io`.
    pub async fn pull(&self, to: impl AsRef<Path>) -> Result<Pulled> {
        self.pull_with(to, &PullOptions::new()).await
    }

    /// Downloads with options; see [`pull`](Bucket::pull).
    ///
    /// # Errors
    ///
    /// Those of [`pull`](Bucket::pull).
    pub async fn pull_with(&self, to: impl AsRef<Path>, options: &PullOptions) -> Result<Pulled> {
        pull_if(self, to, options, || Ok(())).await
    }
}

/// The download of the objects of one generation.
struct Download<'a> {
    bucket: &'a Bucket,
    generation: &'a GenerationName,
    staging: &'a Staging,
    /// Local files with the bytes of wanted shards.
    local: HashMap<ShardNumber, PathBuf>,
    progress: &'a Progress,
    counts: Counts,
}

/// Like [`Bucket::pull_with`]. Calls `may` when only the publication is left, which its error prevents.
pub async fn pull_if(
    bucket: &Bucket,
    to: impl AsRef<Path>,
    options: &PullOptions,
    may: impl FnOnce() -> Result<()>,
) -> Result<Pulled> {
    let (generation, stored) = bucket.stored(options.generation.as_deref()).await?;
    let store = Store::create(to)?;
    // syncs what a killed pull may have left, also if nothing is to be done
    let writer = store.writer_with(WriterOptions::new().progress(&options.progress.apart()))?;
    if let Some(id) = current_with(&store, &stored.manifest, &stored.manifest_text)? {
        return Ok(Pulled { is_new: false, ..Counts::default().pulled(id, &generation) });
    }
    if stored.manifest.keys == 0
        && !options.allow_empty
        && let Some(before) = store.current_or_newest()?
    {
        check_emptied(&before, store.totals(before).ok().map(|totals| totals.keys))?;
    }
    let staging = Staging::open(store.path(), generation.as_str(), stored.manifest.nested.as_ref())?;
    let download = Download {
        bucket,
        generation: &generation,
        staging: &staging,
        local: shards_like(&store, &stored.manifest)?,
        progress: &options.progress,
        counts: Counts::default(),
    };
    if let Err(error) = download.run(objects(&stored.manifest)).await {
        return Err(bucket.unless_gone(&generation, error).await);
    }
    let counts = download.counts;
    may()?;
    let id = staging.publish(&writer, &stored.info, &stored.manifest_text)?;
    Ok(counts.pulled(id, &generation))
}

#[derive(Default)]
struct Counts {
    downloaded: AtomicU64,
    bytes: AtomicU64,
    resumed: AtomicU64,
    shared: AtomicU64,
}

impl Counts {
    fn pulled(&self, id: GenerationId, generation: &GenerationName) -> Pulled {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Pulled {
            id,
            generation: generation.to_string(),
            is_new: true,
            downloaded: of(&self.downloaded),
            bytes: of(&self.bytes),
            resumed: of(&self.resumed),
            shared: of(&self.shared),
        }
    }
}

impl Download<'_> {
    async fn run(&self, objects: Vec<GenerationObject>) -> Result<()> {
        self.progress.begin(Phase::Copy, total_bytes(&objects));
        let all = stream::iter(objects).map(|object| self.obtain(object));
        all.buffer_unordered(OBJECTS_IN_FLIGHT).try_collect::<()>().await
    }

    async fn obtain(&self, object: GenerationObject) -> Result<()> {
        self.progress.check()?;
        let local = object.shard.and_then(|shard| self.local.get(&shard));
        let count = if self.staging.has(&object.name, object.stated)? {
            &self.counts.resumed
        } else if let Some(local) = local
            && self.staging.share(local, &object.name, object.stated)?
        {
            &self.counts.shared
        } else {
            return self.download(&object).await;
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.progress.add(object.stated.bytes);
        Ok(())
    }

    async fn download(&self, object: &GenerationObject) -> Result<()> {
        let mut file = self.staging.begin(&object.name, object.stated)?;
        let name = format!("{}/{}", self.generation, object.name);
        let root = &self.bucket.root;
        let place = |error: Error| object.shard.into_iter().fold(error.at_path(&root.place(&name)), Error::at_shard);
        root.download(&name, object.stated.bytes, self.progress, |chunk| file.write(chunk)).await.map_err(place)?;
        file.finish().map_err(place)?;
        self.counts.downloaded.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(object.stated.bytes, Ordering::Relaxed);
        Ok(())
    }
}
