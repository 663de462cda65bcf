//! The process that owns a lock, a lease or a temporary file.
//!
//! After `fork` the child has a copy of every value and shares every open file. Dropping such a copy must not release
//! what the parent still holds: a lock belongs to the open file, not to the process, and a temporary file to the
//! parent.

/// The process that acquired a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwningProcess(u32);

impl OwningProcess {
    /// Returns the calling process.
    pub fn this_process() -> OwningProcess {
        OwningProcess(std::process::id())
    }

    /// Whether the calling process is the owner. False in a forked child of the owner.
    pub fn is_this_process(self) -> bool {
        self == OwningProcess::this_process()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_not_another_process() {
        assert!(OwningProcess::this_process().is_this_process());
        assert!(!OwningProcess(OwningProcess::this_process().0 + 1).is_this_process());
    }
}
