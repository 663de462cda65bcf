//! The outcome of a step of the short path.

/// What a step of the short path found; it reads nothing but memory and knows no errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe<T> {
    /// It is there.
    Found(T),
    /// It is not there, which is proved as far as the mode of verification asks for.
    Absent,
    /// Not decided here: the general path reads, decodes, verifies, or tells what is wrong.
    Unusual,
}

impl<T> Probe<T> {
    /// Goes on with what was found.
    #[inline]
    pub(crate) fn and_then<U>(self, next: impl FnOnce(T) -> Probe<U>) -> Probe<U> {
        match self {
            Probe::Found(found) => next(found),
            Probe::Absent => Probe::Absent,
            Probe::Unusual => Probe::Unusual,
        }
    }
}
