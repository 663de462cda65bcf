//! Cases of partitioned builds: tasks of pairs, and options.

use std::path::Path;

use sharddb::cluster::{PartPlan, PartReceipt, SpillReceipt, SpillSet, SpillWriter};
use sharddb::plan::KeyStats;
use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::{BuildOptions, OnDuplicate, Published, Result, ShardingSpec};

/// Memory for only some of the pairs of most cases, so that tasks write several runs, and parts spill.
pub(crate) const TOO_LITTLE: u64 = 2 << 20 | 8 << 10;

pub(crate) struct Pair {
    pub(crate) key: u64,
    pub(crate) preamble: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        HashFunction::MurmurHash3X86_128.hash(self.0) % end
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let byte = u8::try_from(self.below(256)).unwrap();
        (0..len).map(|at| byte.wrapping_add(u8::try_from(at % 7).unwrap())).collect()
    }
}

/// The input and the options of a build.
pub(crate) struct Case {
    pub(crate) plan: PartPlan,
    /// The pairs of each task, in the order of insertion.
    pub(crate) tasks: Vec<Vec<Pair>>,
    pub(crate) options: BuildOptions,
    pub(crate) spill_memory: u64,
}

impl Case {
    pub(crate) fn random(seed: u64) -> Case {
        let mut dice = Dice(seed);
        let hash = if dice.below(2) == 0 { HashFunction::Identity } else { HashFunction::MurmurHash3X86_128 };
        let encoding = |dice: &mut Dice| if dice.below(2) == 0 { Encoding::Raw } else { Encoding::Gzip };
        let [preshift, minishard, shard] = [3, 11, 6].map(|end| u8::try_from(dice.below(end)).unwrap());
        let spec = ShardingSpec::new(hash, preshift, minishard, shard).unwrap();
        let spec = spec.with_data_encoding(encoding(&mut dice)).with_minishard_index_encoding(encoding(&mut dice));
        let policy = dice.below(5);
        let keys = 1 + dice.below(400);
        let (has_preambles, has_large) = (policy != 4 && dice.below(2) == 0, dice.below(3) == 0);
        let mut stats = KeyStats::new();
        let mut unique = 0;
        let tasks = (0..dice.below(6)).map(|_| {
            let pairs = (0..dice.below(200)).map(|_| {
                unique += 1;
                let key = if policy == 0 { unique * 3 } else { dice.below(keys) };
                let preamble = if has_preambles && dice.below(4) == 0 { 1 + dice.below(20) } else { 0 };
                let most = if has_large && dice.below(40) == 0 { 300_000 } else { 150 };
                let len = dice.below(most);
                stats.insert(key, preamble, len);
                let mut preamble = dice.bytes(preamble);
                preamble.iter_mut().take(1).for_each(|first| *first |= 1); // it may follow padding
                Pair { key, preamble, value: dice.bytes(len) }
            });
            pairs.collect()
        });
        let tasks = tasks.collect();
        let parts = 1 + dice.below(9);
        let plan = match dice.below(2) {
            0 => PartPlan::even(spec, parts),
            _ => PartPlan::by_sample(spec, &stats, parts),
        };
        let plan = plan.unwrap();
        let mut options = BuildOptions::new();
        options.spec(*plan.spec()).allow_sparse(true).durable(false).threads(1 + usize::from(dice.below(2) == 0) * 2);
        options.memory(if dice.below(2) == 0 { 64 << 20 } else { 30_000 });
        options.checks(dice.below(4) > 0).ordered(dice.below(2) == 0);
        options.value_alignment(ValueAlignment::new([1, 16, 64, 1][usize::try_from(dice.below(4)).unwrap()]).unwrap());
        options.on_duplicate(match policy {
            0 | 1 => OnDuplicate::Error,
            2 => OnDuplicate::KeepFirst,
            3 => OnDuplicate::KeepLast,
            _ => joined(),
        });
        match dice.below(3) {
            0 => _ = options.info(r#"{"a": [1]}"#),
            1 => _ = options.info(r#"{"scales": [{"key": "s0/x"}]}"#).sharding_at("/scales/0"),
            _ => {}
        }
        Case { plan, tasks, options, spill_memory: if dice.below(2) == 0 { 64 << 20 } else { TOO_LITTLE } }
    }

    pub(crate) fn by_loader(&self, store: &Path) -> Result<Published> {
        let mut loader = self.options.create(store)?;
        for pair in self.tasks.iter().flatten() {
            loader.insert_with_preamble(pair.key, &pair.preamble, &pair.value)?;
        }
        loader.finish()
    }

    pub(crate) fn spill(&self, job: &Path, task: usize) -> Result<SpillReceipt> {
        let mut options = self.options.clone();
        let mut spill = SpillWriter::create(job, &self.plan, task as u64, options.memory(self.spill_memory))?;
        for pair in &self.tasks[task] {
            let (preamble, value) = (pair.preamble.len() as u64, pair.value.len() as u64);
            match pair.key % 3 {
                0 => spill.insert_reader(
                    pair.key,
                    preamble,
                    value,
                    &mut [&pair.preamble[..], &pair.value].concat().as_slice(),
                )?,
                _ => spill.insert_with_preamble(pair.key, &pair.preamble, &pair.value)?,
            }
        }
        spill.finish()
    }

    pub(crate) fn spill_all(&self, job: &Path) -> Result<SpillSet> {
        // through the texts, and in another order than that of the tasks
        let receipts = (0..self.tasks.len()).rev().map(|task| self.spill(job, task)?.to_string().parse());
        SpillSet::new(&self.plan, job, receipts.collect::<Result<Vec<SpillReceipt>>>()?)
    }

    pub(crate) fn build_parts(&self, spills: &SpillSet, job: &Path) -> Result<Vec<PartReceipt>> {
        let parts = (0..self.plan.parts()).rev();
        parts.map(|part| spills.build_part(part, job, &self.options)?.to_string().parse()).collect()
    }
}

/// Joins the values of a key.
pub(crate) fn joined() -> OnDuplicate {
    OnDuplicate::merge(|key, values, to| {
        write!(to, "{key}:")?;
        while values.copy_next(to)? {
            to.write_all(b",")?;
        }
        Ok(())
    })
}

/// A small case: three tasks and three parts, keys with duplicates, and a merge function.
pub(crate) fn small(label: &str) -> Case {
    let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, 7, 2).unwrap();
    let value = |task: u64, key: u64| format!("{label}/{task}/{key}").into_bytes();
    let pairs =
        |task: u64| (0..40).map(move |key| Pair { key: key + task * 20, preamble: vec![], value: value(task, key) });
    let mut options = BuildOptions::new();
    options.spec(spec).threads(1).on_duplicate(joined());
    Case {
        plan: PartPlan::even(spec, 3).unwrap(),
        tasks: (0..3).map(|task| pairs(task).collect()).collect(),
        options,
        spill_memory: 64 << 20,
    }
}
