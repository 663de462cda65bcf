//! Whether the files of a directory may be mapped: on local file systems, by the number that the kernel gives each type.
//!
//! On a network file system a file that another host truncates, or a server that is gone, ends a process that maps it with
//! SIGBUS. So only file systems that are known to be local count as local.

use std::path::Path;

use pyo3::prelude::*;

/// The types of file systems whose files are on a disk or in the memory of this machine, by `f_type` of statfs(2).
const LOCAL: [u64; 25] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x9584_58f6, // hugetlbfs
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // zfs
    0xf2f5_2010, // f2fs
    0xca45_1a4e, // bcachefs
    0x5265_4973, // reiserfs
    0x3153_464a, // jfs
    0x3434,      // nilfs
    0xf15f,      // ecryptfs
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // erofs
    0x28cd_3d45, // cramfs
    0x9660,      // iso9660
    0x1501_3346, // udf
    0x4d44,      // vfat
    0x2011_bab0, // exfat
    0x5346_544e, // ntfs
    0x7366_746e, // ntfs3
    0x482b,      // hfs+
    0x4244,      // hfs
];

/// Returns whether the directory is on a file system that is known to be local. False if that cannot be found out.
#[cfg(target_os = "linux")]
pub(crate) fn is_local(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(is_local_type))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_local(_path: &Path) -> bool {
    false
}

/// Returns whether `f_type` of statfs(2) is that of a local file system.
fn is_local_type(f_type: u64) -> bool {
    LOCAL.contains(&f_type)
}

/// For tests: whether mode "auto" maps files on a file system of this type.
#[pyfunction]
fn _maps_files_on(f_type: u64) -> bool {
    is_local_type(f_type)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_maps_files_on, module)?)
}
