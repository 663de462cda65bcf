//! The writer of a spill: the pairs of one task, divided by part.

use std::fmt;
use std::io::Read;
use std::path::Path;

use crc32fast::Hasher;

use super::parts_dir::{NewSpill, PartsDir};
use super::plan::PartPlan;
use super::spill_format::{MAX_HEADER, MAX_VALUE, NO_PART, ROW_LEN, RecordHeader, SectionRow, Trailer, digest_of};
use super::spill_receipt::SpillReceipt;
use crate::bytes::{Cursor, Sink, WRITE_BLOCK};
use crate::error::{Error, ErrorKind, Result};
use crate::format::digest::{Digest, Digester};
use crate::format::random::random_bytes;
use crate::fs::disk;
use crate::threads::progress::Phase;
use crate::write::{BuildOptions, Source};

/// Writes the pairs of one task into one file, the *spill*, divided by part.
///
/// Pairs are collected in memory up to [`BuildOptions::memory`], and then appended to the file as a run: one section
/// per part, in the order of insertion. [`finish`](SpillWriter::finish) syncs the file and gives it its name, and the
/// process may die at any time before without an effect: a writer that is dropped leaves nothing, and one that is
/// killed leaves a file of another name, which [`clean`](super::clean) removes. Uses no threads.
///
/// A spill takes 10 bytes per pair more than its values if these have 64 to 8191 bytes.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-spill-doc-{}", std::process::id()));
/// use sharddb::cluster::{PartPlan, SpillWriter};
/// use sharddb::{BuildOptions, Profile};
///
/// let plan = PartPlan::for_counts(1000, 100_000, Profile::Local, 4)?;
/// let mut spill = SpillWriter::create(store.join("parts-1"), &plan, 7, &BuildOptions::new())?;
/// spill.extend((0..1000).map(|key| (key, format!("value {key}"))))?;
/// let receipt = spill.finish()?;
/// assert_eq!((receipt.task(), receipt.pairs()), (7, 1000));
/// assert!(store.join("parts-1").join(receipt.file_name()).exists());
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[must_use = "nothing is there until `finish`"]
pub struct SpillWriter {
    plan: PartPlan,
    plan_digest: Digest,
    task: u64,
    options: BuildOptions,
    /// Bound on the bytes of `run` and the entries of `records`.
    memory: usize,
    /// The pairs of the current run, in the order of insertion.
    run: Vec<u8>,
    /// The part and the offset in `run` of each pair.
    records: Vec<(u32, usize)>,
    /// The rows of the section table.
    table: Vec<u8>,
    totals: Totals,
    digester: Digester,
    /// Whether an insertion failed or panicked, so that the file may be incomplete.
    failed: bool,
    cursor: Cursor,
    new: NewSpill,
}

/// Memory per pair besides its header and its bytes.
const ENTRY_LEN: usize = size_of::<(u32, usize)>();

/// Length of the pieces in which a pair that is too large for memory is copied.
const PIECE: usize = 64 << 10;

/// Totals of the pairs so far.
#[derive(Clone, Copy, Default)]
struct Totals {
    pairs: u64,
    preambles: u64,
}

impl SpillWriter {
    /// Begins the spill of a task in a directory, normally [`job_directory`](super::job_directory) of the store.
    /// Creates the directory if it does not exist.
    ///
    /// Of the options, those of memory, progress, cancellation and durability apply.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for less than 16 MiB of memory; `Io`.
    pub fn create(
        directory: impl AsRef<Path>,
        plan: &PartPlan,
        task: u64,
        options: &BuildOptions,
    ) -> Result<SpillWriter> {
        let options = options.starting()?;
        let begin = || PartsDir::create(directory.as_ref())?.begin_spill();
        let new = disk::with_syncs_if(options.durable, begin)?;
        options.progress.begin(Phase::Insert, 0);
        let block = WRITE_BLOCK as u64;
        Ok(SpillWriter {
            plan: plan.clone(),
            plan_digest: plan.digest(),
            task,
            memory: usize::try_from(options.memory_now().saturating_sub(block)).unwrap_or(usize::MAX),
            options,
            run: Vec::new(),
            records: Vec::new(),
            table: Vec::new(),
            totals: Totals::default(),
            digester: Digester::default(),
            failed: false,
            cursor: Cursor::new(Sink::file(new.file().clone(), new.path()), 0, WRITE_BLOCK),
            new,
        })
    }

