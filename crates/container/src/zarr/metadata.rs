//! The metadata of an array, `zarr.json`: shape, chunks and codecs; other members are kept verbatim.

use serde_json::value::RawValue;
use sharddb_format::internal::json;
use sharddb_format::{Error, ErrorKind, Result};

use crate::MAX_DIMENSIONS;
use crate::zarr::chunk_key::ChunkKeyEncoding;
use crate::zarr::codec::{Codecs, Serializer, Sharding, divide};
use crate::zarr::data_type::DataType;
use crate::zarr::elements::Elements;
use crate::zarr::extension::{Extension, numbers};
use crate::zarr::grid::Grid;
use crate::zarr::shard_index::IndexLocation;

/// The member of a store's `info` that holds the metadata of an imported array.
pub const INFO_MEMBER: &str = "zarr";

/// File name of the metadata.
pub(super) const ZARR_JSON: &str = "zarr.json";

/// The index codecs that the specification recommends.
const INDEX_CODECS: &str = r#"[{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]"#;

/// Optional members that do not affect how chunks are stored.
const OPTIONAL: [&str; 4] = ["attributes", "dimension_names", "storage_transformers", "consolidated_metadata"];

/// The metadata of a Zarr v3 array.
///
/// Valid by construction: this build can read every array that has such metadata. The JSON text is kept, so unknown
/// members survive packing and unpacking.
///
/// ```
/// use sharddb_container::zarr::{IndexLocation, ZarrMetadata};
///
/// let plain = ZarrMetadata::from_json(r#"{
///     "zarr_format": 3, "node_type": "array", "shape": [100, 70], "data_type": "uint16", "fill_value": 0,
///     "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [16, 16]}},
///     "chunk_key_encoding": {"name": "default"},
///     "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]
/// }"#)?;
/// let packed = plain.sharded(&[64, 64], Some(IndexLocation::Start))?;
/// assert_eq!((packed.shard_shape(), packed.chunk_shape()), (&[64, 64][..], &[16, 16][..]));
/// assert_eq!(packed.unsharded()?.chunk_shape(), &[16, 16]);
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ZarrMetadata {
    text: String,
    shape: Vec<u64>,
    shard_shape: Vec<u64>,
    chunk_shape: Vec<u64>,
    pub(super) keys: ChunkKeyEncoding,
    pub(super) elements: Elements,
    pub(super) codecs: Codecs,
    pub(super) grid: Grid,
}

impl ZarrMetadata {
    /// Parses the text of a `zarr.json`.
    ///
    /// # Errors
    ///
    /// `InvalidSpec`; `Unsupported` for a codec, a data type or another extension that this build does not have, with
    /// its name; `InvalidInput` for a group.
    pub fn from_json(text: &str) -> Result<ZarrMetadata> {
        let members = json::members(json::parse(text.as_bytes())?)
            .ok_or_else(|| Error::invalid_spec("expected the metadata of an array, a JSON object"))?;
        check_kind(&members)?;
        check_others(&members)?;
        let need = |name: &str| need(&members, name);
        let wrong = |name: &str, value: &RawValue| {
            Error::invalid_spec(format!("expected a valid \"{name}\" of an array, found {}", value.get()))
        };
        let value = need("shape")?;
        let shape =
            numbers(value).filter(|shape| shape.len() <= MAX_DIMENSIONS).ok_or_else(|| wrong("shape", value))?;

        let chunk_grid = Extension::parse(need("chunk_grid")?, "chunk grid")?;
        if chunk_grid.name != "regular" {
            return Err(chunk_grid.unknown("regular"));
        }
        let value = chunk_grid.need("chunk_shape")?;
        let valid = |chunk: &Vec<u64>| chunk.len() == shape.len() && !chunk.contains(&0);
        let shard_shape = numbers(value).filter(valid).ok_or_else(|| chunk_grid.wrong("chunk_shape", value))?;

        let data_type = DataType::parse(need("data_type")?)?;
        let elements = Elements { data_type, fill_value: data_type.fill_value(need("fill_value")?)? };
        let codecs = Codecs::parse(need("codecs")?, &shard_shape, data_type)?;
        let chunk_shape = match &codecs.serializer {
            Serializer::Sharding(sharding) => codecs.transpose.inverse().apply(&sharding.chunk_shape),
            Serializer::Bytes(_) => shard_shape.clone(),
        };
        let grid = Grid::new(&shape, &shard_shape, &chunk_shape, &codecs.transpose)?;
        let keys = ChunkKeyEncoding::parse(need("chunk_key_encoding")?)?;
        Ok(ZarrMetadata { text: text.to_string(), shape, shard_shape, chunk_shape, keys, elements, codecs, grid })
    }

