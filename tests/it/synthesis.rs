//! A writer of data sets that are legal but unusual: any order, any placement, gaps, shared and nested extents,
//! duplicate and misplaced ids.
//!
//! It returns the expected results of a reader.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use flate2::{Compression, GzBuilder};
use serde_json::{Value as Json, json};

use crate::common::naive::NaiveSpec;

type Pair = (u64, Vec<u8>);

/// A shard and a minishard.
type Place = (u64, u64);

/// A data set: its files and its content.
pub(crate) struct Synthesis {
    pub(crate) sharding: Json,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// The expected results of lookups.
    pub(crate) pairs: BTreeMap<u64, Vec<u8>>,
    /// The expected listing, in storage order, with duplicate and misplaced ids.
    pub(crate) listing: Vec<Listed>,
}

/// A row of some minishard index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: u64,
    pub(crate) value: Vec<u8>,
    /// The bytes between the stored value and the extent before it.
    pub(crate) preamble: Vec<u8>,
}

/// A shard being written: the bytes after the shard index, and the extents that an index names.
#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    extents: Vec<Extent>,
    /// The extents of values that are not empty.
    values: Vec<Extent>,
}

/// A range of bytes, relative to the end of the shard index.
#[derive(Clone, Copy, Debug)]
struct Extent {
    start: usize,
    len: usize,
}

impl Synthesis {
    pub(crate) fn new(pairs: &[Pair], seed: u64) -> Synthesis {
        let mut random = Random(seed | 1);
        let spec = random.spec();
        let mut placed: BTreeMap<Place, Vec<Pair>> = BTreeMap::new();
        for (id, value) in pairs {
            let place = if random.one_in(20) { random.place(&spec) } else { spec.place(*id) };
            placed.entry(place).or_default().push((*id, value.clone()));
        }
        let mut synthesis = Synthesis {
            sharding: sharding(&spec),
            files: BTreeMap::new(),
            pairs: BTreeMap::new(),
            listing: Vec::new(),
        };
        for ((shard, minishard), rows) in &mut placed {
            random.arrange(rows);
            for (id, value) in rows.iter().filter(|(id, _)| spec.place(*id) == (*shard, *minishard)) {
                synthesis.pairs.entry(*id).or_insert_with(|| value.clone()); // the first in stored order
            }
        }
        let shards: BTreeSet<u64> = placed.keys().map(|(shard, _)| *shard).collect();
        for shard in shards {
            let minishards = (0..1 << spec.minishard_bits).map(|at| placed.remove(&(shard, at)).unwrap_or_default());
            synthesis.write_shard(shard, &minishards.collect::<Vec<_>>(), &spec, &mut random);
        }
        synthesis
    }

    fn write_shard(&mut self, shard: u64, minishards: &[Vec<Pair>], spec: &NaiveSpec, random: &mut Random) {
        let mut body = Body::default();
        let mut values = BTreeMap::new();
        let mut indexes = BTreeMap::new();
        for (minishard, piece) in pieces(minishards, random) {
            let rows = &minishards[minishard];
            match piece {
                Piece::Value(row) => {
                    let encoded = encode(&rows[row].1, spec.gzip_data, random);
                    values.insert((minishard, row), body.place(&encoded, random));
                }
                // the length of a raw index is known; its content is filled in later
                Piece::Index if !spec.gzip_index => {
                    indexes.insert(minishard, body.append(&vec![0; rows.len() * 24], random));
                }
                Piece::Index => {}
            }
        }
        for (minishard, rows) in minishards.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let extents: Vec<Extent> = (0..rows.len()).map(|row| values[&(minishard, row)]).collect();
            let index = index(rows, &extents);
            match indexes.get(&minishard) {
                Some(room) => body.bytes[room.start..][..room.len].copy_from_slice(&index),
                None => drop(indexes.insert(minishard, body.append(&encode(&index, true, random), random))),
            }
        }
        body.bytes.extend(random.gap()); // bytes after the last extent, which no index names

        for (minishard, rows) in minishards.iter().enumerate() {
            for (row, (id, value)) in rows.iter().enumerate() {
                let preamble = body.preamble(values[&(minishard, row)]).to_vec();
                self.listing.push(Listed { id: *id, value: value.clone(), preamble });
            }
        }
        let digits = usize::try_from(spec.shard_bits.div_ceil(4)).unwrap();
        let mut file = shard_index(minishards.len(), &indexes, random);
        file.extend(body.bytes);
        self.files.insert(format!("{shard:0digits$x}.shard"), file);
    }
}

/// A piece of a shard to be placed.
#[derive(Clone, Copy)]
enum Piece {
    Value(usize),
    Index,
}

/// The pieces of all minishards, in order or shuffled.
fn pieces(minishards: &[Vec<Pair>], random: &mut Random) -> Vec<(usize, Piece)> {
    let mut pieces = Vec::new();
    for (minishard, rows) in minishards.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        pieces.extend((0..rows.len()).map(|row| (minishard, Piece::Value(row))));
        pieces.push((minishard, Piece::Index));
    }
    if random.one_in(2) {
        random.shuffle(&mut pieces);
    }
    pieces
}

impl Body {
    /// Appends bytes, perhaps after a gap.
    fn append(&mut self, bytes: &[u8], random: &mut Random) -> Extent {
        self.bytes.extend(random.gap());
        let extent = Extent { start: self.bytes.len(), len: bytes.len() };
        self.bytes.extend(bytes);
        self.extents.push(extent);
        extent
    }

