//! Candidates: generations that are complete and not published yet.

use std::fmt;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest::Manifest;
use crate::format::multilod;
use crate::format::spec::ShardingSpec;
use crate::fs::disk;
use crate::plural::Plural;
use crate::read::options::OpenOptions;
use crate::store::{CompleteGeneration, GenerationId, Replaced, StoreWriter};
use crate::verify::{VerifyLevel, VerifyOptions, VerifyReport};
use crate::write::BuildOptions;

/// A complete generation that is not published yet. It can be opened and verified, and then published or dropped.
///
/// It is a directory in the store with a temporary name, which readers of the store do not find. It holds the writer
/// lock of the store. A candidate that is dropped without [`publish`](Candidate::publish) is removed.
///
/// Opening its [`path`](Candidate::path) opens all shards, unless [`OpenOptions::check_shards`] is false, since publishing renames the
/// directory: the database stays on this generation and can be read after that. By positioned reads it keeps a quarter of the descriptors that the process may have
/// open; reads of further shards fail with `GenerationGone` then.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-candidate-doc-{}", std::process::id()));
/// use sharddb::{BulkLoader, ShardDb, VerifyLevel};
///
/// let mut loader = BulkLoader::create(&store)?;
/// loader.insert(7, b"seven")?;
/// let candidate = loader.finish_unpublished()?;
/// assert!(candidate.verify(VerifyLevel::Data)?.is_clean());
/// assert_eq!(ShardDb::open(candidate.path())?.get(7)?.unwrap(), b"seven");
/// let published = candidate.publish()?;
/// assert_eq!(published.content.keys, 1);
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[must_use = "dropping it removes the generation"]
pub struct Candidate {
    generation: CompleteGeneration,
    content: Content,
    allow_empty: bool,
    durable: bool,
    /// The generation with the same bytes that was current at the beginning.
    unchanged: Option<GenerationId>,
}

/// What a generation contains, as its build counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Content {
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
    /// The number of pairs that were dropped because of a duplicate key.
    pub dropped: u64,
}

/// The generation that is current after [`BulkLoader::finish`](crate::BulkLoader::finish), [`Candidate::publish`] and their
/// like.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-published-doc-{}", std::process::id()));
/// let mut loader = sharddb::BulkLoader::create(&store)?;
/// loader.insert(7, b"seven")?;
/// let published = loader.finish()?;
/// assert_eq!((published.generation.get(), published.content.keys, published.content.value_bytes), (1, 1, 5));
/// assert!(published.is_new && published.keys_before.is_none());
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The generation, which is now current.
    pub generation: GenerationId,
    /// Whether the call has published it. If not, the call changed nothing, and the generation was current before.
    pub is_new: bool,
    /// The number of keys of the generation that was current before; `None` if there was none, or its manifest cannot be read.
    pub keys_before: Option<u64>,
    /// What it contains.
    pub content: Content,
}

impl Candidate {
    pub(super) fn new(
        generation: CompleteGeneration,
        manifest: &Manifest,
        dropped: u64,
        options: &BuildOptions,
    ) -> Candidate {
        let content = Content {
            spec: manifest.sharding,
            keys: manifest.keys,
            value_bytes: manifest.value_bytes,
            file_bytes: manifest.shards.iter().map(|shard| shard.bytes).sum(),
            shards: manifest.shards.len() as u64,
            dropped,
        };
        let BuildOptions { allow_empty, durable, .. } = *options;
        Candidate { generation, content, allow_empty, durable, unchanged: None }
    }

    /// States that this generation, if any, has the same bytes: if it is current, [`publish`](Self::publish) publishes nothing.
    pub(super) fn unchanged_from(mut self, same: Option<GenerationId>) -> Candidate {
        self.unchanged = same;
        self
    }

    /// Checks that all manifests of meshes have their fragments, if the info says that values are manifests.
    ///
    /// Cost: reads all manifests.
    ///
    /// Errors: `InvalidInput` with the key of the first without; `Cancelled`; those of reading.
    pub(crate) fn check_fragments(self, options: &BuildOptions) -> Result<Candidate> {
        if options.needs_fragments() {
            let mut pairs = OpenOptions::new().open(self.path())?.snapshot().pairs();
            while let Some(checked) = pairs.check_next(multilod::check_fragments) {
                options.progress.check()?;
                checked?;
            }
        }
        Ok(self)
    }

