//! Annotations: by their id, by that of a related object, and by the cell of a spatial index, `X_Y_Z`.

use serde_json::Value;
use sharddb::volume::morton;

use super::decimal;

/// Returns the key of an index of annotations; `None` if the name is that of no cell or id.
pub(super) fn key(index: &Value, name: &str) -> Option<u64> {
    let Some(grid) = index.get("grid_shape") else { return decimal(name) };
    let grid: Vec<u64> = grid.as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
    let position: Vec<u64> = name.split('_').map(decimal).collect::<Option<_>>()?;
    morton::encode(&grid, &position)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cell_is_named_by_its_position_and_others_by_their_id() {
        let spatial = json!({"key": "sp1", "grid_shape": [4, 4, 5]});
        assert_eq!(key(&spatial, "2_3_4"), Some(90));
        for name in ["4_0_0", "1_1", "1_1_1_1", "1", "", "a_b_c", "-1_0_0"] {
            assert_eq!(key(&spatial, name), None, "{name}");
        }
        let by_id = json!({"key": "by_id"});
        assert_eq!(key(&by_id, "18446744073709551615"), Some(u64::MAX));
        assert_eq!(key(&by_id, "2_3_4"), None);
    }
}
