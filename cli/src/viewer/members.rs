//! The members of an `info` that a viewer needs besides "sharding".

use serde_json::{Map, Value, json};

use super::Kind;
use super::values::{Values, attribute_bytes};

/// The bytes per vertex of skeletons of the usual programs: no attributes; radius (float32); radius and vertex_types
/// (uint8).
const USUAL_ATTRIBUTES: [u64; 3] = [0, RADIUS, RADIUS + 1];

const RADIUS: u64 = 4;

/// The data types of vertex attributes, with their bytes.
const DATA_TYPES: [(&str, u64); 7] =
    [("float32", 4), ("int8", 1), ("uint8", 1), ("int16", 2), ("uint16", 2), ("int32", 4), ("uint32", 4)];

const IDENTITY: [u8; 12] = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0];

const ADD_TRANSFORM: &str = "if positions are in nanometres, add \"transform\": [1,0,0,0, 0,1,0,0, 0,0,1,0]";

/// What an info says about the values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Described {
    /// The members that were written, in words.
    pub(crate) words: String,
    /// The text of the info.
    pub(crate) info: String,
    pub(crate) values: Values,
}

/// Writes an info. `first` is the length and the first bytes of a skeleton with a vertex, if there is one.
///
/// Errors: a message if the attributes of skeletons are not known ones.
pub(crate) fn write(kind: Kind, first: Option<(u64, &[u8])>) -> Result<Described, String> {
    match kind {
        Kind::Skeletons => write_skeletons(first),
        Kind::Mesh => Ok(Described {
            words: "neuroglancer_legacy_mesh: Neuroglancer and CloudVolume read such meshes only as one file per object, and \
                    multi-resolution meshes in shards".to_string(),
            info: json!({"@type": kind.type_name()}).to_string(),
            values: Values::Meshes,
        }),
        Kind::MultiresMesh => Ok(Described {
            words:
                "neuroglancer_multilod_draco, identity transform, lod_scale_multiplier 1, vertex_quantization_bits 16: give \
                    --info if the meshes have others"
                    .to_string(),
            info: json!({
                "@type": kind.type_name(), "lod_scale_multiplier": 1, "transform": IDENTITY,
                "vertex_quantization_bits": 16,
            })
            .to_string(),
            values: Values::Manifests,
        }),
    }
}

fn write_skeletons(first: Option<(u64, &[u8])>) -> Result<Described, String> {
    let bytes = first.map(|(len, head)| attribute_bytes(len, head)).transpose()?.flatten().unwrap_or(0);
    if !USUAL_ATTRIBUTES.contains(&bytes) {
        return Err(format!(
            "expected skeletons with radius (4 bytes per vertex), radius and vertex_types (5) or no attributes, found \
             {bytes} bytes per vertex: give an --info with \"vertex_attributes\""
        ));
    }
    let radius = json!({"id": "radius", "data_type": "float32", "num_components": 1});
    let attributes = if bytes == 0 { json!([]) } else { json!([radius]) };
    let words = match bytes {
        0 => "no vertex attributes",
        RADIUS => "vertex attribute radius (float32)",
        _ => {
            "vertex attribute radius (float32); vertex_types (uint8) is left out, since Neuroglancer draws float32 only"
        }
    };
    let info = json!({"@type": Kind::Skeletons.type_name(), "transform": IDENTITY, "vertex_attributes": attributes});
    Ok(Described {
        words: format!("neuroglancer_skeletons, identity transform, {words}"),
        info: info.to_string(),
        values: Values::Skeletons { attributes: bytes, or_more: false },
    })
}

/// The first vertex attribute of an info that Neuroglancer does not draw, in words.
pub(crate) fn not_drawn(kind: Kind, info: &str) -> Option<String> {
    let info: Value = serde_json::from_str(info).ok().filter(|_| kind == Kind::Skeletons)?;
    let attributes = info.get("vertex_attributes")?.as_array()?;
    let other = attributes.iter().find(|it| it.get("data_type").is_some_and(|it| it != "float32"))?;
    Some(format!(
        "Neuroglancer draws vertex attributes of float32 only, and refuses skeletons with {} of {}; CloudVolume reads \
         it. If it is the last attribute, it may be left out",
        other.get("id")?,
        other.get("data_type")?
    ))
}

