//! The last step: a generation of all parts.
//!
//! ```text
//! publishing-<digest>   written, synced      names the generation and a digest of its manifest
//! current               replaced             `Candidate::publish`
//! published-<digest>    written, synced
//! spills, parts         removed
//! ```
//!
//! The digest in the names of the marks is that of all receipts and options. After a crash at any step a repeated
//! publication finds by the marks whether the generation was current.

use crate::cluster::spill_receipt::SpillReceipt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crc32fast::Hasher;

use super::members::{Kind, Members, VERSION};
use super::part_receipt::{PartOptions, PartReceipt};
use super::parts_dir::{Mark, PartsDir};
use super::spill_set::SpillSet;
use crate::bytes::{BlockReader, open_regular, read_whole};
use crate::error::{Error, ErrorKind, Result};
use crate::format::digest::{Digest, Digester};
use crate::format::manifest::{self, ShardRecord};
use crate::format::spec::ShardingSpec;
use crate::fs::{disk, entry};
use crate::store::{Fate, GenerationId, Store, StoreWriter};
use crate::threads::progress::Phase;
use crate::write::{BuildOptions, Candidate, Content, GenerationWriter, Published, Written};

/// Block size for reading a shard index.
const READ_BLOCK: usize = 1 << 20;

/// The text of a mark.
const KIND: Kind = Kind {
    noun: "the mark of a publication",
    tag: "sharddb_publication",
    names: &[
        "generation",
        "manifest",
        "sharding",
        "keys",
        "keys_before",
        "value_bytes",
        "file_bytes",
        "shards",
        "dropped",
    ],
    most: 64 << 10,
};

/// All parts of a build, checked, and where they are.
#[derive(Debug)]
pub struct Job<'a> {
    spills: &'a SpillSet,
    /// In ascending order, each once.
    parts: Vec<PartReceipt>,
    directory: PartsDir,
    /// The name of the marks.
    digest: String,
}

impl SpillSet {
    /// Publishes a generation of all parts, whose receipts are given in any order, and then removes the files that the
    /// receipts of spills and parts name. The parts are in the [`job_directory`](super::job_directory) of the job.
    ///
    /// The bytes of the generation are those of a build of all pairs with the same options. The shards are hard links
    /// where the file system has them, else verified copies. Checks that every part is there once, that all are from
    /// these spills and by the same options and program; of every shard the length and the checksum of its index, and
    /// of copies all bytes. [`Snapshot::verify`](crate::Snapshot::verify) checks everything.
    ///
    /// A repeated call with equal receipts and options returns the same result and changes nothing, also if another
    /// generation was published since, or if the first call was killed at any moment. If it was killed and the generation
    /// was rolled back or perhaps replaced since, a repeated call is `Superseded`. That holds until
    /// [`clean`](super::clean) removes the job. Another run of the job has other receipts, since its spills have other
    /// random bytes. With spills of earlier versions, which have none, a repeated call is `Superseded` unless its
    /// generation is current.
    ///
    /// Of the options, those of `info` and its sharding, the key file, memory, threads, temporary directory, progress,
    /// cancellation and durability apply. The writer lock of the store is held throughout.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a missing, repeated or foreign receipt; `NotFound` if the directory of a part is missing;
    /// `Corrupt` or `Io`, with the file, for a shard that is missing or not that of its receipt; `Superseded`; `Locked`
    /// if the store has another writer; those of [`BuildOptions::create`](crate::BuildOptions::create) and [`Candidate::publish`].
    /// Nothing is published then, unless the disk fails after the generation became current: repeat the call, which
    /// finds that.
    pub fn publish(
        &self,
        store: impl AsRef<Path>,
        job: &str,
        parts: impl IntoIterator<Item = PartReceipt>,
        options: &BuildOptions,
    ) -> Result<Published> {
        publish_if(self, store, job, parts, options, || Ok(()))
    }

