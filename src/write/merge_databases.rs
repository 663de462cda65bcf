//! Merges databases into a new generation.
//!
//! ```text
//! inputs in the storage order of the new specification      merged while they are read, values copied as stored
//! other inputs                                              sorted as the pairs of a build are
//! ```

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::spec::{Encoding, ShardingSpec};
use crate::fs::disk;
use crate::plan::KeyStats;
use crate::read::snapshot::Snapshot;
use crate::store::{PendingGeneration, Store};
use crate::threads::progress::Phase;
use crate::write::Candidate;
use crate::write::generation_writer::GenerationWriter;
use crate::write::memory_split::MemorySplit;
use crate::write::options::{BuildOptions, OnDuplicate};
use crate::write::sorter::{Sorter, Source};
use crate::write::stored_pairs::StoredPairs;
use crate::write::union_pairs::UnionPairs;

/// Memory for reading a source of a union, in bytes: the read-ahead of two shards.
const PER_SOURCE: usize = 2 << 20;

impl BuildOptions {
    /// Merges databases into a new generation of a store, which is returned without publishing it. With one input, the
    /// same data under another specification, encoding or profile.
    ///
    /// [`on_duplicate`](BuildOptions::on_duplicate) decides about keys that several inputs have; pairs are inserted in
    /// the order of the inputs. Foreign inputs may have other specifications. Without a specification, one is planned;
    /// without a data encoding, it is that of the inputs if they agree, else raw. There is a key file if the options ask
    /// for one, or if all inputs have one.
    ///
    /// Inputs that are native with checks, and have the hash, the preshift and at least the bits of the new specification, are merged
    /// while they are read. All others are sorted within the memory limit, as a build does. Values are not decoded if
    /// the encoding does not change; those of a native input are verified, and those of a foreign gzip input decoded once
    /// to verify them. Files are read by positioned reads, unless they are in memory.
    ///
    /// # Errors
    ///
    /// Those of [`BulkLoader::finish_unpublished`](crate::BulkLoader::finish_unpublished), and those of reading the
    /// inputs: `Corrupt`, with the place, for damage. Nothing is left behind then.
    ///
    /// ```
    /// # let directory = std::env::temp_dir().join(format!("sharddb-merge-databases-doc-{}", std::process::id()));
    /// use sharddb::{BuildOptions, BulkLoader, OnDuplicate, ShardDb};
    ///
    /// for (name, pairs) in [("a", [(1, "one"), (2, "two")]), ("b", [(2, "zwei"), (3, "drei")])] {
    ///     let mut loader = BulkLoader::create(directory.join(name))?;
    ///     loader.extend(pairs)?;
    ///     loader.finish()?;
    /// }
    /// let inputs = [ShardDb::open(directory.join("a"))?, ShardDb::open(directory.join("b"))?];
    /// let inputs = inputs.map(|db| db.snapshot());
    /// let mut options = BuildOptions::new();
    /// let merged = options.on_duplicate(OnDuplicate::KeepLast).merge(directory.join("all"), &inputs)?;
    /// assert_eq!(merged.publish()?.content.keys, 3);
    /// assert_eq!(ShardDb::open(directory.join("all"))?.get(2)?.unwrap(), b"zwei");
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn merge(&self, store: impl AsRef<Path>, inputs: &[Snapshot]) -> Result<Candidate> {
        let mut options = self.starting()?;
        let nested = options.check_info()?; // fail before the merge rather than at its end
        disk::with_syncs_if(self.durable, || {
            let begun = Store::create(store)?.writer()?.begin(self.temp_dir.as_deref())?;
            let merger = Merger::new(options, inputs)?;
            merger.write(begun.with_shards_in(nested)?)?.check_fragments(&merger.options)
        })
    }
}

/// Databases that are being merged.
struct Merger<'a> {
    options: BuildOptions,
    inputs: &'a [Snapshot],
    data_encoding: Encoding,
}