/// Checks the members of an info that the user gives.
///
/// Errors: a message that says what was expected and found, and what to add.
pub(crate) fn check(kind: Kind, info: &str) -> Result<Values, String> {
    let info: Value = serde_json::from_str(info).map_err(|error| format!("expected JSON: {error}"))?;
    let info = info.as_object().ok_or("expected a JSON object")?;
    let name = kind.type_name();
    expect(info, "@type", &format!("\"{name}\""), &format!("add \"@type\": \"{name}\""), |it| it == name)?;
    match kind {
        Kind::Skeletons => {
            check_transform(info)?;
            Ok(Values::Skeletons { attributes: check_attributes(info)?, or_more: true })
        }
        Kind::Mesh => Ok(Values::Meshes),
        Kind::MultiresMesh => {
            check_transform(info)?;
            let why = "it scales the distances at which levels of detail change; add \"lod_scale_multiplier\": 1";
            expect(info, "lod_scale_multiplier", "a number above 0", why, |it| it.as_f64().is_some_and(|it| it > 0.0))?;
            let why = "it must be the number of bits with which the meshes were encoded";
            expect(info, "vertex_quantization_bits", "10 or 16", why, |it| matches!(it.as_u64(), Some(10 | 16)))?;
            Ok(Values::Manifests)
        }
    }
}

fn check_transform(info: &Map<String, Value>) -> Result<(), String> {
    let is_matrix =
        |it: &Value| it.as_array().is_some_and(|it| it.len() == 12 && it.iter().all(|it| it.as_f64().is_some()));
    expect(info, "transform", "12 numbers, a matrix of 3 rows and 4 columns", ADD_TRANSFORM, is_matrix)
}

/// The bytes of all attributes per vertex.
fn check_attributes(info: &Map<String, Value>) -> Result<u64, String> {
    let why = "each is an object with \"id\", \"data_type\" and \"num_components\"; without attributes, add \
               \"vertex_attributes\": []";
    expect(info, "vertex_attributes", "an array", why, Value::is_array)?;
    let mut bytes = 0_u64;
    let (none, mut ids) = (Map::new(), Vec::new());
    for attribute in info.get("vertex_attributes").and_then(Value::as_array).into_iter().flatten() {
        let attribute = attribute.as_object().unwrap_or(&none);
        let types = DATA_TYPES.map(|(name, _)| name).join(", ");
        let of = "a vertex attribute has it";
        expect(attribute, "id", "a name", of, |it| it.as_str().is_some_and(|it| !it.is_empty()))?;
        expect(attribute, "data_type", &format!("one of {types}"), of, |it| size_of(it).is_some())?;
        expect(attribute, "num_components", "a number from 1", of, |it| it.as_u64().is_some_and(|it| it > 0))?;
        let id = attribute.get("id").and_then(Value::as_str).unwrap_or_default();
        if ids.contains(&id) {
            return Err(format!("expected vertex attributes with different ids, found \"{id}\" more than once"));
        }
        ids.push(id);
        let components = attribute.get("num_components").and_then(Value::as_u64).unwrap_or(0);
        let size = attribute.get("data_type").and_then(size_of).unwrap_or(0);
        bytes = bytes.saturating_add(size.saturating_mul(components));
    }
    Ok(bytes)
}

fn size_of(data_type: &Value) -> Option<u64> {
    DATA_TYPES.iter().find(|(name, _)| data_type == name).map(|(_, size)| *size)
}

