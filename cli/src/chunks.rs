//! Which bytes of a chunk are meant, where DB is an array or another container, and whether they are sound.

use clap::Args;
use sharddb::container::{Container, Form};
use sharddb::{ErrorKind, Value};

/// How chunks of containers are given.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Chunks {
    /// Where DB is an array or another container: the elements of chunks, not the bytes as they are stored
    #[arg(long)]
    decoded: bool,
}

impl Chunks {
    pub(crate) fn form(self) -> Form {
        if self.decoded { Form::Decoded } else { Form::Encoded }
    }
}

/// A chunk, after it was decoded: what checks there are (of gzip, zstd, CRC-32C, bloscpack) are compared by that.
///
/// A chunk in a codec that this build does not have is given as it is stored.
///
/// Errors: as of [`Container::get`].
pub(crate) fn get_verified(container: &dyn Container, key: u64, form: Form) -> sharddb::Result<Option<Value<'_>>> {
    let decoded = container.get(key, Form::Decoded);
    match (form, decoded) {
        (Form::Decoded, decoded) => decoded,
        (Form::Encoded, Err(error)) if error.kind() != ErrorKind::Unsupported => Err(error),
        (Form::Encoded, _) => container.get(key, Form::Encoded),
    }
}
