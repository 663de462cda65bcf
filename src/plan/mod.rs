//! The planner: a sharding specification for given pairs, with an explanation.
//!
//! [`KeyStats`] looks at the pairs as they pass, a [`Profile`] says what the reads will be like, a [`Plan`] is
//! the specification with the figures that it leads to. A plan is a function of the set of pairs, the profile
//! and the options: no order, no thread count, no clock. It reads no file and knows none.

mod bit_counts;
mod bit_field;
mod choice;
mod evidence;
mod explanation;
mod gzip_trial;
mod key_stats;
mod occupancy;
mod poisson;
mod prediction;
mod profile;
mod run;
mod sample;

pub use key_stats::KeyStats;
pub use prediction::{HttpGet, LocalGet, Prediction};
pub use profile::Profile;

use crate::format::layout::Layout;
use crate::format::spec::{Encoding, ShardingSpec};
use choice::Choice;
use evidence::Evidence;

/// A specification, why it is this one, and what a store with it will be like.
///
/// Cost of making one: a few milliseconds, whatever the number of pairs.
///
/// ```
/// use sharddb::{KeyStats, Plan, Profile};
///
/// let mut stats = KeyStats::new();
/// (0..100_000).for_each(|number: u64| stats.insert(number.wrapping_mul(0x9e3779b97f4a7c15), 0, 100));
///
/// let plan = Plan::new(&stats, Profile::Local);
/// assert_eq!((plan.spec().minishard_bits(), plan.spec().shard_bits()), (14, 0));
/// let mean = plan.prediction().mean_keys_per_minishard();
/// assert!((4.0..8.0).contains(&(100_000.0 / 16384.0)) && mean > 6.0);
/// println!("{plan}");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    profile: Option<Profile>,
    reason: &'static str,
    keys: u64,
    value_bytes: u64,
    prediction: Prediction,
    fewer_bits: Option<Prediction>,
    more_bits: Option<Prediction>,
}

/// What a caller has decided about a store before it is planned.
///
/// ```
/// use sharddb::{Encoding, PlanOptions, Profile};
///
/// let plan = PlanOptions::new().data_encoding(Encoding::Gzip).plan_for_counts(1_000_000, 1 << 30, Profile::Remote);
/// assert_eq!(plan.spec().data_encoding(), Encoding::Gzip);
/// assert_eq!(plan.spec().minishard_index_encoding(), Encoding::Gzip); // what the profile says
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    layout: Layout,
    data_encoding: Option<Encoding>,
    minishard_index_encoding: Option<Encoding>,
}

impl Plan {
    /// The plan for these pairs: [`PlanOptions::plan`] with the defaults.
    pub fn new(stats: &KeyStats, profile: Profile) -> Plan {
        PlanOptions::new().plan(stats, profile)
    }

    /// The plan for pairs of which only the numbers are known: [`PlanOptions::plan_for_counts`] with the
    /// defaults.
    pub fn for_counts(keys: u64, value_bytes: u64, profile: Profile) -> Plan {
        PlanOptions::new().plan_for_counts(keys, value_bytes, profile)
    }

    /// The figures of a given specification: [`PlanOptions::predict`] with the defaults.
    pub fn predict(spec: ShardingSpec, stats: &KeyStats) -> Plan {
        PlanOptions::new().predict(spec, stats)
    }

    /// The specification.
    pub fn spec(&self) -> ShardingSpec {
        self.prediction.spec()
    }

    /// The profile; `None` if the specification was given.
    pub fn profile(&self) -> Option<Profile> {
        self.profile
    }

    /// Why it is this specification, in a sentence.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// The distinct keys: exact without repeated keys, else estimated to within about 2 %.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The bytes of all values that were counted, repeated keys included.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// What a store with the specification will be like.
    pub fn prediction(&self) -> &Prediction {
        &self.prediction
    }

    /// The same with half as many minishards a shard; `None` if there is one only.
    pub fn fewer_bits(&self) -> Option<&Prediction> {
        self.fewer_bits.as_ref()
    }

    /// The same with twice as many minishards a shard; `None` if the format does not allow it.
    pub fn more_bits(&self) -> Option<&Prediction> {
        self.more_bits.as_ref()
    }

