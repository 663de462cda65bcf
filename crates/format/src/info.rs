//! `info`: the JSON file of a data set, which contains the sharding specification.
//!
//! This module finds the specification (at the top level, or nested, addressed by a JSON pointer), derives the
//! directory of the shards, and reads and writes the native member "sharddb". All other members are foreign and kept unchanged.

use std::path::{Component, Path, PathBuf};

use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::layout::{Layout, ValueAlignment};
use crate::nested::NestedSharding;
use crate::spec::ShardingSpec;

/// The file name.
pub const FILE_NAME: &str = "info";

/// The maximum length of an `info` in bytes.
pub const MAX_BYTES: u64 = 16 << 20;

/// The maximum length of an `info` from the caller. Leaves room for the members and white space that are added.
const MAX_GIVEN_BYTES: u64 = MAX_BYTES / 2;

/// The maximum number of nested specifications that a message names.
const NAMED: usize = 8;

/// The content of an `info` about one sharded data set.
#[derive(Clone, Debug)]
pub struct Info {
    pub spec: ShardingSpec,
    /// `None` for foreign data.
    pub layout: Option<Layout>,
    /// The JSON pointer of the object that has "sharding"; empty for the top level.
    pub pointer: String,
    /// The directory of the shards, relative to that of the `info`.
    pub shards: PathBuf,
}

