//! The process that a lock, a lease or a temporary file belongs to.
//!
//! After `fork` the child has a copy of every value and shares every open file. To drop a copy must not release what the
//! parent still holds: a lock belongs to the open file, not to the process, and a path names the parent's file.

/// The process that acquired something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    /// The calling process.
    pub(crate) fn this_process() -> Owner {
        Owner(std::process::id())
    }

    /// Whether the calling process is the owner, and not a forked child of it.
    pub(crate) fn is_this_process(self) -> bool {
        self == Owner::this_process()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_not_another_process() {
        assert!(Owner::this_process().is_this_process());
        assert!(!Owner(Owner::this_process().0 + 1).is_this_process());
    }
}
