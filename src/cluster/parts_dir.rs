//! The directory of a partitioned build, `parts-*` in a store: spills, parts, and marks of publications; and its removal.
//!
//! ```text
//! task-7-<digest>           a spill: linked into place once it is complete
//! part-3-<digest>/          the shards of a part: renamed into place once they are complete
//! publishing-<digest>       written before `current` changes
//! published-<digest>        written after it
//! tmp-task-* tmp-part-*     of a process that is at work, or was killed
//! tmp-mark                  a mark before it is renamed into place
//! ```
//!
//! A digest is 32 hexadecimal digits. A name with a digest is never given to other bytes, so a name that exists already
//! is success. This module knows names and kinds of files, not their contents. Writers of the store leave the directory
//! alone.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::bytes::read_whole;
use crate::error::{Error, ErrorKind, Result};
use crate::fs;
use crate::fs::disk;
use crate::fs::owning_process::OwningProcess;
use crate::store::contents::is_shard_name;
use crate::store::parts_entry::{
    Entry, PART_PREFIX, PUBLISHED_PREFIX, PUBLISHING_PREFIX, TASK_PREFIX, TEMPORARY_MARK, TEMPORARY_PART_PREFIX,
    TEMPORARY_TASK_PREFIX, is_numbered, suffix_is_digest,
};
use crate::store::{PARTS_PREFIX, Store, link, scratch};

/// The maximum length of a mark in bytes.
const MOST_OF_MARK: u64 = 64 << 10;

/// The state of a publication, which a mark records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// `current` is about to name the generation.
    Publishing,
    /// `current` has named the generation.
    Published,
}

/// Returns the directory of a job in a store, `parts-<job>`, where its spills and parts are kept and which other
/// writers leave alone. The first spill creates it.
///
/// # Errors
///
/// `InvalidInput` unless the job is named by letters, digits, `.`, `_` and `-`.
///
/// ```
/// let directory = sharddb::cluster::job_directory("store", "nightly-7")?;
/// assert!(directory.ends_with("store/parts-nightly-7"));
/// # Ok::<(), sharddb::Error>(())
/// ```
pub fn job_directory(store: impl AsRef<Path>, job: &str) -> Result<PathBuf> {
    Ok(PartsDir::of_job(store.as_ref(), job)?.path().to_path_buf())
}

/// The result of [`clean`].
///
/// ```no_run
/// let cleaned = sharddb::cluster::clean("store", None)?;
/// for file in &cleaned.foreign {
///     eprintln!("left in place: {}", file.display());
/// }
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cleaned {
    /// The jobs whose files were removed, ascending.
    pub jobs: Vec<String>,
    /// The jobs that have spills or parts, ascending. They stay unless their name is given, since a build may be at work.
    pub left: Vec<String>,
    /// The entries that no partitioned build makes. They stay, and so do their directories.
    pub foreign: Vec<PathBuf>,
}

/// Removes the files of a job: spills, parts, marks, and what killed processes left. Without a name, removes what is left of
/// all jobs that were published, but for those with spills or parts, which may belong to a build in progress.
///
/// A job that is removed cannot be published any more, nor published again. Its processes must have ended. Takes the
/// writer lock of the store.
///
/// # Errors
///
/// `NotFound` if there is no such job or store; `InvalidInput` for a name that no job has, or if the path is not a
/// store; `Locked` if the store has another writer; `Io`.
pub fn clean(store: impl AsRef<Path>, job: Option<&str>) -> Result<Cleaned> {
    let store = store.as_ref();
    let jobs = match job {
        Some(job) => vec![job.to_string()],
        None => PartsDir::jobs(store)?,
    };
    let mut directories = Vec::new();
    for name in jobs {
        let directory = PartsDir::of_job(store, &name)?;
        if !directory.exists()? {
            let message = "expected the directory of a job, found none";
            return Err(Error::new(ErrorKind::NotFound, message).at_path(directory.path()));
        }
        directories.push((name, directory));
    }
    let mut cleaned = Cleaned::default();
    if directories.is_empty() {
        return Ok(cleaned);
    }
    let _lock = Store::create(store)?.writer()?; // a job may have been given up before its store had a generation
    for (name, directory) in directories {
        if job.is_some() || directory.is_finished()? {
            cleaned.foreign.extend(directory.clean()?);
            cleaned.jobs.push(name);
        } else {
            cleaned.left.push(name);
        }
    }
    Ok(cleaned)
}

