//! A file read into memory. Large files use huge pages where the platform supports them.

use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::path::Path;

use crate::bytes::AlignedBytes;
use crate::error::{Error, Result};

/// The size of a huge page. Shorter files are read to the heap.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes per read. The checksum of a chunk is computed while the chunk is in the processor's cache.
const CHUNK: usize = 256 << 10;

/// An anonymous map, aligned to a huge page so that lookups miss the TLB less often.
pub struct HugeBytes {
    map: memmap2::MmapMut,
    start: usize,
    len: usize,
}

/// A file in memory: on the heap, or in huge pages.
pub(crate) enum Loaded {
    Heap(AlignedBytes),
    Huge(HugeBytes),
}

impl Loaded {
    /// Reads `len` bytes of a file, and passes them to `each` in chunks.
    ///
    /// Errors: `TooLarge` if the allocation fails; `Io`.
    pub(crate) fn read(mut file: File, len: u64, path: &Path, each: &mut dyn FnMut(&[u8])) -> Result<Loaded> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut loaded = match HugeBytes::zeroed(len) {
            Some(bytes) => Loaded::Huge(bytes),
            None => {
                AlignedBytes::zeroed(len, AlignedBytes::PAGE).map(Loaded::Heap).map_err(|error| error.at_path(path))?
            }
        };
        for chunk in loaded.bytes_mut().chunks_mut(CHUNK) {
            file.read_exact(chunk).map_err(|error| Error::io("read the whole file", path, error))?;
            each(chunk);
        }
        Ok(loaded)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Loaded::Heap(bytes) => bytes.as_mut(),
            Loaded::Huge(bytes) => bytes.map.get_mut(bytes.start..bytes.start + bytes.len).unwrap_or_default(),
        }
    }
}

impl HugeBytes {
    /// Allocates `len` zero bytes. `None` if `len` is less than a huge page, or the map fails.
    fn zeroed(len: usize) -> Option<HugeBytes> {
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

impl Deref for HugeBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.map.get(self.start..self.start + self.len).unwrap_or_default()
    }
}
