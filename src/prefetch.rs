//! Prefetch hints: instructions that load cache lines ahead of their use. One of the two modules with `unsafe`; the
//! other is `bytes::mmap`.
//!
//! A hint dereferences nothing and cannot fail. On targets other than x86-64 the functions do nothing.

/// The assumed size of a cache line. A wrong assumption costs time only.
pub(crate) const LINE: usize = 64;

/// `_MM_HINT_T0`: the line is loaded into all caches.
const ALL_LEVELS: i32 = 3;

/// `_MM_HINT_NTA`: the line evicts no others from the larger caches.
const NON_TEMPORAL: i32 = 0;

/// Prefetches the cache lines of `bytes`, at most `most` of them.
#[inline]
pub(crate) fn lines(bytes: &[u8], most: usize) {
    let into_line = bytes.as_ptr().addr() % LINE;
    let end = (into_line + bytes.len()).min(most * LINE);
    let first = bytes.as_ptr().wrapping_sub(into_line);
    (0..end).step_by(LINE).for_each(|at| address::<ALL_LEVELS>(first.wrapping_add(at)));
}

/// Prefetches `lines` cache lines, beginning at offset `at` of `bytes`. They may extend past the end of `bytes`: a hint
/// may point anywhere.
#[inline]
pub(crate) fn lines_at(bytes: &[u8], at: usize, lines: usize) {
    let start = bytes.as_ptr().wrapping_add(at);
    (0..lines).for_each(|line| address::<ALL_LEVELS>(start.wrapping_add(line * LINE)));
}

/// Like [`lines_at`], for bytes that are used once: the lines evict no others from the larger caches (`prefetchnta`).
#[inline]
pub(crate) fn lines_once(bytes: &[u8], at: usize, lines: usize) {
    let start = bytes.as_ptr().wrapping_add(at);
    (0..lines).for_each(|line| address::<NON_TEMPORAL>(start.wrapping_add(line * LINE)));
}

/// Prefetches the cache line in which `item` begins.
#[inline]
pub(crate) fn item<T>(item: &T) {
    address::<ALL_LEVELS>(std::ptr::from_ref(item).cast());
}

/// Prefetches the cache line of an address, with a hint of x86-64.
#[inline]
fn address<const HINT: i32>(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it neither faults nor reads at any address. SSE is part of x86_64.
    #[expect(unsafe_code, reason = "the instruction is an intrinsic")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<HINT>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
