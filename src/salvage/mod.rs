//! Salvage: of a damaged data set, every pair that can still be proved right, into a new store, and a list of the rest.
//!
//! ```text
//! what proves a pair
//!   with checks      its own check, whatever became of the index that named it; of its prefix, the prefix's
//!   without          its key hashes to where it is named, its bytes lie in the file and not over an index
//!   stored as gzip   besides, its value decodes, with the CRC-32 of gzip or the Adler-32 of zlib
//! ```
//!
//! In a shard with checks, minishards that its shard index no longer leads to are searched for: an index is known by its
//! check, which has the shard and the minishard in it.
//!
//! Nothing is guessed: what cannot be proved is lost, and told. Two things that neuroglancer-scripts gets wrong are
//! understood: zlib streams in place of gzip, and shards whose entries all stand in the first slots.

mod search;
mod shard;
mod survey;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::build::{BuildOptions, BulkLoader, OnDuplicate};
use crate::error::{Error, ErrorKind, Result};
use crate::format::info::{self, Info};
use crate::format::manifest::Manifest;
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::generation::{Generation, Leased};
use crate::read::options::OpenOptions;
use crate::read::shard::{MinishardCache, Pass};
use crate::salvage::shard::ShardSalvage;
use crate::storage::{StorageKind, read_whole};
use crate::store::{self, Lease, Store};
use crate::verify::{Finding, FindingKind};

/// A damaged data set, opened for taking out what is left.
///
/// What it takes to open it is a sound manifest, or else a sound `info`, or else a specification in [`OpenOptions`]. Files
/// are read by positioned reads, so that a bad sector is an error and no signal.
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
    /// What the files should be, if that is known.
    manifest: Option<Manifest>,
    /// The text of `info`, if it can be carried over.
    info: Option<String>,
}

/// What [`Salvage::write`] took out and what it could not.
///
/// `Display` is one line with all figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Pairs that were proved right and handed on.
    pub kept: u64,
    /// Losses that were told: pairs, minishards or shards, whatever could not be read or proved.
    pub losses: u64,
    /// Keys that the manifest counts and that were not kept; `None` without a sound manifest.
    pub missing: Option<u64>,
    /// Of the pairs that were kept, those whose minishard's entry stood in the wrong slot, so that lookups missed them.
    pub wrong_slot: u64,
    /// Of the pairs that were kept, those that were stored as zlib in place of gzip, value or index.
    pub zlib: u64,
}

impl Salvage {
    /// Opens a store, one of its generations, or a directory of shards, however damaged.
    ///
    /// Errors: `Io`; `Corrupt` if `current` names no generation: name one by its own directory; `InvalidSpec` if neither
    /// manifest nor `info` is sound: give the specification.
    pub fn open(path: impl AsRef<Path>) -> Result<Salvage> {
        Salvage::open_with(path, &OpenOptions::new())
    }

    /// Like [`open`](Salvage::open), with a specification or JSON pointer and the caps of `options`.
    ///
    /// With a specification that is not the manifest's, nothing is known of checks and prefixes.
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Salvage> {
        let path = path.as_ref();
        let mut directory = path.canonicalize().map_err(|error| Error::io("open", path, error))?;
        if Store::is_at(&directory) {
            let current = store::read_current(&directory)?.ok_or_else(|| {
                Error::invalid_input("expected a store with a current generation, found none").at_path(&directory)
            })?;
            directory.push(current.to_string());
        }
        let lease = Lease::is_offered_by(&directory).then(|| Lease::acquire(&directory)).transpose()?;
        let leased = lease.map(|lease| Leased { id: None, follows: false, lease });
        let cache = Arc::new(MinishardCache::with_capacity(0)); // each index is read once
        let options = options.generation(StorageKind::Positioned);
        let (generation, manifest) = Generation::open_damaged(&directory, options, cache, leased)?;
        let info = read_whole(&directory.join(info::FILE_NAME), info::MAX_BYTES)
            .ok()
            .and_then(|text| String::from_utf8(text).ok());
        // of a nested data set, the other members are about others too
        let info = info.filter(|text| Info::parse(text.as_bytes(), Some("")).is_ok() && Info::check(text).is_ok());
        Ok(Salvage { generation, manifest, info })
    }

    /// The sharding specification.
    pub fn spec(&self) -> &ShardingSpec {
        self.generation.spec()
    }

    /// The directory that is read.
    pub fn directory(&self) -> &Path {
        self.generation.directory()
    }

    /// The directory of the shards: the same, or the one below it that the member "key" of a nested object names.
    pub fn shards_directory(&self) -> &Path {
        self.generation.shards_directory()
    }

    /// Whether [`build_options`](Salvage::build_options) has the foreign members of `info`.
    ///
    /// False where there is no readable `info`, and where its member "sharding" is nested, as in a volume: the members
    /// describe the volume, and the new store is none.
    pub fn keeps_info(&self) -> bool {
        self.info.is_some()
    }

