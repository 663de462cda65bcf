//! What a type that dereferences to its bytes has in common with them: comparisons, hash, and lookups in maps of slices.

/// Compares with the types that hold bytes, and hashes like the slice.
macro_rules! as_bytes {
    ($value:ty) => {
        as_bytes!($value, [u8], &[u8], Vec<u8>, &Vec<u8>, $value);

        impl<const N: usize> PartialEq<[u8; N]> for $value {
            fn eq(&self, other: &[u8; N]) -> bool {
                self[..] == other[..]
            }
        }

        impl<const N: usize> PartialEq<&[u8; N]> for $value {
            fn eq(&self, other: &&[u8; N]) -> bool {
                self[..] == other[..]
            }
        }

        impl Eq for $value {}

        impl std::hash::Hash for $value {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self[..].hash(state);
            }
        }

        impl std::borrow::Borrow<[u8]> for $value {
            fn borrow(&self) -> &[u8] {
                self
            }
        }

        impl AsRef<[u8]> for $value {
            fn as_ref(&self) -> &[u8] {
                self
            }
        }
    };
    ($value:ty, $($other:ty),+) => {
        $(impl PartialEq<$other> for $value {
            fn eq(&self, other: &$other) -> bool {
                self[..] == other[..]
            }
        })+
    };
}

pub(crate) use as_bytes;
