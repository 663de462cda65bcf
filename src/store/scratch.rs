//! Temporary directories of a writer: the generation in the making and its spills.
//!
//! Names that begin with `tmp-` in a store are the writer's. Who holds the lock of the store may remove all that a
//! dead writer left, spills on another file system included: the directory `tmp-gen-..` has a link `spill` to them.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::failpoint;
use crate::store::fs;

const PREFIX: &str = "tmp-";
const GENERATION_PREFIX: &str = "tmp-gen-";

/// In a temporary directory: the spills, or a link to them.
const SPILL: &str = "spill";

/// Of a directory of spills outside of the store; nothing with another name is ever removed there.
const OUTER_SPILL_PREFIX: &str = "sharddb-spill-";

/// A new temporary directory for a generation.
pub(super) fn create(store: &Path) -> Result<PathBuf> {
    fs::create_unique_dir(store, GENERATION_PREFIX)
}

/// A new directory for the spills of a temporary directory: within it, or under `temp_root`.
pub(super) fn create_spill(temporary: &Path, temp_root: Option<&Path>) -> Result<PathBuf> {
    let spill = temporary.join(SPILL);
    let Some(temp_root) = temp_root else {
        fs::create_dir(&spill)?;
        return Ok(spill);
    };
    let outer = fs::create_unique_dir(&fs::canonical(temp_root)?, OUTER_SPILL_PREFIX)?;
    // in this order, since the link must never name what is not ours; a crash in between leaves an empty directory
    match fs::write_link(&outer, &spill) {
        Ok(()) => Ok(outer),
        Err(error) => {
            _ = fs::remove(&outer);
            Err(error)
        }
    }
}

/// Removes the spills of a temporary directory; fine if there are none.
pub(super) fn remove_spill(temporary: &Path) -> Result<()> {
    let spill = temporary.join(SPILL);
    if let Some(outer) = outer_spill(&spill) {
        fs::remove(&outer)?;
    }
    fs::remove(&spill)
}

/// Removes a temporary directory and its spills, or what else has its name; fine if there is nothing.
pub(super) fn remove(temporary: &Path) -> Result<()> {
    if fs::is_real_dir(temporary) {
        remove_spill(temporary)?; // through a link (tmp-current is one) it would be somebody else's
    }
    fs::remove(temporary)
}

/// The name that a generation has while it is deleted.
pub(super) fn name_for_deletion(generation: &str) -> String {
    format!("tmp-gc-{generation}")
}

/// Removes what dead writers left. What cannot be removed takes space and does no other harm, so it stays until
/// the next writer tries; it must not keep anybody from, say, a rollback.
pub(super) fn clear(store: &Path) -> Result<()> {
    let mut names = fs::names(store)?;
    names.retain(|name| name.starts_with(PREFIX));
    // who renamed a generation away may have died before that was on the disk: with files gone it must not come back
    if !names.is_empty() && fs::fsync_dir(store).is_ok() {
        names.iter().for_each(|name| _ = remove(&store.join(name)));
    }
    failpoint::reach("begin: after clearing");
    Ok(())
}

/// The directory outside of the store that a link `spill` names.
fn outer_spill(spill: &Path) -> Option<PathBuf> {
    let outer = fs::read_link(spill).ok()??;
    let name = outer.file_name()?.to_str()?;
    (outer.is_absolute() && name.starts_with(OUTER_SPILL_PREFIX)).then_some(outer)
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};

    use super::*;
    use crate::store::testing::TempDir;

    #[test]
    fn clears_its_own_names_and_no_others() {
        let (store, temp_root) = (TempDir::new(), TempDir::new());
        let inner = create_spill(&create(store.path()).unwrap(), None).unwrap();
        let outer = create_spill(&create(store.path()).unwrap(), Some(temp_root.path())).unwrap();
        write(inner.join("run"), "x").unwrap();
        write(outer.join("run"), "x").unwrap();
        let generation = store.path().join("gen-0000000001");
        create_dir(&generation).unwrap();
        create_dir(generation.join("spill")).unwrap();
        fs::write_link(Path::new("gen-0000000001"), &store.path().join("tmp-current")).unwrap();
        create_dir(store.path().join("other")).unwrap();
        clear(store.path()).unwrap();
        assert_eq!(store.names(), ["gen-0000000001", "other"]);
        assert_eq!(temp_root.names(), [""; 0]);
        assert!(generation.join("spill").exists(), "a link is removed, not what it names");
    }

    /// A link that was tampered with leads to nothing but spills.
    #[test]
    fn follows_a_link_to_spills_only() {
        let (store, elsewhere) = (TempDir::new(), TempDir::new());
        let precious = elsewhere.path().join("precious");
        create_dir(&precious).unwrap();
        fs::write_link(&precious, &create(store.path()).unwrap().join(SPILL)).unwrap();
        clear(store.path()).unwrap();
        assert_eq!((store.names().len(), elsewhere.names()), (0, vec!["precious".to_string()]));
    }

    #[test]
    fn a_temp_root_must_be_there() {
        let store = TempDir::new();
        let temporary = create(store.path()).unwrap();
        let error = create_spill(&temporary, Some(&store.path().join("none"))).unwrap_err();
        assert_eq!(error.path(), Some(&*store.path().join("none")));
    }
}
