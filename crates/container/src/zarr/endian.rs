//! The codec `bytes`: the byte order of elements.

use sharddb_format::Result;
use sharddb_format::internal::json;

use crate::zarr::data_type::DataType;
use crate::zarr::extension::Extension;

/// The byte order of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endian {
    Little,
    Big,
}

impl Endian {
    /// Parses the member "endian" of a codec `bytes`. It may be missing if elements have one byte.
    pub(super) fn parse(codec: &Extension<'_>, ordered_size: usize) -> Result<Endian> {
        codec.allow(&["endian"])?;
        let Some(value) = codec.get("endian")? else {
            return match ordered_size {
                1 => Ok(Endian::Little),
                _ => codec.need("endian").map(|_| Endian::Little),
            };
        };
        match json::string(value).as_deref() {
            Some("little") => Ok(Endian::Little),
            Some("big") => Ok(Endian::Big),
            _ => Err(codec.wrong("endian", value)),
        }
    }
    /// Converts from this order to little endian. The same call converts back.
    pub(super) fn to_little(self, mut bytes: Vec<u8>, data_type: DataType) -> Vec<u8> {
        let size = data_type.ordered_size();
        if self == Endian::Big && size > 1 {
            bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        bytes
    }
}

/// Returns whether this is the codec `bytes`, under its name or its name in drafts (`endian`).
pub(super) fn is_bytes(codec: &Extension<'_>) -> bool {
    matches!(codec.name.as_str(), "bytes" | "endian")
}