/// The directory of the files of a partitioned build.
#[derive(Clone, Debug)]
pub struct PartsDir {
    path: PathBuf,
}

impl PartsDir {
    /// Returns the directory of a job in a store.
    ///
    /// Errors: `InvalidInput` unless the job is named by letters, digits, `.`, `_` and `-`.
    pub fn of_job(store: &Path, job: &str) -> Result<PartsDir> {
        PartsDir::at(&store.join(PartsDir::name_of_job(job)?))
    }

    /// Returns the name of the directory of a job.
    ///
    /// Errors: `InvalidInput` unless the job is named by letters, digits, `.`, `_` and `-`.
    pub fn name_of_job(job: &str) -> Result<String> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if job.is_empty() || !job.bytes().all(is_valid) {
            let message = format!("expected the name of a job, of letters, digits, '.', '_' and '-', found {job:?}");
            return Err(Error::invalid_input(message));
        }
        Ok(format!("{PARTS_PREFIX}{job}"))
    }

    /// Returns the directory at a path, which need not exist.
    pub fn at(path: &Path) -> Result<PartsDir> {
        Ok(PartsDir { path: fs::absolute(path)? })
    }

    /// Returns the directory at a path. Creates it and its parents, durably, if it does not exist.
    pub fn create(path: &Path) -> Result<PartsDir> {
        let directory = PartsDir::at(path)?;
        fs::create_dir_all(&directory.path)?;
        Ok(directory)
    }

    /// Returns the names of the jobs of a store, ascending. Other names with the prefix are foreign.
    ///
    /// Errors: `NotFound` if the store does not exist; `Io`.
    pub fn jobs(store: &Path) -> Result<Vec<String>> {
        if !fs::exists(store)? {
            return Err(Error::new(ErrorKind::NotFound, "expected a store, found nothing").at_path(store));
        }
        let mut jobs = Vec::new();
        for name in fs::names(store)? {
            if let Some(job) = PartsDir::job_of_name(&name)
                && fs::is_real_dir(&store.join(&name))?
            {
                jobs.push(job.to_string());
            }
        }
        Ok(jobs)
    }

    /// Returns the absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the directory exists.
    pub fn exists(&self) -> Result<bool> {
        fs::is_real_dir(&self.path)
    }

    /// Returns the name of the spill of a task.
    pub fn spill_name(task: u64, digest: &str) -> String {
        format!("{TASK_PREFIX}{task}-{digest}")
    }

    /// Returns the name of the directory of a part.
    pub fn part_name(part: u64, digest: &str) -> String {
        format!("{PART_PREFIX}{part}-{digest}")
    }

    /// Returns the job of the name of a directory; `None` for another name.
    pub fn job_of_name(name: &str) -> Option<&str> {
        name.strip_prefix(PARTS_PREFIX).filter(|job| PartsDir::name_of_job(job).is_ok())
    }

    /// Returns whether a name is that of a spill.
    pub fn is_spill_name(name: &str) -> bool {
        is_numbered(name, TASK_PREFIX)
    }

    /// Returns whether a name is that of a shard, with the directory of its part.
    pub fn is_shard_of_part(name: &str) -> bool {
        name.split_once('/').is_some_and(|(part, shard)| is_numbered(part, PART_PREFIX) && is_shard_name(shard))
    }

    /// Begins a spill, under a temporary name that no other process has.
    pub fn begin_spill(&self) -> Result<NewSpill> {
        loop {
            let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            let path = self.path.join(format!("{TEMPORARY_TASK_PREFIX}{}-{nanos:x}", std::process::id()));
            match disk::create_new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {} // retry with a later time
                Err(error) => return Err(Error::io("create", &path, error)),
                Ok(file) => return Ok(NewSpill { entry: self.temporary(path), file: Arc::new(file) }),
            }
        }
    }

    /// Begins a part, under a temporary name that no other process has. Its spill files are written under `temp_root`
    /// if given, else into the part.
    pub fn begin_part(&self, temp_root: Option<&Path>) -> Result<NewPart> {
        let entry = self.temporary(fs::create_unique_dir(&self.path, TEMPORARY_PART_PREFIX)?);
        let spill_dir = scratch::create_spill(&entry.path, temp_root)?;
        Ok(NewPart { entry, spill_dir })
    }

    fn temporary(&self, path: PathBuf) -> TemporaryEntry {
        TemporaryEntry { directory: self.path.clone(), path, owner: OwningProcess::this_process() }
    }

    /// Reads the mark of a publication; `None` if there is none.
    pub fn mark(&self, mark: Mark, digest: &str) -> Result<Option<String>> {
        let path = self.mark_path(mark, digest);
        if !fs::exists(&path)? {
            return Ok(None);
        }
        let text = String::from_utf8(read_whole(&path, MOST_OF_MARK)?);
        text.map(Some).map_err(|_| Error::corrupt("expected the mark of a publication, found no text").at_path(&path))
    }

    /// Returns the path of a mark.
    pub fn mark_path(&self, mark: Mark, digest: &str) -> PathBuf {
        let prefix = match mark {
            Mark::Publishing => PUBLISHING_PREFIX,
            Mark::Published => PUBLISHED_PREFIX,
        };
        self.path.join(format!("{prefix}{digest}"))
    }

    /// Writes the mark of a publication, durably. The caller holds the lock of the store.
    pub fn write_mark(&self, mark: Mark, digest: &str, text: &str) -> Result<()> {
        let temporary = self.path.join(TEMPORARY_MARK);
        fs::remove_file(&temporary)?; // a killed publication may have left it
        fs::replace(&self.mark_path(mark, digest), &temporary, text.as_bytes())
            .inspect_err(|_| _ = fs::remove_file(&temporary))?;
        fs::fsync_dir(&self.path)
    }

    /// Removes the mark of a publication. Does nothing if there is none.
    pub fn remove_mark(&self, mark: Mark, digest: &str) -> Result<()> {
        fs::remove_file(&self.mark_path(mark, digest))
    }

    /// Removes a spill. Does nothing if there is none.
    pub fn remove_spill(&self, name: &str) -> Result<()> {
        fs::remove_file(&self.path.join(name))
    }

    /// Removes the shards of a part and, if nothing else is in it, its directory. Does nothing if there is none.
    pub fn remove_part(&self, name: &str, shards: impl Iterator<Item = String>) -> Result<()> {
        let path = self.path.join(name);
        if !fs::exists(&path)? {
            return Ok(());
        }
        for shard in shards {
            fs::remove_file(&path.join(shard))?;
        }
        fs::remove_dir(&path)
    }

    /// Returns whether a publication is marked as complete, and nothing else of a build is there: a publication removes its
    /// spills and parts, so others may be those of a build in progress, of the same name.
    pub fn is_finished(&self) -> Result<bool> {
        let mut is_published = false;
        for name in fs::names(&self.path)? {
            match Entry::of(&name, &self.path.join(&name))? {
                Some(Entry::Mark) if suffix_is_digest(&name, PUBLISHED_PREFIX) => is_published = true,
                Some(_) => return Ok(false),
                None => {}
            }
        }
        Ok(is_published)
    }

    /// Removes every entry that a partitioned build makes, and then the directory if it is empty. Returns the other
    /// entries, which stay.
    ///
    /// The caller holds the lock of the store, so that no publication is under way.
    pub fn clean(&self) -> Result<Vec<PathBuf>> {
        let mut foreign = Vec::new();
        let mut marks = Vec::new();
        for name in fs::names(&self.path)? {
            let path = self.path.join(&name);
            match Entry::of(&name, &path)? {
                // last, so that a crash does not leave parts of which no mark says that they are published
                Some(Entry::Mark) => marks.push(path),
                Some(Entry::Temporary) => scratch::remove(&path)?,
                Some(Entry::Complete) => fs::remove(&path)?,
                None => foreign.push(path),
            }
        }
        marks.iter().try_for_each(|path| fs::remove(path))?;
        if fs::find_entry(&self.path, |_, _| Ok(true))?.is_none() {
            fs::remove_dir(&self.path)?;
        }
        Ok(foreign)
    }
}

