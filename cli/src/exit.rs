//! The exit codes, one for each outcome that a script may want to distinguish.

/// The exit code of the command. The codes are a contract with the tools that call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done, or found.
    Done = 0,
    /// The key is not there, or the databases differ.
    Absent = 1,
    /// The command line, or an option in it, cannot be used.
    Usage = 2,
    /// A file is corrupt or unsupported, an input record malformed, or `verify` found something.
    Corrupt = 3,
    /// An error of the operating system, or a lock: not found, no space, locked.
    Io = 4,
    /// A publication is repeated whose generation was rolled back or replaced.
    Superseded = 5,
    /// A bug in this program, not in the data: `EX_SOFTWARE` of sysexits.h.
    Internal = 70,
    /// SIGINT.
    Interrupted = 130,
    /// SIGTERM.
    Terminated = 143,
}

impl Exit {
    /// The databases differ.
    pub(crate) const DIFFERENT: Exit = Exit::Absent;

    /// The code as the process returns it.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}
