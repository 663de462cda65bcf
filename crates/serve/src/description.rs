//! What an `info` or `zarr.json` says about its shards, read in one pass that keeps nothing else.

use std::fmt;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The depth up to which objects are looked at.
const MAX_DEPTH: usize = 8;

/// Upper bound on the bytes of the pointers and directories that are kept.
const MAX_KEPT_BYTES: usize = 16 << 20;

/// The longest string whose text matters here.
const MAX_TEXT: usize = 1 << 10;

/// What a document says.
#[derive(Debug, Default)]
pub(crate) struct Description {
    /// Whether the top level describes shards.
    pub(crate) is_sharded: bool,
    /// Whether ShardDb wrote it.
    pub(crate) is_native: bool,
    /// Whether it is that of a Zarr array.
    pub(crate) is_array: bool,
    /// The type of the data set, for people and programs; `None` if it is not stated.
    pub(crate) data_type: Option<&'static str>,
    pub(crate) is_segmentation: bool,
    /// The nested objects that describe shards.
    pub(crate) nested: Vec<Nested>,
}

/// A nested object that describes shards.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nested {
    /// Its JSON pointer.
    pub(crate) pointer: String,
    /// Its member "key": the directory of its shards.
    pub(crate) directory: String,
}

impl Description {
    /// Reads a document. One that is not JSON says nothing. Nested objects are kept up to 16 MiB of text; with `directory`
    /// only those of that directory.
    ///
    /// Errors: those of the reader. Cost: linear in the length.
    pub(crate) fn read(reader: impl Read, directory: Option<&str>) -> io::Result<Description> {
        let mut search = Search { pointer: String::new(), nested: Vec::new(), room: MAX_KEPT_BYTES, directory };
        let mut document = serde_json::Deserializer::from_reader(reader);
        let top = Place { search: &mut search, depth: 0 }.deserialize(&mut document);
        match top.and_then(|top| document.end().map(|()| top)) {
            Ok(Seen::Object(top)) => Ok(top.describe(search.nested)),
            Ok(_) => Ok(Description::default()),
            Err(error) if error.is_io() => Err(error.into()),
            Err(_) => Ok(Description::default()),
        }
    }
}

/// The state of the pass.
struct Search<'a> {
    /// The pointer of the current value.
    pointer: String,
    nested: Vec<Nested>,
    /// The bytes that may still be kept.
    room: usize,
    directory: Option<&'a str>,
}

/// A value, at a depth.
struct Place<'a, 'b> {
    search: &'a mut Search<'b>,
    depth: usize,
}

/// What is kept of a value until its parent ends.
enum Seen {
    Object(Members),
    Array,
    Text(String),
    Other,
}

/// The members of an object that matter here.
#[derive(Default)]
struct Members {
    has_sharding: bool,
    has_sharddb: bool,
    has_scales: bool,
    key: Option<String>,
    at_type: Option<String>,
    kind: Option<String>,
    node_type: Option<String>,
}

impl Members {
    fn set(&mut self, name: &str, value: Seen) {
        let text = |value| if let Seen::Text(text) = value { Some(text) } else { None };
        match name {
            "sharding" => self.has_sharding = matches!(value, Seen::Object(_)),
            "sharddb" => self.has_sharddb = true,
            "scales" => self.has_scales = matches!(value, Seen::Array),
            "key" => self.key = text(value),
            "@type" => self.at_type = text(value),
            "type" => self.kind = text(value),
            "node_type" => self.node_type = text(value),
            _ => {}
        }
    }

    fn describe(self, nested: Vec<Nested>) -> Description {
        let data_type = match self.at_type.as_deref() {
            Some("neuroglancer_skeletons") => Some("skeletons"),
            Some("neuroglancer_legacy_mesh") => Some("mesh"),
            Some("neuroglancer_multilod_draco") => Some("multires_mesh"),
            Some("neuroglancer_annotations_v1") => Some("annotations"),
            Some("neuroglancer_multiscale_volume") => Some("volume"),
            _ => self.has_scales.then_some("volume"),
        };
        Description {
            is_sharded: self.has_sharding,
            is_native: self.has_sharddb,
            is_array: self.node_type.as_deref() == Some("array"),
            data_type,
            is_segmentation: self.kind.as_deref() == Some("segmentation"),
            nested,
        }
    }
}

