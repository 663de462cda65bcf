//! Planning: from statistics of the keys to a sharding specification.
//!
//! [`KeyStats`] counts pairs one at a time in bounded memory, a [`Profile`] says how the data will be read, and a
//! [`Plan`] is the specification chosen for both, with the numbers that decided it ([`PlanReason`]). A plan is a function
//! of the multiset of pairs and of the profile: insertion order, threads and time have no influence. The bulk loader
//! uses this module when no specification is given.
//!
//! The module does no I/O and predicts no costs.
//!
//! ```
//! use sharddb::Profile;
//! use sharddb::plan::{KeyStats, Plan, PlanReason};
//! use sharddb::spec::HashFunction;
//!
//! let mut stats = KeyStats::new();
//! (0..100_000).filter(|key| key % 10 != 0).for_each(|key| stats.insert(key, 0, 100));
//!
//! let plan = Plan::new(&stats, Profile::Local);
//! assert_eq!(plan.keys(), 90_000);
//! assert_eq!(plan.spec().hash_function(), HashFunction::Identity); // a minishard holds 4 to 8 neighbouring keys
//! assert!(matches!(plan.reason(), PlanReason::Dense { skew, .. } if skew == 1.0)); // one shard
//! ```

mod bit_counts;
mod choice;
pub(crate) mod key_stats;
pub(crate) mod poisson;
mod sample;
mod skew;

pub use choice::{Plan, PlanReason, Profile};
pub use key_stats::KeyStats;

#[cfg(test)]
mod tests;
