//! Process limits that the command changes at startup.

/// Raises the soft limit of open files to the hard limit. Shells set 1024 for programs that use `select`.
///
/// Ignores failures: everything works with fewer files, some of it slower.
#[cfg(unix)]
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Does nothing: there is no such limit.
#[cfg(not(unix))]
pub(crate) fn raise_open_files() {}

/// The number of files that the process may have open; `None` without a limit.
#[cfg(all(unix, feature = "serve"))]
pub(crate) fn open_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// The number of files that the process may have open; `None` without a limit.
#[cfg(all(not(unix), feature = "serve"))]
pub(crate) fn open_files() -> Option<u64> {
    None
}
