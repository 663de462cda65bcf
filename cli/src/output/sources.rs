//! The paths that a run reads. An output must not be inside them nor replace one of their files.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use crate::entry::{canonical_if_there, is_dir, metadata_if_there, own_metadata_if_there};
use crate::failure::{Failure, Result};
use crate::output::partial::follow_links;

/// The files and directories that a run reads.
///
/// They are compared by device and inode, so links and different spellings of a path make no difference.
pub(crate) struct Sources(Vec<PathBuf>);

impl Sources {
    pub(crate) fn of<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Sources {
        Sources(paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect())
    }

    /// Refuses an output that is a source, is inside one, or is a hard link to a file of one. `-` is standard output
    /// and never refused.
    ///
    /// Walks all files of the sources if the output exists and has several hard links; otherwise O(depth of the path).
    ///
    /// Errors: `Usage`; `Io` for a cycle of links, and if a path cannot be examined.
    pub(crate) fn refuse(&self, output: &Path) -> Result<()> {
        if output == Path::new("-") {
            return Ok(());
        }
        let target = follow_links(output).map_err(|error| Failure::io("find", output, error))?;
        let found = match self.holding(&target)? {
            None => self.file_linked_as(&target)?,
            holding => holding,
        };
        found.map_or(Ok(()), |source| {
            let (output, source) = (output.display(), source.display());
            Err(Failure::usage(format!(
                "expected an output outside of the input, found {output}, which is in {source}: choose another path"
            )))
        })
    }

    /// The source that is the target or one of its ancestors.
    fn holding(&self, target: &Path) -> Result<Option<PathBuf>> {
        let above = ancestors(target)?;
        for source in &self.0 {
            if let Some(found) = metadata_if_there(source)?
                && above.iter().any(|directory| is_same(directory, &found))
            {
                return Ok(Some(source.clone()));
            }
        }
        Ok(None)
    }

    /// The file of a source that is a hard link to the same file as the target.
    fn file_linked_as(&self, target: &Path) -> Result<Option<PathBuf>> {
        let Some(target) = metadata_if_there(target)?.filter(has_several_names) else { return Ok(None) };
        for source in &self.0 {
            if let Some(file) = file_below(source, &target)? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

/// What is at a path and at the directories above it. If nothing is there, its deepest ancestor that exists comes first.
fn ancestors(path: &Path) -> Result<Vec<Metadata>> {
    let absolute = std::path::absolute(path).map_err(|error| Failure::io("find", path, error))?;
    for there in absolute.ancestors() {
        if let Some(canonical) = canonical_if_there(there)? {
            let found = |path: &Path| path.metadata().map_err(|error| Failure::io("find", path, error));
            return canonical.ancestors().map(found).collect();
        }
    }
    Ok(Vec::new())
}

/// The file below a directory that is the same as `file`.
fn file_below(directory: &Path, file: &Metadata) -> Result<Option<PathBuf>> {
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        if !is_dir(&directory)? {
            continue;
        }
        let failed = |error| Failure::io("list", &directory, error);
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // the target of a link is not below the directory
            match own_metadata_if_there(&path)? {
                Some(metadata) if metadata.is_dir() => directories.push(path),
                Some(metadata) if is_same(&metadata, file) => return Ok(Some(path)),
                _ => {}
            }
        }
    }
    Ok(None)
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;

    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(unix)]
fn has_several_names(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;

    metadata.is_file() && metadata.nlink() > 1
}

/// There is no stable file id here: files are the same if all known metadata are equal.
#[cfg(not(unix))]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let known = |of: &Metadata| (of.file_type(), of.len(), of.created().ok(), of.modified().ok());
    known(one) == known(other)
}

#[cfg(not(unix))]
fn has_several_names(_metadata: &Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(sources: &Sources, output: &Path) -> bool {
        match sources.refuse(output) {
            Ok(()) => false,
            Err(Failure::Usage(_)) => true,
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_source_and_all_below_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("db/gen")).unwrap();
        fs::write(at("db/gen/0.shard"), b"x").unwrap();
        let sources = Sources::of([at("db")]);
        for inside in ["db", "db/gen/0.shard", "db/new", "db/new/deep/er", "db/../db/x"] {
            assert!(is_refused(&sources, &at(inside)), "{inside}");
        }
        for outside in ["x", "db2", "db2/x", "db/../x", "db.x"] {
            assert!(!is_refused(&sources, &at(outside)), "{outside}");
        }
        assert!(!is_refused(&Sources::of([Path::new("/")]), Path::new("-")), "standard output");
        assert!(!is_refused(&Sources::of([at("none")]), &at("x")), "a source that is not there");
    }

    #[cfg(unix)]
    #[test]
    fn links_make_no_difference() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("db/gen")).unwrap();
        fs::write(at("db/gen/0.shard"), b"x").unwrap();
        fs::write(at("other"), b"x").unwrap();
        fs::hard_link(at("other"), at("another")).unwrap();
        fs::hard_link(at("db/gen/0.shard"), at("hard")).unwrap();
        symlink("db/gen", at("directory")).unwrap();
        symlink("directory/0.shard", at("soft")).unwrap();
        symlink("db/gen/new", at("dangling")).unwrap();
        for sources in [Sources::of([at("db")]), Sources::of([at("directory")]), Sources::of([at("x"), at("db")])] {
            for inside in ["hard", "directory", "directory/x", "soft", "dangling"] {
                assert!(is_refused(&sources, &at(inside)), "{inside}");
            }
            assert!(!is_refused(&sources, &at("another")));
        }
        assert!(is_refused(&Sources::of([at("other")]), &at("another")), "a source that is a file");
    }
}
