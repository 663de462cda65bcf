//! `whole`: like `hit`, but every byte of the value is read.

use super::Slice;
use crate::data::Sampler;
use crate::reader::{Reader, Result, absent};

pub fn draw(sampler: &mut Sampler, count: usize) -> Slice {
    Slice::Whole(sampler.present(count))
}

pub fn run<R: Reader>(reader: &mut R, keys: &[u64]) -> Result<u64> {
    let mut sum = 0_u64;
    for key in keys {
        let value = reader.get(*key, sum_of_words)?.ok_or_else(|| absent(*key))?;
        sum = sum.wrapping_add(value);
    }
    Ok(sum)
}

fn sum_of_words(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks();
    let sum_of_words = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(sum_of_words, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}
