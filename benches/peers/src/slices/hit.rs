//! `hit`: present keys, all equally likely and known in advance; 8 bytes of each value are read.
//!
//! The processor may begin the next get before the last one is done. This measures throughput.

use super::Slice;
use crate::data::Sampler;
use crate::reader::{Reader, Result, absent, head};

pub fn draw(sampler: &mut Sampler, count: usize) -> Slice {
    Slice::Hit(sampler.present(count))
}

pub fn run<R: Reader>(reader: &mut R, keys: &[u64]) -> Result<u64> {
    let mut sum = 0_u64;
    for key in keys {
        let value = reader.get(*key, head)?.ok_or_else(|| absent(*key))?;
        sum = sum.wrapping_add(value);
    }
    Ok(sum)
}
