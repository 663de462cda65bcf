//! Verifies the directory of a generation: compares the files that exist with those that should exist.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::format::info;
use crate::format::manifest::{self, AuxiliaryRecord, Manifest};
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::generation::Generation;
use crate::read::shard::ShardReader;
use crate::storage::read_whole;
use crate::store::fs::{self, Checksum};
use crate::store::{Cancel, LEASE};
use crate::verify::finding::FindingKind;
use crate::verify::report::VerifyReport;

/// The names in a generation's directory, by kind.
#[derive(Default)]
pub(super) struct Listing {
    shards: BTreeMap<ShardNumber, ShardNames>,
    misnamed: Vec<PathBuf>,
    others: Vec<PathBuf>,
}

/// The lengths of the files with a shard's name; 0 for an entry whose length cannot be read.
#[derive(Clone, Copy, Default)]
struct ShardNames {
    shard: Option<u64>,
    index: Option<u64>,
    data: Option<u64>,
}

/// The `.shard` file, or the `.data` file of the obsolete pair.
pub(super) struct DataFile {
    pub(super) path: PathBuf,
    pub(super) len: u64,
}

impl Listing {
    pub(super) fn read(generation: &Generation) -> Result<Listing> {
        let directory = generation.shards_directory();
        let fail = |error| Error::io("list", directory, error);
        let mut listing = Listing::default();
        if !directory.exists() {
            let message = "the generation was deleted while it was in use: refresh to follow the store";
            return Err(Error::new(ErrorKind::GenerationGone, message).at_path(directory));
        }
        for entry in std::fs::read_dir(directory).map_err(fail)? {
            listing.enter(generation.spec(), &entry.map_err(fail)?.path());
        }
        listing.misnamed.sort_unstable();
        listing.others.sort_unstable();
        Ok(listing)
    }

