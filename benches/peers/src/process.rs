//! Figures that Linux reports about this process.

use std::fs;
use std::ops::AddAssign;
use std::path::Path;

use crate::reader::Result;

/// Peak resident memory in bytes, mapped files included.
pub fn peak_memory() -> Result<u64> {
    Ok(field(&fs::read_to_string("/proc/self/status")?, "VmHWM:") << 10)
}

/// Bytes read from a disk for this process so far.
pub fn disk_reads() -> Result<u64> {
    Ok(field(&fs::read_to_string("/proc/self/io")?, "read_bytes:"))
}

/// Resident bytes of mapped files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    pub resident: u64,
    /// The part of `resident` in huge pages.
    pub huge: u64,
}

impl AddAssign for Mapped {
    fn add_assign(&mut self, other: Mapped) {
        self.resident += other.resident;
        self.huge += other.huge;
    }
}

/// The resident bytes of the mapped files below a directory.
pub fn mapped_under(directory: &Path) -> Result<Mapped> {
    let directory = fs::canonicalize(directory)?;
    Ok(mapped(&fs::read_to_string("/proc/self/smaps")?, &directory.to_string_lossy()))
}

fn mapped(smaps: &str, directory: &str) -> Mapped {
    let (mut sum, mut inside) = (Mapped::default(), false);
    for line in smaps.lines() {
        let Some((name, value)) = line.split_once(':').filter(|(name, _)| !name.contains(' ')) else {
            // the first line of a mapping has addresses, permissions and, at its end, the path
            inside = line.find('/').is_some_and(|at| Path::new(&line[at..]).starts_with(directory));
            continue;
        };
        let bytes = || first_number(value) << 10;
        match name {
            "Rss" if inside => sum += Mapped { resident: bytes(), huge: 0 },
            "FilePmdMapped" if inside => sum += Mapped { resident: 0, huge: bytes() },
            _ => {}
        }
    }
    sum
}

fn field(text: &str, name: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix(name)).map_or(0, first_number)
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaps_are_summed_for_the_directory_only() {
        let smaps = "\
7f0000000000-7f0000400000 r--s 00000000 fe:00 12                         /data/a/0.shard
Size:               4096 kB
Rss:                3000 kB
FilePmdMapped:      2048 kB
VmFlags: rd sh mr mw me ms rr
7f0000400000-7f0000500000 r--s 00000000 fe:00 13                         /data/a/1.shard
Rss:                 100 kB
FilePmdMapped:         0 kB
7f0000600000-7f0000700000 r--s 00000000 fe:00 14                         /data/ab/1.shard
Rss:                 999 kB
FilePmdMapped:       999 kB
7f0000800000-7f0000900000 rw-p 00000000 00:00 0 
Rss:                 999 kB
";
        assert_eq!(mapped(smaps, "/data/a"), Mapped { resident: 3100 << 10, huge: 2048 << 10 });
    }

    #[test]
    fn this_process_has_used_memory() {
        assert!(peak_memory().unwrap() > 1 << 20);
    }
}
