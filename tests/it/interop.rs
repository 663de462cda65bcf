//! TensorStore and CloudVolume read everything that ShardDb writes: every key, every absent key, the listing.
//!
//! This module writes the data sets and a list of what was inserted into each. `scripts/interop.sh` runs it, then
//! `scripts/check_readable.py` reads the data sets with both programs.
//!
//! ```text
//! $SHARDDB_INTEROP_DIR/precomputed/<set>/data/            a store by `BulkLoader`, or shards and an `info` by
//! `ShardWriter`
//! $SHARDDB_INTEROP_DIR/precomputed/<set>/expected.jsonl   a line per key: length and SHA-256 of value and preamble, or
//! absent ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::common::{new_directory, sha256, shuffled, xorshift};
use sharddb::spec::{Encoding, HashFunction, Layout, ValueAlignment};
use sharddb::write::ShardWriter;
use sharddb::{BuildOptions, Profile, ShardingSpec};

/// The preamble and the value of each key.
type Pairs = BTreeMap<u64, (Vec<u8>, Vec<u8>)>;

const MURMUR: HashFunction = HashFunction::MurmurHash3X86_128;
const HASHES: [HashFunction; 2] = [HashFunction::Identity, MURMUR];
const ENCODINGS: [Encoding; 2] = [Encoding::Raw, Encoding::Gzip];
const PRESHIFTS: [u8; 3] = [0, 4, 63];
const FLAGS: [bool; 2] = [false, true];
const ALIGNMENTS: [u64; 6] = [1, 4, 8, 16, 64, 4096];

/// Classes of minishard or shard bits. The pairwise matrix combines classes, and takes the numbers of a class in turn.
const BITS: [&[u8]; 5] = [&[0], &[1, 2], &[3, 4, 5], &[6, 7, 8], &[9, 10, 11]];

#[test]
#[ignore = "writes 150 MB for scripts/interop.sh"]
fn writes_data_sets_for_other_readers() {
    let mut sets = Sets { root: new_directory("precomputed") };
    sets.matrix();
    sets.planned();
    sets.extremes();
    sets.single_shards();
}

#[test]
fn the_matrix_has_every_pair_of_choices() {
    let rows = matrix();
    let columns = [
        column(&rows, |row| row.spec.hash_function().as_str()),
        column(&rows, |row| row.spec.minishard_index_encoding().as_str()),
        column(&rows, |row| row.spec.data_encoding().as_str()),
        column(&rows, |row| row.spec.preshift_bits()),
        column(&rows, |row| class_of(row.spec.minishard_bits())),
        column(&rows, |row| class_of(row.spec.shard_bits())),
        column(&rows, |row| row.layout.checks),
        column(&rows, |row| row.layout.preambles),
        column(&rows, |row| row.layout.value_alignment.get()),
    ];
    for (at, left) in columns.iter().enumerate() {
        for right in &columns[..at] {
            let distinct = |column: &[String]| column.iter().collect::<BTreeSet<_>>().len();
            let pairs: BTreeSet<_> = left.iter().zip(right).collect();
            assert_eq!(pairs.len(), distinct(left) * distinct(right), "{left:?} {right:?}");
        }
    }
    let bits: BTreeSet<u8> = rows.iter().map(|row| row.spec.minishard_bits()).collect();
    assert_eq!(bits, (0..=11).collect());
    let bits: BTreeSet<u8> = rows.iter().map(|row| row.spec.shard_bits()).collect();
    assert_eq!(bits, (0..=11).collect());
}

fn column<T: ToString>(rows: &[Row], choice: impl Fn(&Row) -> T) -> Vec<String> {
    rows.iter().map(|row| choice(row).to_string()).collect()
}

fn class_of(bits: u8) -> usize {
    BITS.iter().position(|class| class.contains(&bits)).unwrap()
}

/// One data set of the matrix.
struct Row {
    spec: ShardingSpec,
    layout: Layout,
}

impl Row {
    fn name(&self, number: usize) -> String {
        let Row { spec, layout } = self;
        format!(
            "{number:02}-{}-p{}-m{}-s{}-{}index-{}data-{}{}align{}",
            if spec.hash_function() == MURMUR { "murmur" } else { "identity" },
            spec.preshift_bits(),
            spec.minishard_bits(),
            spec.shard_bits(),
            spec.minishard_index_encoding().as_str(),
            spec.data_encoding().as_str(),
            if layout.checks { "checks-" } else { "" },
            if layout.preambles { "preambles-" } else { "" },
            layout.value_alignment.get(),
        )
    }
}

/// All options, so that any two choices occur together.
fn matrix() -> Vec<Row> {
    let levels = [2, 2, 2, PRESHIFTS.len(), BITS.len(), BITS.len(), 2, 2, ALIGNMENTS.len()];
    let mut turns = [[0; BITS.len()]; 2];
    let mut bits = |column: usize, class: usize| {
        turns[column][class] += 1;
        BITS[class][turns[column][class] % BITS[class].len()]
    };
    let mut row = |choice: Vec<usize>| Row {
        spec: spec(HASHES[choice[0]], PRESHIFTS[choice[3]], bits(0, choice[4]), bits(1, choice[5]))
            .with_minishard_index_encoding(ENCODINGS[choice[1]])
            .with_data_encoding(ENCODINGS[choice[2]]),
        layout: layout(FLAGS[choice[6]], FLAGS[choice[7]], ALIGNMENTS[choice[8]]),
    };
    pairwise(&levels).into_iter().map(&mut row).collect()
}

