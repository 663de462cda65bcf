//! Eight words at once: what the search of a small minishard index does with each of its rows.
//!
//! They are words that memory has yet to give. As vectors they take fewer instructions, which wait apart from others: the
//! processor has room left for the next lookup, which it begins meanwhile.

use zerocopy::little_endian::U64;

pub(crate) use chosen::EightWords;

#[cfg(target_arch = "x86_64")]
use sse2 as chosen;

#[cfg(not(target_arch = "x86_64"))]
use portable as chosen;

/// For each number of words, all bits of so many.
static FIRST: [Aligned; EightWords::LEN + 1] = {
    let mut masks = [const { Aligned([0; EightWords::LEN]) }; EightWords::LEN + 1];
    let mut count = 0;
    while count <= EightWords::LEN {
        let mut word = 0;
        while word < count {
            masks[count].0[word] = u64::MAX;
            word += 1;
        }
        count += 1;
    }
    masks
};

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Aligned([u64; EightWords::LEN]);

/// With what each processor of this kind has.
#[cfg(target_arch = "x86_64")]
mod sse2 {
    use super::{FIRST, U64};
    use safe_arch::{
        add_i64_m128i, bitand_m128i, bitor_m128i, byte_shl_imm_u128_m128i, cmp_eq_mask_i32_m128i, get_i64_from_m128i_s,
        m128i, move_mask_i8_m128i, pack_i16_to_i8_m128i, pack_i32_to_i16_m128i, set_splat_i64_m128i,
        shuffle_ai_f32_all_m128i,
    };

    /// Eight words, two by two.
    #[derive(Clone, Copy)]
    pub(crate) struct EightWords([m128i; 4]);

    impl EightWords {
        pub(crate) const LEN: usize = 8;

        #[inline(always)]
        pub(crate) fn of(words: &[U64; EightWords::LEN]) -> EightWords {
            EightWords::from(words.map(U64::get))
        }

        #[inline(always)]
        fn from([a, b, c, d, e, f, g, h]: [u64; EightWords::LEN]) -> EightWords {
            EightWords([[a, b], [c, d], [e, f], [g, h]].map(m128i::from))
        }

        /// Each word's sum with all words before it.
        #[inline(always)]
        pub(crate) fn running_sums(self) -> EightWords {
            let [a, b, c, d] = self.0.map(|pair| add_i64_m128i(pair, byte_shl_imm_u128_m128i::<8>(pair)));
            let b = add_i64_m128i(b, both_upper(a));
            let c = add_i64_m128i(c, both_upper(b));
            EightWords([a, b, c, add_i64_m128i(d, both_upper(c))])
        }

        #[inline(always)]
        pub(crate) fn plus(self, other: EightWords) -> EightWords {
            self.with(other, add_i64_m128i)
        }

        #[inline(always)]
        pub(crate) fn or(self, other: EightWords) -> EightWords {
            self.with(other, bitor_m128i)
        }

        /// Which of the first `count` words is the first that equals `word`.
        #[inline(always)]
        pub(crate) fn first_equal(self, word: u64, count: usize) -> Option<usize> {
            let word = set_splat_i64_m128i(word.cast_signed());
            let [a, b, c, d] = self.0.map(|pair| cmp_eq_mask_i32_m128i(pair, word));
            let halves =
                move_mask_i8_m128i(pack_i16_to_i8_m128i(pack_i32_to_i16_m128i(a, b), pack_i32_to_i16_m128i(c, d)))
                    .cast_unsigned();
            let words = halves & halves >> 1 & 0x5555; // two bits a word, of which the lower stays
            let first = (words | 1 << (2 * EightWords::LEN)).trailing_zeros() as usize / 2;
            (first < count.min(EightWords::LEN)).then_some(first)
        }

        /// The first `count` words, and zeros.
        #[inline(always)]
        pub(crate) fn first(self, count: usize) -> Option<EightWords> {
            Some(self.with(EightWords::from(FIRST.get(count)?.0), bitand_m128i))
        }

        /// The sum of all.
        #[inline(always)]
        pub(crate) fn sum(self) -> u64 {
            self.in_one(add_i64_m128i)
        }

        /// The bits that any has.
        #[inline(always)]
        pub(crate) fn any(self) -> u64 {
            self.in_one(bitor_m128i)
        }

        #[inline(always)]
        fn with(self, other: EightWords, pair: impl Fn(m128i, m128i) -> m128i) -> EightWords {
            let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
            EightWords([pair(a, e), pair(b, f), pair(c, g), pair(d, h)])
        }