    /// Adds a pair. Copies the value.
    ///
    /// # Errors
    ///
    /// `Io` from writing this pair or an earlier one; `TooLarge` for a value of 2^63 bytes or more; `InvalidInput` in a
    /// forked child; `Cancelled`. After an error the spill cannot be finished.
    #[inline]
    pub fn insert(&mut self, key: u64, value: impl AsRef<[u8]>) -> Result<()> {
        self.insert_with_preamble(key, &[], value.as_ref())
    }

    /// Adds all pairs of an iterator.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](SpillWriter::insert). Stops at the first pair that fails.
    pub fn extend<V: AsRef<[u8]>>(&mut self, pairs: impl IntoIterator<Item = (u64, V)>) -> Result<()> {
        pairs.into_iter().try_for_each(|(key, value)| self.insert(key, value))
    }

    /// Adds a pair with a preamble, like [`BulkLoader::insert_with_preamble`](crate::BulkLoader::insert_with_preamble).
    ///
    /// # Errors
    ///
    /// Those of [`insert`](SpillWriter::insert).
    #[inline]
    pub fn insert_with_preamble(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        let header = RecordHeader { key, preamble_len: preamble.len() as u64, value_len: value.len() as u64 };
        self.add_or_fail(header, Source::Slices(preamble, value))
    }

    /// Adds a pair whose preamble and value are read from `reader`, in this order. Takes bounded memory for any length.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](SpillWriter::insert), and `Io` if the reader fails or ends early.
    pub fn insert_reader(&mut self, key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        self.add_or_fail(RecordHeader { key, preamble_len, value_len }, Source::Reader(reader))
    }

    /// Writes the remaining pairs, syncs the file, and gives it its name. The receipt is valid from then on.
    ///
    /// Each spill differs from all others, also from one of the same pairs: it has 16 random bytes. So its receipt is that of
    /// this run of the job, and not of an earlier run with the same input.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](SpillWriter::insert); `InvalidInput` if an insertion failed; `Corrupt` if the directory has
    /// another file of this name. Nothing is left in the directory then.
    pub fn finish(self) -> Result<SpillReceipt> {
        let durable = self.options.durable;
        disk::with_syncs_if(durable, || self.complete())
    }

    #[inline]
    fn add_or_fail(&mut self, header: RecordHeader, source: Source<'_>) -> Result<()> {
        let failed_before = std::mem::replace(&mut self.failed, true); // remains true if a reader panics
        let added = self.add(header, source).map_err(|error| error.at_key(header.key));
        self.failed = failed_before || added.is_err();
        self.options.progress.add(header.preamble_len.saturating_add(header.value_len));
        added
    }

    #[inline]
    fn add(&mut self, header: RecordHeader, source: Source<'_>) -> Result<()> {
        self.options.progress.check()?;
        let part = u32::try_from(self.plan.part_of(header.key)).map_err(|_| Error::internal("a part has no number"))?;
        let len = header.bytes().filter(|_| header.value_len <= MAX_VALUE).ok_or_else(too_large)?;
        self.totals.pairs += 1;
        self.totals.preambles += u64::from(header.preamble_len > 0);
        let Some(len) = usize::try_from(len).ok().filter(|len| *len <= self.memory / 4) else {
            return self.write_large(part, header, source);
        };
        let in_memory = self.run.len() + self.records.len() * ENTRY_LEN;
        if in_memory.saturating_add(len + MAX_HEADER + ENTRY_LEN) > self.memory {
            self.write_run()?;
        }
        let start = self.run.len();
        header.write(&mut self.run);
        match source {
            Source::Slices(preamble, value) => {
                self.run.extend_from_slice(preamble);
                self.run.extend_from_slice(value);
            }
            Source::Reader(reader) => {
                let bytes = self.run.len();
                self.run.resize(bytes + len, 0);
                let read = reader.read_exact(self.run.get_mut(bytes..).unwrap_or_default());
                read.map_err(|error| Error::io("read a pair from the reader", Path::new(""), error))?;
            }
        }
        self.records.push((part, start));
        Ok(())
    }