/// A spill or a part under its temporary name. Dropping it removes that, except in a forked child.
#[derive(Debug)]
struct TemporaryEntry {
    directory: PathBuf,
    path: PathBuf,
    owner: OwningProcess,
}

impl Drop for TemporaryEntry {
    fn drop(&mut self) {
        if self.owner.is_this_process() {
            _ = scratch::remove(&self.path);
        }
    }
}

/// A spill that is being written. Dropping it removes its temporary name, except in a forked child.
#[derive(Debug)]
pub struct NewSpill {
    entry: TemporaryEntry,
    file: Arc<File>,
}

impl NewSpill {
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub fn path(&self) -> &Path {
        &self.entry.path
    }

    /// Whether this process began the spill, rather than the parent that it was forked from.
    pub fn is_own(&self) -> bool {
        self.entry.owner.is_this_process()
    }

    /// Gives the spill, which is written and synced, its name, durably.
    ///
    /// Errors: `Corrupt` if the name exists and has other bytes; `Io`.
    pub fn install(self, name: &str) -> Result<()> {
        let TemporaryEntry { directory, path, .. } = &self.entry;
        let to = directory.join(name);
        match disk::hard_link(path, &to) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !fs::is_real_file(&to)? || !fs::have_equal_bytes(path, &to)? {
                    let message =
                        "expected this name to be free or that of an equal spill, found another file: remove it";
                    return Err(Error::corrupt(message).at_path(&to));
                }
            }
            // replaces at most an equal spill
            Err(error) if link::needs_copy(&error) => fs::rename(path, &to)?,
            Err(error) => return Err(Error::io(&format!("link to {}", to.display()), path, error)),
        }
        fs::fsync_dir(directory)
    }
}

