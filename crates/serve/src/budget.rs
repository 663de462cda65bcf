//! The memory for what clients take or send slowly: values, chunks, bodies of requests and lists of keys.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::{Problem, Result};

/// The memory of all shares, in KiB.
const TOTAL_KIB: u32 = 512 << 10;

/// What is not longer does not count: the number of connections bounds it.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;

/// The memory of all requests. Clones are the same budget.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Semaphore>);

/// A part of the budget, which returns to it when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>);

impl Share {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns to the budget what this has beyond `bytes`.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let rest = counted_kib(bytes).map_or(0, |kept| self.kib().saturating_sub(kept));
        drop(self.0.as_mut().and_then(|permit| permit.split(usize::try_from(rest).unwrap_or(0))));
        self.0.take_if(|permit| permit.num_permits() == 0);
    }

    fn kib(&self) -> u32 {
        self.0.as_ref().map_or(0, |permit| u32::try_from(permit.num_permits()).unwrap_or(u32::MAX))
    }
}

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget::with_kib(TOTAL_KIB)
    }

    pub(crate) fn with_kib(kib: u32) -> Budget {
        Budget(Arc::new(Semaphore::new(usize::try_from(kib).unwrap_or(Semaphore::MAX_PERMITS))))
    }

    /// Reserves memory. Small shares are empty.
    ///
    /// Errors: `busy` if other requests have the memory; `too-large` if it never suffices.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Share> {
        let mut share = Share::default();
        self.grow(&mut share, bytes)?;
        Ok(share)
    }

    /// Makes a share one of at least `bytes`, before they are allocated.
    ///
    /// Errors: those of [`reserve`](Budget::reserve).
    pub(crate) fn grow(&self, share: &mut Share, bytes: u64) -> Result<()> {
        let too_large = || Problem::too_large(format!("expected at most 512 MiB in memory, found {bytes} bytes"));
        let wanted = counted_kib(bytes).filter(|kib| *kib <= TOTAL_KIB).ok_or_else(too_large)?;
        let more = wanted.saturating_sub(share.kib());
        if more == 0 {
            return Ok(());
        }
        let more = Arc::clone(&self.0).try_acquire_many_owned(more).map_err(|_| Problem::busy())?;
        match &mut share.0 {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

/// What a number of bytes takes; `None` for one beyond all budgets.
fn counted_kib(bytes: u64) -> Option<u32> {
    if bytes <= SMALL_BYTES { Some(0) } else { u32::try_from(bytes.div_ceil(1 << 10)).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_grow_and_return_to_the_budget() {
        let budget = Budget::with_kib(1024);
        let free = || budget.0.available_permits();
        let mut share = budget.reserve(SMALL_BYTES).unwrap();
        assert_eq!(free(), 1024);
        budget.grow(&mut share, (600 << 10) - 1).unwrap();
        assert_eq!(free(), 424);
        budget.grow(&mut share, 10).unwrap();
        budget.grow(&mut share, 700 << 10).unwrap();
        assert_eq!(free(), 324);
        assert_eq!(budget.reserve(400 << 10).unwrap_err().status.as_u16(), 503);
        assert_eq!(budget.grow(&mut share, 1025 << 10).unwrap_err().status.as_u16(), 503);
        assert_eq!(budget.reserve((512 << 20) + 1).unwrap_err().status.as_u16(), 413);
        share.shrink(800 << 10);
        assert_eq!(free(), 324);
        share.shrink((500 << 10) - 1);
        assert_eq!((free(), share.is_empty()), (524, false));
        share.shrink(SMALL_BYTES);
        assert_eq!((free(), share.is_empty()), (1024, true));
    }
}
