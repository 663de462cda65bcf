//! What a comparison finds.

use crate::diff::change::Change;
use crate::error::Error;

/// One of the two databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Old,
    New,
}

/// What a comparison finds.
pub(super) enum Item {
    Change(Change),
    /// A shard that is equal without reading, with its number of keys as far as it is known.
    EqualShard {
        keys: u64,
    },
    /// A damaged pair.
    BadPair(Error),
    /// A damaged place.
    BadPlace(BadPlace),
}

/// The damage of a shard or minishard of one database.
pub(super) struct BadPlace {
    pub(super) side: Side,
    pub(super) error: Error,
}

impl BadPlace {
    /// Returns the damage of this database, for `map_err`.
    pub(super) fn of(side: Side) -> impl FnOnce(Error) -> BadPlace {
        move |error| BadPlace { side, error }
    }
}
