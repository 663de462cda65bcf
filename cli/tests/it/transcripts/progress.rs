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
    use std::io::{Read, Write};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::process::{Child, Stdio};
    use std::thread;
    use std::time::Duration;

    use indicatif::{InMemoryTerm, TermLike};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};

    use super::*;
    use crate::common::{command, ended, kill, until_run};

    /// Stops a run; asserts its exit code and returns what it has said.
    #[track_caller]
    fn stop(signal: &str, child: Child) -> String {
        kill(signal, &child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(if signal == "-INT" { 130 } else { 143 }));
        String::from_utf8(output.stderr).unwrap()
    }

    #[test]
    fn an_interrupted_build_says_that_nothing_is_published() {
        for (signal, quiet) in [("-INT", false), ("-TERM", true)] {
            let place = Place::new();
            let mut args = vec!["build", "store", "--input", "-", "--format", "bin"];
            args.extend(quiet.then_some("-q"));
            let mut child = command(args).current_dir(place.path("")).stdin(Stdio::piped()).spawn().unwrap();
            let stdin = child.stdin.take(); // stays open
            until_run(&mut child, || place.path("store/lock").exists());
            assert_eq!(stop(signal, child), "sharddb: interrupted: nothing published\n");
            assert!(!place.path("store").exists());
            drop(stdin);
        }
    }

    #[test]
    fn an_interrupted_export_says_that_nothing_is_written() {
        let place = Place::new();
        let records = (0..50_000u64).flat_map(|key| [key, 0]).flat_map(u64::to_le_bytes);
        let input = place.write("in.bin", records.collect::<Vec<u8>>());
        sharddb(["build", &place.text("numbers"), "--input", &input]).expect(0);
        let args = ["export", "numbers", "--format", "dir", "--output", "out"];
        let mut child = command(args).current_dir(place.path("")).spawn().unwrap();
        let partial = format!(".out.partial-{}", child.id());
        until_run(&mut child, || place.path(&partial).join("7").exists());
        assert_eq!(stop("-INT", child), "sharddb: interrupted: nothing written\n");
        assert_eq!(place.names("."), ["in.bin", "numbers"]);
    }

    #[test]
    fn an_interrupted_lookup_says_so() {
        let place = Place::new();
        numbers(&place);
        let mut child =
            command(["get-many", &place.text("numbers"), "--keys", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"1\n").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap(); // it has started and waits for input
        assert_eq!(stop("-INT", child), "sharddb: interrupted\n");
        drop(stdin); // the end of its input would end the run too
    }

    /// Standard error is a pipe that nobody reads, and is full: the message cannot be written.
    #[test]
    fn a_signal_ends_a_run_whose_messages_nobody_reads() {
        let place = Place::new();
        numbers(&place);
        let (reader, mut writer) = std::io::pipe().unwrap();
        let full = writer.try_clone().unwrap();
        let filler = thread::spawn(move || writer.write_all(&[b'x'; 1 << 20])); // more than a pipe holds
        let mut child = command(["get-many", &place.text("numbers"), "--keys", "-"])
            .stdin(Stdio::piped())
            .stderr(full)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap(); // stays open
        stdin.write_all(b"1\n").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        thread::sleep(Duration::from_millis(50)); // the filler is blocked by now; if not, the test is weaker
        kill("-INT", &child);
        assert_eq!(ended(&mut child).code(), Some(130));
        drop(reader);
        let _ = filler.join().unwrap();
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
                command(args).current_dir(directory).env("TERM", name).stdin(Stdio::piped()).stderr(user).spawn();
            Terminal {
                controller: File::from(controller),
                child: child.unwrap(),
                screen: InMemoryTerm::new(24, columns),
                raw: String::new(),
            }
        }

        /// Reads until the screen shows something; every screen on the way has one line.
        #[track_caller]
        fn wait_for(&mut self, text: &str) {
            while !self.screen.contents().contains(text) {
                assert!(self.read(), "expected {text:?}, found {:?}", self.raw);
                assert!(self.screen.contents().lines().count() <= 1, "{:?}", self.screen.contents());
            }
        }

        /// Reads what is there; false once the run has ended.
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
            let place = Place::new();
            let args = ["build", "store", "--input", "-", "--format", "bin"];
            let mut terminal = Terminal::run(columns, "xterm", &place.path(""), &args);
            terminal.wait_for("read");
            terminal.wait_for("0:01"); // it was drawn several times
            kill("-INT", &terminal.child);
            while terminal.read() {}
            assert_eq!(terminal.child.wait().unwrap().code(), Some(130));
            let shown: String = terminal.screen.contents().split_whitespace().collect(); // the message may wrap
            assert_eq!(shown, "sharddb:interrupted:nothingpublished", "{columns}: {:?}", terminal.raw);
        }
    }

    #[test]
    fn a_dumb_terminal_has_no_bar() {
        let place = Place::new();
        let args = ["build", "store", "--input", "-", "--format", "bin"];
        let mut terminal = Terminal::run(80, "dumb", &place.path(""), &args);
        until_run(&mut terminal.child, || place.path("store/lock").exists());
        thread::sleep(Duration::from_millis(400)); // two drawings of a bar, if there were one
        drop(terminal.child.stdin.take());
        while terminal.read() {}
        assert!(terminal.child.wait().unwrap().success());
        assert!(!terminal.raw.contains(['\u{1b}', '[']), "{:?}", terminal.raw);
        assert!(terminal.raw.contains("published gen-0000000001: 0 keys"), "{:?}", terminal.raw);
    }

    #[test]
    fn quiet_runs_have_no_bar() {
        let place = Place::new();
        let mut terminal =
            Terminal::run(80, "xterm", &place.path(""), &["-q", "build", "store", "--input", "-", "--format", "bin"]);
        until_run(&mut terminal.child, || place.path("store/lock").exists());
        thread::sleep(Duration::from_millis(400));
        drop(terminal.child.stdin.take());
        while terminal.read() {}
        assert!(terminal.child.wait().unwrap().success());
        assert_eq!(terminal.raw, "");
    }
}