    /// Returns the text of `zarr.json`.
    pub fn to_json(&self) -> &str {
        &self.text
    }

    /// Returns the number of elements along each axis.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the shape of a shard in elements: the part of the array that one file holds. Without sharding this is
    /// one chunk.
    pub fn shard_shape(&self) -> &[u64] {
        &self.shard_shape
    }

    /// Returns the shape of an inner chunk in elements: the part of the array that one key identifies.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    /// Returns the number of inner chunks along each axis. A key is the number of a cell in C order.
    pub fn chunk_grid(&self) -> Vec<u64> {
        self.grid.chunk_cells()
    }

    /// Returns the number of the shard that holds a chunk, in C order of the shards; `None` if there is no such chunk.
    pub fn shard_of(&self, key: u64) -> Option<u64> {
        self.grid.place(key).map(|place| place.shard)
    }

    /// Returns Zarr's name of the data type.
    pub fn data_type(&self) -> String {
        self.member("data_type").and_then(json::string).unwrap_or_default()
    }

    /// Returns the length of an element in bytes.
    pub fn element_len(&self) -> usize {
        self.elements.data_type.size()
    }

    /// Returns whether the array is sharded.
    pub fn is_sharded(&self) -> bool {
        self.sharding().is_some()
    }

    /// Encodes a chunk from all of its elements, in C order and little endian.
    ///
    /// gzip and zstd use a fixed level. blosc uses LZ4 with the shuffle of the metadata. Other parameters are ignored;
    /// compressed chunks are self-describing, so every reader can decode them.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the length is not that of a chunk; `Unsupported` for nested sharding.
    pub fn encode_chunk(&self, elements: &[u8]) -> Result<Vec<u8>> {
        let Some(sharding) = self.sharding() else {
            return self.codecs.encode(elements, &self.chunk_shape, &self.elements);
        };
        let turned = self.codecs.transpose.transpose(elements.to_vec(), &self.chunk_shape, self.element_len())?;
        sharding.codecs.encode(&turned, &sharding.chunk_shape, &self.elements)
    }

    /// Returns the metadata of the same array with the same chunks, in shards of `shard_shape`.
    ///
    /// Compression and checksums of whole shards are dropped, and a transpose of whole shards becomes one of chunks.
    /// With `None`, the index stays where it is, or is at the end of a new shard.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the chunks do not divide the shards evenly.
    pub fn sharded(&self, shard_shape: &[u64], index_location: Option<IndexLocation>) -> Result<ZarrMetadata> {
        self.in_shards(shard_shape, &self.chunk_shape, index_location)
    }

    /// Returns the metadata of the same array in chunks of `chunk_shape` and shards of `shard_shape`. Chunks keep their
    /// codecs.
    ///
    /// Other members change as in [`sharded`](ZarrMetadata::sharded).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `chunk_shape` does not have a length above 0 for each axis, or chunks do not divide shards
    /// evenly; `Unsupported` for nested sharding.
    pub fn rechunked(
        &self,
        chunk_shape: &[u64],
        shard_shape: &[u64],
        index_location: Option<IndexLocation>,
    ) -> Result<ZarrMetadata> {
        if chunk_shape.len() != self.shape.len() || chunk_shape.contains(&0) {
            return Err(Error::invalid_input(format!(
                "expected the shape of a chunk, a length above 0 for each of {} axes, found {chunk_shape:?}",
                self.shape.len()
            )));
        }
        self.check_encodable()?;
        self.in_shards(shard_shape, chunk_shape, index_location)
    }

