//! A test case for the loader, drawn from a stream of numbers: options, two settings of memory and threads, and pairs.
//!
//! The bytes of a pair are generated from a few numbers, so a few bytes of a fuzz input suffice for a case of many MiB.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::{BuildOptions, OnDuplicate, Profile, ShardingSpec};

/// The size of cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size<'a> {
    /// The memory of the first build; the second has at least as much.
    pub(crate) memory: u64,
    /// Lengths at which the loader changes its behaviour: the limits of a batch, a pair, a run and all batches for one
    /// to four threads, and block sizes. Lengths of pairs are often drawn around them.
    pub(crate) thresholds: &'a [u64],
    /// Maximum number of bytes of all pairs of a case.
    pub(crate) most_bytes: u64,
}

/// Small cases, with memory that only tests and fuzz targets of this crate may set. The blocks are those of runs.
pub(crate) const SMALL: Size = Size {
    memory: 256 << 10,
    thresholds: &[7 << 10, (28 << 10) / 3, 14 << 10, 28 << 10, 56 << 10, 224 << 10, 8 << 10, 24 << 10],
    most_bytes: 1 << 20,
};

/// Maximum distance of a drawn length from a threshold. Larger than the overhead of a pair, which is 86 bytes.
const AROUND: u64 = 128;

/// Maximum number of pairs. Enough for several minishards that are too large to be collected in memory.
const MAX_PAIRS: usize = 4000;

/// Maximum number of pairs that a failure shows.
const MAX_SHOWN: usize = 50;

/// A source of the numbers of a case.
pub(crate) trait Draw {
    /// Returns a number below `n`, which is at least 1.
    fn below(&mut self, n: u64) -> u64;

    /// Returns whether the stream has ended. All further numbers are 0.
    fn ended(&self) -> bool;
}

/// An endless stream of pseudo-random numbers (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

/// The numbers of a fuzz input. Each takes as few bytes as its range needs.
#[cfg_attr(test, expect(dead_code, reason = "for the fuzz target, which includes this file"))]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

/// Pairs in insertion order, and the options to build them with.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) on_duplicate: OnDuplicate,
    /// `None` if the specification is planned.
    pub(crate) spec: Option<ShardingSpec>,
    pub(crate) profile: Profile,
    pub(crate) data_encoding: Encoding,
    pub(crate) index_encoding: Encoding,
    pub(crate) checks: bool,
    pub(crate) alignment: u64,
    /// Whether a key file is written.
    pub(crate) ordered: bool,
    /// Memory and threads of two builds. Both must write the same files.
    pub(crate) settings: [(u64, usize); 2],
    pub(crate) pairs: Vec<Pair>,
}

/// A description of a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) key: u64,
    pub(crate) preamble_len: usize,
    pub(crate) value_len: usize,
    /// Unique within a case. If even, the bytes repeat and so are compressible.
    pub(crate) content: u64,
    pub(crate) how: How,
}

/// How a pair is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By `insert` if the pair has no preamble, else by `insert_with_preamble`.
    Slices,
    /// By `insert_reader`, from a reader that returns at most `piece` bytes per call.
    Reader { piece: usize },
}

/// The distribution of the lengths of a case.
#[derive(Clone, Copy)]
enum Lengths {
    Mixed,
    /// Many pairs, so that there are several runs.
    Small,
    /// Many pairs that are too large for a batch.
    Large,
}

/// The keys of a case. Few distinct keys produce many duplicates.
struct Keys {
    distinct: u64,
    /// There are no duplicate keys.
    unique: bool,
    next: u64,
    spread: u64,
}

impl Draw for Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % n
    }

    fn ended(&self) -> bool {
        false
    }
}

impl Draw for Input<'_> {
    fn below(&mut self, n: u64) -> u64 {
        let mut number = 0;
        let mut largest = n - 1;
        while largest > 0 {
            let Some((byte, rest)) = self.0.split_first() else { return 0 };
            self.0 = rest;
            number = number << 8 | u64::from(*byte);
            largest >>= 8;
        }
        number % n
    }

    fn ended(&self) -> bool {
        self.0.is_empty()
    }
}

