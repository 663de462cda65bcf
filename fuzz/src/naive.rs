//! A reader of one shard, written from the text of the format for simplicity: 128-bit sums, copies, and the crates
//! `murmur3` and `flate2` instead of the library's own code.

use std::io::Read;

/// The bytes break a rule of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// The members of a sharding specification.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub murmur: bool,
    pub preshift_bits: u32,
    pub minishard_bits: u32,
    pub shard_bits: u32,
    pub gzip_index: bool,
    pub gzip_data: bool,
}

/// A row of a minishard index: id, and the range of its value relative to the end of the shard index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: u64,
    pub start: u64,
    pub end: u64,
}

impl Spec {
    /// The shard and the minishard of a key.
    pub fn place(&self, key: u64) -> (u64, u64) {
        let shifted = (u128::from(key) >> self.preshift_bits) as u64;
        let digest = || murmur3::murmur3_x86_128(&mut &shifted.to_le_bytes()[..], 0).unwrap();
        let hashed = u128::from(if self.murmur { digest() as u64 } else { shifted });
        let low = |value: u128, bits: u32| (value & ((1 << bits) - 1)) as u64;
        (low(hashed >> self.minishard_bits, self.shard_bits), low(hashed, self.minishard_bits))
    }

    /// The value of a key of shard 0.
    ///
    /// If a row is not a possible range of any file, the entire index may be damaged. Then a key that no row has may
    /// still be present, and its lookup is an error (docs/format.md).
    pub fn get(&self, shard: &[u8], key: u64) -> Result<Option<Vec<u8>>, Broken> {
        let (number, minishard) = self.place(key);
        if number != 0 {
            return Ok(None);
        }
        let rows = self.rows(shard, minishard)?;
        match rows.iter().find(|row| row.id == key) {
            Some(row) => self.value(shard, *row).map(Some),
            None if rows.iter().any(|row| row.start > row.end || row.end > i64::MAX as u64) => Err(Broken),
            None => Ok(None),
        }
    }

    /// The stored index of a minishard; empty if it has no keys.
    pub fn index<'a>(&self, shard: &'a [u8], minishard: u64) -> Result<&'a [u8], Broken> {
        let entry = slice(shard, u128::from(minishard) * 16, u128::from(minishard) * 16 + 16)?;
        match (word(entry, 0), word(entry, 1)) {
            (start, end) if start == end => Ok(&[]),
            (start, end) => self.stored(shard, start, end),
        }
    }

    /// The rows of a minishard in stored order.
    pub fn rows(&self, shard: &[u8], minishard: u64) -> Result<Vec<Row>, Broken> {
        let stored = self.index(shard, minishard)?;
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let index = decode(stored, self.gzip_index)?;
        if index.len() % 24 != 0 {
            return Err(Broken);
        }
        let n = index.len() / 24;
        let (mut id, mut end) = (0u64, 0u64);
        let row = |i| {
            id = id.wrapping_add(word(&index, i));
            let start = end.wrapping_add(word(&index, n + i));
            end = start.wrapping_add(word(&index, 2 * n + i));
            Row { id, start, end }
        };
        Ok((0..n).map(row).collect())
    }

    pub fn value(&self, shard: &[u8], row: Row) -> Result<Vec<u8>, Broken> {
        decode(self.stored(shard, row.start, row.end)?, self.gzip_data)
    }

    /// The bytes of a range that is relative to the end of the shard index.
    pub fn stored<'a>(&self, shard: &'a [u8], start: u64, end: u64) -> Result<&'a [u8], Broken> {
        let base = 16u128 << self.minishard_bits;
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

/// The unchanged bytes, or the content of exactly one gzip member.
pub fn decode(stored: &[u8], gzip: bool) -> Result<Vec<u8>, Broken> {
    if !gzip {
        return Ok(stored.to_vec());
    }
    let mut decoder = flate2::bufread::GzDecoder::new(stored);
    let mut decoded = Vec::new();
    decoder.read_to_end(&mut decoded).map_err(|_| Broken)?;
    if decoder.into_inner().is_empty() { Ok(decoded) } else { Err(Broken) }
}
