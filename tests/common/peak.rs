//! An allocator that tells how much memory a thread held at most: for tests that bound it.
//!
//! To be installed by the test binary with `#[global_allocator]`. Only for code that frees on the thread that allocated.

#![expect(unsafe_code, reason = "an allocator is an unsafe trait; every call goes on to the system's as it came")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub(crate) struct PeakAlloc;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Runs `f`; gives its result and the most bytes that this thread held at once beyond what it held before.
pub(crate) fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = f();
    (result, PEAK.get() - before)
}

fn grow(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_add(bytes));
    // what another thread allocated and this one freed is below zero, that is, huge: not a peak
    if LIVE.get() > PEAK.get() && LIVE.get() < usize::MAX / 2 {
        PEAK.set(LIVE.get());
    }
}

fn shrink(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_sub(bytes));
}

// SAFETY: all calls go on to the system's allocator with the arguments that came; the counting allocates nothing, for
// the cells are initialised in place and have no destructor.
unsafe impl GlobalAlloc for PeakAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's obligation, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's obligation, handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        shrink(layout.size());
        grow(new_size);
        // SAFETY: the caller's obligation, handed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller's obligation, handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
