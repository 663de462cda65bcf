//! Whether values shrink under gzip, by compressing a sample of them.

use super::gzip_trial::gzip_len;
use crate::size::Size;

/// The number of values after which only every second one is sampled, then every fourth, and so on.
const DENSE: u64 = 256;

/// The bytes of values after which no more are compressed.
const ENOUGH: u64 = 16 << 20;

/// The lengths of sampled values, as they are and compressed.
#[derive(Debug)]
pub(crate) struct ValueTrial {
    offered: u64,
    raw: u64,
    gzip: u64,
}

impl ValueTrial {
    pub(crate) fn new() -> ValueTrial {
        ValueTrial { offered: 0, raw: 0, gzip: 0 }
    }

    /// Samples a value. The values of a sample do not depend on chance.
    pub(crate) fn offer(&mut self, value: &[u8]) {
        let step = (self.offered / DENSE + 1).next_power_of_two();
        if self.offered.is_multiple_of(step) && self.raw < ENOUGH {
            self.raw += value.len() as u64;
            self.gzip += gzip_len(value);
        }
        self.offered += 1;
    }

    /// A suggestion if the sample shrinks by a third or more.
    pub(crate) fn suggestion(&self) -> Option<String> {
        let shrinks = self.raw > 0 && self.gzip.saturating_mul(3) <= self.raw.saturating_mul(2);
        shrinks.then(|| {
            format!(
                "a sample of values shrinks from {} to {} with gzip: consider --data-encoding gzip for remote readers",
                Size(self.raw),
                Size(self.gzip)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use sharddb::spec::HashFunction;

    use super::*;

    fn trial<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> ValueTrial {
        let mut trial = ValueTrial::new();
        values.into_iter().for_each(|value| trial.offer(value));
        trial
    }

    #[test]
    fn only_what_shrinks_by_a_third_is_suggested() {
        let random: Vec<u8> = (0..1125).flat_map(|i| HashFunction::MurmurHash3X86_128.hash(i).to_le_bytes()).collect();
        assert!(trial([]).suggestion().is_none());
        assert!(trial([&b"x"[..]; 1000]).suggestion().is_none(), "a gzip frame is longer than such values");
        let text = [b'x'; 1000];
        assert!(trial([&text[..]; 1000]).suggestion().unwrap().contains("--data-encoding gzip"));
        // a quarter of the bytes are zeros: it shrinks, but by less than a third
        let mixed = [&random[..], &[0; 3000]].concat();
        let mixed = trial([&mixed[..]]);
        assert!(mixed.gzip < mixed.raw && mixed.suggestion().is_none(), "{mixed:?}");
    }

    #[test]
    fn compresses_a_bounded_number_of_bytes() {
        let value = vec![0; 1 << 20];
        assert!(trial(std::iter::repeat_n(&value[..], 100)).raw <= ENOUGH + value.len() as u64);
        let values = trial(std::iter::repeat_n(&[0; 100][..], 100_000));
        assert!(values.raw < 300 * DENSE * 10, "{values:?}");
    }
}
