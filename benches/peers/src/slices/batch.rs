//! `batch`: the keys of `hit`, 256 at a time. Engines that know no batches get them one by one.

use super::Slice;
use crate::data::Sampler;
use crate::reader::{Reader, Result, head};

const BATCH: usize = 256;

pub fn draw(sampler: &mut Sampler, count: usize) -> Slice {
    Slice::Batch(sampler.present(count))
}

/// The sum takes the position of a value in its batch into account.
pub fn run<R: Reader>(reader: &mut R, keys: &[u64]) -> Result<u64> {
    let mut sum = 0_u64;
    for batch in keys.chunks(BATCH) {
        let mut at = 0_u64;
        reader.get_many(batch, |value| {
            sum = sum.wrapping_add(value.map_or(0, head) ^ at);
            at += 1;
        })?;
    }
    Ok(sum)
}
