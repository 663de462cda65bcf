//! What a path is that is not a database, and what the user can do with it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sharddb::{GenerationId, Store};

use crate::failure::Failure;
use crate::printable::word;

/// The failure of opening `path` as a database: what was expected, what is there, and what to do.
pub(crate) fn failure(path: &Path) -> Failure {
    let found = match path.metadata() {
        Ok(metadata) if metadata.is_dir() => directory(path),
        Ok(_) => file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => "nothing".to_string(),
        Err(error) => return Failure::io("open", path, error),
    };
    Failure::NotADatabase(format!(
        "{} is not a database: expected `current`, an `info` with a sharding, `zarr.json` or bcolz metadata; found \
         {found}",
        path.display()
    ))
}

/// Whether `path` is a store that was copied with links followed, so that `current` is a directory.
pub(crate) fn is_copy_of_store(path: &Path) -> bool {
    path.join("current").symlink_metadata().is_ok_and(|current| current.is_dir()) && last_generation(path).is_some()
}

fn directory(path: &Path) -> String {
    let db = word(path);
    if is_copy_of_store(path) {
        let last = last_generation(path).unwrap_or_default();
        return format!(
            "a store that was copied without its link `current`, which is a directory now: remove {db}/current, then \
             run sharddb rollback {db} {last}"
        );
    }
    let has = |name: &str| path.join(name).exists();
    if has(".zarray") || has(".zgroup") {
        return "a Zarr v2 array or group, which is not read: convert it to Zarr v3".to_string();
    }
    if let Some(current) = current_generation(path) {
        return format!(
            "the store's current generation without its info: sharddb salvage {db} OUT saves its pairs, sharddb rollback \
             {db} goes back to the generation before {current}"
        );
    }
    match (Store::open(path).is_ok(), last_generation(path)) {
        (true, Some(last)) => {
            format!("a store whose `current` is gone: sharddb rollback {db} {last} publishes its last generation")
        }
        (true, None) => format!("a store without a published generation: sharddb build {db} --input PATH makes one"),
        (false, _) if has_shard(path) => {
            "shards without an `info`: state their specification with --sharding, or add an info".to_string()
        }
        (false, _) => "a directory with none of them".to_string(),
    }
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

/// The highest number among the complete generations in a directory, as `rollback` takes it.
fn last_generation(path: &Path) -> Option<String> {
    let entries = fs::read_dir(path).ok()?.flatten();
    let complete = entries.filter(|entry| entry.path().join("manifest.json").is_file());
    let ids = complete.filter_map(|entry| entry.file_name().to_str()?.parse::<GenerationId>().ok());
    ids.max().map(|id| id.get().to_string())
}

/// The generation that `current` names, if its directory is there.
fn current_generation(path: &Path) -> Option<GenerationId> {
    let current = Store::open(path).ok()?.current().ok()??;
    path.join(current.to_string()).is_dir().then_some(current)
}

fn has_shard(path: &Path) -> bool {
    let is_shard = |path: PathBuf| path.extension().is_some_and(|extension| extension == "shard");
    fs::read_dir(path).into_iter().flatten().flatten().any(|entry| is_shard(entry.path()))
}
