//! A plan with predictions, as text and as JSON.

use std::fmt;

use sharddb::ShardingSpec;
use sharddb::plan::{Plan, PlanReason};
use sharddb::spec::{Encoding, HashFunction};

use super::evidence::Evidence;
use super::pair_stats::PairStats;
use super::prediction::Prediction;
use crate::number::plural;

/// A plan, with predictions for its specification and for one minishard bit less and more.
///
/// `Display` writes a table.
#[derive(Debug)]
pub(crate) struct Explanation {
    plan: Plan,
    value_bytes: u64,
    planned: Prediction,
    /// `None` if the plan has no minishard bits.
    fewer_bits: Option<Prediction>,
    /// `None` if the format does not allow more minishard bits.
    more_bits: Option<Prediction>,
}

impl Explanation {
    /// Predictions for a store of `pairs` with the specification of `plan` and values in `data_encoding`. The lengths in
    /// `pairs` must be stored lengths.
    pub(crate) fn new(plan: Plan, pairs: &PairStats, data_encoding: Encoding) -> Explanation {
        let evidence = Evidence::new(pairs.keys(), plan.keys());
        let spec = plan.spec().with_data_encoding(data_encoding);
        let predict = |spec| Prediction::new(spec, &evidence, pairs);
        let neighbour = |bits: Option<u8>| Some(predict(with_minishard_bits(spec, bits?)?));
        Explanation {
            plan,
            value_bytes: pairs.value_bytes,
            planned: predict(spec),
            fewer_bits: neighbour(spec.minishard_bits().checked_sub(1)),
            more_bits: neighbour(spec.minishard_bits().checked_add(1)),
        }
    }

    /// One JSON object on one line. "sharding" is the specification as `info` has it; "predicted", "fewer_minishard_bits"
    /// and "more_minishard_bits" are the figures, the last two null if the format does not allow the specification.
    pub(crate) fn to_json(&self) -> String {
        let or_null = |prediction: &Option<Prediction>| prediction.as_ref().map_or("null".to_string(), figures);
        format!(
            "{{\"sharding\": {}, \"profile\": \"{}\", \"reason\": \"{}\", \"keys\": {}, \"value_bytes\": {}, \
             \"predicted\": {}, \"fewer_minishard_bits\": {}, \"more_minishard_bits\": {}}}",
            self.planned.spec.to_json(),
            self.plan.profile(),
            sentence(&self.plan),
            self.plan.keys(),
            self.value_bytes,
            figures(&self.planned),
            or_null(&self.fewer_bits),
            or_null(&self.more_bits),
        )
    }
}

fn with_minishard_bits(spec: ShardingSpec, bits: u8) -> Option<ShardingSpec> {
    let other = ShardingSpec::new(spec.hash_function(), spec.preshift_bits(), bits, spec.shard_bits()).ok()?;
    let other = other.with_minishard_index_encoding(spec.minishard_index_encoding());
    Some(other.with_data_encoding(spec.data_encoding()))
}

fn sentence(plan: &Plan) -> &'static str {
    match plan.reason() {
        PlanReason::Dense { .. } => {
            "identity: the keys are dense, so neighbours share a minishard and all are filled alike"
        }
        PlanReason::Uneven { .. } => "murmur: the keys are dense, but identity would fill shards unevenly",
        PlanReason::Sparse { .. } => "murmur: the keys are not dense",
        PlanReason::FewKeys { .. } => "murmur: one minishard holds all keys",
        PlanReason::UnknownKeys => "murmur: nothing is known about the keys",
        PlanReason::ProfileRule => "murmur: cloud-volume's rule for hashed keys",
        _ => match plan.spec().hash_function() {
            HashFunction::Identity => "identity",
            HashFunction::MurmurHash3X86_128 => "murmur",
        },
    }
}

/// A row of the table.
struct Row {
    name: &'static str,
    write: fn(&Prediction) -> String,
}

const ROWS: [Row; 14] = [
    Row { name: "preshift bits", write: |p| p.spec.preshift_bits().to_string() },
    Row { name: "minishard bits", write: |p| p.spec.minishard_bits().to_string() },
    Row { name: "shard bits", write: |p| p.spec.shard_bits().to_string() },
    Row { name: "shard files", write: |p| p.shard_files.to_string() },
    Row { name: "skew (largest / mean)", write: |p| format!("{:.2}", p.skew) },
    Row { name: "keys per minishard, mean", write: |p| format!("{:.1}", p.mean_keys) },
    Row { name: "keys per minishard, median", write: |p| p.median_keys.to_string() },
    Row { name: "keys per minishard, largest", write: |p| p.largest_keys.to_string() },
    Row { name: "index bytes per key", write: |p| format!("{:.1}", p.index_bytes_per_key) },
    Row { name: "local get, cache misses", write: |p| p.local.cache_misses.to_string() },
    Row { name: "local get, cold pages", write: |p| format!("{:.1}", p.local.pages) },
    Row { name: "local get, bytes", write: |p| format!("{:.0}", p.local.bytes) },
    Row { name: "HTTP get, requests", write: |p| p.http.requests.to_string() },
    Row { name: "HTTP get, bytes", write: |p| format!("{:.0}", p.http.bytes) },
];

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.planned.spec)?;
        writeln!(f, "{}", sentence(&self.plan))?;
        writeln!(f, "{}, {} of values\n", plural(self.plan.keys(), "key"), plural(self.value_bytes, "byte"))?;
        let columns = [
            ("plan", Some(&self.planned)),
            ("1 bit less", self.fewer_bits.as_ref()),
            ("1 bit more", self.more_bits.as_ref()),
        ];
        let columns: Vec<_> = columns.into_iter().filter_map(|(name, column)| Some((name, column?))).collect();
        write!(f, "{:28}", "")?;
        columns.iter().try_for_each(|(name, _)| write!(f, "{name:>12}"))?;
        for row in &ROWS {
            write!(f, "\n{:28}", row.name)?;
            columns.iter().try_for_each(|(_, column)| write!(f, "{:>12}", (row.write)(column)))?;
        }
        Ok(())
    }
}

fn figures(prediction: &Prediction) -> String {
    let Prediction { spec, local, http, .. } = prediction;
    format!(
        "{{\"minishard_bits\": {}, \"shard_bits\": {}, \"shard_files\": {}, \"skew\": {:.4}, \
         \"minishards_with_keys\": {}, \"mean_keys_per_minishard\": {:.3}, \"median_keys_per_minishard\": {}, \
         \"largest_keys_per_minishard\": {}, \"index_bytes_per_key\": {:.3}, \"local_get_cache_misses\": {}, \
         \"local_get_pages\": {:.3}, \"local_get_bytes\": {:.1}, \"http_get_requests\": {}, \
         \"http_get_bytes\": {:.1}}}",
        spec.minishard_bits(),
        spec.shard_bits(),
        prediction.shard_files,
        prediction.skew,
        prediction.minishards,
        prediction.mean_keys,
        prediction.median_keys,
        prediction.largest_keys,
        prediction.index_bytes_per_key,
        local.cache_misses,
        local.pages,
        local.bytes,
        http.requests,
        http.bytes,
    )
}
