//! The Poisson distribution: the number of keys in a minishard or shard when each key picks one at random.

use std::f64::consts::{LN_2, TAU};

/// Above this mean the relative spread is far below 0.1 %, and a bound on the tail replaces its sum.
const LARGE: f64 = 1e8;

/// The median of the largest of `many` independent Poisson numbers.
///
/// Sums the tail: O(sqrt(`mean`)).
pub fn largest_of(many: f64, mean: f64) -> f64 {
    let tail = (LN_2 / many.max(1.0)).min(0.5); // (1 - tail)^many is one half
    if mean > LARGE {
        return mean + (-2.0 * mean * tail.ln()).sqrt();
    }
    let mut at_least = 0.0;
    let mut number = (mean + 9.0 * mean.sqrt() + 45.0).floor(); // above the quantile even of 2^64 numbers
    while number > 0.0 {
        at_least += probability(number, mean);
        if at_least > tail {
            break;
        }
        number -= 1.0;
    }
    number
}

/// The median of a Poisson number that is not zero.
pub fn median_above_zero(mean: f64) -> f64 {
    if mean > 1e3 {
        return (mean + 1.0 / 3.0).floor(); // zero has no weight there
    }
    let half = -(-mean).exp_m1() / 2.0;
    let (mut number, mut up_to) = (1.0, probability(1.0, mean));
    while up_to < half && number < 2e3 {
        number += 1.0;
        up_to += probability(number, mean);
    }
    number
}

fn probability(number: f64, mean: f64) -> f64 {
    (number * mean.ln() - mean - ln_factorial(number)).exp()
}

/// The logarithm of `number!`, by Stirling's series from 10 on.
fn ln_factorial(number: f64) -> f64 {
    let (mut at, mut product) = (number, 1.0);
    while at < 10.0 {
        at += 1.0;
        product *= at;
    }
    let series = at * at.ln() - at + (TAU * at).ln() / 2.0 + 1.0 / (12.0 * at) - 1.0 / (360.0 * at.powi(3));
    series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factorials_are_accurate() {
        let mut exact = 1.0_f64;
        for number in 0..20 {
            exact *= f64::from(number.max(1));
            assert!((ln_factorial(number.into()) - exact.ln()).abs() < 1e-8, "{number}!");
        }
    }

    /// Quantiles from tables: for a mean of 6, P(X > 18) is 1.76e-5 and P(X > 17) is 5.7e-5.
    #[test]
    fn largest_has_one_number_expected_above_it() {
        assert_eq!(largest_of(LN_2 / 1.77e-5, 6.0), 18.0);
        assert_eq!(largest_of(LN_2 / 1.75e-5, 6.0), 19.0);
        assert_eq!(largest_of(1.0, 6.0), 6.0, "the median");
        assert_eq!(largest_of(1e18, 0.0), 0.0);
        assert_eq!(largest_of(10.0, 1e-9), 0.0);
    }

    #[test]
    fn sum_and_bound_agree_at_the_threshold() {
        let (below, above) = (largest_of(1e6, LARGE), largest_of(1e6, LARGE * (1.0 + 1e-9)));
        assert!((above / below - 1.0).abs() < 1e-3);
    }

    #[test]
    fn median_leaves_zero_out() {
        assert_eq!(median_above_zero(1e-6), 1.0);
        assert_eq!(median_above_zero(1.0), 1.0); // 1: 0.368 of 0.632
        assert_eq!(median_above_zero(6.0), 6.0);
        assert_eq!(median_above_zero(1e6), 1e6);
    }
}
