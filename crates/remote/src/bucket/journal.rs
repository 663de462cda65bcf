//! The local file with which an upload is resumed: it names the generation whose objects the upload writes, and has the
//! ETags of those that were written.
//!
//! ```text
//! sharddb push journal 2
//! "s3://bucket/store"                                  the store
//! 1234 9bd1cf18a5f3b3be0fb1ab2dba2bd3b4                bytes and digest of the manifest
//! gen-0000000003-6f0c..                                the name that the objects begin with
//! ["0.shard","\"9b2cf5\""]                             an object and its ETag, as the server returned it
//! ```
//!
//! The bucket lists the objects that are done. Those without a line were uploaded just before the upload was killed. The
//! file is locked while the upload runs.

use std::collections::HashMap;
use std::env;
use std::fs::{DirBuilder, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use sharddb::internal::fs::disk;
use sharddb_format::internal::digest::Digest;
use sharddb_format::internal::json;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket_current::GenerationName;

const TITLE: &str = "sharddb push journal 2";

/// Maximum number of bytes of the file that are read: the lines of more than 100,000 objects.
const MAX_BYTES: u64 = 1 << 24;

/// An upload that an earlier attempt began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) generation: GenerationName,
    /// The ETags of objects, by their names in the generation.
    pub(super) etags: HashMap<String, String>,
}

/// The journal of one generation and one store.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// The lines before the name.
    head: String,
}

impl Journal {
    /// Opens the journal in a directory, or creates both. `None` if the default directory cannot be used.
    ///
    /// Errors: `Locked` if another process uploads the same generation; for a given directory, `Io`.
    pub(super) fn open(directory: Option<&Path>, store: &str, manifest: &[u8]) -> Result<Option<Journal>> {
        let digest = Digest::of(manifest); // two manifests may have one CRC-32
        let head = format!("{TITLE}\n{}\n{} {digest}\n", json::quote(store), manifest.len());
        let name = format!("push-{:08x}{digest}.journal", crc32fast::hash(store.as_bytes()));
        let Some(given) = directory else {
            let Some(directory) = default_directory() else { return Ok(None) };
            return match Journal::open_at(&directory, &name, head) {
                Err(error) if error.kind() == ErrorKind::Io => Ok(None), // read-only, for example: then it cannot be resumed
                opened => opened.map(Some),
            };
        };
        Journal::open_at(given, &name, head).map(Some)
    }

    fn open_at(directory: &Path, name: &str, head: String) -> Result<Journal> {
        create_private_dir(directory).map_err(|error| Error::io("create the directory", directory, error))?;
        let path = directory.join(name);
        let file = disk::open_or_create(&path).map_err(|error| Error::io("open", &path, error))?;
        match disk::try_lock(&file, &path) {
            Ok(true) => Ok(Journal { path, file, head }),
            Ok(false) => {
                let message = "expected no other upload of this generation, found one that holds its journal";
                Err(Error::new(ErrorKind::Locked, message).at_path(&path))
            }
            Err(error) => Err(Error::io("lock", &path, error)),
        }
    }

    /// Returns the upload that an earlier attempt began.
    pub(super) fn begun(&self) -> Result<Option<Begun>> {
        let mut text = Vec::new();
        let read = disk::inspect(&self.path, || (&self.file).take(MAX_BYTES).read_to_end(&mut text));
        read.map_err(|error| Error::io("read", &self.path, error))?;
        let text = String::from_utf8(text).unwrap_or_default(); // a damaged journal is no journal
        let lines = text.strip_prefix(&self.head).and_then(|lines| lines.split_once('\n'));
        Ok(lines.and_then(|(name, objects)| {
            let (whole, torn) = objects.rsplit_once('\n').unwrap_or(("", objects));
            if !torn.is_empty() {
                _ = self.file.set_len((text.len() - torn.len()) as u64); // `add` begins a line of its own
            }
            Some(Begun {
                generation: GenerationName::parse(name)?,
                etags: whole.lines().map(etag_of).collect::<Option<_>>()?,
            })
        }))
    }

    /// Adds an object that was uploaded. Ignores errors: a resumed upload compares only its length then.
    pub(super) fn add(&self, object: &str, etag: &str) {
        let line = format!("[{},{}]\n", json::quote(object), json::quote(etag));
        if let Ok(metadata) = self.file.metadata() {
            _ = disk::write_all_at(&self.file, &self.path, metadata.len(), line.as_bytes());
        }
    }

    /// Replaces the text.
    pub(super) fn write(&self, generation: &GenerationName) -> Result<()> {
        let text = format!("{}{generation}\n", self.head);
        let fail = |error| Error::io("write", &self.path, error);
        self.file.set_len(0).map_err(fail)?;
        disk::write_all_at(&self.file, &self.path, 0, text.as_bytes()).map_err(fail)?;
        disk::sync_file(&self.file, &self.path).map_err(fail)
    }

    /// Removes the file, after the upload. Ignores errors: the next push finds that the generation was published.
    pub(super) fn remove(self) {
        _ = disk::remove_file(&self.path);
    }
}

/// Parses the line of an object.
fn etag_of(line: &str) -> Option<(String, String)> {
    match json::elements(json::parse(line.as_bytes()).ok()?)?[..] {
        [object, etag] => Some((json::string(object)?, json::string(etag)?)),
        _ => None,
    }
}

