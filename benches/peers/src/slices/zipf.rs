//! `zipf`: like `hit`, but some keys are looked up much more often than others (theta 0.99).

use super::Slice;
use crate::data::Sampler;

pub fn draw(sampler: &mut Sampler, count: usize) -> Slice {
    Slice::Hit(sampler.popular(count))
}
