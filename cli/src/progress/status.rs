//! What is known of the work at one moment, and the words that show it.

use std::time::{Duration, Instant};

use sharddb::Progress;
use sharddb::progress::Unit;

use crate::histogram::grouped;
use crate::size::Size;

/// How far the work is, as the work itself counts it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Status {
    /// The name of the phase: "read", "sort", "write".
    pub(crate) phase: &'static str,
    /// The number of the phase. A higher number begins a phase, whose counts start at 0.
    pub(crate) number: u64,
    /// The part of the phase that is done, from 0 to 1; `None` if unknown.
    pub(crate) part: Option<f64>,
    /// What is done in this phase.
    pub(crate) amount: Amount,
}

/// An amount of work, with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Amount {
    /// Only the part is known.
    Unknown,
    /// Bytes.
    Bytes(u64),
    /// A count of things, and the name of two of them: "chunks".
    Items(u64, &'static str),
}

impl Status {
    /// A status of which only the phase is known.
    pub(crate) fn of_phase(phase: &'static str, number: u64) -> Status {
        Status { phase, number, part: None, amount: Amount::Unknown }
    }

    /// The status of work that counts by itself.
    pub(crate) fn of_work(phase: &'static str, work: &Progress) -> Status {
        let number = work.step(); // before the other values, which are of this step or of a later one
        let (done, total) = (work.done(), work.total());
        let shown = if total > 0 { done.min(total) } else { done };
        let amount = match work.unit() {
            Unit::Bytes => Amount::Bytes(shown),
            Unit::Keys => Amount::Items(shown, "keys"),
            Unit::Chunks => Amount::Items(shown, "chunks"),
            Unit::Generations => Amount::Items(shown, "generations"),
            Unit::Files => Amount::Items(shown, "files"),
            _ => Amount::Unknown,
        };
        Status { phase, number, part: part(done, total), amount }
    }
}

/// `done` of `total` as a part; `None` if the total is 0, which means unknown.
pub(crate) fn part(done: u64, total: u64) -> Option<f64> {
    (total > 0).then(|| (done as f64 / total as f64).min(1.0))
}

impl Amount {
    /// The larger amount; of different units the newer one.
    fn at_least(self, before: Amount) -> Amount {
        match (self, before) {
            (Amount::Bytes(now), Amount::Bytes(before)) => Amount::Bytes(now.max(before)),
            (Amount::Items(now, unit), Amount::Items(before, _)) => Amount::Items(now.max(before), unit),
            (now, _) => now,
        }
    }

    fn words(self) -> Option<String> {
        match self {
            Amount::Unknown => None,
            Amount::Bytes(bytes) => Some(Size(bytes).to_string()),
            Amount::Items(count, unit) => Some(format!("{} {unit}", grouped(count))),
        }
    }

    /// The rate of this amount in `seconds`.
    fn rate(self, seconds: f64) -> Option<String> {
        match self {
            Amount::Unknown => None,
            Amount::Bytes(bytes) => Some(format!("{}/s", Size(per_second(bytes, seconds)))),
            Amount::Items(count, _) => Some(format!("{}/s", grouped(per_second(count, seconds)))),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is shown with few digits, and is not negative"
)]
fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds) as u64
}

/// The statuses of a run in their order. Within a phase nothing that it returns decreases, even if the counts are read
/// while the work changes them.
pub(crate) struct Course {
    status: Status,
    /// The number of phases in a row with the name of the current one, which had counts.
    round: u64,
    since: Instant,
}

impl Course {
    pub(crate) fn new(now: Instant) -> Course {
        Course { status: Status::of_phase("", 0), round: 1, since: now }
    }

    /// Takes the next status, at time `now`.
    pub(crate) fn advance(&mut self, next: Status, now: Instant) -> Facts {
        let before = self.status;
        if before.phase.is_empty() || next.number > before.number {
            if next.phase != before.phase {
                self.round = 1;
            } else if before.part.is_some() {
                self.round += 1;
            }
            (self.status, self.since) = (next, now);
        } else if next.number == before.number {
            self.status.part = match (next.part, before.part) {
                (Some(next), Some(before)) => Some(next.max(before)),
                (next, before) => next.or(before),
            };
            self.status.amount = next.amount.at_least(before.amount);
        }
        let elapsed = now.saturating_duration_since(self.since);
        Facts {
            phase: self.status.phase,
            round: self.round,
            part: self.status.part,
            amount: self.status.amount,
            elapsed,
        }
    }
}

/// What is shown of a status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    phase: &'static str,
    round: u64,
    pub(super) part: Option<f64>,
    amount: Amount,
    /// The time since the phase began.
    elapsed: Duration,
}

/// The time that a phase takes before a rate means something.
const RATED: f64 = 0.5;

impl Facts {
    /// The name of the phase, with a number if it is repeated: "merge 2".
    pub(super) fn label(&self) -> String {
        if self.round > 1 { format!("{} {}", self.phase, self.round) } else { self.phase.to_string() }
    }

    fn percent(&self) -> Option<String> {
        self.part.map(|part| format!("{:3.0} %", (part * 100.0).floor()))
    }

    fn rate(&self) -> Option<String> {
        let seconds = self.elapsed.as_secs_f64();
        if seconds >= RATED { self.amount.rate(seconds) } else { None }
    }

