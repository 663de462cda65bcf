//! Export: writes an array or a file that was imported into a store.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use sharddb::internal::fs::entry;
use sharddb::progress::Phase;
use sharddb::verify::{FindingKind, VerifyLevel};
use sharddb::{Progress, Snapshot};
use sharddb_format::internal::info::FILE_NAME as INFO;
use sharddb_format::internal::json;
use sharddb_format::{Error, Result};

use crate::bcolz::array::BcolzArray;
use crate::bcolz::chunks::{chunk_file_name, superchunk_file_name};
use crate::bcolz::meta::{ARRAY_MEMBER, MetaFile, RootdirLayout, STORAGE, meta_path};
use crate::bloscpack::{BloscpackOptions, Checksum, FILE_MEMBER, Metadata, encode_one_chunk};
use crate::new_file::{NewDirectory, NewFile, create_dir};
use crate::{Container, Form, VerifyOptions, blosc};

/// Writes the bcolz array or bloscpack file that was imported into a store. Chunks keep their bytes.
///
/// Everything else that is needed is in the member `bcolz` or `bloscpack` of the store's `info`. `target` is a new
/// directory, or a new bloscpack file; it appears only when it is complete. `progress` counts the chunks, and then the
/// files of an array that are verified. Returns the number of chunks.
///
/// Cost: decodes every chunk once.
///
/// # Errors
///
/// `InvalidInput` if neither was imported into the store, or `target` exists; `Cancelled`; `Corrupt` if the store does not have
/// the chunks of the array any more; the error of the first chunk that cannot be read or decoded.
///
/// ```no_run
/// let snapshot = sharddb::ShardDb::open("store")?.snapshot();
/// sharddb_container::bcolz::export(&snapshot, "prices", &sharddb::Progress::new())?;
/// # Ok::<(), sharddb::Error>(())
/// ```
pub fn export(snapshot: &Snapshot, target: impl AsRef<Path>, progress: &Progress) -> Result<u64> {
    let (info, target) = (snapshot.directory().join(INFO), target.as_ref());
    if entry::exists(target)? {
        return Err(Error::invalid_input("expected nothing here yet, found something").at_path(target));
    }
    let imported = imported(&info).map_err(|error| error.at_path(&info))?;
    let mut source = Export { snapshot, nchunks: nchunks(snapshot)?, progress };
    progress.begin(Phase::Convert, source.nchunks);
    match imported {
        Imported::Array(members) => source.write_array(&MetaFile::from_members(info, members), target)?,
        Imported::File(members) => source.write_file(&MetaFile::from_members(info, members), target)?,
    }
    Ok(source.nchunks)
}

enum Imported {
    Array(Map<String, Json>),
    File(Map<String, Json>),
}

fn imported(info: &Path) -> Result<Imported> {
    let text = fs::read(info).map_err(|error| Error::io("read", info, error))?;
    let members = json::members(json::parse(&text)?).unwrap_or_default();
    let object = |name| -> Result<Option<Map<String, Json>>> {
        let value = json::member(&members, name)?;
        Ok(value.and_then(|value| serde_json::from_str(value.get()).ok()))
    };
    match (object(ARRAY_MEMBER)?, object(FILE_MEMBER)?) {
        (Some(array), _) => Ok(Imported::Array(array)),
        (None, Some(file)) => Ok(Imported::File(file)),
        (None, None) => Err(Error::invalid_input(format!(
            "expected a store into which bcolz or bloscpack was imported, found neither \"{ARRAY_MEMBER}\" nor \
             \"{FILE_MEMBER}\" in its info"
        ))),
    }
}

/// The chunks of a store, which must be numbered without a gap.
fn nchunks(snapshot: &Snapshot) -> Result<u64> {
    let (mut count, mut end) = (0, 0);
    for key in Snapshot::keys(snapshot) {
        count += 1;
        end = end.max(key?.saturating_add(1));
    }
    if count == end {
        Ok(count)
    } else {
        Err(Error::corrupt(format!("expected chunks 0 to {}, found {count} of them", end.saturating_sub(1))))
    }
}

struct Export<'a> {
    snapshot: &'a Snapshot,
    nchunks: u64,
    progress: &'a Progress,
}

