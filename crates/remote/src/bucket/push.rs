//! Publishing a local generation.
//!
//! ```text
//! probe               conditional writes are honoured, or nothing is uploaded
//! gen-N-../..         info, auxiliary files and shards, several at a time, checksums compared while uploading
//! gen-N-../manifest   last: from here on it is a generation
//! current             replaced if it is as it was at the beginning: from here on it is published
//! ```

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use sharddb::Progress;
use sharddb::internal::{LocalGeneration, check_emptied, settings_of};
use sharddb::progress::Phase;
use sharddb::store::GenerationId;
use sharddb::write::BuildOptions;
use sharddb_format::internal::ids::ShardNumber;
use sharddb_format::internal::info;
use sharddb_format::internal::manifest::{self, Manifest};
use sharddb_format::internal::random::random_name;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::Bucket;
use crate::bucket::current::{Current, Replacement, conflict, first};
use crate::bucket::journal::Journal;
use crate::bucket::listing::ListedObject;
use crate::bucket::objects::{GenerationObject, objects};
use crate::bucket::upload::PART_BYTES;
use crate::bucket_current::GenerationName;

/// Number of objects of at most one part that are uploaded at a time. Bounds the memory: one part for each.
const OBJECTS_IN_FLIGHT: usize = 8;

/// Upper bound on attempts to replace `current`. One fails if `gc` replaces it in between; the generation stays the same.
const MAX_ATTEMPTS: usize = 100;

/// Options of [`Bucket::push_with`].
///
/// ```
/// use sharddb_remote::PushOptions;
///
/// let mut options = PushOptions::new();
/// options.journal_dir("/var/cache/pushes");
/// ```
#[derive(Clone, Debug)]
pub struct PushOptions {
    progress: Progress,
    journal_dir: Option<PathBuf>,
    allow_empty: bool,
    part_bytes: u64,
}

impl Default for PushOptions {
    fn default() -> PushOptions {
        PushOptions { progress: Progress::default(), journal_dir: None, allow_empty: false, part_bytes: PART_BYTES }
    }
}

impl PushOptions {
    /// Creates the default options.
    pub fn new() -> PushOptions {
        PushOptions::default()
    }

    /// Sets the directory of the journal, with which an interrupted push is continued. It is created if necessary. Only the
    /// user may be able to write to it, since the journal names the objects.
    ///
    /// Default: `sharddb` in the user's cache directory. Without one, a push begins again each time.
    pub fn journal_dir(&mut self, directory: impl Into<PathBuf>) -> &mut PushOptions {
        self.journal_dir = Some(directory.into());
        self
    }

    /// Sets the progress that the push reports, and that cancels it: the next push continues. Default: none.
    pub fn progress(&mut self, progress: &Progress) -> &mut PushOptions {
        self.progress = progress.clone();
        self
    }

    /// Sets whether a generation without keys may replace one with keys. Default: false, which is an error of kind `Empty`.
    pub fn allow_empty(&mut self, allow: bool) -> &mut PushOptions {
        self.allow_empty = allow;
        self
    }

    /// Returns options of an upload that is the last phase of a build.
    pub(super) fn phase_of(options: &BuildOptions) -> PushOptions {
        PushOptions { progress: settings_of(options).progress.clone(), ..PushOptions::default() }
    }

    /// Sets the length of the parts of a large object, which real stores bound.
    #[cfg(test)]
    pub(super) fn part_bytes(&mut self, bytes: u64) -> &mut PushOptions {
        self.part_bytes = bytes;
        self
    }
}

/// The generation that is current after a push, as returned by [`Bucket::push`].
///
/// See [`Bucket`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pushed {
    /// The name of the generation, which is that of its directory.
    pub generation: String,
    /// Whether it was published by this push. False if the current generation of the bucket is the same.
    pub is_new: bool,
    /// The number of its keys.
    pub keys: u64,
    /// The number of keys of the generation that was current before; `None` if there was none, or it has no readable manifest.
    pub keys_before: Option<u64>,
    /// The number of its objects.
    pub objects: u64,
    /// The bytes of its objects.
    pub bytes: u64,
    /// The number of objects that were there before: those of an earlier attempt, or all if nothing was published.
    pub skipped: u64,
}

