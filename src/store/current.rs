//! `current`: the link in a store that names the published generation. Replaced by rename.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::fs;
use crate::store::{CURRENT, GenerationId, scratch};

/// Returns the generation that `current` names; `None` if nothing was published. The generation may not exist.
///
/// Errors: `Corrupt` if the target is anything but the name of one generation, `gen-` and ten digits; `Io`.
pub(crate) fn read(store: &Path) -> Result<Option<GenerationId>> {
    let path = store.join(CURRENT);
    let read = fs::read_link(&path).map_err(|error| match error.kind() {
        ErrorKind::Corrupt => error
            .context("current is no link, as in a copy that followed links: roll back to a generation by its number"),
        _ => error,
    });
    let Some(name) = read? else { return Ok(None) };
    let id = name.to_str().and_then(GenerationId::from_name).ok_or_else(|| {
        let message = format!(
            "expected current to be the name of one generation, gen- and ten digits, found {name:?}: \
             roll back to a generation by its number"
        );
        Error::corrupt(message).at_path(&path)
    })?;
    Ok(Some(id))
}

/// Makes `current` name `id`, durably.
///
/// `current` names the old or the new generation at any time, also after a crash.
///
/// Errors: `InvalidInput` if a foreign file has the temporary name; `Io`. If the sync fails, tries to restore the old
/// `current`, without another sync.
pub(super) fn swap(store: &Path, id: GenerationId) -> Result<()> {
    let before = read(store);
    replace(store, id)?;
    if let Err(error) = fs::fsync_dir(store) {
        _ = before.and_then(|before| restore(store, before)); // a damaged `current` is not restored
        return Err(error);
    }
    Ok(())
}

fn replace(store: &Path, id: GenerationId) -> Result<()> {
    let temporary = store.join(scratch::TEMPORARY_LINK);
    scratch::remove_own(&temporary)?; // a failed swap may have left it
    fs::write_link(Path::new(&id.to_string()), &temporary)?;
    fs::rename(&temporary, &store.join(CURRENT))
}

fn restore(store: &Path, before: Option<GenerationId>) -> Result<()> {
    match before {
        Some(before) => replace(store, before),
        None => fs::remove(&store.join(CURRENT)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};

    use super::*;
    use crate::common::TempDir;
    use crate::error::ErrorKind;

    fn id(number: u64) -> GenerationId {
        GenerationId::new(number).unwrap()
    }

    #[test]
    fn swaps_and_reads_back() {
        let store = TempDir::new();
        assert_eq!(read(store.path()).unwrap(), None);
        swap(store.path(), id(3)).unwrap();
        assert_eq!(read(store.path()).unwrap(), Some(id(3)));
        swap(store.path(), id(2)).unwrap();
        assert_eq!(read(store.path()).unwrap(), Some(id(2)));
        assert_eq!(store.names(), ["current"]);
        #[cfg(unix)]
        assert_eq!(std::fs::read_link(store.path().join("current")).unwrap(), Path::new("gen-0000000002"));
    }

    #[test]
    fn a_text_file_is_read_and_replaced() {
        let store = TempDir::new();
        for text in ["gen-0000000007", "gen-0000000007\n", "gen-0000000007\r\n"] {
            write(store.path().join("current"), text).unwrap();
            assert_eq!(read(store.path()).unwrap(), Some(id(7)), "{text:?}");
        }
        swap(store.path(), id(8)).unwrap();
        assert_eq!(read(store.path()).unwrap(), Some(id(8)));
    }

    #[test]
    fn what_a_failed_swap_left_does_not_matter() {
        for torn in ["", "gen-00", "gen-0000000007", "\0\0", "gen-0000000007\n"] {
            let store = TempDir::new();
            write(store.path().join("tmp-current"), torn).unwrap();
            swap(store.path(), id(1)).unwrap();
            assert_eq!(read(store.path()).unwrap(), Some(id(1)));
            assert_eq!(store.names(), ["current"]);
        }
    }

    #[test]
    fn a_foreign_file_with_the_temporary_name_stays() {
        let store = TempDir::new();
        write(store.path().join("tmp-current"), "notes").unwrap();
        let error = swap(store.path(), id(1)).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidInput, Some(&*store.path().join("tmp-current"))));
        assert_eq!(store.names(), ["tmp-current"]);
    }

    /// One case for each target that is not a generation of the store; the message has the target.
    #[test]
    fn names_one_generation_beside_it_or_is_corrupt() {
        let cases = [
            "../x",
            "gen-1",
            "/gen-0000000001",
            "gen-0000000001/",
            "./gen-0000000001",
            "../gen-0000000001",
            "gen-0000000001/../gen-0000000002",
            "gen-0000000001 ",
            "gen-00000000001",
            "tmp-gen-1",
            ".",
        ];
        for found in cases {
            let text = TempDir::new();
            write(text.path().join("current"), found).unwrap();
            #[cfg(unix)]
            let link = TempDir::new();
            #[cfg(unix)]
            std::os::unix::fs::symlink(found, link.path().join("current")).unwrap();
            #[cfg(unix)]
            refuses(link.path(), found);
            refuses(text.path(), found);
        }
        for text in ["", "\n", "gen-0000000001\n\n", "\u{feff}gen-0000000001"] {
            let store = TempDir::new();
            write(store.path().join("current"), text).unwrap();
            refuses(store.path(), "found");
        }
        let store = TempDir::new();
        write(store.path().join("current"), b"gen-000000000\xff").unwrap();
        refuses(store.path(), "found");
    }

    #[test]
    fn a_directory_is_corrupt() {
        let store = TempDir::new();
        create_dir(store.path().join("current")).unwrap();
        refuses(store.path(), "in a copy that followed links: roll back to a generation by its number (expected");
    }

    fn refuses(store: &Path, found: &str) {
        let error = read(store).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{found}");
        assert_eq!(error.path(), Some(&*store.join("current")));
        assert!(error.to_string().contains(found), "{error}");
    }
}
