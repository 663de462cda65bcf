//! Plans requests by cost: merges ranges of one object that are close to each other.

use crate::objects::{Objects, Span, Unread};
use crate::operation::Exchange;
use crate::request::RemoteValue;
use crate::request_cost::RequestCost;

/// A request for several ranges of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Covers the ranges. Needs the bytes up to the first end of a range: an object that is shorter than another one still
    /// has this one.
    pub(crate) span: Span,
    /// The positions of the ranges in the input.
    pub(crate) members: Vec<usize>,
}

impl RequestCost {
    /// Returns the number of the first spans whose requests have at most `most` bytes together; at least one. The spans are
    /// in the order of their places.
    pub(crate) fn run<'a>(self, spans: impl IntoIterator<Item = &'a Span>, most: u64) -> usize {
        let (mut count, mut bytes, mut before): (usize, u64, Option<&Span>) = (0, 0, None);
        for span in spans {
            let gap = before.filter(|before| self.joins(before, span)).map_or(0, |before| gap(before, span));
            bytes = bytes.saturating_add(gap).saturating_add(span.len());
            if count > 0 && bytes > most {
                break;
            }
            count += 1;
            before = Some(span);
        }
        count
    }

    /// Returns requests that cover all spans: each span is in one of them. O(n log n).
    ///
    /// They read at most the bytes of the spans and the cost of each request that they save. For spans of one object that do not
    /// overlap, they are at most `len / cost + 1`, where `len` is the distance from the first start to the last end.
    pub(crate) fn merge<'a>(self, spans: impl IntoIterator<Item = &'a Span>) -> Vec<Merged> {
        let mut spans: Vec<(usize, &Span)> = spans.into_iter().enumerate().collect();
        spans.sort_by_key(|(_, span)| (&span.object, span.range.start));
        let mut requests: Vec<Merged> = Vec::new();
        for (at, span) in spans {
            match requests.last_mut() {
                Some(last) if self.joins(&last.span, span) => last.append(at, span),
                _ => requests.push(Merged { span: span.clone(), members: vec![at] }),
            }
        }
        requests
    }

    /// Whether a span is read with the next one.
    fn joins(self, one: &Span, next: &Span) -> bool {
        let len = next.range.end.max(one.range.end) - one.range.start;
        one.object == next.object && self.pays_for(gap(one, next), 1) && len <= self.longest()
    }
}

