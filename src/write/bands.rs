//! Bands and spans: partitions of storage order by the highest bits of the place.
//!
//! A *place* is a `ShardingSpec::packed_location`: the shard number in the high bits, the minishard number in the low ones.
//! A *band* is all places that agree in their highest bits, up to eight bits. It is the unit of sorting.
//! A *span* is all places that agree in their highest n bits, where n is at most the number of band bits and of shard
//! bits. So it consists of whole bands and of whole shards. It is the unit of work of a thread.

use std::ops::Range;

use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;

/// Maximum number of band bits. With ten million pairs in total, a band has about 40,000, which are sorted in the CPU
/// cache.
const MAX_SLICE_BITS: u8 = 8;

/// The partition of the places of a specification into bands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Banding {
    /// There are `2^bits` bands.
    pub(crate) bits: u8,
    shift: u8,
}

impl Banding {
    pub(crate) fn of(spec: &ShardingSpec) -> Banding {
        let bits = place_bits(spec).min(MAX_SLICE_BITS);
        Banding { bits, shift: place_bits(spec) - bits }
    }

    /// Returns the number of bands.
    pub(crate) fn count(self) -> usize {
        1 << self.bits
    }

    #[inline]
    pub(crate) fn band_of(self, place: u64) -> usize {
        usize::try_from(place >> self.shift).unwrap_or(usize::MAX) // `shift` is 56 at most
    }
}

/// Returns the number of bits that a specification selects from a hash.
pub(crate) fn place_bits(spec: &ShardingSpec) -> u8 {
    spec.minishard_bits() + spec.shard_bits()
}

/// The places whose highest `bits` bits are `number`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) number: usize,
    pub(crate) bits: u8,
}

impl Span {
    /// All places.
    pub(crate) const ALL: Span = Span { number: 0, bits: 0 };

    /// Iterates over all `2^bits` spans in storage order.
    pub(crate) fn all(bits: u8) -> impl ExactSizeIterator<Item = Span> {
        (0..1 << bits).map(move |number| Span { number, bits })
    }

    /// Whether this span has the shard of a number below `2^shard_bits`. There must be no more spans than shards.
    pub(crate) fn has_shard(self, shard: ShardNumber, shard_bits: u8) -> bool {
        let number = shard.get().checked_shr(u32::from(shard_bits.saturating_sub(self.bits))).unwrap_or(0);
        number == self.number as u64
    }

    /// Returns the bands of this span, given `2^band_bits` bands; there must be at least as many bands as spans.
    pub(crate) fn bands(self, band_bits: u8) -> Range<usize> {
        let shift = band_bits.saturating_sub(self.bits);
        self.number << shift..(self.number + 1) << shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::hash::HashFunction;

    #[test]
    fn spans_are_whole_slices_in_storage_order() {
        for (minishard_bits, shard_bits) in [(0, 0), (3, 2), (9, 4), (20, 5), (32, 32), (0, 64)] {
            let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, shard_bits).unwrap();
            let banding = Banding::of(&spec);
            let mut places: Vec<u64> = (0..5000).map(|key| spec.packed_location(key)).collect();
            places.sort_unstable();
            let bands: Vec<usize> = places.iter().map(|place| banding.band_of(*place)).collect();
            assert!(bands.is_sorted() && bands.iter().all(|band| *band < banding.count()));
            for bits in 0..=banding.bits.min(shard_bits) {
                let spans: Vec<usize> = Span::all(bits).flat_map(|span| span.bands(banding.bits)).collect();
                assert_eq!(spans, (0..banding.count()).collect::<Vec<_>>());
            }
        }
    }
}
