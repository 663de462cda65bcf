//! Verification finds every changed byte of a native generation, names each rule that a data set breaks and the place,
//! and has no findings for sound data.

use sharddb_format::internal::ids::minishard_number;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use crate::common::verify_both::VerifyBoth;
use crate::common::{self, Storage, TempDir, data, directory_bytes, expected, json, json_lines, name, sets, text};
use crate::mixed_files::with_crafted_table;
use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::verify::{FindingKind, Severity, VerifyReport};
use sharddb::{
    BuildOptions, ErrorKind, OpenOptions, Progress, ShardDb, ShardingSpec, Snapshot, VerifyLevel, VerifyOptions,
};

const LEVELS: [VerifyLevel; 3] = [VerifyLevel::Structure, VerifyLevel::Index, VerifyLevel::Data];

/// Options that together produce every kind of bytes in a native shard, with the name of the combination and whether it
/// has preambles.
fn features() -> Vec<(String, BuildOptions, bool)> {
    features_of(1)
}

fn features_of(minishard_bits: u8) -> Vec<(String, BuildOptions, bool)> {
    let mut features = Vec::new();
    for (checks, preambles, alignment) in
        [(true, false, 1), (true, true, 1), (true, true, 16), (false, true, 8), (false, false, 64)]
    {
        for (index, data) in [(Encoding::Raw, Encoding::Raw), (Encoding::Gzip, Encoding::Gzip)] {
            let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, 1).unwrap();
            let spec = spec.with_minishard_index_encoding(index).with_data_encoding(data);
            let mut options = BuildOptions::new();
            options.threads(1).spec(spec).checks(checks).value_alignment(ValueAlignment::new(alignment).unwrap());
            features.push((
                format!("checks {checks}, preambles {preambles}, alignment {alignment}, {index:?}"),
                options,
                preambles,
            ));
        }
    }
    features
}

/// A store of twelve pairs in two shards of two minishards. Six values are empty, and two of them are adjacent.
fn small_store(options: &BuildOptions, preambles: bool) -> TempDir {
    let store = TempDir::new();
    let mut loader = options.create(store.path()).unwrap();
    for key in 0..12u8 {
        let preamble = vec![b'p'; usize::from(if preambles { key % 4 } else { 0 })];
        loader.insert_with_preamble(key.into(), &preamble, &vec![key; usize::from(key.saturating_sub(5))]).unwrap();
    }
    loader.finish().unwrap();
    store
}

/// Like `small_store`, with writable files; also returns the directory of the generation.
fn changeable_store(options: &BuildOptions, preambles: bool) -> (TempDir, PathBuf) {
    let store = small_store(options, preambles);
    let generation = ShardDb::open(store.path()).unwrap().snapshot().directory().to_path_buf();
    for (name, bytes) in directory_bytes(&generation) {
        fs::remove_file(generation.join(&name)).unwrap(); // the file is read-only
        fs::write(generation.join(&name), bytes).unwrap();
    }
    (store, generation)
}

fn verify(directory: &Path, level: VerifyLevel) -> sharddb::Result<VerifyReport> {
    ShardDb::open(directory)?.snapshot().verify_both(level)
}

fn kinds(report: &VerifyReport) -> BTreeSet<FindingKind> {
    report.findings().iter().map(|finding| finding.kind()).collect()
}

fn lines(report: &VerifyReport) -> String {
    report.findings().iter().map(|finding| format!("{finding}\n")).collect()
}

#[test]
fn a_generation_of_ours_gives_no_finding_from_any_storage() {
    // with 32 minishards, most are empty
    for (features, options, preambles) in features().into_iter().chain(features_of(5)) {
        let store = small_store(&options, preambles);
        for (storage, level) in Storage::ALL.into_iter().flat_map(|storage| LEVELS.map(|level| (storage, level))) {
            let snapshot = storage.open(&OpenOptions::new(), store.path()).unwrap().snapshot();
            let report = snapshot.verify_both(level).unwrap();
            assert_eq!(lines(&report), "", "{features}, {storage:?}, {level:?}");
            let places: BTreeSet<_> = (0..12).map(|key| snapshot.spec().route(key)).collect();
            assert_eq!((report.shards, report.minishards), (2, places.len() as u64), "{features}");
            let stats = snapshot.stats();
            let (keys, value_bytes) =
                if level == VerifyLevel::Structure { (0, 0) } else { (12, stats.value_bytes.unwrap()) };
            assert_eq!((report.keys, report.value_bytes), (keys, value_bytes), "{features}, {level:?}");
            if level == VerifyLevel::Data {
                assert!(report.bytes_read >= stats.file_bytes.unwrap(), "{features}");
            }
        }
    }
}

/// Any pairs, any layout: verification accepts the gaps of the native writer.
#[test]
fn whatever_the_loader_writes_gives_no_finding() {
    fn gives_none(
        pairs: Vec<(u64, Vec<u8>, Vec<u8>)>,
        bits: (u8, u8),
        alignment: usize,
        flags: (bool, bool, bool),
    ) -> bool {
        let (checks, preambles, gzip_index) = flags;
        let alignment = ValueAlignment::new([1, 4, 8, 16, 64, 4096][alignment % 6]).unwrap();
        let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, bits.0 % 5, bits.1 % 3).unwrap();
        let encoding = if gzip_index { Encoding::Gzip } else { Encoding::Raw };
        let spec = spec.with_minishard_index_encoding(encoding);
        let pairs: BTreeMap<u64, _> =
            pairs.into_iter().map(|(key, preamble, value)| (key, (preamble, value))).collect();
        let store = TempDir::new();
        let mut options = BuildOptions::new();
        let mut loader = options.spec(spec).checks(checks).value_alignment(alignment).create(store.path()).unwrap();
        for (key, (preamble, value)) in &pairs {
            let preamble = if preambles { &preamble[..] } else { b"" };
            let zeros = preamble.iter().take_while(|byte| **byte == 0).count();
            let preamble = if alignment == ValueAlignment::One { preamble } else { &preamble[zeros..] };
            let value = &value[..value.len() / 4]; // many are empty
            loader.insert_with_preamble(*key, preamble, value).unwrap();
        }
        loader.finish().unwrap();
        let report = verify(store.path(), VerifyLevel::Data).unwrap();
        report.findings().is_empty() && report.keys == pairs.len() as u64
    }
    let property = gives_none as fn(Vec<(u64, Vec<u8>, Vec<u8>)>, (u8, u8), usize, (bool, bool, bool)) -> bool;
    quickcheck::QuickCheck::new().tests(60).quickcheck(property);
}

