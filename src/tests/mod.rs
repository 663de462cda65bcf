//! Crash tests of the library, which need access to internals: a recorded file system, and child processes to kill.

mod crash;
#[cfg(unix)]
mod kill;
mod read_faults;