impl Objects {
    /// Reads spans with planned requests. Calls `f` for each span with its position and its own result, in the order of
    /// arrival: an object that is too short for one span of a request has the others.
    pub(crate) async fn read_planned(
        &self,
        exchange: &Exchange,
        cost: RequestCost,
        spans: &[Span],
        mut f: impl FnMut(usize, Result<RemoteValue, Unread>),
    ) {
        let plan = cost.merge(spans);
        let requests = plan.iter().map(|merged| self.request(&merged.span).into()).collect();
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

/// The bytes between two spans of an object.
fn gap(one: &Span, next: &Span) -> u64 {
    next.range.start.saturating_sub(one.range.end)
}

impl Merged {
    fn append(&mut self, at: usize, more: &Span) {
        let span = &mut self.span;
        let needed_end = (span.range.start + span.needed).min(more.range.start.saturating_add(more.needed));
        span.range.end = span.range.end.max(more.range.end);
        span.needed = needed_end.saturating_sub(span.range.start);
        self.members.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::xorshift;

    const COST: u64 = 20_000;

    fn spans(ranges: &[(&str, u64, u64)]) -> Vec<Span> {
        ranges.iter().map(|(object, start, end)| Span::exact((*object).to_string(), *start..*end)).collect()
    }

    fn planned(ranges: &[(&str, u64, u64)]) -> Vec<(u64, u64, Vec<usize>)> {
        let plan = RequestCost::new(COST).merge(&spans(ranges)).into_iter();
        plan.map(|merged| (merged.span.range.start, merged.span.range.end, merged.members)).collect()
    }

    #[test]
    fn neighbours_and_overlaps_are_one_request() {
        let plan = planned(&[("a", 100, 200), ("a", 0, 100), ("b", 200, 300), ("a", 150, 160)]);
        assert_eq!(plan, [(0, 200, vec![1, 0, 3]), (200, 300, vec![2])]);
    }

    #[test]
    fn a_gap_is_read_if_it_is_smaller_than_the_cost_of_a_request() {
        let plan = planned(&[("a", 0, 1), ("a", COST, COST + 1), ("a", 2 * COST + 1, 2 * COST + 2)]);
        assert_eq!(plan, [(0, COST + 1, vec![0, 1]), (2 * COST + 1, 2 * COST + 2, vec![2])]);
        assert_eq!(RequestCost::new(0), RequestCost::new(16 << 10));
    }

    #[test]
    fn long_ranges_stay_apart() {
        let longest = RequestCost::new(COST).longest();
        let plan = planned(&[("a", 0, longest), ("a", longest, longest + 1), ("a", longest + 1, 2 * longest)]);
        assert_eq!(plan, [(0, longest, vec![0]), (longest, 2 * longest, vec![1, 2])]);
    }

    /// The promise of `merge`, for random ranges: dense and sparse, short and long, apart and overlapping.
    #[test]
    fn bytes_and_requests_are_bounded_by_the_cost() {
        let mut random = xorshift(55);
        for round in 0..2000 {
            let mut below = |most: u64| random() % (most + 1);
            let (cost, gaps, lens) = (COST << below(6), 1 << below(24), 1 << below(24));
            let mut at = 0;
            let wanted = (0..=below(200)).map(|_| {
                at += below(gaps);
                let (start, len) = (at, 1 + below(lens));
                at += if round % 2 == 0 { len } else { 0 };
                Span::exact(["a", "b"][usize::from(below(20) == 0)].to_string(), start..start + len)
            });
            let wanted: Vec<Span> = wanted.collect();
            let plan = RequestCost::new(cost).merge(&wanted);
            check_bytes(&wanted, &plan, cost);
            if round % 2 == 0 {
                check_requests(&plan, cost);
            }
        }
    }

    fn check_bytes(wanted: &[Span], plan: &[Merged], cost: u64) {
        let mut members: Vec<usize> = plan.iter().flat_map(|merged| merged.members.clone()).collect();
        members.sort_unstable();
        assert!(members.into_iter().eq(0..wanted.len()), "each range is in one request");
        for Merged { span, members } in plan {
            let is_member =
                |at: &usize| wanted[*at].within(&span.range).is_some_and(|within| within.object == span.object);
            assert!(members.iter().all(is_member), "{span:?}");
            assert!(members.len() == 1 || span.len() <= RequestCost::new(cost).longest(), "{span:?}");
        }
        let [bytes, wanted_bytes] =
            [plan.iter().map(|merged| merged.span.len()).sum(), wanted.iter().map(Span::len).sum::<u64>()];
        let saved = (wanted.len() - plan.len()) as u64;
        assert!(bytes <= wanted_bytes + saved * cost, "{bytes} for {wanted_bytes}, {saved} requests saved");
    }

    fn check_requests(plan: &[Merged], cost: u64) {
        for object in ["a", "b"] {
            let of_object = || plan.iter().map(|merged| &merged.span).filter(|span| span.object == object);
            let Some(start) = of_object().map(|span| span.range.start).min() else { continue };
            let len = of_object().map(|span| span.range.end - start).max().unwrap();
            let requests = of_object().count() as u64;
            assert!(requests <= len / cost + 1, "{requests} requests for {len} bytes");
        }
    }

    #[test]
    fn the_needed_bytes_are_those_of_the_range_that_ends_first() {
        let mut two = spans(&[("a", 0, 100), ("a", 100, 200)]);
        let needed = |spans: &[Span]| RequestCost::new(COST).merge(spans).first().map(|merged| merged.span.needed);
        assert_eq!(needed(&two), Some(100));
        if let Some(first) = two.first_mut() {
            first.needed = 70;
        }
        assert_eq!(needed(&two), Some(70));
        let within = spans(&[("a", 0, 100), ("a", 10, 20)]);
        assert_eq!(needed(&within), Some(20));
    }
}