/// Some megabytes, which are read in blocks unless they are in memory.
#[test]
fn larger_shards_give_no_finding_from_any_storage() {
    for (index, preamble) in [(Encoding::Raw, &b""[..]), (Encoding::Gzip, b"preamble")] {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 4, 0).unwrap().with_minishard_index_encoding(index);
        let store = TempDir::new();
        let mut options = BuildOptions::new();
        let mut loader = options.spec(spec).value_alignment(ValueAlignment::Page).create(store.path()).unwrap();
        for key in 0..400 {
            // one is larger than a block
            loader.insert_with_preamble(key, preamble, &vec![1; if key == 77 { 700_000 } else { 5_000 }]).unwrap();
        }
        loader.finish().unwrap();
        for storage in Storage::ALL {
            let snapshot = storage.open(&OpenOptions::new(), store.path()).unwrap().snapshot();
            assert_eq!(lines(&snapshot.verify_both(VerifyLevel::Data).unwrap()), "", "{storage:?}, {index:?}");
        }
    }
}

#[test]
fn a_generation_that_was_deleted_is_an_error() {
    for storage in Storage::ALL {
        let directory = ours();
        let snapshot = storage.open(&OpenOptions::new(), directory.path()).unwrap().snapshot();
        fs::remove_dir_all(directory.path()).unwrap();
        let error = snapshot.verify_both(VerifyLevel::Structure).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::GenerationGone, Some(directory.path())), "{storage:?}");
    }
}

/// A database from pairs has no directory whose files could be missing.
#[test]
fn a_database_from_pairs_gives_no_finding_and_counts_its_pairs() {
    for count in [0, 1, 7, 1000] {
        let pairs: Vec<_> = (0..count).map(|key| (key, key.to_string())).collect();
        let value_bytes: usize = pairs.iter().map(|(_, value)| value.len()).sum();
        let snapshot = ShardDb::from_pairs(pairs).unwrap().snapshot();
        for level in LEVELS {
            let progress = Progress::new();
            let report = snapshot.verify_with(level, VerifyOptions::new().threads(1).progress(&progress)).unwrap();
            assert_eq!(lines(&report), "", "{count} pairs, {level:?}");
            let counted = if level == VerifyLevel::Structure { (1, 0, 0) } else { (1, count, value_bytes as u64) };
            assert_eq!((report.shards, report.keys, report.value_bytes), counted, "{count} pairs, {level:?}");
            let (done, total) = (progress.done(), progress.total());
            assert!(done == total && total > 0, "{count} pairs, {level:?}: {progress:?}");
        }
    }
}

/// Whether opening or verification finds more than notes.
fn is_found(store: &Path) -> bool {
    verify(store, VerifyLevel::Data).map_or(true, |report| report.errors() + report.warnings() > 0)
}

#[test]
fn every_changed_byte_of_every_file_is_found() {
    for (at, (features, options, preambles)) in features().into_iter().enumerate() {
        let (store, generation) = changeable_store(&options, preambles);
        let mut files = directory_bytes(&generation);
        files.retain(|name, _| at == 0 || name.ends_with(".shard")); // the other files hardly differ
        for (name, sound) in files {
            // every bit of one shard, and one bit of every byte of the others
            let bits = |byte: usize| if (at, &*name) == (1, "0.shard") { 0..8 } else { byte % 8..byte % 8 + 1 };
            let mut changed = sound.clone();
            for (byte, bit) in (0..sound.len()).flat_map(|byte| bits(byte).map(move |bit| (byte, bit))) {
                changed[byte] ^= 1 << bit;
                fs::write(generation.join(&name), &changed).unwrap();
                assert!(is_found(store.path()), "{features}: {name}, byte {byte}, bit {bit}");
                changed[byte] = sound[byte];
            }
            fs::write(generation.join(&name), &sound).unwrap();
            assert!(!is_found(store.path()), "{features}: {name} is whole again");
        }
    }
}

/// Without a manifest, the checks and the rules of the layout find every changed byte.
#[test]
fn every_changed_byte_of_a_shard_with_checks_is_found_without_a_manifest() {
    for (features, options, preambles) in
        features_of(2).into_iter().filter(|(features, ..)| features.contains("checks true"))
    {
        let (_store, generation) = changeable_store(&options, preambles);
        fs::remove_file(generation.join("manifest.json")).unwrap();
        let told = || kinds(&verify(&generation, VerifyLevel::Data).unwrap());
        assert_eq!(told(), BTreeSet::from([FindingKind::NoManifest]), "{features}");
        let sound = fs::read(generation.join("0.shard")).unwrap();
        for byte in 0..sound.len() {
            let mut changed = sound.clone();
            changed[byte] ^= 1 << (byte % 8);
            fs::write(generation.join("0.shard"), changed).unwrap();
            assert!(told().len() > 1, "{features}: byte {byte}");
        }
    }
}

#[test]
fn every_cut_extension_and_blank_of_every_file_is_found() {
    for (features, options, preambles) in features() {
        let (store, generation) = changeable_store(&options, preambles);
        for (name, sound) in directory_bytes(&generation) {
            let is_found = |changed: &[u8]| {
                fs::write(generation.join(&name), changed).unwrap();
                is_found(store.path())
            };
            for len in (0..sound.len()).step_by(7) {
                assert!(is_found(&sound[..len]), "{features}: {name} cut to {len} bytes");
            }
            for start in (0..sound.len()).step_by(64) {
                let mut blank = sound.clone();
                blank[start..(start + 64).min(sound.len())].fill(0);
                assert_eq!(is_found(&blank), blank != sound, "{features}: {name} blank at {start}");
            }
            assert!(is_found(&[&sound[..], &[0]].concat()), "{features}: {name} longer by a byte");
            assert!(!is_found(&sound), "{features}: {name} is whole again");
        }
    }
}

#[test]
fn every_swapped_and_removed_file_is_found() {
    for (features, options, preambles) in features() {
        let (store, generation) = changeable_store(&options, preambles);
        let files = directory_bytes(&generation);
        let write = |name: &String, bytes: &[u8]| fs::write(generation.join(name), bytes).unwrap();
        for (name, bytes) in &files {
            for (other, other_bytes) in files.range::<String, _>((Bound::Excluded(name), Bound::Unbounded)) {
                write(name, other_bytes);
                write(other, bytes);
                assert!(is_found(store.path()), "{features}: {name} and {other} swapped");
                write(other, other_bytes);
            }
            fs::remove_file(generation.join(name)).unwrap();
            assert!(is_found(store.path()), "{features}: without {name}");
            write(name, bytes);
        }
        assert!(!is_found(store.path()), "{features}: all as before");
    }
}

