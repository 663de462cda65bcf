//! Processes that a test starts: the test binary again, running one test. A process that does not end within a limit is
//! killed, and a test that fails because of a process shows what it printed.

use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The environment variable with the directory that a child works on.
const DIRECTORY: &str = "SHARDDB_TEST_DIRECTORY";

/// The environment variable with the name of the test that has its process to itself.
const ALONE: &str = "SHARDDB_TEST_ALONE";

/// Upper bound on the time that a test waits for a process. It only ends a process that hangs: on an idle machine none
/// takes more than a few seconds.
const LIMIT: Duration = Duration::from_secs(300);

/// Output of a child that has reached [`announce`].
const READY: &str = "the child is ready";

/// A process that runs the ignored test of this name on `directory`.
pub(crate) fn child(test: &str, directory: &Path) -> Command {
    let mut command = this_binary(test);
    command.arg("--ignored").env(DIRECTORY, directory);
    command
}

/// Like `child`, under the limits that a shell command sets.
#[cfg(unix)]
pub(crate) fn limited_child(limits: &str, test: &str, directory: &Path) -> Command {
    let child = child(test, directory);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limits} && exec \"$@\""), "sh"]).arg(child.get_program()).args(child.get_args());
    shell.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    shell
}

fn this_binary(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
    command
}

/// The directory that this child process works on; `None` if this process is not a child.
pub(crate) fn child_directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Runs the body of the test `name` in a process of its own: for a test that exhausts what the tests of a process share,
/// or that fails if another one does.
#[track_caller]
pub(crate) fn in_own_process(name: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some_and(|alone| alone == name) {
        return body();
    }
    let mut command = this_binary(name);
    command.env(ALONE, name);
    run(command).assert_passed();
}

/// In a child: ends the parent's [`Running::wait_until_ready`].
pub(crate) fn announce() {
    println!("{READY}");
}

/// In a child: lets the parent continue, and waits until it calls [`Running::finish`].
pub(crate) fn wait_for_parent() {
    announce();
    io::stdin().lines().for_each(drop);
}

/// Runs a process to its end.
#[track_caller]
pub(crate) fn run(command: Command) -> Ended {
    Running::start(command).unwrap().finish()
}

/// A process that has ended.
pub(crate) struct Ended {
    command: String,
    pub(crate) status: ExitStatus,
    /// The lines of both outputs.
    pub(crate) printed: Vec<String>,
}

impl Ended {
    /// Asserts that the process has run one test, which passed.
    #[track_caller]
    pub(crate) fn assert_passed(&self) {
        let has_run = self.printed.iter().any(|line| line.contains("test result: ok. 1 passed"));
        assert!(self.status.success() && has_run, "expected one test that passes: {self}");
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, after it printed:\n{}\n({})", self.status, self.printed.join("\n"), self.command)
    }
}

/// A process that is running. It is killed on drop.
pub(crate) struct Running {
    command: String,
    process: Child,
    lines: Receiver<String>,
    printed: Vec<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> io::Result<Running> {
        let (reader, writer) = io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let process = command.spawn()?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        Ok(Running { command: format!("{command:?}"), process, lines, printed: Vec::new() })
    } // drops `command` with the ends of the pipe that the process does not have

    /// Starts a process whose input stays open, and waits until it calls [`announce`].
    #[track_caller]
    pub(crate) fn start_and_wait(mut command: Command) -> Running {
        command.stdin(Stdio::piped());
        let mut running = Running::start(command).unwrap();
        running.wait_until_ready();
        running
    }

    #[track_caller]
    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + LIMIT;
        while self.has_line(deadline) {
            if self.printed.last().is_some_and(|line| line.ends_with(READY)) {
                return;
            }
        }
        panic!("the process ended too early: {}", self.end());
    }

    /// Closes the input of the process and waits for its end.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Ended {
        drop(self.process.stdin.take());
        let deadline = Instant::now() + LIMIT;
        while self.has_line(deadline) {}
        self.end()
    }

    /// Kills the process.
    #[track_caller]
    pub(crate) fn kill(mut self) -> Ended {
        self.process.kill().unwrap();
        self.finish()
    }

    /// Waits for a line; false at the end of the output.
    #[track_caller]
    fn has_line(&mut self, deadline: Instant) -> bool {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => self.printed.push(line),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                self.process.kill().unwrap();
                panic!("a process was killed because it did not end within {LIMIT:?}: {}", self.end());
            }
        }
        true
    }

    /// Waits for a process that has closed its outputs or is killed.
    fn end(&mut self) -> Ended {
        let status = self.process.wait().unwrap();
        self.printed.extend(self.lines.iter());
        Ended { command: self.command.clone(), status, printed: std::mem::take(&mut self.printed) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
