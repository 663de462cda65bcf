//! Plans requests by cost: merges ranges of one object that are close to each other.
//!
//! A request costs a round trip, and a fraction of a cent at a provider; in the time of one a client receives some 100 KB
//! to megabytes. The limits below are lower than that, because 32 to 64 requests are in flight at a time, so that round
//! trips overlap and the bandwidth is what is left.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::objects::{Objects, Span, Unread};
use crate::operation::Exchange;
use crate::request::RemoteValue;

/// Upper bound on a gap that is read to save a request, in bytes. `object_store` merges up to 1 MiB, which
/// reads a hundred times the bytes of short values.
const REQUEST_COST: u64 = 16 << 10;

/// Gaps take at most this fraction of the bytes that are wanted, the shortest ones first. Otherwise random keys of a small
/// store would read most of it.
const MOST_WASTE: u64 = 4;

/// Ranges are not merged beyond this length, so that large parts arrive in parallel.
const LONGEST: u64 = 4 << 20;

/// A request for several ranges of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Covers the ranges. Needs the bytes up to the first end of a range: an object that is shorter than another one still
    /// has this one.
    pub(crate) span: Span,
    /// The positions of the ranges in the input.
    pub(crate) members: Vec<usize>,
}

/// Returns requests that cover all spans: each span is in one of them. O(n log n).
pub(crate) fn merge<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Vec<Merged> {
    let mut merged: Vec<Merged> =
        spans.into_iter().enumerate().map(|(at, span)| Merged { span: span.clone(), members: vec![at] }).collect();
    merged
        .sort_by(|one, next| (&one.span.object, one.span.range.start).cmp(&(&next.span.object, next.span.range.start)));
    let longest_gap = affordable_gap(&merged);
    let mut requests: Vec<Merged> = Vec::with_capacity(merged.len());
    for next in merged {
        match requests.last_mut() {
            Some(last) if gap(&last.span, &next.span).is_some_and(|gap| gap <= longest_gap) => last.append(next),
            _ => requests.push(next),
        }
    }
    requests
}

impl Objects {
    /// Reads spans with planned requests. Calls `f` for each span with its position and its own result, in the order of
    /// arrival: an object that is too short for one span of a request has the others.
    pub(crate) async fn read_planned(
        &self,
        exchange: &Exchange,
        spans: &[Span],
        mut f: impl FnMut(usize, Result<RemoteValue, Unread>),
    ) {
        let plan = merge(spans);
        let requests: Vec<_> = plan.iter().map(|merged| self.request(&merged.span)).collect();
        let answered = |at: usize, answer| {
            let Some(Merged { span: requested, members }) = plan.get(at) else { return };
            let answer = self.accept(requested, self.counted(answer));
            for member in members {
                let Some(span) = spans.get(*member) else { continue };
                f(*member, self.part(span, requested, &answer));
            }
        };
        exchange.fetch_all(requests, answered).await;
    }
}

impl Merged {
    fn append(&mut self, next: Merged) {
        let (span, more) = (&mut self.span, next.span);
        let needed_end = (span.range.start + span.needed).min(more.range.start.saturating_add(more.needed));
        span.range.end = span.range.end.max(more.range.end);
        span.needed = needed_end.saturating_sub(span.range.start);
        self.members.extend(next.members);
    }
}

/// Returns the length up to which gaps are read, so that all of them together stay below the limits.
fn affordable_gap(sorted: &[Merged]) -> u64 {
    let wanted: u64 = sorted.iter().map(|merged| merged.span.range.end - merged.span.range.start).sum();
    let pairs = sorted.iter().zip(sorted.iter().skip(1));
    let gaps = pairs.filter_map(|(one, next)| gap(&one.span, &next.span)).filter(|gap| *gap <= REQUEST_COST);
    let mut gaps: BinaryHeap<Reverse<u64>> = gaps.map(Reverse).collect();
    let (mut left, mut longest) = (wanted / MOST_WASTE, 0);
    while let Some(Reverse(gap)) = gaps.pop() {
        // gaps of equal length are merged together
        let Some(rest) = left.checked_sub(gap) else { return longest.min(gap.saturating_sub(1)) };
        (left, longest) = (rest, gap);
    }
    longest
}

/// Returns the bytes between two spans; `None` if they are of different objects, or too long together.
fn gap(one: &Span, next: &Span) -> Option<u64> {
    let is_short = next.range.end.max(one.range.end) - one.range.start <= LONGEST;
    (one.object == next.object && is_short).then(|| next.range.start.saturating_sub(one.range.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(ranges: &[(&str, u64, u64)]) -> Vec<Span> {
        ranges.iter().map(|(object, start, end)| Span::exact((*object).to_string(), *start..*end)).collect()
    }

    fn planned(ranges: &[(&str, u64, u64)]) -> Vec<(u64, u64, Vec<usize>)> {
        let plan = merge(&spans(ranges)).into_iter();
        plan.map(|merged| (merged.span.range.start, merged.span.range.end, merged.members)).collect()
    }

    #[test]
    fn neighbours_and_overlaps_are_one_request() {
        let plan = planned(&[("a", 100, 200), ("a", 0, 100), ("b", 200, 300), ("a", 150, 160)]);
        assert_eq!(plan, [(0, 200, vec![1, 0, 3]), (200, 300, vec![2])]);
    }

    #[test]
    fn gaps_are_read_while_they_are_a_quarter_of_the_bytes() {
        let plan = planned(&[("a", 0, 100), ("a", 125, 225), ("a", 255, 400)]);
        assert_eq!(plan, [(0, 400, vec![0, 1, 2])], "55 of 345 bytes");
        let plan = planned(&[("a", 0, 60), ("a", 90, 150), ("a", 175, 220)]);
        assert_eq!(plan, [(0, 60, vec![0]), (90, 220, vec![1, 2])], "25 of 165, and not 55");
        let plan = planned(&[("a", 0, 100), ("a", 140, 240), ("a", 280, 380)]);
        assert_eq!(plan.len(), 3, "gaps of equal length do not fit together");
    }

    #[test]
    fn a_gap_above_the_cost_of_a_request_is_not_read() {
        let mib = 1 << 20;
        let plan =
            planned(&[("a", 0, mib), ("a", mib + REQUEST_COST, 2 * mib), ("a", 2 * mib + REQUEST_COST + 1, 3 * mib)]);
        assert_eq!(plan, [(0, 2 * mib, vec![0, 1]), (2 * mib + REQUEST_COST + 1, 3 * mib, vec![2])]);
    }

    #[test]
    fn long_ranges_stay_apart() {
        let plan = planned(&[("a", 0, LONGEST), ("a", LONGEST, LONGEST + 1)]);
        assert_eq!(plan.len(), 2);
    }

    #[test]
    fn the_needed_bytes_are_those_of_the_range_that_ends_first() {
        let mut two = spans(&[("a", 0, 100), ("a", 100, 200)]);
        let needed = |spans: &[Span]| merge(spans).first().map(|merged| merged.span.needed);
        assert_eq!(needed(&two), Some(100));
        if let Some(first) = two.first_mut() {
            first.needed = 70;
        }
        assert_eq!(needed(&two), Some(70));
        let within = spans(&[("a", 0, 100), ("a", 10, 20)]);
        assert_eq!(needed(&within), Some(20));
    }
}