/// Rows of choices, `levels[column]` of them per column, in which any two choices of two columns occur together.
fn pairwise(levels: &[usize]) -> Vec<Vec<usize>> {
    let columns = 0..levels.len();
    let choices = |column: usize| (0..levels[column]).map(move |level| (column, level));
    let mut missing: BTreeSet<[(usize, usize); 2]> = columns
        .clone()
        .flat_map(|left| (0..left).map(move |right| (right, left)))
        .flat_map(|(right, left)| choices(right).flat_map(move |one| choices(left).map(move |other| [one, other])))
        .collect();
    let mut rows = Vec::new();
    while let Some([one, other]) = missing.first().copied() {
        let mut row = BTreeMap::from([one, other]);
        for column in columns.clone().filter(|column| ![one.0, other.0].contains(column)) {
            let gain = |level: &usize| {
                let chosen = row.iter().map(|(column, level)| (*column, *level));
                chosen.filter(|other| missing.contains(&in_order(*other, (column, *level)))).count()
            };
            // among equally good choices, takes a different one each time
            let level = |turn: usize| (turn + rows.len()) % levels[column];
            let best = (0..levels[column]).map(level).max_by_key(gain).unwrap();
            row.insert(column, best);
        }
        missing.retain(|[(a, x), (b, y)]| row[a] != *x || row[b] != *y);
        rows.push(row.into_values().collect());
    }
    rows
}

fn in_order<T: Ord>(one: T, other: T) -> [T; 2] {
    if one < other { [one, other] } else { [other, one] }
}

fn spec(hash: HashFunction, preshift_bits: u8, minishard_bits: u8, shard_bits: u8) -> ShardingSpec {
    ShardingSpec::new(hash, preshift_bits, minishard_bits, shard_bits).unwrap()
}

fn layout(checks: bool, preambles: bool, alignment: u64) -> Layout {
    let mut layout = Layout::default();
    (layout.checks, layout.preambles) = (checks, preambles);
    layout.value_alignment = ValueAlignment::new(alignment).unwrap();
    layout
}

fn options(spec: ShardingSpec, layout: Layout) -> BuildOptions {
    let mut options = BuildOptions::new();
    options.spec(spec).checks(layout.checks).value_alignment(layout.value_alignment);
    options
}

/// Bytes that compress to about a half.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = xorshift(seed);
    (0..len).map(|_| b'a' + random().to_be_bytes()[0] % 16).collect()
}

