//! Walks over all keys of a snapshot in storage order, also on several threads.

mod iter;
mod piece;
mod slice;

pub use iter::{Iter, Keys, Pairs, Shards};
pub use slice::Slice;
