//! Progress, interrupted runs and plots.

use std::fs;

use super::transcript;
use crate::common::{Place, sharddb};

/// A store of three pairs, "numbers".
fn numbers(place: &Place) {
    place.write(
        "in.ndjson",
        "{\"key\": 1, \"text\": \"a\"}\n{\"key\": 2, \"text\": \"bb\"}\n{\"key\": 3, \"text\": \"cc\"}\n",
    );
    sharddb(["build", &place.text("numbers"), "--input", &place.text("in.ndjson")]).expect(0);
}

#[test]
fn a_plot_names_the_store_and_its_axes() {
    let place = Place::new();
    numbers(&place);
    transcript(&place, "plot", &["info", "numbers", "--plot", "numbers.svg"]);
    let svg = fs::read_to_string(place.path("numbers.svg")).unwrap();
    for text in ["\nnumbers, gen-0000000001\n", "\nkeys per minishard\n", "\nkeys (logarithmic)\n", "\n1 B\n"] {
        assert!(svg.contains(text), "{text} in {svg}");
    }
    let both = sharddb(["info", &place.text("numbers"), "--plot", "-"]).expect(0);
    assert!(both.text().starts_with(&svg), "the same plot on standard output, before the description");
    sharddb(["info", &place.text("numbers"), "--plot", &place.text("again.SVG")]).expect(0);
    assert_eq!(fs::read_to_string(place.path("again.SVG")).unwrap(), svg);
}

#[test]
fn a_plot_is_not_written_under_the_name_of_another_format() {
    let place = Place::new();
    numbers(&place);
    transcript(&place, "plot-and-json", &["info", "numbers", "--json", "--plot", "-"]);
    transcript(&place, "plot-as-png", &["info", "numbers", "--plot", "numbers.png"]);
    assert!(!place.path("numbers.png").exists());
}

#[test]
fn the_name_of_a_store_is_no_markup() {
    let place = Place::new();
    let name = "<script>&\u{1b}[31m";
    numbers(&place);
    fs::rename(place.path("numbers"), place.path(name)).unwrap();
    let svg = sharddb(["info", &place.text(name), "--plot", "-"]).expect(0).text().to_string();
    let title = svg.lines().find(|line| line.contains("gen-0000000001")).unwrap();
    assert_eq!(title, "&lt;script&gt;&amp;\u{fffd}[31m, gen-0000000001");
}

/// Not a transcript: these runs are stopped by a signal or have a terminal.
#[cfg(unix)]
mod running {
    use std::fs::{File, OpenOptions};
    use std::io::{PipeWriter, Read, Write};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::process::Stdio;