#[test]
fn every_added_file_is_found() {
    let (_, options, preambles) = features().swap_remove(0);
    let (store, generation) = changeable_store(&options, preambles);
    let added = [
        ("00.shard", FindingKind::MisnamedShard),
        ("2.SHARD", FindingKind::MisnamedShard),
        ("2.shard", FindingKind::MisnamedShard), // of two
        (".shard", FindingKind::MisnamedShard),
        ("0.index", FindingKind::ShadowedPair),
        ("0.data", FindingKind::ShadowedPair),
        ("notes.txt", FindingKind::UnknownFile),
    ];
    for (name, kind) in added {
        fs::write(generation.join(name), "x").unwrap();
        let report = verify(store.path(), VerifyLevel::Structure).unwrap();
        let told: Vec<_> = report.findings().iter().map(|finding| (finding.kind(), finding.path())).collect();
        assert_eq!(told, [(kind, Some(&*generation.join(name)))]);
        fs::remove_file(generation.join(name)).unwrap();
    }
}

/// A data set that breaks one rule.
struct Case {
    snapshot: Snapshot,
    /// The lowest level that finds it.
    level: VerifyLevel,
    directory: TempDir,
}

impl Case {
    fn open(directory: TempDir, level: VerifyLevel) -> Case {
        let snapshot = OpenOptions::new().check_shards(false).open(directory.path()).unwrap().snapshot();
        Case { snapshot, level, directory }
    }

    /// A native generation of three keys, changed by `change` after it was opened.
    fn changed_while_open(level: VerifyLevel, change: impl Fn(&Path)) -> Case {
        let case = Case::open(ours(), level);
        change(case.directory.path());
        case
    }

    /// A native generation of three keys, changed by `change`.
    fn changed(level: VerifyLevel, change: impl Fn(&Path)) -> Case {
        let directory = ours();
        change(directory.path());
        Case::open(directory, level)
    }

    /// A foreign data set: identity hash, raw, `bits` minishard and shard bits, and these files.
    fn foreign(level: VerifyLevel, bits: (u8, u8), files: &[(&str, Vec<u8>)]) -> Case {
        Case::open(data_set(bits, "", files), level)
    }

    /// A single foreign shard with one minishard.
    fn rows(level: VerifyLevel, rows: &[[u64; 3]], behind: &[u8]) -> Case {
        Case::foreign(level, (0, 0), &[("0.shard", shard(rows, behind))])
    }

