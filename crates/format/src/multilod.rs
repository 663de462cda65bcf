//! Manifests of multi-resolution meshes, whose fragments are stored directly before them.
//!
//! ```text
//! manifest | chunk shape 12 | grid origin 12 | lods u32 | scales 4 each | offsets 12 each | fragments u32 each |
//!          then for each lod | positions 12 each | lengths 4 each |
//! ```
//!
//! Source: "Multi-resolution mesh format" of Neuroglancer.

use crate::error::{Error, Result};
use crate::json;

/// The member "@type" of the `info` of such meshes.
pub const TYPE: &str = "neuroglancer_multilod_draco";

const START: usize = 28;

/// The lengths that a manifest states, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// That of the manifest.
    pub manifest: u64,
    /// That of all fragments.
    pub fragments: u64,
}

impl Lengths {
    /// Reads a manifest; `None` if it ends too early.
    pub fn of(manifest: &[u8]) -> Option<Lengths> {
        let lods = u64::from(Words(manifest.get(START - 4..)?).next()?);
        let counts_at = lods.checked_mul(16)?.checked_add(START as u64)?;
        let mut counts = Words(manifest.get(usize::try_from(counts_at).ok()?..)?);
        let mut at = counts_at + 4 * lods;
        let mut total = 0;
        for _ in 0..lods {
            let fragments = u64::from(counts.next()?);
            let lengths_at = at.checked_add(12 * fragments)?;
            at = lengths_at.checked_add(4 * fragments)?;
            let lengths = manifest.get(usize::try_from(lengths_at).ok()?..usize::try_from(at).ok()?)?;
            total += Words(lengths).map(u64::from).sum::<u64>();
        }
        Some(Lengths { manifest: at, fragments: total })
    }
}

/// Returns whether an `info` says that the values are such manifests.
pub fn is_stated_by(info: &str) -> bool {
    let stated = || {
        let members = json::members(json::parse(info.as_bytes()).ok()?)?;
        json::string(json::member(&members, "@type").ok()??)
    };
    stated().is_some_and(|stated| stated == TYPE)
}

/// Checks that a manifest has its fragments in the `before` bytes before it. A value that is no manifest passes.
///
/// Errors: `InvalidInput`.
pub fn check_fragments(manifest: &[u8], before: u64) -> Result<()> {
    match Lengths::of(manifest) {
        Some(Lengths { fragments, .. }) if before < fragments => Err(Error::invalid_input(format!(
            "expected {fragments} bytes before this manifest of a multi-resolution mesh, its fragments, which are its preamble, \
             found {before}"
        ))),
        _ => Ok(()),
    }
}

/// Little endian words of 4 bytes.
struct Words<'a>(&'a [u8]);

impl Iterator for Words<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_manifest_states_its_length_and_that_of_its_fragments() {
        // two lods, of 1 and 2 fragments: 10, then 20 and 30 bytes
        let manifest = [
            words(&[0; 6]),
            words(&[2]),
            words(&[0; 8]), // scales and vertex offsets
            words(&[1, 2]),
            words(&[0, 0, 0, 10]),
            words(&[0, 0, 0, 0, 0, 0, 20, 30]),
        ]
        .concat();
        assert_eq!(Lengths::of(&manifest), Some(Lengths { manifest: 116, fragments: 60 }));
        assert_eq!(Lengths::of(&[&manifest[..], b"more"].concat()), Lengths::of(&manifest));
        assert!((0..manifest.len()).all(|len| Lengths::of(&manifest[..len]).is_none()));
        assert_eq!(Lengths::of(&words(&[u32::MAX; 9])), None);
        check_fragments(&manifest, 60).unwrap();
        let error = check_fragments(&manifest, 59).unwrap_err();
        assert!(error.to_string().contains("60 bytes before this manifest") && error.to_string().ends_with("found 59"));
        check_fragments(b"no manifest", 0).unwrap();
    }

    #[test]
    fn the_type_is_the_member_of_the_top_level() {
        assert!(is_stated_by(r#"{"sharding": {}, "@type": "neuroglancer_multilod_draco"}"#));
        for other in ["", "[]", "{}", r#"{"@type": "neuroglancer_legacy_mesh"}"#, r#"{"@type": 1}"#] {
            assert!(!is_stated_by(other), "{other}");
        }
        assert!(!is_stated_by(r#"{"mesh": {"@type": "neuroglancer_multilod_draco"}}"#));
    }
}