    fn enter(&mut self, spec: &ShardingSpec, path: &Path) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (stem, extension) = name.rsplit_once('.').unwrap_or_default();
        let len = || path.metadata().map_or(0, |metadata| metadata.len());
        match (extension, spec.shard_of_file_stem(stem)) {
            ("shard", Some(number)) => self.shards.entry(number).or_default().shard = Some(len()),
            ("index", Some(number)) => self.shards.entry(number).or_default().index = Some(len()),
            ("data", Some(number)) => self.shards.entry(number).or_default().data = Some(len()),
            _ if extension.eq_ignore_ascii_case("shard") => self.misnamed.push(path.to_path_buf()),
            _ => self.others.push(path.to_path_buf()),
        }
    }

    /// Returns the total length of a shard's files.
    pub(super) fn shard_len(&self, number: ShardNumber) -> u64 {
        let names = self.names(number);
        names.shard.unwrap_or_else(|| names.index.unwrap_or(0) + names.data.unwrap_or(0))
    }

    /// Returns the file with the data of an open shard.
    pub(super) fn data_file(&self, generation: &Generation, shard: &ShardReader) -> DataFile {
        let is_pair = shard.files().is_pair();
        match is_pair {
            true => DataFile {
                path: path(generation, shard.number, "data"),
                len: self.names(shard.number).data.unwrap_or(0),
            },
            false => DataFile { path: path(generation, shard.number, "shard"), len: shard.files().len() },
        }
    }

    /// Returns the rule that is broken if opening a shard fails with this error.
    pub(super) fn kind_of_open_error(
        &self,
        generation: &Generation,
        number: ShardNumber,
        error: &Error,
    ) -> FindingKind {
        let names = self.names(number);
        let stated = generation.manifest().and_then(|manifest| manifest.shard(number)).map(|record| record.bytes);
        match error.kind() {
            // opening a shard checks its length, and loading one also its CRC-32
            ErrorKind::Corrupt if names.shard.is_some() && names.shard == stated => FindingKind::FileCrc,
            ErrorKind::Corrupt => FindingKind::WrongLength,
            ErrorKind::Io if names.shard.is_none() && names.index.is_none() => FindingKind::MissingShard,
            _ => FindingKind::UnreadableShard,
        }
    }

    fn names(&self, number: ShardNumber) -> ShardNames {
        self.shards.get(&number).copied().unwrap_or_default()
    }

    /// Verifies names, and the contents of all files but the shards.
    pub(super) fn verify(&self, generation: &Generation, report: &mut VerifyReport) {
        match generation.manifest() {
            Some(manifest) => self.verify_native(generation, manifest, report),
            None if generation.layout().is_some() => {
                let message = "expected a manifest.json next to an info that ShardDb wrote, found none: changed or \
                               missing files may go unnoticed";
                report.add(FindingKind::NoManifest, Error::corrupt(message).at_path(generation.directory()));
            }
            None => {}
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

    /// Verifies the files of a generation with a manifest, whose names are all known.
    fn verify_native(&self, generation: &Generation, manifest: &Manifest, report: &mut VerifyReport) {
        verify_json(generation, manifest, report);
        verify_lease(generation, report);
        manifest.auxiliary.iter().for_each(|stated| verify_auxiliary(generation, stated, report));
        for path in &self.others {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_known =
                [info::FILE_NAME, manifest::FILE_NAME, LEASE].contains(&name) || manifest.auxiliary(name).is_some();
            if !is_known {
                let message = "expected only info, manifest.json, lease, shards and the files that the manifest lists, \
                               found another file: it is not read";
                report.add(FindingKind::UnknownFile, Error::corrupt(message).at_path(path));
            }
        }
    }

    fn verify_shard_names(&self, generation: &Generation, report: &mut VerifyReport) {
        let known: Vec<ShardNumber> = generation.shard_numbers().collect(); // ascending
        for (number, names) in &self.shards {
            let is_known = known.binary_search(number).is_ok();
            let Some((kind, extension, message)) = verify_names(names, is_known, generation.manifest().is_some())
            else {
                continue;
            };
            let error = Error::corrupt(message).at_shard(*number).at_path(&path(generation, *number, extension));
            report.add(kind, error);
        }
    }
}

/// Returns the finding about the files with one shard's name, if there is one: kind, extension of the file, message.
fn verify_names(
    names: &ShardNames,
    is_known: bool,
    has_manifest: bool,
) -> Option<(FindingKind, &'static str, &'static str)> {
    let pair_file = if names.index.is_some() { "index" } else { "data" };
    let has_pair_file = names.index.is_some() || names.data.is_some();
    let finding = match names.shard {
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
        None if names.index.is_none() => (
            FindingKind::LoneDataFile,
            "data",
            "expected an .index file next to the .data file, found none: the .data file is not read",
        ),
        None => (
            FindingKind::ObsoletePair,
            "index",
            "expected a .shard file, found the obsolete form of a shard, .index and .data: few readers support it",
        ),
    };
    Some(finding)
}

/// Verifies `info` and the manifest as they are on disk, since they may have changed after they were opened.
fn verify_json(generation: &Generation, held: &Manifest, report: &mut VerifyReport) {
    let info = generation.directory().join(info::FILE_NAME);
    if let Err(error) = read_whole(&info, info::MAX_BYTES).and_then(|text| held.check_info(&text)) {
        report.add(FindingKind::InfoMismatch, error.at_path(&info));
    }
    let path = generation.directory().join(manifest::FILE_NAME);
    let same = read_whole(&path, manifest::MAX_BYTES).and_then(|text| Manifest::parse(&text)).and_then(|now| {
        match now == *held {
            true => Ok(()),
            false => Err(Error::corrupt("expected the manifest that was opened, found a different one")),
        }
    });
    if let Err(error) = same {
        report.add(FindingKind::ManifestMismatch, error.at_path(&path));
    }
}

fn verify_lease(generation: &Generation, report: &mut VerifyReport) {
    let path = generation.directory().join(LEASE);
    let message = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() && metadata.len() == 0 => return,
        Ok(_) => "expected `lease` to be an empty regular file, found that it is not",
        // outside of a store there is no gc, so a lease is not needed
        Err(_) if generation.id().is_none() => return,
        Err(_) => {
            "expected the empty file `lease`, which readers lock, found none: gc may remove the generation while it is read"
        }
    };
    report.add(FindingKind::BadLease, Error::corrupt(message).at_path(&path));
}

/// Verifies the checksum of an auxiliary file, at every level, since the file is short.
fn verify_auxiliary(generation: &Generation, stated: &AuxiliaryRecord, report: &mut VerifyReport) {
    let path = generation.directory().join(&stated.name);
    let expected = Checksum { bytes: stated.bytes, crc32: stated.crc32 };
    let found = fs::checksum(&path, &Cancel::default());
    if let Err(error) = found.and_then(|found| expected.check(found)) {
        report.add(FindingKind::AuxiliaryFile, error.at_path(&path));
    }
}

fn path(generation: &Generation, number: ShardNumber, extension: &str) -> PathBuf {
    let stem = generation.spec().shard_file_stem(number);
    generation.shards_directory().join(format!("{stem}.{extension}"))
}
