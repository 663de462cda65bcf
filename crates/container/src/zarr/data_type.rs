//! Data types of Zarr v3: element size, byte order, and fill values.

use serde_json::value::RawValue;
use sharddb_format::internal::json;
use sharddb_format::{Error, ErrorKind, Result};

/// Length in bytes of the longest element (raw bits).
const MAX_RAW_BYTES: u32 = 1 << 16;

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum DataType {
    Bool,
    Int { bytes: u8 },
    Uint { bytes: u8 },
    Float { bytes: u8 },
    Complex { bytes: u8 },
    Raw { bytes: u32 },
}

impl DataType {
    /// Parses the name of a data type.
    ///
    /// # Errors
    ///
    /// `Unsupported` for an extension type, with its name.
    pub(super) fn parse(value: &RawValue) -> Result<DataType> {
        let name = json::string(value);
        name.as_deref().and_then(DataType::from_name).ok_or_else(|| {
            let message = format!("expected a data type of Zarr v3 such as uint16, found {}", value.get());
            Error::new(ErrorKind::Unsupported, message)
        })
    }

    fn from_name(name: &str) -> Option<DataType> {
        Some(match name {
            "bool" => Self::Bool,
            "int8" => Self::Int { bytes: 1 },
            "int16" => Self::Int { bytes: 2 },
            "int32" => Self::Int { bytes: 4 },
            "int64" => Self::Int { bytes: 8 },
            "uint8" => Self::Uint { bytes: 1 },
            "uint16" => Self::Uint { bytes: 2 },
            "uint32" => Self::Uint { bytes: 4 },
            "uint64" => Self::Uint { bytes: 8 },
            "float16" => Self::Float { bytes: 2 },
            "float32" => Self::Float { bytes: 4 },
            "float64" => Self::Float { bytes: 8 },
            "complex64" => Self::Complex { bytes: 8 },
            "complex128" => Self::Complex { bytes: 16 },
            raw => {
                let bits: u32 = raw.strip_prefix('r')?.parse().ok()?;
                let bytes = bits / 8;
                let whole = bits.is_multiple_of(8) && (1..=MAX_RAW_BYTES).contains(&bytes);
                return whole.then_some(Self::Raw { bytes });
            }
        })
    }

    /// Returns the length of an element in bytes.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Int { bytes } | Self::Uint { bytes } | Self::Float { bytes } | Self::Complex { bytes } => {
                bytes.into()
            }
            Self::Raw { bytes } => usize::try_from(bytes).unwrap_or(usize::MAX),
        }
    }

    /// Returns the length in bytes of the unit that has a byte order: a part of a complex number, one byte of raw bits,
    /// otherwise an element.
    pub(super) fn ordered_size(self) -> usize {
        match self {
            Self::Complex { bytes } => usize::from(bytes) / 2,
            Self::Raw { .. } => 1,
            other => other.size(),
        }
    }

    /// Returns the bytes of a fill value, little endian.
    ///
    /// # Errors
    ///
    /// `InvalidSpec` if it is not a value of this type.
    pub(super) fn fill_value(self, value: &RawValue) -> Result<Vec<u8>> {
        self.fill_bytes(value).ok_or_else(|| {
            Error::invalid_spec(format!("expected a \"fill_value\" that fits the data type, found {}", value.get()))
        })
    }

    fn fill_bytes(self, value: &RawValue) -> Option<Vec<u8>> {
        match self {
            Self::Bool => match value.get() {
                "false" => Some(vec![0]),
                "true" => Some(vec![1]),
                _ => None,
            },
            Self::Int { bytes } => {
                let number = integer(value)?;
                let most = 1i128 << (u32::from(bytes) * 8 - 1);
                (-most..most).contains(&number).then(|| low_bytes(number.to_le_bytes(), bytes))
            }
            Self::Uint { bytes } => {
                let number = integer(value)?;
                (0..1i128 << (u32::from(bytes) * 8)).contains(&number).then(|| low_bytes(number.to_le_bytes(), bytes))
            }
            Self::Float { bytes } => float(value, bytes),
            Self::Complex { bytes } => {
                let parts = json::elements(value)?;
                let [real, imaginary] = parts.as_slice() else { return None };
                Some([float(real, bytes / 2)?, float(imaginary, bytes / 2)?].concat())
            }
            Self::Raw { .. } => {
                let bytes: Option<Vec<u8>> =
                    json::elements(value)?.iter().map(|byte| byte.get().parse().ok()).collect();
                bytes.filter(|bytes| bytes.len() == self.size())
            }
        }
    }
}

fn low_bytes(number: [u8; 16], bytes: u8) -> Vec<u8> {
    number.get(..bytes.into()).unwrap_or_default().to_vec()
}

/// Parses a JSON number that is an integer. `1.0` is accepted.
fn integer(value: &RawValue) -> Option<i128> {
    value.get().strip_suffix(".0").unwrap_or(value.get()).parse().ok()
}

