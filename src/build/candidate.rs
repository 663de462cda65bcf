//! A generation that is complete and not published yet.

use std::fmt;
use std::path::Path;

use crate::disk;
use crate::error::Result;
use crate::format::manifest::Manifest;
use crate::format::spec::ShardingSpec;
use crate::read::database::ShardDb;
use crate::read::options::OpenOptions;
use crate::store::{CompleteGeneration, GenerationId, StoreWriter};
use crate::verify::{VerifyLevel, VerifyReport};

/// A complete generation that is not published yet: open it, verify it, then publish it or drop it.
///
/// It is a directory in the store under a temporary name; no reader of the store finds it. It holds the store's writer lock.
/// Dropped without [`publish`](Candidate::publish), it is removed.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-candidate-doc-{}", std::process::id()));
/// use sharddb::{BulkLoader, OpenOptions, VerifyLevel};
///
/// let mut loader = BulkLoader::create_default(&store)?;
/// loader.insert(7, b"seven")?;
/// let candidate = loader.finish_unpublished()?;
/// assert!(candidate.verify(VerifyLevel::Data)?.is_clean());
/// assert_eq!(candidate.open_pread(&OpenOptions::new())?.get(7)?.unwrap(), b"seven");
/// let published = candidate.publish()?;
/// assert_eq!(published.keys, 1);
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
pub struct Candidate {
    generation: CompleteGeneration,
    content: Content,
    durable: bool,
}

/// What a generation holds.
#[derive(Clone, Copy, Debug)]
struct Content {
    spec: ShardingSpec,
    keys: u64,
    value_bytes: u64,
    file_bytes: u64,
    shards: u64,
    dropped: u64,
}

/// What was published.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The generation, which is current now.
    pub generation: GenerationId,
    /// The specification, given or planned.
    pub spec: ShardingSpec,
    /// The number of keys.
    pub keys: u64,
    /// The stored bytes of all values.
    pub value_bytes: u64,
    /// The bytes of all shard files.
    pub file_bytes: u64,
    /// The number of shard files.
    pub shards: u64,
    /// Pairs that were left out because their key came again.
    pub dropped: u64,
}

impl Candidate {
    pub(super) fn new(generation: CompleteGeneration, manifest: &Manifest, dropped: u64, durable: bool) -> Candidate {
        let content = Content {
            spec: manifest.sharding,
            keys: manifest.keys,
            value_bytes: manifest.value_bytes,
            file_bytes: manifest.shards.iter().map(|shard| shard.bytes).sum(),
            shards: manifest.shards.len() as u64,
            dropped,
        };
        Candidate { generation, content, durable }
    }

    /// The directory, which publishing renames.
    pub fn path(&self) -> &Path {
        self.generation.path()
    }

    /// The specification, given or planned.
    pub fn spec(&self) -> &ShardingSpec {
        &self.content.spec
    }

    /// The number of keys.
    pub fn keys(&self) -> u64 {
        self.content.keys
    }

    /// The stored bytes of all values.
    pub fn value_bytes(&self) -> u64 {
        self.content.value_bytes
    }

    /// The bytes of all shard files.
    pub fn file_bytes(&self) -> u64 {
        self.content.file_bytes
    }

    /// The number of shard files.
    pub fn shards(&self) -> u64 {
        self.content.shards
    }

    /// Pairs that were left out because their key came again.
    pub fn dropped(&self) -> u64 {
        self.content.dropped
    }

    /// Opens it by mapping its files, like [`OpenOptions::open`].
    ///
    /// All shards are opened, so that reading goes on after the generation was published, which renames its directory. The
    /// database stays with this generation.
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open`], and of opening each shard.
    ///
    /// # Safety
    ///
    /// That of [`OpenOptions::open`]. To drop the candidate is safe: its files are removed, not truncated.
    #[expect(unsafe_code, reason = "the promise of the face")]
    pub unsafe fn open(&self, options: &OpenOptions) -> Result<ShardDb> {
        // SAFETY: the caller promises the same.
        opened(unsafe { options.open(self.path()) }?)
    }

    /// Opens it for positioned reads, like [`OpenOptions::open_pread`].
    ///
    /// All shards are opened, but only some 256 descriptors are kept: a shard beyond that is `GenerationGone` after the
    /// generation was published. Then open the store.
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open_pread`], and of opening each shard.
    pub fn open_pread(&self, options: &OpenOptions) -> Result<ShardDb> {
        opened(options.open_pread(self.path())?)
    }

    /// Verifies it, like [`Snapshot::verify`](crate::Snapshot::verify).
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::verify`](crate::Snapshot::verify). Damage is a finding of the report, not an error.
    pub fn verify(&self, level: VerifyLevel) -> Result<VerifyReport> {
        OpenOptions::new().check_shards(false).open_pread(self.path())?.snapshot().verify(level)
    }

    /// Publishes it under the next number and makes it current.
    ///
    /// # Errors
    ///
    /// `Io`, and `Corrupt` if `current` or `history` was damaged meanwhile. Nothing is published then, and the candidate
    /// is removed.
    pub fn publish(self) -> Result<Published> {
        let Content { spec, keys, value_bytes, file_bytes, shards, dropped } = self.content;
        let generation = disk::without_sync(!self.durable, || self.generation.publish())?;
        Ok(Published { generation, spec, keys, value_bytes, file_bytes, shards, dropped })
    }
}

fn opened(db: ShardDb) -> Result<ShardDb> {
    db.snapshot().generation.touch_all()?;
    Ok(db)
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("path", &self.path()).field("content", &self.content).finish()
    }
}

impl StoreWriter {
    /// Copies a generation that was built elsewhere into the store, like [`adopt`](StoreWriter::adopt), and does not
    /// publish it yet.
    ///
    /// # Errors
    ///
    /// Those of [`adopt`](StoreWriter::adopt).
    pub fn adopt_unpublished(&self, directory: impl AsRef<Path>) -> Result<Candidate> {
        let (manifest, copy) = self.copy(directory.as_ref())?;
        Ok(Candidate::new(copy, &manifest, 0, true))
    }
}