    /// Like `rows`, with a native layout: no checks, a value alignment.
    fn own_rows(level: VerifyLevel, alignment: u64, rows: &[[u64; 3]], behind: &[u8]) -> Case {
        let layout = format!(r#", "sharddb": {{"value_alignment": {alignment}}}"#);
        Case::open(data_set((0, 0), &layout, &[("0.shard", shard(rows, behind))]), level)
    }
}

/// A copy of a native generation: keys 0, 2, 4 in shard 0 of two, with checks, preambles and alignment.
fn ours() -> TempDir {
    ours_with(0, &[0, 2, 4])
}

/// Like `ours`, with `minishard_bits` minishard bits and these keys.
fn ours_with(minishard_bits: u8, keys: &[u64]) -> TempDir {
    ours_of(ShardingSpec::new(HashFunction::Identity, 0, minishard_bits, 1).unwrap(), keys)
}

/// Like `ours`, with this specification and these keys.
fn ours_of(spec: ShardingSpec, keys: &[u64]) -> TempDir {
    let store = TempDir::new();
    let mut options = BuildOptions::new();
    options.threads(1).value_alignment(ValueAlignment::Eight);
    let mut loader = options.spec(spec).create(store.path()).unwrap();
    for key in keys {
        loader.insert_with_preamble(*key, b"preamble", b"value").unwrap();
    }
    loader.finish().unwrap();
    TempDir::copy_of(ShardDb::open(store.path()).unwrap().snapshot().directory())
}

/// The offset of the value of key 2 in `0.shard` of `ours`.
fn value_of_key_2(directory: &Path) -> usize {
    let location = ShardDb::open(directory).unwrap().snapshot().locate(2).unwrap().unwrap();
    usize::try_from(location.range.start).unwrap()
}

fn flip(path: PathBuf, at: usize) {
    let mut bytes = fs::read(&path).unwrap();
    bytes[at] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

fn append(path: PathBuf) {
    let bytes = fs::read(&path).unwrap();
    fs::write(path, [bytes, b"x".to_vec()].concat()).unwrap();
}

/// Replaces text in a manifest and updates its checksum.
fn edit_manifest(directory: &Path, replacements: &[(&str, &str)]) {
    let path = directory.join("manifest.json");
    let mut manifest = fs::read_to_string(&path).unwrap();
    for (from, to) in replacements {
        assert!(manifest.contains(from), "{from} in {manifest}");
        manifest = manifest.replace(from, to);
    }
    let (head, _) = manifest.rsplit_once("\"crc32\"").unwrap();
    fs::write(path, format!("{head}\"crc32\": {}\n}}\n", crc32fast::hash(head.as_bytes()))).unwrap();
}

fn data_set(bits: (u8, u8), layout: &str, files: &[(&str, Vec<u8>)]) -> TempDir {
    data_set_with(&format!(r#""minishard_bits": {}, "shard_bits": {}"#, bits.0, bits.1), layout, files)
}

fn data_set_with(members: &str, layout: &str, files: &[(&str, Vec<u8>)]) -> TempDir {
    let directory = TempDir::new();
    let sharding =
        format!(r#"{{"@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0, {members}}}"#);
    fs::write(directory.path().join("info"), format!(r#"{{"sharding": {sharding}{layout}}}"#)).unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(directory.path().join(name), bytes).unwrap());
    directory
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The bytes of a minishard index that is `start` bytes after the shard index. Rows are id, distance from the end of
/// the minishard index, size.
fn index(start: u64, rows: &[[u64; 3]]) -> Vec<u8> {
    let behind = start + 24 * rows.len() as u64;
    let (mut id, mut end) = (0u64, 0u64);
    let mut columns = [vec![], vec![], vec![]];
    for [next_id, distance, size] in rows {
        let value = behind.wrapping_add(*distance);
        columns[0].push(next_id.wrapping_sub(id));
        columns[1].push(value.wrapping_sub(end));
        columns[2].push(*size);
        (id, end) = (*next_id, value.wrapping_add(*size));
    }
    words(&columns.concat())
}

/// A shard of one minishard with these rows, and the bytes after its index.
fn shard(rows: &[[u64; 3]], behind: &[u8]) -> Vec<u8> {
    [words(&[0, 24 * rows.len() as u64]), index(0, rows), behind.to_vec()].concat()
}

/// Makes every key of a key file of one block, of consecutive keys, larger by 1. Every checksum in the file matches.
fn shift_keys(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let (block, directory, group, trailer) = (0, 15, 15 + 16, 15 + 16 + 16);
    assert_eq!(bytes.len(), trailer + 24);
    let first = u64::from_le_bytes(bytes[directory..directory + 8].try_into().unwrap()) + 1;
    let place = [&bytes[trailer + 16..trailer + 20], &[0; 8]].concat(); // the tag, and the number of the block or group
    let with_crc32 =
        |bytes: &mut [u8], covered: Vec<u8>| bytes.copy_from_slice(&crc32fast::hash(&covered).to_le_bytes());
    bytes[directory..directory + 8].copy_from_slice(&first.to_le_bytes());
    bytes[group..group + 8].copy_from_slice(&first.to_le_bytes());
    let covered = [&place[..], &first.to_le_bytes(), &bytes[block..block + 11]].concat();
    with_crc32(&mut bytes[block + 11..directory], covered);
    let covered = [&place[..], &bytes[directory..directory + 12]].concat();
    with_crc32(&mut bytes[directory + 12..group], covered);
    let covered = bytes[group..trailer + 20].to_vec();
    with_crc32(&mut bytes[trailer + 20..], covered);
    fs::write(path, bytes).unwrap();
}

/// The manifest of a mesh of one fragment of 5 bytes, after `before` bytes.
fn mesh(before: usize) -> Vec<u8> {
    let manifest = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 5_u32].map(u32::to_le_bytes).concat();
    [vec![b'D'; before], manifest].concat()
}

/// A foreign mesh, with `before` bytes before its manifest.
fn meshes(before: usize) -> Case {
    let stored = shard(&[[7, before as u64, 64]], &mesh(before));
    let info = r#", "@type": "neuroglancer_multilod_draco""#;
    Case::open(data_set((0, 0), info, &[("0.shard", stored)]), VerifyLevel::Data)
}

#[test]
fn fragments_are_missing_if_there_are_fewer_bytes_than_the_manifest_states() {
    let errors = |before| meshes(before).snapshot.verify(VerifyLevel::Data).unwrap().errors();
    assert_eq!([0, 4, 5, 6].map(errors), [1, 1, 0, 0]);
}

#[test]
fn a_build_checks_what_it_takes_from_a_reader() {
    let build = |before: usize| {
        let store = TempDir::new();
        let info = r#"{"@type": "neuroglancer_multilod_draco"}"#;
        let mut loader = BuildOptions::new().info(info).create(store.path()).unwrap();
        loader.insert_reader(7, before as u64, 64, &mut &mesh(before)[..]).unwrap();
        loader.finish().map(|published| published.content.keys).map_err(|error| (error.kind(), error.key()))
    };
    assert_eq!([0, 4].map(build), [Err((ErrorKind::InvalidInput, None)), Err((ErrorKind::InvalidInput, Some(7)))]);
    assert_eq!([5, 6].map(build), [Ok(1), Ok(1)]);
}

/// A data set that breaks the rule of `kind`.
fn case(kind: FindingKind) -> Case {
    use FindingKind as Kind;
    use VerifyLevel::{Data, Index, Structure};
    let remove = |name: &'static str| move |directory: &Path| fs::remove_file(directory.join(name)).unwrap();
    let flip_in_shard = |at: usize| move |directory: &Path| flip(directory.join("0.shard"), at);
    let one = || shard(&[[0, 0, 1]], b"x");
    match kind {
        Kind::InfoMismatch => Case::changed_while_open(Structure, |directory| append(directory.join("info"))),
        Kind::ManifestMismatch => {
            Case::changed_while_open(Structure, |directory| flip(directory.join("manifest.json"), 30))
        }
        Kind::NoManifest => Case::changed(Structure, remove("manifest.json")),
        Kind::BadLease => Case::changed(Structure, |directory| append(directory.join("lease"))),
        Kind::AuxiliaryFile => {
            let directory = ours_with(9, &(0..20).collect::<Vec<_>>());
            flip(directory.path().join("minishards"), 5);
            Case::open(directory, Structure)
        }
        Kind::WrongMinishardTable => Case::open(with_crafted_table(), Index),
        Kind::KeyFile => {
            let store = TempDir::new();
            let mut loader = BuildOptions::new().ordered(true).create(store.path()).unwrap();
            (10..30).for_each(|key| loader.insert(key, b"value").unwrap());
            loader.finish().unwrap();
            let directory = TempDir::copy_of(ShardDb::open(store.path()).unwrap().snapshot().directory());
            shift_keys(&directory.path().join("keys"));
            Case::open(directory, Index)
        }
        Kind::MissingShard => Case::changed(Structure, remove("0.shard")),
        Kind::UnlistedShard => Case::changed(Structure, |directory| {
            fs::copy(directory.join("0.shard"), directory.join("1.shard")).unwrap();
        }),
        Kind::UnreadableShard => {
            let directory = data_set((0, 0), "", &[]);
            fs::create_dir(directory.path().join("0.shard")).unwrap();
            Case::open(directory, Structure)
        }
        #[cfg(unix)]
        Kind::UnreadableFile => Case::changed_while_open(Structure, |directory| {
            let info = directory.join("info");
            fs::remove_file(&info).unwrap();
            std::os::unix::fs::symlink(&info, &info).unwrap();
        }),
        Kind::WrongLength => Case::changed(Structure, |directory| append(directory.join("0.shard"))),
        Kind::ShadowedPair => Case::foreign(Structure, (0, 0), &[("0.shard", one()), ("0.index", one())]),
        Kind::ObsoletePair => {
            let (index, data) = (one()[..16].to_vec(), one()[16..].to_vec());
            Case::foreign(Structure, (0, 0), &[("0.index", index), ("0.data", data)])
        }
        Kind::AbsentShards => Case::foreign(Structure, (0, 1), &[("1.shard", words(&[0, 0]))]),
        Kind::LoneDataFile => Case::foreign(Structure, (0, 0), &[("0.data", vec![])]),
        Kind::MisnamedShard => Case::foreign(Structure, (0, 0), &[("00.shard", one())]),
        Kind::UnknownFile => Case::changed(Structure, |directory| fs::write(directory.join("notes.txt"), "").unwrap()),
        Kind::ShortShardIndex => Case::foreign(Structure, (0, 0), &[("0.shard", vec![0; 10])]),
        Kind::BadShardIndexEntry => Case::foreign(Structure, (0, 0), &[("0.shard", words(&[8, 0, 0, 0]))]),
        Kind::OddEmptyEntry => Case::foreign(Structure, (0, 0), &[("0.shard", words(&[1, 1]))]),

        Kind::ShardIndexCrc => Case::changed(Index, flip_in_shard(0)),
        Kind::BadMinishardIndex => Case::foreign(Index, (0, 0), &[("0.shard", words(&[0, 8, 0]))]),
        Kind::IndexCheck => Case::changed(Index, flip_in_shard(16)),
        Kind::OverCap => {
            let directory = data_set((0, 0), "", &[("0.shard", one())]);
            let snapshot = OpenOptions::new().max_index_bytes(10).open(directory.path()).unwrap().snapshot();
            Case { snapshot, level: Index, directory }
        }
        Kind::UnorderedIds => Case::rows(Index, &[[7, 0, 1], [3, 1, 1]], b"xy"),
        Kind::DuplicateId => Case::rows(Index, &[[7, 0, 1], [3, 1, 1], [7, 2, 1]], b"xyz"),
        Kind::MisplacedKey => Case::foreign(Index, (0, 1), &[("0.shard", shard(&[[2, 0, 1], [3, 1, 1]], b"xy"))]),
        // eight odd keys, which belong to shard 1
        Kind::MisplacedShard => {
            let rows: Vec<_> = (0..8).map(|key| [2 * key + 1, key, 1]).collect();
            Case::foreign(Index, (0, 1), &[("0.shard", shard(&rows, b"abcdefgh")), ("1.shard", vec![0; 16])])
        }
        // eight of twelve keys belong to shard 1
        Kind::WrongSpecification => {
            let rows: Vec<_> =
                [1, 3, 5, 7, 8, 9, 10, 12, 13, 15, 17, 19].into_iter().zip(0..).map(|(id, at)| [id, at, 1]).collect();
            Case::foreign(Index, (0, 1), &[("0.shard", shard(&rows, b"abcdefghijkl")), ("1.shard", vec![0; 16])])
        }
        // the two keys of minishard 0, in the entry of minishard 1
        Kind::WrongSlot => {
            let bytes = [words(&[0, 0, 0, 48]), index(0, &[[2, 0, 1], [4, 1, 1]]), b"xy".to_vec()].concat();
            Case::foreign(Index, (1, 0), &[("0.shard", bytes)])
        }
        Kind::BadValueRange => Case::rows(Index, &[[7, 0, 2]], b"x"),
        Kind::WrongCount => Case::changed(Index, |directory| {
            let bytes = fs::metadata(directory.join("0.shard")).unwrap().len();
            let (row, other_row) = (format!("[0,{bytes},3,"), format!("[0,{bytes},4,"));
            edit_manifest(directory, &[("\"keys\": 3", "\"keys\": 4"), (&row, &other_row)]);
        }),
        Kind::Overlap => Case::rows(Index, &[[7, 0, 2], [8, 1, 2]], b"xyz"),
        Kind::IndexOverlap => Case::rows(Index, &[[7, 0u64.wrapping_sub(8), 9]], b"x"),
        Kind::SharedEmptyRange => Case::rows(Index, &[[7, 0, 0], [8, 0, 0]], b""),
        Kind::UnnamedBytes => Case::rows(Index, &[[7, 3, 1]], b"???x"),
        Kind::UnexpectedGap => Case::own_rows(Index, 1, &[[7, 3, 1]], b"\0\0\0x"),
        Kind::MisalignedValue => Case::own_rows(Index, 16, &[[7, 0, 1]], b"x"),

        Kind::FileCrc => Case::changed(Data, |directory| {
            let at = fs::metadata(directory.join("0.shard")).unwrap().len() - 1;
            flip(directory.join("0.shard"), usize::try_from(at).unwrap());
        }),
        Kind::ValueCheck => Case::changed(Data, |directory| flip(directory.join("0.shard"), value_of_key_2(directory))),
        Kind::BadValue => {
            let bits = r#""minishard_bits": 0, "shard_bits": 0, "data_encoding": "gzip""#;
            Case::open(data_set_with(bits, "", &[("0.shard", one())]), Data)
        }
        Kind::PreambleCheck => {
            Case::changed(Data, |directory| flip(directory.join("0.shard"), value_of_key_2(directory) - 1))
        }
        Kind::MissingFragments => meshes(4),
        Kind::NonzeroPadding => Case::own_rows(Data, 16, &[[7, 8, 1]], b"\0\0\0!\0\0\0\0x"),
        other => panic!("no case of {other}"),
    }
}

#[test]
fn each_rule_has_a_case_that_shows_from_its_level_on_with_its_place() {
    // this rule is about the index of Zarr shards; its case is in cli/tests/it/zarr.rs
    for kind in FindingKind::ALL.iter().filter(|kind| **kind != FindingKind::BadShardIndex) {
        let Case { snapshot, level, directory: _kept } = case(*kind);
        for other in LEVELS {
            let report = snapshot.verify_both(other).unwrap();
            assert_eq!(kinds(&report).contains(kind), other >= level, "{kind} at {other:?}:\n{}", lines(&report));
            let errors = report.findings().iter().filter(|finding| finding.severity() == Severity::Error).count();
            assert_eq!((report.errors(), report.is_clean()), (errors as u64, errors == 0), "{kind}");
        }
        let report = snapshot.verify_both(level).unwrap();
        let finding = report.findings().iter().find(|finding| finding.kind() == *kind).unwrap();
        let line = finding.to_string();
        assert!(line.starts_with(kind.severity().as_str()) && line.ends_with(&format!(" [{kind}]")), "{line}");
        assert!(!finding.message().is_empty() && !line.contains('\n'), "{line}");
        let path = finding.path().unwrap();
        assert!(path == snapshot.directory() || path.parent() == Some(snapshot.directory()), "{line}");
        assert!(path.symlink_metadata().is_ok() || *kind == FindingKind::MissingShard, "{line}");
    }
}

#[test]
fn the_kinds_have_names_of_their_own() {
    let names: BTreeSet<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(names.len(), FindingKind::ALL.len());
    for (kind, name) in FindingKind::ALL.iter().map(|kind| (format!("{kind:?}"), kind.as_str())) {
        let joined: String = name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
        assert_eq!(joined, kind);
    }
}

/// A finding states everything that is known of its place; here all parts are known.
#[test]
fn a_finding_says_shard_minishard_key_and_byte() {
    let bytes = [words(&[0, 0, 0, 48]), index(0, &[[1, 0, 2], [3, 1, 1]]), b"xy".to_vec()].concat();
    let report =
        Case::foreign(VerifyLevel::Index, (1, 0), &[("0.shard", bytes)]).snapshot.verify_both(VerifyLevel::Index);
    let report = report.unwrap();
    let [finding] = report.findings() else { panic!("{}", lines(&report)) };
    assert_eq!((finding.kind(), finding.severity()), (FindingKind::Overlap, Severity::Warning));
    let location = finding.location();
    assert_eq!((location.shard.unwrap().get(), location.minishard.unwrap().get(), finding.key()), (0, 1, Some(3)));
    assert_eq!(location.offset, Some(32 + 48 + 1));
    assert!(finding.message().contains("first 1 bytes belong to key 1"), "{finding}");
}

#[test]
fn a_total_of_value_bytes_that_is_wrong_is_found() {
    let directory = ours();
    edit_manifest(directory.path(), &[("\"value_bytes\": 15", "\"value_bytes\": 16")]);
    let report = verify(directory.path(), VerifyLevel::Index).unwrap();
    assert_eq!(kinds(&report), BTreeSet::from([FindingKind::WrongCount]), "{}", lines(&report));
}

/// Deviations of neuroglancer-scripts: entries of a sparse shard in the first slots, and zlib streams instead of gzip.
#[test]
fn what_neuroglancer_scripts_gets_wrong_is_recognised() {
    // minishards 1 and 3 of four have keys, but their entries are in slots 0 and 1
    let (one, three) = (index(0, &[[1, 0, 1], [5, 1, 1]]), index(50, &[[3, 0, 1]]));
    let shard_index = words(&[0, 48, 50, 74, 0, 0, 0, 0]);
    let bytes = [shard_index, one, b"xy".to_vec(), three, b"z".to_vec()].concat();
    let case = Case::foreign(VerifyLevel::Index, (2, 0), &[("0.shard", bytes)]);
    let report = case.snapshot.verify_both(VerifyLevel::Data).unwrap();
    let told: Vec<_> = report.findings().iter().map(|finding| (finding.kind(), finding.location().minishard)).collect();
    let slot = |number| (FindingKind::WrongSlot, Some(minishard_number(number)));
    assert_eq!(told, [slot(0), slot(1)]);
    assert!(report.findings()[0].message().contains("all 2 keys hash to minishard 1"), "{}", lines(&report));
    assert!(report.findings()[1].message().contains("all 1 keys hash to minishard 3"), "{}", lines(&report));

    // Python: zlib.compress(b"hello hello hello")
    let zlib = b"\x78\x9c\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x00\x3a\x2e\x06\x7d";
    let bits = r#""minishard_bits": 0, "shard_bits": 0, "data_encoding": "gzip""#;
    let directory = data_set_with(bits, "", &[("0.shard", shard(&[[1, 0, zlib.len() as u64]], zlib))]);
    let report = verify(directory.path(), VerifyLevel::Data).unwrap();
    assert_eq!(kinds(&report), BTreeSet::from([FindingKind::BadValue]));
    assert!(report.findings()[0].message().contains("zlib"), "{}", lines(&report));
}

/// A bad shard does not hide another one, nor a bad minishard the next one.
#[test]
fn the_walk_goes_on_behind_what_is_wrong() {
    let bad_entry_then_bad_range = [words(&[9, 8, 0, 24]), index(0, &[[3, 5, 0]])].concat();
    let misplaced = [words(&[0, 24, 0, 0]), index(0, &[[1, 0, 0]])].concat();
    let files = [("0.shard", vec![1]), ("1.shard", bad_entry_then_bad_range), ("2.shard", misplaced)];
    let report = Case::foreign(VerifyLevel::Index, (1, 2), &files).snapshot.verify_both(VerifyLevel::Index).unwrap();
    let shard_of = |it: &sharddb::verify::Finding| it.location().shard.map(|shard| (it.kind(), shard.get()));
    let told: Vec<_> = report.findings().iter().filter_map(shard_of).collect();
    let expected = [
        (FindingKind::ShortShardIndex, 0),
        (FindingKind::BadShardIndexEntry, 1),
        (FindingKind::BadValueRange, 1),
        (FindingKind::MisplacedKey, 2),
    ];
    assert_eq!(told, expected, "{}", lines(&report));
}

/// A generation with checked preambles: keys 0, 8 in minishard 0 of shard 0, keys 1, 9 in minishard 1, keys 2, 10 in
/// minishard 2, none in minishard 3.
fn ours_in_minishards(index: Encoding) -> TempDir {
    let spec = ShardingSpec::new(HashFunction::Identity, 0, 2, 1).unwrap().with_minishard_index_encoding(index);
    ours_of(spec, &[0, 1, 2, 8, 9, 10])
}

/// The range of the index of a minishard in the bytes of `0.shard` of `ours_in_minishards`.
fn index_range(bytes: &[u8], minishard: usize) -> std::ops::Range<usize> {
    let word = |at: usize| usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap();
    4 * 16 + word(16 * minishard)..4 * 16 + word(16 * minishard + 8)
}

fn kinds_and_keys(report: &VerifyReport) -> Vec<(FindingKind, Option<u64>)> {
    report.findings().iter().map(|finding| (finding.kind(), finding.key())).collect()
}

/// The preambles themselves are sound, and where they begin is known without the damaged bytes.
#[test]
fn a_damaged_check_of_an_index_is_no_finding_about_preambles() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let directory = ours_in_minishards(index);
        let shard = directory.path().join("0.shard");
        let end = index_range(&fs::read(&shard).unwrap(), 1).end;
        flip(shard, end); // the check follows the index
        let report = verify(directory.path(), VerifyLevel::Data).unwrap();
        let expected = [(FindingKind::FileCrc, None), (FindingKind::IndexCheck, None)];
        assert_eq!(kinds_and_keys(&report), expected, "{index:?}:\n{}", lines(&report));
    }
}

#[test]
fn a_shard_index_with_another_crc_is_no_finding_about_preambles() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let directory = ours_in_minishards(index);
        let shard = directory.path().join("0.shard");
        let mut bytes = fs::read(&shard).unwrap();
        bytes[48..64].copy_from_slice(&words(&[1, 1])); // minishard 3 is empty, as before
        fs::write(shard, bytes).unwrap();
        let report = verify(directory.path(), VerifyLevel::Data).unwrap();
        let expected = [(FindingKind::FileCrc, None), (FindingKind::ShardIndexCrc, None)];
        assert_eq!(kinds_and_keys(&report), expected, "{index:?}:\n{}", lines(&report));
    }
}

/// With gzip, the first preamble of a minishard begins at the end of the previous minishard, which a damaged index hides.
#[test]
fn a_gzip_index_that_does_not_decode_hides_one_preamble_of_the_next_minishard() {
    let directory = ours_in_minishards(Encoding::Gzip);
    let shard = directory.path().join("0.shard");
    let range = index_range(&fs::read(&shard).unwrap(), 1);
    flip(shard, range.end - 6); // in the CRC-32 of gzip
    let report = verify(directory.path(), VerifyLevel::Data).unwrap();
    let expected =
        [(FindingKind::FileCrc, None), (FindingKind::BadMinishardIndex, None), (FindingKind::PreambleCheck, Some(2))];
    assert_eq!(kinds_and_keys(&report), expected, "{}", lines(&report));
    assert!(report.findings()[2].message().contains("it was not verified"), "{}", lines(&report));
}

/// What a read refuses, verification reports, whatever the length: here far less than a block of its reads.
#[test]
fn a_value_above_the_cap_is_found_by_the_storages_that_refuse_it() {
    let directory = data_set((0, 0), "", &[("0.shard", shard(&[[7, 0, 100]], &[1; 100]))]);
    for (cap, storage) in [99, 100].into_iter().flat_map(|cap| Storage::ALL.map(|storage| (cap, storage))) {
        let snapshot = storage.open(OpenOptions::new().max_value_bytes(cap), directory.path()).unwrap().snapshot();
        let report = snapshot.verify_both(VerifyLevel::Data).unwrap();
        // a raw value in memory is borrowed, so there is no cap
        let is_over = cap == 99 && matches!(storage, Storage::Positioned);
        assert_eq!(snapshot.get(7).map_err(|error| error.kind()).err(), is_over.then_some(ErrorKind::TooLarge));
        let expected = if is_over { vec![(FindingKind::OverCap, Some(7))] } else { vec![] };
        assert_eq!(kinds_and_keys(&report), expected, "{storage:?}, cap {cap}:\n{}", lines(&report));
    }
}

/// An offset in a finding is one of the file that the finding names, also for the obsolete pair.
#[test]
fn a_finding_about_a_pair_names_the_file_with_its_offset() {
    let cases = [
        (vec![0; 10], FindingKind::ShortShardIndex, "0.index", 0),
        (words(&[0, 24, 8, 0]), FindingKind::BadShardIndexEntry, "0.index", 16),
        (words(&[0, 24, 99, 99]), FindingKind::OddEmptyEntry, "0.index", 16),
        (words(&[1, 9, 0, 0]), FindingKind::BadMinishardIndex, "0.data", 1),
    ];
    for (index_file, kind, name, offset) in cases {
        let data_file = [index(0, &[[2, 0, 1]]), b"x".to_vec()].concat();
        let directory = data_set((1, 0), "", &[("0.index", index_file), ("0.data", data_file)]);
        for storage in Storage::ALL {
            let snapshot = storage.open(&OpenOptions::new(), directory.path()).unwrap().snapshot();
            let report = snapshot.verify_both(VerifyLevel::Index).unwrap();
            let finding = report.findings().iter().find(|finding| finding.kind() == kind);
            let finding = finding.unwrap_or_else(|| panic!("{kind}, {storage:?}:\n{}", lines(&report)));
            let found = (finding.path(), finding.location().offset);
            assert_eq!(found, (Some(&*directory.path().join(name)), Some(offset)), "{finding}, {storage:?}");
        }
    }
}

#[test]
fn findings_are_kept_up_to_a_limit_and_counted_beyond_it() {
    // each odd key belongs to shard 1; they are not most of the keys, so no common cause explains them
    let rows: Vec<[u64; 3]> = (0..50_001).map(|key| [key, key, 1]).collect();
    let misplaced = shard(&rows, &vec![0; rows.len()]);
    let case =
        Case::foreign(VerifyLevel::Index, (0, 1), &[("0.shard", misplaced), ("1.shard", vec![]), ("x.shard", vec![])]);
    let report = case.snapshot.verify_both(VerifyLevel::Index).unwrap();
    assert_eq!((report.errors(), report.warnings(), report.notes()), (25_001, 0, 1));
    assert_eq!((report.findings().len(), report.dropped()), (10_001, 15_001));
    assert!(!report.is_clean());
    assert_eq!(
        report.to_string(),
        "2 shards, 1 minishard, 50,001 keys, 50,001 bytes of values: 25,001 errors, 0 warnings, 1 note"
    );
}

#[test]
fn progress_only_grows_and_ends_at_its_total() {
    let (_, options, preambles) = features().swap_remove(3);
    let ours = small_store(&options, preambles);
    let broken = data("corrupt/ix_end_beyond_file");
    for directory in [ours.path(), &broken, &data("public/ts_all_zero_length_gzip")] {
        for level in LEVELS {
            let progress = Progress::new();
            let snapshot = ShardDb::open(directory).unwrap().snapshot();
            snapshot.verify_with(level, VerifyOptions::new().threads(1).progress(&progress)).unwrap();
            let (done, total) = (progress.done(), progress.total());
            assert!(done == total && total > 0, "{directory:?}, {level:?}: {progress:?}");
        }
    }
}

#[test]
fn what_others_wrote_has_no_errors() {
    for directory in sets("public") {
        let keys = expected(&directory).iter().filter(|(_, answer)| *answer != common::Answer::Absent).count();
        for storage in Storage::ALL {
            let snapshot = storage.open(&OpenOptions::new(), &directory).unwrap().snapshot();
            for level in LEVELS {
                let report = snapshot.verify_both(level).unwrap();
                assert!(report.is_clean(), "{}, {storage:?}, {level:?}:\n{}", name(&directory), lines(&report));
                assert_eq!(report.keys, if level == VerifyLevel::Structure { 0 } else { keys as u64 });
            }
        }
    }
}

#[test]
fn what_neuroglancer_draws_has_no_errors() {
    let sets = [
        ("ann", "/by_id"),
        ("ann", "/relationships/0"),
        ("ann", "/spatial/0"),
        ("ann", "/spatial/1"),
        ("image", "/scales/0"),
        ("seg", "/scales/0"),
        ("seg/mesh", ""),
        ("seg/skeletons", ""),
    ];
    for (directory, pointer) in sets {
        let directory = data("neuroglancer").join(directory);
        let snapshot = OpenOptions::new().sharding_at(pointer).load(&directory).unwrap().snapshot();
        let report = snapshot.verify_both(VerifyLevel::Data).unwrap();
        assert!(report.is_clean() && report.keys > 0, "{directory:?} {pointer}:\n{}", lines(&report));
    }
}

/// Broken data sets have errors; legal but odd ones have none.
#[test]
fn what_is_broken_is_told_from_what_is_odd() {
    let mut options = OpenOptions::new();
    options.max_value_bytes(2 << 20).max_index_bytes(2 << 20);
    let mut seen = BTreeSet::new();
    for directory in sets("corrupt") {
        let class = text(&json(&directory.join("probe.json"))["class"]).to_string();
        for storage in Storage::ALL {
            let Ok(db) = storage.open(&options, &directory) else { continue };
            let report = db.snapshot().verify_both(VerifyLevel::Data).unwrap();
            let place = format!("{} ({class}), {storage:?}:\n{}", name(&directory), lines(&report));
            match (name(&directory), class.as_str()) {
                // start == end is an empty minishard, whatever the offset
                ("ix_all_ff", _) => assert!(kinds(&report).contains(&FindingKind::OddEmptyEntry), "{place}"),
                (_, "index" | "msi" | "data" | "bomb") => assert!(!report.is_clean(), "{place}"),
                (_, "valid") => assert!(report.findings().is_empty(), "{place}"),
                (_, "legal-odd") => assert!(report.is_clean(), "{place}"),
                _ => continue,
            }
            seen.insert(class.clone());
        }
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
}

/// If verification finds nothing wrong, every listed pair is found and has one value.
#[test]
fn in_a_clean_mutant_every_read_works() {
    let mutants = json_lines(&data("fuzz/results.jsonl"));
    let directories: Vec<(String, TempDir)> = ["gg", "gr", "rg", "rr"]
        .iter()
        .map(|base| {
            let directory = TempDir::new();
            fs::write(directory.path().join("info"), fs::read(data(&format!("fuzz/{base}.info"))).unwrap()).unwrap();
            (base.to_string(), directory)
        })
        .collect();
    let mut clean = 0;
    for mutant in &mutants {
        let (file, base) = (text(&mutant["file"]), text(&mutant["base"]));
        let (_, directory) = directories.iter().find(|(name, _)| name == base).unwrap();
        fs::write(directory.path().join("0.shard"), fs::read(data("fuzz").join(file)).unwrap()).unwrap();
        let snapshot = ShardDb::load(directory.path()).unwrap().snapshot();
        if !snapshot.verify_both(VerifyLevel::Data).unwrap().is_clean() {
            continue;
        }
        clean += 1;
        for entry in snapshot.iter() {
            let entry = entry.unwrap_or_else(|error| panic!("{file}: {error}"));
            let value = entry.value().unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(snapshot.get(entry.key()).unwrap().unwrap(), value[..], "{file}: key {}", entry.key());
        }
    }
    assert!(clean > 0 && clean < mutants.len(), "{clean} of {}", mutants.len());
}

/// Zeros of the file at the path of a loaded shard do not stand in for the bytes in memory.
#[test]
fn a_loaded_snapshot_verifies_its_copy_whatever_became_of_the_file() {
    let store = TempDir::new();
    let mut loader = BuildOptions::new().create(store.path()).unwrap();
    loader.extend((0..1000u64).map(|key| (key, key.to_string()))).unwrap();
    let generation = loader.finish().unwrap().generation;
    let snapshot = ShardDb::load(store.path()).unwrap().snapshot();
    let path = store.path().join(generation.to_string()).join("0.shard");
    let len = path.metadata().unwrap().len();
    std::fs::remove_file(&path).unwrap();
    std::fs::File::create(&path).unwrap().set_len(len).unwrap();
    let report = snapshot.verify_both(VerifyLevel::Data).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings());
    assert!(!ShardDb::open(store.path()).unwrap().snapshot().verify_both(VerifyLevel::Data).unwrap().is_clean());
}

/// A shard that is divided among threads, with damage everywhere: findings that depend on one minishard, and those that
/// depend on all.
#[test]
fn several_threads_find_the_same_damage_in_one_shard() {
    let mut random = common::xorshift(18);
    for (at, (features, mut options, preambles)) in features_of(6).into_iter().enumerate() {
        let store = TempDir::new();
        let mut loader = options.memory(16 << 20).create(store.path()).unwrap();
        for key in 0..4000u64 {
            let preamble = vec![b'p'; if preambles { (key % 7) as usize } else { 0 }];
            loader.insert_with_preamble(key, &preamble, &key.to_le_bytes().repeat((key % 5) as usize)).unwrap();
        }
        loader.finish().unwrap();
        let good = ShardDb::open(store.path()).unwrap().snapshot();
        assert!(good.verify_both(VerifyLevel::Data).unwrap().is_clean());
        for round in 0..12 {
            let copy = TempDir::new();
            for (name, mut bytes) in directory_bytes(good.directory()) {
                if name.ends_with(".shard") {
                    for _ in 0..1 << (round % 6) {
                        let place = random() as usize % bytes.len();
                        bytes[place] ^= 1 << (random() % 8);
                    }
                }
                fs::write(copy.path().join(name), bytes).unwrap();
            }
            let storage = Storage::ALL[(at + round) % 3];
            for level in LEVELS {
                let db = storage.open(OpenOptions::new().check_shards(false), copy.path()).unwrap();
                let report = db.snapshot().verify_both(level).unwrap();
                assert!(level != VerifyLevel::Data || report.errors() + report.warnings() > 0, "{features}");
            }
        }
    }
}

/// With many threads and shards the reports still arrive in order, and a panic of the caller's function ends the call.
#[test]
fn several_threads_and_many_shards() {
    let store = TempDir::new();
    let spec = ShardingSpec::new(HashFunction::Identity, 0, 1, 8).unwrap();
    let mut loader = BuildOptions::new().spec(spec).memory(16 << 20).create(store.path()).unwrap();
    (0..3000u64).for_each(|key| loader.insert(key, key.to_le_bytes().repeat(3)).unwrap());
    loader.finish().unwrap();
    let db = OpenOptions::new().check_shards(false).open(store.path()).unwrap();
    let snapshot = db.snapshot();
    snapshot.verify_both(VerifyLevel::Data).unwrap();
    let shards: Vec<_> = common::directory_bytes(snapshot.directory()).into_keys().collect();
    for shard in shards.iter().filter(|name| name.ends_with(".shard")).step_by(3) {
        fs::remove_file(snapshot.directory().join(shard)).unwrap();
    }
    assert!(snapshot.verify_both(VerifyLevel::Data).unwrap().errors() > 80);
    let progress = Progress::new();
    progress.cancel();
    for threads in [1, 4] {
        let stopped =
            snapshot.verify_with(VerifyLevel::Data, VerifyOptions::new().threads(threads).progress(&progress));
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
        assert!(progress.done() < progress.total() / 2, "{progress:?}");
    }
    fs::remove_dir_all(snapshot.directory()).unwrap();
    assert_eq!(snapshot.verify_both(VerifyLevel::Data).unwrap_err().kind(), ErrorKind::GenerationGone);
}