    /// Sorts the receipts of parts, and checks that they are complete and of these spills.
    ///
    /// Errors: `InvalidInput`.
    fn check_parts(&self, mut parts: Vec<PartReceipt>) -> Result<Vec<PartReceipt>> {
        parts.sort_by_key(PartReceipt::part);
        parts.dedup();
        let plan = self.plan.digest();
        for part in &parts {
            let (number, content) = (part.part(), &part.content);
            if content.plan != plan {
                let message = format!("expected parts of the plan {plan}, found part {number} of {}", content.plan);
                return Err(Error::invalid_input(message));
            }
            if content.spills != self.digest {
                let message = format!(
                    "expected parts of the {} spills of these receipts, found that part {number} is of other spills: \
                     build it again",
                    self.receipts.len()
                );
                return Err(Error::invalid_input(message));
            }
            self.check_shards(part)?;
        }
        let is_repeated = |pair: &&[PartReceipt]| matches!(pair, [one, other] if one.part() == other.part());
        if let Some([one, other]) = parts.windows(2).find(is_repeated) {
            let (one, other) = (one.directory_name(), other.directory_name());
            return Err(Error::invalid_input(format!(
                "expected one receipt per part, found {one} and {other}: take either"
            )));
        }
        let is_missing = |number: &u64| parts.binary_search_by_key(number, PartReceipt::part).is_err();
        if let Some(missing) = (0..self.plan.parts()).find(is_missing) {
            let message =
                format!("expected a receipt of each of {} parts, found none of part {missing}", self.plan.parts());
            return Err(Error::invalid_input(message));
        }
        let mut keys = parts.iter().flat_map(|part| &part.content.shards).map(|shard| shard.keys);
        if keys.try_fold(0, u64::checked_add).is_none() {
            return Err(Error::invalid_input("expected fewer than 2^64 keys in all parts, found more"));
        }
        check_options(&parts)?;
        Ok(parts)
    }
}

/// Checks that all parts were written by this program with the same options.
///
/// Errors: `InvalidInput`.
fn check_options(parts: &[PartReceipt]) -> Result<()> {
    let Some(first) = parts.first() else { return Err(Error::internal("a plan has no parts")) };
    let expected = PartOptions { writer: PartOptions::this_writer(), ..first.content.options.clone() };
    match parts.iter().find(|part| part.content.options != expected) {
        None => Ok(()),
        Some(other) => {
            let (number, found) = (other.part(), &other.content.options);
            let message = format!("expected all parts by the options {expected}, found part {number} by {found}");
            Err(Error::invalid_input(message))
        }
    }
}

/// Returns the digest of the manifest of a generation; `None` if there is none.
fn manifest_of(store: &Store, id: GenerationId) -> Result<Option<Digest>> {
    match read_whole(&store.generation_path(id).join(manifest::FILE_NAME), manifest::MAX_BYTES) {
        Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => Ok(None),
        text => Ok(Some(Digest::of(&text?))),
    }
}

/// Publishes like [`SpillSet::publish`]. Calls `may` before the generation becomes current, unless an earlier call published it;
/// its error is returned.
pub fn publish_if(
    spills: &SpillSet,
    store: impl AsRef<Path>,
    job: &str,
    parts: impl IntoIterator<Item = PartReceipt>,
    options: &BuildOptions,
    may: impl FnOnce() -> Result<()>,
) -> Result<Published> {
    let directory = PartsDir::of_job(store.as_ref(), job)?;
    let job = Job::new(spills, directory, parts, options)?;
    if !job.directory.exists()? {
        let message = "expected the directory of the job, which is not a link, found none: build its parts, or check \
                       the names";
        return Err(Error::new(ErrorKind::NotFound, message).at_path(job.directory.path()));
    }
    disk::with_syncs_if(options.durable, || job.publish(store.as_ref(), options, may))
}

