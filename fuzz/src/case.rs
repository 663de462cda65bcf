//! A shard as an input: raw bytes after a header that chooses the specification, or a description that is laid out.

use std::io::Write;

use arbitrary::Arbitrary;
use flate2::Compression;
use flate2::write::GzEncoder;
use sharddb::ShardingSpec;
use sharddb::shard::Shard;
use sharddb::spec::{Encoding, HashFunction};

use crate::naive;

/// Length of the header of a raw input, which chooses the specification.
pub const HEADER: usize = 4;

/// Upper bound on minishard bits. Larger shard indexes only slow the fuzzer down.
const MAX_MINISHARD_BITS: u8 = 6;

/// A specification and the bytes of shard 0.
#[derive(Clone, Debug)]
pub struct ShardCase {
    pub naive: naive::Spec,
    pub spec: ShardingSpec,
    pub bytes: Vec<u8>,
}

impl ShardCase {
    pub fn new(naive: naive::Spec, bytes: Vec<u8>) -> ShardCase {
        let encoding = |gzip| if gzip { Encoding::Gzip } else { Encoding::Raw };
        let hash = if naive.murmur { HashFunction::MurmurHash3X86_128 } else { HashFunction::Identity };
        let bits = [naive.preshift_bits, naive.minishard_bits, naive.shard_bits].map(|bits| bits as u8);
        let spec = ShardingSpec::new(hash, bits[0], bits[1], bits[2]).unwrap();
        let spec = spec.with_minishard_index_encoding(encoding(naive.gzip_index));
        ShardCase { naive, spec: spec.with_data_encoding(encoding(naive.gzip_data)), bytes }
    }

    /// Parses a header and a shard; `None` if the header is incomplete.
    pub fn of_bytes(input: &[u8]) -> Option<ShardCase> {
        let ([flags, preshift, minishard_bits, shard_bits], bytes) = input.split_first_chunk::<HEADER>()?;
        let naive = naive::Spec {
            murmur: flags & 1 != 0,
            gzip_index: flags & 2 != 0,
            gzip_data: flags & 4 != 0,
            preshift_bits: u32::from(preshift % 65),
            minishard_bits: u32::from(minishard_bits % (MAX_MINISHARD_BITS + 1)),
            shard_bits: u32::from(shard_bits % 9),
        };
        Some(ShardCase::new(naive, bytes.to_vec()))
    }

    /// The input from which `of_bytes` makes this case.
    pub fn to_bytes(&self) -> Vec<u8> {
        let naive::Spec { murmur, preshift_bits, minishard_bits, shard_bits, gzip_index, gzip_data } = self.naive;
        let flags = u8::from(murmur) | u8::from(gzip_index) << 1 | u8::from(gzip_data) << 2;
        [&[flags, preshift_bits as u8, minishard_bits as u8, shard_bits as u8], &self.bytes[..]].concat()
    }

    pub fn shard(&self) -> Shard {
        Shard::from_bytes(self.spec, self.spec.shard(0).unwrap(), self.bytes.clone())
    }

    /// Interesting keys: the ids of rows, their neighbours, and special values.
    pub fn keys(&self) -> Vec<u64> {
        let mut keys = vec![0, 1, 2, 3, 7, 1000, 1_099_511_627_781, 1 << 63, u64::MAX];
        for minishard in 0..1 << self.naive.minishard_bits {
            let rows = self.naive.rows(&self.bytes, minishard).unwrap_or_default();
            let (first, last) = (rows.iter().take(8), rows.iter().rev().take(2));
            keys.extend(first.chain(last).flat_map(|row| [row.id, row.id.wrapping_add(1)]));
            keys.push(minishard); // where the hash is the identity
        }
        keys
    }
}

/// The description of a shard, which is laid out correctly and then edited.
#[derive(Arbitrary, Debug)]
pub struct DescribedShard {
    murmur: bool,
    gzip_index: bool,
    gzip_data: bool,
    preshift_bits: u8,
    minishard_bits: u8,
    values_first: bool,
    pairs: Vec<DescribedPair>,
    /// Words of the shard index to replace.
    entries: Vec<(u8, u64)>,
    /// Bytes to change at the end.
    changed: Vec<(u16, u8)>,
    cut: Option<u16>,
}

