//! Counts by powers of two.

use std::fmt::Display;

/// The number of values between each power of two and the next; zero has its own bucket.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    /// Index 0 counts zeros; index `k` counts numbers with `k` binary digits, from `2^(k-1)` to `2^k - 1`.
    counts: [u64; 65],
}

/// A range of numbers, `from..=to`, and how many were counted in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) count: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; 65] }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, number: u64) {
        self.add_times(number, 1);
    }

    /// Adds `number` `times` times.
    pub(crate) fn add_times(&mut self, number: u64, times: u64) {
        let digits = u64::BITS - number.leading_zeros();
        if let Some(count) = self.counts.get_mut(digits as usize) {
            *count = count.saturating_add(times);
        }
    }

    /// The buckets from the first non-empty one to the last.
    pub(crate) fn buckets(&self) -> Vec<Bucket> {
        let taken = |count: &u64| *count > 0;
        let Some(first) = self.counts.iter().position(taken) else { return Vec::new() };
        let end = self.counts.iter().rposition(taken).map_or(0, |last| last + 1);
        let all = (0u32..).zip(&self.counts).map(|(digits, count)| Bucket {
            from: digits.checked_sub(1).map_or(0, |zeros| 1 << zeros),
            to: u64::MAX.checked_shr(u64::BITS - digits).unwrap_or(0),
            count: *count,
        });
        all.take(end).skip(first).collect()
    }

    /// The buckets as lines of text with bars; `label` formats a number.
    pub(crate) fn lines<L: Display>(&self, label: impl Fn(u64) -> L) -> Vec<String> {
        const WIDTH: u64 = 40;
        let buckets = self.buckets();
        let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
        let line = |bucket: &Bucket| {
            // at least one mark for a bucket that is not empty
            let marks = u128::from(bucket.count) * u128::from(WIDTH) / u128::from(most);
            let marks = usize::try_from(marks).unwrap_or(0).max(usize::from(bucket.count > 0));
            format!("{:>12}  {:>14}  {}", bucket.name(&label), grouped(bucket.count), "#".repeat(marks))
                .trim_end()
                .to_string()
        };
        buckets.iter().map(line).collect()
    }
}

impl Bucket {
    /// The name of the bucket: its smallest number, followed by `..` if it has more than one.
    pub(crate) fn name<L: Display>(&self, label: impl Fn(u64) -> L) -> String {
        if self.from == self.to { label(self.from).to_string() } else { format!("{}..", label(self.from)) }
    }
}

/// A number with commas between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        numbers.iter().for_each(|number| histogram.add(*number));
        histogram
    }

    #[test]
    fn buckets_end_before_powers_of_two() {
        let bucket = |from, to, count| Bucket { from, to, count };
        assert_eq!(of(&[]).buckets(), []);
        assert_eq!(of(&[0, 0]).buckets(), [bucket(0, 0, 2)]);
        assert_eq!(of(&[1, 2, 3, 8]).buckets(), [bucket(1, 1, 1), bucket(2, 3, 2), bucket(4, 7, 0), bucket(8, 15, 1)]);
        assert_eq!(of(&[u64::MAX, 1 << 63]).buckets(), [bucket(1 << 63, u64::MAX, 2)]);
    }

    #[test]
    fn every_number_falls_into_its_bucket() {
        for number in (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]) {
            let buckets = of(&[number]).buckets();
            assert!(
                matches!(buckets.as_slice(), [only] if only.from <= number && number <= only.to),
                "{number}: {buckets:?}"
            );
        }
    }

    #[test]
    fn lines_have_bars_in_proportion() {
        let mut histogram = Histogram::default();
        histogram.add_times(1, 1000);
        histogram.add_times(2, 500);
        histogram.add_times(9, 1);
        let lines = histogram.lines(|number| number);
        let bars: Vec<_> = lines.iter().map(|line| line.matches('#').count()).collect();
        assert_eq!(bars, [40, 20, 0, 1]);
        assert!(lines[0].starts_with("           1           1,000  #"), "{}", lines[0]);
        assert!(lines[1].starts_with("         2..             500  #"), "{}", lines[1]);
    }

    #[test]
    fn groups_thousands() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