        #[inline(always)]
        fn in_one(self, pair: impl Fn(m128i, m128i) -> m128i) -> u64 {
            let [a, b, c, d] = self.0;
            let two = pair(pair(a, b), pair(c, d));
            get_i64_from_m128i_s(pair(two, both_upper(two))).cast_unsigned()
        }
    }

    /// The upper word of a pair, twice.
    #[inline(always)]
    fn both_upper(pair: m128i) -> m128i {
        shuffle_ai_f32_all_m128i::<0b11_10_11_10>(pair)
    }
}

/// The same word by word, without a branch.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    use super::{FIRST, U64};

    #[derive(Clone, Copy)]
    pub(crate) struct EightWords([u64; EightWords::LEN]);

    impl EightWords {
        pub(crate) const LEN: usize = 8;

        #[inline]
        pub(crate) fn of(words: &[U64; EightWords::LEN]) -> EightWords {
            EightWords(words.map(U64::get))
        }

        #[inline]
        pub(crate) fn running_sums(self) -> EightWords {
            let mut sum = 0u64;
            EightWords(self.0.map(|word| {
                sum = sum.wrapping_add(word);
                sum
            }))
        }

        #[inline]
        pub(crate) fn plus(self, other: EightWords) -> EightWords {
            self.with(other.0, u64::wrapping_add)
        }

        #[inline]
        pub(crate) fn or(self, other: EightWords) -> EightWords {
            self.with(other.0, |one, two| one | two)
        }

        #[inline]
        pub(crate) fn first_equal(self, word: u64, count: usize) -> Option<usize> {
            let bits = self.0.iter().rev().fold(0u32, |bits, own| bits << 1 | u32::from(*own == word));
            let first = bits.trailing_zeros() as usize;
            (bits != 0 && first < count).then_some(first)
        }

        #[inline]
        pub(crate) fn first(self, count: usize) -> Option<EightWords> {
            Some(self.with(FIRST.get(count)?.0, |one, two| one & two))
        }

        #[inline]
        pub(crate) fn sum(self) -> u64 {
            self.0.into_iter().fold(0, u64::wrapping_add)
        }

        #[inline]
        pub(crate) fn any(self) -> u64 {
            self.0.into_iter().fold(0, |one, two| one | two)
        }

        #[inline]
        fn with(self, other: [u64; EightWords::LEN], word: impl Fn(u64, u64) -> u64) -> EightWords {
            EightWords(std::array::from_fn(|at| word(self.0[at], other[at])))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of them says of any words is what a walk over them says.
    macro_rules! agrees_with_a_walk {
        ($module:ident) => {
            #[test]
            fn $module() {
                use super::$module::EightWords;
                const LEN: usize = EightWords::LEN;

                fn each(words: EightWords) -> [u64; LEN] {
                    let sum = |count| words.first(count).unwrap().sum();
                    std::array::from_fn(|at| sum(at + 1).wrapping_sub(sum(at)))
                }

                fn agrees(random: Vec<u64>, few: bool) -> bool {
                    let word = |at: usize| random.get(at).map_or(0, |word| if few { word % 3 } else { *word });
                    let [one, two]: [[u64; LEN]; 2] = [0, LEN].map(|from| std::array::from_fn(|at| word(from + at)));
                    let [a, b] = [one, two].map(|words| EightWords::of(&words.map(U64::new)));
                    let sums = std::array::from_fn(|at| one[..=at].iter().fold(0, |sum, word| word.wrapping_add(sum)));
                    let pairs = |of: fn(u64, u64) -> u64| std::array::from_fn(|at| of(one[at], two[at]));
                    let wanted = [one[0], one[7], one[3].wrapping_add(1 << 32), two[0], 0, 1];
                    each(a) == one
                        && each(a.running_sums()) == sums
                        && each(a.plus(b)) == pairs(u64::wrapping_add)
                        && each(a.or(b)) == pairs(|one, two| one | two)
                        && (0..=LEN).all(|count| {
                            let first = a.first(count).unwrap();
                            first.any() == one[..count].iter().fold(0, |any, word| any | word)
                                && wanted.iter().all(|wanted| {
                                    a.first_equal(*wanted, count) == one[..count].iter().position(|word| word == wanted)
                                })
                        })
                        && a.first_equal(one[5], 2 * LEN) == one.iter().position(|word| *word == one[5])
                        && a.first(LEN + 1).is_none()
                }
                quickcheck::QuickCheck::new().tests(2000).quickcheck(agrees as fn(Vec<u64>, bool) -> bool);
            }
        };
    }

    #[cfg(target_arch = "x86_64")]
    agrees_with_a_walk!(sse2);
    agrees_with_a_walk!(portable);
}
