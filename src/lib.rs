//! ShardDb
mod byte_range;
mod error;
mod failpoint;
mod hash;
mod json;
mod layout;
mod manifest;
mod spec;
mod store;

pub use error::{Error, ErrorKind, ErrorLocation, Result};
pub use hash::HashFunction;
pub use layout::{Layout, ValueAlignment};
pub use spec::{Encoding, Location, MinishardNumber, ShardNumber, ShardingSpec};
pub use store::{GcReport, GenerationId, Store, StoreWriter, StoredGeneration};
