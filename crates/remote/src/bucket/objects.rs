//! The objects of a generation, as its manifest lists them.

use sharddb_format::internal::checksum::Checksum;
use sharddb_format::internal::ids::ShardNumber;
use sharddb_format::internal::info;
use sharddb_format::internal::manifest::{self, Manifest};
use sharddb_format::internal::nested::NestedSharding;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::Bucket;
use crate::bucket::root::Root;
use crate::bucket_current::GenerationName;

/// A file of a generation other than `info` and the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GenerationObject {
    /// Relative to the generation, separated by `/`. Stays below it, since the manifest is checked.
    pub(super) name: String,
    pub(super) shard: Option<ShardNumber>,
    pub(super) stated: Checksum,
}

/// Returns the auxiliary files and the shards of a generation.
pub(super) fn objects(manifest: &Manifest) -> Vec<GenerationObject> {
    let directory: String =
        manifest.nested.iter().flat_map(NestedSharding::names).flat_map(|name| [name, "/"]).collect();
    let auxiliary = manifest.auxiliary.iter().map(|file| GenerationObject {
        name: file.name.clone(),
        shard: None,
        stated: file.checksum,
    });
    let shards = manifest.shards.iter().map(|shard| GenerationObject {
        name: format!("{directory}{}", manifest.sharding.shard_file_name(shard.number)),
        shard: Some(shard.number),
        stated: manifest.checksum_of(shard),
    });
    auxiliary.chain(shards).collect()
}

/// Returns the bytes of all objects, without `info` and the manifest.
pub(super) fn total_bytes(objects: &[GenerationObject]) -> u64 {
    objects.iter().fold(0, |total, object| total.saturating_add(object.stated.bytes))
}

/// The manifest and `info` of a generation in a bucket, which match.
#[derive(Debug)]
pub(super) struct StoredGeneration {
    pub(super) info: Vec<u8>,
    pub(super) manifest: Manifest,
    pub(super) manifest_text: Vec<u8>,
}

impl Root {
    /// Reads the manifest and `info` of a generation.
    ///
    /// Errors: `NotFound` if it has no manifest; `Corrupt` if either is damaged; `TooLarge`; `Unsupported`; `Io`.
    pub(super) async fn stored(&self, generation: &GenerationName) -> Result<StoredGeneration> {
        let name = format!("{generation}/{}", manifest::FILE_NAME);
        let place = self.place(&name);
        let Some((manifest_text, _)) = self.get(&name, manifest::MAX_BYTES).await? else {
            let message = "expected a complete generation, found none";
            return Err(Error::new(ErrorKind::NotFound, message).at_path(&place));
        };
        let manifest = Manifest::parse(&manifest_text).map_err(|error| error.at_path(&place))?;
        let name = format!("{generation}/{}", info::FILE_NAME);
        let place = self.place(&name);
        let Some((info, _)) = self.get(&name, info::MAX_BYTES).await? else {
            return Err(Error::corrupt("expected the info of a generation, found none").at_path(&place));
        };
        manifest.check_info(&info).map_err(|error| error.at_path(&place))?;
        Ok(StoredGeneration { info, manifest, manifest_text })
    }
}

impl Bucket {
    /// Reads the manifest and `info` of the generation of this name, or of the current one.
    ///
    /// Errors: `InvalidInput` for another name; `NotFound` if nothing was published, or the generation is not complete;
    /// `GenerationGone` if `gc` removed it; those of [`Root::stored`].
    pub(super) async fn stored(&self, name: Option<&str>) -> Result<(GenerationName, StoredGeneration)> {
        let generation = self.named_or_current(name).await?;
        match self.root.stored(&generation).await {
            Ok(stored) => Ok((generation, stored)),
            Err(error) if error.kind() == ErrorKind::NotFound => match self.root.current().await? {
                Some(current) if current.text.removed.contains(&generation) => Err(self.gone(&generation)),
                _ => Err(error),
            },
            Err(error) => Err(self.unless_gone(&generation, error).await),
        }
    }

    /// Returns an error about the objects of a generation; `GenerationGone` if they are missing because `gc` removed them.
    pub(super) async fn unless_gone(&self, generation: &GenerationName, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Corrupt if self.is_gone(generation).await.unwrap_or(false) => self.gone(generation),
            _ => error,
        }
    }

    /// Returns whether a generation whose manifest was read has none any more: `gc` deletes it first.
    pub(super) async fn is_gone(&self, generation: &GenerationName) -> Result<bool> {
        Ok(self.root.head(&format!("{generation}/{}", manifest::FILE_NAME)).await?.is_none())
    }

    #[cold]
    pub(super) fn gone(&self, generation: &GenerationName) -> Error {
        let message =
            "expected the objects of this generation, found that gc removed it meanwhile: use the current one";
        Error::new(ErrorKind::GenerationGone, message).at_path(&self.root.place(generation.as_str()))
    }
}

impl GenerationObject {
    /// Checks the length of the object in the bucket, which is `None` if it is missing.
    ///
    /// Errors: `Corrupt` without a place.
    pub(super) fn check_len(&self, found: Option<u64>) -> Result<()> {
        let stated = self.stated.bytes;
        let error = match found {
            Some(found) if found == stated => return Ok(()),
            Some(found) => Error::corrupt(format!("expected {stated} bytes as the manifest says, found {found}")),
            None => Error::corrupt("expected an object that the manifest lists, found none"),
        };
        Err(self.shard.into_iter().fold(error, Error::at_shard))
    }
}