    /// Returns the directory. Publishing renames it.
    pub fn path(&self) -> &Path {
        self.generation.path()
    }

    /// Returns what it contains.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Verifies the candidate, like [`Snapshot::verify`](crate::Snapshot::verify).
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::verify`](crate::Snapshot::verify). Damage is reported as a finding, not as an error.
    pub fn verify(&self, level: VerifyLevel) -> Result<VerifyReport> {
        self.verify_with(level, &VerifyOptions::new())
    }

    /// Verifies the candidate, like [`Snapshot::verify_with`](crate::Snapshot::verify_with).
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::verify_with`](crate::Snapshot::verify_with). Damage is reported as a finding, not as an error.
    pub fn verify_with(&self, level: VerifyLevel, options: &VerifyOptions) -> Result<VerifyReport> {
        OpenOptions::new().check_shards(false).open(self.path())?.snapshot().verify_with(level, options)
    }

    /// Publishes the candidate under the next generation number and makes it current. If it is that of an update without
    /// effect, publishes nothing; see [`Published::is_new`].
    ///
    /// Cost: reads the manifest of the generation that was current.
    ///
    /// # Errors
    ///
    /// `Empty` if it has no keys, the current generation has some or cannot be read, and
    /// [`allow_empty`](crate::BuildOptions::allow_empty) is not set;
    /// `Corrupt` or `TooLarge` if `current` or `history` was damaged in the meantime; `InvalidInput` if a foreign file
    /// has a name that publishing uses, or no number is left; `Locked` in a forked child; `Io`.
    ///
    /// After an error the old generation is current and the candidate is removed, with one exception: an error after
    /// the candidate has its number is reverted, and reverting can fail. If a reader has leased the new generation
    /// already, its directory remains, but it is not current. If the disk returns another error, the new generation
    /// remains, complete, and `current` names the old generation or the new one.
    pub fn publish(self) -> Result<Published> {
        self.publish_after(|_| Ok(()))
    }

    /// Publishes like [`publish`](Candidate::publish). Calls `before` with the result first; its error is returned and
    /// nothing is published.
    pub(crate) fn publish_after(self, before: impl FnOnce(&Published) -> Result<()>) -> Result<Published> {
        let content = self.content;
        let replaced = self.generation.replaced()?;
        let keys_before = replaced.and_then(|replaced| replaced.keys);
        let of = |generation, is_new| Published { generation, is_new, keys_before, content };
        match (replaced, self.unchanged) {
            (Some(Replaced { id, .. }), Some(unchanged)) if id == unchanged => return Ok(of(id, false)),
            (Some(Replaced { id, keys }), _) if content.keys == 0 && !self.allow_empty => check_emptied(&id, keys)?,
            _ => {}
        }
        let publish = || self.generation.publish_after(|generation| before(&of(generation, true)));
        disk::with_syncs_if(self.durable, publish).map(|generation| of(generation, true))
    }
}

/// Checks the generation that would be replaced by an empty one, with its number of keys if that can be read.
///
/// Errors: `Empty` if it may have keys.
pub fn check_emptied(replaced: &dyn fmt::Display, keys: Option<u64>) -> Result<()> {
    let found = match keys {
        Some(0) => return Ok(()),
        Some(keys) => format!("{replaced} has {}", Plural(keys, "key")),
        None => format!("{replaced} cannot be read and may have some"),
    };
    let message = format!("expected pairs, found none, and {found}: nothing was published");
    Err(Error::new(ErrorKind::Empty, message))
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("path", &self.path()).field("content", &self.content).finish()
    }
}

impl StoreWriter {
    /// Copies a generation that was built elsewhere into the store, like [`adopt`](StoreWriter::adopt), without
    /// publishing it.
    ///
    /// # Errors
    ///
    /// Those of [`adopt`](StoreWriter::adopt).
    pub fn adopt_unpublished(&self, directory: impl AsRef<Path>) -> Result<Candidate> {
        let (manifest, copy) = self.copy(directory.as_ref())?;
        Ok(Candidate::new(copy, &manifest, 0, BuildOptions::new().allow_empty(self.allow_empty)))
    }
}
