//! An allocator that records the peak memory of each thread, for tests that bound it.
//!
//! A test binary installs it with `#[global_allocator]`. It counts correctly only if memory is freed on the thread that
//! allocated it.

#![expect(unsafe_code, reason = "an allocator is an unsafe trait; every call goes on to the system's as it came")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub(crate) struct PeakAlloc;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Runs `f`; returns its result and the peak bytes of this thread beyond what it held before.
pub(crate) fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = f();
    (result, PEAK.get() - before)
}

fn grow(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_add(bytes));
    // memory freed here but allocated on another thread makes the count negative, which wraps: not a peak
    if LIVE.get() > PEAK.get() && LIVE.get() < usize::MAX / 2 {
        PEAK.set(LIVE.get());
    }
}

fn shrink(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_sub(bytes));
}

// SAFETY: all calls are forwarded to the system allocator with the same arguments. Counting does not allocate, because
// the cells are initialised in place and have no destructor.
unsafe impl GlobalAlloc for PeakAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's obligation, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's obligation, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        shrink(layout.size());
        grow(new_size);
        // SAFETY: the caller's obligation, passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller's obligation, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
