//! Chunks of containers: stored or decoded bytes, and whether they are sound.

use clap::Args;
use sharddb::{ErrorKind, Value};
use sharddb_container::{Container, Form};

use crate::failure::{Failure, Result};

/// Whether chunks of containers are decoded.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Chunks {
    /// For an array or another container: return the decoded elements of chunks instead of the stored bytes
    #[arg(long)]
    decoded: bool,
}

impl Chunks {
    pub(crate) fn form(self) -> Form {
        if self.decoded { Form::Decoded } else { Form::Encoded }
    }

    /// Refuses --decoded for a database, whose values are always decoded.
    ///
    /// Errors: `Usage`.
    pub(crate) fn refuse_decoded(self) -> Result<()> {
        if self.decoded {
            Err(Failure::usage("--decoded is for arrays and other containers, found a database"))
        } else {
            Ok(())
        }
    }
}

/// Returns a chunk after decoding it, which verifies the checks that the format has (gzip, zstd, CRC-32C, bloscpack).
///
/// A chunk in a codec that this build does not support is returned as stored.
///
/// Errors: those of [`Container::get`].
pub(crate) fn get_verified(container: &dyn Container, key: u64, form: Form) -> sharddb::Result<Option<Value<'_>>> {
    let decoded = container.get(key, Form::Decoded);
    match decoded {
        decoded if form == Form::Decoded => decoded,
        Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
        _ => container.get(key, form),
    }
}
