//! The pairs: their number, keys and values. Everything is a function of the key's number, and nothing is stored.

use std::fmt;
use std::str::FromStr;

use crate::random::{Random, Zipf, fraction, reduce, scramble, unscramble};
use crate::reader::{Error, Result};

const OF_VALUE: u64 = 0x5ead_dbed_0000_0001;
const OF_LENGTH: u64 = 0x5ead_dbed_0000_0002;
const WORD_STEP: u64 = 0xd6e8_feb8_6659_fd93;

/// The shortest value: the 8 bytes that are read from it.
const SHORTEST: u64 = 8;

/// A set of pairs, written as "10Mx100": ten million keys with values of 100 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSet {
    pub keys: u64,
    pub values: Values,
}

/// The lengths of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    Fixed(u64),
    /// Median 200 bytes, sigma 1 (mean 330), from 8 to 65,536.
    LogNormal,
}

impl DataSet {
    /// The key of a number. Numbers from `keys` on are absent keys.
    #[inline]
    pub fn key(&self, number: u64) -> u64 {
        scramble(number)
    }

    /// The number of a key.
    #[inline]
    pub fn number(&self, key: u64) -> u64 {
        unscramble(key)
    }

    #[inline]
    pub fn contains(&self, key: u64) -> bool {
        self.number(key) < self.keys
    }

    /// All keys, in random order.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.keys).map(|number| self.key(number))
    }

    /// Replaces `value` with the value of a key.
    pub fn value_into(&self, key: u64, value: &mut Vec<u8>) {
        value.resize(self.value_len(key) as usize, 0);
        let mut word = scramble(key ^ OF_VALUE);
        let mut words = value.chunks_exact_mut(8);
        for bytes in &mut words {
            bytes.copy_from_slice(&word.to_le_bytes());
            word = word.wrapping_add(WORD_STEP);
        }
        let rest = words.into_remainder();
        rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
    }

    #[inline]
    pub fn value_len(&self, key: u64) -> u64 {
        match self.values {
            Values::Fixed(len) => len,
            Values::LogNormal => log_normal(scramble(key ^ OF_LENGTH)),
        }
    }

    /// The bytes of all values; approximate for log-normal ones.
    pub fn value_bytes(&self) -> u64 {
        match self.values {
            Values::Fixed(len) => self.keys * len,
            Values::LogNormal => self.keys * 330,
        }
    }
}

/// A log-normal length from a hash, by the Box-Muller transform.
fn log_normal(hash: u64) -> u64 {
    let (u, v) = (1.0 - fraction(hash), fraction(scramble(hash)));
    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    ((200.0 * normal.exp()) as u64).clamp(SHORTEST, 1 << 16)
}

impl FromStr for DataSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<DataSet> {
        let malformed = || format!("expected a set like 1Mx100 or 10Mxlognormal, found {text:?}");
        let (keys, values) = text.split_once('x').ok_or_else(malformed)?;
        let (digits, unit) = match keys.strip_suffix('M') {
            Some(digits) => (digits, 1_000_000),
            None => keys.strip_suffix('k').map_or((keys, 1), |digits| (digits, 1000)),
        };
        let keys: u64 = digits.parse().map_err(|_| malformed())?;
        let values = match values {
            "lognormal" => Values::LogNormal,
            len => Values::Fixed(len.parse().map_err(|_| malformed())?),
        };
        match (keys.checked_mul(unit), values) {
            (_, Values::Fixed(len)) if !(SHORTEST..=1 << 20).contains(&len) => {
                Err(format!("expected values of {SHORTEST} bytes to 1 MiB, found {len}").into())
            }
            (Some(keys), values) if (1000..=1 << 30).contains(&keys) => Ok(DataSet { keys, values }),
            _ => Err(format!("expected 1000 keys to a billion, found {text:?}").into()),
        }
    }
}

impl fmt::Display for DataSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.keys {
            keys if keys % 1_000_000 == 0 => write!(f, "{}M", keys / 1_000_000)?,
            keys if keys % 1000 == 0 => write!(f, "{}k", keys / 1000)?,
            keys => write!(f, "{keys}")?,
        }
        match self.values {
            Values::Fixed(len) => write!(f, "x{len}"),
            Values::LogNormal => write!(f, "xlognormal"),
        }
    }
}

/// Draws the keys of slices.
pub struct Sampler {
    pub data: DataSet,
    pub random: Random,
    zipf: Zipf,
}

impl Sampler {
    pub fn new(data: DataSet) -> Sampler {
        Sampler { data, random: Random::new(42), zipf: Zipf::new(data.keys) }
    }

    /// Present keys, all equally likely.
    pub fn present(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.data.key(reduce(self.random.next(), self.data.keys))).collect()
    }

    /// Absent keys.
    pub fn absent(&mut self, count: usize) -> Vec<u64> {
        let beyond = u64::MAX - self.data.keys;
        (0..count).map(|_| self.data.key(self.data.keys + reduce(self.random.next(), beyond))).collect()
    }

    /// Present keys, some much more often than others. Popularity is independent of storage order.
    pub fn popular(&mut self, count: usize) -> Vec<u64> {
        let number = |rank| reduce(scramble(rank), self.data.keys);
        (0..count).map(|_| self.data.key(number(self.zipf.rank(&mut self.random)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_they_are_read() {
        for text in ["1Mx100", "10Mx8", "50Mx4096", "1500kxlognormal", "1234x8"] {
            assert_eq!(text.parse::<DataSet>().unwrap().to_string(), text);
        }
        for text in ["", "1M", "x", "1Mx7", "0Mx8", "999x8", "1Mx9999999", "99999999999999999999Mx8", "1Gx8", "-1x8"] {
            assert!(text.parse::<DataSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn present_keys_are_present_and_absent_ones_absent() {
        let data = DataSet { keys: 1000, values: Values::Fixed(8) };
        let mut sampler = Sampler::new(data);
        assert!(sampler.present(2000).into_iter().chain(sampler.popular(2000)).all(|key| data.contains(key)));
        assert!(!sampler.absent(2000).into_iter().any(|key| data.contains(key)));
    }

    #[test]
    fn log_normal_values_have_their_median_and_mean() {
        let data = DataSet { keys: 100_000, values: Values::LogNormal };
        let mut lens: Vec<u64> = data.keys().map(|key| data.value_len(key)).collect();
        lens.sort_unstable();
        assert!((190..210).contains(&lens[50_000]), "median {}", lens[50_000]);
        let mean = lens.iter().sum::<u64>() / 100_000;
        assert!((315..345).contains(&mean), "mean {mean}");
    }
}
