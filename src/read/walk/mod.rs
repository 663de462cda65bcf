//! Walks over all keys of a snapshot in storage order, also on several threads.

mod iter;
mod pairs;
mod parallel;
mod piece;
mod slice;

use std::ops::ControlFlow;

pub use iter::{Iter, Keys, Shards};
pub use pairs::Pairs;
pub use slice::Slice;

use crate::error::{Error, Result};
use crate::read::shard::Value;

/// Passes a pair to `f`; breaks if the read or `f` failed.
#[inline]
fn try_pair<E: From<Error>>(
    f: &mut impl FnMut(u64, Value<'_>) -> Result<(), E>,
    pair: Result<(u64, Value<'_>)>,
) -> ControlFlow<E> {
    match pair.map_err(E::from).and_then(|(key, value)| f(key, value)) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

/// Returns what a scan with [`try_pair`] has come to.
fn into_result<E>(outcome: ControlFlow<E>) -> Result<(), E> {
    match outcome {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}
