//! The memory of a batch: a map of its own, in huge pages where the system has them.
//!
//! Sorted pairs are read from all over the batches, so with small pages nearly each would miss the processor's table of
//! pages too. And what is given back goes back to the system at once, not to an allocator that keeps it.

use std::io;
use std::ops::Deref;

use memmap2::MmapMut;

/// Bytes that are only ever appended, up to a capacity.
#[derive(Default)]
pub(crate) struct Arena {
    memory: Option<MmapMut>,
    len: usize,
}

impl Arena {
    /// Room for so many bytes; pages that are not touched are not taken.
    pub(crate) fn with_capacity(capacity: usize) -> io::Result<Arena> {
        let memory = MmapMut::map_anon(capacity)?;
        ask_for_huge_pages(&memory);
        Ok(Arena { memory: Some(memory), len: 0 })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.len())
    }

    /// Shortens to `len` bytes, which are at most all.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes room for `len` bytes at the end, to be filled: whatever was there before is in them. `None` if full.
    #[inline]
    pub(crate) fn extend(&mut self, len: usize) -> Option<&mut [u8]> {
        let end = self.len.checked_add(len)?;
        let room = self.memory.as_deref_mut()?.get_mut(self.len..end)?;
        self.len = end;
        Some(room)
    }

    /// The bytes, to be changed in place.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().and_then(|memory| memory.get_mut(..self.len)).unwrap_or_default()
    }
}

/// Without them all is the same, but slower.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages(memory: &MmapMut) {
    _ = memory.advise(memmap2::Advice::HugePage);
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages(_: &MmapMut) {}

impl Deref for Arena {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.memory.as_deref().and_then(|memory| memory.get(..self.len)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_it_has_room_for_and_no_more() {
        let mut arena = Arena::with_capacity(5).unwrap();
        arena.extend(3).unwrap().copy_from_slice(b"abc");
        assert!(arena.extend(3).is_none() && arena.extend(usize::MAX).is_none());
        arena.extend(2).unwrap().copy_from_slice(b"de");
        assert_eq!((&arena[..], arena.capacity()), (&b"abcde"[..], 5));
        arena.truncate(2);
        assert_eq!(arena.bytes_mut(), b"ab");
        assert!(Arena::default().is_empty() && Arena::default().extend(1).is_none());
    }
}
