//! Files that are intact and do not belong together: shards of another generation, and a minishard table of other places.
//! Whatever reads a whole shard notices, and lookups do where the files were loaded.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::common::verify_both::VerifyBoth;
use crate::common::{Storage, TempDir, data, json, with_own_crc32, xorshift};
use sharddb::diff::Diff;
use sharddb::salvage::Salvage;
use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::write::UpdateOptions;
use sharddb::{BuildOptions, Error, ErrorKind, OpenOptions, ShardDb, ShardingSpec, Snapshot, VerifyLevel, VerifyReads};

const KEYS: u64 = 40;

fn value(key: u64, version: u64, own_crc32: bool) -> Vec<u8> {
    let text = format!("value {key} of version {version}");
    if own_crc32 { with_own_crc32(text.as_bytes()) } else { text.into_bytes() }
}

fn options(spec: ShardingSpec) -> BuildOptions {
    let mut options = BuildOptions::new();
    options.spec(spec).durable(false).threads(1);
    options
}

/// A store whose first shard is that of another version. All versions have shards of equal lengths.
struct Mixed {
    scratch: TempDir,
    shard: PathBuf,
}

impl Mixed {
    fn new(spec: ShardingSpec, own_crc32: bool) -> Mixed {
        let scratch = TempDir::new();
        let [first, other] = [1, 2].map(|version| {
            let store = scratch.path().join(format!("store{version}"));
            let mut loader = options(spec).create(&store).unwrap();
            (0..KEYS).for_each(|key| loader.insert(key, value(key, version, own_crc32)).unwrap());
            loader.finish().unwrap();
            store.join("gen-0000000001/0.shard")
        });
        assert_eq!(fs::metadata(&first).unwrap().len(), fs::metadata(&other).unwrap().len());
        fs::remove_file(&first).unwrap();
        fs::copy(other, &first).unwrap();
        Mixed { scratch, shard: first }
    }

    fn store(&self) -> PathBuf {
        self.scratch.path().join("store1")
    }

    fn snapshot(&self, open: impl Fn(&OpenOptions, &Path) -> sharddb::Result<ShardDb>) -> Snapshot {
        open(OpenOptions::new().verify_files(true), &self.store()).unwrap().snapshot()
    }

    #[track_caller]
    fn is_named(&self, error: &Error) {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("0.shard") && error.message().contains("another generation"), "{error}");
    }
}

fn cases() -> impl Iterator<Item = Mixed> {
    let raw = ShardingSpec::new(HashFunction::Identity, 0, 1, 1).unwrap();
    let gzip = raw.with_minishard_index_encoding(Encoding::Gzip).with_data_encoding(Encoding::Gzip);
    [(raw, false), (raw, true), (gzip, true)].into_iter().map(|(spec, own_crc32)| Mixed::new(spec, own_crc32))
}

#[test]
fn a_loaded_shard_of_another_generation_is_an_error_in_every_lookup() {
    for mixed in cases() {
        let db = OpenOptions::new().load(mixed.store()).unwrap();
        for key in 0..KEYS {
            match db.get(key) {
                Err(error) => {
                    mixed.is_named(&error);
                    assert_eq!(key & 2, 0, "the other shard is right");
                }
                Ok(found) => assert!(key & 2 == 2 && found.is_some(), "{key}"),
            }
        }
    }
}

