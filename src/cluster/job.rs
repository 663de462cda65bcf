//! The jobs of a store: their directories, and their removal.

use std::path::{Path, PathBuf};

use crate::cluster::parts_dir::PartsDir;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

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
        let directory = PartsDir::of_job(store, &name);
        match job {
            Some(_) => directories.push((name, directory?)),
            // other names with the prefix are foreign
            None => directories.extend(directory.ok().map(|directory| (name, directory))),
        }
    }
    for (_, directory) in &directories {
        if !directory.exists()? {
            let message = "expected the directory of a job, found none";
            return Err(Error::new(ErrorKind::NotFound, message).at_path(directory.path()));
        }
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
        }
    }
    Ok(cleaned)
}
