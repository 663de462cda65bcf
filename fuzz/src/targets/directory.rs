//! A damaged native store: verifying reads return the stored value or an error, verification finds the damage, and
//! salvage keeps stored pairs only. If the manifest's checksum is forged as well: no panic.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::generation::Template;
use crate::{ask, scratch};
use arbitrary::{Arbitrary, Unstructured};
use sharddb::{OpenOptions, Result, Salvage, ShardDb, Snapshot, VerifyLevel, VerifyReads};

#[derive(Arbitrary, Debug)]
struct Damage {
    template: u8,
    edits: Vec<Edit>,
    removed: Option<u8>,
    /// Whether the checksum in the last line of the manifest is updated after the damage.
    sealed: bool,
    storage: Storage,
    salvage: bool,
}

#[derive(Arbitrary, Debug)]
struct Edit {
    file: u8,
    at: u16,
    what: What,
}

/// A change of a file. None of them can forge a CRC-32, which protects against accidents only.
#[derive(Arbitrary, Debug)]
enum What {
    Flip(u8),
    Zero(u8),
    Cut,
    Grow { byte: u8, len: u8 },
    Copy { from_file: u8, from: u16, len: u8 },
    Swap { other: u8 },
    Digit(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Storage {
    Mapped,
    Positioned,
    Loaded,
}

impl Storage {
    fn open(self, options: &OpenOptions, path: &Path) -> Result<ShardDb> {
        match self {
            // SAFETY: only this process knows these files, and it changes them only while nothing is open.
            Storage::Mapped => unsafe { options.open_mapped(path) },
            Storage::Positioned => options.open(path),
            Storage::Loaded => options.load(path),
        }
    }
}

impl Edit {
    fn apply(&self, files: &mut [(String, Vec<u8>)]) {
        let file = usize::from(self.file) % files.len();
        match self.what {
            What::Swap { other } => swap(files, file, usize::from(other) % files.len()),
            What::Copy { from_file, from, len } => {
                let from_file = usize::from(from_file) % files.len();
                let copied: Vec<u8> =
                    files[from_file].1.iter().skip(usize::from(from)).take(usize::from(len)).copied().collect();
                let at = self.at(&files[file].1);
                files[file].1.iter_mut().skip(at).zip(copied).for_each(|(byte, copied)| *byte = copied);
            }
            _ => self.apply_to(&mut files[file].1),
        }
    }

    fn apply_to(&self, bytes: &mut Vec<u8>) {
        let at = self.at(bytes);
        match self.what {
            What::Flip(bits) => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bits),
            What::Zero(len) => bytes.iter_mut().skip(at).take(len.into()).for_each(|byte| *byte = 0),
            What::Cut => bytes.truncate(at),
            What::Grow { byte, len } => drop(bytes.splice(at..at, vec![byte; usize::from(len)])),
            // in JSON, another digit gets past more checks than a flipped bit
            What::Digit(digit) => {
                let digits = bytes.iter_mut().skip(at).find(|byte| byte.is_ascii_digit());
                digits.into_iter().for_each(|byte| *byte = b'0' + digit % 10);
            }
            What::Copy { .. } | What::Swap { .. } => {}
        }
    }

    /// The offset of the change; 0 for an empty file.
    fn at(&self, bytes: &[u8]) -> usize {
        usize::from(self.at) % bytes.len().max(1)
    }
}

fn swap(files: &mut [(String, Vec<u8>)], one: usize, other: usize) {
    let bytes = files[one].1.clone();
    files[one].1 = std::mem::replace(&mut files[other].1, bytes);
}

/// Updates the checksum in the last line of a manifest.
fn seal(manifest: &mut Vec<u8>) {
    let Some(at) = manifest.windows(7).rposition(|window| window == b"\"crc32\"") else { return };
    manifest.truncate(at);
    let mut crc = flate2::Crc::new();
    crc.update(manifest);
    manifest.extend_from_slice(format!("\"crc32\": {}\n}}\n", crc.sum()).as_bytes());
}

struct Fixture {
    templates: Vec<Template>,
    store: PathBuf,
    generation: PathBuf,
    out: PathBuf,
}

thread_local! {
    static FIXTURE: OnceCell<Fixture> = const { OnceCell::new() };
}

impl Fixture {
    fn new() -> Fixture {
        let templates = Template::all();
        let store = scratch::directory("store");
        fs::write(store.join("current"), "gen-0000000001").unwrap();
        let generation = store.join("gen-0000000001");
        fs::create_dir(&generation).unwrap();
        Fixture { templates, store, generation, out: scratch::directory("out") }
    }

    fn run(&self, damage: &Damage) {
        let template = &self.templates[usize::from(damage.template) % self.templates.len()];
        let mut files = template.files.clone();
        damage.edits.iter().take(16).for_each(|edit| edit.apply(&mut files));
        if damage.sealed {
            files.iter_mut().filter(|(name, _)| name == "manifest.json").for_each(|(_, bytes)| seal(bytes));
        }
        if let Some(removed) = damage.removed {
            files.remove(usize::from(removed) % files.len());
        }
        // a missing lease affects collection only
        let is_changed = files != template.files;
        self.write(&files);
        let forged = damage.sealed && is_changed;
        let mut options = OpenOptions::new();
        options.max_value_bytes(64 << 10).max_index_bytes(64 << 10);
        for verify in [VerifyReads::Once, VerifyReads::Always] {
            self.read_verified(damage, template, options.clone().verify_reads(verify), forged);
        }
        let db = damage.storage.open(&options, &self.store);
        let found = db.map_or(true, |db| {
            ask::everything_of(&db.snapshot(), &asked(template));
            is_found(&db.snapshot())
        });
        assert!(forged || found == is_changed, "found {found}, changed {is_changed}");
        if damage.salvage {
            self.salvage(template, &options, forged);
        }
    }

