//! How a sort treats several pairs of one key.

/// Which pairs of a key a sort returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duplicates {
    /// A second pair is an error.
    Refuse,
    /// The one that was inserted first.
    KeepFirst,
    /// The one that was inserted last.
    KeepLast,
    /// All, in insertion order.
    KeepAll,
}
