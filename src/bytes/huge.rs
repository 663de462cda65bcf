//! Memory in huge pages, where the platform supports them.

use std::ops::Deref;

/// The size of a huge page. Shorter files are read to the heap.
const HUGE_PAGE: usize = 2 << 20;

/// An anonymous map, aligned to a huge page so that lookups miss the TLB less often.
pub struct HugeBytes {
    map: memmap2::MmapMut,
    start: usize,
    len: usize,
}

impl HugeBytes {
    /// Allocates `len` zero bytes. `None` if `len` is less than a huge page, or the map fails.
    pub(super) fn zeroed(len: usize) -> Option<HugeBytes> {
        if len < HUGE_PAGE {
            return None;
        }
        let map = memmap2::MmapOptions::new().len(len.checked_add(HUGE_PAGE)?).map_anon().ok()?;
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage); // if the kernel rejects the advice, pages are small
        let start = map.as_ptr().addr().wrapping_neg() % HUGE_PAGE;
        Some(HugeBytes { map, start, len })
    }
}

impl AsMut<[u8]> for HugeBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        self.map.get_mut(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl Deref for HugeBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.map.get(self.start..self.start + self.len).unwrap_or_default()
    }
}
