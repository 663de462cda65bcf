//! The work that a file causes is bounded by its length, whatever its indexes state: bytes that many entries name are
//! read a bounded number of times, and bytes that no entry names are not read.
//!
//! The tests count rows, bytes and memory (by the allocator). Shards are laid out by hand, from the text of the format.

use sharddb_format::internal::ids::shard_number;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::common::verify_both::VerifyBoth;
use crate::common::{Storage, TempDir};
use crate::peak::peak_of;
use sharddb::salvage::SalvageReport;
use sharddb::spec::{HashFunction, Layout};
use sharddb::verify::FindingKind;
use sharddb::write::ShardWriter;
use sharddb::{ErrorKind, OpenOptions, Salvage, ShardDb, ShardingSpec, Snapshot, VerifyLevel};

const MIB: usize = 1 << 20;

/// The documented memory bound for a hostile input.
fn most(input: usize) -> usize {
    64 * MIB + 12 * input
}

fn words(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A directory with one shard under the identity hash, without layout and manifest.
fn data_set(minishard_bits: u32, index_encoding: &str, shard: &[u8]) -> TempDir {
    let directory = TempDir::new();
    let info = serde_json::json!({"sharding": {
        "@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0,
        "minishard_bits": minishard_bits, "shard_bits": 0, "minishard_index_encoding": index_encoding,
    }});
    fs::write(directory.path().join("info"), info.to_string()).unwrap();
    fs::write(directory.path().join("0.shard"), shard).unwrap();
    directory
}

/// A minishard index: ids that are `step` apart, and ranges.
fn index(first: u64, step: u64, ranges: &[(u64, u64)]) -> Vec<u8> {
    let ids = (0..ranges.len()).map(|row| if row == 0 { first } else { step });
    let ends = std::iter::once(0).chain(ranges.iter().map(|(_, end)| *end));
    let starts = ranges.iter().zip(ends).map(|((start, _), end)| start.wrapping_sub(end));
    let sizes = ranges.iter().map(|(start, end)| end - start);
    words(ids.chain(starts).chain(sizes))
}

fn snapshot(directory: &Path, storage: Storage) -> Snapshot {
    storage.open(&OpenOptions::new(), directory).unwrap().snapshot()
}

fn salvage(directory: &Path) -> (SalvageReport, Vec<FindingKind>, Snapshot, TempDir) {
    let (out, mut kinds) = (TempDir::new(), Vec::new());
    let salvage = Salvage::open(directory).unwrap();
    let mut loader = salvage.build_options().threads(1).memory(16 << 20).create(out.path().join("out")).unwrap();
    let report = salvage.write(&mut loader, |lost| kinds.push(lost.kind())).unwrap();
    loader.finish().unwrap();
    let snapshot = ShardDb::load(out.path().join("out")).unwrap().snapshot();
    (report, kinds, snapshot, out)
}

/// 2^12 entries that all name one index of 8,000 empty values, keys of minishard 5.
#[test]
fn entries_that_name_one_minishard_index_do_not_multiply_its_rows() {
    const BITS: u32 = 12;
    const ROWS: u64 = 8000;
    for encoding in ["raw", "gzip"] {
        let rows = index(5, 1 << BITS, &[(0, 0); ROWS as usize]);
        let rows = if encoding == "gzip" { gzip(&rows) } else { rows };
        let entries = (0..1 << BITS).flat_map(|_| [0, rows.len() as u64]);
        let shard = [words(entries), rows.clone()].concat();
        let directory = data_set(BITS, encoding, &shard);
        // indexes are read until their lengths add up to twice the length of the file
        let times = 2 * shard.len() as u64 / rows.len() as u64;
        assert!(times < 1 << (BITS - 3), "otherwise the test shows nothing");
        for storage in Storage::ALL {
            let snapshot = snapshot(directory.path(), storage);
            let ((found, errors), peak) = peak_of(|| {
                let (mut found, mut errors) = (0, Vec::new());
                snapshot.keys().for_each(|key| match key {
                    Ok(_) => found += 1,
                    Err(error) => errors.push(error),
                });
                (found, errors)
            });
            assert_eq!((found, errors.len() as u64), (times * ROWS, (1 << BITS) - times), "{encoding}, {storage:?}");
            assert!(peak <= most(shard.len()), "{peak}");
            let error = &errors[0];
            assert_eq!(
                (error.kind(), error.location().minishard.unwrap().get()),
                (ErrorKind::Corrupt, times),
                "{error}"
            );
            assert!(error.message().contains("overlaps minishard 0"), "{error}");
            assert_eq!(error.location().offset, Some(16 << BITS), "{error}");

            let (report, peak) = peak_of(|| snapshot.verify(VerifyLevel::Data).unwrap());
            // rows are kept up to one per byte of the file, plus 2^19
            let kept = times.min((shard.len() as u64 + (1 << 19)) / (ROWS + 1));
            assert_eq!((report.keys, report.minishards), (kept * ROWS, 1 << BITS), "{encoding}, {storage:?}");
            assert!(peak <= most(shard.len()), "{peak}");
            assert!(report.findings().iter().any(|finding| finding.kind() == FindingKind::IndexOverlap));

            let (preamble, peak) = peak_of(|| snapshot.iter().next().unwrap().unwrap().preamble().map(drop));
            assert_eq!(
                preamble.map_err(|error| error.kind()),
                if kept == times { Ok(()) } else { Err(ErrorKind::TooLarge) }
            );
            assert!(peak <= most(shard.len()), "{peak}");
            assert_eq!(snapshot.get(5).unwrap().unwrap().len(), 0, "what is looked up is found as before");
        }
        let ((report, kinds, kept, _out), peak) = peak_of(|| salvage(directory.path()));
        assert_eq!((report.kept, report.losses), (ROWS, (1 << BITS) - 1), "the minishard that the keys are of is kept");
        assert!(kinds.iter().all(|kind| *kind == FindingKind::IndexOverlap));
        assert!(kept.contains(5).unwrap() && kept.contains(5 + ((ROWS - 1) << BITS)).unwrap());
        assert!(peak <= most(shard.len()), "{peak}");
    }
}

/// Indexes of decreasing length that all end at the end of the file: all differ, and each overlaps all others.
#[test]
fn nested_minishard_indexes_are_read_to_twice_the_length_of_the_file() {
    const BITS: u32 = 10;
    let body = vec![0; 24 << BITS];
    let entries = (0..1 << BITS).flat_map(|minishard| [24 * minishard, body.len() as u64]);
    let shard = [words(entries), body.clone()].concat();
    let directory = data_set(BITS, "raw", &shard);
    for storage in Storage::ALL {
        let snapshot = snapshot(directory.path(), storage);
        assert!(snapshot.keys().filter(Result::is_ok).count() <= 2 * shard.len() / 24);
        let report = snapshot.verify_both(VerifyLevel::Data).unwrap();
        assert!(report.keys <= 2 * shard.len() as u64 / 24 && !report.is_clean());
    }
    let (report, ..) = salvage(directory.path());
    assert!(report.kept + report.losses <= 2 * shard.len() as u64 / 24 + (1 << BITS), "{report}");
}

/// One damaged entry that names the entire file hides no key of other minishards.
#[test]
fn a_damaged_entry_hides_no_other_minishard() {
    const BITS: u32 = 4;
    let value = *b"value";
    let one = |minishard: u64| {
        let start = minishard * 29 + 24;
        [index(minishard, 1, &[(start, start + 5)]), value.to_vec()].concat()
    };
    let body: Vec<u8> = (0..1 << BITS).flat_map(one).collect();
    let mut entries: Vec<u64> = (0..1 << BITS).flat_map(|at| [at * 29, at * 29 + 24]).collect();
    let sound = data_set(BITS, "raw", &[words(entries.clone()), body.clone()].concat());
    let report = snapshot(sound.path(), Storage::Positioned).verify_both(VerifyLevel::Data).unwrap();
    assert!(report.findings().is_empty(), "{:?}", report.findings());
    entries[0..2].copy_from_slice(&[8, 8 + body.len() as u64 / 24 * 24 - 24]);
    let directory = data_set(BITS, "raw", &[words(entries), body].concat());
    for storage in Storage::ALL {
        let keys: Vec<u64> = snapshot(directory.path(), storage).keys().flatten().collect();
        assert!((1..1 << BITS).all(|key| keys.contains(&key)), "{storage:?}: {keys:?}");
    }
    let report = snapshot(directory.path(), Storage::Positioned).verify_both(VerifyLevel::Data).unwrap();
    assert!(
        report.findings().iter().any(|finding| finding.kind() == FindingKind::IndexOverlap),
        "{:?}",
        report.findings()
    );
}

/// All rows name one value of half the length of the file.
#[test]
fn values_that_share_bytes_are_looked_at_64_times_the_length_of_the_file() {
    const ROWS: usize = 4000;
    let value = (24 * ROWS) as u64;
    let rows = index(0, 1, &[(value, 2 * value); ROWS]);
    let shard = [words([0, value]), rows, vec![b'v'; 24 * ROWS]].concat();
    let directory = data_set(0, "raw", &shard);
    let looked_at = 64 * shard.len() as u64 / value;
    assert!(looked_at < ROWS as u64 / 8, "or nothing would be shown");
    for storage in Storage::ALL {
        let snapshot = snapshot(directory.path(), storage);
        let report = snapshot.verify_both(VerifyLevel::Data).unwrap();
        assert_eq!((report.keys, report.value_bytes), (ROWS as u64, ROWS as u64 * value));
        assert_eq!(report.bytes_read, 16 + value + looked_at * value, "{storage:?}");
        let over = report.findings().iter().find(|finding| finding.kind() == FindingKind::OverCap).unwrap();
        assert!(over.message().contains(&format!("{} values were not verified", ROWS as u64 - looked_at)), "{over}");
    }
    let (report, kinds, ..) = salvage(directory.path());
    // the preamble of a value is between it and the index, so it is empty here
    assert_eq!((report.kept, report.losses), (looked_at, ROWS as u64 - looked_at));
    assert!(kinds.iter().all(|kind| *kind == FindingKind::OverCap));
}

/// A gap full of words that could each begin an index, in a shard with checks. None of them does.
#[test]
fn a_gap_without_end_is_searched_in_linear_time() {
    // every word is 1: ascending ids, all of the only minishard, so that each word may begin an index of any length
    let gap = words(std::iter::repeat_n(1, 64 << 10));
    let index = index(0, 1, &[(0, 0)]);
    let shard = [words([gap.len() as u64, gap.len() as u64 + 24]), gap, index].concat();
    let directory = data_set(0, "raw", &shard);
    let info = fs::read_to_string(directory.path().join("info")).unwrap();
    let checks = r#", "sharddb": {"checks": true, "prefixes": true, "value_alignment": 1}}"#;
    fs::write(directory.path().join("info"), info.strip_suffix('}').unwrap().to_string() + checks).unwrap();
    let (report, ..) = salvage(directory.path());
    assert_eq!(report.kept, 0);
}

/// 2^31 entries, of which three name a minishard: 32 GiB of shard index, nearly all of it sparse.
#[test]
fn holes_of_a_shard_index_are_skipped() {
    const BITS: u8 = 31;
    let spec = ShardingSpec::new(HashFunction::Identity, 0, BITS, 0).unwrap();
    let directory = TempDir::new();
    let Some(path) = sparse_file(directory.path(), spec.shard_index_len()) else {
        eprintln!("skipped: this file system has no holes of 32 GiB");
        return;
    };
    let keys = [3, 1 << 20, (1 << BITS) - 2];
    let mut writer = ShardWriter::create(&path, spec, shard_number(0), Layout::default()).unwrap();
    for key in keys {
        writer.insert(key, b"value").unwrap();
    }
    let summary = writer.finish().unwrap();
    fs::write(directory.path().join("info"), format!("{{\"sharding\": {spec}}}")).unwrap();

    for storage in [Storage::Mapped, Storage::Positioned] {
        let snapshot = snapshot(directory.path(), storage);
        assert_eq!(snapshot.keys().map(Result::unwrap).collect::<Vec<_>>(), keys, "{storage:?}");
        assert_eq!(snapshot.iter().map(|entry| entry.unwrap().key()).collect::<Vec<_>>(), keys);
        assert_eq!((snapshot.count().unwrap(), snapshot.range(..).count()), (3, 3));
        assert!(snapshot.iter().next().unwrap().unwrap().preamble().is_ok());
        for level in [VerifyLevel::Structure, VerifyLevel::Index, VerifyLevel::Data] {
            let report = snapshot.verify_both(level).unwrap();
            assert!(report.is_clean(), "{storage:?}: {:?}", report.findings());
            assert_eq!(report.minishards, 3);
            // three blocks of data, and the reads of the holes next to them
            assert!(report.bytes_read < 4 << 20, "{storage:?}: {} bytes", report.bytes_read);
        }
    }
    let salvage = Salvage::open(directory.path()).unwrap();
    let mut options = sharddb::BuildOptions::new();
    let out = TempDir::new();
    let mut loader = options.threads(1).memory(16 << 20).create(out.path().join("out")).unwrap();
    assert_eq!(salvage.write(&mut loader, |lost| panic!("{lost}")).unwrap().kept, 3);
    assert_eq!(summary.keys, 3);
}

/// Creates a sparse file of this length; `None` if the file system cannot.
fn sparse_file(directory: &Path, len: u64) -> Option<std::path::PathBuf> {
    let path = directory.join("0.shard");
    let is_sparse = File::create(&path).unwrap().set_len(len).is_ok();
    fs::remove_file(&path).unwrap();
    is_sparse.then_some(path)
}

/// Memory and length of the message about nested specifications.
#[test]
fn an_info_of_many_nested_specifications_takes_memory_in_proportion() {
    let members = (0..5000).map(|at| format!("\"{at}\":{{\"sharding\":1}}")).collect::<Vec<_>>().join(",");
    let wide = format!("{{\"{}\":{{{members}}}}}", "a".repeat(100_000));
    let deep = format!("{}{}{}", format!("{{\"{}\":", "a".repeat(20_000)).repeat(100), "{}", "}".repeat(100));
    for (info, kind) in [(wide, ErrorKind::InvalidInput), (deep, ErrorKind::InvalidSpec)] {
        let directory = TempDir::new();
        fs::write(directory.path().join("info"), &info).unwrap();
        let (opened, peak) = peak_of(|| ShardDb::open(directory.path()).map(drop));
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(peak <= MIB + 12 * info.len(), "{peak} bytes for an info of {}", info.len());
        assert!(error.message().len() < 8 << 10, "{} bytes of message", error.message().len());
    }
}
