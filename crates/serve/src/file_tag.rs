//! Entity tags of files and of generations.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::answer::read_exact_at;
use crate::entity_tag::EntityTag;
use crate::problem::{Problem, Result};
use crate::tree::Place;

/// The longest manifest that the library reads.
const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// The member `"crc32"` and the end of a manifest are shorter.
const CRC32_BYTES: u64 = 64;

/// The tag of a file that is in no generation: its length, modification time and inode.
pub(crate) fn file_tag(metadata: &Metadata) -> EntityTag {
    EntityTag::new(stamp(metadata))
}

/// The tag of a generation: its name and the CRC-32 of its manifest; `None` without a manifest that states it.
///
/// Reads the end of the manifest only, and follows no link out of the tree.
///
/// Errors: those of reading the manifest.
pub(crate) fn generation_tag(generation: &Place) -> Result<Option<EntityTag>> {
    let crc32 = manifest_crc32(&generation.join("manifest.json"))?;
    let path = generation.path();
    let name = path.file_name().and_then(|name| name.to_str());
    Ok(name.zip(crc32).map(|(name, crc32)| EntityTag::new(format!("{name}-{crc32:08x}"))))
}

/// The CRC-32 that a manifest states; `None` without a manifest, or if the file is none.
fn manifest_crc32(manifest: &Place) -> Result<Option<u32>> {
    let failed = |error| Problem::io("read", &manifest.path(), &error);
    let Some(file) = manifest.open().map_err(failed)? else { return Ok(None) };
    let len = file.metadata().map_err(failed)?.len();
    if len > MAX_MANIFEST_BYTES {
        return Ok(None);
    }
    let begin = len.saturating_sub(CRC32_BYTES);
    let mut end = vec![0; usize::try_from(len - begin).unwrap_or(0)];
    read_exact_at(&file, &mut end, begin).map_err(failed)?;
    Ok(stated_crc32(&String::from_utf8_lossy(&end)))
}

/// The metadata of a file or directory; `None` if there is none for this process.
///
/// Errors: `io`.
pub(crate) fn metadata_of(path: &Path) -> Result<Option<Metadata>> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match fs::metadata(path) {
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
    use std::fs::File;

    use super::*;

    #[test]
    #[cfg(unix)]
    fn the_tag_is_that_of_a_manifest_below_the_root() {
        use std::fs::{create_dir_all, hard_link, remove_file, rename};

        let directory = tempfile::tempdir().unwrap();
        let (served, outside) = (directory.path().join("served"), directory.path().join("outside"));
        let manifest = served.join("gen-0000000001/manifest.json");
        create_dir_all(served.join("gen-0000000001")).unwrap();
        let tree = crate::tree::Tree::new(std::slice::from_ref(&served), |_| Ok(false)).unwrap();
        let generation = tree.place_of(&served.canonicalize().unwrap().join("gen-0000000001")).unwrap();
        let tag = || generation_tag(&generation).unwrap().map(|tag| tag.as_str().to_string());
        let stated = Some("gen-0000000001-000000ff".to_string());
        assert_eq!(tag(), None);
        fs::write(&outside, format!("{{\"é\": \"{}\",\n\"crc32\": 255\n}}\n", "é".repeat(50))).unwrap();
        hard_link(&outside, &manifest).unwrap();
        assert_eq!(tag(), stated);
        remove_file(&manifest).unwrap();
        std::os::unix::fs::symlink(&outside, &manifest).unwrap();
        assert_eq!(tag(), None, "the link leads out");
        rename(&outside, &manifest).unwrap();
        let file = File::options().read(true).write(true).open(&manifest).unwrap();
        let mut end = [0; 20];
        read_exact_at(&file, &mut end, file.metadata().unwrap().len() - 20).unwrap();
        for (len, tag_then) in [(MAX_MANIFEST_BYTES, stated), (MAX_MANIFEST_BYTES + 1, None)] {
            file.set_len(len).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &end, len - 20).unwrap();
            assert_eq!(tag(), tag_then, "a manifest of {len} bytes");
        }
    }

    #[test]
    fn the_checksum_of_a_manifest_is_its_last_member() {
        assert_eq!(stated_crc32("{\"info_crc32\": 7,\n\"crc32\": 2923529841\n}\n"), Some(2_923_529_841));
        assert_eq!(stated_crc32("{\"crc32\": 1, \"crc32\": 2}"), Some(2));
        for text in ["", "{}", "{\"crc32\": -1}", "{\"crc32\": 4294967296}", "{\"crc32\": 1, \"x\": 2}"] {
            assert_eq!(stated_crc32(text), None, "{text}");
        }
    }
}
