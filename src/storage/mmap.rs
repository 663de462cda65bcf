//! Mapped files: one of the two modules with `unsafe`.
//!
//! The one thing that can go wrong with a read-only map is that somebody truncates or edits the file beneath it.
//! Nothing here can prevent that; the caller of [`ShardDb::open`](crate::ShardDb::open) promises it, and that promise travels
//! here as a [`MapPermission`], which only an `unsafe` function makes.

use std::fs::File;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::byte_range::ByteRange;
use crate::storage::Access;

/// Linux cuts a request down to what it reads ahead at most, which is this much unless somebody has changed it.
#[cfg(unix)]
const WILL_NEED_AT_ONCE: usize = 128 << 10;

/// Maps of this process that are alive, for keeping below the system's limit.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The number of maps alive in this process.
pub(crate) fn live_maps() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// Proof that the caller of the face promised to leave mapped files alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapPermission(());

impl MapPermission {
    /// # Safety
    ///
    /// Nobody truncates or edits a file for as long as it is mapped by this permission.
    #[expect(unsafe_code, reason = "the declaration of the promise that the face takes")]
    pub(crate) unsafe fn promised() -> MapPermission {
        MapPermission(())
    }
}

/// A whole file, mapped read-only.
pub(crate) struct Mapping {
    map: memmap2::Mmap,
    /// The advice while nobody walks through the file.
    access: Access,
    /// Passes over the file under way: the advice is of the map as a whole.
    passes: Mutex<usize>,
}

impl Mapping {
    /// Maps a file of `len` bytes; `None` if the process has `max_maps` already or the system gives no more.
    pub(crate) fn new(file: &File, len: u64, _: MapPermission, max_maps: usize, access: Access) -> Option<Mapping> {
        let len = usize::try_from(len).ok()?;
        LIVE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| (live < max_maps).then_some(live + 1)).ok()?;
        // SAFETY: the map is read-only, and a `MapPermission` exists only where the caller of the face promised
        // that nobody truncates or edits the file while it is mapped.
        #[expect(unsafe_code, reason = "the one call that maps")]
        let map = unsafe { memmap2::MmapOptions::new().len(len).map(file) };
        if map.is_err() {
            LIVE.fetch_sub(1, Ordering::Relaxed);
        }
        let mapping = Mapping { map: map.ok()?, access, passes: Mutex::new(0) };
        mapping.advise(access);
        Some(mapping)
    }

    /// A pass over the file begins: the system reads ahead until the last one is over.
    pub(crate) fn begin_pass(&self) {
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        if *passes == 0 {
            self.advise(Access::Sequential);
        }
        *passes += 1;
    }

    /// A pass over the file is over.
    pub(crate) fn end_pass(&self) {
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        *passes -= 1;
        if *passes == 0 {
            self.advise(self.access);
        }
    }

    /// Passes advice on; a system that does not take it reads as well without.
    #[cfg(unix)]
    fn advise(&self, access: Access) {
        let advice = match access {
            Access::Normal => memmap2::Advice::Normal,
            Access::Random => memmap2::Advice::Random,
            Access::Sequential => memmap2::Advice::Sequential,
        };
        let _ = self.map.advise(advice);
    }

    #[cfg(not(unix))]
    fn advise(&self, _: Access) {}

    /// Asks for the pages of a range, as far as it lies in the file, without waiting for them.
    #[cfg(unix)]
    pub(crate) fn will_need(&self, range: ByteRange) {
        let within = |offset| usize::try_from(offset).unwrap_or(usize::MAX).min(self.map.len());
        let (mut start, end) = (within(range.start), within(range.end));
        while start < end {
            let len = WILL_NEED_AT_ONCE.min(end - start);
            let _ = self.map.advise_range(memmap2::Advice::WillNeed, start, len);
            start += len;
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn will_need(&self, _: ByteRange) {}

    /// Reads all pages and maps them, front to back, while `goes_on` says so; in huge pages where the file system has them
    /// and the pages are not in memory yet.
    #[cfg(target_os = "linux")]
    pub(crate) fn populate(&self, goes_on: &dyn Fn() -> bool) {
        /// What is read between two looks at `goes_on`.
        const AT_ONCE: usize = 32 << 20;
        let _ = self.map.advise(memmap2::Advice::HugePage);
        let starts = (0..self.map.len()).step_by(AT_ONCE);
        for start in starts.take_while(|_| goes_on()) {
            let len = AT_ONCE.min(self.map.len() - start);
            let _ = self.map.advise_range(memmap2::Advice::PopulateRead, start, len);
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn populate(&self, _: &dyn Fn() -> bool) {
        self.will_need(ByteRange { start: 0, end: self.map.len() as u64 });
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for Mapping {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.map
    }
}
