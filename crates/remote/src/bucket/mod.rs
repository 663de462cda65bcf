//! Publishing to an object store: generations in a bucket, one of which is current.
//!
//! ```text
//! PREFIX/
//!   current                                       names the current generation and those before it; the only object
//!                                                 that is replaced, by conditional puts
//!   gen-0000000003-6f../info, manifest.json, ..   the files of a local generation, byte for byte, never overwritten
//!   parts-night/..                                spills and parts of partitioned builds
//!   probe-0c..                                    temporary: checks the conditional puts, or reads the server's clock
//! ```
//!
//! [`Bucket`] publishes, lists, verifies, rolls back, removes and downloads generations. There are no locks and no leases:
//! a publisher replaces `current` only if nobody else did since it began, and [`Bucket::gc`] goes by the time for which a
//! generation has had a successor. Only the clock of the server counts.
//!
//! ```text
//! module       what it has
//!
//! root         the objects of a store by name; errors with their places
//! current      reading `current` and replacing it; lost replies
//! probe        what the server supports, and its time
//! objects      the objects of a generation, from its manifest
//! listing      the objects that the bucket has
//! random       128 random bits
//! journal      the local file with which an upload is resumed
//! upload       one object: checksum, parts
//! download     one object: checksum
//! parts        partitioned builds
//! push, pull, rollback, gc, verify, generations
//! ```

mod cluster;
mod current;
mod download;
mod gc;
mod generations;
mod journal;
mod listing;
mod objects;
mod probe;
mod pull;
mod push;
#[cfg(test)]
mod read_faults;
mod rollback;
mod root;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod upload;
mod verify;

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use sharddb_format::{Error, Result};

pub use self::cluster::{BucketCleaned, PublishedParts};
pub use self::gc::{BucketGcOptions, BucketGcReport};
pub use self::generations::{BucketGeneration, BucketState, BucketVersion};
pub use self::pull::{PullOptions, Pulled, pull_if};
pub use self::push::{PushOptions, Pushed, push_if};
pub use self::verify::{BucketVerifyLevel, BucketVerifyOptions, BucketVerifyReport};

use self::root::Root;

/// A store of generations in a bucket: publishes to it, and manages what was published.
///
/// The caller brings the client. Its methods are `async`, need no runtime of their own, and read and write local files on
/// the calling thread. Dropping a future stops the operation; that and a killed process leave `current` as it was, or
/// naming a complete generation.
///
/// ```
/// # fn main() -> sharddb::Result<()> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # let directory = std::env::temp_dir().join(format!("sharddb-bucket-doc-{}", std::process::id()));
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use object_store::memory::InMemory;
/// use sharddb::BuildOptions;
/// use sharddb_remote::{
///     Bucket, BucketGcOptions, BucketState, BucketVerifyLevel, BucketVerifyOptions, PullOptions, PushOptions,
/// };
///
/// let mut loader = BuildOptions::new().create(directory.join("store"))?;
/// loader.insert(7, b"seven")?;
/// loader.finish()?;
///
/// # runtime.block_on(async {
/// let bucket = Bucket::new(Arc::new(InMemory::new()), "data/cells")?;
/// let mut options = PushOptions::new();
/// options.journal_dir(directory.join("journals"));
/// let first = bucket.push_with(directory.join("store"), &options).await?;
/// assert!(!bucket.push_with(directory.join("store"), &options).await?.is_new); // nothing changed
///
/// let mut updater = sharddb::Updater::open(directory.join("store"))?;
/// updater.put(8, b"eight")?;
/// updater.finish()?;
/// let second = bucket.push_with(directory.join("store"), &options).await?;
/// assert_eq!(bucket.current().await?, Some(second.generation.clone()));
///
/// assert_eq!(bucket.rollback(None).await?, first.generation);
/// let history = bucket.history().await?;
/// assert!(history[0].name == second.generation && history[0].rolled_back);
/// let report = bucket.gc(Duration::ZERO).await?; // readers have no time to refresh
/// assert_eq!(report.removed, [second.generation]);
/// assert_eq!(bucket.generations().await?[0].state, BucketState::Current);
///
/// let report = bucket.verify(BucketVerifyLevel::Data).await?;
/// assert!(report.findings.is_empty());
/// let pulled = bucket.pull(directory.join("copy")).await?;
/// assert_eq!(pulled.downloaded, 1);
/// assert_eq!(sharddb::ShardDb::open(directory.join("copy"))?.get(7)?.unwrap(), b"seven");
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok(()) })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bucket {
    root: Root,
}

impl Bucket {
    /// Returns the store whose objects begin with `prefix`, names separated by `/`, which may be empty. The prefix is used as
    /// it is, like that of [`RemoteDb`](crate::RemoteDb). Makes no request.
    ///
    /// A listing ends when the client ends it, and is held one page at a time: for a server that is not trusted, use a client
    /// that bounds the length and the number of pages. Errors have what a server answers, at most 600 characters of it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the prefix is not a path of the crate `object_store`: an empty name, `.` or `..`.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Bucket> {
        let parsed = ObjectPath::parse(prefix).map_err(|error| {
            Error::invalid_input(format!("expected names separated by /, found the prefix '{prefix}': {error}"))
        })?;
        Ok(Bucket { root: Root::new(store, parsed) })
    }

    /// Sets the name that errors and the journal of an upload show: `s3://bucket/store`, for example. Default: the name
    /// of the client and the prefix.
    pub fn named(mut self, name: impl Into<String>) -> Bucket {
        self.root.set_name(name.into());
        self
    }
}

/// Returns the layer source with which Neuroglancer opens a generation of the store at `url`.
///
/// ```
/// let source = sharddb_remote::layer_source("s3://bucket/cells/", "gen-0000000001-6f..");
/// assert_eq!(source, "precomputed://s3://bucket/cells/gen-0000000001-6f..");
/// ```
pub fn layer_source(url: &str, generation: &str) -> String {
    format!("precomputed://{}/{generation}", url.trim_end_matches('/'))
}
