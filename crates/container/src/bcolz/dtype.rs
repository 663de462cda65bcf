//! NumPy's names of element types: kind, width and byte order.

use std::fmt;

use sharddb_format::{Error, Result};

/// The byte order of the elements of an array.
///
/// ```
/// use sharddb_container::bcolz::{BcolzOptions, ByteOrder};
///
/// let mut options = BcolzOptions::new();
/// options.byte_order(ByteOrder::Big);
/// assert_eq!(ByteOrder::Big.as_str(), "big");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The least significant byte first (the default).
    #[default]
    Little,
    /// The most significant byte first.
    Big,
}

impl ByteOrder {
    /// Returns the name: `little` or `big`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Little => "little",
            Self::Big => "big",
        }
    }
}

/// What the bytes of an element represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Bool,
    Int,
    Uint,
    Float,
    Complex,
    /// Strings, dates and raw bytes, which are not interpreted.
    Opaque,
    /// Pickled Python objects, one per chunk.
    Object,
    /// Several named fields. The fields are not parsed.
    Record,
}

/// The type of an element: its name as in the meta files, and what follows from the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dtype {
    name: String,
    kind: Kind,
    /// 0 if the name does not state it.
    itemsize: u64,
    byte_order: Option<ByteOrder>,
}

impl Dtype {
    /// Parses a name: `int32`, `<f8`, `|S5`, `datetime64[ns]`.
    ///
    /// # Errors
    ///
    /// `InvalidSpec` if NumPy has no such type.
    pub(super) fn parse(name: &str) -> Result<Dtype> {
        let (byte_order, rest) = match name.strip_prefix(['<', '>', '=', '|']) {
            Some(rest) if name.starts_with('>') => (Some(ByteOrder::Big), rest),
            Some(rest) if name.starts_with('<') => (Some(ByteOrder::Little), rest),
            Some(rest) => (None, rest),
            None => (None, name),
        };
        let (kind, itemsize) = by_name(rest).or_else(|| by_code(rest)).ok_or_else(|| {
            Error::invalid_spec(format!("expected a type of NumPy such as int32, <f8 or |S5, found \"{name}\""))
        })?;
        Ok(Dtype { name: name.to_string(), kind, itemsize, byte_order })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the width of an element in bytes, if the name states it.
    pub(super) fn itemsize(&self) -> Option<u64> {
        (self.itemsize > 0).then_some(self.itemsize)
    }

    /// Returns the byte order, if the name states it.
    pub(super) fn byte_order(&self) -> Option<ByteOrder> {
        self.byte_order
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn by_name(name: &str) -> Option<(Kind, u64)> {
    let sized = |prefix: &str, kind, widths: &[u64]| {
        let bits: u64 = name.strip_prefix(prefix)?.parse().ok()?;
        widths.contains(&bits).then_some((kind, bits / 8))
    };
    match name {
        "bool" => return Some((Kind::Bool, 1)),
        "object" => return Some((Kind::Object, 0)),
        _ if name.starts_with(['[', '{', '(']) => return Some((Kind::Record, 0)),
        _ if name.starts_with("datetime64") || name.starts_with("timedelta64") => return Some((Kind::Opaque, 8)),
        _ => {}
    }
    sized("int", Kind::Int, &[8, 16, 32, 64])
        .or_else(|| sized("uint", Kind::Uint, &[8, 16, 32, 64]))
        .or_else(|| sized("float", Kind::Float, &[16, 32, 64, 96, 128]))
        .or_else(|| sized("complex", Kind::Complex, &[64, 128, 192, 256]))
        // NumPy states bits here
        .or_else(|| sized_in_bits(name))
}

/// `bytes40` and `str128`, as NumPy prints the types of fixed strings.
fn sized_in_bits(name: &str) -> Option<(Kind, u64)> {
    let bits = ["bytes", "str", "void", "string", "unicode"].iter().find_map(|prefix| name.strip_prefix(prefix));
    let bits: u64 = bits?.parse().ok()?;
    (bits > 0 && bits.is_multiple_of(8)).then_some((Kind::Opaque, bits / 8))
}

/// Parses a letter and the width in bytes (for `U`: in characters).
fn by_code(code: &str) -> Option<(Kind, u64)> {
    let mut chars = code.chars();
    let letter = chars.next()?;
    let width = chars.as_str();
    let is_date = matches!(letter, 'M' | 'm') && (width == "8" || width.starts_with("8[") && width.ends_with(']'));
    match letter {
        '?' if width.is_empty() => return Some((Kind::Bool, 1)),
        'O' if width.is_empty() || width == "8" => return Some((Kind::Object, 0)),
        _ if is_date => return Some((Kind::Opaque, 8)),
        _ => {}
    }
    let width: u64 = width.parse().ok().filter(|width| (1..=i32::MAX.unsigned_abs().into()).contains(width))?;
    let one_of = |widths: &[u64], kind| widths.contains(&width).then_some((kind, width));
    match letter {
        'b' => one_of(&[1], Kind::Bool),
        'i' => one_of(&[1, 2, 4, 8], Kind::Int),
        'u' => one_of(&[1, 2, 4, 8], Kind::Uint),
        'f' => one_of(&[2, 4, 8, 12, 16], Kind::Float),
        'c' => one_of(&[8, 16, 24, 32], Kind::Complex),
        'S' | 'a' | 'V' => Some((Kind::Opaque, width)),
        'U' => Some((Kind::Opaque, width * 4)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_tell_the_width() {
        for (name, kind, itemsize, byte_order) in [
            ("bool", Kind::Bool, Some(1), None),
            ("int8", Kind::Int, Some(1), None),
            ("uint64", Kind::Uint, Some(8), None),
            ("float16", Kind::Float, Some(2), None),
            ("complex128", Kind::Complex, Some(16), None),
            (">f4", Kind::Float, Some(4), Some(ByteOrder::Big)),
            ("<i8", Kind::Int, Some(8), Some(ByteOrder::Little)),
            ("|S5", Kind::Opaque, Some(5), None),
            ("<U4", Kind::Opaque, Some(16), Some(ByteOrder::Little)),
            ("bytes40", Kind::Opaque, Some(5), None),
            ("datetime64[ns]", Kind::Opaque, Some(8), None),
            ("<M8[s]", Kind::Opaque, Some(8), Some(ByteOrder::Little)),
            ("object", Kind::Object, None, None),
            ("[('a', '<i4'), ('b', '<f8')]", Kind::Record, None, None),
        ] {
            let dtype = Dtype::parse(name).unwrap();
            assert_eq!((dtype.kind(), dtype.itemsize(), dtype.byte_order()), (kind, itemsize, byte_order), "{name}");
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in
            ["", "int", "int7", "int128", "<", "<i3", "f", "S0", "U-1", "S99999999999", "floaty", "i8 ", "\u{e9}8"]
        {
            assert!(Dtype::parse(name).unwrap_err().message().contains("expected a type of NumPy"), "{name:?}");
        }
    }
}
