//! `batch`: the keys of `hit`, 256 at a time. Engines without batches look them up one by one.

use super::Slice;
use crate::data::Sampler;
use crate::reader::{Reader, Result, head};

const BATCH: usize = 256;

pub fn draw(sampler: &mut Sampler, count: usize) -> Slice {
    Slice::Batch(sampler.present(count))
}

pub fn draw_cold(sampler: &mut Sampler, count: usize) -> Slice {
    Slice::ColdBatch(sampler.present(count))
}

pub fn run<R: Reader>(reader: &mut R, keys: &[u64]) -> Result<u64> {
    sum_of_batches(keys, |batch, sum| reader.get_many(batch, |value| sum.add(value)))
}

pub fn run_cold<R: Reader>(reader: &mut R, keys: &[u64]) -> Result<u64> {
    sum_of_batches(keys, |batch, sum| reader.get_many_cold(batch, |value| sum.add(value)))
}

/// A sum that depends on the position of a value in its batch.
struct Sum {
    total: u64,
    at: u64,
}

impl Sum {
    #[inline]
    fn add(&mut self, value: Option<&[u8]>) {
        self.total = self.total.wrapping_add(value.map_or(0, head) ^ self.at);
        self.at += 1;
    }
}

fn sum_of_batches(keys: &[u64], mut run: impl FnMut(&[u64], &mut Sum) -> Result<()>) -> Result<u64> {
    let mut sum = Sum { total: 0, at: 0 };
    for batch in keys.chunks(BATCH) {
        sum.at = 0;
        run(batch, &mut sum)?;
    }
    Ok(sum.total)
}
