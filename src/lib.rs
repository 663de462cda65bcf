//! ShardDb
mod byte_range;
mod error;
mod hash;
mod json;
mod layout;
mod plan;
mod spec;

pub use error::{Error, ErrorKind, ErrorLocation, Result};
pub use hash::HashFunction;
pub use layout::{Layout, ValueAlignment};
pub use plan::{HttpGet, KeyStats, LocalGet, Plan, PlanOptions, Prediction, Profile};
pub use spec::{Encoding, Location, MinishardNumber, ShardNumber, ShardingSpec};
