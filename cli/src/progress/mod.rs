//! Progress on standard error: a bar on a terminal, otherwise a line every ten seconds.
//!
//! The work counts in atomics; a thread reads them and draws. The work never waits for the terminal, except for the last
//! drawing when it ends.

mod status;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike};
use sharddb::Progress;
use sharddb::internal::lock;

use crate::printable;
pub(crate) use status::{Amount, Status, part};
use status::{Course, Facts};

/// The time between two drawings of a bar.
const REDRAW: Duration = Duration::from_millis(150);
/// The time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows the progress of some work until it is dropped.
pub(crate) struct Display {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    /// `None` if nothing is shown.
    thread: Option<JoinHandle<()>>,
}

impl Display {
    /// Shows `status` on standard error, unless `quiet`.
    pub(crate) fn start(quiet: bool, status: impl Fn() -> Status + Send + 'static) -> Display {
        if quiet {
            return Display::hidden();
        }
        let terminal = Term::buffered_stderr();
        if terminal.is_term() && !is_dumb() {
            return Display::bar(terminal, status);
        }
        Display::lines(LINE_EVERY, io::stderr(), status)
    }

    /// Like [`count`](Display::count), for work that writes to `output` meanwhile. Shows nothing if that is a terminal,
    /// where data and bar would mix.
    pub(crate) fn beside(output: &Path, quiet: bool, phase: &'static str, work: &Progress) -> Display {
        Display::count(quiet || is_terminal(output), phase, work)
    }

    /// Shows some work, which has one phase for the user.
    pub(crate) fn count(quiet: bool, phase: &'static str, work: &Progress) -> Display {
        let work = work.clone();
        Display::start(quiet, move || Status::of_work(phase, &work))
    }

    fn hidden() -> Display {
        Display { stop: None, thread: None }
    }

    fn bar(terminal: impl TermLike + Clone + 'static, status: impl Fn() -> Status + Send + 'static) -> Display {
        let bar = Bar::new(terminal);
        *lock(&SHOWN) = Some(bar.bar.clone());
        Display::every(REDRAW, status, move |facts| bar.show(facts))
    }

    /// Writes a line to `out` every `interval`. Ignores write errors, since there is no other place to report.
    fn lines(
        interval: Duration,
        mut out: impl Write + Send + 'static,
        status: impl Fn() -> Status + Send + 'static,
    ) -> Display {
        Display::every(interval, status, move |facts| {
            let line = format!("sharddb: {}\n", printable::line(facts.sentence()));
            let _ = out.write_all(line.as_bytes());
        })
    }

    fn every(
        interval: Duration,
        status: impl Fn() -> Status + Send + 'static,
        mut show: impl FnMut(&Facts) + Send + 'static,
    ) -> Display {
        let (stop, stopped) = mpsc::channel::<()>();
        let draw = move || {
            let mut course = Course::new(Instant::now());
            let mut next = interval;
            let begun = Instant::now();
            loop {
                // phases are followed closely, so that the rate of each counts from its own beginning
                let wait = REDRAW.min(next.saturating_sub(begun.elapsed()));
                if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let facts = course.advance(status(), Instant::now());
                if begun.elapsed() >= next {
                    show(&facts);
                    next = begun.elapsed() + interval;
                }
            }
        };
        // without a thread nothing is shown, and the work continues
        let thread = thread::Builder::new().name(THREAD.to_string()).spawn(draw).ok();
        Display { stop: Some(stop), thread }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its panic is reported already
            clear();
        }
    }
}

/// The name of the thread that draws.
const THREAD: &str = "progress";

/// Whether the terminal cannot move its cursor, or says nothing of itself.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty())
}

/// The bar on the terminal of this process, if there is one.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Removes the bar from the terminal.
pub(crate) fn clear() {
    let shown = lock(&SHOWN).take(); // a statement of its own, so that the lock is free while the terminal is written
    if let Some(bar) = shown {
        bar.finish_and_clear();
    }
}

/// Calls `write` while the bar is not on the terminal.
pub(crate) fn pause<T>(write: impl FnOnce() -> T) -> T {
    let shown = lock(&SHOWN).clone();
    match shown {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Calls `write`, which writes to `output`; the bar is not on the terminal then if that is the terminal too.
pub(crate) fn apart<T>(output: &Path, write: impl FnOnce() -> T) -> T {
    if is_terminal(output) { pause(write) } else { write() }
}

/// Whether an output is a terminal; `-` is standard output.
fn is_terminal(output: &Path) -> bool {
    output == Path::new("-") && io::stdout().is_terminal()
}

/// Clears the bar before a panic is reported.
pub(crate) fn clear_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // the thread that draws may hold the bar
        if thread::current().name() != Some(THREAD) {
            clear();
        }
        report(panic);
    }));
}

/// A bar on a terminal.
struct Bar<T> {
    bar: ProgressBar,
    terminal: T,
}

/// The number of steps of a full bar.
const STEPS: u64 = 1000;
/// The columns of the label, and of the gap after it.
const LABEL: usize = 8;
/// The fewest columns that a bar takes, with its brackets and the gap after them.
const BAR: usize = 15;

impl<T: TermLike + Clone + 'static> Bar<T> {
    fn new(terminal: T) -> Bar<T> {
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        Bar { bar: ProgressBar::with_draw_target(Some(STEPS), target), terminal }
    }

    /// Draws the facts that fit into one line, and a bar if there is room left.
    fn show(&self, facts: &Facts) {
        if self.bar.is_finished() {
            return;
        }
        let line = Line::within(usize::from(self.terminal.width()), facts);
        let template = if line.has_bar { "{label}[{wide_bar}] {facts}" } else { "{label}{facts}" };
        let Ok(style) = ProgressStyle::with_template(template) else { return }; // does not happen: both are constant
        let Line { label, facts: words, .. } = line;
        let style = style.progress_chars("=> ").with_key("label", text(label)).with_key("facts", text(words));
        self.bar.set_style(style);
        let steps = facts.part.map_or(0, steps);
        self.bar.update(|state| state.set_pos(steps));
    }
}

