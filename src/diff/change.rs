//! What a comparison finds: differences between two databases, equal shards, damage.

use std::fmt;

use crate::diff::stored::Stored;
use crate::error::{Error, Result};
use crate::read::shard::Value;

/// What happened to a key. There are these three cases: the list is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// Only the new database has the key.
    Added,
    /// Only the old database has the key.
    Removed,
    /// Both have the key, with different values or preambles.
    Changed,
}

/// A key that was added, removed or changed; see [`Diff`](crate::diff::Diff).
///
/// It keeps the shards open that store its pairs. The values are read on request.
pub struct Change {
    key: u64,
    kind: ChangeKind,
    old: Option<Stored>,
    new: Option<Stored>,
}

impl Change {
    pub(super) fn added(new: Stored) -> Change {
        Change { key: new.key(), kind: ChangeKind::Added, old: None, new: Some(new) }
    }

    pub(super) fn removed(old: Stored) -> Change {
        Change { key: old.key(), kind: ChangeKind::Removed, old: Some(old), new: None }
    }

    pub(super) fn changed(old: Stored, new: Stored) -> Change {
        Change { key: new.key(), kind: ChangeKind::Changed, old: Some(old), new: Some(new) }
    }

    /// Returns the key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns what happened to the key.
    pub fn kind(&self) -> ChangeKind {
        self.kind
    }

    /// Returns the value in the old database; `None` if the key was added.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::get`](crate::Snapshot::get).
    pub fn old_value(&self) -> Result<Option<Value<'_>>> {
        self.old.as_ref().map(Stored::value).transpose()
    }

    /// Returns the value in the new database; `None` if the key was removed.
    ///
    /// # Errors
    ///
    /// Those of [`Snapshot::get`](crate::Snapshot::get).
    pub fn new_value(&self) -> Result<Option<Value<'_>>> {
        self.new.as_ref().map(Stored::value).transpose()
    }

    /// Returns the preamble in the old database, like [`Entry::preamble`](crate::shard::Entry::preamble), but empty if it
    /// consists of zero bytes that may be padding; `None` if the key was added.
    ///
    /// # Errors
    ///
    /// Those of [`Entry::preamble`](crate::shard::Entry::preamble).
    pub fn old_preamble(&self) -> Result<Option<Value<'_>>> {
        self.old.as_ref().map(Stored::preamble).transpose()
    }

    /// Returns the preamble in the new database, like [`Entry::preamble`](crate::shard::Entry::preamble), but empty if it
    /// consists of zero bytes that may be padding; `None` if the key was removed.
    ///
    /// # Errors
    ///
    /// Those of [`Entry::preamble`](crate::shard::Entry::preamble).
    pub fn new_preamble(&self) -> Result<Option<Value<'_>>> {
        self.new.as_ref().map(Stored::preamble).transpose()
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("key", &self.key).field("kind", &self.kind).finish_non_exhaustive()
    }
}

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