    /// The time left at the rate so far, or the time taken if that is unknown.
    fn time(&self) -> Option<String> {
        let seconds = self.elapsed.as_secs_f64();
        if seconds < RATED {
            return None;
        }
        match self.part.filter(|part| *part > 0.0) {
            Some(part) => {
                let left = Duration::try_from_secs_f64((seconds / part - seconds).ceil()).ok()?;
                Some(format!("{} left", clock(left)))
            }
            None => Some(clock(self.elapsed + Duration::from_millis(500))), // rounded
        }
    }

    /// The facts in the order in which they are shown, from the longest choice to the shortest.
    fn choices(&self) -> [Vec<Option<String>>; 4] {
        let (percent, amount, rate, time) = (self.percent(), self.amount.words(), self.rate(), self.time());
        [
            vec![percent.clone(), amount.clone(), rate, time.clone()],
            vec![percent.clone(), amount, time.clone()],
            vec![percent.clone(), time],
            vec![percent],
        ]
    }

    /// The longest choice of facts that leaves `width` columns for the label and the facts.
    pub(super) fn words_within(&self, width: usize) -> String {
        let choices = self.choices().map(|choice| choice.into_iter().flatten().collect::<Vec<_>>().join("  "));
        choices.into_iter().find(|words| words.len() <= width).unwrap_or_default()
    }

    /// All facts as a sentence.
    pub(super) fn sentence(&self) -> String {
        let [all, ..] = self.choices();
        let words: Vec<String> = all.into_iter().flatten().map(|word| word.trim_start().to_string()).collect();
        if words.is_empty() { self.label() } else { format!("{}: {}", self.label(), words.join(", ")) }
    }
}

/// A duration as `4:07` or `1:00:07`.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use sharddb::progress::Phase;

    use super::*;

    fn status(phase: &'static str, number: u64, part: Option<f64>, bytes: u64) -> Status {
        Status { phase, number, part, amount: Amount::Bytes(bytes) }
    }

    /// The facts after `seconds` of a phase.
    fn after(seconds: f64, part: Option<f64>, amount: Amount) -> Facts {
        let begun = Instant::now();
        let mut course = Course::new(begun);
        let status = Status { phase: "write", number: 1, part, amount };
        course.advance(status, begun);
        course.advance(status, begun + Duration::from_secs_f64(seconds))
    }

    /// The counts of some work are read one after the other, while it changes them.
    #[test]
    fn counts_never_exceed_the_total() {
        let work = Progress::new();
        work.begin(Phase::Copy, 0);
        work.add(5);
        let status = Status::of_work("copy", &work);
        assert_eq!(status, Status { phase: "copy", number: 1, part: None, amount: Amount::Bytes(5) });
        work.begin_counting(Phase::Copy, Unit::Keys, 10);
        work.add(12);
        let status = Status::of_work("read", &work);
        assert_eq!(status, Status { phase: "read", number: 2, part: Some(1.0), amount: Amount::Items(10, "keys") });
    }

    #[test]
    fn a_sentence_has_part_amount_rate_and_time_left() {
        let say = |seconds, part, amount| after(seconds, part, amount).sentence();
        assert_eq!(say(2.0, Some(0.25), Amount::Bytes(512 << 20)), "write: 25 %, 512.0 MiB, 256.0 MiB/s, 0:06 left");
        assert_eq!(
            say(90.0, Some(0.01), Amount::Items(9000, "chunks")),
            "write: 1 %, 9,000 chunks, 100/s, 2:28:30 left"
        );
        assert_eq!(say(61.0, None, Amount::Unknown), "write: 1:01");
        assert_eq!(say(0.1, Some(0.0), Amount::Unknown), "write: 0 %");
        assert_eq!(say(0.1, None, Amount::Unknown), "write");
    }

    /// 99.9 % is not 100 %, which would say that the work is done.
    #[test]
    fn a_part_is_rounded_down() {
        assert_eq!(after(0.0, Some(0.999), Amount::Unknown).sentence(), "write: 99 %");
        assert_eq!(after(0.0, part(7, 7), Amount::Unknown).sentence(), "write: 100 %");
        assert_eq!((part(8, 7), part(0, 0)), (Some(1.0), None));
    }

    #[test]
    fn nothing_decreases_within_a_phase() {
        let now = Instant::now();
        let mut course = Course::new(now);
        let mut advance = |status| course.advance(status, now);
        advance(status("write", 3, Some(0.5), 500));
        let facts = advance(status("write", 3, Some(0.2), 20));
        assert_eq!((facts.part, facts.amount), (Some(0.5), Amount::Bytes(500)));
        let facts = advance(status("write", 3, None, 600));
        assert_eq!((facts.part, facts.amount), (Some(0.5), Amount::Bytes(600)));
        let late = advance(status("sort", 2, Some(0.9), 900)); // read before the phase changed
        assert_eq!((late.label(), late.part), ("write".to_string(), Some(0.5)));
    }

    #[test]
    fn a_phase_that_is_repeated_has_a_number() {
        let now = Instant::now();
        let mut course = Course::new(now);
        let mut label = |phase, number, part| course.advance(status(phase, number, part, 1), now).label();
        assert_eq!(label("sort", 1, None), "sort");
        assert_eq!(label("sort", 2, Some(0.5)), "sort"); // the counts begin here
        assert_eq!(label("merge", 3, Some(0.9)), "merge");
        assert_eq!(label("merge", 4, Some(0.1)), "merge 2");
        assert_eq!(label("merge", 5, Some(0.1)), "merge 3");
        assert_eq!(label("write", 6, Some(0.1)), "write");
    }
}