impl Bucket {
    /// Publishes a copy of a local generation: of the current one of a store, or of a directory with a `manifest.json`.
    ///
    /// The copy has the same files, byte for byte, except the empty `lease`. Its number is the one after the greatest that
    /// `current` names. Readers see the old or the new generation, complete. An interrupted push is continued by the next one
    /// of the same generation, if the objects have the lengths and ETags with which they were uploaded, and the manifest has
    /// all digests, which version 0.1.0 did not write. Of two publishers at
    /// once, the one that replaces `current` first wins. After success `current` may name the generation of a later publisher
    /// already.
    ///
    /// A push of the generation that is current in the bucket publishes nothing: one whose manifest is equal and has all
    /// digests, and whose objects are all there. Their bytes are not compared, which [`verify`](Bucket::verify) does.
    ///
    /// Cost: reads the generation once, and the manifest in the bucket. Memory: 64 MiB, and both manifests.
    ///
    /// # Errors
    ///
    /// `Locked` if another publisher replaced `current` meanwhile, or another process pushes the same generation;
    /// `Unsupported` for a store without conditional writes, as `LocalFileSystem`, before anything is uploaded; `InvalidInput` for a foreign
    /// directory, here or in the bucket; `NotFound` if the local store has no current generation; `Empty` if it has no keys and the
    /// generation in the bucket has some or cannot be read, unless that is [allowed](PushOptions::allow_empty); `Corrupt` for a damaged
    /// local file, or a damaged `current` in the bucket; `GenerationGone` if `gc` removed the unfinished upload;
    /// `Cancelled`; `Io`. After an error `current` names what it named before, or, after `Io` while it was being replaced,
    /// the new generation.
    pub async fn push(&self, local: impl AsRef<Path>) -> Result<Pushed> {
        self.push_with(local, &PushOptions::new()).await
    }

    /// Publishes with options; see [`push`](Bucket::push).
    ///
    /// # Errors
    ///
    /// Those of [`push`](Bucket::push).
    pub async fn push_with(&self, local: impl AsRef<Path>, options: &PushOptions) -> Result<Pushed> {
        push_if(self, local, options, || Ok(())).await
    }
}

/// What the current generation of the bucket states before a push. Empty if its manifest is missing or damaged: the push
/// replaces it then.
#[derive(Default)]
pub(super) struct Before {
    text: Vec<u8>,
    pub(super) keys: Option<u64>,
}

/// Like [`Bucket::push_with`]. Calls `may` when only the publication is left, which its error prevents.
pub async fn push_if(
    bucket: &Bucket,
    local: impl AsRef<Path>,
    options: &PushOptions,
    may: impl FnOnce() -> Result<()>,
) -> Result<Pushed> {
    let local = LocalGeneration::open(local.as_ref())?;
    let base = bucket.root.current().await?;
    if base.is_none() {
        bucket.check_is_no_data_set().await?;
    }
    let before = match &base {
        Some(base) => Before::read(bucket, base.generation()).await?,
        None => Before::default(),
    };
    let is_same = before.text == local.manifest_text && local.manifest.has_all_digests();
    let keys_before = before.keys;
    drop(before);
    if let Some(base) = base.as_ref().filter(|_| is_same) {
        let there = Upload::new(bucket, &local, options, base.generation().clone());
        if there.is_complete().await? {
            return Ok(Pushed { is_new: false, ..there.pushed(keys_before, there.objects.len() as u64 + 2) });
        }
    }
    if let Some(base) = base.as_ref().filter(|_| local.manifest.keys == 0 && !options.allow_empty) {
        check_emptied(base.generation(), keys_before)?;
    }
    bucket.root.check_conditions().await?;
    let journal = if local.manifest.has_all_digests() {
        Journal::open(options.journal_dir.as_deref(), bucket.root.name(), &local.manifest_text)?
    } else {
        None // another generation may have the same text
    };
    let begun = journal.as_ref().map(Journal::begun).transpose()?.flatten();
    let mut upload = Upload::new(bucket, &local, options, next_name(base.as_ref())?);
    if let Some(begun) = begun.filter(|begun| may_continue(base.as_ref(), &begun.generation)) {
        upload.resume(begun.generation, &begun.etags).await?;
    }
    if let Some(journal) = &journal {
        upload.record_in(journal)?;
    }
    upload.run().await?;
    may()?;
    upload.publish(base).await?;
    let pushed = upload.pushed(keys_before, upload.done.len() as u64);
    if let Some(journal) = journal {
        journal.remove();
    }
    Ok(pushed)
}

impl Before {
    pub(super) async fn read(bucket: &Bucket, generation: &GenerationName) -> Result<Before> {
        let name = format!("{generation}/{}", manifest::FILE_NAME);
        let text = bucket.root.get(&name, manifest::MAX_BYTES).await?.map_or_else(Vec::new, |(text, _)| text);
        let keys = Manifest::parse(&text).ok().map(|manifest| manifest.keys);
        Ok(Before { text, keys })
    }
}

impl Bucket {
    /// Checks that the prefix is not that of a data set without generations, which readers would not find any more.
    ///
    /// Errors: `InvalidInput` if it has an `info`; `Io`.
    pub(super) async fn check_is_no_data_set(&self) -> Result<()> {
        if self.root.head(info::FILE_NAME).await?.is_none() {
            return Ok(());
        }
        let message = "expected a store or an empty prefix, found a data set with an info: choose another prefix";
        Err(Error::invalid_input(message).at_path(&self.root.place(info::FILE_NAME)))
    }
}