#[derive(Arbitrary, Debug)]
struct DescribedPair {
    key: DescribedKey,
    value: Vec<u8>,
    gap: u8,
    /// Replacements of the right offset and size.
    start: Option<u64>,
    size: Option<u64>,
    /// Bytes after the encoded value to include in its range.
    behind: u8,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum DescribedKey {
    Small(u8),
    Any(u64),
}

impl DescribedShard {
    pub fn lay_out(&self) -> ShardCase {
        let minishard_bits = u32::from(self.minishard_bits % 4);
        let naive = naive::Spec {
            murmur: self.murmur,
            preshift_bits: u32::from(self.preshift_bits % 65),
            minishard_bits,
            shard_bits: 0,
            gzip_index: self.gzip_index,
            gzip_data: self.gzip_data,
        };
        let (mut entries, mut body) = (Vec::new(), Vec::new());
        for minishard in 0..1 << minishard_bits {
            let pairs: Vec<_> = self.pairs.iter().filter(|pair| naive.place(pair.key.get()).1 == minishard).collect();
            let start = body.len() as u64;
            if pairs.is_empty() {
                entries.push((start, start));
            } else {
                entries.push(self.lay_out_minishard(&pairs, &mut body));
            }
        }
        let mut words: Vec<u64> = entries.into_iter().flat_map(|(start, end)| [start, end]).collect();
        for (at, word) in &self.entries {
            let at = usize::from(*at) % words.len();
            words[at] = *word;
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).chain(body).collect();
        for (at, change) in &self.changed {
            let at = usize::from(*at) % bytes.len();
            bytes[at] ^= change;
        }
        if let Some(len) = self.cut {
            bytes.truncate(usize::from(len));
        }
        ShardCase::new(naive, bytes)
    }

    /// Lays out the values and the index of one minishard; returns the range of the encoded index.
    fn lay_out_minishard(&self, pairs: &[&DescribedPair], body: &mut Vec<u8>) -> (u64, u64) {
        // a raw index may precede its values, because its length is known
        let index_first = !self.values_first && !self.gzip_index;
        let index_start = body.len();
        if index_first {
            body.resize(index_start + 24 * pairs.len(), 0);
        }
        let mut columns = [vec![], vec![], vec![]];
        let (mut id, mut end) = (0u64, 0u64);
        for pair in pairs {
            body.resize(body.len() + usize::from(pair.gap % 16), 0xaa);
            let start = pair.start.unwrap_or(body.len() as u64);
            body.extend_from_slice(&encoded(&pair.value, self.gzip_data));
            let behind = usize::from(pair.behind.saturating_sub(240));
            body.resize(body.len() + behind, 0);
            let size = pair.size.unwrap_or((body.len() as u64).wrapping_sub(start));
            columns[0].push(pair.key.get().wrapping_sub(id));
            columns[1].push(start.wrapping_sub(end));
            columns[2].push(size);
            (id, end) = (pair.key.get(), start.wrapping_add(size));
        }
        let index: Vec<u8> = columns.concat().iter().flat_map(|word| word.to_le_bytes()).collect();
        if index_first {
            body[index_start..][..index.len()].copy_from_slice(&index);
            return (index_start as u64, (index_start + index.len()) as u64);
        }
        let start = body.len() as u64;
        body.extend_from_slice(&encoded(&index, self.gzip_index));
        (start, body.len() as u64)
    }
}

impl DescribedKey {
    fn get(self) -> u64 {
        match self {
            DescribedKey::Small(key) => key.into(),
            DescribedKey::Any(key) => key,
        }
    }
}

/// The unchanged bytes, or one gzip member.
pub fn encoded(bytes: &[u8], gzip: bool) -> Vec<u8> {
    if !gzip {
        return bytes.to_vec();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
