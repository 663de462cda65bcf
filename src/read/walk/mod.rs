//! Walks over all keys of a snapshot: in storage order, and in key order.

mod iter;
mod range;

pub use iter::{Iter, Keys, Shards};
pub use range::{Range, RangeEntry};