/// Checks that a member is there and as expected; `why` ends the message.
fn expect(
    object: &Map<String, Value>,
    name: &str,
    expected: &str,
    why: &str,
    is_right: impl FnOnce(&Value) -> bool,
) -> Result<(), String> {
    match object.get(name) {
        Some(value) if is_right(value) => Ok(()),
        Some(value) => Err(format!("expected \"{name}\" to be {expected}, found {}: {why}", excerpt(value))),
        None => Err(format!("expected \"{name}\" with {expected}, found none: {why}")),
    }
}

fn excerpt(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 3] = [Kind::Skeletons, Kind::Mesh, Kind::MultiresMesh];

    #[test]
    fn what_is_written_passes_the_check() {
        for kind in KINDS {
            check(kind, &write(kind, None).unwrap().info).unwrap();
        }
    }

    #[test]
    fn attributes_of_skeletons_are_found_by_their_bytes() {
        for (bytes, described, named) in [
            (0, 0, "no vertex attributes"),
            (4, 4, "attribute radius (float32)"),
            (5, 4, "vertex_types (uint8) is left out"),
        ] {
            let skeleton = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &vec![0; 12 + bytes]].concat();
            let written = write(Kind::Skeletons, Some((skeleton.len() as u64, &skeleton))).unwrap();
            assert!(written.words.contains(named), "{}", written.words);
            assert_eq!(written.values, Values::Skeletons { attributes: bytes as u64, or_more: false });
            let checked = check(Kind::Skeletons, &written.info);
            assert_eq!(checked, Ok(Values::Skeletons { attributes: described, or_more: true }));
            assert_eq!(not_drawn(Kind::Skeletons, &written.info), None);
        }
        let skeleton = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[0; 15]].concat();
        let message = write(Kind::Skeletons, Some((skeleton.len() as u64, &skeleton))).unwrap_err();
        assert!(message.contains("3 bytes per vertex") && message.contains("--info"), "{message}");
    }

    /// Each member is removed, then given a wrong value: the message names it.
    #[test]
    fn each_missing_or_wrong_member_is_named() {
        for kind in KINDS {
            let whole: Map<String, Value> = serde_json::from_str(&write(kind, None).unwrap().info).unwrap();
            for name in whole.keys() {
                let mut less = whole.clone();
                less.remove(name);
                let message = check(kind, &Value::Object(less).to_string()).unwrap_err();
                assert!(message.contains(name) && message.contains("found none"), "{message}");
                let mut wrong = whole.clone();
                wrong.insert(name.clone(), json!({"a": "b".repeat(99)}));
                let message = check(kind, &Value::Object(wrong).to_string()).unwrap_err();
                assert!(message.contains(name) && message.contains("..."), "{message}");
            }
        }
    }

    #[test]
    fn vertex_attributes_are_checked_one_by_one() {
        let attribute =
            |id: &str, data_type: &str, n: i64| json!({"id": id, "data_type": data_type, "num_components": n});
        let check = |attributes: Value| {
            let info = json!({
                "@type": "neuroglancer_skeletons", "transform": IDENTITY, "vertex_attributes": attributes,
            });
            check(Kind::Skeletons, &info.to_string())
        };
        let two = json!([attribute("a", "uint16", 3), attribute("b", "float32", 1)]);
        assert_eq!(check(two), Ok(Values::Skeletons { attributes: 10, or_more: true }));
        for (attributes, named) in [
            (json!([attribute("a", "uint64", 1)]), "data_type"),
            (json!([attribute("", "uint8", 1)]), "id"),
            (json!([attribute("a", "uint8", 0)]), "num_components"),
            (json!([7]), "id"),
            (json!([attribute("a", "uint8", 1), attribute("a", "uint8", 1)]), "more than once"),
        ] {
            let message = check(attributes).unwrap_err();
            assert!(message.contains(named), "{message}");
        }
    }

    #[test]
    fn a_text_that_is_no_object_is_an_error() {
        for text in ["", "[]", "7", "{"] {
            check(Kind::Mesh, text).unwrap_err();
        }
    }
}
