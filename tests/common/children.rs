//! Child processes of a test: the test binary again, running one ignored test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The environment variable with the directory that a child works on.
const DIRECTORY: &str = "SHARDDB_TEST_DIRECTORY";

/// A process that runs the ignored test of this name on `directory`.
pub(crate) fn child(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory).stdin(Stdio::null());
    command
}

/// The directory that this child process works on; `None` if this process is not a child.
pub(crate) fn child_directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}
