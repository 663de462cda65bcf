//! Processes that tests start. Each has a limit, so that a test that would hang fails instead, with what hung.
//!
//! Nothing else in these tests starts a process.

use std::fmt;
use std::io::{Read, Write};
use std::process::{self, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The limit of a run, and of a wait for one event.
///
/// No run takes more than 5 s on a quiet machine, and most take 20 ms. With four busy threads on two cores and a disk
/// that is always written, the longest takes 20 s: 20 stalls of 5 s still fit.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

/// Starts a process with a limit.
pub(crate) trait Start {
    /// Starts it with [`WATCHDOG`].
    fn start(&mut self) -> Child {
        self.start_for(WATCHDOG)
    }

    /// Starts it with another limit.
    fn start_for(&mut self, limit: Duration) -> Child;

    /// Starts it and waits for its end.
    fn run(&mut self) -> Run {
        self.start().finish()
    }
}

impl Start for Command {
    fn start_for(&mut self, limit: Duration) -> Child {
        Child::of(self, limit)
    }
}

/// A program that is not under test: `cp`, `mkfifo`. It must succeed.
#[track_caller]
pub(crate) fn tool<S: AsRef<std::ffi::OsStr>>(program: &str, args: impl IntoIterator<Item = S>) {
    let run = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::piped()).run();
    assert_eq!(run.code, Some(0), "{program}: {}", run.stderr);
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Run { code: output.status.code(), stdout: output.stdout, stderr }
    }
}

/// A process that is killed when this is dropped, and when it reaches its limit. In the latter case its test fails.
pub(crate) struct Child {
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    limit: Duration,
    shared: Arc<Shared>,
    /// Returns an error at the end of standard error, which is read from the start.
    stderr_end: Mutex<Option<Receiver<()>>>,
    /// Dropped to end the thread that watches.
    _watched: Sender<()>,
}

struct Shared {
    line: String,
    process: Mutex<process::Child>,
    stdout: Mutex<Vec<u8>>,
    stderr: Mutex<Vec<u8>>,
    is_expired: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Child {
    fn of(command: &mut Command, limit: Duration) -> Child {
        let line = format!("{command:?}");
        let mut process = command.spawn().unwrap_or_else(|error| panic!("cannot start {line}: {error}"));
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let shared = Arc::new(Shared {
            line,
            process: Mutex::new(process),
            stdout: Mutex::default(),
            stderr: Mutex::default(),
            is_expired: AtomicBool::new(false),
        });
        let (watched, watching) = channel::<()>();
        let running = Arc::clone(&shared);
        thread::spawn(move || {
            if watching.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                running.expire();
            }
        });
        let stderr_end = stderr.map(|pipe| collect(pipe, &shared, |shared| &shared.stderr));
        Child { stdin, stdout, limit, shared, stderr_end: Mutex::new(stderr_end), _watched: watched }
    }

    pub(crate) fn id(&self) -> u32 {
        lock(&self.shared.process).id()
    }

    /// What it has written to standard error.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&lock(&self.shared.stderr)).into_owned()
    }

    /// Kills it, which is no failure of the test.
    pub(crate) fn kill(&mut self) {
        lock(&self.shared.process).kill().unwrap();
        self.wait();
    }

    /// Its status, if it has ended.
    #[track_caller]
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        let status = lock(&self.shared.process).try_wait().unwrap()?;
        assert!(!self.is_expired(), "{}", self.shared);
        Some(status)
    }

    /// Waits for its end. Its standard input stays open.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.try_wait() {
                return status;
            }
            thread::sleep(Duration::from_millis(1)); // at most until the limit
        }
    }

    /// Closes its standard input, and waits for its end and for that of its output.
    #[track_caller]
    pub(crate) fn finish(self) -> Run {
        self.end().into()
    }

    /// Like [`finish`](Child::finish), with the bytes.
    #[track_caller]
    pub(crate) fn end(mut self) -> Output {
        drop(self.stdin.take());
        let stdout_end = self.stdout.take().map(|pipe| collect(pipe, &self.shared, |shared| &shared.stdout));
        for end in [stdout_end, lock(&self.stderr_end).take()].into_iter().flatten() {
            let ended = end.recv_timeout(self.limit);
            assert_ne!(ended, Err(RecvTimeoutError::Timeout), "another process has its output: {}", self.shared);
        }
        let status = self.wait();
        let take = |bytes: &Mutex<Vec<u8>>| std::mem::take(&mut *lock(bytes));
        Output { status, stdout: take(&self.shared.stdout), stderr: take(&self.shared.stderr) }
    }

    fn is_expired(&self) -> bool {
        self.shared.is_expired.load(Ordering::SeqCst)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let was_running = {
            let mut process = lock(&self.shared.process);
            let was_running = matches!(process.try_wait(), Ok(None));
            let _ = process.kill();
            let _ = process.wait();
            was_running
        };
        if thread::panicking() {
            if was_running || self.is_expired() {
                eprintln!("{}", self.shared);
            }
        } else {
            assert!(!self.is_expired(), "{}", self.shared);
        }
    }
}

