//! Which generations processes have open, as the kernel lists it.

use std::collections::BTreeSet;
use std::path::Path;

/// The files on which some process holds a lock, by device and inode.
///
/// Reading this list disturbs nobody. Taking the lock to see whether it is free would make a reader that opens the
/// generation in that moment fail.
pub(crate) struct Leases(Option<BTreeSet<String>>);

impl Leases {
    /// Reads `/proc/locks`. The list is unknown where there is no such file, and lacks processes of other PID
    /// namespaces.
    pub(crate) fn read() -> Leases {
        let locks = std::fs::read_to_string("/proc/locks").ok();
        Leases(locks.map(|locks| locks.lines().filter_map(locked_file).map(str::to_string).collect()))
    }

    /// Whether a reader has a generation open; `None` if that is unknown.
    pub(crate) fn is_held(&self, generation: &Path) -> Option<bool> {
        let held = self.0.as_ref()?;
        Some(name(&generation.join("lease")).is_some_and(|name| held.contains(&name)))
    }
}

/// The file of a line: `1: FLOCK  ADVISORY  READ 4711 fd:01:1234 0 EOF`.
fn locked_file(line: &str) -> Option<&str> {
    let mut words = line.split_ascii_whitespace();
    let is_reader = words.nth(1)? == "FLOCK" && words.nth(1)? == "READ";
    is_reader.then(|| words.nth(1))?
}

/// The name of a file in `/proc/locks`: major and minor device number, and inode.
#[cfg(target_os = "linux")]
fn name(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;

    let metadata = path.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    Some(format!("{major:02x}:{minor:02x}:{}", metadata.ino()))
}

#[cfg(not(target_os = "linux"))]
fn name(_path: &Path) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locks_of_readers_count() {
        assert_eq!(locked_file("1: FLOCK  ADVISORY  READ 4711 fd:01:1234 0 EOF"), Some("fd:01:1234"));
        for line in [
            "",
            "1: FLOCK",
            "1: POSIX ADVISORY READ 1 00:01:2 0 EOF",
            "1: FLOCK ADVISORY WRITE 1 00:01:2 0 EOF",
            "1: -> FLOCK ADVISORY READ 1 00:01:2 0 EOF",
        ] {
            assert_eq!(locked_file(line), None, "{line}");
        }
    }
}
