//! A hint to the processor that bytes will be wanted: the other of the two modules with `unsafe`.
//!
//! Nothing is dereferenced and nothing can fail; where the target has no such instruction, nothing happens.

/// The size of a cache line, near enough everywhere.
const LINE: usize = 64;

/// Asks for the cache lines that `bytes` lie in, the first `most` of them.
#[inline]
pub(crate) fn lines(bytes: &[u8], most: usize) {
    let into_line = bytes.as_ptr().addr() % LINE;
    let end = (into_line + bytes.len()).min(most * LINE);
    let first = bytes.as_ptr().wrapping_sub(into_line);
    (0..end).step_by(LINE).for_each(|at| address(first.wrapping_add(at)));
}

/// Asks for `lines` cache lines from `at` on, counted from the beginning of `bytes`, also behind their end: a hint may point
/// anywhere.
#[inline]
pub(crate) fn lines_at(bytes: &[u8], at: usize, lines: usize) {
    let start = bytes.as_ptr().wrapping_add(at);
    (0..lines).for_each(|line| address(start.wrapping_add(line * LINE)));
}

/// Asks for `lines` cache lines from `at` on, counted from the beginning of `bytes`, which will be wanted once: they are
/// not to drive out what the processor's larger caches hold.
#[inline]
pub(crate) fn lines_once(bytes: &[u8], at: usize, lines: usize) {
    let start = bytes.as_ptr().wrapping_add(at);
    (0..lines).for_each(|line| address_once(start.wrapping_add(line * LINE)));
}

/// Asks for the cache line in which an item begins.
#[inline]
pub(crate) fn item<T>(item: &T) {
    address(std::ptr::from_ref(item).cast());
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn address(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch is a hint; it neither faults nor reads, whatever the address. SSE is part of x86_64.
    #[expect(unsafe_code, reason = "the instruction is an intrinsic")]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn address_once(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_NTA, _mm_prefetch};
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "the instruction is an intrinsic")]
    unsafe {
        _mm_prefetch::<_MM_HINT_NTA>(at.cast());
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn address_once(_: *const u8) {}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn address(_: *const u8) {}
