//! Salvage: copies every pair of a damaged data set that can be proved right to a loader, and reports the others.
//!
//! ```text
//! proof of a pair
//!   with checks      the check of the value matches, and with preambles that of the preamble;
//!                    the check of the minishard index need not match
//!   without checks   the hash of the key leads to the minishard that has it,
//!                    and the value is inside the file and overlaps no minishard index
//!   stored as gzip   in addition, the value decodes, with the CRC-32 of gzip or the Adler-32 of zlib
//! ```
//!
//! In a shard with checks, minishards that the shard index no longer leads to are searched for. An index is recognised
//! by its check, which covers the shard and minishard numbers.
//!
//! Salvage does not guess: a pair that cannot be proved is a loss, and is reported. It does not repair files in place.
//! It accepts two errors of neuroglancer-scripts: zlib streams in place of gzip, and shards with empty minishards whose
//! shard index entries are moved to the first slots.

mod search;
mod shard;
mod survey;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::bytes::{StorageKind, read_whole};
use crate::error::{Error, ErrorKind, Result};
use crate::format::info::{self, Info};
use crate::format::manifest::Manifest;
use crate::format::spec::ShardingSpec;
use crate::fs;
use crate::ids::ShardNumber;
use crate::plural::{Grouped, Plural};
use crate::read::generation::{Generation, Leased};
use crate::read::options::OpenOptions;
use crate::read::shard::{MinishardCache, Pass, ShardReader};
use crate::salvage::shard::ShardSalvage;
use crate::store::{self, Lease};
use crate::threads::progress::Progress;
use crate::verify::{Finding, FindingKind};
use crate::write::{BuildOptions, BulkLoader, OnDuplicate};

/// A damaged data set, opened to copy the pairs that are left.
///
/// Opening it needs a sharding specification: from [`OpenOptions`], a valid manifest, or a valid `info`, in this order.
/// Files are read with positioned reads, so that a bad sector is an error and not a signal.
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// use sharddb::Salvage;
///
/// let salvage = Salvage::open("damaged")?;
/// let mut loader = salvage.build_options().create("whole")?;
/// let report = salvage.write(&mut loader, |lost| eprintln!("{lost}"))?;
/// loader.finish()?;
/// println!("{report}");
/// # Ok(()) }
/// ```
pub struct Salvage {
    generation: Generation,
    /// `None` without a valid manifest.
    manifest: Option<Manifest>,
    /// The text of `info`, if its foreign members can be kept in a store with the shards described in the same place.
    info: Option<String>,
}

/// The counts of [`Salvage::write`].
///
/// `Display` is one line with all counts. See [`Salvage`] for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Number of pairs that were proved right and passed to the loader.
    pub kept: u64,
    /// Number of reported losses. Each is a pair, a minishard or a shard that could not be read or proved, or `info`.
    pub losses: u64,
    /// The manifest's number of keys minus [`kept`](Self::kept), at least 0; `None` without a valid manifest.
    pub missing: Option<u64>,
    /// Number of kept pairs that lookups missed, because the shard index entry of their minishard was in the wrong slot.
    pub wrong_slot: u64,
    /// Number of kept pairs from a file that has the name of another shard.
    pub wrong_file: u64,
    /// Number of shards from which nothing was lost, and which are not the ones that the manifest describes: their pairs
    /// prove themselves, and may be those of another generation.
    pub other_files: u64,
    /// Number of kept pairs whose value or minishard index was stored as zlib in place of gzip.
    pub zlib: u64,
}

