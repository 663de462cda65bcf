//! Multi-resolution meshes: `ID.index` is the manifest, `ID` the fragments, which are directly before it in the shard.

use axum::http::HeaderMap;
use bytes::Bytes;
use sharddb::Snapshot;
use sharddb::shard::ValueLocation;

use super::{absent, decimal, value};
use crate::answer::{Answer, BYTES, Representation, Source, read_exact_at};
use crate::app::App;
use crate::budget::SMALL_BYTES;
use crate::database::{Pinned, Read};
use crate::problem::{Problem, Result};

/// Answers with the manifest or the fragments of a mesh. The fragments are read from the file as the client takes them.
pub(super) fn answer(app: &App, pinned: &Pinned, name: &str, headers: &HeaderMap) -> Result<Answer> {
    if let Some(id) = name.strip_suffix(".index") {
        return value(app, pinned, decimal(id), headers);
    }
    let snapshot = &pinned.snapshot;
    let key = decimal(name).ok_or_else(Problem::nothing_here)?;
    let location = snapshot.locate(key)?.ok_or_else(|| absent(key))?;
    let Read { bytes: manifest, tag, share, .. } = pinned.read(key, &app.budget)?.ok_or_else(|| absent(key))?;
    let damaged = || Problem::internal(format!("the manifest of mesh {key} does not state the size of its fragments"));
    let size = fragments_size(&manifest).ok_or_else(damaged)?;
    drop((manifest, share));
    let source = if snapshot.layout().is_some_and(|layout| layout.checks) {
        let share = app.budget.reserve(size)?;
        let bytes = verified(snapshot, key, size)?; // which needs all of them
        if size > SMALL_BYTES && pinned.is_in_store() {
            in_file(snapshot, &location, key, size)?
        } else {
            Source::Memory(bytes, share)
        }
    } else {
        in_file(snapshot, &location, key, size)?
    };
    if pinned.value_tag(key, &location)? != tag {
        return Err(Problem::replaced()); // by a file with which the location has nothing to do
    }
    let tag = tag.part("fragments");
    Ok(Answer::of(Representation { tag, content_type: BYTES, source }, headers))
}

fn verified(snapshot: &Snapshot, key: u64, size: u64) -> Result<Bytes> {
    let preamble = snapshot.get_preamble(key, size)?.ok_or_else(|| absent(key))?;
    Ok(Bytes::from_owner(preamble.into_owned()))
}

/// The range of the file before the manifest.
fn in_file(snapshot: &Snapshot, location: &ValueLocation, key: u64, size: u64) -> Result<Source> {
    let begin = location.range.start.checked_sub(size).filter(|begin| *begin >= snapshot.spec().shard_index_len());
    let begin =
        begin.ok_or_else(|| Problem::internal(format!("the fragments of mesh {key} begin before its shard")))?;
    let open = || -> std::io::Result<_> {
        let file = std::fs::File::open(&location.path)?;
        if size > 0 {
            read_exact_at(&file, &mut [0], location.range.start - 1)?; // a file that is too short is an error, not half an answer
        }
        Ok(file)
    };
    let file = open().map_err(|error| Problem::io("read", &location.path, &error))?;
    Ok(Source::File(file, begin..location.range.start))
}

/// Returns the sum of the sizes that a manifest states; `None` if it is too short for what it states.
///
/// ```text
/// chunk_shape 3 x f32 | grid_origin 3 x f32 | num_lods u32 | lod_scales f32 each | vertex_offsets 3 x f32 each
/// num_fragments_per_lod u32 each | for each lod of n fragments: positions 3 x n x u32, sizes n x u32
/// ```
fn fragments_size(manifest: &[u8]) -> Option<u64> {
    let number = |at: usize| {
        let bytes = manifest.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let lods = usize::try_from(number(24)?).ok()?;
    let counts = 28_usize.checked_add(lods.checked_mul(16)?)?;
    let mut at = counts.checked_add(lods.checked_mul(4)?)?;
    if at > manifest.len() {
        return None;
    }
    let mut size: u64 = 0;
    for lod in 0..lods {
        let fragments = usize::try_from(number(counts + 4 * lod)?).ok()?;
        let sizes = at.checked_add(fragments.checked_mul(12)?)?;
        at = sizes.checked_add(fragments.checked_mul(4)?)?;
        for bytes in manifest.get(sizes..at)?.chunks_exact(4) {
            size = size.checked_add(u64::from(u32::from_le_bytes(bytes.try_into().ok()?)))?;
        }
    }
    Some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(lods: &[&[u32]]) -> Vec<u8> {
        let mut words = vec![0u32; 6];
        words.push(u32::try_from(lods.len()).unwrap());
        words.extend(vec![0; 4 * lods.len()]);
        words.extend(lods.iter().map(|sizes| u32::try_from(sizes.len()).unwrap()));
        for sizes in lods {
            words.extend(vec![9; 3 * sizes.len()]);
            words.extend(*sizes);
        }
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn sizes_of_all_levels_are_added() {
        assert_eq!(fragments_size(&manifest(&[&[1, 2], &[], &[40]])), Some(43));
        assert_eq!(fragments_size(&manifest(&[])), Some(0));
        assert_eq!(fragments_size(&manifest(&[&[u32::MAX; 4]])), Some(4 * u64::from(u32::MAX)));
    }

    #[test]
    fn a_manifest_that_is_too_short_has_no_size() {
        let whole = manifest(&[&[1, 2], &[3]]);
        for len in 0..whole.len() {
            assert_eq!(fragments_size(&whole[..len]), None, "{len}");
        }
        let mut many = manifest(&[&[1]]);
        many[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(fragments_size(&many), None);
        let mut fragments = manifest(&[&[1]]);
        fragments[44..48].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(fragments_size(&fragments), None);
    }
}