    /// Checks that chunks can be encoded.
    ///
    /// # Errors
    ///
    /// `Unsupported` if they are shards themselves.
    pub(super) fn check_encodable(&self) -> Result<()> {
        let (codecs, _) = self.chunk_codecs();
        if self.is_sharded() && matches!(codecs.serializer, Serializer::Sharding(_)) {
            let message = "expected chunks that are not shards themselves, found nested sharding";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }

    fn in_shards(
        &self,
        shard_shape: &[u64],
        chunk_shape: &[u64],
        index_location: Option<IndexLocation>,
    ) -> Result<ZarrMetadata> {
        let fits = shard_shape.len() == self.shape.len()
            && !shard_shape.contains(&0)
            && divide(shard_shape, chunk_shape).is_some();
        if !fits {
            return Err(Error::invalid_input(format!(
                "expected the shape of a shard that chunks of {chunk_shape:?} divide evenly, found {shard_shape:?}"
            )));
        }
        let parts = CodecParts::of(self)?;
        let location = index_location.or(self.sharding().map(|sharding| sharding.index.location()));
        // the transpose of whole shards moves into the codecs of chunks: the bytes are the same, and zarr-python takes
        // the shape of a chunk as that before a transpose
        let codecs = format!(
            "[{{\"name\": \"sharding_indexed\", \"configuration\": {{\"chunk_shape\": {}, \"codecs\": [{}], \
             \"index_codecs\": {}, \"index_location\": \"{}\"}}}}]",
            json_list(chunk_shape),
            [parts.before, parts.chunk].concat().join(", "),
            parts.index.as_deref().unwrap_or(INDEX_CODECS),
            location.unwrap_or(IndexLocation::End).as_str(),
        );
        self.with(shard_shape, &codecs)
    }

    /// Returns the metadata of the same array with the same chunks, one file per chunk.
    ///
    /// # Errors
    ///
    /// `Unsupported` for nested sharding, where each file would be a shard again.
    pub fn unsharded(&self) -> Result<ZarrMetadata> {
        self.check_encodable()?;
        let parts = CodecParts::of(self)?;
        let codecs = [parts.before, parts.chunk].concat().join(", ");
        self.with(&self.chunk_shape, &format!("[{codecs}]"))
    }

    fn with(&self, shard_shape: &[u64], codecs: &str) -> Result<ZarrMetadata> {
        let members = json::members(json::parse(self.text.as_bytes())?).unwrap_or_default();
        let grid =
            format!("{{\"name\": \"regular\", \"configuration\": {{\"chunk_shape\": {}}}}}", json_list(shard_shape));
        let lines: Vec<_> = members
            .iter()
            .map(|(name, value)| {
                let value = match name.as_str() {
                    "chunk_grid" => &grid,
                    "codecs" => codecs,
                    _ => value.get(),
                };
                format!("  {}: {value}", json::quote(name))
            })
            .collect();
        ZarrMetadata::from_json(&format!("{{\n{}\n}}\n", lines.join(",\n")))
    }

    /// Returns whether whole shards are compressed or have a checksum.
    pub fn is_wrapped(&self) -> bool {
        self.is_sharded() && !self.codecs.compressors.is_empty()
    }

    pub(super) fn sharding(&self) -> Option<&Sharding> {
        match &self.codecs.serializer {
            Serializer::Sharding(sharding) => Some(sharding),
            Serializer::Bytes(_) => None,
        }
    }

    /// Returns the codecs of an inner chunk, and the shape that they expect.
    pub(super) fn chunk_codecs(&self) -> (&Codecs, &[u64]) {
        match self.sharding() {
            Some(sharding) => (&sharding.codecs, &sharding.chunk_shape),
            None => (&self.codecs, &self.chunk_shape),
        }
    }

    /// Returns all codecs between the elements of an inner chunk and its bytes, including a transpose of whole shards.
    pub(super) fn codecs_of_chunk(&self) -> Codecs {
        match self.sharding() {
            Some(Sharding { codecs, .. }) => {
                Codecs { transpose: self.codecs.transpose.then(&codecs.transpose), ..codecs.clone() }
            }
            None => self.codecs.clone(),
        }
    }

    /// Returns the path of a shard's file, relative to the array.
    pub(super) fn shard_path(&self, shard: u64) -> String {
        self.keys.path(&self.grid.shard_position(shard))
    }

    /// Returns a member of `zarr.json`.
    pub(super) fn member(&self, name: &str) -> Option<&RawValue> {
        let members = json::members(json::parse(self.text.as_bytes()).ok()?)?;
        json::member(&members, name).ok()?
    }
}

fn need<'a>(members: &[(String, &'a RawValue)], name: &str) -> Result<&'a RawValue> {
    let value = json::member(members, name)?;
    value.ok_or_else(|| Error::invalid_spec(format!("expected a member \"{name}\" of an array, found none")))
}