impl Search<'_> {
    /// Keeps the object at the pointer.
    fn keep(&mut self, directory: &str) {
        let bytes = self.pointer.len() + directory.len() + size_of::<Nested>();
        if let Some(room) = self.room.checked_sub(bytes)
            && self.directory.is_none_or(|wanted| wanted == directory)
        {
            self.room = room;
            self.nested.push(Nested { pointer: self.pointer.clone(), directory: directory.to_string() });
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_, '_> {
    type Value = Seen;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Seen, D::Error> {
        if self.depth > MAX_DEPTH {
            IgnoredAny::deserialize(value).map(|_| Seen::Other)
        } else {
            value.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Place<'_, '_> {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Seen, A::Error> {
        let Place { search, depth } = self;
        let (end, mut members) = (search.pointer.len(), Members::default());
        while let Some(name) = map.next_key::<String>()? {
            search.pointer.push('/');
            search.pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
            let value = map.next_value_seed(Place { search, depth: depth + 1 })?;
            search.pointer.truncate(end);
            members.set(&name, value);
        }
        if depth > 0
            && members.has_sharding
            && let Some(directory) = &members.key
        {
            search.keep(directory);
        }
        Ok(Seen::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Seen, A::Error> {
        let Place { search, depth } = self;
        let end = search.pointer.len();
        for at in 0_u64.. {
            search.pointer.push_str(&format!("/{at}"));
            let element = elements.next_element_seed(Place { search, depth: depth + 1 })?;
            search.pointer.truncate(end);
            if element.is_none() {
                break;
            }
        }
        Ok(Seen::Array)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Seen, E> {
        Ok(if text.len() <= MAX_TEXT { Seen::Text(text.to_string()) } else { Seen::Other })
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Seen, E> {
        Ok(Seen::Other)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Description {
        Description::read(text.as_bytes(), None).unwrap()
    }

    fn nested(pointer: &str, directory: &str) -> Nested {
        Nested { pointer: pointer.to_string(), directory: directory.to_string() }
    }

    #[test]
    fn nested_objects_are_found_by_their_key() {
        let info = json!({"scales": [{"key": "s0", "sharding": {}}, {"key": "s1"}],
                          "a/b~": {"key": "x/y", "sharding": {}}, "sharding": {}, "key": "top"});
        let mut found = read(&info.to_string()).nested;
        found.sort();
        assert_eq!(found, [nested("/a~1b~0", "x/y"), nested("/scales/0", "s0")]);
        let wanted = Description::read(info.to_string().as_bytes(), Some("x/y")).unwrap();
        assert_eq!(wanted.nested, [nested("/a~1b~0", "x/y")]);
    }

    #[test]
    fn the_top_states_what_the_data_set_is() {
        let seen =
            read(r#"{"@type": "x", "scales": [1, -1, 0.5, null, true], "type": "segmentation", "sharding": {}}"#);
        assert_eq!((seen.is_sharded, seen.is_native, seen.data_type), (true, false, Some("volume")));
        assert!(seen.is_segmentation && !seen.is_array);
        let seen = read(r#"{"@type": "neuroglancer_skeletons", "sharding": 7, "sharddb": null, "node_type": "array"}"#);
        assert_eq!((seen.is_sharded, seen.is_native, seen.data_type), (false, true, Some("skeletons")));
        assert!(!seen.is_segmentation && seen.is_array);
    }

    #[test]
    fn what_is_not_one_json_object_says_nothing() {
        for text in ["", "{", "7", "[]", r#"{"sharding": {}} x"#, r#"{"sharding": {}"#, "\u{0}"] {
            assert!(!read(text).is_sharded, "{text}");
        }
    }

    #[test]
    fn a_failing_reader_is_an_error() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::TimedOut.into())
            }
        }
        let text = r#"{"sharding": {}, "#.as_bytes().chain(Fails);
        assert_eq!(Description::read(text, None).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    /// Each object is below a name of 1 MiB: the pointers of all would take 100 GiB.
    #[test]
    fn what_is_kept_is_bounded() {
        let objects = vec![r#"{"key": "s", "sharding": {}}"#; 100_000].join(",");
        let text = format!(r#"{{"{}": [{objects}]}}"#, "x".repeat(1 << 20));
        let seen = read(&text);
        assert!((1..=16).contains(&seen.nested.len()), "{}", seen.nested.len());
    }
}