/// A part that is being written: a directory of shards. Dropping it removes it, except in a forked child.
#[derive(Debug)]
pub struct NewPart {
    entry: TemporaryEntry,
    spill_dir: PathBuf,
}

impl NewPart {
    /// Returns the directory of the shards.
    pub fn path(&self) -> &Path {
        &self.entry.path
    }

    pub fn spill_dir(&self) -> &Path {
        &self.spill_dir
    }

    /// Gives the part its name, durably. Its shards, given by name, are written and synced.
    ///
    /// Errors: `Corrupt` if the name exists and a shard in it has other bytes; `Io`.
    pub fn install(self, name: &str, shards: &[String]) -> Result<()> {
        use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty};
        let TemporaryEntry { directory, path: from, .. } = &self.entry;
        scratch::remove_spill(from)?;
        fs::fsync_dir(from)?;
        let to = directory.join(name);
        match fs::rename(from, &to) {
            Err(error) if matches!(error.io_kind(), Some(AlreadyExists | DirectoryNotEmpty)) => {
                for shard in shards {
                    let path = to.join(shard);
                    if !fs::is_real_file(&path)? || !fs::have_equal_bytes(&from.join(shard), &path)? {
                        let message = "expected the shards of an equal part, found others: remove this directory";
                        return Err(Error::corrupt(message).at_path(&to));
                    }
                }
            }
            renamed => renamed?,
        }
        fs::fsync_dir(directory)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, create_dir_all, write};

    use super::*;
    use crate::common::TempDir;

    const DIGEST: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn cleans_its_own_names_and_no_others() {
        let store = TempDir::new();
        let directory = PartsDir::create(&store.path().join("parts-7")).unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["task-0-{}", "task-18446744073709551615-{}", "publishing-{}", "published-{}"] {
            write(path(&name.replace("{}", DIGEST)), "x").unwrap();
        }
        write(path("tmp-mark"), "x").unwrap();
        write(path("tmp-task-12-ab"), "x").unwrap();
        create_dir_all(path("tmp-part-12-ab/spill")).unwrap();
        write(path("tmp-part-12-ab/spill/00000001.run"), "x").unwrap();
        create_dir(path("part-3-0123456789abcdef0123456789abcdef")).unwrap();
        write(path("part-3-0123456789abcdef0123456789abcdef/3.shard"), "x").unwrap();

        let foreign = ["task-0", "task-00-{}", "task-1-{}0", "task-x-{}", "plan.json", "published-", "tmp-task-1"];
        foreign.iter().for_each(|name| write(path(&name.replace("{}", DIGEST)), "x").unwrap());
        create_dir(path("task-9-0123456789abcdef0123456789abcdef")).unwrap();
        create_dir(path("part-4-0123456789abcdef0123456789abcdef")).unwrap();
        write(path("part-4-0123456789abcdef0123456789abcdef/notes"), "x").unwrap();
        create_dir_all(path("tmp-part-13-ab/notes")).unwrap();

        let left = directory.clean().unwrap();
        assert_eq!(left.len(), foreign.len() + 3, "{left:?}");
        assert_eq!(fs::names(directory.path()).unwrap().len(), left.len());
        assert!(path("part-4-0123456789abcdef0123456789abcdef/notes").exists());

        left.iter().for_each(|path| fs::remove(path).unwrap());
        assert!(directory.clean().unwrap().is_empty());
        assert!(!directory.exists().unwrap());
    }

    #[test]
    fn a_job_is_finished_if_only_its_publication_is_left() {
        let store = TempDir::new();
        let directory = PartsDir::create(&store.path().join("parts-7")).unwrap();
        let path = |name: &str| directory.path().join(name);
        let is_finished = || directory.is_finished().unwrap();
        assert!(!is_finished());
        write(path("task-0-0123456789abcdef0123456789abcdef"), "").unwrap();
        write(path("publishing-0123456789abcdef0123456789abcdef"), "").unwrap();
        assert!(!is_finished());
        write(path("published-0123456789abcdef0123456789abcdef"), "").unwrap();
        assert!(!is_finished(), "the spill may be that of a next build");
        std::fs::remove_file(path("task-0-0123456789abcdef0123456789abcdef")).unwrap();
        std::fs::remove_file(path("publishing-0123456789abcdef0123456789abcdef")).unwrap();
        write(path("notes"), "").unwrap();
        assert!(is_finished());
        write(path("tmp-task-1-0"), "").unwrap();
        assert!(!is_finished());
    }

    /// A link of the name of a spill or a part is foreign: what it names stays.
    #[cfg(unix)]
    #[test]
    fn follows_no_link() {
        let (store, elsewhere) = (TempDir::new(), TempDir::new());
        write(elsewhere.path().join("3.shard"), "x").unwrap();
        let directory = PartsDir::create(&store.path().join("parts-7")).unwrap();
        let link = directory.path().join("part-3-0123456789abcdef0123456789abcdef");
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        assert_eq!(directory.clean().unwrap(), [link]);
        assert_eq!(elsewhere.names(), ["3.shard"]);
    }

    #[test]
    fn a_job_is_one_name() {
        let store = TempDir::new();
        for job in ["7", "nightly-2026.11", "a_b"] {
            assert!(PartsDir::of_job(store.path(), job).unwrap().path().starts_with(store.path()));
        }
        for job in ["", "/", "a/b", "../x", "a\\b", "\u{e4}", " ", "x\0"] {
            let error = PartsDir::of_job(store.path(), job).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{job:?}");
        }
    }

    #[test]
    fn an_existing_name_is_success_and_another_file_is_not() {
        let store = TempDir::new();
        let directory = PartsDir::create(store.path()).unwrap();
        let name = PartsDir::spill_name(7, DIGEST);
        for _ in 0..2 {
            let spill = directory.begin_spill().unwrap();
            disk::write_all_at(spill.file(), spill.path(), 0, b"bytes").unwrap();
            spill.install(&name).unwrap();
            assert_eq!(store.names(), std::slice::from_ref(&name));
        }
        let error = directory.begin_spill().unwrap().install(&name).unwrap_err();
        assert_eq!((error.kind(), store.names()), (ErrorKind::Corrupt, vec![name.clone()]));
        directory.remove_spill(&name).unwrap();

        let name = PartsDir::part_name(3, DIGEST);
        let shards = ["3.shard".to_string()];
        for _ in 0..2 {
            let part = directory.begin_part(None).unwrap();
            write(part.path().join("3.shard"), "x").unwrap();
            part.install(&name, &shards).unwrap();
            assert_eq!(store.names(), std::slice::from_ref(&name));
        }
        let part = directory.begin_part(None).unwrap();
        write(part.path().join("3.shard"), "y").unwrap();
        let error = part.install(&name, &shards).unwrap_err(); // of the same length
        assert_eq!((error.kind(), store.names()), (ErrorKind::Corrupt, vec![name]));
    }
}
