//! What a path is that is not a database, and what the user can do with it.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::Path;

use sharddb::{GenerationId, Store};

use crate::entry;
use crate::failure::{Failure, Result};
use crate::printable::word;

/// Maximum length of a manifest in bytes.
const MANIFEST_BYTES: u64 = 256 << 20;

/// Maximum length of a history in bytes.
const HISTORY_BYTES: u64 = 15_000;

/// The failure of opening `path` as a database: what was expected, what is there, and what to do.
pub(crate) fn failure(path: &Path) -> Failure {
    let db = path.display();
    match found_at(path) {
        Ok(Some(found)) => Failure::NotADatabase(format!(
            "{db} is not a database: expected `current`, an `info` with a sharding, `zarr.json` or bcolz metadata; found \
             {found}"
        )),
        Ok(None) => {
            Failure::NotADatabase(format!("{db} does not exist: expected a database, which sharddb build makes"))
        }
        Err(unknown) => unknown,
    }
}

/// Whether `path` is a store that was copied with links followed, so that `current` is a directory.
pub(crate) fn is_copy_of_store(path: &Path) -> Result<bool> {
    let current = entry::own_metadata_if_there(&path.join("current"))?;
    Ok(current.is_some_and(|current| current.is_dir()) && last_generation(path)?.is_some())
}

/// Errors: `Io` if that cannot be determined.
fn found_at(path: &Path) -> Result<Option<String>> {
    match entry::metadata_if_there(path)? {
        Some(metadata) if metadata.is_dir() => directory(path).map(Some),
        Some(_) => Ok(Some(file(path))),
        None => Ok(None),
    }
}

fn directory(path: &Path) -> Result<String> {
    let db = word(path);
    if is_copy_of_store(path)? {
        let last = last_generation(path)?.unwrap_or_default();
        return Ok(format!(
            "a store that was copied without its link `current`, which is a directory now: sharddb rollback {db} {last} \
             makes it a link again, and keeps a directory whose files differ"
        ));
    }
    let has = |name: &str| entry::exists(&path.join(name));
    if has(".zarray")? || has(".zgroup")? {
        return Ok("a Zarr v2 array or group, which is not read: convert it to Zarr v3".to_string());
    }
    if let Some(current) = current_generation(path)? {
        return Ok(format!(
            "the store's current generation without its info: sharddb salvage {db} OUT saves its pairs, sharddb rollback \
             {db} goes back to the generation before {current}"
        ));
    }
    Ok(match (Store::open(path).is_ok(), last_generation(path)?) {
        (true, Some(last)) => {
            format!("a store whose `current` is gone: sharddb rollback {db} {last} makes it current again")
        }
        (true, None) => format!("a store without a published generation: sharddb build {db} --input PATH makes one"),
        (false, _) if has_shard(path)? => {
            "shards without an `info`: state their specification with --sharding, or add an info".to_string()
        }
        (false, _) => "a directory with none of them".to_string(),
    })
}

fn file(path: &Path) -> String {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("shard") => "one shard file: open the directory that has its `info`".to_string(),
        Some("ndjson" | "jsonl" | "bin" | "bin2" | "csv" | "gz" | "zst") => {
            format!("a file: sharddb build STORE --input {} makes a store from it", word(path))
        }
        _ => "a file".to_string(),
    }
}

/// The complete generation that was current last, as `rollback` takes it: the one that `current` is a copy of, or the last
/// one of the history, or the one with the highest number.
fn last_generation(path: &Path) -> Result<Option<String>> {
    let mut complete = Vec::new();
    for name in names(path)? {
        if let Some(id) = name.to_str().and_then(|name| name.parse::<GenerationId>().ok())
            && entry::is_file(&path.join(name).join("manifest.json"))?
        {
            complete.push(id);
        }
    }
    complete.sort_unstable();
    let manifest = |directory: &str| head(&path.join(directory).join("manifest.json"), MANIFEST_BYTES);
    let copied = manifest("current");
    let is_copied = |id: &GenerationId| copied.is_some() && manifest(&id.to_string()) == copied;
    let history = head(&path.join("history"), HISTORY_BYTES).and_then(|bytes| String::from_utf8(bytes).ok());
    let mut history = history.iter().flat_map(|history| history.lines()).filter_map(|line| line.parse().ok());
    let last = history.rfind(|id| complete.contains(id));
    let found = complete.iter().rev().copied().find(is_copied).or(last).or(complete.last().copied());
    Ok(found.map(|id| id.get().to_string()))
}

/// The first bytes of a regular file.
fn head(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = entry::is_file(path).ok()?.then(|| fs::File::open(path))?.ok()?;
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The generation that `current` names, if its directory is there.
fn current_generation(path: &Path) -> Result<Option<GenerationId>> {
    let Some(current) = Store::open(path).ok().and_then(|store| store.current().ok()?) else { return Ok(None) };
    Ok(entry::is_dir(&path.join(current.to_string()))?.then_some(current))
}

fn has_shard(path: &Path) -> Result<bool> {
    Ok(names(path)?.iter().any(|name| Path::new(name).extension().is_some_and(|extension| extension == "shard")))
}

fn names(directory: &Path) -> Result<Vec<OsString>> {
    let names = fs::read_dir(directory).and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
    names.map_err(|error| Failure::io("list", directory, error))
}
