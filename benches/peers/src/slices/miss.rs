//! `miss`: absent keys.

use super::Slice;
use crate::data::Sampler;
use crate::reader::{Reader, Result};

pub fn draw(sampler: &mut Sampler, count: usize) -> Slice {
    Slice::Miss(sampler.absent(count))
}

/// Returns the number of keys found.
pub fn run<R: Reader>(reader: &mut R, keys: &[u64]) -> Result<u64> {
    let mut found = 0;
    for key in keys {
        found += u64::from(reader.get(*key, |_| ())?.is_some());
    }
    Ok(found)
}