/// Parses a number, "NaN", "Infinity", "-Infinity", or bits such as "0x7fc00000".
fn float(value: &RawValue, bytes: u8) -> Option<Vec<u8>> {
    if let Some(text) = json::string(value) {
        if let Some(digits) = text.strip_prefix("0x") {
            let fits = digits.len() == usize::from(bytes) * 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let bits = u128::from_str_radix(digits, 16).ok().filter(|_| fits)?;
            return Some(low_bytes(bits.to_le_bytes(), bytes));
        }
        return match text.as_str() {
            "NaN" => Some(float_bytes(f64::NAN, bytes)),
            "Infinity" => Some(float_bytes(f64::INFINITY, bytes)),
            "-Infinity" => Some(float_bytes(f64::NEG_INFINITY, bytes)),
            _ => None,
        };
    }
    let number: f64 = value.get().parse().ok()?; // Rust parses every JSON number
    number.is_finite().then(|| float_bytes(number, bytes))
}

#[expect(clippy::cast_possible_truncation, reason = "a fill value is rounded to the array's precision")]
fn float_bytes(number: f64, bytes: u8) -> Vec<u8> {
    match bytes {
        2 => half_bits(number).to_le_bytes().to_vec(),
        4 => (number as f32).to_le_bytes().to_vec(),
        _ => number.to_le_bytes().to_vec(),
    }
}

/// Converts to IEEE 754 binary16: rounds to nearest, ties to even.
fn half_bits(number: f64) -> u16 {
    const SMALLEST_NORMAL: f64 = 6.103_515_625e-5; // 2^-14
    const SUBNORMAL_UNIT: f64 = 5.960_464_477_539_063e-8; // 2^-24
    const INFINITE: u16 = 0x7c00;

    let sign = u16::from(number.is_sign_negative()) << 15;
    let magnitude = number.abs();
    let bits = if number.is_nan() {
        INFINITE | 0x200
    } else if magnitude < SMALLEST_NORMAL {
        rounded(magnitude / SUBNORMAL_UNIT)
    } else {
        let mut exponent = 15u16;
        let mut fraction = magnitude; // scaled to 1..2 below
        while fraction >= 2.0 && exponent < 31 {
            fraction /= 2.0;
            exponent += 1;
        }
        while fraction < 1.0 {
            fraction *= 2.0;
            exponent -= 1;
        }
        // a fraction that rounds up to 2 carries into the exponent, and from the largest exponent into infinity
        if exponent >= 31 { INFINITE } else { (exponent << 10) + rounded((fraction - 1.0) * 1024.0) }
    };
    sign | bits.min(INFINITE | 0x200)
}

/// Rounds to the nearest integer, which is at most 1024.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1024")]
fn rounded(number: f64) -> u16 {
    number.round_ties_even() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(data_type: &str, value: &str) -> Option<Vec<u8>> {
        let value: Box<RawValue> = RawValue::from_string(value.to_string()).unwrap();
        DataType::from_name(data_type).unwrap().fill_bytes(&value)
    }

    #[test]
    fn fill_values_of_every_type() {
        assert_eq!(fill("bool", "true"), Some(vec![1]));
        assert_eq!(fill("int32", "-1"), Some(vec![0xff; 4]));
        assert_eq!(fill("uint64", "18446744073709551615"), Some(vec![0xff; 8]));
        assert_eq!(fill("int8", "-128"), Some(vec![0x80]));
        assert_eq!(fill("float32", "0.0"), Some(vec![0; 4]));
        assert_eq!(fill("float32", "\"NaN\""), Some(vec![0, 0, 0xc0, 0x7f]));
        assert_eq!(fill("float32", "\"0x7fc00001\""), Some(vec![1, 0, 0xc0, 0x7f]));
        assert_eq!(fill("float64", "\"-Infinity\""), Some(f64::NEG_INFINITY.to_le_bytes().to_vec()));
        assert_eq!(fill("complex64", "[1.0, \"NaN\"]"), Some(vec![0, 0, 0x80, 0x3f, 0, 0, 0xc0, 0x7f]));
        assert_eq!(fill("r24", "[1, 2, 3]"), Some(vec![1, 2, 3]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let bad = [
            ("bool", "0"),
            ("int8", "128"),
            ("uint8", "-1"),
            ("uint8", "256"),
            ("uint16", "1.5"),
            ("uint16", "\"1\""),
            ("float32", "\"nan\""),
            ("float32", "\"0x7fc0\""),
            ("float32", "1e999"),
            ("float64", "null"),
            ("complex64", "1.0"),
            ("r16", "[1]"),
            ("r16", "[1, 256]"),
        ];
        for (data_type, value) in bad {
            assert_eq!(fill(data_type, value), None, "{data_type} {value}");
        }
        for name in ["r7", "r0", "r", "r99999999999", "int4", "string", "datetime64", ""] {
            assert_eq!(DataType::from_name(name), None, "{name}");
        }
    }

    /// Expected values from NumPy.
    #[test]
    fn halves() {
        let halves = [
            (0.0, 0x0000),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65504.0, 0x7bff),
            (65520.0, 0x7c00),
            (1e300, 0x7c00),
            (f64::INFINITY, 0x7c00),
            (f64::NEG_INFINITY, 0xfc00),
            (0.333_333_333, 0x3555),
            (6.103_515_625e-5, 0x0400),
            (5.960_464_477_539_063e-8, 0x0001),
            (6.097_555_160_522_461e-5, 0x03ff),
            (2.049e3, 0x6800),
            (1e-300, 0x0000),
        ];
        for (number, bits) in halves {
            assert_eq!(half_bits(number), bits, "{number}");
        }
        assert_eq!(half_bits(f64::NAN) & 0x7fff, 0x7e00);
    }
}