/// Returns whether a push may add objects to a generation that an earlier one began.
pub(super) fn may_continue(base: Option<&Current>, generation: &GenerationName) -> bool {
    let is_used = |base: &Current| {
        base.text.removed.contains(generation) || base.text.before.iter().any(|entry| entry.generation == *generation)
    };
    !base.is_some_and(is_used)
}

/// Returns a new name with the number after the greatest one.
///
/// Errors: `InvalidInput` after the last number of ten digits.
pub(super) fn next_name(base: Option<&Current>) -> Result<GenerationName> {
    let names = base.into_iter().flat_map(|base| {
        let before = base.text.before.iter().map(|entry| &entry.generation);
        before.chain(&base.text.removed).chain([base.generation()])
    });
    let last = names.map(GenerationName::number).max().unwrap_or(0);
    let name = format!("{}-{}", GenerationId::new(last.saturating_add(1))?, random_name());
    GenerationName::parse(&name).ok_or_else(|| Error::internal(format!("{name} is not the name of a generation")))
}

/// The upload of the objects of one generation.
pub(super) struct Upload<'a> {
    bucket: &'a Bucket,
    local: &'a LocalGeneration,
    options: &'a PushOptions,
    pub(super) generation: GenerationName,
    /// All but `info` and the manifest.
    objects: Vec<GenerationObject>,
    /// The names of the objects that the bucket has.
    done: HashSet<String>,
    /// The shards that are copied from other objects of the bucket.
    copies: HashMap<ShardNumber, String>,
    /// Records the uploaded objects.
    journal: Option<&'a Journal>,
}

impl<'a> Upload<'a> {
    pub(super) fn new(
        bucket: &'a Bucket,
        local: &'a LocalGeneration,
        options: &'a PushOptions,
        generation: GenerationName,
    ) -> Self {
        let objects = objects(&local.manifest);
        let (done, copies) = (HashSet::new(), HashMap::new());
        Upload { bucket, local, options, generation, objects, done, copies, journal: None }
    }

    /// Copies shards from these objects of the bucket instead of uploading them.
    pub(super) fn copy_shards(&mut self, from: HashMap<ShardNumber, String>) {
        self.copies = from;
    }

    /// Continues under another name, if it has objects, and they can be those of this generation: by their lengths, and by
    /// the ETags of the earlier attempt. A name without objects is not used again, since `gc` may have removed them.
    pub(super) async fn resume(&mut self, generation: GenerationName, etags: &HashMap<String, String>) -> Result<()> {
        let expected: HashMap<&str, u64> = self.lengths().collect();
        let (found, _) = self.bucket.root.objects_of(&generation, |name| expected.contains_key(name)).await?;
        if found.is_empty() || found.iter().any(|(name, object)| expected.get(name.as_str()) != Some(&object.bytes)) {
            return Ok(());
        }
        for (name, object) in &found {
            if let Some(etag) = etags.get(name)
                && !self.has_etag(&format!("{generation}/{name}"), object, etag).await?
            {
                return Ok(());
            }
        }
        self.done = found.into_keys().collect();
        self.generation = generation;
        Ok(())
    }

    /// Returns whether an object has the ETag that the server returned when it was uploaded.
    async fn has_etag(&self, object: &str, listed: &ListedObject, etag: &str) -> Result<bool> {
        if listed.etag.as_deref() == Some(etag) {
            return Ok(true);
        }
        let found = self.bucket.root.head(object).await?;
        Ok(found.is_some_and(|found| found.e_tag.is_none_or(|found| found == etag)))
    }

    /// Records the generation and the objects that will be uploaded. A resumed upload keeps its records.
    fn record_in(&mut self, journal: &'a Journal) -> Result<()> {
        self.journal = Some(journal);
        if self.done.is_empty() { journal.write(&self.generation) } else { Ok(()) }
    }

