//! Entity tags of files and of generations.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::serve::entity_tag::EntityTag;

/// The tag of a file that is in no generation: its length, modification time and inode.
pub(crate) fn file_tag(metadata: Option<&Metadata>) -> EntityTag {
    EntityTag::new(metadata.map_or_else(|| "0".to_string(), stamp))
}

/// The tag of a generation: its name and the CRC-32 of its manifest; `None` without a manifest.
pub(crate) fn generation_tag(directory: &Path) -> Option<EntityTag> {
    let manifest = directory.join("manifest.json");
    let is_file = fs::metadata(&manifest).ok()?.is_file(); // opening a FIFO would wait for a writer
    let crc32 = is_file.then(|| fs::read_to_string(&manifest).ok()).flatten().as_deref().and_then(stated_crc32)?;
    let name = directory.file_name()?.to_str()?;
    Some(EntityTag::new(format!("{name}-{crc32:08x}")))
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