impl Case {
    /// Draws a case of this size.
    pub(crate) fn draw(draw: &mut dyn Draw, size: &Size) -> Case {
        let on_duplicate =
            one_of(draw, &[&OnDuplicate::KeepFirst, &OnDuplicate::KeepLast, &OnDuplicate::Error]).clone();
        let encoding =
            |draw: &mut dyn Draw| one_of(draw, &[Encoding::Raw, Encoding::Raw, Encoding::Raw, Encoding::Gzip]);
        let (data_encoding, index_encoding) = (encoding(draw), encoding(draw));
        let spec = (draw.below(2) == 0)
            .then(|| draw_spec(draw).with_data_encoding(data_encoding).with_minishard_index_encoding(index_encoding));
        let threads = |draw: &mut dyn Draw| draw.below(4) as usize + 1;
        let settings = [(size.memory, threads(draw)), (size.memory * one_of(draw, &[1, 1, 2, 3, 256]), threads(draw))];
        let mut case = Case {
            on_duplicate,
            spec,
            profile: one_of(draw, &[Profile::Local, Profile::Remote]),
            data_encoding,
            index_encoding,
            checks: draw.below(4) != 3,
            alignment: one_of(draw, &[1, 1, 1, 4, 8, 8, 16, 64, 4096]),
            settings,
            pairs: Vec::new(),
            ordered: false,
        };
        case.draw_pairs(draw, size);
        case.ordered = draw.below(3) == 0; // last, so that older corpora draw the same cases
        case
    }

    /// Draws pairs in groups of equal lengths.
    fn draw_pairs(&mut self, draw: &mut dyn Draw, size: &Size) {
        let mut keys = Keys {
            distinct: one_of(draw, &[3, 1, 8, 60, 1000, u64::MAX]),
            unique: matches!(self.on_duplicate, OnDuplicate::Error) && draw.below(3) != 0,
            next: 0,
            spread: 1,
        };
        let spread = |draw: &mut dyn Draw| one_of(draw, &[1, 1 << 7, 1 << 40, 0x9e37_79b9_7f4a_7c15, u64::MAX]);
        let spreads = [spread(draw), spread(draw)]; // the second is used later: an early plan may be wrong
        let with_preambles = draw.below(2) == 0;
        let lengths = one_of(draw, &[Lengths::Mixed, Lengths::Mixed, Lengths::Small, Lengths::Large]);
        let most_bytes = size.most_bytes / one_of(draw, &[1, 1, 2, 3, 16]);
        let most_groups = 1 + draw.below(64);
        let mut bytes = 0;
        let both_from = draw.below(most_groups);
        for group in 0..most_groups {
            let preamble_len = if with_preambles { draw_preamble_len(draw, size.thresholds) } else { 0 };
            let value_len = lengths.draw(draw, size.thresholds);
            let count = draw_count(draw, value_len + preamble_len);
            let (content, piece) = (draw.below(2), draw.below(1 << 13) as usize);
            let how = if piece % 2 == 0 { How::Slices } else { How::Reader { piece } };
            let mut random = Random(draw.below(1 << 16));
            keys.spread = if group < both_from { spreads[0] } else { one_of(draw, &spreads) };
            for _ in 0..count {
                bytes += preamble_len + value_len + 76;
                if bytes > most_bytes || self.pairs.len() == MAX_PAIRS {
                    return;
                }
                let content = content | (self.pairs.len() as u64) << 1;
                let (preamble_len, value_len) = (preamble_len as usize, value_len as usize);
                let key = keys.draw(&mut random);
                self.pairs.push(Pair { key, preamble_len, value_len, content, how });
            }
            if draw.ended() {
                return;
            }
        }
    }

    /// Returns the options of a build with one of the two settings.
    pub(crate) fn options(&self, (memory, threads): (u64, usize)) -> BuildOptions {
        let mut options = BuildOptions::new();
        options.memory(memory).threads(threads).on_duplicate(self.on_duplicate.clone()).checks(self.checks);
        options.ordered(self.ordered);
        options.value_alignment(ValueAlignment::new(self.alignment).unwrap()).profile(self.profile);
        match self.spec {
            Some(spec) => options.spec(spec),
            None => options.data_encoding(self.data_encoding).minishard_index_encoding(self.index_encoding),
        };
        options
    }

    /// Returns the pair that must survive, by key. If the policy is an error, this is the first one.
    pub(crate) fn expected(&self) -> BTreeMap<u64, Pair> {
        let mut expected = BTreeMap::new();
        for pair in &self.pairs {
            match (expected.entry(pair.key), &self.on_duplicate) {
                (Entry::Vacant(place), _) => drop(place.insert(*pair)),
                (Entry::Occupied(mut place), OnDuplicate::KeepLast) => drop(place.insert(*pair)),
                (Entry::Occupied(_), OnDuplicate::KeepFirst | OnDuplicate::Error) => {}
                #[allow(unreachable_patterns, reason = "the fuzz target sees a type that may grow")]
                (Entry::Occupied(_), other) => panic!("cases have no {other:?}"),
            }
        }
        expected
    }
}

