//! `scan`: all pairs once; the key, the first and the last 8 bytes of each value are read.

use super::Slice;
use crate::data::Sampler;
use crate::reader::{Reader, Result, head, tail};

pub fn draw(sampler: &mut Sampler, _: usize) -> Slice {
    Slice::Scan(sampler.data)
}

/// The sum does not depend on the order.
pub fn run<R: Reader>(reader: &mut R) -> Result<u64> {
    let (mut sum, mut pairs) = (0_u64, 0_u64);
    reader.scan(|key, value| {
        sum = sum.wrapping_add((key ^ head(value)).wrapping_mul(tail(value) | 1));
        pairs += 1;
    })?;
    Ok(sum.wrapping_add(pairs))
}