impl ShardingSpec {
    /// Returns the specification in the text of an `info`: the one at the top level, else the only nested one.
    ///
    /// ```
    /// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
    /// use sharddb::ShardingSpec;
    ///
    /// let spec = ShardingSpec::from_info(
    ///     r#"{"@type": "neuroglancer_skeletons", "sharding": {"@type": "neuroglancer_uint64_sharded_v1", "hash": "identity",
    ///        "preshift_bits": 0, "minishard_bits": 3, "shard_bits": 5}}"#,
    /// )?;
    /// assert_eq!((spec.minishard_bits(), spec.shard_bits()), (3, 5));
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidSpec` if the text is not the JSON of an `info`, or has no specification; `InvalidInput` if it has several nested
    /// ones: then take the text of one, for [`from_json`](ShardingSpec::from_json).
    pub fn from_info(info: &str) -> Result<ShardingSpec> {
        Ok(Info::parse(info.as_bytes(), None)?.spec)
    }
}

impl Info {
    /// Reads the specification at `pointer`; without a pointer, the one at the top level, else the only nested one.
    ///
    /// Errors: `InvalidSpec`; `InvalidInput` if the pointer selects none, or there are several nested ones and no pointer.
    pub fn parse(bytes: &[u8], pointer: Option<&str>) -> Result<Info> {
        let root = json::parse(bytes)?;
        let found = match pointer {
            Some(pointer) => match json::pointer(root, pointer)? {
                Some(parent) => Info::of_parent(parent, pointer)?,
                None => None,
            },
            None if json::members(root).is_none() => {
                return Err(Error::invalid_spec("expected an info that is a JSON object"));
            }
            None => Info::of_parent(root, "")?,
        };
        match (found, pointer) {
            (Some(info), _) => Ok(info),
            (None, None) => Info::of_only_nested(root),
            (None, Some(pointer)) => {
                let place = json::excerpt(pointer);
                let choices = choices(&json::objects_with(root, "sharding", NAMED)?);
                Err(Error::invalid_input(format!(
                    "expected an object with \"sharding\" at the JSON pointer {place} of the info, found none: {choices}"
                )))
            }
        }
    }

    fn of_only_nested(root: &RawValue) -> Result<Info> {
        let found = json::objects_with(root, "sharding", NAMED)?;
        let only = match found.first.as_slice() {
            [only] => Info::of_parent(only.value, &only.pointer)?,
            _ => None,
        };
        only.ok_or_else(|| {
            if found.first.is_empty() {
                Error::invalid_spec("expected a member \"sharding\" in the info, found none")
            } else {
                Error::invalid_input(format!(
                    "expected one member \"sharding\" in the info, found several: {}",
                    choices(&found)
                ))
            }
        })
    }

    /// Reads the description of a data set from the object that has "sharding"; `None` if it has none.
    fn of_parent(parent: &RawValue, pointer: &str) -> Result<Option<Info>> {
        let members = json::members(parent).unwrap_or_default();
        let Some(sharding) = json::member(&members, "sharding")? else { return Ok(None) };
        let shards = match json::member(&members, "key")? {
            Some(key) if !pointer.is_empty() => subdirectory(key)?,
            _ => PathBuf::new(),
        };
        let layout = json::member(&members, "sharddb")?.map(layout).transpose()?;
        Ok(Some(Info { spec: ShardingSpec::from_value(sharding)?, layout, pointer: pointer.to_string(), shards }))
    }

    /// Checks whether [`compose`](Info::compose) accepts a text.
    ///
    /// Errors: `TooLarge`; `InvalidSpec` if it is not a JSON object; `InvalidInput` if it has "sharding" in nested
    /// objects only, because the composed text would still describe the shards of those, next to the new ones.
    pub fn check(given: &str) -> Result<()> {
        check_len(given)?;
        let members = given_members(given)?;
        match json::member(&members, "sharding")? {
            Some(_) => Ok(()),
            None => check_not_nested(given),
        }
    }

    /// Returns the place of the shards that [`compose_nested`](Info::compose_nested) describes in the object at
    /// `pointer`: in the directory that the object's member "key" names.
    ///
    /// Errors: `TooLarge`; `InvalidSpec` if the text is not a JSON object, if a generation cannot have that directory, or
    /// there is no "key"; `InvalidInput` if there is no object at the pointer, or the top level has "sharding" too,
    /// because readers would look for the shards of that.
    pub fn nested_in(given: &str, pointer: &str) -> Result<NestedSharding> {
        check_len(given)?;
        if json::member(&given_members(given)?, "sharding")?.is_some_and(|sharding| sharding.get() != "null") {
            let message = "expected \"sharding\" at the JSON pointer only, found it at the top level of the info too";
            return Err(Error::invalid_input(message));
        }
        let object = object_at(given, pointer)?;
        let key = json::member(&object.members, "key")?.and_then(json::string).ok_or_else(|| {
            let place = json::excerpt(pointer);
            Error::invalid_spec(format!(
                "expected the object at the JSON pointer {place} of the info to have a string \"key\", the directory of \
                 its shards, found none"
            ))
        })?;
        NestedSharding::new(pointer, &key)
    }

    /// Returns the specification of the object at `pointer`; `None` if it has none, or null.
    ///
    /// Errors: `InvalidSpec`; `InvalidInput` if there is no object at the pointer.
    pub fn spec_at(given: &str, pointer: &str) -> Result<Option<ShardingSpec>> {
        let sharding = json::member(&object_at(given, pointer)?.members, "sharding")?;
        sharding.filter(|sharding| sharding.get() != "null").map(ShardingSpec::from_value).transpose()
    }

    /// Returns `given` with this specification and layout as the members "sharding" and "sharddb" of the object at
    /// `pointer`. All other bytes are those of `given`.
    pub fn compose_nested(given: &str, pointer: &str, spec: &ShardingSpec, layout: &Layout) -> Result<String> {
        let object = object_at(given, pointer)?;
        let place_of = |value| {
            json::range_in(given, value).ok_or_else(|| Error::internal("a member of the info is not in its text"))
        };
        let end = place_of(object.value)?.end.saturating_sub("}".len());
        let mut separator = if object.members.is_empty() { "" } else { ", " };
        let mut edits = Vec::new();
        for (name, value) in [("sharding", spec.to_json()), ("sharddb", layout_json(layout))] {
            match json::member(&object.members, name)? {
                Some(replaced) => edits.push((place_of(replaced)?, value)),
                None => {
                    edits.push((end..end, format!("{separator}{}: {value}", json::quote(name))));
                    separator = ", ";
                }
            }
        }
        edits.sort_by_key(|(place, _)| place.start); // stable: two insertions keep their order
        let (mut text, mut copied) = (String::new(), 0);
        for (place, new) in edits {
            text.push_str(given.get(copied..place.start).unwrap_or_default());
            text.push_str(&new);
            copied = place.end;
        }
        text.push_str(given.get(copied..).unwrap_or_default());
        Ok(text)
    }

    /// Returns the text of an `info` with this specification and layout, and the other members of `given` unchanged.
    pub fn compose(given: Option<&str>, spec: &ShardingSpec, layout: &Layout) -> Result<String> {
        let mut text = String::from("{\n");
        let mut put = |name: &str, value: &str| {
            text.push_str(if text.len() > 2 { ",\n" } else { "" });
            text.push_str(&format!("  {}: {value}", json::quote(name)));
        };
        let (native, sharding) = (layout_json(layout), spec.to_json());
        let mut pending = [("sharding", sharding), ("sharddb", native)].map(Some);
        if let Some(given) = given {
            for (name, value) in given_members(given)? {
                // a native member replaces the given one of the same name in place, so that composing is idempotent
                let replaced = pending.iter_mut().find(|member| member.as_ref().is_some_and(|(own, _)| *own == name));
                match (replaced.and_then(Option::take), name.as_str()) {
                    (Some((_, value)), _) => put(&name, &value),
                    (None, "sharding" | "sharddb") => {}
                    (None, _) => put(&name, value.get()),
                }
            }
        }
        for (name, value) in pending.into_iter().flatten() {
            put(name, &value);
        }
        text.push_str("\n}\n");
        Ok(text)
    }
}

/// What a user can do to select one of several nested specifications.
fn choices(found: &json::NestedObjects<'_>) -> String {
    if found.first.is_empty() {
        return "there is none in the info".to_string();
    }
    let pointers: Vec<_> = found.first.iter().map(|nested| json::excerpt(&nested.pointer)).collect();
    let more = match found.count.saturating_sub(found.first.len() as u64) {
        0 => String::new(),
        more => format!(" or {more} more"),
    };
    format!("choose one by its JSON pointer, {}{more}", pointers.join(" or "))
}

/// An object of an `info` from the caller.
struct GivenObject<'a> {
    value: &'a RawValue,
    members: Vec<(String, &'a RawValue)>,
}

/// Errors: `InvalidSpec`; `InvalidInput` if there is no object at the pointer.
fn object_at<'a>(given: &'a str, pointer: &str) -> Result<GivenObject<'a>> {
    let value = json::pointer(json::parse(given.as_bytes())?, pointer)?;
    let object = value.and_then(|value| Some(GivenObject { value, members: json::members(value)? }));
    object.ok_or_else(|| {
        let place = json::excerpt(pointer);
        Error::invalid_input(format!("expected an object at the JSON pointer {place} of the info, found none"))
    })
}

fn check_len(given: &str) -> Result<()> {
    if given.len() as u64 > MAX_GIVEN_BYTES {
        let message = format!("expected an info of at most {MAX_GIVEN_BYTES} bytes, found {}", given.len());
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}

fn given_members(given: &str) -> Result<Vec<(String, &RawValue)>> {
    json::members(json::parse(given.as_bytes())?)
        .ok_or_else(|| Error::invalid_spec("expected an info that is a JSON object"))
}

fn check_not_nested(given: &str) -> Result<()> {
    let found = json::objects_with(json::parse(given.as_bytes())?, "sharding", NAMED)?;
    if found.first.is_empty() {
        return Ok(());
    }
    let pointers: Vec<_> = found.first.iter().map(|nested| json::excerpt(&nested.pointer)).collect();
    Err(Error::invalid_input(format!(
        "expected an info with \"sharding\" at the top level or without it, found it nested at {}, as in a \
         volume: choose the object that describes the new shards (`sharding_at`, `--sharding-at`), or pass an info \
         without these members",
        pointers.join(" and ")
    )))
}

/// Returns the directory that a member "key" names. Rejects paths that leave the directory of the `info`.
fn subdirectory(key: &RawValue) -> Result<PathBuf> {
    let name = json::string(key).filter(|name| !name.is_empty());
    let below = |name: &String| Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    name.filter(below).map(PathBuf::from).ok_or_else(|| {
        let found = json::excerpt(key.get());
        Error::invalid_spec(format!("expected \"key\" to name a directory below that of the info, found {found}"))
    })
}

/// Reads the member "sharddb". Ignores members that this version does not know.
fn layout(value: &RawValue) -> Result<Layout> {
    let wrong = |name: &str| Error::invalid_spec(format!("expected a valid \"{name}\" in the info's \"sharddb\""));
    let members = json::members(value).ok_or_else(|| wrong("sharddb"))?;
    let flag = |name: &str| match json::member(&members, name)?.map(RawValue::get) {
        Some("true") => Ok(true),
        Some("false") | None => Ok(false),
        Some(_) => Err(wrong(name)),
    };
    let alignment = match json::member(&members, "value_alignment")? {
        Some(bytes) => bytes.get().parse().ok().and_then(|bytes| ValueAlignment::new(bytes).ok()),
        None => Some(ValueAlignment::One),
    };
    Ok(Layout {
        checks: flag("checks")?,
        preambles: flag("prefixes")?,
        value_alignment: alignment.ok_or_else(|| wrong("value_alignment"))?,
    })
}

fn layout_json(layout: &Layout) -> String {
    let Layout { checks, preambles, value_alignment } = layout;
    format!("{{\"checks\": {checks}, \"prefixes\": {preambles}, \"value_alignment\": {}}}", value_alignment.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashFunction;

    const SHARDING: &str = r#"{"@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0, "minishard_bits": 1, "shard_bits": 2}"#;

    fn info(text: &str, pointer: Option<&str>) -> Result<Info> {
        Info::parse(text.replace("SHARDING", SHARDING).as_bytes(), pointer)
    }

    #[test]
    fn finds_the_specification_at_the_top_by_pointer_or_alone() {
        let top = r#"{"key": "ignored", "sharding": SHARDING, "scales": [{"sharding": SHARDING}]}"#;
        assert_eq!(info(top, None).unwrap().shards, Path::new(""));
        let nested = r#"{"scales": [{"key": "8_8_8"}, {"key": "16_16_16", "sharding": SHARDING}]}"#;
        assert_eq!(info(nested, None).unwrap().shards, Path::new("16_16_16"));
        assert_eq!(info(nested, Some("/scales/1")).unwrap().shards, Path::new("16_16_16"));
        assert!(info(nested, Some("/scales/0")).unwrap_err().message().contains("/scales/0"));
        assert!(info(nested, Some("/scales/2")).is_err());
        let several = r#"{"by_id": {"sharding": SHARDING}, "spatial": [{"key": "s", "sharding": SHARDING}]}"#;
        let error = info(several, None).unwrap_err();
        assert!(error.message().contains("/by_id or /spatial/0"), "{error}");
    }

    #[test]
    fn a_repeated_or_hidden_specification_is_found_as_what_it_is() {
        let twice = r#"{"a": {"sharding": SHARDING, "sharding": SHARDING}}"#;
        assert!(info(twice, None).unwrap_err().message().contains("more than once"));
        let within = r#"{"a": {"sharding": {"b": {"sharding": 1}}}, "c": "{\"sharding\": {"}"#;
        assert!(
            info(within, None).unwrap_err().message().contains("unknown member \"b\""),
            "the outer one is the only one"
        );
        let escaped = r#"{"a/b~": {"\u0073harding": SHARDING, "key": "k"}}"#;
        assert_eq!(info(escaped, None).unwrap().shards, Path::new("k"));
        assert_eq!(info(escaped, Some("/a~1b~0")).unwrap().shards, Path::new("k"));
        let outer_and_inner = r#"{"a": [{"b": {"sharding": 1}, "sharding": 2}, {"sharding": 3}]}"#;
        let error = info(outer_and_inner, None).unwrap_err();
        assert!(error.message().ends_with("/a/0 or /a/0/b or /a/1"), "{error}");
    }

    #[test]
    fn a_message_names_a_few_nested_specifications_and_cuts_long_names() {
        let objects: Vec<String> = (0..5000).map(|at| format!("\"{at}\": {{\"sharding\": 1}}")).collect();
        let text = format!("{{\"{}\": {{{}}}}}", "a".repeat(100_000), objects.join(","));
        let error = info(&text, None).unwrap_err();
        assert!(error.message().len() < 4000, "{} bytes of message", error.message().len());
        assert!(error.message().contains("more bytes") && error.message().ends_with("or 4992 more"), "{error}");
    }

    #[test]
    fn no_way_out_of_the_directory() {
        for key in ["\"../x\"", "\"/x\"", "\"a/../../b\"", "\"\"", "\"./a\"", "7", "null"] {
            let text = format!(r#"{{"scales": [{{"key": {key}, "sharding": SHARDING}}]}}"#);
            assert!(info(&text, None).is_err(), "{key}");
        }
        assert!(info(r#"{"scales": [{"key": "a/b", "sharding": SHARDING}]}"#, None).is_ok());
    }

    #[test]
    fn twice_or_missing_is_an_error() {
        assert!(info(r#"{"sharding": SHARDING, "sharding": SHARDING}"#, None).is_err());
        assert!(info(r#"{"sharding": null}"#, None).is_err());
        assert!(info("{}", None).is_err());
        assert!(info("[]", None).is_err());
    }

    #[test]
    fn a_given_info_must_not_have_the_specification_elsewhere() {
        let check = |text: &str| Info::check(&text.replace("SHARDING", SHARDING));
        let volume = r#"{"type": "image", "scales": [{"key": "s0", "sharding": SHARDING}, {"sharding": null}]}"#;
        let error = check(volume).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("/scales/0 and /scales/1"), "{error}");
        for fine in ["{}", r#"{"sharding": null}"#, r#"{"scales": [{"sharding": SHARDING}], "sharding": SHARDING}"#] {
            check(fine).unwrap();
        }
    }

    #[test]
    fn composing_keeps_foreign_members_as_given_and_is_idempotent() {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 3, 4).unwrap();
        let layout = Layout { checks: true, preambles: false, value_alignment: ValueAlignment::Eight };
        let given = r#"{"@type": "neuroglancer_skeletons", "sharding": {"old": 1}, "transform": [1.0, 1e400]}"#;
        let text = Info::compose(Some(given), &spec, &layout).unwrap();
        assert!(text.contains("\"transform\": [1.0, 1e400]"));
        assert!(!text.contains("old"));
        assert_eq!(Info::compose(Some(&text), &spec, &layout).unwrap(), text);
        let read = Info::parse(text.as_bytes(), None).unwrap();
        assert_eq!((read.spec, read.layout), (spec, Some(layout)));
        let alone = Info::compose(None, &spec, &layout).unwrap();
        assert_eq!(Info::parse(alone.as_bytes(), None).unwrap().spec, spec);
    }

    #[test]
    fn a_nested_specification_is_written_in_place_and_nothing_else_changes() {
        let spec = ShardingSpec::new(HashFunction::Identity, 9, 3, 4).unwrap();
        let layout = Layout { checks: true, preambles: false, value_alignment: ValueAlignment::One };
        let new = format!("\"sharding\": {}", spec.to_json());
        let native = "\"sharddb\": {\"checks\": true, \"prefixes\": false, \"value_alignment\": 1}";
        let (before, after) = (" {\"n\" : 1e400,\n\t\"scales\":[ {\"key\":\"a\"}, ", " ], \"\\u0041\": \"}\"} \n");
        let cases = [
            ("{ \"key\":\"b\" }", format!("{{ \"key\":\"b\" , {new}, {native}}}")),
            (
                "{\"sharding\":null,\"key\":\"b\"}",
                format!("{{\"sharding\":{},\"key\":\"b\", {native}}}", spec.to_json()),
            ),
            (
                "{\"sharddb\": 7, \"key\" :\"b\", \"\\u0073harding\": {\"old\": [1]} }",
                format!("{{{native}, \"key\" :\"b\", \"\\u0073harding\": {} }}", spec.to_json()),
            ),
        ];
        for (scale, expected) in cases {
            let given = format!("{before}{scale}{after}");
            let nested = Info::nested_in(&given, "/scales/1").unwrap();
            assert_eq!((nested.pointer.as_str(), nested.directory().as_path()), ("/scales/1", Path::new("b")));
            let text = Info::compose_nested(&given, "/scales/1", &spec, &layout).unwrap();
            assert_eq!(text, format!("{before}{expected}{after}"));
            assert_eq!(Info::compose_nested(&text, "/scales/1", &spec, &layout).unwrap(), text, "idempotent");
            let read = Info::parse(text.as_bytes(), Some("/scales/1")).unwrap();
            assert_eq!((read.spec, read.layout, read.shards.as_path()), (spec, Some(layout), Path::new("b")));
        }
        let only = Info::compose_nested("{\"a\":{}}", "/a", &spec, &layout).unwrap();
        assert_eq!(only, format!("{{\"a\":{{{new}, {native}}}}}"));
    }

    #[test]
    fn a_nested_place_must_be_an_object_with_a_key_and_the_only_one() {
        let cases = [
            (r#"{"scales": []}"#, "/scales/0", "/scales/0"),
            (r#"{"scales": [7]}"#, "/scales/0", "expected an object"),
            (r#"{"scales": [{}]}"#, "/scales/0", "\"key\""),
            (r#"{"scales": [{"key": 8}]}"#, "/scales/0", "\"key\""),
            (r#"{"scales": [{"key": "../x"}]}"#, "/scales/0", "../x"),
            (r#"{"scales": [{"key": "info"}]}"#, "/scales/0", "info"),
            (r#"{"scales": [{"key": "a", "key": "b"}]}"#, "/scales/0", "more than once"),
            (r#"{"scales": [{"key": "a"}], "scales": []}"#, "/scales/0", "more than once"),
            (r#"{"scales": [{"key": "a"}]}"#, "scales/0", "JSON pointer"),
            (r#"{"scales": [{"key": "a"}], "sharding": {}}"#, "/scales/0", "top level"),
            ("[{\"key\": \"a\"}]", "/0", "JSON object"),
            ("{", "/0", "JSON"),
        ];
        for (given, pointer, named) in cases {
            let error = Info::nested_in(given, pointer).unwrap_err();
            assert!(error.message().contains(named), "{given}: {error}");
        }
        assert!(Info::nested_in(r#"{"scales": [{"key": "a"}], "sharding": null}"#, "/scales/0").is_ok());
    }

    #[test]
    fn the_specification_in_place_is_found_unless_it_is_null() {
        let at = |text: &str| Info::spec_at(&text.replace("SHARDING", SHARDING), "/a");
        assert!(at(r#"{"a": {"sharding": SHARDING}}"#).unwrap().is_some());
        assert_eq!(at(r#"{"a": {"sharding": null}}"#).unwrap(), None);
        assert_eq!(at(r#"{"a": {}}"#).unwrap(), None);
        assert!(at(r#"{"a": {"sharding": {}}}"#).is_err());
        assert!(at(r#"{"b": {}}"#).is_err());
    }
}
