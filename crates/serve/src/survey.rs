//! How the keys and bytes of a database are distributed: counted in its indexes, for a large database in a sample.

use std::io;

use serde_json::{Value, json};
use sharddb::shard::Shard;
use sharddb::spec::{MinishardNumber, ShardNumber};
use sharddb::{ErrorKind, Snapshot};

use crate::bins::Bins;
use crate::problem::{Problem, Result};
use crate::shard_files::ShardFile;

/// About this number of keys is counted. A shard is counted whole.
const MAX_KEYS: u64 = 500_000;

/// About this number of minishards is visited, so that a specification with billions of them does not keep a thread.
const MAX_MINISHARDS: u64 = 1 << 22;

/// The result of a pass over indexes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    pub(crate) keys: u64,
    pub(crate) value_bytes: u64,
    /// Whether some shards were left out, so that the totals are those of the others.
    pub(crate) is_sample: bool,
    /// Whether a part is damaged or may not be read, so that it is not counted.
    pub(crate) is_partial: bool,
    fill: Distribution,
    value_size: Distribution,
}

impl Survey {
    /// Counts all shards, or shards spread over all of them. Leaves out parts that are damaged or may not be read.
    ///
    /// Errors: `io`.
    pub(crate) fn take(snapshot: &Snapshot) -> Result<Survey> {
        let mut survey = Survey::default();
        let listed = ShardFile::list(snapshot);
        let files = listed.map_err(|error| Problem::io("list", snapshot.shards_directory(), &error))?;
        let minishards = snapshot.spec().minishards();
        let max_shards = usize::try_from(MAX_MINISHARDS / minishards).unwrap_or(usize::MAX);
        for number in spread(&files.iter().map(|file| file.number).collect::<Vec<_>>()).into_iter().take(max_shards) {
            if survey.keys >= MAX_KEYS {
                survey.is_sample = true;
                break;
            }
            match snapshot.shard(number) {
                Ok(Some(shard)) => survey.add(&shard, minishards)?,
                Ok(None) => {}
                Err(error) => survey.miss(error)?,
            }
        }
        survey.is_sample |= files.len() > max_shards;
        Ok(survey)
    }

    /// Notes damage, or a file without permission.
    ///
    /// Errors: other errors of I/O, which may be over when the request is repeated.
    fn miss(&mut self, error: sharddb::Error) -> Result<()> {
        self.is_partial = true;
        let may_pass = error.kind() == ErrorKind::Io && error.io_kind() != Some(io::ErrorKind::PermissionDenied);
        if may_pass { Err(error.into()) } else { Ok(()) }
    }

    fn add(&mut self, shard: &Shard, minishards: u64) -> Result<()> {
        let mut filled = 0;
        let mut current: Option<(MinishardNumber, u64)> = None;
        for entry in shard.iter() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.miss(error)?;
                    continue;
                }
            };
            let minishard = entry.location().minishard;
            current = match current {
                Some((number, keys)) if number == minishard => Some((number, keys + 1)),
                before => {
                    if let Some((_, keys)) = before {
                        self.fill.add(keys);
                        filled += 1;
                    }
                    Some((minishard, 1))
                }
            };
            self.keys += 1;
            self.value_bytes = self.value_bytes.saturating_add(entry.stored_len());
            self.value_size.add(entry.stored_len());
        }
        if let Some((_, keys)) = current {
            self.fill.add(keys);
            filled += 1;
        }
        self.fill.add_times(0, minishards.saturating_sub(filled));
        Ok(())
    }

    /// Whether the totals are those of the whole database.
    pub(crate) fn is_complete(&self) -> bool {
        !self.is_sample && !self.is_partial
    }

    /// The histograms: keys per minishard, and stored bytes per value.
    pub(crate) fn json(&self) -> Value {
        json!({
            "minishard_fill": self.fill.json(),
            "value_size": self.value_size.json(),
            "sampled": self.is_sample,
            "damaged": self.is_partial,
        })
    }
}

/// The numbers in an order whose beginnings are spread over all: every 64th, then those between.
fn spread(numbers: &[ShardNumber]) -> Vec<ShardNumber> {
    let step = numbers.len().div_ceil(64).max(1);
    let order = (0..step).flat_map(|first| numbers.iter().skip(first).step_by(step));
    order.copied().collect()
}

/// One number per bin below 64, then 32 bins per power of two.
const BINS: Bins = Bins::with_bits(5);

/// How often each number occurs: exact for small numbers, by bins of at most 1/32 of the number for large ones.
#[derive(Clone, Debug, Default)]
struct Distribution {
    /// Ends with the bin of the largest number.
    counts: Vec<u64>,
}

impl Distribution {
    fn add(&mut self, number: u64) {
        self.add_times(number, 1);
    }

    /// Adds `number` `times` times.
    fn add_times(&mut self, number: u64, times: u64) {
        if times == 0 {
            return;
        }
        let bin = BINS.of(number);
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(bin) {
            *count = count.saturating_add(times);
        }
    }

    /// The edges, of which there is one more than counts, from the first bin that is not empty to the last. A number is in
    /// the bin whose first edge it reaches and whose second it does not.
    fn json(&self) -> Value {
        let Some(first) = self.counts.iter().position(|count| *count > 0) else {
            return json!({"edges": [], "counts": []});
        };
        let edges: Vec<u64> = (first..=self.counts.len()).map(|bin| BINS.first(bin)).collect();
        json!({"edges": edges, "counts": self.counts.get(first..).unwrap_or_default()})
    }
}

#[cfg(test)]
mod tests {
    use sharddb::ShardingSpec;
    use sharddb::spec::HashFunction;

    use super::*;

    #[test]
    fn the_order_has_every_shard_once() {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, 0, 10).unwrap();
        let numbers: Vec<_> = (0..1000).map(|number| spec.shard(number).unwrap()).collect();
        let order = spread(&numbers);
        assert!(order[..63].windows(2).all(|pair| pair[1].get() - pair[0].get() == 16));
        let mut sorted = order;
        sorted.sort();
        assert_eq!(sorted, numbers);
        assert_eq!(spread(&[]), []);
    }

    fn of(numbers: &[u64]) -> Value {
        let mut distribution = Distribution::default();
        numbers.iter().for_each(|number| distribution.add(*number));
        distribution.json()
    }

    #[test]
    fn edges_enclose_the_counts() {
        assert_eq!(of(&[]), json!({"edges": [], "counts": []}));
        assert_eq!(of(&[0, 1, 3, 3]), json!({"edges": [0, 1, 2, 3, 4], "counts": [1, 1, 0, 2]}));
        assert_eq!(of(&[30, 31, 31, 32]), json!({"edges": [30, 31, 32, 33], "counts": [1, 2, 1]}));
        assert_eq!(of(&[63, 64, 65, 66]), json!({"edges": [63, 64, 66, 68], "counts": [1, 2, 1]}));
        assert_eq!(of(&[1000]), json!({"edges": [992, 1008], "counts": [1]}));
        assert_eq!(of(&[u64::MAX])["counts"], json!([1]));
    }

    #[test]
    fn a_count_of_zero_adds_no_bin() {
        let mut distribution = Distribution::default();
        distribution.add_times(0, 0);
        assert_eq!(distribution.json()["edges"], json!([]));
        distribution.add_times(7, 3);
        assert_eq!(distribution.json(), json!({"edges": [7, 8], "counts": [3]}));
    }
}
