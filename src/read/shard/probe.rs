//! The result of a step of the fast path.

/// The result of a step of the fast path, which only reads memory and returns no errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe<T> {
    /// The item exists.
    Found(T),
    /// The item does not exist. This is verified as far as the verification mode requires.
    Absent,
    /// The fast path cannot decide. The general path reads, decodes and verifies, or returns the error.
    Undecided,
}

impl<T> Probe<T> {
    /// Calls `next` with the item, if it exists.
    #[inline]
    pub(crate) fn and_then<U>(self, next: impl FnOnce(T) -> Probe<U>) -> Probe<U> {
        match self {
            Probe::Found(found) => next(found),
            Probe::Absent => Probe::Absent,
            Probe::Undecided => Probe::Undecided,
        }
    }
}
