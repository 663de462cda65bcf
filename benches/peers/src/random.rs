//! Pseudo-random numbers, the same in every run.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of `u64` without a pattern (the output function of splitmix64).
#[inline]
pub fn scramble(number: u64) -> u64 {
    let mut x = number.wrapping_add(STEP);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The inverse of [`scramble`].
pub fn unscramble(scrambled: u64) -> u64 {
    let mut x = scrambled ^ (scrambled >> 31) ^ (scrambled >> 62);
    x = x.wrapping_mul(0x3196_42b2_d24d_8ec3);
    x = x ^ (x >> 27) ^ (x >> 54);
    x = x.wrapping_mul(0x96de_1b17_3f11_9089);
    x = x ^ (x >> 30) ^ (x >> 60);
    x.wrapping_sub(STEP)
}

/// Maps `hash` to `0..bound`, evenly.
#[inline]
pub fn reduce(hash: u64, bound: u64) -> u64 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u64
}

/// A number of `0.0..1.0` from a hash.
pub fn fraction(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

/// A stream of numbers (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        scramble(self.0)
    }
}

/// Ranks of `0..n`. Rank r has a probability proportional to 1 / (r + 1)^0.99, as in YCSB.
///
/// By the method of Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994.
pub struct Zipf {
    n: f64,
    zeta_n: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    const THETA: f64 = 0.99;

    /// Takes O(`n`): one power per rank.
    pub fn new(n: u64) -> Zipf {
        let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-Self::THETA)).sum::<f64>();
        let (count, zeta_n) = (n as f64, zeta(n));
        let eta = (1.0 - (2.0 / count).powf(1.0 - Self::THETA)) / (1.0 - zeta(2) / zeta_n);
        Zipf { n: count, zeta_n, alpha: 1.0 / (1.0 - Self::THETA), eta }
    }

    pub fn rank(&self, random: &mut Random) -> u64 {
        let u = fraction(random.next());
        let uz = u * self.zeta_n;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5_f64.powf(Self::THETA) {
            return 1;
        }
        (self.n * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unscramble_inverts_scramble() {
        for number in (0..64).map(|bit| 1_u64 << bit).chain(0..1000).chain([u64::MAX]) {
            assert_eq!(unscramble(scramble(number)), number);
        }
    }

    /// For n = 1000 the first rank has a share of 1 / zeta(1000) = 0.1294 (summed independently).
    #[test]
    fn zipf_has_its_frequencies_and_stays_in_range() {
        let (zipf, mut random) = (Zipf::new(1000), Random::new(1));
        let ranks: Vec<u64> = (0..200_000).map(|_| zipf.rank(&mut random)).collect();
        assert!(ranks.iter().all(|rank| *rank < 1000));
        let share = |rank| ranks.iter().filter(|other| **other == rank).count() as f64 / 200_000.0;
        assert!((share(0) - 0.1294).abs() < 0.005, "rank 0 has {}", share(0));
        assert!((share(1) - 0.1294 * 0.5_f64.powf(0.99)).abs() < 0.005, "rank 1 has {}", share(1));
    }
}