impl<'a> Merger<'a> {
    fn new(mut options: BuildOptions, inputs: &'a [Snapshot]) -> Result<Merger<'a>> {
        options.ordered |= !inputs.is_empty() && inputs.iter().all(Snapshot::is_ordered);
        let mut encodings = inputs.iter().map(|input| input.spec().data_encoding());
        if let (None, None, Some(first)) = (options.spec, options.data_encoding, encodings.next())
            && encodings.all(|other| other == first)
        {
            options.data_encoding(first);
        }
        let mut merger = Merger { data_encoding: options.encoding(), options, inputs };
        if merger.options.spec.is_none() && merger.is_native() {
            merger.options.spec = Some(merger.planned_spec()?); // before the merge, which then need not sort
        }
        Ok(merger)
    }

    fn is_native(&self) -> bool {
        self.inputs.iter().all(|input| input.generation.manifest().is_some())
    }

    /// Plans a specification for the pairs of all inputs, which are native.
    fn planned_spec(&self) -> Result<ShardingSpec> {
        let mut stats = KeyStats::new();
        for input in self.inputs {
            let mut pairs = StoredPairs::new(&input.generation);
            for number in input.generation.shard_numbers() {
                self.options.progress.check()?;
                pairs.enter(number)?;
                while let Some((_, header)) = pairs.next()? {
                    stats.insert(header.key, header.preamble_len, header.stored_len);
                }
            }
        }
        Ok(self.options.plan(&stats, self.data_encoding))
    }

    fn write(&self, pending: PendingGeneration) -> Result<Candidate> {
        match self.union() {
            Some((spec, union)) => self.write_union(spec, &union, pending),
            None => self.write_sorted(pending),
        }
    }

    /// Returns the specification and the union of the inputs, if they need not be sorted.
    fn union(&self) -> Option<(ShardingSpec, UnionPairs<'a>)> {
        let spec = self.options.spec?;
        let is_merged_raw = self.data_encoding == Encoding::Raw;
        if matches!(self.options.on_duplicate, OnDuplicate::Merge(_)) && !is_merged_raw {
            return None; // the function gets decoded values
        }
        let most = self.most_sources();
        let generations = self.inputs.iter().map(|input| &*input.generation);
        Some((
            spec,
            UnionPairs::new(generations, spec, self.options.on_duplicate.in_a_sort(), self.options.checks, most)?,
        ))
    }

    /// Returns the number of sources that all threads together may read. Each takes memory and up to two descriptors.
    fn most_sources(&self) -> usize {
        (self.budget().merge / PER_SOURCE).min(disk::open_files_limit() / 8).max(1)
    }

    fn budget(&self) -> MemorySplit {
        MemorySplit::new(self.options.memory_now(), self.options.thread_count())
    }

    fn write_union(&self, spec: ShardingSpec, union: &UnionPairs<'_>, pending: PendingGeneration) -> Result<Candidate> {
        let manifests = || self.inputs.iter().filter_map(|input| input.generation.manifest());
        let value_bytes = manifests().map(|manifest| manifest.value_bytes).fold(0, u64::saturating_add);
        let budget = self.budget();
        // each thread reads all parts
        let threads = budget.threads.min(self.most_sources() / union.parts().max(1)).max(1);
        let writer = self.writer(spec, false, pending);
        let written = writer.write_shards(union, value_bytes, threads, budget.minishards)?;
        writer.complete(written)
    }

    fn write_sorted(&self, pending: PendingGeneration) -> Result<Candidate> {
        let merges = matches!(self.options.on_duplicate, OnDuplicate::Merge(_));
        let keeps = self.inputs.iter().all(|input| input.spec().data_encoding() == self.data_encoding);
        let (form, encoding) = match (merges, keeps) {
            (true, _) => (Form::Decoded, Encoding::Raw), // values are encoded after they are merged
            (false, true) => (Form::Stored, Encoding::Raw),
            (false, false) => (Form::Decoded, self.data_encoding),
        };
        let duplicates = self.options.on_duplicate.in_a_sort();
        let mut sorter = Sorter::new(&self.options, duplicates, encoding, pending.spill_dir(), 0)?;
        self.options.progress.begin(Phase::Insert, 0);
        self.inputs.iter().try_for_each(|input| add_all(input, form, &mut sorter))?;
        let sorted = sorter.sort()?;
        self.writer(sorted.spec, sorted.totals.has_preambles, pending).write_sorted(sorted)
    }

    fn writer(&self, spec: ShardingSpec, preambles: bool, pending: PendingGeneration) -> GenerationWriter<'_> {
        let spec = spec.with_data_encoding(self.data_encoding);
        GenerationWriter { options: &self.options, pending, spec, layout: self.options.layout(preambles) }
    }
}

/// The form in which values are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Stored,
    Decoded,
}

/// Adds all pairs of a database to a sorter.
///
/// Errors: `Corrupt` for damage and for a key in the wrong place, `DuplicateKey` for a key that one database has twice.
fn add_all(input: &Snapshot, form: Form, sorter: &mut Sorter) -> Result<()> {
    let is_native = input.generation.manifest().is_some();
    for number in input.generation.shard_numbers() {
        let Some(shard) = input.generation.open_shard_to_copy(number)? else { continue };
        for entry in shard.iter() {
            let entry = entry?;
            let key = entry.key();
            if entry.location() != input.spec().route(key) {
                let message =
                    "expected each key in the minishard that it hashes to, found it in another: salvage the database";
                return Err(Error::corrupt(message).at_path(input.directory()).at_key(key));
            }
            let value = match form {
                Form::Decoded => entry.value()?,
                Form::Stored => {
                    if !is_native && input.spec().data_encoding() == Encoding::Gzip {
                        entry.value()?; // without checks, decoding is the only verification
                    }
                    entry.encoded_value()?
                }
            };
            let preamble = entry.preamble()?;
            sorter.add(key, (preamble.len() as u64, value.len() as u64), Source::Slices(&preamble, &value))?;
        }
    }
    Ok(())
}