fn without_preambles(values: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Pairs {
    values.into_iter().map(|(key, value)| (key, (Vec::new(), value))).collect()
}

/// Some 500 keys: the extremes, a run and scattered ones; empty values, several of them adjacent; one value of 1 MB.
fn mixed(seed: u64, preambles: bool) -> Pairs {
    let mut random = xorshift(seed);
    let run = 1000..1200;
    let scattered: Vec<u64> = (0..300).map(|_| random()).collect();
    let keys = [0, 1, 1 << 63, u64::MAX - 1, u64::MAX].into_iter().chain(run).chain(scattered);
    let pair = |(number, key): (u64, u64)| {
        let len = match key {
            0x8000_0000_0000_0000 => 1_000_000,
            1050..1080 => 0,
            _ if number % 9 < 3 => 0,
            _ => random() % 200,
        };
        let preamble = if preambles && !number.is_multiple_of(3) { number % 40 } else { 0 };
        let part = |len: u64, seed| bytes(seed, usize::try_from(len).unwrap());
        (key, (part(preamble, key ^ 1), part(len, key)))
    };
    (0..).zip(keys).map(pair).collect()
}

/// Absent keys: neighbours of present ones, the extremes, and some that differ in a high bit.
fn absent(pairs: &Pairs) -> BTreeSet<u64> {
    let some = pairs.keys().step_by(pairs.len() / 500 + 1);
    let near = some.flat_map(|key| [key.wrapping_sub(1), key.wrapping_add(1), key ^ 1 << 33]);
    [0, 1, 1 << 63, u64::MAX].into_iter().chain(near).filter(|key| !pairs.contains_key(key)).collect()
}

/// Writes the data sets.
struct Sets {
    root: PathBuf,
}

impl Sets {
    fn matrix(&mut self) {
        for (number, row) in matrix().into_iter().enumerate() {
            let pairs = mixed(number as u64, row.layout.preambles);
            self.load(&row.name(number), &options(row.spec, row.layout), &pairs);
        }
    }

    /// The plan of each profile for no keys, scattered keys and dense keys.
    fn planned(&mut self) {
        for profile in Profile::ALL {
            let mut random = xorshift(1);
            let scattered = without_preambles((0..20_000).map(|_| random()).map(|key| (key, bytes(key, 100))));
            let dense = without_preambles((5_000..25_000).map(|key| (key, bytes(key, 60))));
            let mut load = |name: &str, pairs: &Pairs| {
                let mut options = BuildOptions::new();
                self.load(&format!("planned-{profile}-{name}"), options.profile(profile), pairs);
                options.data_encoding(Encoding::Gzip);
                self.load(&format!("planned-{profile}-{name}-gzip"), &options, pairs);
            };
            load("nothing", &Pairs::new());
            load("scattered", &scattered);
            load("dense", &dense);
        }
    }

    fn extremes(&mut self) {
        let some = spec(MURMUR, 0, 3, 5);
        let gzip = some.with_data_encoding(Encoding::Gzip).with_minishard_index_encoding(Encoding::Gzip);
        for (name, spec) in [("raw", some), ("gzip", gzip)] {
            let plain = options(spec, Layout::default());
            for key in [0, 1 << 63, u64::MAX] {
                self.load(&format!("one-key-{key}-{name}"), &plain, &without_preambles([(key, bytes(key, 10))]));
            }
            self.load(&format!("one-empty-value-{name}"), &plain, &without_preambles([(7, vec![])]));
            self.load(&format!("no-keys-{name}"), &plain, &Pairs::new());
            let large = (0..8).map(|key| (key, (bytes(key, 300_000), bytes(key + 100, 1_000_000)))).collect();
            self.load(&format!("large-{name}"), &options(spec, layout(true, true, 4096)), &large);
            for alignment in ALIGNMENTS {
                let empty = without_preambles((0..300).map(|key| (key, vec![])));
                let options = options(spec, layout(true, false, alignment));
                self.load(&format!("empty-values-align{alignment}-{name}"), &options, &empty);
            }
        }
        let many = without_preambles((0..15_000).map(|key| (key * 977, bytes(key, 1_500))));
        self.load("spilled", BuildOptions::new().memory(16 << 20).spec(spec(MURMUR, 0, 5, 2)), &many);
        let info = r#"{"@type": "neuroglancer_skeletons", "sharding": null, "transform": [1, 0, 0]}"#;
        self.load("given-info", options(some, Layout::default()).info(info), &mixed(7, false));
    }

    fn single_shards(&mut self) {
        for (name, spec) in [("murmur", spec(MURMUR, 1, 4, 3)), ("identity", spec(HashFunction::Identity, 0, 0, 0))] {
            for encoding in ENCODINGS {
                for layout in [Layout::default(), layout(true, true, 16)] {
                    let spec = spec.with_minishard_index_encoding(encoding).with_data_encoding(encoding);
                    let extras = if layout.checks { "extras" } else { "plain" };
                    let name = format!("shards-{name}-{}-{extras}", encoding.as_str());
                    self.write_shards(&name, spec, layout, &mixed(11, layout.preambles));
                }
            }
        }
    }

    /// Builds a set with the loader, from shuffled pairs.
    fn load(&mut self, name: &str, options: &BuildOptions, pairs: &Pairs) {
        let directory = self.begin(name, pairs);
        let mut loader = options.create(&directory).unwrap();
        for (key, (preamble, value)) in shuffled(pairs.iter().collect(), 1) {
            loader.insert_with_preamble(*key, preamble, value).unwrap();
        }
        assert_eq!(loader.finish().unwrap().content.keys, pairs.len() as u64, "{name}");
    }

    /// Writes a set shard by shard, and an `info`.
    fn write_shards(&mut self, name: &str, spec: ShardingSpec, layout: Layout, pairs: &Pairs) {
        let directory = self.begin(name, pairs);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("info"), format!("{{\"sharding\": {spec}}}\n")).unwrap();
        let mut shards: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (key, pair) in pairs {
            let location = spec.route(*key);
            shards.entry(location.shard).or_default().insert((location.minishard, *key), pair);
        }
        for (number, pairs) in shards {
            let path = directory.join(spec.shard_file_name(number));
            let mut writer = ShardWriter::create(path, spec, number, layout).unwrap();
            for ((_, key), (preamble, value)) in pairs {
                writer.insert_with_preamble(key, preamble, value).unwrap();
            }
            writer.finish().unwrap();
        }
    }

    /// Writes the list of expected pairs; returns the directory for the data.
    fn begin(&mut self, name: &str, pairs: &Pairs) -> PathBuf {
        let directory = self.root.join(name);
        fs::create_dir_all(&directory).unwrap();
        let mut lines = String::new();
        for (key, (preamble, value)) in pairs {
            write!(lines, r#"{{"key": "{key}", "len": {}, "sha256": "{}""#, value.len(), sha256(value)).unwrap();
            if !preamble.is_empty() {
                let (len, sha256) = (preamble.len(), sha256(preamble));
                write!(lines, r#", "prefix_len": {len}, "prefix_sha256": "{sha256}""#).unwrap();
            }
            lines.push_str("}\n");
        }
        for key in absent(pairs) {
            writeln!(lines, r#"{{"key": "{key}", "absent": true}}"#).unwrap();
        }
        fs::write(directory.join("expected.jsonl"), lines).unwrap();
        directory.join("data")
    }
}
