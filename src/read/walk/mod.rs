//! Walks over a whole snapshot: in storage order, and by ascending key.

mod iter;
mod range;

pub use iter::{Iter, Keys, Shards};
pub use range::{Range, RangeEntry};