    fn of(choice: Choice, profile: Option<Profile>, evidence: &Evidence<'_>, options: &PlanOptions) -> Plan {
        let spec = options.with_encodings(choice.spec);
        let predict = |spec| Prediction::new(spec, evidence, options.layout);
        let bits = spec.minishard_bits();
        let neighbour = |bits: Option<u8>| Some(predict(with_minishard_bits(spec, bits?)?));
        Plan {
            profile,
            reason: choice.reason,
            keys: evidence.keys,
            value_bytes: evidence.stats.value_bytes(),
            prediction: predict(spec),
            fewer_bits: neighbour(bits.checked_sub(1)),
            more_bits: neighbour(bits.checked_add(1)),
        }
    }
}

impl PlanOptions {
    /// A layout with checks and without alignment, encodings as the profile says.
    pub fn new() -> PlanOptions {
        let layout = Layout { checks: true, ..Layout::default() };
        PlanOptions { layout, data_encoding: None, minishard_index_encoding: None }
    }

    /// What the store will have beyond the format's text, for the index bytes. Default: checks, no alignment.
    ///
    /// Whether there are prefixes the statistics know.
    pub fn layout(&mut self, layout: Layout) -> &mut PlanOptions {
        self.layout = layout;
        self
    }

    /// Encodes the values so, whatever the profile says. Default: raw.
    ///
    /// The statistics count stored lengths, so this changes no figure.
    pub fn data_encoding(&mut self, encoding: Encoding) -> &mut PlanOptions {
        self.data_encoding = Some(encoding);
        self
    }

    /// Encodes the minishard indexes so, whatever the profile says. Default: raw for `local`, else gzip.
    pub fn minishard_index_encoding(&mut self, encoding: Encoding) -> &mut PlanOptions {
        self.minishard_index_encoding = Some(encoding);
        self
    }

    /// The plan for these pairs.
    ///
    /// Murmur without preshift, or, where that is better, identity with a preshift: `local` and `remote` take it
    /// for keys that fill at least half of the numbers between the smallest and the largest (or of the multiples
    /// of a power of two), if that keeps the largest shard within 1.25 times the mean. Minishards then hold runs
    /// of neighbours, files have all keys in ascending order, and none is fuller than the others. Where values
    /// are so large that not both targets of a profile can be had, `local` makes larger shards and `remote`
    /// smaller minishards. No pairs give a specification of one minishard.
    pub fn plan(&self, stats: &KeyStats, profile: Profile) -> Plan {
        let evidence = Evidence::new(stats);
        Plan::of(choice::choose(&evidence, profile), Some(profile), &evidence, self)
    }

    /// The plan for pairs of which only the numbers are known: murmur without preshift, and ids that do not
    /// compress.
    pub fn plan_for_counts(&self, keys: u64, value_bytes: u64, profile: Profile) -> Plan {
        self.plan(&KeyStats::of_counts(keys, value_bytes), profile)
    }

    /// The figures of a given specification.
    ///
    /// Up to 24,576 keys are counted, and so is what the lowest 16 or the highest 13 bits of the keys decide;
    /// murmur without preshift and keys without holes are computed. Other cases are estimated from samples: fill,
    /// skew and index bytes to within 10 %, the largest minishard to within its luck. Rougher is identity with a
    /// preshift where the specification selects fewer bits than the keys span: the blocks that meet in a
    /// minishard are taken to do so at random. So are preshifts above 10, whose blocks are taken to be alike.
    pub fn predict(&self, spec: ShardingSpec, stats: &KeyStats) -> Plan {
        let given = Choice { spec, reason: "as given" };
        Plan::of(given, None, &Evidence::new(stats), self)
    }

    fn with_encodings(&self, spec: ShardingSpec) -> ShardingSpec {
        let index_encoding = self.minishard_index_encoding.unwrap_or(spec.minishard_index_encoding());
        let data_encoding = self.data_encoding.unwrap_or(spec.data_encoding());
        spec.with_minishard_index_encoding(index_encoding).with_data_encoding(data_encoding)
    }
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions::new()
    }
}

fn with_minishard_bits(spec: ShardingSpec, bits: u8) -> Option<ShardingSpec> {
    let other = ShardingSpec::new(spec.hash_function(), spec.preshift_bits(), bits, spec.shard_bits()).ok()?;
    let other = other.with_minishard_index_encoding(spec.minishard_index_encoding());
    Some(other.with_data_encoding(spec.data_encoding()))
}

#[cfg(test)]
mod tests;
