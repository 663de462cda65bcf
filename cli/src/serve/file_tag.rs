//! Entity tags of files and of generations.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::serve::entity_tag::EntityTag;
use crate::serve::problem::{Problem, Result};

/// The tag of a file that is in no generation: its length, modification time and inode.
pub(crate) fn file_tag(metadata: &Metadata) -> EntityTag {
    EntityTag::new(stamp(metadata))
}

/// The tag of a generation: its name and the CRC-32 of its manifest; `None` without a manifest that states it.
///
/// Errors: those of reading the manifest.
pub(crate) fn generation_tag(directory: &Path) -> Result<Option<EntityTag>> {
    let manifest = directory.join("manifest.json");
    let Some(metadata) = metadata_of(&manifest)? else { return Ok(None) };
    if !metadata.is_file() {
        return Ok(None); // opening a FIFO would wait for a writer
    }
    let Some(text) = known(fs::read(&manifest), &manifest)? else { return Ok(None) };
    let crc32 = std::str::from_utf8(&text).ok().and_then(stated_crc32);
    let name = directory.file_name().and_then(|name| name.to_str());
    Ok(name.zip(crc32).map(|(name, crc32)| EntityTag::new(format!("{name}-{crc32:08x}"))))
}

/// The metadata of a file or directory; `None` if nothing is there.
///
/// Errors: `io`.
pub(crate) fn metadata_of(path: &Path) -> Result<Option<Metadata>> {
    known(fs::metadata(path), path)
}

/// The result of an access to a file; `None` if there is no such file for this process.
fn known<T>(result: io::Result<T>, path: &Path) -> Result<Option<T>> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | PermissionDenied) => Ok(None),
        Err(error) => Err(Problem::io("read", path, &error)),
    }
}

/// What changes when a file is replaced or written.
pub(crate) fn stamp(metadata: &Metadata) -> String {
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = modified.map_or(0, |since| since.as_nanos());
    format!("{:x}-{modified:x}{}", metadata.len(), inode(metadata))
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> String {
    format!("-{:x}", std::os::unix::fs::MetadataExt::ino(metadata))
}

#[cfg(not(unix))]
fn inode(_metadata: &Metadata) -> String {
    String::new()
}

/// The checksum at the end of a manifest.
fn stated_crc32(manifest: &str) -> Option<u32> {
    let (_, stated) = manifest.rsplit_once("\"crc32\":")?;
    stated.trim_matches([' ', '\n', '}']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_manifest_is_its_last_member() {
        assert_eq!(stated_crc32("{\"info_crc32\": 7,\n\"crc32\": 2923529841\n}\n"), Some(2_923_529_841));
        assert_eq!(stated_crc32("{\"crc32\": 1, \"crc32\": 2}"), Some(2));
        for text in ["", "{}", "{\"crc32\": -1}", "{\"crc32\": 4294967296}", "{\"crc32\": 1, \"x\": 2}"] {
            assert_eq!(stated_crc32(text), None, "{text}");
        }
    }
}