    /// Appends the collected pairs to the file, a section per part.
    fn write_run(&mut self) -> Result<()> {
        self.check_owner()?;
        let (run, mut records) = (std::mem::take(&mut self.run), std::mem::take(&mut self.records));
        records.sort_unstable(); // offsets are unique, so the order of insertion is kept
        for section in records.chunk_by(|one, next| one.0 == next.0) {
            let mut crc32 = Hasher::new();
            let before = self.cursor.position();
            for (_, start) in section {
                let bytes = run.get(*start..).unwrap_or_default();
                let record = RecordHeader::read(bytes).and_then(|(header, header_len)| {
                    bytes.get(..header_len.checked_add(usize::try_from(header.bytes()?).ok()?)?)
                });
                self.put(record.ok_or_else(|| Error::internal("a pair ends beyond its run"))?, &mut crc32)?;
            }
            let part = section.first().map_or(0, |(part, _)| *part);
            self.end_section(part, section.len() as u64, before, crc32);
        }
        (self.run, self.records) = (run, records); // keeps their memory
        self.run.clear();
        self.records.clear();
        Ok(())
    }

    /// Appends the collected pairs, and then a pair that is too large for memory as a section of its own.
    #[cold]
    fn write_large(&mut self, part: u32, header: RecordHeader, source: Source<'_>) -> Result<()> {
        self.write_run()?;
        let mut crc32 = Hasher::new();
        let before = self.cursor.position();
        let mut head = Vec::new();
        header.write(&mut head);
        self.put(&head, &mut crc32)?;
        match source {
            Source::Slices(preamble, value) => {
                self.put(preamble, &mut crc32)?;
                self.put(value, &mut crc32)?;
            }
            Source::Reader(reader) => {
                let mut left = header.bytes().ok_or_else(too_large)?;
                let mut piece = vec![0; PIECE];
                while left > 0 {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
                    let piece = piece.get_mut(..take).unwrap_or_default();
                    let read = reader.read_exact(piece);
                    read.map_err(|error| Error::io("read a pair from the reader", Path::new(""), error))?;
                    self.options.progress.check()?;
                    self.put(piece, &mut crc32)?;
                    left -= take as u64;
                }
            }
        }
        self.end_section(part, 1, before, crc32);
        Ok(())
    }

    #[inline]
    fn put(&mut self, bytes: &[u8], crc32: &mut Hasher) -> Result<()> {
        crc32.update(bytes);
        self.digester.update(bytes);
        self.cursor.write(bytes)
    }

    fn end_section(&mut self, part: u32, pairs: u64, before: u64, crc32: Hasher) {
        let row = SectionRow { part, crc32: crc32.finalize(), pairs, bytes: self.cursor.position() - before };
        self.table.extend_from_slice(&row.to_bytes());
    }

    fn complete(mut self) -> Result<SpillReceipt> {
        if self.failed {
            let message = "cannot finish the spill, because an insertion failed: begin the spill again";
            return Err(Error::invalid_input(message));
        }
        self.write_run()?;
        let run = self.write_random()?;
        self.options.progress.check()?;
        let SpillWriter { plan_digest: plan, task, table, digester, mut cursor, new, .. } = self;
        let Totals { pairs, preambles } = self.totals;
        let sections = (table.len() / ROW_LEN) as u64;
        let digest = digest_of(digester, &table, plan, task);
        let trailer = Trailer { table_crc32: crc32fast::hash(&table), plan, task, digest, sections, pairs, preambles };
        cursor.write(&table)?;
        cursor.write(&trailer.to_bytes())?;
        cursor.finish()?;
        let bytes = cursor.position();
        disk::sync_file(new.file(), new.path()).map_err(|error| Error::io("sync", new.path(), error))?;
        let receipt = SpillReceipt { plan, task, digest, pairs, preambles, bytes, run: Some(run) };
        new.install(&receipt.file_name())?;
        Ok(receipt)
    }

    /// Appends and returns random bytes, so that a spill of equal pairs in another run of the job is another spill.
    fn write_random(&mut self) -> Result<Digest> {
        let (before, mut crc32, run) = (self.cursor.position(), Hasher::new(), random_bytes());
        self.put(&run, &mut crc32)?;
        self.end_section(NO_PART, 0, before, crc32);
        Ok(Digest::from_bytes(run))
    }

    /// Errors: `InvalidInput` in a forked child, which shares the file with its parent.
    fn check_owner(&self) -> Result<()> {
        if self.new.is_own() {
            Ok(())
        } else {
            Err(Error::invalid_input(
                "expected the process that began the spill, found a forked child of it: begin another spill",
            ))
        }
    }
}

#[cold]
fn too_large() -> Error {
    Error::new(ErrorKind::TooLarge, "expected a value of less than 2^63 bytes, found a longer one")
}

impl fmt::Debug for SpillWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillWriter").field("path", &self.new.path()).field("task", &self.task).finish_non_exhaustive()
    }
}
