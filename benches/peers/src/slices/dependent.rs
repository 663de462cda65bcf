//! `dependent`: each key depends on the value before it. This measures latency.
//!
//! The key is computed from the value. An array of keys would add the same cache miss to every engine.

use super::Slice;
use crate::data::{DataSet, Sampler};
use crate::random::{reduce, scramble};
use crate::reader::{Reader, Result, absent, head};

pub struct Chain {
    data: DataSet,
    start: u64,
    pub steps: u64,
}

impl Chain {
    /// The next key. The step is mixed in because a chain of values alone would soon run in a cycle.
    #[inline]
    fn next(&self, value: u64, step: u64) -> u64 {
        self.data.key(reduce(scramble(value ^ step), self.data.keys))
    }
}

pub fn draw(sampler: &mut Sampler, count: usize) -> Slice {
    Slice::Dependent(Chain { data: sampler.data, start: sampler.random.next(), steps: count as u64 })
}

pub fn run<R: Reader>(reader: &mut R, chain: &Chain) -> Result<u64> {
    let (mut sum, mut value) = (0_u64, chain.start);
    for step in 0..chain.steps {
        let key = chain.next(value, step);
        value = reader.get(key, head)?.ok_or_else(|| absent(key))?;
        sum = sum.wrapping_add(value);
    }
    Ok(sum)
}