    /// Uploads what is missing, the manifest last.
    pub(super) async fn run(&self) -> Result<()> {
        let (progress, bytes) = (&self.options.progress, sum(self.lengths()));
        progress.begin(Phase::Copy, bytes);
        self.upload_text(info::FILE_NAME, &self.local.info).await?;
        let (done, missing): (Vec<_>, Vec<_>) =
            self.objects.iter().partition(|object| self.done.contains(&object.name));
        progress.add(sum(done.iter().map(|object| (object.name.as_str(), object.stated.bytes))));
        let is_small = |object: &&GenerationObject| {
            self.source(object).is_some() || object.stated.bytes <= self.options.part_bytes
        };
        let (small, large): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_small);
        let uploads = stream::iter(small.into_iter().cloned()).map(|object| self.upload(object));
        uploads.buffer_unordered(OBJECTS_IN_FLIGHT).try_collect::<()>().await?;
        for object in large {
            self.upload(object.clone()).await?; // one at a time: its parts are sent together
        }
        self.upload_text(manifest::FILE_NAME, &self.local.manifest_text).await
    }

    /// Returns the report of a push after which all objects are there.
    fn pushed(&self, keys_before: Option<u64>, skipped: u64) -> Pushed {
        Pushed {
            generation: self.generation.to_string(),
            is_new: true,
            keys: self.local.manifest.keys,
            keys_before,
            objects: self.objects.len() as u64 + 2,
            bytes: sum(self.lengths()),
            skipped,
        }
    }

    /// Makes the generation current, if `current` names the same one as `base`.
    pub(super) async fn publish(&self, mut base: Option<Current>) -> Result<()> {
        let (root, generation) = (&self.bucket.root, &self.generation);
        for _ in 0..MAX_ATTEMPTS {
            let next = match &base {
                Some(base) if base.generation() == generation => return Ok(()), // by an attempt whose reply was lost
                Some(base) if base.text.removed.contains(generation) => return Err(self.removed()),
                Some(base) => base.followed_by(generation.clone(), false),
                None => first(generation.clone()),
            };
            let Replacement::Conflict(found) = root.replace(base.as_ref(), &next).await? else { return Ok(()) };
            let found = found.map(|found| *found);
            let names = |current: &Option<Current>| current.as_ref().map(|current| current.generation().clone());
            if names(&found).as_ref() != Some(generation) && names(&found) != names(&base) {
                return Err(conflict(root, found.as_ref()));
            }
            base = found; // `gc` replaces it, too, without another generation
            // after `base` was read: what a later `gc` removes, it announces by replacing `base`
            if !self.is_complete().await? {
                return Err(self.removed());
            }
        }
        Err(conflict(root, base.as_ref()))
    }

    /// Returns whether the bucket has all objects.
    pub(super) async fn is_complete(&self) -> Result<bool> {
        let expected: HashMap<&str, u64> = self.lengths().collect();
        let (found, _) = self.bucket.root.lengths_of(&self.generation, |name| expected.contains_key(name)).await?;
        Ok(found.len() == expected.len() && found.iter().all(|(name, len)| expected.get(name.as_str()) == Some(len)))
    }

    pub(super) fn removed(&self) -> Error {
        let message =
            "expected the objects of this push, found that gc removed them as an unfinished upload: push again";
        Error::new(ErrorKind::GenerationGone, message).at_path(&self.bucket.root.place(self.generation.as_str()))
    }

    /// Returns the object of which an object of the generation is a copy.
    fn source(&self, object: &GenerationObject) -> Option<&str> {
        self.copies.get(&object.shard?).map(String::as_str)
    }

    async fn upload(&self, object: GenerationObject) -> Result<()> {
        let Upload { bucket: Bucket { root }, options: PushOptions { part_bytes, progress, .. }, .. } = self;
        let to = format!("{}/{}", self.generation, object.name);
        let uploaded = match self.source(&object) {
            Some(from) => root.copy_object(from, &to, object.stated, *part_bytes, progress).await.map(|()| None),
            None => {
                let from = self.local.directory.join(&object.name);
                root.upload_file(&to, &from, object.stated, *part_bytes, progress).await
            }
        };
        let etag = uploaded.map_err(|error| object.shard.into_iter().fold(error, Error::at_shard))?;
        self.record(&object.name, etag);
        Ok(())
    }

    fn record(&self, object: &str, etag: Option<String>) {
        if let (Some(journal), Some(etag)) = (self.journal, etag) {
            journal.add(object, &etag);
        }
    }

    async fn upload_text(&self, name: &str, text: &[u8]) -> Result<()> {
        self.options.progress.check()?;
        if !self.done.contains(name) {
            let etag = self.bucket.root.upload_bytes(&format!("{}/{name}", self.generation), text.to_vec()).await?;
            self.record(name, etag);
        }
        self.options.progress.add(text.len() as u64);
        Ok(())
    }

    /// Returns the names and lengths of all objects.
    fn lengths(&self) -> impl Iterator<Item = (&str, u64)> {
        let texts = [
            (info::FILE_NAME, self.local.info.len() as u64),
            (manifest::FILE_NAME, self.local.manifest_text.len() as u64),
        ];
        texts.into_iter().chain(self.objects.iter().map(|object| (object.name.as_str(), object.stated.bytes)))
    }
}

/// Returns the total of lengths.
fn sum<'a>(lengths: impl Iterator<Item = (&'a str, u64)>) -> u64 {
    lengths.fold(0, |total, (_, len)| total.saturating_add(len))
}