fn check_kind(members: &[(String, &RawValue)]) -> Result<()> {
    let format = need(members, "zarr_format")?.get();
    if format != "3" {
        let message = format!("expected \"zarr_format\": 3, found {format}");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let node = need(members, "node_type")?;
    match json::string(node).as_deref() {
        Some("array") => Ok(()),
        Some("group") => Err(Error::invalid_input("expected an array, found a group: name an array in it")),
        _ => {
            Err(Error::invalid_spec(format!("expected \"array\" or \"group\" for \"node_type\", found {}", node.get())))
        }
    }
}

/// Refuses unknown members unless they state `"must_understand": false`, as the specification requires.
fn check_others(members: &[(String, &RawValue)]) -> Result<()> {
    const KNOWN: [&str; 8] =
        ["zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"];
    for (name, value) in members {
        let ignorable = || {
            let members = json::members(value).unwrap_or_default();
            matches!(json::member(&members, "must_understand"), Ok(Some(flag)) if flag.get() == "false")
        };
        if !KNOWN.contains(&name.as_str()) && !OPTIONAL.contains(&name.as_str()) && !ignorable() {
            let message = format!("expected metadata that this build understands, found a member \"{name}\"");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    match json::member(members, "storage_transformers")? {
        Some(value) if json::elements(value).is_none_or(|transformers| !transformers.is_empty()) => {
            let message = format!("expected no storage transformers, found {}", value.get());
            Err(Error::new(ErrorKind::Unsupported, message))
        }
        _ => Ok(()),
    }
}

/// The codecs of an array as JSON texts.
struct CodecParts {
    /// The codecs before sharding, which transpose whole shards.
    before: Vec<String>,
    /// The codecs of an inner chunk.
    chunk: Vec<String>,
    /// The index codecs.
    index: Option<String>,
}

impl CodecParts {
    fn of(metadata: &ZarrMetadata) -> Result<CodecParts> {
        let texts = |value: &RawValue| -> Vec<String> {
            json::elements(value).unwrap_or_default().into_iter().map(|codec| codec.get().to_string()).collect()
        };
        let mut parts = CodecParts { before: Vec::new(), chunk: Vec::new(), index: None };
        let codecs = metadata.member("codecs").and_then(json::elements).unwrap_or_default();
        for codec in codecs {
            let extension = Extension::parse(codec, "codec")?;
            if extension.name == "sharding_indexed" {
                parts.before = std::mem::take(&mut parts.chunk);
                parts.chunk = texts(extension.need("codecs")?);
                parts.index = Some(extension.need("index_codecs")?.get().to_string());
                break;
            }
            parts.chunk.push(codec.get().to_string());
        }
        Ok(parts)
    }
}

/// Formats `numbers` as the text of a JSON array.
pub(super) fn json_list(numbers: &[u64]) -> String {
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    format!("[{}]", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: &str = r#"{"zarr_format": 3, "node_type": "array", "shape": [20, 10], "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 4]}}, "fill_value": 7,
        "chunk_key_encoding": {"name": "default"}, "codecs": CODECS, "attributes": {"a": 1e400},
        "later": {"must_understand": false, "x": 1}}"#;

    fn array(codecs: &str) -> Result<ZarrMetadata> {
        ZarrMetadata::from_json(&ARRAY.replace("CODECS", codecs))
    }

    const LITTLE: &str = r#"{"name": "bytes", "configuration": {"endian": "little"}}"#;

    #[test]
    fn an_unknown_codec_is_refused_with_its_name() {
        let cases = [
            format!(r#"[{LITTLE}, {{"name": "lzma"}}]"#),
            format!(r#"["lzma", {LITTLE}]"#),
            format!(
                r#"[{{"name": "sharding_indexed", "configuration": {{"chunk_shape": [4, 2], "index_codecs": [{LITTLE}],
                    "codecs": [{LITTLE}, "lzma"]}}}}]"#
            ),
        ];
        for codecs in cases {
            let error = array(&codecs).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{codecs}");
            assert!(error.message().contains("\"lzma\""), "{error}");
        }
    }

    #[test]
    fn codecs_out_of_order_or_incomplete_are_refused() {
        for codecs in [
            "[]",
            "{}",
            r#"["gzip"]"#,
            r#"["bytes"]"#, // 16-bit elements without a byte order
            r#"[{"name": "bytes", "configuration": {"endian": "middle"}}]"#,
            &format!("[{LITTLE}, {LITTLE}]"),
            &format!(r#"[{LITTLE}, {{"name": "transpose", "configuration": {{"order": [1, 0]}}}}]"#),
            &format!(r#"[{{"name": "transpose", "configuration": {{"order": [1, 1]}}}}, {LITTLE}]"#),
            &format!(r#"[{{"name": "transpose", "configuration": {{"order": [0]}}}}, {LITTLE}]"#),
        ] {
            assert_eq!(array(codecs).unwrap_err().kind(), ErrorKind::InvalidSpec, "{codecs}");
        }
    }

    #[test]
    fn sharding_must_fit() {
        let sharding = |rest: &str| {
            array(&format!(r#"[{{"name": "sharding_indexed", "configuration": {{"codecs": [{LITTLE}], {rest}}}}}]"#))
        };
        let index = format!(r#""index_codecs": [{LITTLE}, "crc32c"]"#);
        assert!(sharding(&format!(r#""chunk_shape": [4, 2], {index}"#)).is_ok());
        for rest in [
            format!(r#""chunk_shape": [3, 2], {index}"#),
            format!(r#""chunk_shape": [0, 2], {index}"#),
            format!(r#""chunk_shape": [4], {index}"#),
            format!(r#""chunk_shape": [4, 2], "index_location": "middle", {index}"#),
            format!(r#""chunk_shape": [4, 2], "typo": 1, {index}"#),
            r#""chunk_shape": [4, 2]"#.to_string(),
            r#""chunk_shape": [4, 2], "index_codecs": ["bytes"]"#.to_string(),
        ] {
            assert_eq!(sharding(&rest).unwrap_err().kind(), ErrorKind::InvalidSpec, "{rest}");
        }
        for index in [format!(r#"[{LITTLE}, "gzip"]"#), format!(r#"["crc32c", {LITTLE}]"#), "[]".to_string()] {
            let error = sharding(&format!(r#""chunk_shape": [4, 2], "index_codecs": {index}"#)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{index}");
        }
    }

    #[test]
    fn what_must_be_understood_and_is_not_is_refused() {
        let good = ARRAY.replace("CODECS", &format!("[{LITTLE}]"));
        assert!(ZarrMetadata::from_json(&good).is_ok());
        for (from, to) in [
            (r#""must_understand": false, "#, ""),
            (r#""zarr_format": 3"#, r#""zarr_format": 2"#),
            (r#""node_type": "array""#, r#""node_type": "group""#),
            (r#""name": "regular""#, r#""name": "rectangular""#),
            (r#""data_type": "uint16""#, r#""data_type": "string""#),
            (r#""attributes": {"a": 1e400}"#, r#""storage_transformers": [{"name": "x"}]"#),
            (r#""shape": [20, 10]"#, r#""shape": [20]"#),
            (r#""shape": [20, 10]"#, r#""shape": [20, -1]"#),
            (r#""shape": [20, 10]"#, r#""shape": [20, 10], "shape": [20, 10]"#),
            (r#""fill_value": 7"#, r#""fill_value": 65536"#),
            (r#""fill_value": 7,"#, ""),
            ("[8, 4]", "[8, 0]"),
        ] {
            assert!(good.contains(from), "{from}");
            assert!(ZarrMetadata::from_json(&good.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn a_group_is_told_from_what_is_no_node() {
        let good = ARRAY.replace("CODECS", &format!("[{LITTLE}]"));
        for (node, kind) in [
            (r#""group""#, ErrorKind::InvalidInput),
            (r#""arrays""#, ErrorKind::InvalidSpec),
            ("3", ErrorKind::InvalidSpec),
        ] {
            let text = good.replace(r#""node_type": "array""#, &format!(r#""node_type": {node}"#));
            assert_eq!(ZarrMetadata::from_json(&text).unwrap_err().kind(), kind, "{node}");
        }
    }

    #[test]
    fn packing_keeps_all_other_members_as_they_are() {
        let plain =
            array(&format!(r#"[{{"name": "transpose", "configuration": {{"order": [1, 0]}}}}, {LITTLE}]"#)).unwrap();
        let packed = plain.sharded(&[16, 8], None).unwrap();
        assert!(packed.to_json().contains(r#""attributes": {"a": 1e400}"#));
        assert!(packed.to_json().contains(r#""later": {"must_understand": false, "x": 1}"#));
        assert_eq!((packed.chunk_grid(), packed.chunk_shape()), (plain.chunk_grid(), plain.chunk_shape()));
        let again = packed.sharded(&[8, 4], Some(IndexLocation::Start)).unwrap();
        assert_eq!(again.sharding().unwrap().index.location(), IndexLocation::Start);
        assert_eq!(again.unsharded().unwrap().codecs, plain.codecs);
        for shape in [&[16, 7][..], &[4, 4], &[16], &[0, 8]] {
            assert_eq!(plain.sharded(shape, None).unwrap_err().kind(), ErrorKind::InvalidInput, "{shape:?}");
        }
    }
}
