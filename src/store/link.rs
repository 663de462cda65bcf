//! Hard links to shard files of another generation, which never change.

use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::checksum::Checksum;
use crate::format::locks::lock;
use crate::fs;
use crate::fs::disk;
use crate::fs::entry::own_metadata_if_there;
use crate::store::{GenerationId, PARTS_PREFIX, PendingGeneration, intact};
use crate::threads::progress::Progress;

/// How a generation got a file of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    Linked,
    Copied,
}

impl PendingGeneration {
    /// Adds a shard file of another generation: as a hard link, or as a synced copy where the file cannot be linked
    /// (another file system, one without links, a file of another user, too many links).
    ///
    /// A file that can be written to is linked only if it is in a generation or a job of this store, and is made read-only.
    /// Elsewhere, the file is an input, whose mode must not change, and whose owner may write to it.
    ///
    /// Only the length of a linked file is checked. The checksum of a copy is compared. Completing the generation syncs
    /// the links, since nobody may have synced the file: a copied or restored base, or one built without syncs.
    ///
    /// Errors: `Corrupt` if the file is not what its manifest states; `Cancelled`; `Io`.
    pub(crate) fn share(&self, from: &Path, stated: Checksum, progress: &Progress) -> Result<Shared> {
        let name = from.file_name().ok_or_else(|| Error::internal("a shard file has no name").at_path(from))?;
        let to = self.shards_path().join(name);
        intact::check_len(from, stated.bytes)?;
        match self.link(from, &to)? {
            Ok(()) => {
                lock(&self.linked).push(to);
                Ok(Shared::Linked)
            }
            Err(error) if needs_copy(&error) => fs::copy_new(from, &to, stated, progress).map(|()| Shared::Copied),
            Err(error) => Err(Error::io("link", from, error)),
        }
    }

    /// Links a file that is read-only, or one of this store that is made read-only.
    ///
    /// Errors: `Io` if that cannot be determined; inside, that of the link or the change of the mode.
    fn link(&self, from: &Path, to: &Path) -> Result<io::Result<()>> {
        let Some(entry) = own_metadata_if_there(from)?.filter(|entry| entry.is_file()) else {
            return Ok(Err(io::ErrorKind::Unsupported.into())); // a link to a symbolic link would name that itself
        };
        if entry.permissions().readonly() {
            return Ok(disk::hard_link(from, to));
        }
        let (store, from_there) = (fs::canonical(self.path().parent().unwrap_or(self.path()))?, fs::canonical(from)?);
        let entry = from_there.strip_prefix(store).ok().and_then(|below| below.iter().next()?.to_str());
        if !entry.is_some_and(|name| GenerationId::from_name(name).is_some() || name.starts_with(PARTS_PREFIX)) {
            return Ok(Err(io::ErrorKind::PermissionDenied.into()));
        }
        let linked = disk::hard_link(from, to);
        let sealed = linked.and_then(|()| disk::set_read_only(to).inspect_err(|_| _ = disk::remove_file(to)));
        Ok(sealed)
    }
}

/// Whether a file that could not be linked may be copied: EXDEV, EPERM, EMLINK, ENOTSUP and ENOSYS.
pub(crate) fn needs_copy(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}
