//! The progress bar: one line on a terminal, redrawn a few times per second and erased when the work is done.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::printable;
use crate::size::Size;

const REDRAW: Duration = Duration::from_millis(150);
const WIDTH: usize = 24;

/// The progress of the work, as the bar shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Status {
    /// The phase of the work: "read", "sort" or "write".
    pub(crate) phase: &'static str,
    /// Bytes done in this phase.
    pub(crate) bytes: u64,
    /// The part of this phase that is done, from 0 to 1; `None` if unknown.
    pub(crate) fraction: Option<f64>,
}

impl Status {
    /// A phase with `done` of `total` bytes done; a `total` of 0 means unknown.
    pub(crate) fn of_bytes(phase: &'static str, done: u64, total: u64) -> Status {
        let fraction = (total > 0).then(|| (done as f64 / total as f64).min(1.0));
        Status { phase, bytes: done, fraction }
    }
}

/// A progress bar. It is drawn by its own thread until it is dropped.
pub(crate) struct Bar {
    stop: Arc<AtomicBool>,
    /// `None` if standard error is not a terminal.
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// Draws `status` on standard error, if that is a terminal.
    pub(crate) fn start(status: impl Fn() -> Status + Send + 'static) -> Bar {
        let stop = Arc::new(AtomicBool::new(false));
        if !io::stderr().is_terminal() {
            return Bar { stop, thread: None };
        }
        let stopped = Arc::clone(&stop);
        let draw = move || draw_until(&stopped, &status);
        // without a thread there is no bar, and the work continues
        let thread = thread::Builder::new().name("bar".to_string()).spawn(draw).ok();
        Bar { stop, thread }
    }

    /// A bar that draws nothing.
    pub(crate) fn hidden() -> Bar {
        Bar { stop: Arc::default(), thread: None }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn draw_until(stop: &AtomicBool, status: &dyn Fn() -> Status) {
    let (mut phase, mut since) = ("", Instant::now());
    while !stop.load(Ordering::Acquire) {
        let status = status();
        if status.phase != phase {
            (phase, since) = (status.phase, Instant::now());
        }
        show(&format!("\r{}\x1b[K", printable::line(Line { status, elapsed: since.elapsed() })));
        thread::park_timeout(REDRAW);
    }
    show("\r\x1b[K");
}

/// Writes to standard error and ignores errors: a broken terminal does not stop the work.
fn show(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// The text of the bar.
struct Line {
    status: Status,
    elapsed: Duration,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { phase, bytes, fraction } = self.status;
        write!(f, "{phase:<8}")?;
        if let Some(fraction) = fraction {
            let filled = (0..WIDTH).filter(|cell| (*cell as f64) < fraction * WIDTH as f64).count();
            write!(f, " [{:=<filled$}{:<rest$}] {:3.0} %", "", "", fraction * 100.0, rest = WIDTH - filled)?;
        }
        write!(f, "  {}", Size(bytes))?;
        let seconds = self.elapsed.as_secs_f64();
        if seconds >= 0.5 {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate is shown with three digits, and is not negative"
            )]
            let rate = (bytes as f64 / seconds) as u64;
            write!(f, "  {}/s", Size(rate))?;
            if let Some(left) = fraction.and_then(|fraction| left(seconds, fraction)) {
                write!(f, "  {}:{:02} left", left.as_secs() / 60, left.as_secs() % 60)?;
            }
        }
        Ok(())
    }
}

/// The estimated time left, at the average rate so far; `None` if nothing is done yet.
fn left(seconds: f64, fraction: f64) -> Option<Duration> {
    Duration::try_from_secs_f64((seconds / fraction - seconds).ceil()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: u64, fraction: Option<f64>, seconds: f64) -> String {
        let status = Status { phase: "write", bytes, fraction };
        Line { status, elapsed: Duration::from_secs_f64(seconds) }.to_string()
    }

    #[test]
    fn says_part_rate_and_time_left() {
        assert_eq!(
            line(512 << 20, Some(0.25), 2.0),
            "write    [======                  ]  25 %  512.0 MiB  256.0 MiB/s  0:06 left"
        );
        assert_eq!(line(5, Some(1.0), 61.0), "write    [========================] 100 %  5 B  0 B/s  0:00 left");
        assert_eq!(line(1 << 30, Some(0.01), 90.0).rsplit("  ").next(), Some("148:30 left"));
    }

    #[test]
    fn says_less_when_less_is_known() {
        assert_eq!(line(1 << 20, None, 1.0), "write     1.0 MiB  1.0 MiB/s");
        assert_eq!(line(0, Some(0.0), 0.1), "write    [                        ]   0 %  0 B");
        assert_eq!(line(0, Some(0.0), 10.0), "write    [                        ]   0 %  0 B  0 B/s");
    }

    #[test]
    fn fits_a_narrow_terminal() {
        let longest = line(1 << 49, Some(0.999), 3600.0 * 24.0);
        assert!(longest.len() < 80, "{longest}");
    }
}
