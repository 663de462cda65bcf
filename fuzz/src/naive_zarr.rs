//! A simple reader of the shard index of Zarr, written from its specification, for arrays whose only codec is sharding.

use serde_json::Value as Json;
use sharddb_container::zarr::ZarrMetadata;

/// The layout of the index of a shard.
pub struct Sharding {
    chunks: usize,
    is_big_endian: bool,
    pub crc32c: bool,
    at_start: bool,
    /// Whether all chunks have one length, so that a reader may refuse other lengths.
    pub fixed_len: bool,
}

impl Sharding {
    /// Parses the metadata; `None` for arrays that this reader does not support.
    pub fn of(text: &str) -> Option<Sharding> {
        let array: Json = serde_json::from_str(text).ok()?;
        let [codec] = &array["codecs"].as_array()?[..] else { return None };
        let configuration = &codec["configuration"];
        let lengths = |value: &Json| value.as_array()?.iter().map(Json::as_u64).collect::<Option<Vec<_>>>();
        let shard = lengths(&array["chunk_grid"]["configuration"]["chunk_shape"])?;
        let chunk = lengths(&configuration["chunk_shape"])?;
        let names = |value: &Json| {
            let name = |codec: &Json| codec["name"].as_str().map(str::to_string);
            value.as_array()?.iter().map(name).collect::<Option<Vec<_>>>()
        };
        let index = names(&configuration["index_codecs"])?;
        let crc32c = match &index.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["bytes"] => false,
            ["bytes", "crc32c"] => true,
            _ => return None,
        };
        let is_big_endian = match configuration["index_codecs"][0]["configuration"]["endian"].as_str()? {
            "little" => false,
            "big" => true,
            _ => return None,
        };
        let at_start = match &configuration["index_location"] {
            Json::Null => false,
            location => location.as_str()? == "start",
        };
        let known = |name: &String| !["gzip", "zstd", "blosc"].contains(&name.as_str());
        Some(Sharding {
            chunks: usize::try_from(count(&cells(&shard, &chunk))).ok()?,
            is_big_endian,
            crc32c,
            at_start,
            fixed_len: names(&configuration["codecs"])?.iter().all(known),
        })
    }

    /// The bytes of a chunk; `None` if absent, `Err` if they cannot be determined.
    pub fn chunk<'a>(&self, shard: &'a [u8], entry: u64) -> Result<Option<&'a [u8]>, ()> {
        let len = self.chunks * 16 + if self.crc32c { 4 } else { 0 };
        let start = if self.at_start { 0 } else { shard.len().checked_sub(len).ok_or(())? };
        let index = shard.get(start..start + len).ok_or(())?;
        let word = |at: usize| {
            let bytes = index[at..at + 8].try_into().unwrap();
            if self.is_big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
        };
        let (offset, nbytes) = (word(entry as usize * 16), word(entry as usize * 16 + 8));
        if (offset, nbytes) == (u64::MAX, u64::MAX) {
            return Ok(None);
        }
        let end = offset.checked_add(nbytes).filter(|end| *end <= shard.len() as u64 && nbytes > 0).ok_or(())?;
        Ok(Some(&shard[offset as usize..end as usize]))
    }
}

/// The number of pieces that cover each dimension.
pub fn cells(shape: &[u64], piece: &[u64]) -> Vec<u64> {
    shape.iter().zip(piece).map(|(len, piece)| len.div_ceil(*piece)).collect()
}

/// The number of cells of a grid; saturates.
pub fn count(grid: &[u64]) -> u64 {
    grid.iter().fold(1, |all, cells| all.saturating_mul(*cells))
}

/// The position of a cell number in C order; `None` if it is outside the grid.
pub fn position(grid: &[u64], number: u64) -> Option<Vec<u64>> {
    let (mut rest, mut position) = (number, Vec::new());
    for cells in grid.iter().rev() {
        position.insert(0, rest.checked_rem(*cells)?);
        rest /= cells;
    }
    (rest == 0).then_some(position)
}

/// The shard of a chunk and the entry in its index, for arrays without a transpose.
pub fn place(metadata: &ZarrMetadata, position: &[u64]) -> (u64, u64) {
    let shards = cells(metadata.shape(), metadata.shard_shape());
    let per_shard = cells(metadata.shard_shape(), metadata.chunk_shape());
    let (mut shard, mut entry) = (0, 0);
    for ((at, shards), per_shard) in position.iter().zip(&shards).zip(&per_shard) {
        shard = shard * shards + at / per_shard;
        entry = entry * per_shard + at % per_shard;
    }
    (shard, entry)
}

/// The file name of a shard.
pub fn path(text: &str, position: &[u64]) -> Option<String> {
    let array: Json = serde_json::from_str(text).ok()?;
    let encoding = &array["chunk_key_encoding"];
    let is_default = encoding["name"].as_str().or(encoding.as_str())? == "default";
    let separator = encoding["configuration"]["separator"].as_str().unwrap_or(if is_default { "/" } else { "." });
    let cells: Vec<_> = position.iter().map(u64::to_string).collect();
    Some(match (is_default, cells.is_empty()) {
        (true, true) => "c".to_string(),
        (true, false) => format!("c{separator}{}", cells.join(separator)),
        (false, true) => "0".to_string(),
        (false, false) => cells.join(separator),
    })
}
