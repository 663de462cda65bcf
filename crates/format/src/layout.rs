//! The native layout: what the writer adds to a shard beyond the format's text (checks, preambles, alignment).
//!
//! These bytes are not named by any index, so foreign readers ignore them. A native reader takes the layout from the
//! manifest or from the member "sharddb" of `info`, because the shard itself does not state it.

use crate::error::{Error, Result};

/// Native minishards begin at multiples of this many bytes.
pub const MINISHARD_ALIGNMENT: u64 = 8;

/// The layout of a data set: what its shards have beyond the format's text.
///
/// The default is the layout of foreign data: no checks, no preambles, no alignment.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// use sharddb::spec::{Layout, ValueAlignment};
///
/// let mut layout = Layout::default();
/// assert!(!layout.checks);
/// layout.value_alignment = ValueAlignment::new(64)?;
/// assert_eq!(layout.value_alignment.get(), 64);
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// Every minishard index is followed by checks.
    pub checks: bool,
    /// At least one value has a preamble. If there are checks, they cover the preambles too.
    pub preambles: bool,
    /// Values begin at multiples of this in their file.
    pub value_alignment: ValueAlignment,
}

impl Layout {
    /// Creates a layout.
    pub fn new(checks: bool, preambles: bool, value_alignment: ValueAlignment) -> Layout {
        Layout { checks, preambles, value_alignment }
    }
}

/// The alignment of the file offsets of values.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// use sharddb::ValueAlignment;
///
/// assert_eq!(ValueAlignment::new(4096)?, ValueAlignment::Page);
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ValueAlignment {
    /// 1 byte: no padding.
    #[default]
    One,
    /// 4 bytes: an `f32`.
    Four,
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
    /// Returns the alignment in bytes.
    pub fn get(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Four => 4,
            Self::Eight => 8,
            Self::Sixteen => 16,
            Self::SixtyFour => 64,
            Self::Page => 4096,
        }
    }

    /// Returns the alignment of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless `bytes` is 1, 4, 8, 16, 64 or 4096.
    pub fn new(bytes: u64) -> Result<ValueAlignment> {
        [Self::One, Self::Four, Self::Eight, Self::Sixteen, Self::SixtyFour, Self::Page]
            .into_iter()
            .find(|alignment| alignment.get() == bytes)
            .ok_or_else(|| {
                Error::invalid_input(format!("expected a value alignment of 1, 4, 8, 16, 64 or 4096, found {bytes}"))
            })
    }

    /// Checks that a preamble can be distinguished from the padding before it. The length of a preamble is not stored: where values are
    /// aligned, it begins with the first byte that is not zero after the previous value.
    ///
    /// Errors: `InvalidInput` if it begins with a zero byte and values are aligned.
    #[inline]
    pub fn check_preamble(self, preamble: &[u8]) -> Result<()> {
        if self == Self::One || preamble.first() != Some(&0) { Ok(()) } else { Err(self.preamble_like_padding()) }
    }

    #[cold]
    fn preamble_like_padding(self) -> Error {
        Error::invalid_input(format!(
            "expected a preamble that does not begin with a zero byte, which would be taken for padding where values are \
             aligned to {} bytes, found one that does: build without a value alignment",
            self.get()
        ))
    }

    /// Returns the number of padding bytes from `offset` to the next aligned offset.
    #[inline]
    pub fn padding(self, offset: u64) -> u64 {
        offset.wrapping_neg() & (self.get() - 1)
    }
}
