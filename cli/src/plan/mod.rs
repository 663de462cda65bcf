//! What `plan` prints: the library's choice, explained by predictions of a store that is built with it.
//!
//! ```text
//! pair_stats       what is counted: the library's statistics of keys, and the lengths of values
//! occupancy        how full minishards or shards are
//! evidence         the occupancy of any keys, from their statistics
//! gzip_trial       the length of a gzip minishard index, or of a gzip value
//! value_trial      whether sampled values shrink under gzip
//! prediction       figures of a store, for one specification
//! explanation      the plan and its predictions, as text and as JSON
//! ```

mod evidence;
mod explanation;
mod gzip_trial;
mod occupancy;
mod pair_stats;
mod prediction;
mod value_trial;

pub(crate) use explanation::Explanation;
pub(crate) use pair_stats::PairStats;
pub(crate) use value_trial::ValueTrial;

#[cfg(test)]
mod tests;