impl Export<'_> {
    fn write_array(&mut self, imported: &MetaFile, target: &Path) -> Result<()> {
        let layout = match imported.get("layout").and_then(Json::as_str) {
            Some("shipped") => RootdirLayout::Shipped,
            Some("superchunks") => RootdirLayout::Superchunks,
            _ => return Err(imported.invalid("\"shipped\" or \"superchunks\" for \"layout\"", imported.get("layout"))),
        };
        let directory = NewDirectory::create(target)?;
        let root = directory.temporary();
        let data = root.join("data");
        create_dir(&data)?;
        match layout {
            RootdirLayout::Shipped => self.write_chunk_files(&data)?,
            RootdirLayout::Superchunks => self.write_superchunks(imported, &data)?,
        }
        for (name, path) in [
            ("storage", meta_path(root, STORAGE)),
            ("attributes", layout.attributes_path(root)),
            ("sizes", meta_path(root, "sizes")),
        ] {
            match imported.get(name) {
                Some(Json::Object(members)) => MetaFile::from_members(path, members.clone()).write()?,
                Some(Json::String(text)) if name == "attributes" => {
                    let mut file = NewFile::create(&path)?;
                    file.write(text.as_bytes())?;
                    file.finish()?;
                }
                other => return Err(imported.invalid(&format!("an object for \"{name}\""), other)),
            }
        }
        // the store may have lost or gained chunks since the import; a chunk with more rows is of an unfinished append
        let report =
            BcolzArray::open(root)?.verify_with(VerifyLevel::Data, VerifyOptions::new().progress(self.progress))?;
        match report.findings().iter().find(|finding| finding.kind() != FindingKind::WrongCount) {
            None => directory.finish(),
            Some(found) => Err(Error::corrupt(format!("expected the chunks of the array, found: {}", found.message()))),
        }
    }

    fn write_chunk_files(&mut self, data: &Path) -> Result<()> {
        for key in 0..self.nchunks {
            let mut file = NewFile::create(&data.join(chunk_file_name(key)))?;
            file.write(&encode_one_chunk(&self.chunk(key)?))?;
            file.finish()?;
        }
        Ok(())
    }

    fn write_superchunks(&mut self, imported: &MetaFile, data: &Path) -> Result<()> {
        let files = imported.get("superchunks").and_then(Json::as_array).cloned().unwrap_or_default();
        let mut first = 0;
        for (number, file) in (1..).zip(files) {
            let Some(nchunks) = file.get("nchunks").and_then(Json::as_u64) else {
                return Err(imported.invalid("a number of chunks for each superchunk", Some(&file)));
            };
            let mut options = BloscpackOptions::new();
            options.checksum(checksum(imported, file.get("checksum"))?);
            self.write_chunks(&mut options, data.join(superchunk_file_name(number)), first, nchunks)?;
            first += nchunks;
        }
        if first != self.nchunks {
            return Err(Error::corrupt(format!("expected {first} chunks for the superchunks, found {}", self.nchunks)));
        }
        Ok(())
    }

    fn write_file(&mut self, imported: &MetaFile, target: &Path) -> Result<()> {
        let mut options = BloscpackOptions::new();
        options.checksum(checksum(imported, imported.get("checksum"))?);
        options.max_app_chunks(imported.number("max_app_chunks")?.unwrap_or_default());
        if let Some(metadata) = imported.get("metadata").filter(|metadata| metadata.is_object()) {
            let text = |name| metadata.get(name).and_then(Json::as_str).unwrap_or_default().to_string();
            options.metadata(Metadata { format: text("format"), bytes: text("text").into_bytes() });
        }
        self.write_chunks(&mut options, target.to_path_buf(), 0, self.nchunks)
    }

    fn write_chunks(&mut self, options: &mut BloscpackOptions, path: PathBuf, first: u64, nchunks: u64) -> Result<()> {
        if nchunks > self.nchunks.saturating_sub(first) {
            return Err(Error::corrupt(format!("expected {nchunks} chunks from {first} on, found {}", self.nchunks)));
        }
        if nchunks > 0 {
            let head = blosc::Header::parse(&self.stored(first)?)?;
            options.typesize(usize::from(head.typesize()));
        }
        let mut writer = options.create(path, nchunks)?;
        for key in first..first + nchunks {
            writer.push_encoded(&self.chunk(key)?).map_err(|error| error.at_key(key))?;
        }
        writer.finish()
    }

    /// Returns the bytes of a chunk and reports progress.
    fn chunk(&mut self, key: u64) -> Result<Vec<u8>> {
        let chunk = self.stored(key)?;
        self.progress.add(1);
        self.progress.check()?;
        Ok(chunk)
    }

    fn stored(&self, key: u64) -> Result<Vec<u8>> {
        let value = Container::get(self.snapshot, key, Form::Decoded)?;
        value.map(|value| value.to_vec()).ok_or_else(|| Error::corrupt("expected a chunk, found none").at_key(key))
    }
}

fn checksum(imported: &MetaFile, name: Option<&Json>) -> Result<Checksum> {
    let known = Checksum::ALL.into_iter().find(|checksum| Some(checksum.as_str()) == name.and_then(Json::as_str));
    known.ok_or_else(|| imported.invalid("the name of a checksum", name))
}