impl Salvage {
    /// Opens a damaged store, one of its generations, or a directory of shards.
    ///
    /// Cost: reads the manifest or `info`, and lists the directory. Opens no shard.
    ///
    /// # Errors
    ///
    /// `Corrupt` if `current` is damaged: pass the directory of a generation instead. `InvalidSpec` or `Corrupt` if
    /// neither the manifest nor `info` is valid: pass the specification to [`open_with`](Salvage::open_with).
    /// `GenerationGone` if the generation is being removed; `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<Salvage> {
        Salvage::open_with(path, &OpenOptions::new())
    }

    /// Like [`open`](Salvage::open), with the specification, JSON pointer and caps of `options`.
    ///
    /// With a specification that differs from the manifest's, checks and preambles are unknown, and pairs are judged
    /// without checks.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Salvage::open).
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Salvage> {
        let path = path.as_ref();
        let mut directory = path.canonicalize().map_err(|error| Error::io("open", path, error))?;
        if store::has_current(&directory)? {
            let current = store::read_current(&directory)?.ok_or_else(|| {
                Error::invalid_input(
                    "expected a store with a current generation, found none: pass a generation's directory",
                )
                .at_path(&directory)
            })?;
            directory.push(current.to_string());
        }
        let lease = Lease::is_offered_by(&directory)?.then(|| Lease::acquire(&directory)).transpose()?;
        let leased = lease.map(|lease| Leased { id: None, follows: false, lease });
        let cache = Arc::new(MinishardCache::new(0)); // salvage reads indexes without the cache
        let options = options.with_storage(StorageKind::Positioned);
        let (generation, manifest) = Generation::open_damaged(&directory, options, cache, leased)?;
        let info = read_whole(&directory.join(info::FILE_NAME), info::MAX_BYTES)
            .ok()
            .and_then(|text| String::from_utf8(text).ok());
        let info = info.filter(|text| describes_again(text, generation.pointer()));
        Ok(Salvage { generation, manifest, info })
    }

    /// Returns the sharding specification.
    pub fn spec(&self) -> &ShardingSpec {
        self.generation.spec()
    }

    /// Returns the absolute path of the directory that is read.
    pub fn directory(&self) -> &Path {
        self.generation.directory()
    }

    /// Returns the directory of the shards: [`directory`](Salvage::directory), or the subdirectory that the member
    /// "key" of a nested object names.
    pub fn shards_directory(&self) -> &Path {
        self.generation.shards_directory()
    }

    /// Returns whether [`build_options`](Salvage::build_options) keeps the foreign members of `info`.
    ///
    /// False if `info` is not readable, or if its member "sharding" is nested in an object whose "key" a generation cannot
    /// have as the directory of its shards. If "sharding" is nested, as in a volume, the new store is such a volume too,
    /// with the description of all its scales.
    pub fn keeps_info(&self) -> bool {
        self.info.is_some()
    }

    /// Returns options for a store with the same specification, alignment and foreign members of `info`, and with
    /// checks.
    ///
    /// The first pair of a duplicate key is kept. Sparse shards are allowed, since most of the data may be lost.
    pub fn build_options(&self) -> BuildOptions {
        let mut options = BuildOptions::new();
        options.spec(*self.spec()).checks(true).on_duplicate(OnDuplicate::KeepFirst).allow_sparse(true);
        if let Some(layout) = self.generation.layout() {
            options.value_alignment(layout.value_alignment);
        }
        if let Some(info) = &self.info {
            options.info(info).sharding_at(self.generation.pointer());
        }
        options
    }

    /// Passes every pair that can be proved right to `loader`, and every loss to `lost`.
    ///
    /// A loss has the rule that is broken and its place: shard, minishard and key of a pair, or only the shard and
    /// minishard if an index cannot be read and its keys are unknown.
    ///
    /// Memory: 16 bytes per key of one shard, one minishard index, one value. While a shard with checks is searched for
    /// lost minishards, also one contiguous range of up to 1 GiB that no index names.
    ///
    /// Time, memory and output are linear in the length of the files, whatever their indexes state:
    ///
    /// - If several shard index entries name one minishard index, one minishard is kept: the one that its keys hash to.
    /// - Minishard indexes are read in ascending order of their length, up to twice the length of the shard.
    /// - Values and preambles are read up to 64 times the length of the shard.
    ///
    /// Where values are aligned, the zeros at the beginning of a preamble are taken for padding, which they are unless version
    /// 0.1.0 wrote such a preamble.
    ///
    /// # Errors
    ///
    /// Those of the loader. Damage of the data set is not an error but a loss.
    pub fn write(&self, loader: &mut BulkLoader, mut lost: impl FnMut(&Finding)) -> Result<SalvageReport> {
        loader.needs_fragments = false; // a manifest is kept even if its fragments are lost
        let mut outcome = Outcome { report: SalvageReport::default(), lost: &mut lost };
        self.check_info(&mut outcome);
        for number in self.shard_numbers() {
            match self.generation.open_shard_apart(number) {
                Ok(Some(shard)) => {
                    let _pass = Pass::new(&shard);
                    let keys = self.keys_of(number);
                    let before = outcome.report;
                    ShardSalvage::new(&self.generation, shard.reader(), keys, loader, &mut outcome).run()?;
                    outcome.check_count(before, keys, shard.reader());
                    self.check_file(before, shard.reader(), &mut outcome);
                }
                Ok(None) => outcome.lose(FindingKind::MissingShard, self.missing_shard(number)),
                Err(error) => outcome.lose(FindingKind::UnreadableShard, error.at_shard(number)),
            }
        }
        let mut report = outcome.report;
        report.missing = self.manifest.as_ref().map(|manifest| manifest.keys.saturating_sub(report.kept));
        Ok(report)
    }

    /// Returns the shards that have a file or are in the manifest, ascending.
    fn shard_numbers(&self) -> Vec<ShardNumber> {
        let stated = self.manifest.iter().flat_map(|manifest| manifest.shards.iter().map(|shard| shard.number));
        let mut numbers: Vec<ShardNumber> = self.generation.shard_numbers().chain(stated).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns the number of keys that the manifest states for a shard; `None` without a valid manifest.
    fn keys_of(&self, number: ShardNumber) -> Option<u64> {
        self.manifest.as_ref().map(|manifest| manifest.shard(number).map_or(0, |shard| shard.keys))
    }

    fn missing_shard(&self, number: ShardNumber) -> Error {
        let keys = self.keys_of(number).unwrap_or(0);
        let message = format!("expected a shard of {keys} keys as the manifest says, found no file");
        let path = self.generation.shards_directory().join(self.spec().shard_file_name(number));
        Error::corrupt(message).at_shard(number).at_path(&path)
    }

    /// Counts a shard from which nothing was lost, and which is not the one that the manifest describes.
    fn check_file(&self, before: SalvageReport, shard: &ShardReader, outcome: &mut Outcome<'_>) {
        let record = self.manifest.as_ref().and_then(|manifest| manifest.shard(shard.number));
        let Some(record) = record.filter(|_| outcome.report.losses == before.losses) else { return };
        let (path, stated) = (shard.files().path(), record.checksum(&shard.spec));
        match fs::checksum(&path, stated, &Progress::default()) {
            Ok(found) if stated.check(found).is_ok() => {}
            Ok(_) => outcome.report.other_files += 1,
            Err(error) => outcome.lose(FindingKind::UnreadableShard, error.at_shard(shard.number)),
        }
    }

    /// Reports a loss if `info` does not match the manifest.
    fn check_info(&self, outcome: &mut Outcome<'_>) {
        let Some(manifest) = &self.manifest else { return };
        let path = self.directory().join(info::FILE_NAME);
        if let Err(error) = read_whole(&path, info::MAX_BYTES).and_then(|text| manifest.check_info(&text)) {
            outcome.lose(FindingKind::InfoMismatch, error.at_path(&path));
        }
    }
}