    /// Places a value: on equal bytes that are already there, if any, otherwise at the end.
    fn place(&mut self, bytes: &[u8], random: &mut Random) -> Extent {
        let known = if bytes.is_empty() { Some(random.below(self.bytes.len() + 1)) } else { self.find(bytes) };
        let extent = match known {
            Some(start) if random.one_in(2) => Extent { start, len: bytes.len() },
            _ => return self.append_value(bytes, random),
        };
        self.extents.push(extent);
        extent
    }

    fn append_value(&mut self, bytes: &[u8], random: &mut Random) -> Extent {
        let extent = self.append(bytes, random);
        self.values.push(extent);
        extent
    }

    /// Finds the bytes within a value. Indexes are not searched, because they may still change.
    fn find(&self, bytes: &[u8]) -> Option<usize> {
        let within = |value: &Extent| {
            let value_bytes = &self.bytes[value.start..][..value.len];
            value_bytes.windows(bytes.len()).position(|window| window == bytes).map(|at| value.start + at)
        };
        self.values.iter().find_map(within)
    }

    /// The bytes before a value that no index names, back to the nearest extent before it. An empty value precedes
    /// another one that begins at the same offset.
    fn preamble(&self, value: Extent) -> &[u8] {
        let end = value.start;
        let mut named = vec![false; end];
        let mut ends = vec![false; end + 1];
        for extent in &self.extents {
            let before = extent.start < end || (extent.start == end && extent.len == 0 && value.len > 0);
            if before {
                let extent_end = (extent.start + extent.len).min(end);
                named[extent.start..extent_end].fill(true);
                ends[extent_end] = true;
            }
        }
        let mut start = end;
        while start > 0 && !named[start - 1] && !ends[start] {
            start -= 1;
        }
        &self.bytes[start..end]
    }
}

fn sharding(spec: &NaiveSpec) -> Json {
    let encoding = |gzip| if gzip { "gzip" } else { "raw" };
    json!({
        "@type": "neuroglancer_uint64_sharded_v1",
        "hash": if spec.murmur { "murmurhash3_x86_128" } else { "identity" },
        "preshift_bits": spec.preshift_bits,
        "minishard_bits": spec.minishard_bits,
        "shard_bits": spec.shard_bits,
        "minishard_index_encoding": encoding(spec.gzip_index),
        "data_encoding": encoding(spec.gzip_data),
    })
}

fn shard_index(minishards: usize, indexes: &BTreeMap<usize, Extent>, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for minishard in 0..minishards {
        let (start, end) = match indexes.get(&minishard) {
            Some(extent) => (extent.start as u64, (extent.start + extent.len) as u64),
            None if random.one_in(2) => (0, 0),
            None => [random.next(); 2].into(), // any start == end is an empty minishard
        };
        bytes.extend(start.to_le_bytes());
        bytes.extend(end.to_le_bytes());
    }
    bytes
}

/// A minishard index of three rows; the first two hold differences, which may wrap.
fn index(rows: &[Pair], extents: &[Extent]) -> Vec<u8> {
    let (mut ids, mut starts, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut last_id, mut last_end) = (0u64, 0u64);
    for ((id, _), extent) in rows.iter().zip(extents) {
        let (start, size) = (extent.start as u64, extent.len as u64);
        ids.push(id.wrapping_sub(last_id));
        starts.push(start.wrapping_sub(last_end));
        sizes.push(size);
        (last_id, last_end) = (*id, start + size);
    }
    [ids, starts, sizes].concat().into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The unchanged bytes, or a gzip member with a random header and level.
fn encode(bytes: &[u8], gzip: bool, random: &mut Random) -> Vec<u8> {
    if !gzip {
        return bytes.to_vec();
    }
    let mut builder = GzBuilder::new().mtime(u32::from(random.next().to_le_bytes()[0]));
    if random.one_in(4) {
        builder = builder.filename("name").comment("comment").extra(vec![1, 2, 3]);
    }
    let level = u32::try_from(random.below(10)).unwrap();
    let mut encoder = builder.write(Vec::new(), Compression::new(level));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A small source of decisions (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from((u128::from(self.next()) * n as u128) >> 64).unwrap()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn spec(&mut self) -> NaiveSpec {
        NaiveSpec {
            murmur: self.one_in(2),
            preshift_bits: [0, 0, 1, 9, 63, 64][self.below(6)],
            minishard_bits: [0, 1, 3][self.below(3)],
            shard_bits: [0, 1, 5][self.below(3)],
            gzip_index: self.one_in(3),
            gzip_data: self.one_in(3),
        }
    }

    /// A random shard and minishard.
    fn place(&mut self, spec: &NaiveSpec) -> Place {
        (self.below(1 << spec.shard_bits) as u64, self.below(1 << spec.minishard_bits) as u64)
    }

    /// Rows ascending by id, as most writers leave them, or in any order.
    fn arrange(&mut self, rows: &mut [Pair]) {
        if self.one_in(2) { rows.sort() } else { self.shuffle(rows) }
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }

    /// No bytes, or some that no index names.
    fn gap(&mut self) -> Vec<u8> {
        let len = if self.one_in(2) { 0 } else { self.below(20) };
        (0..len).map(|_| self.next().to_le_bytes()[0] | 1).collect()
    }
}