/// Returns the user's own directory for such files: other users must not be able to name the objects.
fn default_directory() -> Option<PathBuf> {
    let of = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache =
        of("XDG_CACHE_HOME").or_else(|| of("LOCALAPPDATA")).or_else(|| of("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("sharddb"))
}

fn create_private_dir(path: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{TempDir, with_own_crc32};

    fn name(digit: &str) -> GenerationName {
        GenerationName::parse(&format!("gen-0000000001-{}", digit.repeat(32))).unwrap()
    }

    fn begun(digit: &str, etags: &[(&str, &str)]) -> Option<Begun> {
        let etags = etags.iter().map(|(object, etag)| (object.to_string(), etag.to_string())).collect();
        Some(Begun { generation: name(digit), etags })
    }

    fn open(directory: &Path, store: &str, manifest: &[u8]) -> Journal {
        Journal::open(Some(directory), store, manifest).unwrap().unwrap()
    }

    #[test]
    fn names_the_generation_of_one_store_and_one_manifest() {
        let directory = TempDir::new();
        let journal = open(directory.path(), "s3://a/b", b"manifest");
        assert_eq!(journal.begun().unwrap(), None);
        journal.write(&name("a")).unwrap();
        drop(journal);
        assert_eq!(open(directory.path(), "s3://a/b", b"manifest").begun().unwrap(), begun("a", &[]));
        assert_eq!(open(directory.path(), "s3://a/c", b"manifest").begun().unwrap(), None);
        assert_eq!(open(directory.path(), "s3://a/b", b"Manifest").begun().unwrap(), None);
        let [one, other] = [b"text", b"TEXT"].map(|text| with_own_crc32(text));
        open(directory.path(), "s3://a/b", &one).write(&name("a")).unwrap();
        assert_eq!(crc32fast::hash(&one), crc32fast::hash(&other));
        assert_eq!(open(directory.path(), "s3://a/b", &other).begun().unwrap(), None);
        open(directory.path(), "s3://a/b", b"manifest").remove();
        assert_eq!(open(directory.path(), "s3://a/b", b"manifest").begun().unwrap(), None);
    }

    #[test]
    fn a_torn_line_is_replaced() {
        let directory = TempDir::new();
        let journal = open(directory.path(), "s3://a/b", b"manifest");
        journal.write(&name("a")).unwrap();
        journal.add("0.shard", "x");
        let len = journal.file.metadata().unwrap().len();
        journal.file.set_len(len - 3).unwrap();
        drop(journal);
        let journal = open(directory.path(), "s3://a/b", b"manifest");
        assert_eq!(journal.begun().unwrap(), begun("a", &[]));
        journal.add("1.shard", "y");
        drop(journal);
        assert_eq!(open(directory.path(), "s3://a/b", b"manifest").begun().unwrap(), begun("a", &[("1.shard", "y")]));
    }

    #[test]
    fn has_the_etags_of_uploaded_objects() {
        let directory = TempDir::new();
        let journal = open(directory.path(), "s3://a/b", b"manifest");
        journal.write(&name("a")).unwrap();
        journal.add("0.shard", "\"9b2c\"");
        journal.add("a/\"1\".shard", "W/\"x\"");
        let path = journal.path.clone();
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.ends_with("\n[\"0.shard\",\"\\\"9b2c\\\"\"]\n[\"a/\\\"1\\\".shard\",\"W/\\\"x\\\"\"]\n"),
            "{text}"
        );
        let both = [("0.shard", "\"9b2c\""), ("a/\"1\".shard", "W/\"x\"")];
        assert_eq!(open(directory.path(), "s3://a/b", b"manifest").begun().unwrap(), begun("a", &both));
        std::fs::write(&path, &text[..text.len() - 1]).unwrap(); // torn
        assert_eq!(open(directory.path(), "s3://a/b", b"manifest").begun().unwrap(), begun("a", &both[..1]));
        for line in ["x", "[]", "[\"0.shard\"]", "[\"0.shard\",1]", "{}"] {
            std::fs::write(&path, format!("{text}{line}\n")).unwrap();
            assert_eq!(open(directory.path(), "s3://a/b", b"manifest").begun().unwrap(), None, "{line}");
        }
        open(directory.path(), "s3://a/b", b"manifest").write(&name("b")).unwrap();
        assert_eq!(open(directory.path(), "s3://a/b", b"manifest").begun().unwrap(), begun("b", &[]));
    }

    #[test]
    fn is_locked_while_it_is_open() {
        let directory = TempDir::new();
        let journal = open(directory.path(), "s3://a/b", b"manifest");
        let error = Journal::open(Some(directory.path()), "s3://a/b", b"manifest").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        drop(journal);
        open(directory.path(), "s3://a/b", b"manifest");
    }

    #[test]
    fn a_torn_or_damaged_text_is_none() {
        let directory = TempDir::new();
        let journal = open(directory.path(), "s3://a/b", b"manifest");
        journal.write(&name("a")).unwrap();
        let path = journal.path.clone();
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        for len in 0..text.len() {
            std::fs::write(&path, &text[..len]).unwrap();
            assert_eq!(open(directory.path(), "s3://a/b", b"manifest").begun().unwrap(), None, "{len}");
        }
        for other in [text.replace("gen-", "../"), text.replace('\n', "\r\n"), format!("{text}x\n")] {
            std::fs::write(&path, other).unwrap();
            assert_eq!(open(directory.path(), "s3://a/b", b"manifest").begun().unwrap(), None);
        }
    }
}