    /// Options for a store of the same specification, alignment and foreign members of `info`, with checks.
    ///
    /// Of a key that comes from two places the first pair is kept. Sparse shards are allowed: the data may be what is lost.
    pub fn build_options(&self) -> BuildOptions {
        let mut options = BulkLoader::options();
        options.spec(*self.spec()).checks(true).on_duplicate(OnDuplicate::KeepFirst).allow_sparse(true);
        if let Some(layout) = self.generation.layout() {
            options.value_alignment(layout.value_alignment);
        }
        if let Some(info) = &self.info {
            options.info(info);
        }
        options
    }

    /// Hands every pair that can be proved right to `loader`, and everything that is lost to `lost`.
    ///
    /// A loss says which rule is broken and where: of a pair shard, minishard and key; of a minishard or shard that cannot
    /// be read, whose keys are not known, that much. Memory: 16 bytes a key of one shard, one minishard index, one value;
    /// where a shard with checks is searched for lost minishards, also what lies in a row that nothing leads to.
    ///
    /// Time, memory and output are linear in the length of the files, whatever their indexes state: of entries that name one
    /// minishard index, that of the minishard its keys hash to is kept; of other indexes that share bytes, short ones come
    /// first, up to twice the length of the shard; of values and prefixes that share bytes, 64 times its length is kept.
    ///
    /// Errors: those of the loader. What is wrong with the data set is a loss.
    pub fn write(&self, loader: &mut BulkLoader, mut lost: impl FnMut(&Finding)) -> Result<SalvageReport> {
        let mut outcome = Outcome { report: SalvageReport::default(), lost: &mut lost };
        self.tell_info(&mut outcome);
        for number in self.shard_numbers() {
            match self.generation.open_shard_apart(number) {
                Ok(Some(shard)) => {
                    let _pass = Pass::new(&shard);
                    let keys = self.keys_of(number);
                    ShardSalvage::new(&self.generation, shard.reader(), keys, loader, &mut outcome).run()?;
                }
                Ok(None) => outcome.lose(FindingKind::MissingShard, self.missing_shard(number)),
                Err(error) => outcome.lose(FindingKind::UnreadableShard, error.at_shard(number)),
            }
        }
        let mut report = outcome.report;
        report.missing = self.manifest.as_ref().map(|manifest| manifest.keys.saturating_sub(report.kept));
        Ok(report)
    }

    /// Those that have a file and those that should have one, ascending.
    fn shard_numbers(&self) -> Vec<ShardNumber> {
        let stated = self.manifest.iter().flat_map(|manifest| manifest.shards.iter().map(|shard| shard.number));
        let mut numbers: Vec<ShardNumber> = self.generation.shard_numbers().chain(stated).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// How many keys the manifest says that a shard has; `None` without a sound one.
    fn keys_of(&self, number: ShardNumber) -> Option<u64> {
        self.manifest.as_ref().map(|manifest| manifest.shard(number).map_or(0, |shard| shard.keys))
    }

    fn missing_shard(&self, number: ShardNumber) -> Error {
        let keys = self.keys_of(number).unwrap_or(0);
        let message = format!("expected a shard of {keys} keys as the manifest says, found no file");
        let path = self.generation.shards_directory().join(self.spec().shard_file_name(number));
        Error::corrupt(message).at_shard(number).at_path(&path)
    }

    fn tell_info(&self, outcome: &mut Outcome<'_>) {
        let Some(manifest) = &self.manifest else { return };
        let path = self.directory().join(info::FILE_NAME);
        if let Err(error) = read_whole(&path, info::MAX_BYTES).and_then(|text| manifest.check_info(&text)) {
            outcome.lose(FindingKind::InfoMismatch, error.at_path(&path));
        }
    }
}

impl fmt::Debug for Salvage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salvage").field("directory", &self.directory()).finish()
    }
}

impl fmt::Display for SalvageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pairs kept, {} losses", self.kept, self.losses)?;
        if let Some(missing) = self.missing {
            write!(f, ", {missing} of the manifest's keys missing")?;
        }
        if self.wrong_slot > 0 {
            write!(f, ", {} by entries in the wrong slot (as neuroglancer-scripts writes them)", self.wrong_slot)?;
        }
        if self.zlib > 0 {
            write!(f, ", {} from zlib in place of gzip (as neuroglancer-scripts writes it)", self.zlib)?;
        }
        Ok(())
    }
}

/// What has been done so far, and who is told of losses.
struct Outcome<'a> {
    report: SalvageReport,
    lost: &'a mut dyn FnMut(&Finding),
}

impl Outcome<'_> {
    /// Tells a loss; what the system or a cap says is not about the rule that was looked at.
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
