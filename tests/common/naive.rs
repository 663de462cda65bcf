//! A reader of one shard, written from the text of the format alone, for simplicity and not for speed.
//!
//! It shares no code with the library: it uses the crates murmur3 and flate2 (with miniz_oxide), where the library has
//! its own murmur3 and uses zlib-rs, and it adds in 128 bits, which cannot overflow.

use std::io::Read;

use serde_json::Value as Json;

use super::text;

/// A sharding specification.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NaiveSpec {
    pub(crate) murmur: bool,
    pub(crate) preshift_bits: u32,
    pub(crate) minishard_bits: u32,
    pub(crate) shard_bits: u32,
    pub(crate) gzip_index: bool,
    pub(crate) gzip_data: bool,
}

/// An entry of a minishard index; the range is relative to the end of the shard index and may be nonsense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NaiveRow {
    pub(crate) id: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The bytes break a rule of the format.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl NaiveSpec {
    pub(crate) fn of(sharding: &Json) -> NaiveSpec {
        let bits = |name: &str| u32::try_from(sharding[name].as_u64().unwrap()).unwrap();
        let gzip = |name: &str| sharding.get(name).is_some_and(|encoding| text(encoding) == "gzip");
        NaiveSpec {
            murmur: text(&sharding["hash"]) == "murmurhash3_x86_128",
            preshift_bits: bits("preshift_bits"),
            minishard_bits: bits("minishard_bits"),
            shard_bits: bits("shard_bits"),
            gzip_index: gzip("minishard_index_encoding"),
            gzip_data: gzip("data_encoding"),
        }
    }

    /// The shard and minishard of a key.
    pub(crate) fn place(&self, key: u64) -> (u64, u64) {
        let shifted = u64::try_from(u128::from(key) >> self.preshift_bits).unwrap();
        let hashed = if self.murmur { murmur(shifted) } else { shifted };
        let low = |value: u128, bits: u32| u64::try_from(value & ((1 << bits) - 1)).unwrap();
        let above = u128::from(hashed) >> self.minishard_bits;
        (low(above, self.shard_bits), low(u128::from(hashed), self.minishard_bits))
    }

    /// The length of the shard index: 16 bytes per minishard.
    pub(crate) fn base(&self) -> u64 {
        16 << self.minishard_bits
    }

    /// The entry of a minishard in the shard index: start and end of its index, relative to the end of the shard index.
    pub(crate) fn shard_index_entry(&self, shard: &[u8], minishard: u64) -> Result<(u64, u64), Broken> {
        let entry = slice(shard, u128::from(minishard) * 16, u128::from(minishard) * 16 + 16)?;
        Ok((word(entry, 0), word(entry, 1)))
    }

    /// The rows of a minishard in stored order.
    pub(crate) fn rows(&self, shard: &[u8], minishard: u64) -> Result<Vec<NaiveRow>, Broken> {
        let (start, end) = self.shard_index_entry(shard, minishard)?;
        if start == end {
            return Ok(Vec::new());
        }
        let index = decode(self.stored(shard, start, end)?, self.gzip_index)?;
        if index.len() % 24 != 0 {
            return Err(Broken);
        }
        let n = index.len() / 24;
        let (mut id, mut end) = (0u64, 0u64);
        let row = |i| {
            id = id.wrapping_add(word(&index, i));
            let start = end.wrapping_add(word(&index, n + i));
            end = start.wrapping_add(word(&index, 2 * n + i));
            NaiveRow { id, start, end }
        };
        Ok((0..n).map(row).collect())
    }

    /// The decoded value of a row.
    pub(crate) fn value(&self, shard: &[u8], row: NaiveRow) -> Result<Vec<u8>, Broken> {
        decode(self.stored(shard, row.start, row.end)?, self.gzip_data)
    }

    /// The value of a key of this shard.
    pub(crate) fn get(&self, shard: &[u8], key: u64) -> Result<Option<Vec<u8>>, Broken> {
        let rows = self.rows(shard, self.place(key).1)?;
        rows.iter().find(|row| row.id == key).map(|row| self.value(shard, *row)).transpose()
    }

    /// The bytes of a range that is relative to the end of the shard index.
    pub(crate) fn stored<'a>(&self, shard: &'a [u8], start: u64, end: u64) -> Result<&'a [u8], Broken> {
        let base = u128::from(self.base());
        slice(shard, base + u128::from(start), base + u128::from(end))
    }
}

fn slice(bytes: &[u8], start: u128, end: u128) -> Result<&[u8], Broken> {
    let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else { return Err(Broken) };
    bytes.get(start..end).ok_or(Broken)
}

fn word(bytes: &[u8], number: usize) -> u64 {
    u64::from_le_bytes(bytes[number * 8..][..8].try_into().unwrap())
}

fn murmur(input: u64) -> u64 {
    let digest = murmur3::murmur3_x86_128(&mut &input.to_le_bytes()[..], 0).unwrap();
    u64::try_from(digest & u128::from(u64::MAX)).unwrap()
}

/// The unchanged bytes, or the content of exactly one gzip member.
fn decode(stored: &[u8], gzip: bool) -> Result<Vec<u8>, Broken> {
    if !gzip {
        return Ok(stored.to_vec());
    }
    let mut decoder = flate2::bufread::GzDecoder::new(stored);
    let mut decoded = Vec::new();
    decoder.read_to_end(&mut decoded).map_err(|_| Broken)?;
    if decoder.into_inner().is_empty() { Ok(decoded) } else { Err(Broken) }
}
