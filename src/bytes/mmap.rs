//! Mapped files. One of the two modules with `unsafe`; the other is `prefetch`.
//!
//! A read-only map is sound as long as nobody truncates or edits the file. This module cannot ensure that. The caller
//! of [`ShardDb::open_mapped`](crate::ShardDb::open_mapped) promises it, and the promise is passed here as a [`MapPermission`], which
//! only an `unsafe` function creates.

use std::fs::File;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::byte_range::ByteRange;
use crate::bytes::Access;
use crate::format::locks::lock;

/// Bytes per `MADV_WILLNEED` request. Linux truncates a request to the read-ahead limit of the device, which is this by
/// default.
#[cfg(unix)]
const WILL_NEED_AT_ONCE: usize = 128 << 10;

/// The live maps of this process, counted to stay below the kernel's limit.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of live maps in this process.
pub(crate) fn live_maps() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// Proof that the caller of the public API promised not to truncate or edit mapped files.
#[derive(Clone, Copy, Debug)]
pub struct MapPermission(());

impl MapPermission {
    /// # Safety
    ///
    /// Nobody truncates or edits a file for as long as it is mapped by this permission.
    #[expect(unsafe_code, reason = "declares the promise that the public API takes")]
    pub unsafe fn promised() -> MapPermission {
        MapPermission(())
    }
}

/// A whole file, mapped read-only.
pub struct Mapping {
    map: memmap2::Mmap,
    /// The advice outside of passes.
    access: Access,
    /// The number of passes in progress. The advice applies to the whole map, so concurrent passes share it.
    passes: Mutex<usize>,
}

impl Mapping {
    /// Maps a file of `len` bytes. `None` if the process has `max_maps` maps already, or the kernel refuses another.
    pub(crate) fn new(file: &File, len: u64, _: MapPermission, max_maps: usize, access: Access) -> Option<Mapping> {
        let len = usize::try_from(len).ok()?;
        LIVE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| (live < max_maps).then_some(live + 1)).ok()?;
        // SAFETY: the map is read-only, and a `MapPermission` exists only if the caller of the public API promised
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

    /// Begins a pass: the kernel reads ahead until the last pass ends.
    pub(crate) fn begin_pass(&self) {
        let mut passes = lock(&self.passes);
        if *passes == 0 {
            self.advise(Access::Sequential);
        }
        *passes += 1;
    }

    /// Ends a pass.
    pub(crate) fn end_pass(&self) {
        let mut passes = lock(&self.passes);
        *passes -= 1;
        if *passes == 0 {
            self.advise(self.access);
        }
    }

    /// Advises the kernel. Errors are ignored: reads work without the advice.
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

    /// Asks the kernel to prefetch the pages of a range, clamped to the file. Does not wait for them.
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

    /// Reads all pages into the page cache and maps them, front to back, until `goes_on` returns false. Uses huge pages
    /// if the file system supports them and the pages are not in the page cache yet.
    #[cfg(target_os = "linux")]
    pub(crate) fn populate(&self, goes_on: &dyn Fn() -> bool) {
        /// Bytes read between two calls of `goes_on`.
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