/// Returns the digest of what a publication depends on: its parts, which state plan and spills, and the options.
fn digest_of(parts: &[PartReceipt], options: &BuildOptions) -> Digest {
    let mut digester = Digester::default();
    parts.iter().for_each(|part| digester.update(&part.digest.to_bytes()));
    for text in [&options.info, &options.sharding_at] {
        digester.update(&Digest::of(format!("{text:?}").as_bytes()).to_bytes());
    }
    digester.update(&[u8::from(options.ordered)]);
    digester.finish()
}

impl<'a> Job<'a> {
    /// Combines the receipts of all parts, in any order. Reads nothing.
    ///
    /// Errors: `InvalidInput` for a missing, repeated or foreign receipt.
    pub fn new(
        spills: &'a SpillSet,
        directory: PartsDir,
        parts: impl IntoIterator<Item = PartReceipt>,
        options: &BuildOptions,
    ) -> Result<Job<'a>> {
        let parts = spills.check_parts(parts.into_iter().collect())?;
        let digest = digest_of(&parts, options).to_string();
        Ok(Job { spills, parts, directory, digest })
    }

    fn publish(&self, store: &Path, options: &BuildOptions, may: impl FnOnce() -> Result<()>) -> Result<Published> {
        let store = Store::create(store)?;
        let writer = store.writer()?;
        let publication = match self.earlier(&store, &writer)? {
            Some(earlier) => earlier,
            None => self.publish_now(&writer, options, may)?,
        };
        if self.directory.mark(Mark::Published, &self.digest)?.is_none() {
            self.directory.write_mark(Mark::Published, &self.digest, &publication.to_json())?;
        }
        // what stays takes only space, and a repeated call or `clean` removes it
        _ = self.remove_inputs();
        Ok(publication.published)
    }

    /// Returns the publication of an earlier call, if its generation was current. Makes that current if a crash came
    /// before.
    ///
    /// Errors: `Superseded` if it was rolled back, or may have been current and is not any more; also if it was published
    /// and is not current, and the spills do not show whether the call is a retry or another run of the job.
    fn earlier(&self, store: &Store, writer: &StoreWriter) -> Result<Option<Publication>> {
        let read = |mark| {
            let text = self.directory.mark(mark, &self.digest)?;
            let parsed = text.map(|text| Publication::parse(&text)).transpose();
            parsed.map_err(|error| error.at_path(self.directory.path()))
        };
        let is_retry = self.is_of_one_run();
        if let Some(published) = read(Mark::Published)? {
            let id = published.published.generation;
            let superseded = |why| Err(self.superseded(Mark::Published, id, why));
            if manifest_of(store, id)?.is_some_and(|found| found != published.manifest) || !writer.has_used(id)? {
                return superseded("the store gives its number to another generation, as one that was restored");
            }
            return if is_retry || store.current()? == Some(id) {
                Ok(Some(published))
            } else {
                superseded("an earlier run of the job published the same, and it is not current")
            };
        }
        let Some(publishing) = read(Mark::Publishing)? else { return Ok(None) };
        let id = publishing.published.generation;
        let fate = writer.fate_of(id)?;
        let found = manifest_of(store, id)?;
        if found.is_some_and(|found| found != publishing.manifest) {
            return Ok(None); // of another writer, which took the number after a crash
        }
        let is_there = found.is_some();
        let superseded = |why| Err(self.superseded(Mark::Publishing, id, why));
        match fate {
            Fate::Current if is_there => Ok(Some(publishing)),
            Fate::Earlier if is_there && is_retry => Ok(Some(publishing)),
            Fate::Interrupted if !is_there => Ok(None),
            Fate::Interrupted if is_retry => writer.rollback(Some(id)).map(|_| Some(publishing)),
            Fate::RolledBack => superseded("it was rolled back, or was not current yet when another was published"),
            _ => superseded("it may have been current, and is not any more"),
        }
    }

    /// The generation of an earlier call is not current, and must not become current by a repeated one.
    #[cold]
    fn superseded(&self, mark: Mark, id: GenerationId, why: &str) -> Error {
        let message = format!(
            "these parts were {id}, which is not published again: {why}. To publish them all the same, remove this file and \
             publish again, after the job from its spills on if they are gone; otherwise clean the parts of this job"
        );
        Error::new(ErrorKind::Superseded, message).at_path(&self.directory.mark_path(mark, &self.digest))
    }

    fn publish_now(
        &self,
        writer: &StoreWriter,
        options: &BuildOptions,
        may: impl FnOnce() -> Result<()>,
    ) -> Result<Publication> {
        let candidate = self.write(writer, options)?.check_fragments(options)?;
        may()?;
        let manifest = read_whole(&candidate.path().join(manifest::FILE_NAME), manifest::MAX_BYTES)?;
        let manifest = Digest::of(&manifest);
        let published = candidate.publish_after(|published| {
            let text = Publication { published: published.clone(), manifest }.to_json();
            self.directory.write_mark(Mark::Publishing, &self.digest, &text)
        })?;
        Ok(Publication { published, manifest })
    }

    /// Returns the digest of the receipts and of the options that decide the generation.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the spills.
    pub fn spills(&self) -> &SpillSet {
        self.spills
    }

    /// Returns whether no other run of the job has these receipts: a spill has random bytes. Those of earlier versions
    /// have none.
    pub fn is_of_one_run(&self) -> bool {
        self.spills.receipts().iter().any(SpillReceipt::is_of_one_run)
    }

    /// Returns the receipts of all parts in ascending order.
    pub fn parts(&self) -> &[PartReceipt] {
        &self.parts
    }

    /// Returns what the generation contains.
    pub fn content(&self) -> Content {
        let sum = |number: fn(&PartReceipt) -> u64| self.parts.iter().map(number).fold(0, u64::saturating_add);
        Content {
            spec: *self.spills.plan().spec(),
            keys: sum(PartReceipt::keys),
            value_bytes: sum(|part| part.content.value_bytes),
            file_bytes: sum(PartReceipt::file_bytes),
            shards: sum(PartReceipt::shards),
            dropped: sum(PartReceipt::dropped),
        }
    }

    /// Writes the generation, with the shards of all parts. Reads no values, and so does not look for the fragments of meshes.
    pub fn write(&self, writer: &StoreWriter, options: &BuildOptions) -> Result<Candidate> {
        let spec = *self.spills.plan.spec();
        let mut options = options.clone();
        options.spec(spec);
        let nested = options.check_info()?;
        let pending = writer.begin(options.temp_dir.as_deref())?.with_shards_in(nested)?;
        let layout = self.parts.first().map(|part| part.content.options.layout);
        let layout = layout.ok_or_else(|| Error::internal("a plan has no parts"))?;
        let generation = GenerationWriter { options: &options, pending, spec, layout };
        let bytes = self.parts.iter().map(PartReceipt::file_bytes).fold(0, u64::saturating_add);
        options.progress.begin(Phase::Write, bytes);
        let mut written = Written::default();
        for part in &self.parts {
            self.share(part, &generation)?;
            let content = &part.content;
            written.shards.extend(&content.shards);
            written.value_bytes = written.value_bytes.saturating_add(content.value_bytes);
            written.dropped = written.dropped.saturating_add(content.dropped);
        }
        generation.options.check_preambles(written.shards.is_empty(), layout.preambles)?;
        generation.complete(written)
    }

    /// Adds the shards of a part to the generation.
    fn share(&self, part: &PartReceipt, generation: &GenerationWriter<'_>) -> Result<()> {
        let GenerationWriter { options, pending, spec, .. } = generation;
        let directory = self.directory.path().join(part.directory_name());
        if !entry::is_dir(&directory)? {
            let message = format!("expected the directory of part {}, found none: build the part again", part.part());
            return Err(Error::new(ErrorKind::NotFound, message).at_path(&directory));
        }
        let copies = options.progress.apart();
        for shard in &part.content.shards {
            let file = directory.join(spec.shard_file_name(shard.number));
            let stated = shard.checksum(spec);
            options.progress.check()?;
            pending.share(&file, stated, &copies).map_err(|error| error.at_shard(shard.number))?;
            check_shard_index(&file, shard, spec.shard_index_len()).map_err(|error| error.at_path(&file))?;
            options.progress.add(shard.bytes);
        }
        Ok(())
    }

    /// Removes the files that the receipts name, and the mark that is void. Continues after an error, and returns the
    /// first.
    fn remove_inputs(&self) -> Result<()> {
        let SpillSet { plan, directory, receipts, .. } = self.spills;
        let spills = PartsDir::at(directory)?;
        let of_spills = receipts.iter().map(|receipt| spills.remove_spill(&receipt.file_name()));
        let of_parts = self.parts.iter().map(|part| {
            let shards = part.content.shards.iter().map(|shard| plan.spec().shard_file_name(shard.number));
            self.directory.remove_part(&part.directory_name(), shards)
        });
        let of_mark = std::iter::once_with(|| self.directory.remove_mark(Mark::Publishing, &self.digest));
        of_spills.chain(of_parts).chain(of_mark).fold(Ok(()), Result::and)
    }
}

