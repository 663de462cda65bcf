//! JSON documents in memory.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::budget::{Budget, Share};
use crate::problem::{Problem, Result};
use crate::tree::Place;

/// The longest document that is read: the upper bound on an `info`.
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// The most memory that the value of a document may take. The allocator keeps some of it when the document is dropped.
const MAX_MEMORY: u64 = 128 << 20;

/// A document, with its share of the memory.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) value: Value,
    _share: Share,
}

impl Document {
    /// Parses a text. The memory is reserved before: a text of 16 MiB may take more than 1 GiB.
    ///
    /// Errors: `busy`, `too-large`; `io` if it is not JSON.
    pub(crate) fn parse(text: &[u8], path: &Path, budget: &Budget) -> Result<Document> {
        let bytes = memory_of(text);
        if bytes > MAX_MEMORY {
            return Err(Problem::too_large(format!(
                "expected JSON that takes at most 128 MiB of memory, found {}, which may take {bytes} bytes: read the file \
                 below raw/",
                path.display()
            )));
        }
        let share = budget.reserve(bytes)?;
        let value = serde_json::from_slice(text).map_err(|error| Problem::io("read", path, &error.into()))?;
        Ok(Document { value, _share: share })
    }

    /// Reads a file below a root, and its metadata.
    ///
    /// Errors: `not-found`; those of [`read_text`] and [`parse`](Document::parse).
    pub(crate) fn read(place: &Place, budget: &Budget) -> Result<(Document, Metadata)> {
        let failed = |error| Problem::io("read", &place.path(), &error);
        let file = place.open().map_err(failed)?.ok_or_else(Problem::nothing_here)?;
        let metadata = file.metadata().map_err(failed)?;
        let (text, _share) = read_text(&file, &place.path(), budget)?;
        Ok((Document::parse(&text, &place.path(), budget)?, metadata))
    }
}

impl Document {
    /// The value of a document, without a copy if it is not kept elsewhere.
    pub(crate) fn into_value(self: Arc<Document>) -> (Value, Share) {
        match Arc::try_unwrap(self) {
            Ok(document) => (document.value, document._share),
            Err(kept) => (kept.value.clone(), Share::default()), // what is kept is small
        }
    }
}

/// Reads the text of a document, for which memory is reserved before.
///
/// Errors: `busy`; `too-large` above [`MAX_BYTES`]; `io`.
pub(crate) fn read_text(file: &File, path: &Path, budget: &Budget) -> Result<(Vec<u8>, Share)> {
    let failed = |error| Problem::io("read", path, &error);
    let len = file.metadata().map_err(failed)?.len();
    if len > MAX_BYTES {
        return Err(Problem::too_large(format!("expected JSON of at most 16 MiB, found {len} bytes")));
    }
    let share = budget.reserve(len)?;
    let mut text = Vec::new();
    file.take(len).read_to_end(&mut text).map_err(failed)?;
    Ok((text, share))
}

/// Returns an upper bound on the memory that the value of a text takes.
pub(crate) fn memory_of(text: &[u8]) -> u64 {
    // a map takes 640 bytes for up to 11 members; an element, or a member of a larger map, takes at most 200
    let of_byte = |byte: &u8| match byte {
        b'{' => 640,
        b'[' | b',' => 200,
        _ => 1,
    };
    text.iter().map(of_byte).sum()
}