/// Writes the options and one line per pair, so that a failed case can be read and rebuilt.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { on_duplicate, profile, data_encoding, index_encoding, checks, alignment, ordered, settings, .. } =
            self;
        match &self.spec {
            Some(spec) => writeln!(f, "given {spec}")?,
            None => writeln!(f, "planned for {profile:?}, data {data_encoding:?}, index {index_encoding:?}")?,
        }
        writeln!(
            f,
            "{on_duplicate:?}, checks: {checks}, alignment {alignment}, ordered: {ordered}, memory and threads {settings:?}"
        )?;
        self.pairs.iter().take(MAX_SHOWN).try_for_each(|pair| writeln!(f, "{pair:?}"))?;
        match self.pairs.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => writeln!(f, "and {more} more pairs"),
        }
    }
}

impl Keys {
    fn draw(&mut self, random: &mut Random) -> u64 {
        let number = if self.unique {
            self.next += 1;
            self.next
        } else {
            random.below(self.distinct)
        };
        number.wrapping_mul(self.spread) // odd, or too small to lose a bit of a unique number
    }
}

impl Lengths {
    fn draw(self, draw: &mut dyn Draw, thresholds: &[u64]) -> u64 {
        let class = match self {
            Lengths::Mixed => draw.below(8),
            Lengths::Small => draw.below(5),
            Lengths::Large => 7,
        };
        match class {
            0..3 => draw.below(100),
            3 => draw.below(1000),
            4 => around(draw, &[4, 8, 16, 64, 4096]),
            _ => around(draw, thresholds) / one_of(draw, &[1, 1, 1, 2]), // with gzip a pair counts about twice
        }
    }
}

impl Pair {
    pub(crate) fn preamble(&self) -> Vec<u8> {
        let mut preamble = bytes(!self.content, self.content, self.preamble_len);
        preamble.iter_mut().take(1).for_each(|first| *first |= 1); // it may follow padding
        preamble
    }

    /// Every fourth value of up to 64 KiB ends with its own CRC-32.
    pub(crate) fn value(&self) -> Vec<u8> {
        let mut value = bytes(self.content, self.content, self.value_len);
        if self.content & 6 == 0
            && value.len() <= 64 << 10
            && let Some((text, end)) = value.split_last_chunk_mut()
        {
            *end = crc32(text).to_le_bytes();
        }
        value
    }
}

/// The CRC-32 of a text, bit by bit.
fn crc32(text: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !text.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// Returns bytes that begin with `tag`: noise if `kind` is odd, else eight repeated bytes.
fn bytes(tag: u64, kind: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut state = tag;
    while bytes.len() < len {
        bytes.extend_from_slice(&state.to_le_bytes());
        state = if kind & 1 == 1 { mix(state.wrapping_add(1)) } else { state };
    }
    bytes.truncate(len);
    bytes
}

fn draw_spec(draw: &mut dyn Draw) -> ShardingSpec {
    let hash = one_of(draw, &[HashFunction::MurmurHash3X86_128, HashFunction::Identity]);
    let preshift_bits = one_of(draw, &[0, 0, 1, 7, 40, 64]);
    let (minishard_bits, shard_bits) = one_of(draw, &[(0, 0), (1, 1), (3, 0), (0, 3), (4, 2), (9, 1)]);
    ShardingSpec::new(hash, preshift_bits, minishard_bits, shard_bits).unwrap()
}

fn draw_preamble_len(draw: &mut dyn Draw, thresholds: &[u64]) -> u64 {
    match draw.below(8) {
        0..3 => 0,
        3..6 => draw.below(100),
        6 => around(draw, &[4, 8, 16, 64, 4096]),
        _ => around(draw, thresholds),
    }
}

/// Draws the number of pairs of a length: many pairs of a small length, few of a large one.
fn draw_count(draw: &mut dyn Draw, len: u64) -> u64 {
    let most = match len {
        0..100 => one_of(draw, &[1, 4, 30, 600, 600, 3000]),
        100..5000 => one_of(draw, &[1, 4, 60, 300]),
        _ => one_of(draw, &[1, 1, 1, 4]),
    };
    1 + draw.below(most)
}

fn around(draw: &mut dyn Draw, thresholds: &[u64]) -> u64 {
    (one_of(draw, thresholds) + draw.below(2 * AROUND)).saturating_sub(AROUND)
}

fn one_of<T: Copy>(draw: &mut dyn Draw, choices: &[T]) -> T {
    choices[draw.below(choices.len() as u64) as usize]
}

/// The output function of SplitMix64.
fn mix(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