impl Shared {
    /// Kills the process, unless it has ended.
    fn expire(&self) {
        let mut process = lock(&self.process);
        if matches!(process.try_wait(), Ok(None)) {
            self.is_expired.store(true, Ordering::SeqCst);
            let _ = process.kill();
        }
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.is_expired.load(Ordering::SeqCst) { "was killed at its limit" } else { "was running" };
        let [stdout, stderr] = [&self.stdout, &self.stderr].map(|it| String::from_utf8_lossy(&lock(it)).into_owned());
        write!(f, "{} {end}; it has printed\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n---", self.line)
    }
}

/// Reads a pipe to its end on a thread. The channel is closed at the end.
fn collect(
    mut pipe: impl Read + Send + 'static,
    shared: &Arc<Shared>,
    to: impl Fn(&Shared) -> &Mutex<Vec<u8>> + Send + 'static,
) -> Receiver<()> {
    let (end, ended) = channel();
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let _end = end;
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read @ 1..) = pipe.read(&mut bytes) {
            lock(to(&shared)).extend_from_slice(&bytes[..read]);
        }
    });
    ended
}

/// Runs a command with bytes on its standard input.
#[track_caller]
pub(crate) fn output_with_input(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).start();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // on its own thread: the command may end before it has read everything
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.end();
    writer.join().unwrap(); // ends: nobody reads the pipe
    output
}

/// Waits until something is true, for at most [`WATCHDOG`].
#[track_caller]
pub(crate) fn until(mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < WATCHDOG, "it does not happen");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until something is true of a run that has not ended.
#[track_caller]
pub(crate) fn until_run(child: &mut Child, mut is_true: impl FnMut() -> bool) {
    until(|| {
        let status = child.try_wait(); // before the question, which may become true at the end of the run
        let is_true = is_true();
        assert!(is_true || status.is_none(), "the run has ended with {status:?}: {}", child.stderr());
        is_true
    });
}

/// Repeats what fails if a thread of the command stalls at one moment: `None` says that it did.
///
/// The command has 2 s to clean up after a signal and 200 ms to say its last line. On a machine with four busy threads
/// on two cores and a disk that is always written, fewer than one in three attempts are late, and all of 20 never.
#[track_caller]
pub(crate) fn unless_stalled<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    const ATTEMPTS: usize = 20;
    let done = (0..ATTEMPTS).find_map(|_| attempt());
    done.unwrap_or_else(|| panic!("{ATTEMPTS} attempts were too late"))
}

/// Sends a signal to a run.
pub(crate) fn kill(signal: &str, child: &Child) {
    tool("kill", [signal, &child.id().to_string()]);
}

/// Stops a run by a signal, and checks its exit code and its [`last_words`].
#[cfg(unix)]
#[track_caller]
pub(crate) fn stop(signal: &str, child: Child, expected: &str) -> Option<()> {
    kill(signal, &child);
    last_words(signal, &child.finish(), expected)
}

/// Checks the exit code and the message of a run that a signal has stopped. `None` if the message was late, or if the
/// work had no time to clean up; then nothing is known of the files that it has left.
#[cfg(unix)]
#[track_caller]
pub(crate) fn last_words(signal: &str, run: &Run, expected: &str) -> Option<()> {
    assert_eq!(run.code, Some(if signal == "-INT" { 130 } else { 143 }), "{}", run.stderr);
    if run.stderr == expected {
        return Some(());
    }
    assert!(["", "sharddb: interrupted\n"].contains(&&*run.stderr), "expected {expected:?}, found {:?}", run.stderr);
    None
}

/// A process that does not end fails its test with what it has printed.
#[cfg(unix)]
#[test]
fn a_process_that_hangs_fails_its_test() {
    let text = "echo said; echo complained >&2; exec sleep 600";
    let start = |limit| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec sh -c '{text}' >&2"), "sh"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).start_for(limit)
    };
    let failure = |wait: fn(Child)| {
        let child = start(WATCHDOG);
        until(|| child.stderr() == "said\ncomplained\n");
        child.shared.expire();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wait(child))).unwrap_err();
        let message = *panic.downcast::<String>().unwrap();
        assert!(message.contains("sleep 600") && message.contains("said\ncomplained\n"), "{message}");
    };
    failure(|mut child| {
        child.wait();
    });
    failure(drop);
    let mut child = start(Duration::ZERO); // by the thread that watches
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| child.wait()));
    assert!(ended.unwrap_err().downcast::<String>().unwrap().contains("was killed at its limit"));
    std::mem::forget(child); // is known to have ended
}

/// No test goes around the limit.
#[test]
fn processes_are_started_here_only() {
    let mut directories = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.file_name().unwrap() != "process.rs" {
                let text = std::fs::read_to_string(&path).unwrap();
                for call in [".spawn()", ".output()", ".status()", ".wait_with_output()"] {
                    assert!(!text.contains(call), "{} calls {call} instead of `start` or `run`", path.display());
                }
            }
        }
    }
}
