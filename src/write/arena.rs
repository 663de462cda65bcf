//! The memory of a batch: an anonymous map, in huge pages where the kernel supports them.
//!
//! Sorted pairs are read from random positions of all batches, so with small pages nearly every read would miss the
//! TLB. A dropped map is returned to the kernel at once, whereas an allocator might keep it.

use std::io;
use std::ops::Deref;

use memmap2::MmapMut;

/// An append-only buffer of fixed capacity.
#[derive(Default)]
pub(crate) struct Arena {
    memory: Option<MmapMut>,
    len: usize,
}

impl Arena {
    /// Reserves `capacity` bytes. Pages that are not touched take no memory.
    pub(crate) fn with_capacity(capacity: usize) -> io::Result<Arena> {
        let memory = MmapMut::map_anon(capacity)?;
        request_huge_pages(&memory);
        Ok(Arena { memory: Some(memory), len: 0 })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.len())
    }

    /// Shortens the contents to `len` bytes; does nothing if they are shorter.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Appends `len` bytes of arbitrary content and returns them for filling; `None` if there is no room.
    #[inline]
    pub(crate) fn extend(&mut self, len: usize) -> Option<&mut [u8]> {
        let end = self.len.checked_add(len)?;
        let room = self.memory.as_deref_mut()?.get_mut(self.len..end)?;
        self.len = end;
        Some(room)
    }

    /// Returns the contents for changes in place.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().and_then(|memory| memory.get_mut(..self.len)).unwrap_or_default()
    }
}

/// Requests huge pages. A failure is ignored, because it only makes access slower.
#[cfg(target_os = "linux")]
fn request_huge_pages(memory: &MmapMut) {
    _ = memory.advise(memmap2::Advice::HugePage);
}

#[cfg(not(target_os = "linux"))]
fn request_huge_pages(_: &MmapMut) {}

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
