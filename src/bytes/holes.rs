//! Holes of sparse files: ranges that were never written and are read as zeros.

use std::fs::File;
use std::path::Path;

use crate::bytes::open_regular;

/// Finds the data of a sparse file without reading its holes.
///
/// Uses `SEEK_DATA` and `SEEK_HOLE`. If the platform or the file system does not support them, everything is data.
pub(crate) struct Holes {
    /// A separate descriptor, because a seek changes the position of the open file.
    file: Option<File>,
    len: u64,
}

impl Holes {
    /// Opens the file at `path`, which the caller opened before and found to have `len` bytes.
    ///
    /// If the file cannot be opened or has another length now, everything is data.
    pub(crate) fn of(path: &Path, len: u64) -> Holes {
        let opened = open_regular(path).ok().filter(|(_, found)| *found == len);
        Holes { file: opened.map(|(file, _)| file), len }
    }

    /// Creates the holes of `len` bytes without any: everything is data.
    pub(crate) fn none(len: u64) -> Holes {
        Holes { file: None, len }
    }

    /// Returns the first offset at or after `offset` that is not known to be in a hole. After the last data, this is
    /// the length of the file.
    pub(crate) fn next_data(&self, offset: u64) -> u64 {
        match &self.file {
            Some(file) if offset < self.len => next_data(file, self.len, offset).unwrap_or(offset),
            _ => offset,
        }
    }

    /// Returns the first offset at or after `offset` that may be in a hole, or the length of the file if there is none.
    pub(crate) fn next_hole(&self, offset: u64) -> u64 {
        match &self.file {
            Some(file) if offset < self.len => next_hole(file, offset).unwrap_or(self.len),
            _ => self.len,
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_os = "macos"))]
fn next_data(file: &File, len: u64, offset: u64) -> Option<u64> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(data) => Some(data),
        Err(rustix::io::Errno::NXIO) => Some(len), // no data from here on
        Err(_) => None,
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_os = "macos"))]
fn next_hole(file: &File, offset: u64) -> Option<u64> {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(offset)).ok()
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_os = "macos")))]
fn next_data(_: &File, _: u64, _: u64) -> Option<u64> {
    None
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_os = "macos")))]
fn next_hole(_: &File, _: u64) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Seek, SeekFrom, Write};

    use super::*;

    #[test]
    fn finds_the_data_or_takes_all_for_data() {
        let path = std::env::temp_dir().join(format!("sharddb-holes-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let (len, data) = (1 << 30, 512 << 20);
        file.set_len(len).unwrap();
        file.seek(SeekFrom::Start(data)).unwrap();
        file.write_all(b"data").unwrap();
        drop(file);
        let holes = Holes::of(&path, len);
        let found = holes.next_data(0);
        assert!(found <= data, "nothing is skipped: {found}");
        assert!(found == 0 || holes.next_data(data + (1 << 20)) == len, "a file system that knows of holes");
        assert!(holes.next_hole(data) > data);
        assert_eq!(holes.next_data(len), len);
        let other = Holes::of(&path, len - 1);
        assert_eq!((other.next_data(5), other.next_hole(5)), (5, len - 1), "another file by now");
        fs::remove_file(&path).unwrap();
        assert_eq!(Holes::of(&path, len).next_data(5), 5);
    }
}
