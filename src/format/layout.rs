//! What our writer adds to a shard beyond the format's text: checks, prefixes, alignment.
//!
//! All of it lies in bytes that no index names, so foreign readers do not see it; a reader of ours must be
//! told (by the manifest and by the member "sharddb" of `info`), since nothing in a shard says so.

use crate::error::{Error, Result};

/// Native minishards begin at multiples of this.
pub(crate) const MINISHARD_ALIGNMENT: u64 = 8;

/// What a data set has beyond the format's text; the default is a foreign one: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// Checks stand behind every minishard index.
    pub checks: bool,
    /// At least one value has a prefix; with checks, a third row of them covers the prefixes.
    pub prefixes: bool,
    /// Values begin at multiples of this in their file.
    pub value_alignment: ValueAlignment,
}

/// The alignment of a value's absolute file offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ValueAlignment {
    /// 1: no padding.
    #[default]
    One,
    /// 8 bytes.
    Eight,
    /// 16 bytes.
    Sixteen,
    /// 64 bytes: a cache line.
    SixtyFour,
    /// 4096 bytes: a page.
    Page,
}

impl ValueAlignment {
    /// The alignment in bytes.
    pub fn get(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Eight => 8,
            Self::Sixteen => 16,
            Self::SixtyFour => 64,
            Self::Page => 4096,
        }
    }

    /// The alignment of this many bytes.
    ///
    /// Errors: `InvalidInput` unless it is 1, 8, 16, 64 or 4096.
    pub fn new(bytes: u64) -> Result<ValueAlignment> {
        [Self::One, Self::Eight, Self::Sixteen, Self::SixtyFour, Self::Page]
            .into_iter()
            .find(|alignment| alignment.get() == bytes)
            .ok_or_else(|| {
                Error::invalid_input(format!("expected a value alignment of 1, 8, 16, 64 or 4096, found {bytes}"))
            })
    }

    /// How far `offset` is from the next aligned one.
    #[inline]
    pub(crate) fn padding(self, offset: u64) -> u64 {
        offset.wrapping_neg() & (self.get() - 1)
    }
}
