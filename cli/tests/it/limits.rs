//! The command works within the limits that a shell sets.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::common::{Place, Start, foreign, program, sharddb};

/// The command, run by a shell that first sets a limit; exits with 99 if the limit cannot be set.
pub(crate) fn limited(limit: &str, args: &[&str]) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{limit} || exit 99; exec \"$@\""), "bash"]).arg(program());
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[cfg(target_os = "linux")]
#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let place = Place::new();
    let limit = "ulimit -Sn 64 && ulimit -Hn 128 && test $(ulimit -Sn) = 64";
    let mut child = limited(limit, &["get-many", &foreign(&place), "--keys", "-"]).start();
    let (mut stdin, mut lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    writeln!(stdin, "0").unwrap();
    lines.next().unwrap().unwrap(); // it has started and waits for input
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().collect::<Vec<_>>()[3..5], ["128", "128"], "{files}");
    drop(stdin);
    assert!(child.wait().success());
}

/// SIGXFSZ would kill the process by default; the failed write must be an error instead.
#[test]
fn a_file_beyond_the_limit_of_its_size_is_an_error_that_names_it() {
    let place = Place::new();
    let input = place.write("in/7", vec![b'x'; 100_000]);
    let (input, store) = (input.strip_suffix("/7").unwrap(), place.text("store"));
    sharddb(["build", &store, "--input", input]).expect(0);
    let before = place.files("store");
    let limit = "ulimit -f 4 && test $(ulimit -f) = 4";

    let output = place.text("out.bin");
    let run = limited(limit, &["export", &store, "--format", "bin", "-o", &output]).run();
    run.expect_error(4, &["out.bin", "File too large"]);
    assert_eq!(place.names("."), ["in", "store"], "the partial output is removed");

    let run = limited(limit, &["build", &store, "--input", input]).run();
    run.expect_error(4, &["0.shard", "File too large"]);
    assert!(place.files("store") == before, "the store is as it was");

    let file = fs::File::create(place.path("stdout")).unwrap();
    let run = limited(limit, &["get", &store, "7"]).stdout(file).run();
    run.expect_error(4, &["standard output", "File too large"]);
}