    fn write(&self, files: &[(String, Vec<u8>)]) {
        for entry in fs::read_dir(&self.generation).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        files.iter().for_each(|(name, bytes)| fs::write(self.generation.join(name), bytes).unwrap());
    }

    fn read_verified(&self, damage: &Damage, template: &Template, options: &OpenOptions, forged: bool) {
        let Ok(db) = damage.storage.open(options, &self.store) else { return };
        let snapshot = db.snapshot();
        ask::everything_of(&snapshot, &asked(template));
        if forged {
            return;
        }
        for key in asked(template) {
            let value = template.pairs.get(&key).map(|(_, value)| value);
            if let Ok(found) = snapshot.get(key) {
                assert_eq!(found.map(|found| found.to_vec()).as_ref(), value, "key {key}");
            }
        }
        let entries: Vec<_> = snapshot.iter().collect();
        let all = entries.iter().flatten().count() == template.pairs.len();
        assert!(all || entries.iter().any(|entry| entry.is_err()), "a walk misses pairs and does not say so");
        for entry in entries.into_iter().flatten() {
            let (preamble, value) = template.pairs.get(&entry.key()).expect("a key of the template");
            assert!(entry.value().is_ok_and(|found| found == *value) || entry.value().is_err(), "key {}", entry.key());
            assert!(entry.preamble().is_ok_and(|found| found.ends_with(preamble)) || entry.preamble().is_err());
        }
        check_range(&snapshot, template);
    }

    fn salvage(&self, template: &Template, options: &OpenOptions, forged: bool) {
        let Ok(salvage) = Salvage::open_with(&self.store, options) else { return };
        let _ = fs::remove_dir_all(&self.out);
        let mut build = salvage.build_options();
        let mut loader = build.threads(1).memory(16 << 20).create(&self.out).unwrap();
        // a forged info may be valid JSON that the loader does not accept
        if salvage.write(&mut loader, |lost| drop(lost.to_string())).is_err() || loader.finish().is_err() {
            return assert!(forged, "what is salvaged can be written");
        }
        let snapshot = ShardDb::load(&self.out).unwrap().snapshot();
        assert!(!is_found(&snapshot));
        // without a manifest, a changed info is trusted, also about whether there are checks
        if !forged && salvage_is_sure(&self.generation) {
            let kept: BTreeMap<u64, Vec<u8>> = snapshot
                .iter()
                .map(|entry| entry.unwrap())
                .map(|entry| (entry.key(), entry.value().unwrap().to_vec()))
                .collect();
            for (key, value) in kept {
                assert_eq!(template.pairs.get(&key).map(|(_, value)| value), Some(&value), "salvaged key {key}");
            }
        }
    }
}

/// A range returns the stored pairs by ascending key, or states that some are missing, with a damaged key file too.
fn check_range(snapshot: &Snapshot, template: &Template) {
    let pairs: Vec<_> = snapshot.range(..).collect();
    let keys: Vec<_> = snapshot.key_range(..).collect();
    let found: Vec<u64> = keys.iter().flatten().copied().collect();
    assert!(found.is_sorted_by(|one, next| one < next) && found.iter().all(|key| template.pairs.contains_key(key)));
    let all = found.len() == template.pairs.len();
    assert!(all || keys.iter().any(|key| key.is_err()), "a range of keys misses some and does not say so");
    let all = pairs.iter().flatten().map(|entry| entry.key()).eq(template.pairs.keys().copied());
    assert!(all || pairs.iter().any(|entry| entry.is_err()), "a range misses pairs and does not say so");
    for entry in pairs.into_iter().flatten() {
        let (_, value) = template.pairs.get(&entry.key()).expect("a key of the template");
        assert!(entry.value().is_ok_and(|found| found == *value) || entry.value().is_err(), "key {}", entry.key());
    }
}

/// Whether the manifest is intact, so that the layout, with its checks, is known.
fn salvage_is_sure(generation: &Path) -> bool {
    let Ok(mut manifest) = fs::read(generation.join("manifest.json")) else { return false };
    let as_found = manifest.clone();
    seal(&mut manifest);
    manifest == as_found && manifest.starts_with(b"{\n\"format_version\"")
}

fn asked(template: &Template) -> Vec<u64> {
    template.pairs.keys().copied().chain([1, 6, 50, u64::MAX]).collect()
}

fn is_found(snapshot: &Snapshot) -> bool {
    snapshot.verify(VerifyLevel::Data).map_or(true, |report| report.errors() + report.warnings() > 0)
}

/// Runs the target on an input, which describes the damage.
pub fn run(input: &[u8]) {
    let Ok(damage) = Damage::arbitrary_take_rest(Unstructured::new(input)) else { return };
    FIXTURE.with(|fixture| fixture.get_or_init(Fixture::new).run(&damage));
}
