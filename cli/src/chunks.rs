//! Which bytes of a chunk are meant, where DB is an array or another container.

use clap::Args;
use sharddb::container::Form;

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
