//! `--allow-empty`: whether a generation without keys may replace one with keys.

use clap::Args;

/// What to do with an empty input. A pipe whose writer failed also looks like an empty input.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AllowEmpty {
    /// Publish a generation without keys even if the current one has keys
    #[arg(long)]
    pub(crate) allow_empty: bool,
}