/// One bit that is flipped costs at most one minishard, wherever it is.
#[test]
fn a_loaded_shard_with_a_damaged_bit_keeps_its_other_minishards() {
    for index in [Encoding::Raw, Encoding::Gzip] {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 2, 0).unwrap().with_minishard_index_encoding(index);
        let scratch = TempDir::new();
        let mut loader = options(spec).value_alignment(ValueAlignment::Eight).create(scratch.path()).unwrap();
        (0..KEYS).for_each(|key| loader.insert(key, value(key, 1, false)).unwrap());
        loader.finish().unwrap();
        let path = scratch.path().join("gen-0000000001/0.shard");
        let bytes = fs::read(&path).unwrap();
        let shard_index = usize::try_from(spec.shard_index_len()).unwrap();
        for at in shard_index..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::remove_file(&path).unwrap();
            fs::write(&path, &changed).unwrap();
            let db = OpenOptions::new().load(scratch.path()).unwrap();
            let failed: Vec<u64> = (0..KEYS)
                .filter(|key| match db.get(*key) {
                    Ok(found) => {
                        assert_eq!(found.unwrap(), value(*key, 1, false));
                        false
                    }
                    Err(_) => true,
                })
                .collect();
            assert!(failed.iter().all(|key| key % 4 == failed[0] % 4), "byte {at}: {failed:?}");
        }
    }
}

#[test]
fn what_makes_new_data_of_whole_shards_refuses_a_shard_of_another_generation() {
    for mixed in cases() {
        for storage in Storage::ALL {
            let snapshot = mixed.snapshot(|options, path| storage.open(options, path));
            let errors: Vec<Error> = snapshot.iter().filter_map(Result::err).collect();
            assert_eq!(errors.len(), 1, "{storage:?}: {errors:?}");
            mixed.is_named(&errors[0]);

            let out = mixed.scratch.path().join("merged");
            let merged = options(*snapshot.spec()).merge(&out, std::slice::from_ref(&snapshot));
            mixed.is_named(&merged.err().unwrap());
        }
        let store = mixed.store();
        let put = |key: u64| {
            let mut updater = UpdateOptions::new().durable(false).open(&store)?;
            updater.put(key, "new")?;
            updater.finish()
        };
        mixed.is_named(&put(0).err().unwrap());
        put(2).unwrap(); // links the wrong shard, which stays noticeable
        let after = ShardDb::open(mixed.store()).unwrap().snapshot();
        let report = after.verify_both(VerifyLevel::Data).unwrap();
        let rules: Vec<_> = report.findings().iter().map(|finding| finding.kind().to_string()).collect();
        assert!(rules.contains(&"file-crc".to_string()), "{rules:?}");
    }
}

#[test]
fn verification_notices_a_shard_of_another_generation() {
    for mixed in cases() {
        let report = mixed.snapshot(|options, path| options.open(path)).verify_both(VerifyLevel::Data).unwrap();
        let rules: Vec<_> = report.findings().iter().map(|finding| finding.kind().to_string()).collect();
        assert!(rules.contains(&"file-crc".to_string()), "{rules:?}");
        assert!(report.findings().iter().all(|finding| finding.to_string().contains("0.shard")));
        assert!(mixed.shard.exists());
    }
}

/// Values that end with their own CRC-32, and noise in gzip members, which do so, too: shards of such values have equal
/// checksums.
#[test]
fn a_difference_is_found_between_values_with_equal_checksums() {
    for encoding in [Encoding::Raw, Encoding::Gzip] {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 1, 1).unwrap().with_data_encoding(encoding);
        a_difference_is_found(spec);
    }
}