/// Returns whether a build can take an `info` over, with the sharding at the same JSON pointer.
fn describes_again(info: &str, pointer: &str) -> bool {
    if pointer.is_empty() {
        Info::parse(info.as_bytes(), Some("")).is_ok() && Info::check(info).is_ok()
    } else {
        Info::nested_in(info, pointer).is_ok()
    }
}

impl fmt::Debug for Salvage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salvage").field("directory", &self.directory()).finish()
    }
}

impl fmt::Display for SalvageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kept, {}", Plural(self.kept, "pair"), Plural(self.losses, "loss"))?;
        if let Some(missing) = self.missing {
            write!(f, ", {} of the manifest's keys missing", Grouped(missing))?;
        }
        if self.wrong_slot > 0 {
            write!(
                f,
                ", {} by entries in the wrong slot (as neuroglancer-scripts writes them)",
                Grouped(self.wrong_slot)
            )?;
        }
        if self.wrong_file > 0 {
            write!(f, ", {} from files that have the name of another shard", Grouped(self.wrong_file))?;
        }
        if self.other_files > 0 {
            let files = Plural(self.other_files, "shard");
            write!(f, ", {files} not as the manifest says: their pairs may be those of another generation")?;
        }
        if self.zlib > 0 {
            write!(f, ", {} from zlib in place of gzip (as neuroglancer-scripts writes it)", Grouped(self.zlib))?;
        }
        Ok(())
    }
}

/// The counts so far, and the callback for losses.
struct Outcome<'a> {
    report: SalvageReport,
    lost: &'a mut dyn FnMut(&Finding),
}

impl Outcome<'_> {
    /// Reports a loss if a shard has fewer pairs than the manifest states, and none of them was reported: whatever named
    /// them is gone.
    fn check_count(&mut self, before: SalvageReport, stated: Option<u64>, shard: &ShardReader) {
        let (kept, is_reported) = (self.report.kept - before.kept, self.report.losses > before.losses);
        // the manifest's number is that of the shard that the file is named after
        let is_of_other_shard = self.report.wrong_file > before.wrong_file;
        if let Some(stated) = stated.filter(|stated| kept < *stated && !is_reported && !is_of_other_shard) {
            let message = format!(
                "expected {} as the manifest says, found {}: nothing names the others",
                Plural(stated, "key"),
                Grouped(kept)
            );
            let error = Error::corrupt(message).at_shard(shard.number).at_path(&shard.files().path());
            self.lose(FindingKind::WrongCount, error);
        }
    }

    /// Reports a loss. For an I/O error or an exceeded cap, the kind is `UnreadableShard` or `OverCap` instead of `rule`.
    fn lose(&mut self, rule: FindingKind, error: Error) {
        let kind = match error.kind() {
            ErrorKind::Io => FindingKind::UnreadableShard,
            ErrorKind::TooLarge => FindingKind::OverCap,
            _ => rule,
        };
        self.report.losses += 1;
        (self.lost)(&Finding::new(kind, error));
    }
}
