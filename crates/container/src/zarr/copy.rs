//! Copies an array without decoding its chunks: packing, resharding, unpacking, export.

use std::fs;
use std::path::Path;

use sharddb::progress::Phase;
use sharddb::{Progress, Snapshot};
use sharddb_format::internal::info::FILE_NAME as INFO;
use sharddb_format::internal::json;
use sharddb_format::{Error, Result};

use crate::zarr::array::ZarrArray;
use crate::zarr::metadata::{INFO_MEMBER, ZarrMetadata};
use crate::zarr::writer::{ZarrShardWriter, ZarrWriter};
use crate::{Container, Form};

/// Copies the chunks of an array into a new array, byte for byte.
///
/// `metadata` is that of the source, [sharded](ZarrMetadata::sharded) or [unsharded](ZarrMetadata::unsharded). The
/// chunks of a shard are stored in the order of the index, without gaps. `progress` counts the
/// chunks. The new array appears only when it is complete. Returns the number of chunks.
///
/// Memory: 24 bytes per existing chunk, and the index of one shard.
///
/// # Errors
///
/// `InvalidInput` if the chunks of the two arrays differ in shape or encoding, or `target` exists; `Cancelled`; the
/// error of the first chunk that cannot be read.
///
/// ```no_run
/// use sharddb::Progress;
/// use sharddb_container::zarr::{ZarrArray, copy};
///
/// let source = ZarrArray::open("one-file-a-chunk.zarr")?;
/// let packed = source.metadata().sharded(&[64, 512, 512], None)?;
/// copy(&source, "packed.zarr", &packed, &Progress::new())?;
/// # Ok::<(), sharddb::Error>(())
/// ```
pub fn copy(source: &ZarrArray, target: impl AsRef<Path>, metadata: &ZarrMetadata, progress: &Progress) -> Result<u64> {
    check_same_chunks(source.metadata(), metadata)?;
    write(source, Form::Encoded, target.as_ref(), metadata, progress)
}

/// Writes the array that was imported into a store. Chunks keep their bytes, and shards their shape.
///
/// The metadata of the array is in the member [`INFO_MEMBER`] of the store's `info`. Progress, memory and the new array
/// are as in [`copy`()].
///
/// # Errors
///
/// `InvalidInput` if there is no such member; those of [`copy`()].
///
/// ```no_run
/// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
/// sharddb_container::zarr::export(&snapshot, "array.zarr", &sharddb::Progress::new())?;
/// # Ok::<(), sharddb::Error>(())
/// ```
pub fn export(snapshot: &Snapshot, target: impl AsRef<Path>, progress: &Progress) -> Result<u64> {
    let metadata = imported_metadata(&snapshot.directory().join(INFO))?;
    let metadata = if metadata.is_wrapped() { metadata.sharded(metadata.shard_shape(), None)? } else { metadata };
    write(snapshot, Form::Decoded, target.as_ref(), &metadata, progress)
}

fn imported_metadata(path: &Path) -> Result<ZarrMetadata> {
    let text = fs::read(path).map_err(|error| Error::io("read", path, error))?;
    let read = || {
        let members = json::members(json::parse(&text)?).unwrap_or_default();
        let Some(metadata) = json::member(&members, INFO_MEMBER)? else {
            let message =
                format!("expected a store into which an array was imported, found no \"{INFO_MEMBER}\" in its info");
            return Err(Error::invalid_input(message));
        };
        ZarrMetadata::from_json(metadata.get())
    };
    read().map_err(|error| error.at_path(path))
}

/// Writes all chunks of `source`, shard by shard.
fn write(
    source: &dyn Container,
    form: Form,
    target: &Path,
    metadata: &ZarrMetadata,
    progress: &Progress,
) -> Result<u64> {
    let writer = ZarrWriter::create(target, metadata)?;
    let mut places = Vec::new();
    for key in source.keys() {
        let key = key?;
        let place = metadata.grid.place(key).ok_or_else(|| {
            Error::corrupt("expected the number of a chunk of the array, found one outside its grid").at_key(key)
        })?;
        places.push((place, key));
    }
    places.sort_unstable();
    let total = places.len() as u64;
    progress.begin(Phase::Convert, total);
    let mut shard: Option<(u64, ZarrShardWriter)> = None;
    for (place, key) in places {
        let mut open = match shard.take() {
            Some((number, open)) if number == place.shard => open,
            before => {
                before.map(|(_, before)| before.finish()).transpose()?;
                writer.shard(place.shard)?
            }
        };
        if let Some(encoded) = source.get(key, form)? {
            open.put(key, &encoded)?;
        }
        shard = Some((place.shard, open));
        progress.add(1);
        progress.check()?;
    }
    shard.map(|(_, last)| last.finish()).transpose()?;
    writer.finish()?;
    Ok(total)
}

/// Checks that the bytes of a chunk have the same meaning in both arrays.
fn check_same_chunks(source: &ZarrMetadata, target: &ZarrMetadata) -> Result<()> {
    let same = source.codecs_of_chunk() == target.codecs_of_chunk()
        && source.elements == target.elements
        && source.shape() == target.shape()
        && source.chunk_shape() == target.chunk_shape();
    if same {
        Ok(())
    } else {
        Err(Error::invalid_input("expected the metadata of an array of the same chunks, found other chunks"))
    }
}
