//! The memory that this process may still use: the least of what the machine has, what its control groups admit, and what its
//! address space admits. Known on Linux.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the memory in bytes that this process may still use; `None` if nothing is known about it.
pub(super) fn available_memory() -> Option<u64> {
    available_below(Path::new("/"), address_space_limit())
}

/// The same, with the kernel's files below another root.
fn available_below(root: &Path, address_space: Option<u64>) -> Option<u64> {
    let proc = root.join("proc");
    let of_machine = fs::read_to_string(proc.join("meminfo")).ok().and_then(|text| kib_of(&text, "MemAvailable:"));
    let mapped = fs::read_to_string(proc.join("self/status")).ok().and_then(|text| kib_of(&text, "VmSize:"));
    let of_address_space = address_space.map(|limit| limit.saturating_sub(mapped.unwrap_or(0)));
    let of_groups = control_groups(&proc).into_iter().filter_map(|group| group.available(root)).min();
    [of_machine, of_address_space, of_groups].into_iter().flatten().min()
}

/// Returns the limit on the address space of this process; `None` if there is none.
#[cfg(unix)]
fn address_space_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

#[cfg(not(unix))]
fn address_space_limit() -> Option<u64> {
    None
}

/// Parses a line such as `MemAvailable:   21907456 kB`.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A control group that limits memory, in version 1 or 2 of the interface, and the names of its files.
struct ControlGroup {
    /// Where its file system is mounted.
    mount: PathBuf,
    /// Its path below the mount. The groups above limit the process, too.
    path: PathBuf,
    limits: &'static [&'static str],
    usage: &'static str,
    reclaimable: &'static str,
}

/// Returns the control groups of this process that may limit its memory.
fn control_groups(proc: &Path) -> Vec<ControlGroup> {
    let read = |name: &str| fs::read_to_string(proc.join(name)).unwrap_or_default();
    let (groups, mounts) = (read("self/cgroup"), read("self/mountinfo"));
    mounts.lines().filter_map(|mount| control_group(mount, &groups)).collect()
}

/// Parses a line of `mountinfo`: ids, device, root, mount point, options, optional fields, `-`, type, source, more options.
fn control_group(mount: &str, groups: &str) -> Option<ControlGroup> {
    let (mounted, kind) = mount.split_once(" - ")?;
    let mut mounted = mounted.split(' ').skip(3);
    let (root, point) = (mounted.next()?, mounted.next()?);
    let mut kind = kind.split(' ');
    let (kind, options) = (kind.next()?, kind.nth(1)?);
    let is_memory = |list: &str| list.split(',').any(|name| name == "memory");
    // a line of `cgroup`: number, controllers, path; no controllers in version 2
    let path_of = |is_wanted: &dyn Fn(&str) -> bool| {
        let parts = |line| str::split_once(line, ':').and_then(|(_, rest)| rest.split_once(':'));
        groups.lines().filter_map(parts).find(|(controllers, _)| is_wanted(controllers)).map(|(_, path)| path)
    };
    let (path, limits, usage, reclaimable): (_, &[_], _, _) = match kind {
        "cgroup2" => (path_of(&str::is_empty)?, &["memory.max", "memory.high"], "memory.current", "inactive_file"),
        "cgroup" if is_memory(options) => {
            (path_of(&is_memory)?, &["memory.limit_in_bytes"], "memory.usage_in_bytes", "total_inactive_file")
        }
        _ => return None,
    };
    // in a container without a namespace of its own, the path is that of the host, and only a part of the tree is mounted
    let path = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
    Some(ControlGroup { mount: PathBuf::from(point), path: path.to_path_buf(), limits, usage, reclaimable })
}

impl ControlGroup {
    /// Returns the least that this group and those above it admit; `None` if they have no limit.
    fn available(&self, root: &Path) -> Option<u64> {
        let mount = root.join(self.mount.strip_prefix("/").unwrap_or(&self.mount));
        self.path.ancestors().filter_map(|group| self.available_in(&mount.join(group))).min()
    }

    /// Returns the limit of a group minus what it uses; file pages that were not used lately do not count.
    fn available_in(&self, group: &Path) -> Option<u64> {
        let number = |name: &&str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok(); // or `max`
        let limit = self.limits.iter().filter_map(number).min()?;
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let of_stat = |line: &str| line.strip_prefix(self.reclaimable)?.strip_prefix(' ')?.trim().parse::<u64>().ok();
        let used = number(&self.usage)?.saturating_sub(stat.lines().find_map(of_stat).unwrap_or(0));
        Some(limit.saturating_sub(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::TempDir;

    const MIB: u64 = 1 << 20;
    const MEMINFO: &str = "MemTotal:       24684352 kB\nMemFree:         6999040 kB\nMemAvailable:   21907456 kB\n";

    /// Writes files below a root.
    fn root(files: &[(&str, &str)]) -> TempDir {
        let root = TempDir::new();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn available(files: &[(&str, &str)], address_space: Option<u64>) -> Option<u64> {
        available_below(root(&[&[("proc/meminfo", MEMINFO)], files].concat()).path(), address_space)
    }

    #[test]
    fn is_that_of_the_machine_if_nothing_limits_it() {
        assert_eq!(available(&[], None), Some(21_907_456 << 10));
        assert_eq!(available_below(root(&[]).path(), None), None);
        for bad in ["MemTotal: 1 kB", "MemAvailable: 1 MB", "MemAvailable: kB", "MemAvailable: 18446744073709551615 kB"]
        {
            assert_eq!(kib_of(bad, "MemAvailable:"), None, "{bad:?}");
        }
    }

    #[test]
    fn is_limited_by_the_address_space_that_is_left() {
        let status = [("proc/self/status", "Name:\tx\nVmSize:\t  102400 kB\n")];
        assert_eq!(available(&status, Some(1124 * MIB)), Some(1024 * MIB));
        assert_eq!(available(&status, Some(MIB)), Some(0));
    }

    /// The group above has a lower limit. Its pages of files can be reclaimed, but for those in use.
    #[test]
    fn is_limited_by_each_group_of_version_2() {
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"),
            ("sys/fs/cgroup/a/memory.max", "536870912\n"),
            ("sys/fs/cgroup/a/memory.current", "500000000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 400000000\nactive_file 5\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.high", "1073741824\n"),
            ("sys/fs/cgroup/a/b/memory.current", "0\n"),
        ];
        assert_eq!(available(&files, None), Some(536_870_912 - 100_000_000));
    }

    /// A container of version 1 whose path is that of the host, as runtimes without a namespace of control groups make it.
    #[test]
    fn is_limited_by_a_group_of_version_1() {
        let files = [
            ("proc/self/cgroup", "7:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/\n"),
            (
                "proc/self/mountinfo",
                "31 30 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                 32 31 0:29 /docker/1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                 35 31 0:32 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                 41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "134000000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100000000\n"),
        ];
        assert_eq!(available(&files, None), Some(134_217_728 - 34_000_000));
    }
}
