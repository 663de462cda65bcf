//! Verifies the directory of a generation: compares the files that exist with those that should exist.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::bytes::read_whole;
use crate::error::{Error, ErrorKind, Result};
use crate::format::info;
use crate::format::manifest::{self, AuxiliaryRecord, Manifest};
use crate::format::spec::ShardingSpec;
use crate::fs;
use crate::fs::entry;
use crate::ids::ShardNumber;
use crate::read::generation::Generation;
use crate::store::LEASE;
use crate::threads::progress::Progress;
use crate::verify::VerifyLevel;
use crate::verify::finding::FindingKind;
use crate::verify::report::VerifyReport;

/// The files in the directory of a generation's shards, and in those above it up to that of `info` and the manifest, by
/// kind. Empty for a database in memory, except for the length
/// of its shard.
#[derive(Default)]
pub(super) struct Listing {
    shards: BTreeMap<ShardNumber, ShardFileLens>,
    /// Files with the extension of a shard, but not the name of one.
    misnamed: Vec<PathBuf>,
    /// All other files.
    others: Vec<PathBuf>,
}

/// The lengths of the files with a shard's name: `None` if there is no such file, 0 if its length cannot be read.
#[derive(Clone, Copy, Default)]
struct ShardFileLens {
    shard: Option<u64>,
    index: Option<u64>,
    data: Option<u64>,
}

impl Listing {
    pub(super) fn read(generation: &Generation) -> Result<Listing> {
        let directory = generation.shards_directory();
        if directory.as_os_str().is_empty() {
            return Listing::of_memory(generation);
        }
        let fail = |error| Error::io("list", directory, error);
        let mut listing = Listing::default();
        if !entry::exists(generation.directory())? {
            let message = "the generation was deleted while it was in use: refresh to follow the store";
            return Err(Error::new(ErrorKind::GenerationGone, message).at_path(generation.directory()));
        }
        // if it is missing, so are its shards, which are findings; a generation without keys does not need it
        if entry::exists(directory)? || generation.manifest().is_none() {
            for entry in std::fs::read_dir(directory).map_err(fail)? {
                listing.add(generation.spec(), &entry.map_err(fail)?.path());
            }
        }
        if generation.manifest().is_some() {
            listing.add_above(generation)?;
        }
        listing.misnamed.sort_unstable();
        listing.others.sort_unstable();
        Ok(listing)
    }

    /// Returns the listing of a database in memory, which has no directory.
    fn of_memory(generation: &Generation) -> Result<Listing> {
        let mut listing = Listing::default();
        for number in generation.shard_numbers() {
            let len = generation.shard(number)?.map(|shard| shard.reader().files().len());
            listing.shards.insert(number, ShardFileLens { shard: len, ..ShardFileLens::default() });
        }
        Ok(listing)
    }

    /// Adds the entries of the directories above that of the shards, except those that lead to it.
    fn add_above(&mut self, generation: &Generation) -> Result<()> {
        let mut inner = generation.shards_directory();
        while let Some(directory) = inner.parent().filter(|_| inner != generation.directory()) {
            if entry::exists(directory)? {
                let fail = |error| Error::io("list", directory, error);
                for entry in std::fs::read_dir(directory).map_err(fail)? {
                    let path = entry.map_err(fail)?.path();
                    self.others.extend((path != inner).then_some(path));
                }
            }
            inner = directory;
        }
        Ok(())
    }