/// A key of a template that is replaced by `text`.
fn text(text: String) -> impl Fn(&ProgressState, &mut dyn fmt::Write) + Send + Sync + Clone + 'static {
    move |_, line| {
        let _ = line.write_str(&text); // a string does not fail
    }
}

/// The text of a bar.
struct Line {
    label: String,
    facts: String,
    has_bar: bool,
}

impl Line {
    /// What fits into `width` columns.
    fn within(width: usize, facts: &Facts) -> Line {
        let label: String = format!("{:<LABEL$}", facts.label()).chars().take(width).collect();
        let words = facts.words_within(width - label.len());
        let has_bar = facts.part.is_some() && label.len() + words.len() + BAR <= width;
        Line { label, facts: words, has_bar }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part is from 0 to 1, and a number that is not is cast to the nearest bound"
)]
fn steps(part: f64) -> u64 {
    (part * STEPS as f64) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use indicatif::InMemoryTerm;

    use super::*;
    use crate::testing::WATCHDOG;

    /// The facts of a phase `seconds` after its beginning.
    fn facts(phase: &'static str, seconds: u64, part: Option<f64>, amount: Amount) -> Facts {
        let begun = Instant::now();
        let status = Status { phase, number: 1, part, amount };
        let mut course = Course::new(begun);
        course.advance(status, begun);
        course.advance(status, begun + Duration::from_secs(seconds))
    }

    /// What a terminal of this width shows.
    fn drawn(width: u16, facts: &Facts) -> String {
        let terminal = InMemoryTerm::new(4, width);
        let bar = Bar::new(terminal.clone());
        bar.show(facts);
        terminal.contents()
    }

    #[test]
    fn a_bar_fits_the_width_of_the_terminal() {
        let facts = facts("write", 2, Some(0.25), Amount::Bytes(512 << 20));
        assert_eq!(drawn(40, &facts), "write    25 %  512.0 MiB  0:06 left");
        assert_eq!(
            drawn(80, &facts),
            "write   [=======>                     ]  25 %  512.0 MiB  256.0 MiB/s  0:06 left"
        );
        let wide = drawn(200, &facts);
        assert_eq!(wide.len(), 200);
        assert!(
            wide.starts_with("write   [====") && wide.ends_with("]  25 %  512.0 MiB  256.0 MiB/s  0:06 left"),
            "{wide}"
        );
    }

    #[test]
    fn work_without_a_total_has_no_bar() {
        assert_eq!(drawn(80, &facts("sync", 7, None, Amount::Unknown)), "sync    0:07");
        let import = facts("read", 2, None, Amount::Items(12_000, "chunks"));
        assert_eq!(drawn(80, &import), "read    12,000 chunks  6,000/s  0:02");
    }

    #[test]
    fn no_line_exceeds_any_width() {
        let parts = [None, Some(0.0), Some(0.5), Some(1.0)];
        let amounts = [Amount::Unknown, Amount::Bytes(1 << 49), Amount::Items(u64::MAX, "generations")];
        for width in 1..=200 {
            for (part, amount) in parts.iter().flat_map(|part| amounts.iter().map(move |amount| (*part, *amount))) {
                for seconds in [0, 100, 1_000_000] {
                    let shown = drawn(width, &facts("salvage", seconds, part, amount));
                    assert_eq!(shown.lines().count(), 1, "{width}: {shown}");
                    assert!(shown.len() <= usize::from(width), "{width}: {shown}");
                }
            }
        }
    }

    /// Each drawing replaces the one before, whatever their lengths.
    #[test]
    fn only_one_line_is_on_the_terminal() {
        let terminal = InMemoryTerm::new(10, 40);
        let bar = Bar::new(terminal.clone());
        for done in [1, 30, 1000, 7] {
            bar.show(&facts("merge", done, Some(0.1), Amount::Items(done * 1000, "keys")));
            assert_eq!(terminal.contents().lines().count(), 1, "{}", terminal.contents());
        }
        bar.bar.finish_and_clear();
        assert_eq!(terminal.contents(), "");
        bar.show(&facts("merge", 1, Some(0.2), Amount::Unknown));
        assert_eq!(terminal.contents(), "", "a cleared bar stays cleared");
    }

    /// A writer whose lines the test reads.
    struct Lines(Sender<String>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn without_a_terminal_there_is_a_line_per_interval() {
        let (sender, lines) = mpsc::channel();
        let count = AtomicU64::new(0);
        let status = move || Status {
            phase: "copy",
            number: 0,
            part: part(count.fetch_add(1, Ordering::Relaxed), 100),
            amount: Amount::Unknown,
        };
        let shown = Display::lines(Duration::from_millis(1), Lines(sender), status);
        let [first, second] = [(); 2].map(|()| lines.recv_timeout(WATCHDOG).unwrap());
        drop(shown);
        assert!(first.starts_with("sharddb: copy: ") && first.ends_with(" %\n"), "{first:?}");
        let percent = |line: &str| line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap();
        assert!(percent(&first) < percent(&second), "{first:?} {second:?}");
    }

    /// No line is due before the first interval has passed.
    #[test]
    fn short_work_says_nothing() {
        let (sender, lines) = mpsc::channel();
        let shown = Display::lines(Duration::from_secs(3600), Lines(sender), || Status::of_phase("copy", 0));
        drop(shown);
        assert_eq!(lines.recv_timeout(WATCHDOG), Err(RecvTimeoutError::Disconnected));
    }
}
