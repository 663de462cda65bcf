//! A hint to the processor that bytes will be wanted: the other of the two modules with `unsafe`.
//!
//! Nothing is dereferenced and nothing can fail; where the target has no such instruction, nothing happens.

/// The size of a cache line, near enough everywhere.
const LINE: usize = 64;

/// The most cache lines that `len` bytes can lie in.
#[inline]
pub(crate) fn lines_of(len: u64) -> usize {
    usize::try_from(len / LINE as u64).unwrap_or(usize::MAX - 2) + 2
}

/// Asks for the first `lines` cache lines of `bytes`.
#[inline]
pub(crate) fn lines(bytes: &[u8], lines: usize) {
    for line in bytes.chunks(LINE).take(lines) {
        address(line.as_ptr());
    }
}

/// Asks for `lines` cache lines from the beginning of `bytes` on, also behind their end: a hint may point anywhere.
#[inline]
pub(crate) fn lines_from(bytes: &[u8], lines: usize) {
    let start = bytes.as_ptr();
    (0..lines).for_each(|line| address(start.wrapping_add(line * LINE)));
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

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn address(_: *const u8) {}