/// A generation that is about to become current, or has been.
struct Publication {
    published: Published,
    /// The digest of the manifest, by which the generation is recognised.
    manifest: Digest,
}

impl Publication {
    fn to_json(&self) -> String {
        let Published { generation, keys_before, content, .. } = &self.published;
        let Content { spec, keys, value_bytes, file_bytes, shards, dropped } = content;
        let before = keys_before.map_or_else(String::new, |keys| format!("\"keys_before\":{keys},"));
        format!(
            "{{\"{}\":{VERSION},\"generation\":\"{generation}\",\"manifest\":\"{}\",\"sharding\":{},\"keys\":{keys},\
             {before}\"value_bytes\":{value_bytes},\"file_bytes\":{file_bytes},\"shards\":{shards},\"dropped\":{dropped}}}\n",
            KIND.tag,
            self.manifest,
            spec.to_json(),
        )
    }

    /// Errors: `Corrupt` if the text is not that of a mark.
    fn parse(text: &str) -> Result<Publication> {
        let read = || {
            let members = Members::parse(text, &KIND)?;
            let published = Published {
                generation: members.parsed("generation")?,
                is_new: true,
                keys_before: members.value_if_there("keys_before")?,
                content: Content {
                    spec: ShardingSpec::from_json(members.raw("sharding")?.get())?,
                    keys: members.required("keys")?,
                    value_bytes: members.required("value_bytes")?,
                    file_bytes: members.required("file_bytes")?,
                    shards: members.required("shards")?,
                    dropped: members.required("dropped")?,
                },
            };
            Ok(Publication { published, manifest: members.parsed("manifest")? })
        };
        read().map_err(|error: Error| Error::corrupt(error.message().to_string()))
    }
}

/// Verifies the shard index of a shard.
///
/// Errors: `Corrupt`, `Io`.
fn check_shard_index(path: &Path, shard: &ShardRecord, len: u64) -> Result<()> {
    let (file, _) = open_regular(path)?;
    let mut crc32 = Hasher::new();
    let mut reader = BlockReader::new(Arc::new(file), path, 0, len, READ_BLOCK);
    reader.pieces(len, &mut |piece| {
        crc32.update(piece);
        Ok(())
    })?;
    if crc32.finalize() == shard.shard_index_crc32 {
        Ok(())
    } else {
        let message =
            "expected the shard index that the receipt of its part states, found another: build the part again";
        Err(Error::corrupt(message).at_shard(shard.number))
    }
}