    use indicatif::{InMemoryTerm, TermLike};
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};

    use super::*;
    use crate::common::{Start, command, until};
    use crate::process::{Child, kill, last_words, stop, unless_stalled, until_run};

    #[test]
    fn an_interrupted_build_says_that_nothing_is_published() {
        for (signal, quiet) in [("-INT", false), ("-TERM", true)] {
            unless_stalled(|| {
                let place = Place::new();
                let mut args = vec!["build", "store", "--input", "-", "--format", "bin"];
                args.extend(quiet.then_some("-q"));
                let mut child = command(args).current_dir(place.path("")).stdin(Stdio::piped()).start();
                let _stdin = child.stdin.take(); // stays open
                until_run(&mut child, || place.path("store/lock").exists());
                stop(signal, child, "sharddb: interrupted: nothing published\n")?;
                assert!(!place.path("store").exists());
                Some(())
            });
        }
    }

    #[test]
    fn an_interrupted_export_says_that_nothing_is_written() {
        let place = Place::new();
        let records = (0..50_000u64).flat_map(|key| [key, 0]).flat_map(u64::to_le_bytes);
        let input = place.write("in.bin", records.collect::<Vec<u8>>());
        sharddb(["build", &place.text("numbers"), "--input", &input]).expect(0);
        unless_stalled(|| {
            let target = Place::new(); // which is removed with what a late run has left
            let args = ["export", &place.text("numbers"), "--format", "dir", "--output", "out"];
            let mut child = command(args).current_dir(target.path("")).start();
            let partial = format!(".out.partial-{}", child.id());
            until(|| target.path(&partial).join("7").exists() || child.try_wait().is_some());
            if child.try_wait().is_none() {
                kill("-INT", &child);
            }
            let run = child.finish();
            if run.code == Some(0) {
                return None; // it has written 50,000 files while this test stalled
            }
            last_words("-INT", &run, "sharddb: interrupted: nothing written\n")?;
            assert_eq!(target.names("."), [""; 0]);
            Some(())
        });
    }

    #[test]
    fn an_interrupted_lookup_says_so() {
        let place = Place::new();
        numbers(&place);
        unless_stalled(|| {
            let mut child = command(["get-many", &place.text("numbers"), "--keys", "-"]).stdin(Stdio::piped()).start();
            let mut stdin = child.stdin.take().unwrap(); // stays open: its end would end the run too
            stdin.write_all(b"1\n").unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap(); // it has started and waits for input
            stop("-INT", child, "sharddb: interrupted\n")
        });
    }

    /// Standard error is a pipe that nobody reads, and is full: the message cannot be written.
    #[test]
    fn a_signal_ends_a_run_whose_messages_nobody_reads() {
        let place = Place::new();
        numbers(&place);
        let (reader, full) = std::io::pipe().unwrap();
        fill(&full);
        let mut child =
            command(["get-many", &place.text("numbers"), "--keys", "-"]).stdin(Stdio::piped()).stderr(full).start();
        let mut stdin = child.stdin.take().unwrap(); // stays open
        stdin.write_all(b"1\n").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        kill("-INT", &child);
        assert_eq!(child.wait().code(), Some(130));
        drop(reader);
    }

    /// Writes to a pipe until it has no room.
    fn fill(mut pipe: &PipeWriter) {
        let flags = fcntl_getfl(pipe).unwrap();
        fcntl_setfl(pipe, flags | OFlags::NONBLOCK).unwrap();
        for piece in [4096, 1] {
            while pipe.write(&vec![b'x'; piece]).is_ok() {}
        }
        fcntl_setfl(pipe, flags).unwrap();
    }

    /// A terminal of some width, with a run on it. The terminal interprets what the run writes.
    struct Terminal {
        controller: File,
        child: Child,
        screen: InMemoryTerm,
        /// Everything that was written.
        raw: String,
    }

    impl Terminal {
        fn run(columns: u16, name: &str, directory: &Path, args: &[&str]) -> Terminal {
            let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
            grantpt(&controller).unwrap();
            unlockpt(&controller).unwrap();
            let path = ptsname(&controller, Vec::new()).unwrap();
            let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
            let user = OpenOptions::new().read(true).write(true).open(path).unwrap();
            tcsetwinsize(&user, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
            let child =
                command(args).current_dir(directory).env("TERM", name).stdin(Stdio::piped()).stderr(user).start();
            Terminal {
                controller: File::from(controller),
                child,
                screen: InMemoryTerm::new(24, columns),
                raw: String::new(),
            }
        }

        /// Reads until a text was drawn several times; every screen on the way has one line.
        #[track_caller]
        fn wait_for_drawings(&mut self, text: &str) {
            while self.raw.matches(text).count() < 3 {
                assert!(self.read(), "expected {text:?}, found {:?}", self.raw);
                assert!(self.screen.contents().lines().count() <= 1, "{:?}", self.screen.contents());
            }
        }

        /// Waits for what is written next; false once the run has ended, which it does at its limit.
        fn read(&mut self) -> bool {
            let mut bytes = [0; 4096];
            // the kernel reports an error once no process has the terminal
            let Ok(read @ 1..) = self.controller.read(&mut bytes) else { return false };
            let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
            self.screen.write_str(&text).unwrap();
            self.raw.push_str(&text);
            true
        }
    }

    /// A terminal wraps longer lines, so that the screen would have two.
    #[test]
    fn a_bar_fits_a_narrow_terminal_and_is_removed_by_a_signal() {
        for columns in [15, 40, 80] {
            unless_stalled(|| {
                let place = Place::new();
                let mut terminal = Terminal::run(columns, "xterm", &place.path(""), &BUILD);
                terminal.wait_for_drawings("read");
                kill("-INT", &terminal.child);
                while terminal.read() {}
                assert_eq!(terminal.child.wait().code(), Some(130));
                let shown: String = terminal.screen.contents().split_whitespace().collect(); // the message may wrap
                let is_late = ["", "sharddb:interrupted"].contains(&&*shown);
                assert!(is_late || shown == "sharddb:interrupted:nothingpublished", "{columns}: {:?}", terminal.raw);
                (!is_late).then_some(())
            });
        }
    }

    /// A build that waits for its input.
    const BUILD: [&str; 6] = ["build", "store", "--input", "-", "--format", "bin"];

    /// Ends a build, after the time in which a run on another terminal, which began later, has drawn its bar. Returns
    /// what the build has written.
    fn written_without_a_bar(name: &str, args: &[&str]) -> String {
        let (place, other) = (Place::new(), Place::new());
        let mut terminal = Terminal::run(80, name, &place.path(""), args);
        until_run(&mut terminal.child, || place.path("store/lock").exists());
        Terminal::run(80, "xterm", &other.path(""), &BUILD).wait_for_drawings("read");
        drop(terminal.child.stdin.take());
        while terminal.read() {}
        assert!(terminal.child.wait().success());
        terminal.raw
    }

    #[test]
    fn a_dumb_terminal_has_no_bar() {
        let written = written_without_a_bar("dumb", &BUILD);
        assert!(!written.contains(['\u{1b}', '[']), "{written:?}");
        assert!(written.contains("published gen-0000000001: 0 keys"), "{written:?}");
    }

    #[test]
    fn quiet_runs_have_no_bar() {
        let written = written_without_a_bar("xterm", &[&["-q"], &BUILD[..]].concat());
        assert_eq!(written, "");
    }
}