fn a_difference_is_found(spec: ShardingSpec) {
    let scratch = TempDir::new();
    let [one, other] = [1, 2].map(|version| {
        let store = scratch.path().join(format!("store{version}"));
        let mut loader = options(spec).create(&store).unwrap();
        for key in 0..KEYS {
            let mut noise = xorshift(key << 8 | version);
            let value: Vec<u8> = (0..40).flat_map(|_| noise().to_le_bytes()).collect();
            loader.insert(key, with_own_crc32(&value)).unwrap();
        }
        loader.finish().unwrap();
        store
    });
    let shards = |store: &Path| json(&store.join("gen-0000000001/manifest.json"))["shards"].clone();
    assert_eq!(shards(&one), shards(&other), "lengths and checksums");
    let [one, other] = [one, other].map(|store| ShardDb::open(store).unwrap().snapshot());
    let totals = Diff::between(&one, &other).run(|change| {
        change.unwrap();
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(totals.continue_value().unwrap().changed, KEYS);
}

/// The first block of a minishard table, whose content is changed.
struct TableBlock<'a> {
    content: &'a mut [u8],
    /// The bits per minishard, and those of them that are the length of its index.
    bits: usize,
    length_bits: usize,
}

/// Returns a generation with a minishard table whose checksums are right, and which hides the keys of one minishard.
pub(crate) fn with_crafted_table() -> TempDir {
    with_table(|TableBlock { content, bits, length_bits }| {
        let hidden = (0..256_usize).find(|minishard| {
            let is_set = |bit: usize| content[16 + bit / 8] >> (bit % 8) & 1 == 1;
            (0..length_bits).any(|bit| is_set(minishard * bits + bit))
        });
        let first_bit = hidden.unwrap() * bits;
        (first_bit..first_bit + length_bits).for_each(|bit| content[16 + bit / 8] &= !(1 << (bit % 8)));
    })
}

/// Returns a generation with a minishard table whose checksums are right, and whose first 256 indexes are stated to begin
/// `units` of 8 bytes after their places.
fn with_moved_table(units: u64) -> TempDir {
    with_table(|TableBlock { content, .. }| {
        for word in content[..16].chunks_exact_mut(8) {
            let moved = u64::from_le_bytes((&*word).try_into().unwrap()) + units;
            word.copy_from_slice(&moved.to_le_bytes());
        }
    })
}

/// Returns a copy of a generation with another first block of the minishard table, with right checksums everywhere.
fn with_table(change: impl FnOnce(TableBlock)) -> TempDir {
    let scratch = TempDir::copy_of(&data("store-v1-digests/store/gen-0000000001"));
    let manifest = json(&scratch.path().join("manifest.json"));
    let shard_index_crc32 = manifest["shards"][0][4].as_u64().unwrap() as u32;
    let path = scratch.path().join("minishards");
    let mut table = fs::read(&path).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // the first section of the section table, as docs/format.md has it
    let (offset, deviation_bits, length_bits) = (word(&table, 24) as usize, table[41] as usize, table[42] as usize);
    let bits = deviation_bits + length_bits;
    let block_len = 16 + 8 * (256 * bits).div_ceil(64) + 4;
    let block = &mut table[offset..offset + block_len];
    let (content, crc32) = block.split_at_mut(block_len - 4);
    change(TableBlock { content: &mut *content, bits, length_bits });
    let place = [&0_u64.to_le_bytes()[..], &0_u64.to_le_bytes(), &shard_index_crc32.to_le_bytes(), content].concat();
    crc32.copy_from_slice(&crc32fast::hash(&place).to_le_bytes());
    fs::remove_file(&path).unwrap();
    fs::write(&path, &table).unwrap();
    // the manifest states the new file, without a digest
    let text = fs::read_to_string(scratch.path().join("manifest.json")).unwrap();
    let row = |crc32: &str| format!("[\"minishards\",{},{crc32}]", table.len());
    let stated = manifest["auxiliary"][0][2].as_u64().unwrap().to_string();
    let text = text.replace(&row(&stated), &row(&crc32fast::hash(&table).to_string()));
    let digests: Vec<&str> = text.lines().skip_while(|line| *line != "\"digests\": [").take(3).collect();
    let text = text.replace(digests[2], "null,");
    let (head, _) = text.rsplit_once("\"crc32\"").unwrap();
    let text = format!("{head}\"crc32\": {}\n}}\n", crc32fast::hash(head.as_bytes()));
    fs::remove_file(scratch.path().join("manifest.json")).unwrap();
    fs::write(scratch.path().join("manifest.json"), text).unwrap();

    scratch
}

#[test]
fn verification_compares_the_minishard_table_with_the_shard_index() {
    let scratch = with_crafted_table();
    let all = ShardDb::open(data("store-v1-digests/store/gen-0000000001")).unwrap().snapshot();
    let options = OpenOptions::new().verify_reads(VerifyReads::Always).clone();
    let crafted = options.open(scratch.path()).unwrap().snapshot();
    let absent = all.iter().filter(|entry| crafted.get(entry.as_ref().unwrap().key()).unwrap().is_none()).count();
    assert!(absent > 0, "the table decides lookups");
    assert_verify_finds_the_table(&crafted);
}

fn assert_verify_finds_the_table(snapshot: &Snapshot) {
    for level in [VerifyLevel::Index, VerifyLevel::Data] {
        let report = snapshot.verify_both(level).unwrap();
        let findings: Vec<String> = report.findings().iter().map(ToString::to_string).collect();
        assert!(
            findings.iter().any(|finding| finding.contains("minishards") && finding.contains("wrong-minishard-table")),
            "{findings:?}"
        );
    }
}

/// A lookup that uses a wrong place returns an error that names the table, and no answer. The advice of the message works:
/// without the table every key is found. `Never` reads whatever is at a place within the shard.
#[test]
fn a_wrong_place_in_the_minishard_table_is_an_error_that_names_the_table() {
    let all = ShardDb::open(data("store-v1-digests/store/gen-0000000001")).unwrap().snapshot();
    let pairs: Vec<(u64, Vec<u8>)> =
        all.iter().map(Result::unwrap).map(|entry| (entry.key(), entry.value().unwrap().to_vec())).collect();
    for (units, modes) in [
        (3, &[VerifyReads::Once, VerifyReads::Always][..]),
        (1 << 40, &[VerifyReads::Once, VerifyReads::Always, VerifyReads::Never]),
    ] {
        let scratch = with_moved_table(units);
        for (mode, storage) in modes.iter().flat_map(|mode| [Storage::Mapped, Storage::Positioned].map(|s| (*mode, s)))
        {
            let options = OpenOptions::new().verify_reads(mode).clone();
            let snapshot = storage.open(&options, scratch.path()).unwrap().snapshot();
            let batch = snapshot.get_many(&pairs.iter().map(|(key, _)| *key).collect::<Vec<_>>());
            let mut wrong = 0;
            for ((key, value), of_batch) in pairs.iter().zip(batch) {
                match snapshot.get(*key) {
                    Ok(found) => {
                        assert_eq!(found.unwrap(), value, "key {key}");
                        assert_eq!(of_batch.unwrap().unwrap(), value, "key {key}");
                    }
                    Err(error) => {
                        wrong += 1;
                        let other = [of_batch.map(drop), snapshot.contains(*key).map(drop)].map(Result::unwrap_err);
                        for error in other.iter().chain([&error]) {
                            assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(*key)), "{error}");
                            assert_eq!(error.path(), Some(&*scratch.path().join("minishards")), "{error}");
                            assert!(error.message().contains("delete the file `minishards`"), "{error}");
                        }
                    }
                }
            }
            assert!((1..pairs.len()).contains(&wrong), "the first of four blocks: {wrong}");
        }
        assert_verify_finds_the_table(&ShardDb::open(scratch.path()).unwrap().snapshot());
        fs::remove_file(scratch.path().join("minishards")).unwrap();
        let snapshot = ShardDb::open(scratch.path()).unwrap().snapshot();
        for (key, value) in &pairs {
            assert_eq!(snapshot.get(*key).unwrap().unwrap(), value, "key {key}");
        }
    }
}

/// Its values prove themselves, and nothing else says what the lost shard had.
#[test]
fn salvage_keeps_and_counts_a_shard_of_another_generation() {
    for mixed in cases() {
        let salvage = Salvage::open(mixed.store()).unwrap();
        let mut loader = salvage.build_options().durable(false).create(mixed.scratch.path().join("out")).unwrap();
        let report = salvage.write(&mut loader, |lost| panic!("{lost}")).unwrap();
        assert_eq!((report.kept, report.losses, report.other_files), (KEYS, 0, 1));
        assert!(report.to_string().contains("1 shard not as the manifest says"), "{report}");
    }
}
