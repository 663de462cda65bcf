//! `info`: the JSON file of a data set, which contains the sharding specification.
//!
//! This module finds the specification (at the top level, or nested, addressed by a JSON pointer), derives the
//! directory of the shards, and reads the native member "sharddb". All other members are foreign and kept unchanged.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::format::json;
use crate::format::layout::{Layout, ValueAlignment};
use crate::format::spec::ShardingSpec;

/// The file name.
pub(crate) const FILE_NAME: &str = "info";

/// The maximum length of an `info` in bytes.
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// The maximum length of an `info` from the caller. Leaves room for the members and white space that are added.
const MAX_GIVEN_BYTES: u64 = MAX_BYTES / 2;

/// The maximum number of nested specifications that a message names.
const NAMED: usize = 8;

/// The content of an `info` about one sharded data set.
#[derive(Clone, Debug)]
pub(crate) struct Info {
    pub(crate) spec: ShardingSpec,
    /// `None` for foreign data.
    pub(crate) layout: Option<Layout>,
    /// The directory of the shards, relative to that of the `info`.
    pub(crate) shards: PathBuf,
}

impl Info {
    /// Reads the specification at `pointer`; without a pointer, the one at the top level, else the only nested one.
    ///
    /// Errors: `InvalidSpec`, also if there are several nested ones and no pointer selects one.
    pub(crate) fn parse(bytes: &[u8], pointer: Option<&str>) -> Result<Info> {
        let root = json::parse(bytes)?;
        match pointer {
            Some(pointer) => match json::pointer(root, pointer)? {
                Some(parent) => Info::of_parent(parent, pointer),
                None => {
                    let place = json::excerpt(pointer);
                    Err(Error::invalid_spec(format!("expected a value at {place} of the info, found none")))
                }
            },
            None if has_sharding(root)? => Info::of_parent(root, ""),
            None => Info::of_only_nested(root),
        }
    }

    fn of_only_nested(root: &RawValue) -> Result<Info> {
        let found = json::objects_with(root, "sharding", NAMED)?;
        match found.first.as_slice() {
            [] => Err(Error::invalid_spec("expected a member \"sharding\" in the info, found none")),
            [only] => Info::of_parent(only.value, &only.pointer),
            several => {
                let pointers: Vec<_> = several.iter().map(|nested| json::excerpt(&nested.pointer)).collect();
                let more = match found.count.saturating_sub(several.len() as u64) {
                    0 => String::new(),
                    more => format!(" or {more} more"),
                };
                let pointers = pointers.join(" or ");
                Err(Error::invalid_spec(format!(
                    "expected one member \"sharding\" in the info, found several: choose one by its JSON pointer, \
                     {pointers}{more}"
                )))
            }
        }
    }

    fn of_parent(parent: &RawValue, pointer: &str) -> Result<Info> {
        let members = json::members(parent).unwrap_or_default();
        let Some(sharding) = json::member(&members, "sharding")? else {
            let place = if pointer.is_empty() { Cow::Borrowed("the info") } else { json::excerpt(pointer) };
            return Err(Error::invalid_spec(format!("expected a member \"sharding\" in {place}, found none")));
        };
        let shards = match json::member(&members, "key")? {
            Some(key) if !pointer.is_empty() => subdirectory(key)?,
            _ => PathBuf::new(),
        };
        let layout = json::member(&members, "sharddb")?.map(layout).transpose()?;
        Ok(Info { spec: ShardingSpec::from_value(sharding)?, layout, shards })
    }

    /// Checks whether [`compose`](Info::compose) accepts a text.
    ///
    /// Errors: `TooLarge`; `InvalidSpec` if it is not a JSON object; `InvalidInput` if it has "sharding" in nested
    /// objects only, because the composed text would still describe the shards of those, next to the new ones.
    pub(crate) fn check(given: &str) -> Result<()> {
        if given.len() as u64 > MAX_GIVEN_BYTES {
            let message = format!("expected an info of at most {MAX_GIVEN_BYTES} bytes, found {}", given.len());
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let members = given_members(given)?;
        match json::member(&members, "sharding")? {
            Some(_) => Ok(()),
            None => check_not_nested(given),
        }
    }

    /// Returns the text of an `info` with this specification and layout, and the other members of `given` unchanged.
    pub(crate) fn compose(given: Option<&str>, spec: &ShardingSpec, layout: &Layout) -> Result<String> {
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

fn has_sharding(root: &RawValue) -> Result<bool> {
    let members = json::members(root).ok_or_else(|| Error::invalid_spec("expected an info that is a JSON object"))?;
    Ok(json::member(&members, "sharding")?.is_some())
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
        "expected an info with \"sharding\" at the top level or without it, found it nested at {}: a volume of several \
         data sets cannot be built; pass an info without these members",
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
        prefixes: flag("prefixes")?,
        value_alignment: alignment.ok_or_else(|| wrong("value_alignment"))?,
    })
}

fn layout_json(layout: &Layout) -> String {
    let Layout { checks, prefixes, value_alignment } = layout;
    format!("{{\"checks\": {checks}, \"prefixes\": {prefixes}, \"value_alignment\": {}}}", value_alignment.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::hash::HashFunction;

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
        let layout = Layout { checks: true, prefixes: false, value_alignment: ValueAlignment::Eight };
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
}