    fn add(&mut self, spec: &ShardingSpec, path: &Path) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (stem, extension) = name.rsplit_once('.').unwrap_or_default();
        let len = || Some(path.metadata().map_or(0, |metadata| metadata.len())); // opening the shard reports an error
        match (extension, spec.shard_of_file_stem(stem)) {
            ("shard", Some(number)) => self.shards.entry(number).or_default().shard = len(),
            ("index", Some(number)) => self.shards.entry(number).or_default().index = len(),
            ("data", Some(number)) => self.shards.entry(number).or_default().data = len(),
            _ if extension.eq_ignore_ascii_case("shard") => self.misnamed.push(path.to_path_buf()),
            _ => self.others.push(path.to_path_buf()),
        }
    }

    /// Returns the length of a shard: of its `.shard` file, or else of both files of the obsolete pair.
    pub(super) fn shard_len(&self, number: ShardNumber) -> u64 {
        let lens = self.lens(number);
        lens.shard.unwrap_or_else(|| lens.index.unwrap_or(0).saturating_add(lens.data.unwrap_or(0)))
    }

    /// Returns the bytes of a shard that a verification reads, for its progress. A shard of a manifest is read twice at
    /// the level `Data`.
    pub(super) fn bytes_to_verify(&self, generation: &Generation, number: ShardNumber, level: VerifyLevel) -> u64 {
        let times = if level == VerifyLevel::Data && generation.manifest().is_some() { 2 } else { 1 };
        times * self.shard_len(number)
    }

    /// Returns the kind of the finding about a shard that could not be opened because of `error`.
    pub(super) fn kind_of_open_error(
        &self,
        generation: &Generation,
        number: ShardNumber,
        error: &Error,
    ) -> FindingKind {
        let lens = self.lens(number);
        let stated_len = generation.manifest().and_then(|manifest| manifest.shard(number)).map(|record| record.bytes);
        match error.kind() {
            _ if lens.shard.is_none() && lens.index.is_none() => FindingKind::MissingShard,
            _ if error.io_kind().is_some() => FindingKind::UnreadableShard,
            // opening a shard checks its length, and loading one also its CRC-32
            ErrorKind::Corrupt if lens.shard == stated_len => FindingKind::FileCrc,
            ErrorKind::Corrupt => FindingKind::WrongLength,
            _ => FindingKind::UnreadableShard,
        }
    }

    fn lens(&self, number: ShardNumber) -> ShardFileLens {
        self.shards.get(&number).copied().unwrap_or_default()
    }

    /// Verifies the names of all files, and the contents of all files except shards. A database in memory has none.
    pub(super) fn verify(&self, generation: &Generation, report: &mut VerifyReport) {
        if generation.directory().as_os_str().is_empty() {
            return;
        }
        match generation.manifest() {
            Some(manifest) => self.verify_with_manifest(generation, manifest, report),
            None if generation.layout().is_some() => {
                let message = "expected a manifest.json next to an info that ShardDb wrote, found none: changed or \
                               missing files may go unnoticed";
                report.add(FindingKind::NoManifest, Error::corrupt(message).at_path(generation.directory()));
            }
            None => self.verify_shard_count(generation, report),
        }
        self.verify_shard_names(generation, report);
        for path in &self.misnamed {
            let digits = generation.spec().shard_bits().div_ceil(4).max(1);
            let message = format!(
                "expected shard files to be named by {digits} lowercase hex digits up to {}, found another name: \
                 the file is not read",
                generation.spec().shard_file_name(generation.spec().max_shard()),
            );
            report.add(FindingKind::MisnamedShard, Error::corrupt(message).at_path(path));
        }
    }

    /// Verifies `info`, the manifest, the lease and the auxiliary files of a generation with a manifest, and reports all
    /// other files except shards.
    fn verify_with_manifest(&self, generation: &Generation, manifest: &Manifest, report: &mut VerifyReport) {
        verify_json(generation, manifest, report);
        verify_lease(generation, report);
        manifest.auxiliary.iter().for_each(|stated| verify_auxiliary(generation, stated, report));
        for path in &self.others {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_known =
                [info::FILE_NAME, manifest::FILE_NAME, LEASE].contains(&name) || manifest.auxiliary(name).is_some();
            // the same names in the directory of the shards, if that is another one, are those of foreign files
            if !is_known || path.parent() != Some(generation.directory()) {
                let message = "expected only info, manifest.json, lease, shards and the files that the manifest lists, \
                               found another file: it is not read";
                report.add(FindingKind::UnknownFile, Error::corrupt(message).at_path(path));
            }
        }
    }

    /// Reports how many shards of a foreign data set have a file, unless all do.
    fn verify_shard_count(&self, generation: &Generation, report: &mut VerifyReport) {
        let (present, last) = (self.shards.len() as u64, generation.spec().max_shard().get());
        if present <= last {
            let shards = u128::from(last) + 1;
            let message = format!(
                "expected a file for each of {shards} shards, found {present} of them: a shard without a file has no keys"
            );
            let error = Error::corrupt(message).at_path(generation.shards_directory());
            report.add(FindingKind::AbsentShards, error);
        }
    }

    fn verify_shard_names(&self, generation: &Generation, report: &mut VerifyReport) {
        let known: Vec<ShardNumber> = generation.shard_numbers().collect(); // ascending
        for (number, lens) in &self.shards {
            let is_known = known.binary_search(number).is_ok();
            let Some((kind, extension, message)) = finding_about(lens, is_known, generation.manifest().is_some())
            else {
                continue;
            };
            let error = Error::corrupt(message).at_shard(*number).at_path(&path(generation, *number, extension));
            report.add(kind, error);
        }
    }
}

