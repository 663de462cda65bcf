//! Values of skeletons and meshes: the length that a value states must be its own.
//!
//! ```text
//! skeleton | vertices u32 | edges u32 | positions 12 each | edges 8 each | attributes of each vertex |
//! mesh     | vertices u32 | positions 12 each | triangles 12 each |    or a Draco file
//! ```
//!
//! A manifest and its fragments: see [`multilod`](sharddb::internal::multilod).

use sharddb::internal::multilod::Lengths;

/// The bytes of a value that [`Values::check`] needs. Of a longer manifest only the length of the value is known.
pub(crate) const HEAD: usize = 1 << 20;

/// The form of all values of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    Skeletons {
        /// Bytes of all attributes per vertex.
        attributes: u64,
        /// Whether each vertex may have more bytes than that. Readers do not look at bytes after the last attribute.
        or_more: bool,
    },
    Meshes,
    Manifests,
}

impl Values {
    /// Checks a value by its first bytes: all of them or [`HEAD`]. The message says what was expected and found.
    pub(crate) fn check(self, preamble_len: u64, value_len: u64, head: &[u8]) -> Result<(), String> {
        match self {
            Values::Skeletons { attributes, or_more } => check_skeleton(attributes, or_more, value_len, head),
            Values::Meshes => check_mesh(value_len, head),
            Values::Manifests if value_len > HEAD as u64 => Ok(()),
            Values::Manifests => check_manifest(preamble_len, head),
        }
    }
}

fn check_skeleton(attributes: u64, or_more: bool, value_len: u64, head: &[u8]) -> Result<(), String> {
    let (vertices, edges) = counts(head)?;
    let expected = skeleton_len(vertices, edges, attributes);
    let more = value_len.checked_sub(expected).filter(|more| *more == 0 || or_more);
    if more.is_some_and(|more| more == 0 || more.is_multiple_of(u64::from(vertices).max(1)) && vertices > 0) {
        return Ok(());
    }
    Err(format!(
        "expected a skeleton of {vertices} vertices with {attributes} bytes of attributes each and {edges} edges in \
         {expected} bytes, found {value_len}"
    ))
}

fn skeleton_len(vertices: u32, edges: u32, attributes: u64) -> u64 {
    let per_vertex = attributes.saturating_add(12);
    per_vertex.saturating_mul(vertices.into()).saturating_add(8 + 8 * u64::from(edges))
}

/// The bytes of attributes per vertex of a skeleton; `None` if it has no vertex.
///
/// Errors: a message if its length is not that of a skeleton.
pub(super) fn attribute_bytes(value_len: u64, head: &[u8]) -> Result<Option<u64>, String> {
    let (vertices, edges) = counts(head)?;
    if vertices == 0 {
        return Ok(None);
    }
    let rest = value_len.checked_sub(skeleton_len(vertices, edges, 0));
    match rest.filter(|rest| rest.is_multiple_of(vertices.into())) {
        Some(rest) => Ok(Some(rest / u64::from(vertices))),
        None => Err(format!(
            "expected a skeleton of {vertices} vertices and {edges} edges, found {value_len} bytes, which no attributes \
             explain"
        )),
    }
}

/// The little endian word at an offset.
fn word(head: &[u8], at: usize) -> Option<u32> {
    head.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// The numbers of vertices and edges.
fn counts(head: &[u8]) -> Result<(u32, u32), String> {
    match (word(head, 0), word(head, 4)) {
        (Some(vertices), Some(edges)) => Ok((vertices, edges)),
        _ => Err(format!("expected a skeleton of at least 8 bytes, found {}", head.len())),
    }
}

fn check_mesh(value_len: u64, head: &[u8]) -> Result<(), String> {
    if head.starts_with(b"DRACO") {
        return Ok(());
    }
    let vertices = word(head, 0).ok_or_else(|| format!("expected a mesh of at least 4 bytes, found {value_len}"))?;
    let triangles = value_len.checked_sub(4 + 12 * u64::from(vertices));
    match triangles {
        Some(bytes) if bytes.is_multiple_of(12) => Ok(()),
        _ => Err(format!(
            "expected a mesh of {vertices} vertices and whole triangles (12 bytes each), or a Draco file, found \
             {value_len} bytes"
        )),
    }
}

fn check_manifest(preamble_len: u64, manifest: &[u8]) -> Result<(), String> {
    let wrong = || format!("expected a manifest of a multi-resolution mesh, found {} other bytes", manifest.len());
    let stated = Lengths::of(manifest).ok_or_else(wrong)?;
    if stated.manifest != manifest.len() as u64 {
        return Err(format!("expected a manifest of {} bytes, found {}", stated.manifest, manifest.len()));
    }
    if stated.fragments != preamble_len {
        return Err(format!(
            "expected the {} bytes of fragments of the manifest as its preamble, found {preamble_len}",
            stated.fragments
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn check(values: Values, preamble_len: u64, value: &[u8]) -> Result<(), String> {
        values.check(preamble_len, value.len() as u64, value)
    }

    #[test]
    fn a_skeleton_has_the_length_that_it_states() {
        let skeleton = [words(&[2, 1]), vec![0; 2 * 12 + 8 + 2 * 5]].concat();
        assert_eq!(attribute_bytes(skeleton.len() as u64, &skeleton), Ok(Some(5)));
        let values = |attributes, or_more| Values::Skeletons { attributes, or_more };
        check(values(5, false), 0, &skeleton).unwrap();
        check(values(4, true), 0, &skeleton).unwrap();
        check(values(6, true), 0, &skeleton).unwrap_err();
        let message = check(values(4, false), 0, &skeleton).unwrap_err();
        assert!(message.contains("in 48 bytes, found 50"), "{message}");
        assert_eq!(attribute_bytes(8, &words(&[0, 0])), Ok(None));
        let odd = [words(&[2, 1]), vec![0; 2 * 12 + 8 + 9]].concat();
        let no_vertices = [words(&[0, 0]), vec![0; 5]].concat();
        check(values(0, true), 0, &no_vertices).unwrap_err();
        for bad in [&odd[..], &odd[..39], &odd[..7], &words(&[u32::MAX, u32::MAX])] {
            attribute_bytes(bad.len() as u64, bad).unwrap_err();
            check(values(u64::MAX, true), 0, bad).unwrap_err();
            check(values(0, true), 0, bad).unwrap_err();
        }
    }

    #[test]
    fn a_mesh_is_vertices_and_whole_triangles() {
        let mesh = [words(&[3]), vec![0; 3 * 12 + 12]].concat();
        check(Values::Meshes, 0, &mesh).unwrap();
        check(Values::Meshes, 0, b"DRACO\x02\x02").unwrap();
        for bad in [&mesh[..mesh.len() - 1], &mesh[..30], b"abc", b""] {
            check(Values::Meshes, 0, bad).unwrap_err();
        }
    }

    #[test]
    fn a_manifest_names_the_fragments_before_it() {
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
        check(Values::Manifests, 60, &manifest).unwrap();
        assert!(check(Values::Manifests, 59, &manifest).unwrap_err().contains("the 60 bytes of fragments"));
        let longer = [&manifest[..], b"x"].concat();
        assert!(check(Values::Manifests, 60, &longer).unwrap_err().contains("of 116 bytes, found 117"));
        for len in 0..manifest.len() {
            check(Values::Manifests, 60, &manifest[..len]).unwrap_err();
        }
        check(Values::Manifests, 0, &words(&[u32::MAX; 9])).unwrap_err();
    }
}
