//! Limits of the process that the command changes at its start.

/// Raises the soft limit of open files to the hard one: shells set 1024, for programs that use `select`.
///
/// What cannot be raised stays as it is: everything works with fewer files, some of it slower.
#[cfg(unix)]
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// There is no such limit.
#[cfg(not(unix))]
pub(crate) fn raise_open_files() {}