/// Returns the finding about the files that have one shard's name, if there is one: its kind, the extension of the file, the
/// message.
fn finding_about(
    lens: &ShardFileLens,
    is_known: bool,
    has_manifest: bool,
) -> Option<(FindingKind, &'static str, &'static str)> {
    let pair_file = if lens.index.is_some() { "index" } else { "data" };
    let has_pair_file = lens.index.is_some() || lens.data.is_some();
    let finding = match lens.shard {
        Some(_) if !is_known && has_manifest => (
            FindingKind::UnlistedShard,
            "shard",
            "expected only the shards that the manifest lists, found another: it is not read",
        ),
        Some(_) if !is_known => (
            FindingKind::UnlistedShard,
            "shard",
            "expected only the shards that existed at open, found another: it is not read",
        ),
        Some(_) if has_pair_file => (
            FindingKind::ShadowedPair,
            pair_file,
            "expected only the .shard file, found a file of the obsolete form too: it is not read",
        ),
        Some(_) => return None,
        None if has_manifest => (
            FindingKind::UnknownFile,
            pair_file,
            "expected .shard files, found one of the obsolete form: it is not read",
        ),
        None if lens.index.is_none() => (
            FindingKind::LoneDataFile,
            "data",
            "expected an .index file next to the .data file, found none: the .data file is not read",
        ),
        None => (
            FindingKind::ObsoletePair,
            "index",
            "expected a .shard file, found the .index file of the obsolete pair .index and .data: few readers support it",
        ),
    };
    Some(finding)
}

/// Verifies `info` and the manifest as they are on disk now, since they may have changed since the generation was
/// opened.
fn verify_json(generation: &Generation, opened: &Manifest, report: &mut VerifyReport) {
    let info = generation.directory().join(info::FILE_NAME);
    if let Err(error) = read_whole(&info, info::MAX_BYTES).and_then(|text| opened.check_info(&text)) {
        add(FindingKind::InfoMismatch, error.at_path(&info), report);
    }
    let path = generation.directory().join(manifest::FILE_NAME);
    let unchanged = read_whole(&path, manifest::MAX_BYTES).and_then(|text| Manifest::parse(&text)).and_then(|now| {
        if now == *opened {
            Ok(())
        } else {
            Err(Error::corrupt("expected the manifest that was opened, found a different one"))
        }
    });
    if let Err(error) = unchanged {
        add(FindingKind::ManifestMismatch, error.at_path(&path), report);
    }
}

/// Reports a finding about `info` or the manifest. If the file is there and cannot be read, the kind is `UnreadableFile`.
fn add(rule: FindingKind, error: Error, report: &mut VerifyReport) {
    let is_absent = error.io_kind() == Some(io::ErrorKind::NotFound);
    let is_unread = error.raw_os_error().is_some() && !is_absent;
    report.add(if is_unread { FindingKind::UnreadableFile } else { rule }, error);
}

fn verify_lease(generation: &Generation, report: &mut VerifyReport) {
    let path = generation.directory().join(LEASE);
    let message = match entry::own_metadata_if_there(&path) {
        Err(error) => return report.add(FindingKind::BadLease, error),
        Ok(Some(found)) if found.is_file() && found.len() == 0 => return,
        Ok(Some(_)) => {
            "expected `lease` to be an empty regular file, found another kind of file, or one that is not empty"
        }
        // outside of a store there is no gc, so a lease is not needed
        Ok(None) if generation.id().is_none() => return,
        Ok(None) => {
            "expected the empty file `lease`, which readers lock, found none: gc may remove the generation while it is read"
        }
    };
    report.add(FindingKind::BadLease, Error::corrupt(message).at_path(&path));
}

/// Verifies the checksum of an auxiliary file, at every level, since the file is short.
fn verify_auxiliary(generation: &Generation, stated: &AuxiliaryRecord, report: &mut VerifyReport) {
    let path = generation.directory().join(&stated.name);
    let found = fs::checksum(&path, stated.checksum, &Progress::default());
    if let Err(error) = found.and_then(|found| stated.checksum.check(found)) {
        report.add(FindingKind::AuxiliaryFile, error.at_path(&path));
    }
}

fn path(generation: &Generation, number: ShardNumber, extension: &str) -> PathBuf {
    let stem = generation.spec().shard_file_stem(number);
    generation.shards_directory().join(format!("{stem}.{extension}"))
}
