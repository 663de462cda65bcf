//! The cost of a process: its instructions and its peak memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A program that counts the instructions of another one.
#[derive(Clone, Copy, Debug)]
pub enum Counter {
    Perf,
    Valgrind,
}

impl Counter {
    /// `perf` if the processor supports it, else `valgrind`.
    pub fn find() -> Counter {
        let mut perf = Counter::Perf.command();
        match perf.arg("true").output() {
            Ok(output) if Counter::Perf.read(&output).is_some() => Counter::Perf,
            _ => Counter::Valgrind,
        }
    }

    /// The instructions of a run of one target on one file.
    pub fn count(self, target: &str, file: &Path) -> u64 {
        let mut command = self.command();
        let output = command.arg(this()).args(["run", target]).arg(file).output();
        let output = output.expect("expected perf or valgrind, to count instructions");
        assert!(output.status.success(), "{target} on {}: {}", file.display(), text(&output.stderr));
        self.read(&output).expect("a number of instructions")
    }

    fn command(self) -> Command {
        let line: &[&str] = match self {
            Counter::Perf => &["perf", "stat", "-x,", "-e", "instructions:u", "--"],
            Counter::Valgrind => &["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--"],
        };
        let mut command = Command::new(line[0]);
        command.args(&line[1..]);
        command
    }

    fn read(self, output: &Output) -> Option<u64> {
        let text = text(&output.stderr);
        match self {
            Counter::Perf => text.lines().find(|line| line.contains("instructions"))?.split(',').next()?.parse().ok(),
            Counter::Valgrind => text.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse().ok(),
        }
    }
}

/// The peak memory of a process that runs one target on some files, in bytes.
pub fn peak_of(target: &str, files: &[PathBuf]) -> u64 {
    let output = Command::new(this()).args(["run", target]).args(files).stdin(Stdio::null()).output();
    let output = output.expect("a process");
    assert!(output.status.success(), "{target}: {}", text(&output.stderr));
    let kib: u64 = text(&output.stdout).trim().parse().expect("KiB");
    kib << 10
}

/// The peak memory of this process.
pub fn own_peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim_end_matches("kB").trim().parse().expect("KiB")
}

fn this() -> PathBuf {
    std::env::current_exe().expect("a path")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
