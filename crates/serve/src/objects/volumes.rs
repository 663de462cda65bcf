//! Chunks of a volume: `X0-X1_Y0-Y1_Z0-Z1`, the voxels that the chunk has.

use serde_json::Value;
use sharddb::volume::morton;

use super::decimal;

/// Returns the key of the chunk that a name describes; `None` if the scale has no chunk of exactly these voxels.
pub(super) fn key(scale: &Value, name: &str) -> Option<u64> {
    let size = numbers(scale.get("size")?)?;
    let chunk = numbers(scale.pointer("/chunk_sizes/0")?)?;
    let offset = scale.get("voxel_offset").map_or(Some([0; 3]), numbers)?;
    let mut parts = name.split('_');
    let (mut grid, mut position) = ([0; 3], [0; 3]);
    for axis in 0..3 {
        let (cells, cell) = cell(parts.next()?, *size.get(axis)?, *chunk.get(axis)?, *offset.get(axis)?)?;
        *grid.get_mut(axis)? = cells;
        *position.get_mut(axis)? = cell;
    }
    parts.next().is_none().then(|| morton::encode(&grid, &position)).flatten()
}

/// Returns the number of chunks along an axis, and the one that begins and ends where `text` says.
fn cell(text: &str, size: i64, chunk: i64, offset: i64) -> Option<(u64, u64)> {
    let (begin, end) = range(text)?;
    let (begin, end) = (begin.checked_sub(offset)?, end.checked_sub(offset)?);
    if chunk <= 0 || begin < 0 || begin >= size || begin % chunk != 0 || end != begin.checked_add(chunk)?.min(size) {
        return None;
    }
    Some((u64::try_from(size / chunk + i64::from(size % chunk != 0)).ok()?, u64::try_from(begin / chunk).ok()?))
}

/// Parses `BEGIN-END`; either may be negative.
fn range(text: &str) -> Option<(i64, i64)> {
    let after_sign = text.strip_prefix('-').unwrap_or(text);
    let dash = text.len() - after_sign.len() + after_sign.find('-')?;
    let (begin, end) = (text.get(..dash)?, text.get(dash + 1..)?);
    Some((integer(begin)?, integer(end)?))
}

fn integer(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => i64::try_from(decimal(digits)?).ok().map(|number| -number),
        None => i64::try_from(decimal(text)?).ok(),
    }
}

/// Three numbers of an `info`. Some writers write them as floating-point numbers.
fn numbers(value: &Value) -> Option<[i64; 3]> {
    let number = |value: &Value| value.as_i64().or_else(|| whole(value.as_f64()?));
    let numbers: Vec<i64> = value.as_array()?.iter().map(number).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// A floating-point number without a fraction, by its text.
fn whole(number: f64) -> Option<i64> {
    format!("{number}").parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The keys are those of cloud-volume for this grid; see the tests of `morton`.
    #[test]
    fn a_chunk_is_named_by_its_voxels() {
        let scale = json!({"size": [100, 100, 130], "chunk_sizes": [[32, 32, 32]], "voxel_offset": [10, 0, -7]});
        for (name, key) in [
            ("10-42_0-32_-7-25", Some(0)),
            ("10-42_0-32_25-57", Some(4)),
            ("74-106_96-100_121-123", Some(90)),
            ("106-110_96-100_121-123", Some(91)),
            ("106-138_96-100_121-123", None), // beyond the volume
            ("11-43_0-32_-7-25", None),
            ("10-41_0-32_-7-25", None),
            ("0-32_0-32_0-32", None),
            ("10-42_0-32", None),
            ("10-42_0-32_-7-25_0-1", None),
            ("10-42_0-32_-7-+25", None),
            ("10-042_0-32_-7-25", None),
            ("110-142_0-32_-7-25", None),
            ("--10-42_0-32_-7-25", None),
            ("", None),
        ] {
            assert_eq!(super::key(&scale, name), key, "{name}");
        }
    }

    #[test]
    fn an_info_that_is_not_valid_has_no_chunks() {
        for scale in [
            json!({}),
            json!({"size": [1, 1], "chunk_sizes": [[1, 1, 1]]}),
            json!({"size": [1, 1, 1], "chunk_sizes": [[0, 1, 1]]}),
            json!({"size": [1, 1, 1], "chunk_sizes": [[1, 1, 1]], "voxel_offset": [0, 0, i64::MIN]}),
        ] {
            assert_eq!(key(&scale, "0-1_0-1_0-1"), None, "{scale}");
        }
        assert_eq!(key(&json!({"size": [1.0, 1, 1], "chunk_sizes": [[1, 1, 1]]}), "0-1_0-1_0-1"), Some(0));
        let huge = json!({"size": [i64::MAX, 1, 1], "chunk_sizes": [[i64::MAX, 1, 1]]});
        assert_eq!(key(&huge, "0-9223372036854775807_0-1_0-1"), Some(0));
    }
}
