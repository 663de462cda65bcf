//! Comparing the objects of a generation with its manifest.

use std::collections::HashSet;

use futures_util::stream::{self, StreamExt};
use sharddb::Progress;
use sharddb::progress::Phase;
use sharddb_format::internal::info;
use sharddb_format::internal::manifest;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::Bucket;
use crate::bucket::objects::{GenerationObject, objects, total_bytes};
use crate::bucket_current::GenerationName;

/// Number of objects that are read at a time.
const OBJECTS_IN_FLIGHT: usize = 8;

/// How much [`Bucket::verify`] reads.
///
/// See [`Bucket`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BucketVerifyLevel {
    /// The manifest, `info`, and the presence and lengths of all objects. Lists the objects of the generation.
    Lengths,
    /// Also the CRC-32 and the digest of every object, which cover all of its bytes. Downloads the generation.
    Data,
}

/// Options of [`Bucket::verify_with`].
///
/// ```
/// use sharddb_remote::BucketVerifyOptions;
///
/// let mut options = BucketVerifyOptions::new();
/// options.generation("gen-0000000001-0123456789abcdef0123456789abcdef");
/// ```
#[derive(Clone, Debug, Default)]
pub struct BucketVerifyOptions {
    generation: Option<String>,
    progress: Progress,
}

impl BucketVerifyOptions {
    /// Creates the defaults.
    pub fn new() -> BucketVerifyOptions {
        BucketVerifyOptions::default()
    }

    /// Sets the generation, by its name in the bucket. Default: the current one.
    pub fn generation(&mut self, name: impl Into<String>) -> &mut BucketVerifyOptions {
        self.generation = Some(name.into());
        self
    }

    /// Sets the progress that the download reports, and that cancels it. Default: none.
    pub fn progress(&mut self, progress: &Progress) -> &mut BucketVerifyOptions {
        self.progress = progress.clone();
        self
    }
}

/// What [`Bucket::verify`] found.
///
/// See [`Bucket`] for an example.
#[derive(Debug)]
#[non_exhaustive]
pub struct BucketVerifyReport {
    /// The name of the generation.
    pub generation: String,
    /// The number of objects that the manifest lists, and `info` and the manifest.
    pub objects: u64,
    /// The bytes of the objects that the manifest lists.
    pub bytes: u64,
    /// The damaged and missing objects, and one of the foreign objects, as errors with their places.
    pub findings: Vec<Error>,
}

impl Bucket {
    /// Verifies the current generation against its manifest. Several objects are read at a time, in chunks.
    ///
    /// For the structure of shards, `pull` the generation and verify the copy.
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing was published, or the generation has no manifest; `GenerationGone` if `gc` removed it, also
    /// meanwhile; `Corrupt` if the manifest, `info` or `current` is damaged; `Cancelled`;
    /// `Io`. Other damage is a finding.
    pub async fn verify(&self, level: BucketVerifyLevel) -> Result<BucketVerifyReport> {
        self.verify_with(level, &BucketVerifyOptions::new()).await
    }

    /// Verifies with options; see [`verify`](Bucket::verify).
    ///
    /// # Errors
    ///
    /// Those of [`verify`](Bucket::verify); `InvalidInput` for a name that is not one of a generation.
    pub async fn verify_with(
        &self,
        level: BucketVerifyLevel,
        options: &BucketVerifyOptions,
    ) -> Result<BucketVerifyReport> {
        let (generation, stored) = self.stored(options.generation.as_deref()).await?;
        let objects = objects(&stored.manifest);
        let bytes = total_bytes(&objects);
        let mut findings = Vec::new();
        let sound = self.lengths_found(&generation, &objects, &mut findings).await?;
        if level >= BucketVerifyLevel::Data {
            options.progress.begin(Phase::Verify, bytes);
            let checks = stream::iter(sound).map(|object| self.check(&generation, object, &options.progress));
            let mut checks = checks.buffer_unordered(OBJECTS_IN_FLIGHT);
            while let Some(checked) = checks.next().await {
                match checked {
                    Err(error) if error.kind() == ErrorKind::Corrupt => findings.push(error),
                    checked => checked?,
                }
            }
        }
        if !findings.is_empty() && self.is_gone(&generation).await.unwrap_or(false) {
            return Err(self.gone(&generation));
        }
        Ok(BucketVerifyReport {
            generation: generation.to_string(),
            objects: objects.len() as u64 + 2,
            bytes,
            findings,
        })
    }

    /// Returns the objects with the right length, and adds the others to the findings.
    async fn lengths_found(
        &self,
        generation: &GenerationName,
        objects: &[GenerationObject],
        findings: &mut Vec<Error>,
    ) -> Result<Vec<GenerationObject>> {
        let texts = [info::FILE_NAME, manifest::FILE_NAME];
        let names: HashSet<&str> = objects.iter().map(|object| object.name.as_str()).chain(texts).collect();
        let (found, foreign) = self.root.lengths_of(generation, |name| names.contains(name)).await?;
        let place = |name: &str| self.root.place(&format!("{generation}/{name}"));
        if let Some(name) = foreign {
            let message = "expected only the objects that the manifest lists, found another";
            findings.push(Error::corrupt(message).at_path(&place(&name)));
        }
        let mut sound = Vec::new();
        for object in objects {
            match object.check_len(found.get(&object.name).copied()) {
                Ok(()) => sound.push(object.clone()),
                Err(error) => findings.push(error.at_path(&place(&object.name))),
            }
        }
        Ok(sound)
    }

    async fn check(&self, generation: &GenerationName, object: GenerationObject, progress: &Progress) -> Result<()> {
        let name = format!("{generation}/{}", object.name);
        let mut hasher = object.stated.hasher();
        let add = |chunk: &[u8]| {
            hasher.update(chunk);
            Ok(())
        };
        let read = self.root.download(&name, object.stated.bytes, progress, add).await;
        let checked = read.and_then(|()| object.stated.check(hasher.finish()));
        checked.map_err(|error| object.shard.into_iter().fold(error.at_path(&self.root.place(&name)), Error::at_shard))
    }
}
