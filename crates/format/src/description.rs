//! What `info` and the manifest of a directory say together: the specification, the layout, and the place of the shards.

use std::path::Path;

use crate::error::{Error, Result};
use crate::info::Info;
use crate::json;
use crate::manifest::Manifest;

/// The text of an `info`, and the paths of both files for errors.
#[derive(Debug)]
pub struct Texts<'a> {
    pub info: &'a [u8],
    pub info_path: &'a Path,
    pub manifest_path: &'a Path,
}

impl Texts<'_> {
    /// Returns the description of the shards at `pointer`, or at the manifest's pointer, and the manifest if it is about
    /// them.
    ///
    /// `may_lack_manifest` decides whether a directory whose manifest cannot be read is opened without one.
    ///
    /// Errors: those of [`Info::parse`] and of the manifest; `InvalidInput` if the pointer differs from that of a nested
    /// manifest; `Corrupt` if the two disagree.
    pub fn describe(
        &self,
        manifest: Result<Manifest>,
        pointer: Option<&str>,
        may_lack_manifest: impl FnOnce(&Info) -> bool,
    ) -> Result<(Info, Option<Manifest>)> {
        let at_info = |error: Error| error.at_path(self.info_path);
        if let Ok(manifest) = &manifest
            && manifest.nested.is_some()
        {
            check_pointer(manifest, pointer).map_err(at_info)?;
        }
        let stated = manifest.as_ref().ok().map(Manifest::pointer).filter(|stated| !stated.is_empty());
        let info = Info::parse(self.info, stated.or(pointer)).map_err(at_info)?;
        if info.layout.is_none() && Manifest::parse(self.info).is_ok() {
            let message = "expected the info of a data set, found the manifest of a generation";
            return Err(at_info(Error::corrupt(message)));
        }
        let manifest = match manifest {
            // the shards of another object of `info` than the one that the manifest is about
            Ok(manifest) if pointer.is_some_and(|pointer| pointer != manifest.pointer()) => return Ok((info, None)),
            Ok(manifest) => manifest,
            // no manifest, or a foreign file of that name: this is not a generation of a store
            Err(_) if may_lack_manifest(&info) => return Ok((info, None)),
            Err(error) => return Err(error.at_path(self.manifest_path)),
        };
        manifest
            .check_info(self.info)
            .and_then(|()| manifest.check_directory(&info))
            .and_then(|()| manifest.check_sharding(&info.spec))
            .map_err(at_info)?;
        Ok((info, Some(manifest)))
    }
}

/// Checks the pointer of the options against that of a manifest. Errors: `InvalidInput` if they differ.
fn check_pointer(manifest: &Manifest, pointer: Option<&str>) -> Result<()> {
    let stated = manifest.pointer();
    match pointer.filter(|pointer| *pointer != stated) {
        None => Ok(()),
        Some(pointer) => Err(Error::invalid_input(format!(
            "expected the JSON pointer of the shards of this generation, {}, found {:?}: leave it out",
            json::excerpt(stated),
            json::excerpt(pointer)
        ))),
    }
}
